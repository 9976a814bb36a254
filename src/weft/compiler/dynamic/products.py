"""Rules for products, layers and attention."""

from math import inf
from typing import Any

from ...core import dtypes
from ...graph.graph import Literal
from .lift import Lift, LiftedEquation, Made
from .rules import MASK, merge_spans, rule, same_static
from .spans import Spans, is_ragged

_WEIGHTS = "keep the weights' shapes the same at all lengths"


def _refuse_dynamic_weights(lift: Lift, *operands) -> None:
    """Refuse weights with a dynamic axis."""
    if any([is_ragged(lift.of(x)) for x in operands]):
        lift.refuse("has weights of dynamic length", _WEIGHTS)


def _only_lead(lift: Lift, x, core: int) -> Spans:
    """The spans of the leading axes; refuses a dynamic one among the last `core` axes."""
    spans = lift.of(x)
    if is_ragged(spans[len(spans) - core :]):
        lift.refuse("goes along the dynamic axis and takes the padding in", MASK)
    return spans[: len(spans) - core]


# -- sums of products ----------------------------------------------------------------------------


@rule("matmul")
def _matmul(lift: Lift, at: LiftedEquation) -> Made:
    a, b = at.e.inputs
    left, right = lift.of(a), lift.of(b)
    inner = len(right) - 2 if len(right) > 1 else 0
    merge_spans(lift, [left[-1:], right[inner : inner + 1]])
    lead = merge_spans(lift, [left[:-2], right[:-2]])
    rows = left[-2:-1] if len(left) > 1 else ()
    columns = right[-1:] if len(right) > 1 else ()
    given = [lift.mask_padding(a, 0, [len(left) - 1]), lift.mask_padding(b, 0, [inner])]
    return lift.keep(at, [(*lead, *rows, *columns)], given)


@rule("einsum")
def _einsum(lift: Lift, at: LiftedEquation) -> Made:
    same_static(lift, at)
    terms, out = at.e.static[0].split("->")
    spans = {}
    pairs = list(zip(terms.split(","), at.e.inputs, strict=True))
    for label in {c for term, _ in pairs for c in term}:
        given: list[tuple[Any, ...]] = [
            (lift.of(x)[term.index(label)],) for term, x in pairs if label in term
        ]
        spans[label] = merge_spans(lift, given)[0]
    masked = [
        lift.mask_padding(x, 0, [k for k, c in enumerate(term) if c not in out])
        for term, x in pairs
    ]
    return lift.keep(at, [tuple([spans[c] for c in out])], masked)


@rule("linear")
def _linear(lift: Lift, at: LiftedEquation) -> Made:
    x, w, b = at.e.inputs
    _refuse_dynamic_weights(lift, w, b)
    return lift.keep(at, [(*_only_lead(lift, x, 1), None)])


@rule("linear_gradient")
def _linear_gradient(lift: Lift, at: LiftedEquation) -> Made:
    g, x, w = at.e.inputs
    _refuse_dynamic_weights(lift, w)
    lead = merge_spans(lift, [_only_lead(lift, g, 1), _only_lead(lift, x, 1)])
    made = [(*lead, None), (None, None), (None,)]
    return lift.keep(at, made, [lift.mask_padding(g, 0), lift.mask_padding(x, 0), w])


# -- normalisation, losses, cells: each line by itself ---------------------------------------------


@rule("layer_norm")
def _layer_norm(lift: Lift, at: LiftedEquation) -> Made:
    same_static(lift, at)
    x, w, b = at.e.inputs
    _refuse_dynamic_weights(lift, w, b)
    core = lift.aval(w).ndim
    spans = (*_only_lead(lift, x, core), *(None,) * core)
    return lift.keep(at, [spans] * 3)


@rule("layer_norm_gradient")
def _layer_norm_gradient(lift: Lift, at: LiftedEquation) -> Made:
    same_static(lift, at)
    g, y, variance, w = at.e.inputs
    _refuse_dynamic_weights(lift, w)
    core = lift.aval(w).ndim
    lead = merge_spans(lift, [_only_lead(lift, v, core) for v in (g, y, variance)])
    flat = (None,) * core
    given = [lift.mask_padding(g, 0), lift.mask_padding(y, 0), variance, w]
    return lift.keep(at, [(*lead, *flat), flat, flat], given)


