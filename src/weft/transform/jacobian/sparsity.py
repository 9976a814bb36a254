"""Sparsity detection: which inputs each value of a trace depends on.

A pattern is a sparse matrix of ones, one row for each element of a value and one column for each
element of the inputs. Patterns hold for every run of the same equations: the only values that they
depend on are those of index arrays, which are part of a plan's key.
"""

from math import prod
from typing import Any

import numpy as np

from ...backend.device import as_numpy
from ...core.box import Box
from ...core.call import caller
from ...core.op import MOVES, Jvp, LinearRule, Partials
from ...core.value import TENSORS
from ...graph.graph import Equation, Literal
from ...graph.staged import Staged
from ...graph.symbol import Trace
from ...ops.batching import Along, Pointwise, Stacked
from ..modes.trace import operands
from .colouring import Csr


class Dense(Exception):
    """The pattern is so dense that compression cannot pay."""


def input_patterns(trace: Trace, sizes: list[int]) -> dict[int, Csr]:
    """The inputs' own patterns: slices of the identity."""
    from scipy.sparse import csr_array

    n, at, found = sum(sizes), 0, {}
    for i, size in zip(trace.inputs, sizes, strict=True):
        columns = np.arange(at, at + size, dtype=np.int32)
        pointers = np.arange(size + 1, dtype=np.int32)
        found[i] = csr_array((np.ones(size, bool), columns, pointers), (size, n))
        at += size
    return found


def jacobian_pattern(trace: Trace, equations: list[Equation], limit: float) -> Csr:
    """The pattern of all outputs by all inputs, flattened, as a CSR array of ones.

    Raises `Dense` as soon as the density of some value's pattern exceeds `limit`.
    """
    from scipy.sparse import csr_array, vstack

    sizes = [prod(trace.avals[i].shape) for i in trace.inputs]
    patterns = input_patterns(trace, sizes)
    n = sum(sizes)
    for e in equations:
        for i, pattern in zip(e.outputs, _propagate(trace, e, patterns, n), strict=True):
            if pattern is None:
                continue
            if pattern.nnz > limit * prod(pattern.shape) and pattern.nnz > 50_000:
                raise Dense
            patterns[i] = pattern
    rows = []
    for i in trace.outputs:
        empty = (prod(trace.avals[i].shape), n)
        rows.append(patterns[i] if i in patterns else csr_array(empty, dtype=bool))
    whole = csr_array(vstack(rows, format="csr")) if len(rows) > 1 else rows[0]
    whole.sum_duplicates()
    whole.sort_indices()
    return whole


def _propagate(trace: Trace, e: Equation, patterns: dict, n: int) -> list:
    """The patterns of an equation's results."""
    shapes = [trace.avals[i].shape for i in e.outputs]
    given = [None if i.__class__ is Literal else patterns.get(i) for i in e.inputs]
    if isinstance(e.op.rule, Partials):
        given = [
            None if d.__class__ is int and d == 0 else p
            for p, d in zip(given, e.op.rule.d, strict=True)
        ]
    in_shapes = [() if i.__class__ is Literal else trace.avals[i].shape for i in e.inputs]
    batch = e.op.batch
    if isinstance(batch, Pointwise):
        return [_pointwise(given, in_shapes, s) for s in shapes]
    if e.op.moves in MOVES:
        return [_move_pattern(trace, e, given, shapes[0])]
    if e.op.moves == "sums":
        return [_sum_pattern(trace, e, given, shapes[0])]
    if e.op.name in ("einsum", "matmul", "linear"):
        return [_contract_pattern(e, given, in_shapes, shapes[0])]
    if isinstance(batch, Along) and len(set(in_shapes)) == 1:
        axes = _named_axes(batch, e.static)
        return [_union([_along(p, in_shapes[0], axes, s) for p in given]) for s in shapes]
    if isinstance(batch, Stacked):
        return [_stack_pattern(given, in_shapes, batch.core, s) for s in shapes]
    everything: Any = _union(
        [_unite_rows(p, np.zeros(p.shape[0], int), 1) for p in given if p is not None]
    )
    return [everything[np.zeros(prod(s), int)] for s in shapes]


