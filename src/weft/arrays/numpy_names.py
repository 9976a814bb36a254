"""Functions that NumPy has and the namespace lacks, made of the namespace's for NumPy's callers."""

from collections.abc import Callable, Iterable
from math import pi
from typing import TYPE_CHECKING, Any

from .. import errors
from ..ops import nans
from ..ops.linalg import cond as _cond
from . import (
    elementwise,
    linalg,
    make,
    manipulation,
    numpy_more,
    reductions,
    special,
)
from .arguments import as_tensor, axes_of, axis_of
from .types import ArrayLike, Axes

if TYPE_CHECKING:
    from .tensor import Tensor

_F = elementwise.FUNCTIONS


def shape(a: ArrayLike) -> tuple[int, ...]:
    """The lengths of the axes."""
    return as_tensor(a).shape


def ndim(a: ArrayLike) -> int:
    """The number of axes."""
    return as_tensor(a).ndim


def size(a: ArrayLike, axis: int | None = None) -> int:
    """The number of elements, or the length of an axis."""
    a = as_tensor(a)
    return a.size if axis is None else a.shape[axis_of("size", a, axis)]


def copy(a: ArrayLike) -> "Tensor":
    """A copy that stays connected."""
    return manipulation.clone(a)


def ravel(a: ArrayLike) -> "Tensor":
    """All elements in one axis."""
    return manipulation.flatten(a)


def _at_least(n: int, a):
    a = as_tensor(a)
    return a if a.ndim >= n else a.reshape((*(1,) * (n - a.ndim), *a.shape))


def _each(f, arrays):
    out = tuple(f(a) for a in arrays)
    return out[0] if len(out) == 1 else out


def atleast_1d(*arys: ArrayLike) -> "Tensor | tuple[Tensor, ...]":
    """0-d tensors as vectors."""
    return _each(lambda a: _at_least(1, a), arys)


def atleast_2d(*arys: ArrayLike) -> "Tensor | tuple[Tensor, ...]":
    """Vectors as rows of matrices."""
    return _each(lambda a: _at_least(2, a), arys)


def _deep(a):
    a = _at_least(1, a)
    around = {1: (1, *a.shape, 1), 2: (*a.shape, 1)}
    return a.reshape(around[a.ndim]) if a.ndim in around else a


def atleast_3d(*arys: ArrayLike) -> "Tensor | tuple[Tensor, ...]":
    """Vectors and matrices with axes of length 1 around them."""
    return _each(_deep, arys)


def vstack(tup: Iterable[ArrayLike]) -> "Tensor":
    """Rows on top of each other."""
    return manipulation.concat([_at_least(2, a) for a in tup], axis=0)


def hstack(tup: Iterable[ArrayLike]) -> "Tensor":
    """Tensors side by side."""
    parts = [_at_least(1, a) for a in tup]
    return manipulation.concat(parts, axis=0 if parts[0].ndim == 1 else 1)


def dstack(tup: Iterable[ArrayLike]) -> "Tensor":
    """Tensors joined along the third axis."""
    return manipulation.concat([_deep(a) for a in tup], axis=2)


def column_stack(tup: Iterable[ArrayLike]) -> "Tensor":
    """Vectors as the columns of a matrix."""
    parts = [as_tensor(a) for a in tup]
    return manipulation.concat([p if p.ndim > 1 else p.reshape((-1, 1)) for p in parts], axis=1)


def append(arr: ArrayLike, values: ArrayLike, axis: int | None = None) -> "Tensor":
    """values after arr."""
    return manipulation.concat([arr, values], axis=axis)


def fliplr(m: ArrayLike) -> "Tensor":
    """The columns in reverse order."""
    return manipulation.flip(m, axis=1)


def flipud(m: ArrayLike) -> "Tensor":
    """The rows in reverse order."""
    return manipulation.flip(m, axis=0)


