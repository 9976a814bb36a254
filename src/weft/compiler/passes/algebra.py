"""Algebra: identities that hold for every number, NaN, infinities and signed zeros included.

x·1, x/1 and x − 0 are x; x + 0 is not (−0 + 0 is +0), but x + (−0) is, and for integers so are
both. x·0 stays, since x may be infinite. Division by a power of two becomes multiplication if both
are normal numbers. A lossless cast is dropped if another cast follows.
"""

import math
from collections.abc import Callable

import numpy as np

from ...core import dtypes
from ...core.aval import reduced_shape
from ...graph.graph import Equation, Graph, Literal
from .rewriting import Builder, Replacement, rewrite

Rule = Callable[[Builder, Equation], Replacement]


def algebra(graph: Graph) -> Graph:
    """The graph with equations replaced by simpler ones of the same values."""

    def rule(builder: Builder, e: Equation) -> Replacement:
        made = RULES[e.op.name](builder, e)
        if made is None or all(
            builder.aval(new) == graph.avals[old] for new, old in zip(made, e.outputs, strict=True)
        ):
            return made
        return None

    return rewrite(graph, rule, RULES)


def _is(x, *numbers: float) -> bool:
    """Whether an operand is a Python number among these; 0 is not −0."""
    if not isinstance(x, Literal) or isinstance(x.value, (bool, complex)):
        return False
    return any(x.value == n and math.copysign(1, x.value) == math.copysign(1, n) for n in numbers)


def _same(x) -> Replacement:
    """Replace the result by an operand; a Python number cannot replace an array."""
    return None if isinstance(x, Literal) else (x,)


# -- arithmetic ------------------------------------------------------------------------------


def _multiply(b: Builder, e: Equation) -> Replacement:
    x, y = e.inputs
    for one, other in ((x, y), (y, x)):
        if _is(one, 1):
            return _same(other)
        if _is(one, -1) and not isinstance(other, Literal) and _is_float(b, other):
            return (b.emit("negative", other),)
    return None


def _add(b: Builder, e: Equation) -> Replacement:
    x, y = e.inputs
    for zero, other in ((x, y), (y, x)):
        if _is(zero, -0.0) or (_is(zero, 0) and not _is_float(b, other)):
            return _same(other)
    if (n := b.made_by(y, "negative")) is not None:
        return (b.emit("subtract", x, n.inputs[0]),)
    if (n := b.made_by(x, "negative")) is not None:
        return (b.emit("subtract", y, n.inputs[0]),)
    return None


def _subtract(b: Builder, e: Equation) -> Replacement:
    x, y = e.inputs
    if _is(y, 0):
        return _same(x)
    n = b.made_by(y, "negative")
    return None if n is None else (b.emit("add", x, n.inputs[0]),)


def _divide(b: Builder, e: Equation) -> Replacement:
    x, y = e.inputs
    if _is(y, 1):
        return _same(x)
    if isinstance(x, Literal) or not isinstance(y, Literal) or not _is_float(b, x):
        return None
    if isinstance(y.value, (int, float)) and not isinstance(y.value, bool) and y.value:
        mantissa, exponent = math.frexp(y.value)
        most = int(np.log2(float(np.finfo(_wide(b.dtype(x))).max))) - 1
        if abs(mantissa) == 0.5 and abs(exponent - 1) < most:
            return (b.emit("multiply", x, Literal(1.0 / y.value)),)
    return None


def _wide(dtype: np.dtype) -> np.dtype:
    return np.dtype(np.float16) if dtype in dtypes.HALF else dtype


def _is_float(b: Builder, x) -> bool:
    return b.dtype(x) in dtypes.REAL


def _power(b: Builder, e: Equation) -> Replacement:
    (x,), (n,) = e.inputs, e.static
    if n == 1:
        return (x,)
    return (b.emit("multiply", x, x),) if n == 2 else None


def _square(b: Builder, e: Equation) -> Replacement:
    return (b.emit("multiply", *e.inputs * 2),)


def _cancel(row: str) -> Rule:
    """f(f(x)) = x."""

    def rule(b: Builder, e: Equation) -> Replacement:
        inner = b.made_by(e.inputs[0], row)
        return None if inner is None or inner.static != e.static else (inner.inputs[0],)

    return rule


def _idempotent(b: Builder, e: Equation) -> Replacement:
    x, y = e.inputs
    return _same(x) if x == y else None


def _where(b: Builder, e: Equation) -> Replacement:
    condition, x, y = e.inputs
    if isinstance(condition, Literal):
        return _same(x if condition.value else y)
    return _same(x) if x == y else None


