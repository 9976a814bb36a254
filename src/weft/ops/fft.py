"""Rows: discrete Fourier transforms."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from ..core import dtypes
from ..core.aval import Aval, axes_in, axis_in
from ..core.op import Caller
from ..core.types import Array
from ..errors import ArgumentError, DTypeError, ShapeError
from .batching import Along
from .complex_ import conj
from .rows import linear
from .samples import linalg as samples
from .slicing import along, narrow, unslice
from .structural import cast, roll

# Lengths, one for each axis, or axes; None: their own lengths, or all axes.
PerAxis: TypeAlias = Sequence[int] | None

_NORMS = ("backward", "ortho", "forward")
_OPPOSITE = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


def _check_norm(name: str, norm: str) -> None:
    if norm not in _NORMS:
        raise ArgumentError(f"{name}: norm {norm!r}, expected one of {', '.join(_NORMS)}")


def _opposite(name: str, norm: str | None) -> str:
    """The norm of the inverse transform."""
    _check_norm(name, norm or "backward")
    return _OPPOSITE[norm or "backward"]


def _check(name: str, x: Aval, axes, norm: str) -> Aval:
    axes_in(name, tuple(axes), x.ndim)
    _check_norm(name, norm)
    if any(x.shape[a] == 0 for a in axes):
        raise ShapeError(f"{name}: {x.shape} is empty along {tuple(axes)}; give it a length")
    return x if dtypes.is_inexact(x.dtype) else x.like(dtype=dtypes.default_float())


def _single(compute):
    """Half types as float32: no complex type is as narrow as they are."""

    def widened(xp, x, *static):
        if xp.dtype_of(x) in dtypes.HALF:
            x = xp.cast(x, dtypes.float32)
        return compute(xp, x, *static)

    return widened


def _row(name: str, compute, shape, transpose, sample, axes: int = 0):
    """A row; `axes` says which static parameter names the axes."""
    return linear(
        name,
        compute=_single(compute),
        shape=shape,
        transpose=[transpose],
        reads="",
        promote=(0,),
        floating=True,
        static=True,
        recast=True,
        precision="single",
        batch=Along((axes,)),
        sample=sample,
    )


def _complex_transform(name: str):
    """A transform by a symmetric matrix, which is its own transpose."""

    def shape(x: Aval, axes, norm) -> Aval:
        x = _check(name, x, axes, norm)
        return x.like(dtype=dtypes.to_complex(x.dtype))

    def compute(xp, x, axes, norm):
        if axes:
            return getattr(xp, name)(x, axes, norm)
        return xp.cast(x, dtypes.to_complex(xp.dtype_of(x)))

    row = _row(name, compute, shape, lambda g, x, axes, norm: row(g, axes, norm), samples("fftn"))
    return row


fftn_row: Caller = _complex_transform("fftn")
ifftn_row: Caller = _complex_transform("ifftn")


def _weight(xp, x, n: int, axis: int, factor: float):
    index = along(x.shape, axis, (1, (n - 1) // 2, 1))
    return xp.slice_set(x, xp.slice_(x, index) * factor, index)


# The frequencies of a real signal of length n that stand for two, themselves and their
# conjugates: all but 0 and n/2.
paired: Caller = linear(
    "paired",
    compute=_weight,
    shape=lambda x, n, axis, factor: x,
    transpose=[lambda g, x, n, axis, factor: paired(g, n, axis, factor)],
    reads="",
    batch=Along((1,)),
    sample=samples("frequency_pairs"),
)


def _rfft_shape(x: Aval, axis: int, norm: str) -> Aval:
    x = _check("rfft", x, (axis,), norm)
    if x.dtype in dtypes.COMPLEX:
        raise DTypeError(f"rfft: got {x.dtype}, expected real numbers; use fft")
    shape = list(x.shape)
    shape[axis] = shape[axis] // 2 + 1
    return x.like(shape, dtypes.to_complex(x.dtype))


def _rfft_transpose(g, x, axis, norm):
    n = x.shape[axis]
    return irfft_row(paired(conj(g), n, axis, 0.5), n, axis, _OPPOSITE[norm])


rfft_row: Caller = _row(
    "rfft",
    lambda xp, x, axis, norm: xp.rfft(x, axis, norm),
    _rfft_shape,
    _rfft_transpose,
    samples("rfft"),
)


def _irfft_shape(x: Aval, n: int, axis: int, norm: str) -> Aval:
    x = _check("irfft", x, (axis,), norm)
    if x.shape[axis] != n // 2 + 1:
        raise ShapeError(f"irfft: {x.shape[axis]} frequencies for {n} values: {n // 2 + 1} needed")
    return x.like((*x.shape[:axis], n, *x.shape[axis + 1 :]), dtypes.to_real(x.dtype))


def _irfft_transpose(g, x, n, axis, norm):
    return conj(paired(rfft_row(g, axis, _OPPOSITE[norm]), n, axis, 2.0))


irfft_row: Caller = _row(
    "irfft",
    lambda xp, x, n, axis, norm: xp.irfft(x, n, axis, norm),
    _irfft_shape,
    _irfft_transpose,
    samples("irfft"),
    axes=1,
)


def _resize(name: str, x, n: int | None, axis: int):
    """x cut or padded with zeros to length n along an axis."""
    have = x.shape[axis]
    if n is None or n == have:
        return x
    _check_length(name, n)
    if n < have:
        return narrow(x, axis, 0, n)
    shape = (*x.shape[:axis], n, *x.shape[axis + 1 :])
    return unslice(x, along(x.shape, axis, (0, have, 1)), shape)


def _check_length(name: str, n: Any, fix: str = "") -> None:
    if not hasattr(n, "__index__"):
        raise DTypeError(f"{name}: a length of {n!r}, expected an integer")
    if n < 1:
        raise ArgumentError(f"{name}: a length of {n}, expected at least 1{fix}")


def _check_sequence(name: str, what: str, given: Any, each: str) -> None:
    if not isinstance(given, Iterable):
        raise DTypeError(f"{name}: {what}={given!r}, expected a sequence of {each}: ({given!r},)")


def _as_complex(x):
    if dtypes.is_complex(x.dtype):
        return x
    return cast(x, dtypes.to_complex(dtypes.canonical(x.dtype)))


def _axes_and_sizes(name: str, x, s, axes):
    """Axes counted from the front, each with the length it is to have (None: its own)."""
    ndim = len(x.shape)
    if s is not None:
        _check_sequence(name, "s", s, "lengths")
    if axes is None:
        axes = range(ndim) if s is None else range(ndim - len(s), ndim)
    _check_sequence(name, "axes", axes, "axes")
    axes = [axis_in(name, a, ndim) for a in axes]
    sizes = [None] * len(axes) if s is None else [None if n == -1 else n for n in s]
    if len(sizes) != len(axes):
        raise ArgumentError(f"{name}: {len(sizes)} lengths for {len(axes)} axes; give one for each")
    return axes, sizes


def _some_axes(name: str, x, s, axes):
    """`_axes_and_sizes`, of at least one axis: the last is the one that is halved."""
    found, sizes = _axes_and_sizes(name, x, s, axes)
    if not found:
        raise ArgumentError(f"{name}: got no axes, expected at least one for real values")
    return found, sizes


def _transform(name: str, row, x, s, axes, norm):
    axes, sizes = _axes_and_sizes(name, x, s, axes)
    for a, n in zip(axes, sizes, strict=True):
        x = _resize(name, x, n, a)
    if len(set(axes)) == len(axes):
        return row(x, tuple(axes), norm or "backward")
    for a in axes:
        x = row(x, (a,), norm or "backward")
    return x


def fftn(x: Array, s: PerAxis = None, axes: PerAxis = None, norm: str | None = "backward") -> Array:
    """The discrete Fourier transform over several axes: `fft` along each.

    x     an array of real or complex numbers
    s     the lengths to cut or to pad with zeros to, for each axis; None: as they are
    axes  the axes to transform; None: all, or as many of the last as `s` has
    norm  "backward": no factor; "ortho": divided by √n; "forward": by n, the number of elements

    >>> import weft as wf
    >>> wf.fft.fftn([[1.0, 1.0], [1.0, 1.0]]).real.tolist()
    [[4.0, 0.0], [0.0, 0.0]]
    """
    return _transform("fftn", fftn_row, x, s, axes, norm)


def ifftn(
    x: Array, s: PerAxis = None, axes: PerAxis = None, norm: str | None = "backward"
) -> Array:
    """The inverse of `fftn`.

    x     an array of real or complex numbers
    s     the lengths to cut or to pad with zeros to, for each axis; None: as they are
    axes  the axes to transform; None: all, or as many of the last as `s` has
    norm  that of the `fftn` it inverts: "backward", "ortho" or "forward"

    >>> import weft as wf
    >>> wf.fft.ifftn([[4.0, 0.0], [0.0, 0.0]]).real.tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    return _transform("ifftn", ifftn_row, x, s, axes, norm)


