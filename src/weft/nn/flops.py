"""How many floating-point operations an equation of a trace takes, from its row and its shapes."""

from collections.abc import Callable
from math import prod

from ..core.aval import Aval
from ..core.op import Partials
from ..graph.graph import Equation, Literal


def _matmul(out: Aval, a: Aval, b: Aval) -> int:
    return 2 * prod(out.shape) * a.shape[-1]


def _linear(out: Aval, x: Aval, w: Aval, b: Aval | None = None) -> int:
    return prod(out.shape) * (2 * x.shape[-1] + (b is not None))


def _convolution(out: Aval, x: Aval, w: Aval) -> int:
    return 2 * prod(out.shape) * prod(w.shape[1:])


def _convolution_biased(out: Aval, x: Aval, w: Aval, b: Aval) -> int:
    return _convolution(out, x, w) + prod(out.shape)


def _convolution_transposed(out: Aval, y: Aval, w: Aval) -> int:
    return 2 * prod(y.shape) * prod(w.shape[1:])


def _attention(out: Aval, q: Aval, k: Aval, v: Aval, *rest) -> int:
    pairs = prod(out.shape[:-1]) * k.shape[-2]
    return 2 * pairs * (q.shape[-1] + v.shape[-1])


_CONTRACTIONS: dict[str, Callable[..., int]] = {
    "matmul": _matmul,
    "linear": _linear,
    "convolution": _convolution,
    "convolution_biased": _convolution_biased,
    "convolution_transposed": _convolution_transposed,
    "attention": _attention,
}


def _einsum(subscripts: str, shapes: list[tuple[int, ...]]) -> int:
    """One multiplication for each further factor and one addition, for every tuple of indices."""
    terms = subscripts.partition("->")[0].split(",")
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for label, n in zip(term, shape, strict=True):
            sizes[label] = max(n, sizes.get(label, 1))
    return len(terms) * prod(sizes.values())


def flops(e: Equation, avals: list[Aval]) -> int:
    """The operations of one equation: two for each multiplication with its addition.

    Contractions are counted exactly. Of other rows that compute, an elementwise one counts once
    for each element of its result, and one that reduces or normalises once for each element of
    the largest array that it reads or writes. Moving numbers and comparing them counts nothing.
    """
    name, out = e.op.name, avals[e.outputs[0]]
    operands = [None if isinstance(i, Literal) else avals[i] for i in e.inputs]
    if name in _CONTRACTIONS:
        return _CONTRACTIONS[name](out, *operands)
    given = [a for a in operands if a is not None]
    if name == "einsum":
        return _einsum(e.static[0], [a.shape for a in given])
    if e.op.moves not in ("", "sums") or e.op.rule is None:
        return 0
    if isinstance(e.op.rule, Partials):
        return prod(out.shape)
    return max(prod(a.shape) for a in [*given, *(avals[i] for i in e.outputs)])
