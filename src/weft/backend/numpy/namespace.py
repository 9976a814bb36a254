"""NumPy as a backend: names and dtypes fixed, nothing differentiated.

A name is looked up here, then in the modules beside this one, each of which fixes one family of
names, then among the names of NumPy that are listed here. Others are an error.
"""

import sys
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any, TypeVar

import numpy as np

from ...core.backends import BACKENDS
from ...core.dtypes import ALL
from ..shared import blocks
from ..shared.families import lookup
from .types import Array, Axes, Operand, Shape

R = TypeVar("R")

array_type = np.ndarray
_FOR_ONE_CORE = 8192
_WORD = np.dtype("uint32")
name = "numpy"

_SELF = sys.modules[__name__]


_FAMILIES = (
    "elementwise",
    "index",
    "reduce",
    "linalg",
    "random",
    "activate",
    "neural",
    "convolve",
    "pool",
)


_LIBRARY = {
    np: (
        "abs acos acosh add angle arange argwhere asarray asin asinh atan atan2 atanh "
        "bitwise_and bitwise_invert bitwise_left_shift bitwise_or bitwise_right_shift "
        "bitwise_xor bool cbrt ceil complex128 complex64 concat concatenate conj copysign cos "
        "cosh divide equal exp exp2 flatnonzero float32 float64 floor greater greater_equal "
        "hypot imag int64 isfinite isinf isnan less less_equal log log10 log1p log2 logaddexp "
        "logical_and logical_not logical_or logical_xor maximum minimum multiply negative "
        "nextafter not_equal positive pow real remainder roll signbit sin sinh sqrt square "
        "stack subtract tan trunc zeros_like "
    ),
    np.linalg: "vector_norm",
}
_find = lookup(globals(), _FAMILIES, _LIBRARY)


def __getattr__(attribute: str) -> Any:
    return _find(attribute)


