"""The bodies of loops and branches in a function that is being compiled, as graphs.

A body is traced once, on values of a level of its own. Here are also the parts that all structured
equations share: applying one, and a body as a function for the rules of its derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...arrays.make import zeros
from ...core import dtypes
from ...core.aval import Aval
from ...core.box import BOXES, Level, refuse_inner
from ...core.dispatch import apply
from ...core.recording import inexact
from ...core.settings import current, override_settings
from ...core.value import TENSORS, as_seen_by_trace, wrap
from ...graph.graph import Graph
from ...graph.staged import Staged
from ...graph.structured import BodyTrace, Structured, replay_body, row
from ...ops.batching import spread
from ..modes.dual import to_tensor, unwrap_if_plain
from ..modes.functional import jvp
from ..modes.vmap import vmap
from .body_draws import NoDraws

if TYPE_CHECKING:
    from ...arrays.tensor import Tensor
    from ...arrays.types import DTypeLike
    from ...core.op import Jvp
    from ...core.types import Array


class _BranchStaging:
    """The trace around a branch; operations inside of it lift all operands into the branch.

    In a loop, what does not depend on a step is computed outside. Of a branch nothing may be: it
    may not be taken.
    """

    def __init__(self, outside, inner: BodyTrace):
        self._outside, self._inner = outside, inner

    def __getattr__(self, name: str):
        return getattr(self._outside, name)

    def lift_arguments(self, args) -> list:
        return [self._value(a) for a in self._outside.lift_arguments(args)]

    def _value(self, a):
        if a.__class__ in TENSORS:
            return self._inner.of(a)
        if a.__class__ in BOXES and a.level < self._inner.tag:
            return self._inner.value(self._inner.tag, self._inner.constant(a))
        return a


def trace_body(
    f: Callable[[list[Tensor]], Sequence[Array]],
    avals: list[Aval],
    branch: bool = False,
    draws: Callable[[BodyTrace], Any] | None = None,
) -> BodyTrace:
    """The trace of the body f: inputs of these types, then what it captures.

    draws   (inner) -> the function that replaces the generators' draws (`Settings.draws`)
    """
    settings = current.get()
    inner = BodyTrace(settings.staging.name)
    drawn = NoDraws("the test of a while_loop") if draws is None else draws(inner)
    given = [wrap(inner.input(inner.tag, a)) for a in avals]
    level = Level(Staged, inner.tag, trace=inner)
    staging = _BranchStaging(settings.staging, inner) if branch else settings.staging
    with override_settings(levels=(*settings.levels, level), staging=staging, draws=drawn):
        for y in f(given):
            refuse_inner("a body", y, inner.tag)
            inner.graph.outputs.append(inner.of(as_seen_by_trace(y))._data.index)
    inner.closed = True
    return inner


def kind_of(x: Array) -> Aval:
    return Aval(tuple(x.shape), x.dtype, x.device)


def apply_structure(
    structure: Structured, operands: list[Array], rules: tuple[Jvp, Callable[..., Any]]
) -> tuple[Array, ...]:
    """Apply a structured equation to operands; returns its results."""
    made = structure.results(*map(kind_of, operands))
    tracked = tuple([k for k, a in enumerate(made) if dtypes.is_inexact(a.dtype)])
    op = row(type(structure), len(operands), len(made), tracked, rules)  # type: ignore[arg-type]
    out = apply(op, operands, (structure,))
    return out if op.outputs > 1 else (out,)


def floats(xs: Sequence[Array]) -> list[int]:
    return [k for k, x in enumerate(xs) if inexact(x)]


def tensors(xs: Sequence[Array | None]) -> list[Any]:
    return [None if x is None else to_tensor(x) for x in xs]


def unwrap_like(made: list[Any], others: Sequence[Array]) -> list[Array | None]:
    """The tensors `made`, or their raw values if there is no tensor among `others`."""
    if any([x.__class__ in TENSORS for x in others]):
        return made
    return [None if y is None else y._data for y in made]


def reached_outputs(graph: Graph, inputs: Sequence[bool]) -> list[bool]:
    """Which outputs depend on the inputs that are marked."""
    marked = {i for i, on in zip(graph.inputs, inputs, strict=True) if on}
    for e in graph.equations:
        if not marked.isdisjoint(e.inputs):
            marked.update(e.outputs)
    return [i in marked for i in graph.outputs]


def zeros_of(a: Aval) -> Tensor:
    return as_seen_by_trace(zeros(a.shape, dtype=a.dtype, device=a.device))


def substitute(
    values: Sequence[Array], picked: Sequence[int], others: Sequence[Array]
) -> list[Array]:
    """The values, with those at the positions `picked` replaced by `others`."""
    whole = list(values)
    for k, x in zip(picked, others, strict=True):
        whole[k] = x
    return whole


def join_captured(inners: list[BodyTrace], first: int) -> list[Array]:
    """The union of several bodies' captures; all get it as inputs after their `first` ones."""
    captured = {key: outer for inner in inners for key, (outer, _) in inner.captured.items()}
    for inner in inners:
        graph = inner.graph
        known = {key: i for key, (_, i) in inner.captured.items()}
        graph.inputs = graph.inputs[:first] + [
            known[key] if key in known else graph.new(kind_of(outer))
            for key, outer in captured.items()
        ]
    return list(captured.values())


def push_body(
    body: Graph, here: list[Tensor], picked: list[int], given: list[Tensor], made: list[int]
) -> tuple[list[Tensor], list[Tensor]]:
    """A body's results at `here`, and the tangents of those in `made`."""

    def forward(*moved):
        out = replay_body(body, substitute(here, picked, moved))
        return tuple([out[k] for k in made]), out

    ys, ds, out = jvp(forward, tuple([here[k] for k in picked]), tuple(given), has_aux=True)
    out = list(out)
    for k, y in zip(made, ys, strict=True):
        out[k] = y
    return out, [narrow_tangent(d, y.dtype) for d, y in zip(ds, ys, strict=True)]


def narrow_tangent(x: Tensor, dtype: DTypeLike) -> Tensor:
    """A tangent in the dtype of its value: rules widen bfloat16 beside Python numbers."""
    return x if x is None or x.dtype == dtype else x.to(dtype)


def settle_batched(body: Graph, inputs: list[bool], n: int) -> list[bool]:
    """Which inputs differ over a batch, as a fixed point: a step can make carries differ."""
    while True:
        after = reached_outputs(body, inputs)[:n]
        carries = [a or b for a, b in zip(inputs[:n], after, strict=True)]
        if carries == inputs[:n]:
            return inputs
        inputs = [*carries, *inputs[n:]]


def spread_out(
    xs: list[Tensor], wanted: Sequence[bool], have: Sequence[bool], size: int
) -> list[Tensor]:
    """The values, with a batch axis added where it is wanted and missing."""
    return [
        to_tensor(spread(unwrap_if_plain(x), size)) if want and not had else x
        for x, want, had in zip(xs, wanted, have, strict=False)
    ]


def mapped_body(
    graph: Graph, inputs: Sequence[bool], outputs: Sequence[bool]
) -> Callable[[list[Tensor]], list[Tensor]]:
    """A body over a batch: the flags say which inputs and outputs have a batch axis in front."""
    axes = tuple([0 if on else None for on in inputs])
    made = tuple([0 if on else None for on in outputs])

    def over(values: list[Tensor]) -> list[Tensor]:
        return list(vmap(lambda *xs: tuple(replay_body(graph, list(xs))), axes, made)(*values))

    return over
