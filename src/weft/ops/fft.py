"""Rows: discrete Fourier transforms."""

from collections.abc import Sequence
from typing import TypeAlias

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

# Lengths, one for each axis, or the axes; None: the lengths that they have, or all axes.
PerAxis: TypeAlias = Sequence[int] | None

_NORMS = ("backward", "ortho", "forward")
_OPPOSITE = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


def _checked(name: str, x: Aval, axes, norm: str) -> Aval:
    axes_in(name, tuple(axes), x.ndim)
    if norm not in _NORMS:
        raise ArgumentError(f"{name}: norm {norm!r}, expected one of {', '.join(_NORMS)}")
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
        x = _checked(name, x, axes, norm)
        return x.like(dtype=dtypes.to_complex(x.dtype))

    def compute(xp, x, axes, norm):
        if axes:
            return getattr(xp, name)(x, axes, norm)
        return xp.cast(x, dtypes.to_complex(xp.dtype_of(x)))

    row = _row(name, compute, shape, lambda g, x, axes, norm: row(g, axes, norm), samples.fftn)
    return row


fftn_row: Caller = _complex_transform("fftn")
ifftn_row: Caller = _complex_transform("ifftn")


def _weighted(xp, x, n: int, axis: int, factor: float):
    index = along(x.shape, axis, (1, (n - 1) // 2, 1))
    return xp.slice_set(x, xp.slice_(x, index) * factor, index)


# The frequencies of a real signal of length n that stand for two, themselves and their
# conjugates: all but 0 and n/2.
paired: Caller = linear(
    "paired",
    compute=_weighted,
    shape=lambda x, n, axis, factor: x,
    transpose=[lambda g, x, n, axis, factor: paired(g, n, axis, factor)],
    reads="",
    batch=Along((1,)),
    sample=samples.paired,
)


def _rfft_shape(x: Aval, axis: int, norm: str) -> Aval:
    x = _checked("rfft", x, (axis,), norm)
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
    samples.rfft,
)


def _irfft_shape(x: Aval, n: int, axis: int, norm: str) -> Aval:
    x = _checked("irfft", x, (axis,), norm)
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
    samples.irfft,
    axes=1,
)


def _resized(name: str, x, n: int | None, axis: int):
    """x cut or padded with zeros to length n along an axis."""
    have = x.shape[axis]
    if n is None or n == have:
        return x
    if n < 1:
        raise ArgumentError(f"{name}: a length of {n}, expected at least 1")
    if n < have:
        return narrow(x, axis, 0, n)
    shape = (*x.shape[:axis], n, *x.shape[axis + 1 :])
    return unslice(x, along(x.shape, axis, (0, have, 1)), shape)


def _as_complex(x):
    if dtypes.is_complex(x.dtype):
        return x
    return cast(x, dtypes.to_complex(dtypes.canonical(x.dtype)))


def _axes_and_sizes(name: str, x, s, axes):
    """Axes counted from the front, each with the length it is to have (None: its own)."""
    ndim = len(x.shape)
    if axes is None:
        axes = range(ndim) if s is None else range(ndim - len(s), ndim)
    axes = [axis_in(name, a, ndim) for a in axes]
    sizes = [None] * len(axes) if s is None else [None if n == -1 else n for n in s]
    if len(sizes) != len(axes):
        raise ArgumentError(f"{name}: {len(sizes)} lengths for {len(axes)} axes; give one for each")
    return axes, sizes


def _transformed(name: str, row, x, s, axes, norm):
    axes, sizes = _axes_and_sizes(name, x, s, axes)
    for a, n in zip(axes, sizes, strict=True):
        x = _resized(name, x, n, a)
    if len(set(axes)) == len(axes):
        return row(x, tuple(axes), norm or "backward")
    for a in axes:
        x = row(x, (a,), norm or "backward")
    return x


def fftn(x: Array, s: PerAxis = None, axes: PerAxis = None, norm: str | None = "backward") -> Array:
    """The discrete Fourier transform over several axes (None: all)."""
    return _transformed("fftn", fftn_row, x, s, axes, norm)