def _union(patterns: list):
    """The union of patterns, as a matrix of ones."""
    patterns = [p for p in patterns if p is not None]
    if not patterns:
        return None
    total = patterns[0]
    for p in patterns[1:]:
        if p is not total:
            total = total + p
    total.data[:] = True
    return total


def _unite_rows(pattern, group: np.ndarray, count: int):
    """The union of the rows in each group: row i goes into row group[i]."""
    from scipy.sparse import csr_array

    ones = np.ones(group.size, np.int32)
    members = csr_array((ones, (group, np.arange(group.size))), (count, group.size))
    summed = csr_array(members @ pattern.astype(np.int32))
    return csr_array((np.ones(summed.nnz, bool), summed.indices, summed.indptr), summed.shape)


def _places(shape) -> np.ndarray:
    return np.arange(prod(shape)).reshape(shape)


def _pointwise(given, in_shapes, shape):
    parts = []
    for p, s in zip(given, in_shapes, strict=True):
        if p is not None:
            parts.append(p if s == shape else p[np.broadcast_to(_places(s), shape).ravel()])
    return _union(parts)


def _move_pattern(trace: Trace, e: Equation, given, shape):
    """The pattern of a row that moves elements, from the row applied to element numbers.

    Each operand's elements are replaced by their numbers (0: a constant), counted over all
    operands: the result holds the number of the element that moved to each position.
    """
    from scipy.sparse import csr_array, vstack

    args, parts, offset = [], [], 1
    carries = _carries(e)
    for k, value in enumerate(operands(trace, e)):
        pattern, s = given[k], _shape(trace, e, k)
        if not carries[k]:
            args.append(_indices(value))
            continue
        if pattern is None:
            args.append(np.zeros(s))
            continue
        args.append(offset + _places(s).astype(np.float64))
        offset += prod(s)
        parts.append(pattern)
    if not parts:
        return None
    moved = e.op.call(caller(e.op), args, e.static)
    nothing = csr_array((1, parts[0].shape[1]), dtype=bool)
    return csr_array(vstack([nothing, *parts], format="csr"))[
        np.asarray(moved).astype(np.int64).ravel()
    ]


def _shape(trace: Trace, e: Equation, k: int) -> tuple[int, ...]:
    """The shape of an operand at the level of the trace."""
    i = e.inputs[k]
    return () if i.__class__ is Literal else trace.avals[i].shape


def _indices(value) -> np.ndarray:
    """An index array; `Dense` is raised for one that differs over a batch or between calls."""
    raw = value._data if value.__class__ in TENSORS else value
    raw = raw.known if raw.__class__ is Staged else raw
    if raw is None or isinstance(raw, Box):
        raise Dense
    return as_numpy(raw)


def _carries(e: Equation) -> list[bool]:
    """Which operands of a linear row carry a derivative; the others are indices."""
    rule = e.op.rule
    assert isinstance(rule, LinearRule | Jvp)
    if isinstance(rule, Jvp) or e.op.arity is None:
        return [True] * len(e.inputs)
    return [t is not None for t in rule.transpose]


def _sum_pattern(trace: Trace, e: Equation, given, shape):
    """The pattern of a row that adds elements up, from its transpose applied to element numbers.

    The transpose maps the numbers of the results to the elements that are added into them.
    """
    rule = e.op.rule
    assert isinstance(rule, LinearRule) and rule.transpose[0] is not None
    values = operands(trace, e)
    stand_in = np.empty(_shape(trace, e, 0))
    rest = [_indices(v) for v in values[1:]]
    places = rule.transpose[0](1.0 + _places(shape), stand_in, *rest, *e.static)
    group = np.asarray(places).astype(np.int64).ravel()
    return _unite_rows(given[0], group, prod(shape) + 1)[1:]


