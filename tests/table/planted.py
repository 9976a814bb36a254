"""The list of planted errors: which row, which argument, and what is wrong with it."""

from collections.abc import Callable

from weft.core.call import caller
from weft.core.op import TABLE

from . import mutants as m


def op(name: str) -> Callable:
    """The rules' form of a row."""
    return caller(TABLE[name])


# A mutation of the derivative by one argument, at rows written as row:argument.
BY_ARGUMENT: dict[str, tuple[Callable, str]] = {
    "negated": (
        m.negated,
        "subtract:1 sin:0 divide:1 sum:0 matmul:1 cumsum:0 concat:1 einsum:0 logsumexp:0 "
        "cholesky:0 sort:0 pow:1",
    ),
    "doubled": (
        m.doubled,
        "multiply:0 exp:0 mean:0 broadcast_to:0 stack:0 where:2 inv:0 norm:0 softmax:0 eigh:0 "
        "square:0 erf:0",
    ),
    "zero": (
        m.nought,
        "pow:0 pow:1 atan2:0 where:1 take:0 solve:1 prod:0 var:0 beta:1 hypot:0 pad:0",
    ),
    "conjugated": (
        m.conjugated,
        "exp:0 sin:0 sqrt:0 multiply:0 divide:1 pow:1 matmul:0 fftn:0 reciprocal:0 inv:0 "
        "solve:0 einsum:0",
    ),
    "swapped": (m.swapped, "subtract:0 divide:0 pow:0 atan2:0 hypot:0 xlogy:0 multiply:0"),
    "weak": (
        m.weak,
        "log:0 sqrt:0 divide:0 reciprocal:0 rsqrt:0 pow:0 atanh:0 acos:0 log1p:0 cbrt:0 "
        "logit:0 gammaln:0 digamma:0",
    ),
    "detached": (
        m.detached,
        "multiply:0 tanh:0 exp:0 sin:0 divide:1 pow:0 matmul:0 matmul:1 einsum:0 inv:0 "
        "softmax:0 logsumexp:0 prod:0 norm:0 det:0 expm:0 cumprod:0 eigh:0 svdvals:0",
    ),
    "cotangent detached": (
        m.cotangent_detached,
        "matmul:0 sum:0 reshape:0 softmax:0 inv:0 norm:0 cumsum:0 fftn:0",
    ),
    "misrouted": (
        m.misrouted,
        "roll:0 cumsum:0 concat:0 take:0 sort:0 slice_:0 permute:0 scatter_sum:0 "
        "max_with_indices:0 topk:0 tril:0 amax:0 flip:0 stack:1 pad:0 windows:0",
    ),
    "pull doubled": (
        m.pull_only(lambda v: v * 2.0),
        "softmax:0 solve:1 norm:0 abs:0 std:0 logcumsumexp:0",
    ),
    "push doubled": (
        m.push_only(lambda v: v * 2.0),
        "softmax:0 solve:0 norm:0 amax:0 triangular_solve:1 pinv:0",
    ),
}

# What first-order checks cannot see must be found by the check that is made for it.
FOUND_BY = {
    "weak": "zero cotangent",
    "detached": "second order",
    "cotangent detached": "second order",
}


def _both_ways(g, _x, axes):
    return op("permute")(g, axes)


def _ratio_pull(g, y, x, axes, keepdims, *_options):
    return (op("broadcast_to")(g * y, x.shape) / x,)


# Derivatives that somebody could have written down: a factor, a term or a transpose missing.
BY_HAND: dict[str, tuple[str, Callable]] = {
    "one minus y": ("tanh", m.restated(lambda y, _x: 1 - y)),
    "no half": ("sqrt", m.restated(lambda y, _x: 1 / y)),
    "no two": ("square", m.restated(lambda _y, x: x)),
    "no ln 2": ("exp2", m.restated(lambda y, _x: y)),
    "no 1/ln 10": ("log10", m.restated(lambda _y, x: 1 / x)),
    "no 2/√π": ("erf", m.restated(lambda _y, x: op("exp")(-x * x))),
    "no root": ("asin", m.restated(lambda _y, x: 1 / (1 - x * x))),
    "no square": ("atan", m.restated(lambda _y, x: 1 / (1 + x))),
    "no 1 - y": ("expit", m.restated(lambda y, _x: y)),
    "no sign": ("reciprocal", m.restated(lambda y, _x: y * y)),
    "cosh for -sinh": ("cosh", m.restated(lambda _y, x: op("cosh")(x))),
    "first term only": ("digamma", m.restated(lambda _y, x: 1 / (x * x))),
    "x/y for y/x": ("hypot", m.restated(lambda y, a, _b: y / a, lambda y, _a, b: y / b)),
    "same permutation": ("permute", m.restated(_both_ways)),
    "same roll": ("roll", m.restated(lambda g, _x, s, axes: op("roll")(g, s, axes))),
    "not reversed": ("cumsum", m.restated(lambda g, _x, axis: op("cumsum")(g, axis))),
    "upper for lower": ("tril", m.restated(lambda g, _x, k: op("triu")(g, k))),
    "not conjugated": ("conj", m.restated(lambda g, _x: g)),
    "no 1/n": (
        "mean",
        m.restated(
            lambda g, _x, axes, keepdims: op("broadcast_to")(
                op("reshape")(g, tuple(1 if i in axes else n for i, n in enumerate(_x.shape))),
                _x.shape,
            )
        ),
    ),
    "y/x at a zero": ("prod", m.repulled(_ratio_pull)),
    "no mean term": ("softmax", m.repulled(lambda g, y, _x, axis: (y * g,))),
    "nothing but the diagonal": (
        "softmax",
        m.repushed(lambda t, y, _x, axis: t[0] * y * (1 - y)),
    ),
    "one for a constant": ("identity_like", m.repushed(lambda t, _y, _a: t[0])),
    "one matrix only": ("inv", m.repushed(lambda t, y, _a: -(t[0] @ y))),
    "no sign of the exponent": ("logsumexp", m.repulled(lambda g, y, x, *_s: (x * 0 + 1.0,))),
}
