"""Rows: sums and products accumulated along one axis."""

from math import inf

from .elementwise import exp, strong_quotient, where
from .logic import equal
from .reduce import accumulated, along_shape, floating
from .rows import general, linear
from .samples import reduce as samples
from .slicing import narrow
from .structural import concat, flip


def _cumsum_transpose(g, _x, axis):
    return flip(cumsum(flip(g, (axis,)), axis), (axis,))


cumsum = linear(
    "cumsum",
    shape=along_shape("cumsum", accumulated),
    transpose=[_cumsum_transpose],
    precision="single",
    sample=samples.running_sums,
)


def _strides(n: int):
    """1, 2, 4, … below n: the steps in which a running sum over n doubles its reach."""
    s = 1
    while s < n:
        yield s
        s *= 2


def _late(x, axis, s):
    return narrow(x, axis, s, x.shape[axis])


def _early(x, axis, s):
    return narrow(x, axis, 0, x.shape[axis] - s)


def _after(x, rest, axis, s):
    """`rest`, preceded by the first s elements of x."""
    return concat([narrow(x, axis, 0, s), rest], axis)


def _cumprod_push(tangents, _y, x, axis):
    """The running product as a polynomial in products of neighbours: zeros are not divided by."""
    (t,) = tangents
    for s in _strides(x.shape[axis]):
        early, late = _early(x, axis, s), _late(x, axis, s)
        t = _after(t, _late(t, axis, s) * early + _early(t, axis, s) * late, axis, s)
        x = _after(x, early * late, axis, s)
    return t


cumprod = general(
    "cumprod",
    shape=along_shape("cumprod", accumulated),
    push=_cumprod_push,
    arity=1,
    precision="single",
    sample=samples.running_products,
)


def _logcumsumexp_push(tangents, y, x, axis):
    """Running sums of exp(xᵢ - yₖ)·tᵢ, over those of exp(xᵢ - yₖ) to make up for y's rounding.

    No exponent is positive; where yₖ is -inf both sums are 0.
    """
    finite = where(equal(y, -inf), 0.0, y)
    total = exp(x - finite)
    t = tangents[0] * total
    for s in _strides(x.shape[axis]):
        decay = exp(_early(y, axis, s) - _late(finite, axis, s))
        t = _after(t, _late(t, axis, s) + decay * _early(t, axis, s), axis, s)
        total = _after(total, _late(total, axis, s) + decay * _early(total, axis, s), axis, s)
    return strong_quotient(t, total)


logcumsumexp = general(
    "logcumsumexp",
    shape=along_shape("logcumsumexp", floating),
    push=_logcumsumexp_push,
    arity=1,
    precision="single",
    sample=samples.running_logs,
)


def diff(x, axis: int, n: int = 1, prepend=None, append=None):
    """The differences between neighbours along an axis, n times over."""
    x = concat([a for a in (prepend, x, append) if a is not None], axis)
    for _ in range(n):
        length = x.shape[axis]
        x = _late(x, axis, min(1, length)) - _early(x, axis, min(1, length))
    return x
