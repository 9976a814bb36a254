"""Rows: reductions over axes."""

from functools import lru_cache, wraps
from math import inf, nan
from math import prod as product

from ..core import dtypes
from ..core.aval import Aval, reduced_shape
from ..core.op import Caller
from ..core.types import Array
from .axes import (
    along_shape,
    count,
    floating,
    real_floating,
    reduction_shape,
    restore_axes,
)
from .batching import Along, align_batch, all_spread
from .complex_ import abs_, conj, real
from .elementwise import exp, power_scalar, where
from .logic import equal
from .rows import general, linear, private, row_without_derivative
from .samples import reduce as samples
from .slicing import narrow
from .structural import broadcast_to, cast, concat, flip, permute, reshape, sum_


def _mean_transpose(g, x, axes, keepdims):
    shape = x.shape
    return broadcast_to(restore_axes(g * _weight(shape, axes), shape, axes, keepdims), shape)


@lru_cache(maxsize=1024)
def _weight(shape, axes) -> float:
    """One over the number of elements whose mean is taken."""
    return 1 / max(count(shape, axes), 1)


mean: Caller = linear(
    "mean",
    reads="",
    shape=reduction_shape("mean", floating),
    transpose=[_mean_transpose],
    precision="single",
    pulls_mask=True,
    folds="mean",
    batch=Along(),
    sample=samples("sums"),
)


def _others(x, axes):
    """For each element the product of the others along `axes`: right also among zeros."""
    if len(axes) == 1:
        return _others_along(x, axes[0])
    rest = tuple(i for i in range(len(x.shape)) if i not in axes)
    order = (*rest, *axes)
    moved = permute(x, order)
    joined = reshape(moved, (*reduced_shape(x.shape, axes, False), count(x.shape, axes)))
    back = tuple(sorted(range(len(order)), key=order.__getitem__))
    return permute(reshape(_others_along(joined, len(rest)), moved.shape), back)


def _others_along(x, axis):
    """Pairs first, then the products of pairs: about 4n multiplications in log n steps."""
    n = x.shape[axis]
    if n == 2:
        return flip(x, (axis,))
    half = n // 2
    a, b = narrow(x, axis, 0, half), narrow(x, axis, half, 2 * half)
    odd = [narrow(x, axis, 2 * half, n)] if n % 2 else []
    above = _others_along(concat([a * b, *odd], axis), axis)
    pairs = narrow(above, axis, 0, half)
    odd = [narrow(above, axis, half, half + 1)] if n % 2 else []
    return concat([pairs * b, pairs * a, *odd], axis)


def _prod_push(tangents, y, x, axes, keepdims):
    (t,) = tangents
    if count(x.shape, axes) > 1:
        t = t * _others(x, axes)
    return sum_(t, axes, keepdims)


def _prod_pull(g, y, x, axes, keepdims):
    g = restore_axes(g, x.shape, axes, keepdims)
    if count(x.shape, axes) > 1:
        return (g * conj(_others(x, axes)),)
    return (broadcast_to(g, x.shape),)


prod: Caller = general(
    "prod",
    reads="x",
    compute=lambda xp, x, axes, keepdims: xp.product_over(x, axes, keepdims),
    shape=reduction_shape("prod", dtypes.sum_dtype),
    push=_prod_push,
    pull=_prod_pull,
    arity=1,
    precision="single",
    folds="prod",
    batch=Along(),
    sample=samples("products"),
)


def _share_batch(call, size, mapped, args, static):
    """The extreme may be 0-d: axes of length 1 after the batch axis align it with x."""
    x, y = all_spread(size, mapped, args)
    return call(x, align_batch(y, len(x.shape)), tuple(a + 1 for a in static[0]))


# For each element its share in the extreme y over `axes`: one over the number of elements that
# attain it (by being NaN, if y is), else zero.
extreme_share: Caller = private(
    "extreme_share",
    [0, 0],
    promote=(0, 1),
    static=True,
    batch=_share_batch,
    sample=samples("extreme_shares"),
)


def _share(y, x, axes, keepdims):
    return extreme_share(x, restore_axes(y, x.shape, axes, keepdims), axes)


def _extreme_push(tangents, y, x, axes, keepdims):
    return sum_(tangents[0] * _share(y, x, axes, keepdims), axes, keepdims)


def _extreme_pull(g, y, x, axes, keepdims):
    return (restore_axes(g, x.shape, axes, keepdims) * _share(y, x, axes, keepdims),)


def _extreme(name: str, alias: str):
    return general(
        name,
        shape=reduction_shape(name, ordered=True),
        push=_extreme_push,
        pull=_extreme_pull,
        arity=1,
        spell=(alias,),
        folds=alias,
        batch=Along(),
        sample=samples("extremes"),
    )


amax: Caller = _extreme("amax", "max")
amin: Caller = _extreme("amin", "min")


def _arg_shape(name: str):
    rule = reduction_shape(name, ordered=True)

    def shape(x: Aval, axis, keepdims) -> Aval:
        axes = tuple(range(x.ndim)) if axis is None else (axis,)
        return rule(x, axes, keepdims).like(dtype=dtypes.int64)

    return shape


