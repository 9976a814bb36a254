"""A linear recurrence along an axis, in the operations that all backends share."""

from math import isqrt, prod
from types import ModuleType

from ...core.dtypes import HALF, float32
from .types import Raw

# Up to this many steps, one after the other is faster than three passes in blocks.
_FEW = 256
# Arrays of this many elements a step are no faster in larger pieces.
_WIDE = 2048


def linear_recurrence(xp: ModuleType, a: Raw, b: Raw, axis: int) -> Raw:
    """h₀ = b₀, hₖ = aₖ·hₖ₋₁ + bₖ."""
    dtype = xp.dtype_of(b)
    if dtype in HALF:
        h = linear_recurrence(xp, xp.cast(a, float32), xp.cast(b, float32), axis)
        return xp.cast(h, dtype)
    rest = tuple(i for i in range(len(b.shape)) if i != axis)
    n, shape = b.shape[axis], tuple(b.shape[i] for i in rest)
    a, b = (xp.transpose(x, (axis, *rest)).reshape((n, prod(shape))) for x in (a, b))
    h = _in_blocks(xp, a, b) if n > _FEW and prod(shape) < _WIDE else _step_by_step(xp, a, b)
    back = sorted(range(len(rest) + 1), key=(axis, *rest).__getitem__)
    return xp.transpose(h.reshape((n, *shape)), back)


def _step_by_step(xp: ModuleType, a: Raw, b: Raw) -> Raw:
    h = xp.copy(b)
    for k in range(1, h.shape[0]):
        h[k] += a[k] * h[k - 1]
    return h


def _in_blocks(xp: ModuleType, a: Raw, b: Raw) -> Raw:
    """All blocks in parallel from a zero state, then the contribution of the blocks before.

    About 2√n steps over long arrays in place of n over short ones.
    """
    n, m = b.shape
    length = isqrt(n)
    count = -(-n // length)
    a, h = (_blocks(xp, x, length, count) for x in (a, b))
    a[0, 0] = 0  # of padding
    for k in range(1, length):
        h[k] += a[k] * h[k - 1]
        a[k] *= a[k - 1]
    before = xp.full((count, m), 0, xp.dtype_of(b), xp.device_of(b))
    for j in range(1, count):
        before[j] = h[-1, j - 1] + xp.strong_product(before[j - 1], a[-1, j - 1])
    h += xp.strong_product(before, a)
    return xp.transpose(h, (1, 0, 2)).reshape((count * length, m))[:n]


def _blocks(xp: ModuleType, x: Raw, length: int, count: int) -> Raw:
    """(n, m) as (length, count, m), filled up with zeros."""
    n, m = x.shape
    whole = xp.full((count * length, m), 0, xp.dtype_of(x), xp.device_of(x))
    whole[:n] = x
    return xp.copy(xp.transpose(whole.reshape((count, length, m)), (1, 0, 2)))
