"""More functions that NumPy has and the namespace lacks: flat ones, polynomials, blocks."""

from collections.abc import Callable, Sequence
from math import inf, log
from typing import TYPE_CHECKING, Any

from .. import errors
from ..core import dtypes
from ..core.backends import PYTHON_SCALARS
from . import elementwise, linalg, make, manipulation, padding
from .arguments import as_tensor, axis_of, boxed_beside
from .types import ArrayLike

if TYPE_CHECKING:
    from .tensor import Tensor

_F = elementwise.FUNCTIONS


def _pair(x1, x2):
    """Both as tensors; a Python number never widens, and has the precision of, the other."""
    if type(x1) in PYTHON_SCALARS:
        x2 = as_tensor(x2)
        return _number_beside(x2, x1), x2
    x1 = as_tensor(x1)
    return x1, _number_beside(x1, x2) if type(x2) in PYTHON_SCALARS else boxed_beside(x1, x2)


def _number_beside(x, value):
    return make.asarray(value, dtype=dtypes.with_scalar(x.dtype, value), device=x.device)


def heaviside(x1: ArrayLike, x2: ArrayLike, /) -> "Tensor":
    """0 below zero, 1 above, x2 at it: flat in x1."""
    x1, x2 = _pair(x1, x2)
    at = elementwise.where(x1 == 0, x2, elementwise.where(x1 < 0, 0.0, 1.0))
    return elementwise.where(_F["isnan"](x1), x1, at)


def iscomplex(x: ArrayLike) -> "Tensor":
    """Where the imaginary part is not zero."""
    x = as_tensor(x)
    return _F["imag"](x) != 0 if dtypes.is_complex(x.dtype) else make.zeros_like(x, dtype=bool)


def isreal(x: ArrayLike) -> "Tensor":
    """Where the imaginary part is zero."""
    return _F["logical_not"](iscomplex(x))


def isposinf(x: ArrayLike) -> "Tensor":
    """Where x is positive infinity."""
    return as_tensor(x) == inf


def isneginf(x: ArrayLike) -> "Tensor":
    """Where x is negative infinity."""
    return as_tensor(x) == -inf


def fmax(x1: ArrayLike, x2: ArrayLike, /) -> "Tensor":
    """The larger; of a number and NaN the number."""
    return _without_nan(x1, x2, _F["maximum"])


def fmin(x1: ArrayLike, x2: ArrayLike, /) -> "Tensor":
    """The smaller; of a number and NaN the number."""
    return _without_nan(x1, x2, _F["minimum"])


def _without_nan(x1, x2, choose):
    x1, x2 = _pair(x1, x2)
    isnan, where = _F["isnan"], elementwise.where
    return where(isnan(x1), x2, where(isnan(x2), x1, choose(x1, x2)))


def fmod(x1: ArrayLike, x2: ArrayLike, /) -> "Tensor":
    """The remainder with the sign of x1."""
    x1, x2 = _pair(x1, x2)
    size = _F["abs"](x1) % _F["abs"](x2)
    return elementwise.where(x1 < 0, -size, size)


def divmod_(x1: ArrayLike, x2: ArrayLike, /) -> "tuple[Tensor, Tensor]":
    """The floor of the quotient, and the remainder."""
    x1, x2 = _pair(x1, x2)
    return x1 // x2, x1 % x2


def modf(x: ArrayLike, /) -> "tuple[Tensor, Tensor]":
    """The fraction, and the whole part."""
    whole = _F["trunc"](as_tensor(x))
    return as_tensor(x) - whole, whole


def logaddexp2(x1: ArrayLike, x2: ArrayLike, /) -> "Tensor":
    """log₂(2ˣ + 2ʸ)."""
    x1, x2 = _pair(x1, x2)
    return _F["logaddexp"](x1 * log(2.0), x2 * log(2.0)) * (1 / log(2.0))