def array_split(ary: ArrayLike, indices_or_sections: Any, axis: int = 0) -> "tuple[Tensor, ...]":
    """Parts that differ in length by one at most."""
    ary = as_tensor(ary)
    n, k = ary.shape[axis_of("array_split", ary, axis)], indices_or_sections
    if hasattr(k, "__len__") and getattr(k, "shape", None) != ():
        return manipulation.split(ary, [int(i) for i in k], axis)
    k = int(k)
    if k < 1:
        raise errors.ArgumentError(f"array_split: {k} sections, expected 1 or more")
    lengths = [n // k + (i < n % k) for i in range(k)]
    return manipulation.split(ary, [sum(lengths[:i]) for i in range(1, k)], axis)


def trace(a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> "Tensor":
    """The sums of diagonals over two axes."""
    return manipulation.diagonal(a, offset=offset, axis1=axis1, axis2=axis2).sum(axis=-1)


def round_(a: Any, decimals: int = 0) -> "Tensor":
    """a rounded to a number of decimals."""
    return _F["round"](a) if not decimals else _F["round"](a * 10.0**decimals) / 10.0**decimals


def where(condition: ArrayLike, x: Any = None, y: Any = None) -> "Tensor | tuple[Tensor, ...]":
    """x where the condition holds, y elsewhere; of the condition alone, where it holds."""
    condition = as_tensor(condition)
    if x is None and y is None:
        return tuple(condition.reshape(condition.shape or (1,)).nonzero())
    branches: Any = (x, y)
    return elementwise.where(condition != 0, *branches)


def linspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True) -> "Tensor":
    """Evenly spaced values."""
    return make.linspace(start, stop, num, endpoint=endpoint)


def ptp(a: ArrayLike, axis: "Axes" = None, keepdims: bool = False) -> "Tensor":
    """The largest less the smallest."""
    return reductions.max(a, axis, keepdims=keepdims) - reductions.min(a, axis, keepdims=keepdims)


def average(
    a: ArrayLike, axis: "Axes" = None, weights: "ArrayLike | None" = None, keepdims: bool = False
) -> "Tensor":
    """The weighted mean."""
    if weights is None:
        return reductions.mean(a, axis, keepdims=keepdims)
    a, weights = as_tensor(a), as_tensor(weights)
    if weights.shape != a.shape:
        k = axis_of("average", a, axis)
        weights = weights.reshape(tuple(n if i == k else 1 for i, n in enumerate(a.shape)))
        weights = manipulation.broadcast_to(weights, a.shape)
    total = reductions.sum(a * weights, axis, keepdims=keepdims)
    return total / reductions.sum(weights, axis, keepdims=keepdims)


def _nan_reduction(name: str, row):
    """The public function of a reduction that skips NaN."""

    def reduction(a, axis=None, keepdims=False):
        a = as_tensor(a)
        return row(a, axes_of(name, a, axis), keepdims)

    return reduction


def trapezoid(
    y: ArrayLike, x: "ArrayLike | None" = None, dx: Any = 1.0, axis: int = -1
) -> "Tensor":
    """The integral by the trapezoidal rule."""
    y = as_tensor(y)
    y = manipulation.moveaxis(y, axis, -1)
    if x is not None:
        x = as_tensor(x)
        dx = reductions.diff(x if x.ndim == 1 else manipulation.moveaxis(x, axis, -1))
    return reductions.sum((y[..., 1:] + y[..., :-1]) * dx * 0.5, -1)


def svd(
    a: ArrayLike, full_matrices: bool = True, compute_uv: bool = True
) -> "Tensor | linalg.SVDResult":
    """Singular values, with or without their vectors."""
    if not compute_uv:
        return linalg.svdvals(a)
    return linalg.svd(a, full_matrices=full_matrices)


def cond(x: ArrayLike, p: float | str | None = None) -> "Tensor":
    """The condition number."""
    return _cond(as_tensor(x), p)


def _diag(v, k: int = 0):
    return manipulation.diag(v, k)


def _diagflat(v, k: int = 0):
    return manipulation.diagflat(v, k)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        append, array_split, atleast_1d, atleast_2d, atleast_3d, average, column_stack, copy,
        dstack, fliplr, flipud, hstack, linspace, ndim, ptp, ravel, shape, size, trace, trapezoid,
        vstack, where,
    )
}  # fmt: skip
FUNCTIONS |= {"around": round_, "round": round_, "linalg.cond": cond, "linalg.svd": svd}
FUNCTIONS |= {
    n: _nan_reduction(n, getattr(nans, n)) for n in "nansum nanprod nanmax nanmin nanmean".split()
}
FUNCTIONS |= dict.fromkeys(("deg2rad", "radians"), lambda x, /: as_tensor(x) * (pi / 180))
FUNCTIONS |= dict.fromkeys(("rad2deg", "degrees"), lambda x, /: as_tensor(x) * (180 / pi))
FUNCTIONS |= {"diag": _diag, "diagflat": _diagflat}
FUNCTIONS |= {"fix": _F["trunc"], "sinc": special.FUNCTIONS["sinc"]}
FUNCTIONS.update(numpy_more.FUNCTIONS)
