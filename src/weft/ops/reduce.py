"""Rows: reductions over axes."""

from collections.abc import Callable
from math import inf, nan
from math import prod as product

from ..core import dtypes
from ..core.aval import Aval, axes_in, axis_in
from ..errors import DTypeError, ShapeError
from .complex_ import abs_, conj, real
from .elementwise import exp, power_scalar, strong_quotient, where
from .logic import equal, isnan, logical_or
from .rows import general, linear, undifferentiated
from .samples import reduce as samples
from .slicing import narrow
from .structural import broadcast_to, cast, concat, flip, permute, reshape, sum_


def reduced(shape, axes, keepdims: bool) -> tuple[int, ...]:
    """`shape` without `axes`, or with ones in their place."""
    if keepdims:
        return tuple(1 if i in axes else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in axes)


def restored(g, shape, axes, keepdims: bool):
    """A reduction's result, or its cotangent, with ones in place of the reduced axes."""
    return g if keepdims else reshape(g, reduced(shape, axes, True))


def count(shape, axes) -> int:
    """How many elements a reduction over `axes` puts together."""
    return product([shape[a] for a in axes])


def same(dtype):
    return dtype


def floating(dtype):
    """The dtype of float-valued operations on `dtype`."""
    return dtype if dtypes.is_inexact(dtype) else dtypes.default_float()


def _real_floating(dtype):
    return dtypes.to_real(floating(dtype))


def accumulated(dtype):
    """The dtype of sums and products: 64 bits for integers."""
    if dtype in dtypes.UNSIGNED:
        return dtypes.uint64
    return dtype if dtypes.is_inexact(dtype) else dtypes.int64


def real_only(name: str, x: Aval) -> None:
    """Refuse complex numbers where an order is needed."""
    if x.dtype in dtypes.COMPLEX:
        raise DTypeError(f"{name}: got {x.dtype}, which has no order; take abs() or real() first")


def reduction_shape(name: str, dtype: Callable = same, ordered: bool = False):
    """The shape rule of reductions; those of an order need an element to choose."""

    def shape(x: Aval, axes, keepdims: bool, *_options) -> Aval:
        axes_in(name, axes, x.ndim)
        if ordered:
            real_only(name, x)
            if not count(x.shape, axes):
                raise ShapeError(
                    f"{name}: shape {x.shape} has no element along axes {axes}; give it at "
                    "least one"
                )
        return x.like(reduced(x.shape, axes, keepdims), dtype(x.dtype))

    return shape


def along_shape(name: str, dtype: Callable = same):
    """The shape rule of operations along one axis that keep the shape."""

    def shape(x: Aval, axis: int, *_options) -> Aval:
        axis_in(name, axis, x.ndim)
        return x.like(dtype=dtype(x.dtype))

    return shape


def _mean_transpose(g, _x, axes, keepdims):
    g = restored(g, _x.shape, axes, keepdims)
    return broadcast_to(g * (1 / max(count(_x.shape, axes), 1)), _x.shape)


mean = linear(
    "mean",
    shape=reduction_shape("mean", floating),
    transpose=[_mean_transpose],
    precision="single",
    sample=samples.sums,
)


def _others(x, axes):
    """For each element the product of the others along `axes`: right also among zeros."""
    axes = tuple(axes)
    order = axes + tuple(i for i in range(len(x.shape)) if i not in axes)
    moved = permute(x, order)
    flat = reshape(moved, (count(x.shape, axes), product(reduced(x.shape, axes, False))))
    back = tuple(order.index(i) for i in range(len(order)))
    return permute(reshape(_others_in_front(flat), moved.shape), back)


def _others_in_front(x):
    """Pairs first, then the products of pairs: about 4n multiplications in log n steps."""
    n = x.shape[0]
    if n == 2:
        return flip(x, (0,))
    half = n // 2
    a, b = narrow(x, 0, 0, half), narrow(x, 0, half, 2 * half)
    odd = [narrow(x, 0, 2 * half, n)] if n % 2 else []
    above = _others_in_front(concat([a * b, *odd], 0))
    pairs = narrow(above, 0, 0, half)
    odd = [narrow(above, 0, half, half + 1)] if n % 2 else []
    return concat([pairs * b, pairs * a, *odd], 0)