def select(condlist: Sequence[ArrayLike], choicelist: Sequence[ArrayLike], default: Any = 0) -> Any:
    """Of several choices the first whose condition holds."""
    if len(condlist) != len(choicelist):
        raise errors.ArgumentError(
            f"select: {len(condlist)} conditions for {len(choicelist)} choices; give one for each"
        )
    out = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        out = elementwise.where(as_tensor(condition), choice, out)
    return out


def polyval(p: ArrayLike, x: ArrayLike) -> Any:
    """A polynomial with coefficients p, the highest power first."""
    (p, x), out = _pair(as_tensor(p), x), 0
    for k in range(p.shape[0]):
        out = out * x + p[k]
    return out


def vander(x: ArrayLike, N: int | None = None, increasing: bool = False) -> "Tensor":
    """The powers of each element."""
    x = as_tensor(x)
    n = x.shape[0] if N is None else N
    powers = [x**k for k in (range(n) if increasing else range(n - 1, -1, -1))]
    return manipulation.stack(powers, axis=1)


def convolve(a: ArrayLike, v: ArrayLike, mode: str = "full") -> "Tensor":
    """The sums of products of a with v reversed, at all shifts (or where they overlap)."""
    a, v = _pair(a, v)
    if a.ndim != 1 or v.ndim != 1 or not a.shape[0] or not v.shape[0]:
        raise errors.ShapeError(f"convolve: shapes {a.shape} and {v.shape}; expected two vectors")
    if mode not in ("full", "same", "valid"):
        raise errors.ArgumentError(f"convolve: mode={mode!r}, expected 'full', 'same' or 'valid'")
    a, v = (v, a) if v.shape[0] > a.shape[0] else (a, v)
    n, m = a.shape[0], v.shape[0]
    windows = manipulation.sliding_window(padding.pad(a, m - 1), m)
    full = linalg.matmul(windows, manipulation.flip(v))
    start = {"full": 0, "same": (m - 1) // 2, "valid": m - 1}[mode]
    stop = {"full": n + m - 1, "same": start + n, "valid": n}[mode]
    return full[start:stop]


def rot90(m: ArrayLike, k: int = 1, axes: tuple[int, int] = (0, 1)) -> "Tensor":
    """A quarter turn, k times."""
    m = as_tensor(m)
    one, two = (axis_of("rot90", m, a) for a in axes)
    if k % 4 == 2:
        return manipulation.flip(m, axis=(one, two))
    turned = m if k % 4 == 0 else manipulation.swapaxes(m, one, two)
    return turned if k % 4 == 0 else manipulation.flip(turned, axis=one if k % 4 == 1 else two)


def _splitter(name: str, axis: int):
    def split(ary, indices_or_sections):
        ary = as_tensor(ary)
        k = 0 if name == "hsplit" and ary.ndim == 1 else axis
        return manipulation.split(ary, indices_or_sections, k)

    return split


def block(arrays: Any) -> "Tensor":
    """Nested lists of tensors put together: the innermost along the last axis."""
    depth = _depth(arrays)
    ndim = max(depth, *(as_tensor(a).ndim for a in _flat(arrays)))
    return _join_blocks(arrays, depth, ndim)


def _depth(arrays) -> int:
    return 1 + _depth(arrays[0]) if isinstance(arrays, list) else 0


def _flat(arrays) -> list:
    return [a for part in arrays for a in _flat(part)] if isinstance(arrays, list) else [arrays]


def _join_blocks(arrays, depth: int, ndim: int):
    if not isinstance(arrays, list):
        a = as_tensor(arrays)
        return a.reshape((*(1,) * (ndim - a.ndim), *a.shape))
    return manipulation.concat([_join_blocks(a, depth - 1, ndim) for a in arrays], axis=-depth)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        block, convolve, fmax, fmin, fmod, heaviside, iscomplex, isneginf, isposinf, isreal,
        logaddexp2, modf, polyval, rot90, select, vander,
    )
}  # fmt: skip
FUNCTIONS["divmod"] = divmod_
FUNCTIONS |= {n: _splitter(n, k) for k, n in enumerate(("vsplit", "hsplit", "dsplit"))}