def ifftn(
    x: Array, s: PerAxis = None, axes: PerAxis = None, norm: str | None = "backward"
) -> Array:
    """The inverse of fftn."""
    return _transformed("ifftn", ifftn_row, x, s, axes, norm)


def fft(x: Array, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Array:
    """The discrete Fourier transform Σ xⱼ exp(−2πi jk/n) along an axis."""
    return _transformed("fft", fftn_row, x, (-1 if n is None else n,), (axis,), norm)


def ifft(x: Array, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Array:
    """The inverse of fft."""
    return _transformed("ifft", ifftn_row, x, (-1 if n is None else n,), (axis,), norm)


def fft2(
    x: Array, s: PerAxis = None, axes: PerAxis = (-2, -1), norm: str | None = "backward"
) -> Array:
    """fftn over two axes."""
    return _transformed("fft2", fftn_row, x, s, axes, norm)


def ifft2(
    x: Array, s: PerAxis = None, axes: PerAxis = (-2, -1), norm: str | None = "backward"
) -> Array:
    """The inverse of fft2."""
    return _transformed("ifft2", ifftn_row, x, s, axes, norm)


def rfftn(
    x: Array, s: PerAxis = None, axes: PerAxis = None, norm: str | None = "backward"
) -> Array:
    """fftn of real numbers, without the half of the last axis that symmetry determines."""
    axes, sizes = _axes_and_sizes("rfftn", x, s, axes)
    *others, last = axes
    y = rfft_row(_resized("rfftn", x, sizes[-1], last), last, norm or "backward")
    return _transformed("rfftn", fftn_row, y, s and s[:-1], others, norm) if others else y


def irfftn(
    x: Array, s: PerAxis = None, axes: PerAxis = None, norm: str | None = "backward"
) -> Array:
    """The inverse of rfftn; the last length must be given if it is odd."""
    axes, sizes = _axes_and_sizes("irfftn", x, s, axes)
    *others, last = axes
    n = 2 * (x.shape[last] - 1) if sizes[-1] is None else sizes[-1]
    if n < 1:
        raise ArgumentError(f"irfftn: a length of {n}, expected at least 1; give s or n")
    x = _as_complex(x)
    if others:
        x = _transformed("irfftn", ifftn_row, x, s and s[:-1], others, norm)
    return irfft_row(_resized("irfftn", x, n // 2 + 1, last), n, last, norm or "backward")


def rfft(x: Array, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Array:
    """fft of real numbers: the frequencies 0 to n/2, which determine the others."""
    return rfftn(x, (-1 if n is None else n,), (axis,), norm)


def irfft(x: Array, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Array:
    """The inverse of rfft; n must be given if it is odd."""
    return irfftn(x, (-1 if n is None else n,), (axis,), norm)


def rfft2(
    x: Array, s: PerAxis = None, axes: PerAxis = (-2, -1), norm: str | None = "backward"
) -> Array:
    """rfftn over two axes."""
    return rfftn(x, s, axes, norm)


def irfft2(
    x: Array, s: PerAxis = None, axes: PerAxis = (-2, -1), norm: str | None = "backward"
) -> Array:
    """The inverse of rfft2."""
    return irfftn(x, s, axes, norm)


def hfft(x: Array, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Array:
    """The real transform of a signal that has Hermitian symmetry, given by its first half."""
    return irfft(conj(_as_complex(x)), n, axis, _OPPOSITE[norm or "backward"])


def ihfft(x: Array, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Array:
    """The inverse of hfft."""
    return conj(rfft(x, n, axis, _OPPOSITE[norm or "backward"]))


def _rolled(name: str, x, axes, sign: int):
    if axes is not None and not isinstance(axes, int):
        axes = tuple(axes)
    axes = axes_in(name, axes, len(x.shape))
    return roll(x, tuple(sign * (x.shape[a] // 2) for a in axes), axes)


def fftshift(x: Array, axes: int | Sequence[int] | None = None) -> Array:
    """Frequency zero moved to the middle."""
    return _rolled("fftshift", x, axes, 1)


def ifftshift(x: Array, axes: int | Sequence[int] | None = None) -> Array:
    """The inverse of fftshift."""
    return _rolled("ifftshift", x, axes, -1)