def _arg_batch(call, size, mapped, args, static):
    (x,), (axis, keepdims) = args, static
    if axis is not None:
        return call(x, axis + 1, keepdims)
    y = call(reshape(x, (size, product(x.shape[1:]))), 1, False)
    return reshape(y, (size, *(1,) * (len(x.shape) - 1))) if keepdims else y


def _place(name: str):
    return row_without_derivative(
        name, shape=_arg_shape(name), batch=_arg_batch, sample=samples("arg_extremes")
    )


argmax: Caller = _place("argmax")
argmin: Caller = _place("argmin")


def _truth(name: str, dtype=dtypes.bool_, folds: str = ""):
    shape = reduction_shape(name, lambda _: dtype)
    return row_without_derivative(
        name, shape=shape, folds=folds, batch=Along(), sample=samples("truths")
    )


any_: Caller = _truth("any", folds="any")
all_: Caller = _truth("all", folds="all")
count_nonzero: Caller = _truth("count_nonzero", dtypes.int64)


def square_size(x: Array) -> Array:
    """|x|², as a polynomial."""
    return real(x * conj(x)) if dtypes.is_complex(x.dtype) else x * x


def pseudo_reciprocal(y: Array) -> Array:
    """1/y, and 0 where y is 0."""
    zero = equal(y, 0)
    return where(zero, 0.0, 1 / where(zero, 1.0, y))


def _along(t, d):
    """Re(d̄·t): the change of a real function with gradient d."""
    return real(conj(d) * t) if dtypes.is_complex(d.dtype) else d * t


def _in_single(rule):
    """A rule that computes with half types in float32, since 1/y may leave their range."""

    def cast_in(values, dtype):
        if isinstance(values, tuple):
            return tuple([cast(v, dtype) for v in values])
        return cast(values, dtype)

    @wraps(rule)
    def call(moved, y, x, *static):
        own = dtypes.canonical(x.dtype)
        if own not in dtypes.HALF:
            return rule(moved, y, x, *static)
        wide = [cast_in(v, dtypes.float32) for v in (moved, y, x)]
        return cast_in(rule(*wide, *static), own)

    return call