def improve(name: str, better: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace a kernel by `better(kernel)`; for layers above, such as the compiler."""
    globals()[name] = better(getattr(_SELF, name))


def dtype_of(x: Array) -> np.dtype:
    return x.dtype


def device_of(x: Array) -> str:
    return "cpu"


def whole(x: Any) -> np.ndarray:
    """x as an array: NumPy returns scalars for 0-d results."""
    return np.asarray(x)


def all_finite(x: Array) -> bool:
    return bool(np.isfinite(x).all())


def has_nan(x: np.ndarray) -> bool:
    """Whether x contains NaN, in one pass without a temporary.

    A sum of squares is NaN only if a term is (for complex, also by inf - inf: then the
    caller's slower way runs in vain).
    """
    if x.itemsize == 2:
        return bool(np.isnan(x).any())
    if x.size > _FOR_ONE_CORE:  # BLAS would wake its threads for less than they cost
        s = np.maximum.reduce(x, axis=None) if x.dtype.kind == "f" else np.add.reduce(x, axis=None)
    else:
        flat = x if x.ndim == 1 else x.ravel()
        s = flat.dot(flat)
    return s != s


def strong_product(g: Array, d: Array) -> Array:
    """g·d with an exact zero wherever either is zero."""
    c = g * d
    if not has_nan(c):
        return c
    return np.where(np.logical_or(np.equal(g, 0), np.equal(d, 0)), np.zeros((), c.dtype), c)


def zero_where_zero(c: Array, g: Array) -> Array:
    """c, a product with g, with an exact zero wherever g is zero."""
    return np.where(np.equal(g, 0), np.zeros((), c.dtype), c) if has_nan(c) else c


def raw_dtype(dtype: np.dtype) -> np.dtype:
    """NumPy's own name of a dtype."""
    return dtype


def cast(x: Array, dtype: np.dtype) -> Array:
    if x.dtype.kind == "c" and np.dtype(dtype).kind != "c":
        x = x.real
    if dtype == _WORD and x.dtype.kind in "fV":
        # NumPy's SIMD loop and its scalar remainder disagree about negative numbers and about
        # overflow. Casting via int64 gives the low bits, as in C on x86-64.
        x = x.astype(np.int64)
    return x.astype(dtype)


def owner(x: np.ndarray) -> int:
    """The identity of the memory of x."""
    return id(_root(x))


def owning(x: np.ndarray) -> np.ndarray | None:
    """The array that owns the memory of x; None if its owner is no array."""
    root = _root(x)
    return root if isinstance(root, np.ndarray) else None


def _root(x: np.ndarray) -> Any:
    """The last array in the chain of bases; strided windows have a non-array base in between."""
    base = x.base
    while base is not None:
        x, base = base, getattr(base, "base", None)
    return x


def freeze(x: np.ndarray) -> np.ndarray:
    """Mark memory as shared by two tensors: writers must copy first."""
    x.setflags(False)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]  (quicker)
    return x


def frozen_view(x: Array) -> np.ndarray:
    """A read-only view of x: writers must copy first."""
    return freeze(np.asarray(x).view())


def is_frozen(x: np.ndarray) -> bool:
    return not x.flags.writeable


def version(x: np.ndarray) -> None:
    """None: NumPy does not count writes."""
    return None


def nbytes(x: Array) -> int:
    return x.nbytes


def transpose(x: Array, axes: Axes) -> Array:
    return x.transpose(axes)


for _cls in (np.ndarray, *(d.type for d in ALL)):
    BACKENDS[_cls] = _SELF


def to_numpy(x: Array) -> np.ndarray:
    return x


def adopt(raw: np.ndarray, device: str | None = None) -> np.ndarray:
    """The array itself; of a GPU's backend, a copy on a device."""
    return raw


def full(shape: Shape, value: complex, dtype: np.dtype, device: str | None = None) -> np.ndarray:
    return np.full(shape, value, dtype)


def empty(shape: Shape, dtype: np.dtype, device: str | None = None) -> np.ndarray:
    return np.empty(shape, dtype)


def overwrite(x: np.ndarray, value: Operand) -> None:
    """Write into the memory of x."""
    np.copyto(x, value, casting="same_kind")


def into(kernel: Callable[..., Array], args: Sequence[Operand], out: np.ndarray) -> None:
    """Compute elementwise into the memory of `out`, which arguments may share."""
    if isinstance(kernel, np.ufunc):
        kernel(*args, out=out)
    else:
        blocks.write(kernel, [_apart(a, out) for a in args], out, overwrite, 1 << 14)


def _apart(a: Operand, out: np.ndarray) -> Operand:
    """a, copied if writing `out` would change parts of it that are still to be read."""
    if not isinstance(a, np.ndarray) or not np.may_share_memory(a, out):
        return a
    same = a.__array_interface__["data"] == out.__array_interface__["data"]
    return a if same and a.strides == out.strides and a.shape == out.shape else a.copy()


def copy(x: np.ndarray) -> np.ndarray:
    return np.array(x, copy=True)


def _silence() -> list[tuple[Any, Any]]:
    """The context variable that `np.errstate` sets, and its value for no reaction to errors.

    Found by search, since it has no public name: `np.errstate` itself takes six times as long.
    """
    before = copy_context()
    with np.errstate(all="ignore"):
        return [(v, new) for v, new in copy_context().items() if before.get(v) is not new]


_REACTIONS, _NONE = (_silence() or [(None, None)])[0]


def quiet() -> np.errstate:
    """A block without floating-point warnings."""
    return np.errstate(all="ignore")


def quietly(run: Callable[..., R], *args: Any) -> R:
    """`run(*args)` without floating-point warnings, for backward passes."""
    if _REACTIONS is None:  # a NumPy that keeps its error state elsewhere
        with np.errstate(all="ignore"):
            return run(*args)
    token = _REACTIONS.set(_NONE)
    try:
        return run(*args)
    finally:
        _REACTIONS.reset(token)


def owns(x: np.ndarray) -> bool:
    """Whether x has no base: its memory is its own."""
    return x.base is None


def lies_in(x: np.ndarray, other: np.ndarray) -> bool:
    """Whether x, which was made of the other array, is it or a view of its memory."""
    base = x.base
    return x is other or (base is not None and (base is other or base is other.base))


def point(value: float, dtype: np.dtype) -> np.ndarray | None:
    """A Python number as a read-only 0-d array, where that computes the same."""
    if dtype.kind not in "fV":
        return None
    return freeze(np.asarray(float(value), dtype))  # bfloat16 takes no large integers
