"""Lifting: rewriting a bucket's program so that it computes what a call's own program does."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ... import errors
from ...core.aval import Aval
from ...core.op import Op
from ...graph.graph import Equation, Graph, Literal
from ..passes.rewriting import Builder, Operand
from .spans import Span, Spans, is_ragged, pad_array, span_between
from .traces import Differs, LengthTrace, Varying, check_alike


class LiftedEquation(NamedTuple):
    """One equation at three lengths.

    e       at the bucket's length, with the operands of the lifted program
    small   at the reference length; the difference to `e` shows what depends on the length
    actual  at the call's length
    """

    e: Equation
    small: Equation
    actual: Equation

    @property
    def name(self) -> str:
        return self.e.op.name

    @property
    def fixed(self) -> bool:
        """Whether the static parameters are the same at all lengths."""
        return self.small.static == self.e.static == self.actual.static


# The results of a rule: values of the lifted program with their spans.
Made = list[tuple[int, Spans]]
Rule = Callable[["Lift", LiftedEquation], Made]


class Lifted(NamedTuple):
    """A program for calls of one length with the shapes of the bucket.

    inputs   the spans of the traced inputs
    outputs  the spans of the outputs
    values   the spans of values, by their index before lifting
    numbers  further inputs, which depend on the length alone
    added    the spans of these
    """

    graph: Graph
    inputs: list[Spans]
    outputs: list[Spans]
    values: dict[int, Spans]
    numbers: list[np.ndarray]
    added: list[Spans]


class Lift:
    """Builds a lifted program, equation by equation, with the rules in `rules`.

    traced   the function at the reference length, at the bucket's and at the call's
    padding  whether it is the body of a loop in which some steps are padding
    step     in such a body, the flag that is true in the call's own steps
    """

    small: LengthTrace
    large: LengthTrace
    actual: LengthTrace
    builder: Builder
    graph: Graph

    def __init__(self, name: str, traced: Sequence[LengthTrace], varying: Varying):
        self.name = name
        self.small, self.large, self.actual = traced
        self.varying = varying
        self.padding = False
        self.step: int | None = None
        self._added: list[Spans] = []
        self.spans: dict[int, Spans] = {}
        self.numbers: list[np.ndarray] = []
        self.builder = Builder(self.large.graph)
        self.graph = self.builder.graph
        self.graph.inputs = list(self.large.graph.inputs)
        self.uniform: set[int] = set()  # values whose elements are all equal, padding included
        self.even: set[tuple[int, int]] = set()  # axes along which a value does not change
        self.placed: dict[int, Span] = {}  # flat indices that count padding, with their span
        self._settled: dict[int, Spans] = {}  # of the current equation
        self._fills: dict[tuple[int, int], Any] = {}  # the known value of padding, by axis
        self._masked: dict[tuple[Any, ...], int] = {}
        self._valid: dict[Span, int] = {}
        self._at: Equation | None = None

    # -- the whole -------------------------------------------------------------------------------

    def run(
        self,
        inputs: list[Spans],
        rule_of: Callable[["Lift", LiftedEquation], Rule],
        zeros: bool = False,
    ) -> Lifted:
        """Build the program. Raises `Differs`, or `errors.PaddingError` if it cannot be right.

        zeros  whether the inputs' padding is zero
        """
        check_alike(self.small.graph, self.large.graph)
        check_alike(self.actual.graph, self.large.graph)
        for i, spans in zip(self.large.graph.inputs, inputs, strict=True):
            self._check_sizes(i, spans)
            self.spans[i] = spans
            if zeros:
                self._fills |= {(i, a): 0 for a, s in enumerate(spans) if s is not None}
        if self.large.graph.equations:
            self.builder.at(self.large.graph.equations[0].origin)
        renamed = {i: self._constant(i) for i in self.large.graph.constants}
        graphs = (self.large.graph, self.small.graph, self.actual.graph)
        for k, (e, *others) in enumerate(zip(*[g.equations for g in graphs], strict=True)):
            self._write(k, e, others[0], others[1], rule_of, renamed)
        outputs = [renamed.get(i, i) for i in self.large.graph.outputs]
        lifted = self.builder.finish(outputs)
        values = {
            i: self.spans[renamed.get(i, i)]
            for i in range(len(self.large.graph.avals))
            if renamed.get(i, i) in self.spans
        }
        return Lifted(
            lifted, inputs, [self.spans[i] for i in outputs], values, self.numbers, self._added
        )

    def _write(self, k: int, large: Equation, small, actual, rule_of, renamed: dict) -> None:
        self._at = large
        inputs = tuple(
            [
                self._literal(k, j, large, small, actual)
                if x.__class__ is Literal
                else renamed.get(x, x)
                for j, x in enumerate(large.inputs)
            ]
        )
        self.builder.at(large.origin)
        self._settle(inputs)
        at = LiftedEquation(large._replace(inputs=inputs), small, actual)
        made = rule_of(self, at)(self, at)
        for i, (j, spans) in zip(large.outputs, made, strict=True):
            self.spans[j] = spans
            renamed[i] = j
            self._check_sizes(i, spans)

    def _literal(self, k: int, j: int, large: Equation, small, actual) -> Operand:
        """A Python scalar, or an input in its place if it depends on the length."""
        mine = large.inputs[j], small.inputs[j], actual.inputs[j]
        if any([x != mine[0] for x in mine[1:]]):
            self.varying.literals.add((k, j))
        if (k, j) not in self.varying.literals:
            return mine[0]
        value, promoted = mine[2].value, large.op.promote or range(len(large.inputs))
        beside = [x for i, x in enumerate(large.inputs) if i in promoted and x.__class__ is int]
        kinds = {self.graph.avals[x].dtype for x in beside}
        held = "fcViu" if value.__class__ is int else "fcV"  # dtype kinds that hold it
        if len(kinds) != 1 or value.__class__ is bool or next(iter(kinds)).kind not in held:
            self.refuse(
                f"takes {value!r}, which depends on the length",
                "use valid.sum(), with a parameter `valid` of the function",
            )
        return self.number(np.asarray(value, kinds.pop()))

    def _constant(self, i: int) -> int:
        """A constant, or an input in its place if it depends on the length."""
        mine, small, actual = [
            np.asarray(t.graph.constants[i]) for t in (self.large, self.small, self.actual)
        ]
        same = [x.shape == mine.shape and x.tobytes() == mine.tobytes() for x in (small, actual)]
        if not all(same):
            self.varying.constants.add(i)
        if i not in self.varying.constants:
            self.spans[i] = (None,) * mine.ndim
            return i
        spans = self.spans_from_shapes(i)
        self._check_sizes(i, spans)
        if all(map(_is_uniform, (mine, small, actual))):
            number = self.number(np.asarray(actual.flat[0]))
            return self.repeat_number(number, mine.shape, spans)
        if any([s is not None and not s.plain for s in spans]):
            self.refuse(
                f"a constant of shape {mine.shape} joins axes with the dynamic one",
                "make it with an axis for the length alone, and reshape it afterwards",
            )
        return self.number(pad_array(actual, spans, self.actual.length, self.large.length), spans)

    # -- for rules -------------------------------------------------------------------------------

    def refuse(self, why: str, fix: str) -> NoReturn:
        """Raise `PaddingError`: the operation, its line, and the fix."""
        e = self._at
        where = "" if e is None else f"{e.op.name} at {e.line} "
        raise errors.PaddingError(f"compile: {self.name} with dynamic=: {where}{why}; {fix}")

    def aval(self, x: Operand) -> Aval:
        return self.builder.aval(x)

    def of(self, x: Operand) -> Spans:
        """The spans of an operand."""
        return () if isinstance(x, Literal) else self._settled.get(x) or self.spans[x]

    def spans_from_shapes(self, i: int) -> Spans:
        """The spans of a value as its shapes at two lengths imply them."""
        small, large = self.small.graph.avals[i].shape, self.large.graph.avals[i].shape
        found = []
        for a, b in zip(small, large, strict=True):
            s = span_between((self.small.length, a), (self.large.length, b))
            if s is None and a != b:
                self.refuse(
                    f"makes an axis of length {a} at length {self.small.length}, and of {b} at "
                    f"{self.large.length}",
                    _LENGTHS,
                )
            found.append(s)
        return tuple(found)

    def repeat_number(self, x: int, shape: tuple[int, ...], spans: Spans) -> int:
        """Broadcast one number to an array."""
        made = self.emit("broadcast_to", x, shape, spans=spans)
        self.uniform.add(made)
        return made

    def is_uniform(self, x: Operand) -> bool:
        """Whether all elements of an operand are equal."""
        return isinstance(x, Literal) or x in self.uniform or set(self.aval(x).shape) <= {1}

    def is_even(self, x: Operand, axis: int) -> bool:
        """Whether an operand does not change along an axis, counted from the end."""
        if isinstance(x, Literal) or x in self.uniform or len(self.aval(x).shape) < -axis:
            return True
        return self.aval(x).shape[axis] == 1 or (x, axis) in self.even

    def _settle(self, inputs) -> None:
        """Give an operand that does not change along a joined axis the span of the others."""
        self._settled, values = {}, [x for x in inputs if x.__class__ is int]
        axes = [(x, a) for x in values for a in range(-len(self.spans[x]), 0)]
        fixed = {self.spans[x][a] for x, a in axes if not self.is_even(x, a)} - {None}
        kinds = {(s.factor, s.offset): s for s in fixed if s is not None}
        for x in values:
            self._settled[x] = tuple(
                [
                    kinds.get((s.factor, s.offset), s) if s and self.is_even(x, a) else s
                    for a, s in enumerate(self.spans[x], -len(self.spans[x]))
                ]
            )

    def emit(self, row: str | Op, *arguments: Any, spans: Spans) -> int:
        """Append an equation with one result."""
        i = self.builder.emit(row, *arguments)
        self.spans[i] = spans
        return i

    def keep(
        self, at: LiftedEquation, spans: list[Spans], inputs: Iterable[Operand] | None = None
    ) -> Made:
        """Append the equation unchanged, or with other operands."""
        e = at.e if inputs is None else at.e._replace(inputs=tuple(inputs))
        self.builder.append(e)
        return list(zip(e.outputs, spans, strict=True))

    def number(self, value: np.ndarray, spans: Spans | None = None) -> int:
        """Add an input that depends on the length alone, with its value at the call's length."""
        i = self.graph.new(Aval(value.shape, value.dtype))
        self.graph.inputs.append(i)
        self.numbers.append(value)
        self.spans[i] = (None,) * value.ndim if spans is None else spans
        self._added.append(self.spans[i])
        return i

    def positions(self, places: np.ndarray, size: int) -> int:
        """Add an input of positions on an axis, filled up with zeros to `size`."""
        filled = np.zeros(size, np.int64)
        filled[: len(places)] = places
        return self.number(filled)

    def between(self, small: int, large: int) -> Span | None:
        """The span of an axis with these lengths at two traces, not joined; None if equal."""
        span = span_between((self.small.length, small), (self.large.length, large))
        if small != large and (span is None or not span.plain):
            self.refuse(
                f"makes an axis of length {small} at length {self.small.length}, and of {large} at "
                f"{self.large.length}",
                _LENGTHS,
            )
        return span

    # -- masks -----------------------------------------------------------------------------------

    def valid(self, span: Span) -> int:
        """Flags: which elements of an axis are the call's own."""
        if span in self._valid:
            return self._valid[span]
        count = self.large.length + span.offset
        places = self.builder.constant(np.arange(count))
        own = self.number(np.asarray(self.actual.length + span.offset))
        made = self.builder.emit("less", places, own)
        if not span.plain:
            made = self.builder.emit("reshape", made, (1, count, 1))
            made = self.builder.emit("broadcast_to", made, (span.outer, count, span.inner))
            made = self.builder.emit("reshape", made, (span.outer * count * span.inner,))
        self.spans[made] = (span,)
        self._valid[span] = made
        return made

    def mask(self, span: Span, axis: int, ndim: int) -> int:
        """The flags of `valid`, reshaped to broadcast along one axis of an array."""
        valid = self.valid(span)
        if ndim == 1:
            return valid
        size = self.aval(valid).shape[0]
        shape = tuple([size if a == axis else 1 for a in range(ndim)])
        spans = tuple([span if a == axis else None for a in range(ndim)])
        return self.emit("reshape", valid, shape, spans=spans)

    def mask_padding(self, x: Operand, fill: float, axes: Iterable[int] | None = None) -> Operand:
        """x with `fill` in the padding along these axes; None: along all."""
        if isinstance(x, Literal):
            return x
        spans = self.of(x)
        for axis in range(len(spans)) if axes is None else sorted(axes):
            span = spans[axis]
            if span is None or self._fills.get((x, axis), _NOTHING) == fill:
                continue
            key = (x, axis, span, repr(fill))
            if key not in self._masked:
                mask = self.mask(span, axis, len(spans))
                value = Literal(_like(fill, self.aval(x).dtype))
                made = self.emit("where", mask, x, value, spans=spans)
                known = [a for a in range(len(spans)) if self._fills.get((x, a), _NOTHING) == fill]
                self._fills |= dict.fromkeys([(made, a) for a in (*known, axis)], fill)
                self._masked[key] = made
            x = self._masked[key]
        return x

    def index(self, i: Operand) -> Operand:
        """Indices with zeros, which are always in bounds, in their padding."""
        i = self.mask_padding(i, 0)
        if not self.padding or isinstance(i, Literal):
            return i
        if self.step is None:
            self.refuse(
                "takes indices in a loop inside of one along the dynamic axis",
                "take them before the loop",
            )
        return self.emit("where", self.step, i, Literal(0), spans=self.of(i))

    # -- checks ----------------------------------------------------------------------------------

    def _check_sizes(self, i: int, spans: Spans) -> None:
        """Check that a value has the sizes of its spans at all three lengths."""
        for t in (self.small, self.large, self.actual):
            shape = t.graph.avals[i].shape
            wanted = [
                n if s is None else s.size(t.length)
                for n, s in zip(self.large.graph.avals[i].shape, spans, strict=True)
            ]
            if list(shape) != wanted:
                e = self._at
                where = "an argument or a constant" if e is None else f"{e.op.name} at {e.line}"
                raise Differs(
                    f"{where} makes shape {tuple(shape)} at length {t.length}, which does not "
                    f"follow from {self.large.graph.avals[i].shape} at {self.large.length}"
                )


_NOTHING = object()
_LENGTHS = "only axes as long as the dynamic one, more or less a number, can be padded"


def _is_uniform(x: np.ndarray) -> bool:
    return bool(x.size) and bool((x == x.flat[0]).all())


def _like(fill, dtype: np.dtype):
    """A number as the Python scalar for a dtype."""
    return bool(fill) if dtype.kind == "b" else int(fill) if dtype.kind in "iu" else fill


def involves_length(lift: Lift, at: LiftedEquation) -> bool:
    """Whether an operand or result of an equation has a dynamic axis."""
    return any([is_ragged(lift.of(x)) for x in at.e.inputs]) or any(
        [lift.small.graph.avals[i].shape != lift.large.graph.avals[i].shape for i in at.e.outputs]
    )