def _prod_push(tangents, _y, x, axes, keepdims):
    (t,) = tangents
    if count(x.shape, axes) > 1:
        t = t * _others(x, axes)
    return sum_(t, axes, keepdims)


def _prod_pull(g, _y, x, axes, keepdims):
    g = restored(g, x.shape, axes, keepdims)
    if count(x.shape, axes) > 1:
        return (g * conj(_others(x, axes)),)
    return (broadcast_to(g, x.shape),)


prod = general(
    "prod",
    compute=lambda xp, x, axes, keepdims: xp.product_over(x, axes, keepdims),
    shape=reduction_shape("prod", accumulated),
    push=_prod_push,
    pull=_prod_pull,
    arity=1,
    precision="single",
    sample=samples.products,
)


def _attained(y, x, axes, keepdims):
    """Where the extreme is attained (by a NaN, if there is one), and how many times."""
    mask = logical_or(equal(x, restored(y, x.shape, axes, keepdims)), isnan(x))
    return mask, sum_(cast(mask, x.dtype), axes, True)


def _extreme_push(tangents, y, x, axes, keepdims):
    mask, times = _attained(y, x, axes, keepdims)
    return sum_(where(mask, tangents[0] / times, 0.0), axes, keepdims)


def _extreme_pull(g, y, x, axes, keepdims):
    mask, times = _attained(y, x, axes, keepdims)
    return (where(mask, restored(g, x.shape, axes, keepdims) / times, 0.0),)


def _extreme(name: str, alias: str):
    return general(
        name,
        shape=reduction_shape(name, ordered=True),
        push=_extreme_push,
        pull=_extreme_pull,
        arity=1,
        spell=(alias,),
        sample=samples.extremes,
    )


amax = _extreme("amax", "max")
amin = _extreme("amin", "min")


def _arg_shape(name: str):
    rule = reduction_shape(name, ordered=True)

    def shape(x: Aval, axis, keepdims) -> Aval:
        axes = tuple(range(x.ndim)) if axis is None else (axis,)
        return rule(x, axes, keepdims).like(dtype=dtypes.int64)

    return shape


argmax = undifferentiated("argmax", shape=_arg_shape("argmax"), sample=samples.arg_extremes)
argmin = undifferentiated("argmin", shape=_arg_shape("argmin"), sample=samples.arg_extremes)


def _truth(name: str, dtype=dtypes.bool_):
    shape = reduction_shape(name, lambda _: dtype)
    return undifferentiated(name, shape=shape, sample=samples.truths)


any_ = _truth("any")
all_ = _truth("all")
count_nonzero = _truth("count_nonzero", dtypes.int64)


def square_size(x):
    """|x|², as a polynomial."""
    return real(x * conj(x)) if dtypes.is_complex(x.dtype) else x * x


def _inverse(y):
    """1/y, and 0 where y is 0: the gradient that norms have there."""
    zero = equal(y, 0)
    return where(zero, 0.0, 1 / where(zero, 1.0, y))


def _along(t, d):
    """Re(d̄·t): the change of a real function with gradient d."""
    return real(conj(d) * t) if dtypes.is_complex(d.dtype) else d * t


