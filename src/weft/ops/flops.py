"""How many floating-point operations an operation takes, from its row and its shapes."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from ..core.op import Op, Partials
from ..core.types import Static


def _matmul(out: Any, a: Any, b: Any) -> int:
    return 2 * prod(out.shape) * a.shape[-1]


def _linear(out: Any, x: Any, w: Any, b: Any = None) -> int:
    return prod(out.shape) * (2 * x.shape[-1] + (b is not None))


def _convolution(out: Any, x: Any, w: Any) -> int:
    return 2 * prod(out.shape) * prod(w.shape[1:])


def _convolution_biased(out: Any, x: Any, w: Any, b: Any) -> int:
    return _convolution(out, x, w) + prod(out.shape)


def _convolution_transposed(out: Any, y: Any, w: Any) -> int:
    return 2 * prod(y.shape) * prod(w.shape[1:])


def _attention(out: Any, q: Any, k: Any, v: Any, *rest) -> int:
    pairs = prod(out.shape[:-1]) * k.shape[-2]
    return 2 * pairs * (q.shape[-1] + v.shape[-1])


def _linear_gradient(dx: Any, g: Any, x: Any, w: Any) -> int:
    return prod(g.shape) * (4 * x.shape[-1] + 1)


def _convolution_weight(w: Any, x: Any, y: Any) -> int:
    return 2 * prod(y.shape) * prod(w.shape[1:])


def _convolution_gradient(dx: Any, g: Any, x: Any, w: Any) -> int:
    return 4 * prod(g.shape) * prod(w.shape[1:])


def _attention_gradient(
    dq: Any, g: Any, h: Any, out: Any, lse: Any, q: Any, k: Any, v: Any, *rest
) -> int:
    pairs = prod(dq.shape[:-1]) * k.shape[-2]
    return 2 * pairs * (3 * q.shape[-1] + 2 * v.shape[-1])


_CONTRACTIONS: dict[str, Callable[..., int]] = {
    "matmul": _matmul,
    "linear": _linear,
    "convolution": _convolution,
    "convolution_biased": _convolution_biased,
    "convolution_transposed": _convolution_transposed,
    "attention": _attention,
    "linear_gradient": _linear_gradient,
    "convolution_weight": _convolution_weight,
    "convolution_gradient": _convolution_gradient,
    "attention_gradient": _attention_gradient,
}


def _einsum(subscripts: str, shapes: list[tuple[int, ...]]) -> int:
    """One multiplication for each further factor and one addition, for every tuple of indices."""
    terms = subscripts.partition("->")[0].split(",")
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for label, n in zip(term, shape, strict=True):
            sizes[label] = max(n, sizes.get(label, 1))
    return len(terms) * prod(sizes.values())


def flops(op: Op, outs: Sequence[Any], operands: Sequence[Any], static: Static) -> int:
    """The operations of one row: two for each multiplication with its addition.

    outs      its results: anything with a shape
    operands  its arguments; None for a Python scalar

    Contractions are counted exactly. Of other rows that compute, an elementwise one counts once
    for each element of its result, and one that reduces or normalises once for each element of
    the largest array that it reads or writes. Moving numbers and comparing them counts nothing.
    """
    if op.name in _CONTRACTIONS:
        return _CONTRACTIONS[op.name](outs[0], *operands)
    given = [a for a in operands if a is not None]
    if op.name == "einsum":
        return _einsum(static[0], [tuple(a.shape) for a in given])
    if op.moves not in ("", "sums") or op.rule is None:
        return 0
    if isinstance(op.rule, Partials):
        return prod(outs[0].shape)
    return max(prod(a.shape) for a in [*given, *outs])