def fft(x: Array, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Array:
    """The discrete Fourier transform yₖ = Σⱼ xⱼ exp(−2πi·jk/n) along an axis.

    x     an array of real or complex numbers
    n     the length to cut or to pad with zeros to; None: as it is
    axis  the axis to transform
    norm  "backward": as above; "ortho": divided by √n; "forward": by n

    >>> import weft as wf
    >>> [round(abs(v), 4) for v in wf.fft.fft([1.0, 0.0, -1.0, 0.0]).tolist()]
    [0.0, 2.0, 0.0, 2.0]
    """
    return _transform("fft", fftn_row, x, (-1 if n is None else n,), (axis,), norm)


def ifft(x: Array, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Array:
    """The inverse of `fft`: xⱼ = (1/n) Σₖ yₖ exp(2πi·jk/n) along an axis.

    x     an array of real or complex numbers
    n     the length to cut or to pad with zeros to; None: as it is
    axis  the axis to transform
    norm  that of the `fft` it inverts: "backward", "ortho" or "forward"

    >>> import weft as wf
    >>> wf.fft.ifft(wf.fft.fft([1.0, 2.0])).real.tolist()
    [1.0, 2.0]
    """
    return _transform("ifft", ifftn_row, x, (-1 if n is None else n,), (axis,), norm)


def fft2(
    x: Array, s: PerAxis = None, axes: PerAxis = (-2, -1), norm: str | None = "backward"
) -> Array:
    """The discrete Fourier transform over two axes: `fft` along each.

    x     an array of real or complex numbers
    s     the lengths to cut or to pad with zeros to, for each axis; None: as they are
    axes  the axes to transform
    norm  "backward": no factor; "ortho": divided by √n; "forward": by n, the number of elements

    >>> import weft as wf
    >>> wf.fft.fft2([[1.0, 1.0], [1.0, 1.0]]).real.tolist()
    [[4.0, 0.0], [0.0, 0.0]]
    """
    return _transform("fft2", fftn_row, x, s, axes, norm)


def ifft2(
    x: Array, s: PerAxis = None, axes: PerAxis = (-2, -1), norm: str | None = "backward"
) -> Array:
    """The inverse of `fft2`.

    x     an array of real or complex numbers
    s     the lengths to cut or to pad with zeros to, for each axis; None: as they are
    axes  the axes to transform
    norm  that of the `fft2` it inverts: "backward", "ortho" or "forward"

    >>> import weft as wf
    >>> wf.fft.ifft2([[4.0, 0.0], [0.0, 0.0]]).real.tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    return _transform("ifft2", ifftn_row, x, s, axes, norm)


def rfftn(
    x: Array, s: PerAxis = None, axes: PerAxis = None, norm: str | None = "backward"
) -> Array:
    """`fftn` of real numbers, without the half of the last axis that symmetry determines.

    x     an array of real numbers
    s     the lengths to cut or to pad with zeros to, for each axis; None: as they are
    axes  the axes to transform; None: all, or as many of the last as `s` has
    norm  "backward": no factor; "ortho": divided by √n; "forward": by n, the number of elements

    >>> import weft as wf
    >>> wf.fft.rfftn(wf.ones((4, 4))).shape
    (4, 3)
    """
    return _rfftn("rfftn", x, s, axes, norm)


def _rfftn(name: str, x, s, axes, norm):
    (*others, last), sizes = _some_axes(name, x, s, axes)
    y = rfft_row(_resize(name, x, sizes[-1], last), last, norm or "backward")
    return _transform(name, fftn_row, y, s and s[:-1], others, norm) if others else y


def irfftn(
    x: Array, s: PerAxis = None, axes: PerAxis = None, norm: str | None = "backward"
) -> Array:
    """The inverse of `rfftn`, which gives real numbers.

    x     frequencies, as of `rfftn`
    s     the lengths of the result, for each axis; None: 2·(m − 1) for the last, so give it if
          it is odd
    axes  the axes to transform; None: all, or as many of the last as `s` has
    norm  that of the `rfftn` it inverts: "backward", "ortho" or "forward"

    >>> import weft as wf
    >>> wf.fft.irfftn(wf.fft.rfftn(wf.ones((2, 4)))).tolist()
    [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]
    """
    return _irfftn("irfftn", x, s, axes, norm)


def _irfftn(name: str, x, s, axes, norm):
    (*others, last), sizes = _some_axes(name, x, s, axes)
    n = 2 * (x.shape[last] - 1) if sizes[-1] is None else sizes[-1]
    _check_length(name, n, "; give s or n")
    n = int(n)
    x = _as_complex(x)
    if others:
        x = _transform(name, ifftn_row, x, s and s[:-1], others, norm)
    return irfft_row(_resize(name, x, n // 2 + 1, last), n, last, norm or "backward")


def rfft(x: Array, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Array:
    """`fft` of real numbers: the frequencies 0 to ⌊n/2⌋, whose conjugates are the others.

    x     an array of real numbers
    n     the length to cut or to pad with zeros to; None: as it is
    axis  the axis to transform
    norm  "backward": no factor; "ortho": divided by √n; "forward": by n

    >>> import weft as wf
    >>> wf.fft.rfft([1.0, 2.0, 3.0, 4.0]).tolist()
    [(10+0j), (-2+2j), (-2+0j)]
    """
    return _rfftn("rfft", x, (-1 if n is None else n,), (axis,), norm)


def irfft(x: Array, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Array:
    """The inverse of `rfft`: n real numbers from ⌊n/2⌋ + 1 frequencies.

    x     frequencies, as of `rfft`
    n     the length of the result; None: 2·(m − 1) for m frequencies, so give it if it is odd
    axis  the axis to transform
    norm  that of the `rfft` it inverts: "backward", "ortho" or "forward"

    >>> import weft as wf
    >>> wf.fft.irfft(wf.fft.rfft([1.0, 2.0, 3.0, 4.0])).tolist()
    [1.0, 2.0, 3.0, 4.0]
    """
    return _irfftn("irfft", x, (-1 if n is None else n,), (axis,), norm)


def rfft2(
    x: Array, s: PerAxis = None, axes: PerAxis = (-2, -1), norm: str | None = "backward"
) -> Array:
    """`fft2` of real numbers, without the half of the last axis that symmetry determines.

    x     an array of real numbers
    s     the lengths to cut or to pad with zeros to, for each axis; None: as they are
    axes  the axes to transform
    norm  "backward": no factor; "ortho": divided by √n; "forward": by n, the number of elements

    >>> import weft as wf
    >>> wf.fft.rfft2(wf.ones((4, 4))).shape
    (4, 3)
    """
    return _rfftn("rfft2", x, s, axes, norm)


def irfft2(
    x: Array, s: PerAxis = None, axes: PerAxis = (-2, -1), norm: str | None = "backward"
) -> Array:
    """The inverse of `rfft2`, which gives real numbers.

    x     frequencies, as of `rfft2`
    s     the lengths of the result, for each axis; None: 2·(m − 1) for the last, so give it if
          it is odd
    axes  the axes to transform
    norm  that of the `rfft2` it inverts: "backward", "ortho" or "forward"

    >>> import weft as wf
    >>> wf.fft.irfft2(wf.fft.rfft2(wf.ones((2, 4)))).tolist()
    [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]
    """
    return _irfftn("irfft2", x, s, axes, norm)


def hfft(x: Array, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Array:
    """The real transform of a signal with Hermitian symmetry, given by its first half.

    x     the elements 0 to ⌊n/2⌋ of a signal whose others are their conjugates
    n     the length of the result; None: 2·(m − 1) for m elements, so give it if it is odd
    axis  the axis to transform
    norm  "backward": no factor; "ortho": divided by √n; "forward": by n

    >>> import weft as wf
    >>> wf.fft.hfft([1.0, 2.0, 3.0]).tolist()
    [8.0, -2.0, 0.0, -2.0]
    """
    norm = _opposite("hfft", norm)
    return _irfftn("hfft", conj(_as_complex(x)), (-1 if n is None else n,), (axis,), norm)


def ihfft(x: Array, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Array:
    """The inverse of `hfft`: the first half of a signal with Hermitian symmetry.

    x     an array of real numbers
    n     the length to cut or to pad with zeros to; None: as it is
    axis  the axis to transform
    norm  that of the `hfft` it inverts: "backward", "ortho" or "forward"

    >>> import weft as wf
    >>> wf.fft.ihfft(wf.fft.hfft([1.0, 2.0, 3.0])).real.tolist()
    [1.0, 2.0, 3.0]
    """
    norm = _opposite("ihfft", norm)
    return conj(_rfftn("ihfft", x, (-1 if n is None else n,), (axis,), norm))


def _roll_axes(name: str, x, axes, sign: int):
    if axes is not None and not isinstance(axes, int):
        _check_sequence(name, "axes", axes, "axes")
        axes = tuple(axes)
    axes = axes_in(name, axes, len(x.shape))
    return roll(x, tuple(sign * (x.shape[a] // 2) for a in axes), axes)


def fftshift(x: Array, axes: int | Sequence[int] | None = None) -> Array:
    """Frequency zero moved to the middle: x rolled by ⌊n/2⌋.

    x     frequencies in the order of `fft`
    axes  the axis or axes to shift; None: all

    >>> import weft as wf
    >>> wf.fft.fftshift(wf.fft.fftfreq(4)).tolist()
    [-0.5, -0.25, 0.0, 0.25]
    """
    return _roll_axes("fftshift", x, axes, 1)


def ifftshift(x: Array, axes: int | Sequence[int] | None = None) -> Array:
    """The inverse of `fftshift`: frequency zero moved to the beginning.

    x     frequencies with zero in the middle
    axes  the axis or axes to shift; None: all

    >>> import weft as wf
    >>> wf.fft.ifftshift([-2.0, -1.0, 0.0, 1.0]).tolist()
    [0.0, 1.0, -2.0, -1.0]
    """
    return _roll_axes("ifftshift", x, axes, -1)