def _native_core(lift: Lift, at: LiftedEquation, x, w) -> int:
    """How many of the last axes are normalised over, if the weight has these."""
    same_static(lift, at)
    _refuse_dynamic_weights(lift, w)
    core, ndim = lift.aval(w).ndim, lift.aval(x).ndim
    if at.e.static[0] != tuple(range(ndim - core, ndim)):
        lift.refuse("normalises over other axes than the weight's", "use a layer norm")
    return core


@rule("native_norm", "native_rms_norm")
def _native_norm(lift: Lift, at: LiftedEquation) -> Made:
    x, w, *bias = at.e.inputs
    _refuse_dynamic_weights(lift, *bias)
    core = _native_core(lift, at, x, w)
    spans = (*_only_lead(lift, x, core), *(None,) * core)
    return lift.keep(at, [spans] * len(at.e.outputs))


@rule("native_norm_gradient", "native_rms_norm_gradient")
def _native_norm_gradient(lift: Lift, at: LiftedEquation) -> Made:
    *given, w = at.e.inputs
    core = _native_core(lift, at, given[1], w)
    lead = merge_spans(lift, [_only_lead(lift, v, core) for v in given])
    flat = (None,) * core
    made = [(*lead, *flat), *[flat] * (len(at.e.outputs) - 1)]
    return lift.keep(at, made, [*[lift.mask_padding(v, 0) for v in given], w])


# By row: how many of the last axes of each operand form a line, and which operands are indices.
_LINES = {
    "cross_entropy": ((1, 0), (1,)),
    "cross_entropy_gradient": ((0, 0, 0, 0, 1, 0), (5,)),
    "soft_cross_entropy": ((1, 1), ()),
    "soft_cross_entropy_gradient": ((0, 0, 0, 0, 1, 1), ()),
    "lstm_cell": ((1, 1), ()),
    "gru_cell": ((1, 1, 1), ()),
    "rotate": ((1, 1), ()),
    "cross": ((1, 1), ()),
}


@rule(*_LINES)
def _lines(lift: Lift, at: LiftedEquation) -> Made:
    """Rows that compute each line separately; indices in the padding must be in bounds."""
    same_static(lift, at)
    cores, indices = _LINES[at.name]
    leads = [
        () if isinstance(x, Literal) else _only_lead(lift, x, core)
        for x, core in zip(at.e.inputs, cores, strict=True)
    ]
    lead = merge_spans(lift, leads)
    given = [lift.index(x) if k in indices else x for k, x in enumerate(at.e.inputs)]
    made = [(*lead, *(None,) * (lift.aval(i).ndim - len(lead))) for i in at.e.outputs]
    return lift.keep(at, made, given)


# -- windows ---------------------------------------------------------------------------------------


def _pad_windows(lift: Lift, at: LiftedEquation, x, y: int) -> tuple:
    """An operand with zeros in its padding, and the spans of the axes after windows slid over them.

    Windows with stride one read zeros after the end of an axis, as they do where it is padded.
    """
    spans, stride = lift.of(x), at.e.static[0]
    along = {a: s for a, s in enumerate(spans) if a > 1 and s is not None}
    if any([stride[a - 2] != 1 or not s.plain for a, s in along.items()]):
        lift.refuse(
            "has windows along the dynamic axis that move by more than one",
            "use a stride of 1 there",
        )
    sizes = [t.graph.avals[y].shape for t in (lift.small, lift.large)]
    return lift.mask_padding(x, 0, along), tuple(
        [lift.between(sizes[0][a], sizes[1][a]) for a in range(2, len(spans))]
    )


@rule("convolution", "convolution_transposed", "convolution_biased")
def _convolution(lift: Lift, at: LiftedEquation) -> Made:
    same_static(lift, at)
    x, *weights = at.e.inputs
    _refuse_dynamic_weights(lift, *weights)
    images, channels = lift.of(x)[:2]
    if channels is not None:
        lift.refuse("has channels of dynamic length", _WEIGHTS)
    x, sizes = _pad_windows(lift, at, x, at.e.outputs[0])
    return lift.keep(at, [(images, None, *sizes)], [x, *weights])


