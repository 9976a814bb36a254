"""Rows: sums, products and linear recurrences along one axis."""

from math import inf

from ..backend.shared import recurrence
from ..core import dtypes
from ..core.aval import Aval, axis_in
from ..core.op import Caller
from ..core.types import Array
from ..errors import ArgumentError, ShapeError
from .arrange import pad
from .axes import along_shape, floating
from .batching import Along
from .complex_ import conj
from .elementwise import exp, where
from .logic import equal
from .reduce import pseudo_reciprocal
from .rows import general, linear
from .samples import reduce as samples
from .slicing import narrow
from .structural import concat, flip


def _cumsum_transpose(g, x, axis):
    return flip(cumsum(flip(g, (axis,)), axis), (axis,))


cumsum: Caller = linear(
    "cumsum",
    shape=along_shape("cumsum", dtypes.sum_dtype),
    transpose=[_cumsum_transpose],
    reads="",
    precision="single",
    pulls_mask=True,
    batch=Along(),
    sample=samples("running_sums"),
)


def _shift(x, axis: int, by: int, fill: float):
    """x one place further (by = 1) or back (by = -1) along an axis, with `fill` at the end."""
    n = x.shape[axis]
    if not n:
        return x
    kept = narrow(x, axis, 0, n - 1) if by > 0 else narrow(x, axis, 1, n)
    width = (1, 0) if by > 0 else (0, 1)
    widths = tuple(width if i == axis else (0, 0) for i in range(len(x.shape)))
    return pad(kept, widths, fill)


def _recurrence_shape(a: Aval, b: Aval, axis: int) -> Aval:
    axis_in("linear_recurrence", axis, b.ndim)
    if a.shape != b.shape:
        raise ShapeError(f"linear_recurrence: {a.shape} and {b.shape} differ; they must be alike")
    return b.like(dtype=dtypes.promote(a.dtype, b.dtype))


def _backwards(g, a, axis: int):
    """The recurrence's transpose: cₖ = gₖ + āₖ₊₁·cₖ₊₁."""
    a = flip(conj(_shift(a, axis, -1, 0.0)), (axis,))
    return flip(linear_recurrence(a, flip(g, (axis,)), axis), (axis,))


def _recurrence_push(tangents, h, a, b, axis):
    da, db = tangents
    if da is not None:
        da = da * _shift(h, axis, 1, 0.0)
        db = da if db is None else db + da
    return linear_recurrence(a, db, axis)


def _recurrence_pull(g, h, a, b, axis):
    c = _backwards(g, a, axis)
    return c * conj(_shift(h, axis, 1, 0.0)), c


# h₀ = b₀, hₖ = aₖ·hₖ₋₁ + bₖ: what running sums, products and averages have in common. Its own
# derivatives are recurrences again, and nothing is divided by.
linear_recurrence: Caller = general(
    "linear_recurrence",
    compute=recurrence.linear_recurrence,
    shape=_recurrence_shape,
    push=_recurrence_push,
    pull=_recurrence_pull,
    reads="h a",
    arity=2,
    promote=(0, 1),
    static=True,
    precision="single",
    batch=Along(),
    sample=samples("recurrences"),
)


def _cumprod_push(tangents, y, x, axis):
    return linear_recurrence(x, tangents[0] * _shift(y, axis, 1, 1.0), axis)


def _cumprod_pull(g, y, x, axis):
    return (_backwards(g, x, axis) * conj(_shift(y, axis, 1, 1.0)),)


cumprod: Caller = general(
    "cumprod",
    shape=along_shape("cumprod", dtypes.sum_dtype),
    push=_cumprod_push,
    pull=_cumprod_pull,
    arity=1,
    precision="single",
    batch=Along(),
    sample=samples("running_products"),
)


def _running_shares(x, y, axis):
    """exp(xₖ - yₖ), exp(yₖ₋₁ - yₖ), and the inverse of the sum of exp(xᵢ - yₖ) up to k.

    The sum is 1 but for the rounding of y. No exponent is positive; where yₖ is -inf all are 0.
    """
    finite = where(equal(y, -inf), 0.0, y)
    share, decay = exp(x - finite), exp(_shift(y, axis, 1, -inf) - finite)
    return share, decay, pseudo_reciprocal(linear_recurrence(decay, share, axis))


def _logcumsumexp_push(tangents, y, x, axis):
    share, decay, inverse = _running_shares(x, y, axis)
    return linear_recurrence(decay, share * tangents[0], axis) * inverse


def _logcumsumexp_pull(g, y, x, axis):
    share, decay, inverse = _running_shares(x, y, axis)
    return (_backwards(g * inverse, decay, axis) * share,)


logcumsumexp: Caller = general(
    "logcumsumexp",
    shape=along_shape("logcumsumexp", floating, ordered=True),
    push=_logcumsumexp_push,
    pull=_logcumsumexp_pull,
    arity=1,
    precision="single",
    batch=Along(),
    sample=samples("running_logs"),
)


def diff(
    x: Array, axis: int, n: int = 1, prepend: Array | None = None, append: Array | None = None
) -> Array:
    """The differences between neighbours along an axis, n times over."""
    if n < 0:
        raise ArgumentError(f"diff: n = {n}, expected 0 or more")
    if n:
        x = concat([a for a in (prepend, x, append) if a is not None], axis)
    for _ in range(n):
        size = x.shape[axis]
        x = narrow(x, axis, min(1, size), size) - narrow(x, axis, 0, max(size - 1, 0))
    return x