def _norm_gradient(y, x, axes, keepdims, p):
    """(x/‖x‖)·|x/‖x‖|ᵖ⁻², and 0 where x or ‖x‖ is 0."""
    unit = x * _inverse(restored(y, x.shape, axes, keepdims))
    if p == 2:
        return unit
    if p > 0 and p % 2 == 0:  # a polynomial: smooth at 0 to any order
        return unit * power_scalar(square_size(unit), int(p) // 2 - 1)
    zero = equal(unit, 0)
    return where(zero, 0.0, unit * power_scalar(abs_(where(zero, 1.0, unit)), p - 2))


def _norm_push(tangents, y, x, axes, keepdims, p):
    d = _norm_gradient(y, x, axes, keepdims, p)
    return sum_(_along(tangents[0], d), axes, keepdims)


def _norm_pull(g, y, x, axes, keepdims, p):
    g = restored(g, x.shape, axes, keepdims)
    return (g * _norm_gradient(y, x, axes, keepdims, p),)


p_norm = general(
    "norm",
    compute=lambda xp, x, axes, keepdims, p: xp.p_norm(x, axes, keepdims, p),
    shape=reduction_shape("norm", _real_floating),
    push=_norm_push,
    pull=_norm_pull,
    arity=1,
    recast=True,
    precision="single",
    sample=samples.norms,
)


def norm(x, axes, keepdims=False, ord=2):
    """The vector norm (Σ|x|ᵒʳᵈ)^(1/ord) and its limits at ord = 0, inf and -inf."""
    if ord == 1:
        return sum_(abs_(x), axes, keepdims)
    if ord == inf:
        return amax(abs_(x), axes, keepdims)
    if ord == -inf:
        return amin(abs_(x), axes, keepdims)
    if ord == 0:
        return cast(count_nonzero(x, axes, keepdims), _real_floating(dtypes.canonical(x.dtype)))
    return p_norm(x, axes, keepdims, ord)


def _deviation(x, axes):
    return x - mean(x, axes, True)


def _freedom(shape, axes, correction) -> float:
    """n - correction, or NaN where that leaves nothing to divide by."""
    freedom = count(shape, axes) - correction
    return freedom if freedom > 0 else nan


def _var_push(tangents, _y, x, axes, keepdims, correction):
    d = _along(tangents[0], _deviation(x, axes))
    return sum_(d, axes, keepdims) * (2 / _freedom(x.shape, axes, correction))


def _var_pull(g, _y, x, axes, keepdims, correction):
    g = restored(g, x.shape, axes, keepdims) * (2 / _freedom(x.shape, axes, correction))
    return (g * _deviation(x, axes),)


def _std_gradient(y, x, axes, keepdims, correction):
    y = restored(y, x.shape, axes, keepdims)
    return _deviation(x, axes) * (_inverse(y) * (1 / _freedom(x.shape, axes, correction)))


def _std_push(tangents, y, x, axes, keepdims, correction):
    d = _std_gradient(y, x, axes, keepdims, correction)
    return sum_(_along(tangents[0], d), axes, keepdims)


def _std_pull(g, y, x, axes, keepdims, correction):
    d = _std_gradient(y, x, axes, keepdims, correction)
    return (restored(g, x.shape, axes, keepdims) * d,)


def _spread(name: str, push, pull):
    return general(
        name,
        shape=reduction_shape(name, _real_floating),
        push=push,
        pull=pull,
        arity=1,
        recast=True,
        precision="single",
        sample=samples.deviations,
    )


var = _spread("var", _var_push, _var_pull)
std = _spread("std", _std_push, _std_pull)


def _shares(x, y, axes, keepdims):
    """exp(x - y) for y = logsumexp(x), and its sum, which is 1 but for the rounding of y.

    To divide by the sum makes up for that rounding, which is large where y is. Where all of x
    is -inf both are 0.
    """
    y = restored(y, x.shape, axes, keepdims)
    e = exp(x - where(equal(y, -inf), 0.0, y))
    return e, sum_(e, axes, True)


def _logsumexp_push(tangents, y, x, axes, keepdims):
    e, total = _shares(x, y, axes, keepdims)
    return sum_(tangents[0] * strong_quotient(e, total), axes, keepdims)


def _logsumexp_pull(g, y, x, axes, keepdims):
    e, total = _shares(x, y, axes, keepdims)
    return (restored(g, x.shape, axes, keepdims) * strong_quotient(e, total),)


logsumexp = general(
    "logsumexp",
    shape=reduction_shape("logsumexp", floating),
    push=_logsumexp_push,
    pull=_logsumexp_pull,
    arity=1,
    precision="single",
    sample=samples.logsumexp,
)


def _softmax_product(t, y, axis):
    """J·t for the Jacobian of softmax, which is symmetric."""
    return y * (t - sum_(t * y, (axis,), True))


softmax = general(
    "softmax",
    shape=along_shape("softmax", floating),
    push=lambda tangents, y, _x, axis: _softmax_product(tangents[0], y, axis),
    pull=lambda g, y, _x, axis: (_softmax_product(g, y, axis),),
    arity=1,
    precision="single",
    sample=samples.softmax,
)

log_softmax = general(
    "log_softmax",
    shape=along_shape("log_softmax", floating),
    push=lambda t, y, _x, axis: t[0] - sum_(t[0] * exp(y), (axis,), True),
    pull=lambda g, y, _x, axis: (g - exp(y) * sum_(g, (axis,), True),),
    arity=1,
    precision="single",
    sample=samples.softmax,
)