def _norm_gradient(y, x, axes, keepdims, p, g):
    """g·(x/‖x‖)·|x/‖x‖|ᵖ⁻², and 0 where x or ‖x‖ is 0."""
    inverse = pseudo_reciprocal(restore_axes(y, x.shape, axes, keepdims))
    if p == 2:
        return x * (g * inverse)
    unit = x * inverse
    if p > 0 and p % 2 == 0:  # a polynomial: smooth at 0 to any order
        return g * unit * power_scalar(square_size(unit), int(p) // 2 - 1)
    zero = equal(unit, 0)
    size = power_scalar(abs_(where(zero, 1.0, unit)), p - 2)
    return where(zero, 0.0, g * unit * size)


@_in_single
def _norm_push(tangents, y, x, axes, keepdims, p):
    d = _norm_gradient(y, x, axes, keepdims, p, 1.0)
    return sum_(_along(tangents[0], d), axes, keepdims)


@_in_single
def _norm_pull(g, y, x, axes, keepdims, p):
    g = restore_axes(g, x.shape, axes, keepdims)
    return (_norm_gradient(y, x, axes, keepdims, p, g),)


p_norm: Caller = general(
    "norm",
    compute=lambda xp, x, axes, keepdims, p: xp.p_norm(x, axes, keepdims, p),
    shape=reduction_shape("norm", real_floating),
    push=_norm_push,
    pull=_norm_pull,
    arity=1,
    recast=True,
    precision="single",
    batch=Along(),
    sample=samples("norms"),
)


def norm(x: Array, axes: tuple[int, ...], keepdims: bool = False, ord: float = 2) -> Array:
    """The vector norm (Σ|x|ᵒʳᵈ)^(1/ord) and its limits at ord = 0, inf and -inf."""
    if ord == 1:
        return sum_(abs_(x), axes, keepdims)
    if ord == inf:
        return amax(abs_(x), axes, keepdims)
    if ord == -inf:
        return amin(abs_(x), axes, keepdims)
    if ord == 0:
        return cast(count_nonzero(x, axes, keepdims), real_floating(dtypes.canonical(x.dtype)))
    return p_norm(x, axes, keepdims, ord)


def _deviation(x, axes):
    return x - mean(x, axes, True)


def _freedom(shape, axes, correction) -> float:
    """n - correction, or NaN where that leaves nothing to divide by."""
    freedom = count(shape, axes) - correction
    return freedom if freedom > 0 else nan


def _var_push(tangents, y, x, axes, keepdims, correction):
    d = _along(tangents[0], _deviation(x, axes))
    return sum_(d, axes, keepdims) * (2 / _freedom(x.shape, axes, correction))


def _var_pull(g, y, x, axes, keepdims, correction):
    g = restore_axes(g, x.shape, axes, keepdims) * (2 / _freedom(x.shape, axes, correction))
    return (g * _deviation(x, axes),)


def _per_std(y, x, axes, keepdims, correction):
    """1/(y·(n - correction)), and 0 where y is 0."""
    inverse = pseudo_reciprocal(restore_axes(y, x.shape, axes, keepdims))
    return inverse * (1 / _freedom(x.shape, axes, correction))


@_in_single
def _std_push(tangents, y, x, axes, keepdims, correction):
    d = _deviation(x, axes) * _per_std(y, x, axes, keepdims, correction)
    return sum_(_along(tangents[0], d), axes, keepdims)


@_in_single
def _std_pull(g, y, x, axes, keepdims, correction):
    g = restore_axes(g, x.shape, axes, keepdims) * _per_std(y, x, axes, keepdims, correction)
    return (_deviation(x, axes) * g,)


def _spread(name: str, push, pull, reads: str):
    return general(
        name,
        reads=reads,
        shape=reduction_shape(name, real_floating),
        push=push,
        pull=pull,
        arity=1,
        recast=True,
        precision="single",
        batch=Along(),
        sample=samples("deviations"),
    )


var: Caller = _spread("var", _var_push, _var_pull, reads="x")
std: Caller = _spread("std", _std_push, _std_pull, reads="y x")


def _shares_push(tangents, s, x, axes):
    (t,) = tangents
    return s * (t - sum_(s * t, axes, True))


def _shares_pull(g, s, x, axes):
    s = conj(s)
    return (s * (g - sum_(s * g, axes, True)),)


# exp(x)/Σexp(x) over axes; where all of x is -inf the shares are 0.
shares: Caller = general(
    "shares",
    reads="s",
    shape=lambda x, axes: x,
    push=_shares_push,
    pull=_shares_pull,
    arity=1,
    precision="single",
    batch=Along(),
    sample=samples("shares"),
)


def _logsumexp_push(tangents, y, x, axes, keepdims):
    return sum_(tangents[0] * shares(x, axes), axes, keepdims)


def _logsumexp_pull(g, y, x, axes, keepdims):
    return (restore_axes(g, x.shape, axes, keepdims) * conj(shares(x, axes)),)


logsumexp: Caller = general(
    "logsumexp",
    reads="x",
    shape=reduction_shape("logsumexp", floating),
    push=_logsumexp_push,
    pull=_logsumexp_pull,
    arity=1,
    precision="single",
    batch=Along(),
    sample=samples("logsumexp"),
)


def _total(x, axis):
    return sum_(x, (axis,), True)


def _softmax_product_push(tangents, z, t, y, axis):
    dt, dy = tangents
    z = None if dt is None else softmax_product(dt, y, axis)
    if dy is not None:
        dz = dy * (t - _total(t * y, axis)) - y * _total(t * dy, axis)
        z = dz if z is None else z + dz
    return z


def _softmax_product_pull(g, z, t, y, axis):
    dy = g * (t - _total(t * y, axis)) - t * _total(g * y, axis)
    return softmax_product(g, y, axis), dy


# y·(t - Σty): the Jacobian of softmax, which is symmetric, times t.
softmax_product: Caller = general(
    "softmax_product",
    reads="t y",
    shape=lambda t, y, axis: y,
    push=_softmax_product_push,
    pull=_softmax_product_pull,
    arity=2,
    promote=(0, 1),
    static=True,
    precision="single",
    batch=Along(),
    sample=samples("softmax_products"),
)

softmax: Caller = general(
    "softmax",
    reads="y",
    shape=along_shape("softmax", floating, ordered=True),
    push=lambda tangents, y, x, axis: softmax_product(tangents[0], y, axis),
    pull=lambda g, y, x, axis: (softmax_product(g, y, axis),),
    arity=1,
    precision="single",
    batch=Along(),
    sample=samples("softmax"),
)


def _log_softmax_product_push(tangents, z, t, y, axis):
    dt, dy = tangents
    z = None if dt is None else log_softmax_product(dt, y, axis)
    if dy is not None:
        dz = exp(y) * dy * _total(t, axis)
        z = -dz if z is None else z - dz
    return z


def _log_softmax_product_pull(g, z, t, y, axis):
    e = exp(y)
    return g - _total(e * g, axis), -(e * g * _total(t, axis))


# t - exp(y)·Σt: the transpose of the Jacobian of log_softmax times t.
log_softmax_product: Caller = general(
    "log_softmax_product",
    reads="t y",
    shape=lambda t, y, axis: y,
    push=_log_softmax_product_push,
    pull=_log_softmax_product_pull,
    arity=2,
    promote=(0, 1),
    static=True,
    precision="single",
    batch=Along(),
    sample=samples("softmax_products"),
)

log_softmax: Caller = general(
    "log_softmax",
    reads="y",
    shape=along_shape("log_softmax", floating, ordered=True),
    push=lambda t, y, x, axis: t[0] - _total(t[0] * exp(y), axis),
    pull=lambda g, y, x, axis: (log_softmax_product(g, y, axis),),
    arity=1,
    precision="single",
    batch=Along(),
    sample=samples("softmax"),
)