def _itself(b: Builder, e: Equation) -> Replacement:
    """Rows that return their operand; for complex numbers only some do."""
    (x,) = e.inputs
    if e.op.name == "positive" and b.dtype(x) == dtypes.bool_:
        return None  # the backend rejects it
    real = not dtypes.is_complex(b.dtype(x))
    return (x,) if real or e.op.name in ("alias", "detach", "copy", "positive") else None


def _cast(b: Builder, e: Equation) -> Replacement:
    (x,), target = e.inputs, dtypes.canonical(e.static[0])
    if b.dtype(x) == target:
        return (x,)
    inner = b.made_by(x, "cast")
    if inner is not None and _keeps(b.dtype(inner.inputs[0]), b.dtype(x)):
        source = inner.inputs[0]
        return (source,) if b.dtype(source) == target else (b.emit("cast", source, target),)
    return None


def _keeps(narrow: np.dtype, wide: np.dtype) -> bool:
    """Whether every value of one dtype is representable in the other."""
    if narrow in dtypes.HALF:
        return wide in (dtypes.float32, dtypes.float64)
    if wide in dtypes.HALF or dtypes.is_complex(wide):
        return False
    return bool(np.can_cast(narrow, wide, "safe")) and dtypes.kind(wide) != "bool"


# -- shapes ----------------------------------------------------------------------------------


def _reshape(b: Builder, e: Equation) -> Replacement:
    (x,), (shape,) = e.inputs, e.static
    if b.shape(x) == tuple(shape):
        return (x,)
    inner = b.made_by(x, "reshape")
    if inner is None:
        return None
    source = inner.inputs[0]
    same = b.shape(source) == tuple(shape)
    return (source,) if same else (b.emit("reshape", source, tuple(shape)),)


def _permute(b: Builder, e: Equation) -> Replacement:
    (x,), (axes,) = e.inputs, e.static
    if tuple(axes) == tuple(range(len(axes))):
        return (x,)
    wide = [a for a in axes if b.shape(x)[a] != 1]
    if wide == sorted(wide):  # only axes of length 1 move
        return (b.emit("reshape", x, tuple(b.shape(x)[a] for a in axes)),)
    inner = b.made_by(x, "permute")
    if inner is None:
        return None
    source, joined = inner.inputs[0], tuple(inner.static[0][a] for a in axes)
    plain = joined == tuple(range(len(joined)))
    return (source,) if plain else (b.emit("permute", source, joined),)


def _broadcast_to(b: Builder, e: Equation) -> Replacement:
    (x,), (shape,) = e.inputs, e.static
    if b.shape(x) == tuple(shape):
        return (x,)
    inner = b.made_by(x, "broadcast_to")
    return None if inner is None else (b.emit("broadcast_to", inner.inputs[0], tuple(shape)),)


def _slice(b: Builder, e: Equation) -> Replacement:
    (x,), (index,) = e.inputs, e.static
    whole = tuple((0, n, 1) for n in b.shape(x))
    return (x,) if tuple(index) == whole else None


def _reduction(b: Builder, e: Equation) -> Replacement:
    """A sum, mean, product or extreme of single elements, or over no axes, is the element."""
    (x,), (axes, keepdims) = e.inputs, e.static
    shape = b.shape(x)
    kept = tuple(a for a in axes if shape[a] != 1)
    if kept == tuple(axes) and axes:
        return None
    target = reduced_shape(shape, tuple(axes), keepdims)
    y = b.emit(e.op, x, kept, True) if kept else x
    own = e.op.shape(b.aval(x), tuple(axes), keepdims).dtype
    y = y if b.dtype(y) == own else b.emit("cast", y, own)
    return (y if b.shape(y) == target else b.emit("reshape", y, target),)


RULES: dict[str, Rule] = {
    "multiply": _multiply,
    "add": _add,
    "subtract": _subtract,
    "divide": _divide,
    "power_scalar": _power,
    "square": _square,
    "negative": _cancel("negative"),
    "logical_not": _cancel("logical_not"),
    "bitwise_invert": _cancel("bitwise_invert"),
    "flip": _cancel("flip"),
    "maximum": _idempotent,
    "minimum": _idempotent,
    "where": _where,
    "cast": _cast,
    "reshape": _reshape,
    "permute": _permute,
    "broadcast_to": _broadcast_to,
    "slice_": _slice,
    **dict.fromkeys(("conj", "real", "positive", "alias", "detach", "copy"), _itself),
    **dict.fromkeys(("sum", "mean", "prod", "amax", "amin", "any", "all"), _reduction),
}