def _named_axes(batch: Along, static) -> tuple[int, ...]:
    axes: list[int] = []
    for k in batch.axes:
        axes += static[k] if isinstance(static[k], tuple) else (static[k],)
    return tuple(axes)


def _number_fibres(shape, axes) -> tuple[np.ndarray, int]:
    """For each element the number of its fibre along the axes, and the number of fibres."""
    kept = tuple(1 if a in axes else s for a, s in enumerate(shape))
    return np.broadcast_to(_places(kept), shape).ravel(), prod(kept)


def _along(pattern, in_shape, axes, shape):
    """The pattern of a row along axes: each result of a fibre depends on the whole fibre."""
    if pattern is None:
        return None
    group, count = _number_fibres(in_shape, axes)
    united = _unite_rows(pattern, group, count)
    if len(shape) == len(in_shape):
        return united[_number_fibres(shape, axes)[0]]
    return united[np.repeat(np.arange(count), prod(shape) // max(count, 1))]


def _stack_pattern(given, in_shapes, core, shape):
    """The pattern of a row on stacked matrices: each result depends on its whole matrices."""
    stacks = [s[: len(s) - c] for s, c in zip(in_shapes, core, strict=True)]
    stack = np.broadcast_shapes(*stacks)
    per = prod(shape[len(stack) :])
    parts = []
    for p, s, lead in zip(given, in_shapes, stacks, strict=True):
        if p is not None:
            group, count = np.arange(prod(s)) // max(prod(s[len(lead) :]), 1), prod(lead)
            place = np.broadcast_to(_places(lead), stack).ravel()
            parts.append(_unite_rows(p, group, count)[np.repeat(place, per)])
    return _union(parts)


def _contract_pattern(e: Equation, given, in_shapes, shape):
    """The pattern of a contraction: union over the labels that are summed, broadcast the others."""
    labels, out = _labels(e, in_shapes, shape)
    sizes = {}
    for ls, s in zip([*labels, out], [*in_shapes, shape], strict=True):
        for label, size in zip(ls, s, strict=True):
            sizes[label] = max(size, sizes.get(label, 1))
    parts = []
    for p, ls, s in zip(given, labels, in_shapes, strict=True):
        if p is None:
            continue
        kept = [label for label in dict.fromkeys(ls) if label in out]
        small = tuple(s[ls.index(label)] for label in kept)
        group = _at_labels(_places(small), kept, ls, s)
        united = _unite_rows(p, group, prod(small)) if len(kept) < len(ls) else p[np.argsort(group)]
        parts.append(united[_at_labels(_places(small), kept, out, shape)])
    return _union(parts)


def _at_labels(places, kept, labels, shape) -> np.ndarray:
    """`places`, an array over the labels `kept`, broadcast to an array over `labels`, flat."""
    index = np.indices(shape, sparse=True)
    at = []
    for label, size in zip(kept, places.shape, strict=True):
        i = index[labels.index(label)]
        at.append(i if size > 1 else np.zeros_like(i))
    picked = places[tuple(at)] if at else places
    return np.broadcast_to(picked, shape).ravel()


def _labels(e: Equation, in_shapes, shape):
    if e.op.name == "einsum":
        inputs, _, out = e.static[0].partition("->")
        return [list(term) for term in inputs.split(",")], list(out)
    if e.op.name == "linear":
        lead = [f"s{k}" for k in range(len(shape) - 1)]
        return [[*lead, "k"], ["j", "k"], ["j"]], [*lead, "j"]
    a, b = map(len, in_shapes)
    lead = [f"s{k}" for k in range(max(a, b) - 2)] if max(a, b) > 2 else []
    left = ["k"] if a == 1 else [*lead[len(lead) - (a - 2) :], "i", "k"]
    right = ["k"] if b == 1 else [*lead[len(lead) - (b - 2) :], "k", "j"]
    return [left, right], [*lead, *["i"] * (a > 1), *["j"] * (b > 1)]