@rule("convolution_weight")
def _convolution_weight(lift: Lift, at: LiftedEquation) -> Made:
    same_static(lift, at)
    x, y = at.e.inputs
    if lift.of(x)[1] is not None or lift.of(y)[1] is not None:
        lift.refuse("has channels of dynamic length", _WEIGHTS)
    merge_spans(lift, [lift.of(x)[:1], lift.of(y)[:1]])
    (given, _), (other, _) = (_pad_windows(lift, at, v, at.e.outputs[0]) for v in (x, y))
    flat = (None,) * len(lift.of(x))
    return lift.keep(at, [flat], [lift.mask_padding(given, 0), lift.mask_padding(other, 0)])


@rule("max_pool", "pool_pick", "pool_put", "sum_pool", "spread_pool")
def _pool(lift: Lift, at: LiftedEquation) -> Made:
    same_static(lift, at)
    core, x = len(at.e.static[0]), at.e.inputs[0]
    lead = merge_spans(lift, [_only_lead(lift, v, core) for v in at.e.inputs])
    given = [x, *[lift.mask_padding(v, 0) for v in at.e.inputs[1:]]]
    return lift.keep(at, [(*lead, *(None,) * core) for _ in at.e.outputs], given)


# -- attention -------------------------------------------------------------------------------------


def _mask_keys(lift: Lift, q, k, mask, causal: bool):
    """The mask that also hides padding among the keys."""
    rows, keys = lift.of(q)[-2], lift.of(k)[-2]
    if keys is None:
        return mask
    if not keys.plain or not (rows is None or rows.plain):
        lift.refuse("has keys on an axis that joins others with the dynamic one", MASK)
    if causal and rows is not None and rows.offset <= keys.offset:
        return mask  # a query attends to no key after its own position, where padding is
    valid = lift.mask(keys, 2, 3)
    if isinstance(mask, Literal):
        return valid
    spans = merge_spans(lift, [lift.of(mask), (None, None, keys)])
    if dtypes.is_inexact(lift.aval(mask).dtype):
        return lift.emit("where", valid, mask, Literal(-inf), spans=spans)
    return lift.emit("logical_and", valid, mask, spans=spans)


def _heads(lift: Lift, operands, cores) -> Spans:
    """The spans of the axes before queries or keys; the number of heads is fixed."""
    return merge_spans(
        lift,
        [
            lift.of(x)[: len(lift.of(x)) - core]
            for x, core in zip(operands, cores, strict=True)
            if not isinstance(x, Literal)
        ],
    )


def _check_attention(lift: Lift, q, k, v, p) -> None:
    if p:
        lift.refuse(
            "with dropout draws numbers for a dynamic length", "use dropout after it, or p=0"
        )
    if any([lift.of(x)[-1] is not None or lift.of(x)[-3] is not None for x in (q, k, v)]):
        lift.refuse("has heads or features of dynamic length", MASK)


@rule("attention")
def _attention(lift: Lift, at: LiftedEquation) -> Made:
    same_static(lift, at)
    (q, k, v, mask, seeds), (causal, _, p, _) = at.e.inputs, at.e.static
    _check_attention(lift, q, k, v, p)
    mask = _mask_keys(lift, q, k, mask, causal)
    lead = _heads(lift, (q, k, v, mask), (2, 2, 2, 2))
    rows = lift.of(q)[-2]
    given = [
        q,
        lift.mask_padding(k, 0, [len(lift.of(k)) - 2]),
        lift.mask_padding(v, 0, [len(lift.of(v)) - 2]),
    ]
    return lift.keep(at, [(*lead, rows, None), (*lead, rows)], [*given, mask, seeds])


@rule("attention_gradient")
def _attention_gradient(lift: Lift, at: LiftedEquation) -> Made:
    """Queries in the padding have zero cotangents, so they add nothing to keys and values."""
    same_static(lift, at)
    (g, h, out, lse, q, k, v, mask, seeds), (causal, _, p) = at.e.inputs, at.e.static
    _check_attention(lift, q, k, v, p)
    mask = _mask_keys(lift, q, k, mask, causal)
    operands = (g, h, out, lse, q, k, v, mask)
    lead = _heads(lift, operands, (2, 1, 2, 1, 2, 2, 2, 2))
    given = [
        x if isinstance(x, Literal) else lift.mask_padding(x, 0, [len(lift.of(x)) - core])
        for x, core in zip(operands[:7], (2, 1, 2, 1, 2, 2, 2), strict=True)
    ]
    made = [(*lead, lift.of(x)[-2], None) for x in (q, k, v)]
    return lift.keep(at, made, [*given, mask, seeds])
