"""Structured equations: loops and branches, whose bodies are graphs of their own.

A body reads nothing but its inputs: what a function captures becomes an operand of the equation.
So derivatives, batching and rewrites treat it like any equation, and a loop's body is traced once,
however many steps it has.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from .. import errors
from ..core.aval import Aval
from ..core.backends import BACKENDS, KERNELS
from ..core.box import BOXES, level_of, tags
from ..core.call import caller
from ..core.op import Op
from ..core.record import record
from ..core.types import Array, Raw, Static
from ..core.value import TENSORS, wrap
from .graph import Equation, Graph, Literal
from .staged import Staged, Staging


@record(eq=False)
class Loop:
    """carry, y = body(carry, x, *constants) for each x in turn.

    Operands are the first carries, the arrays of xs and the constants; results the last carries
    and the arrays of ys, of which the last `saved` are the carries that each step began with.

    body     inputs: carries, xs, constants; outputs: carries, ys
    carries  the number of carries
    xs       the number of arrays that the loop iterates over
    """

    body: Graph
    carries: int
    xs: int
    length: int
    reverse: bool = False
    saved: int = 0

    @property
    def graphs(self) -> tuple[Graph, ...]:
        return (self.body,)

    @property
    def ys(self) -> int:
        """The number of arrays that the steps' results are stacked in."""
        return len(self.body.outputs) - self.carries

    def parts(self, operands: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """Operands as first carries, xs and constants."""
        c, x = self.carries, self.carries + self.xs
        return list(operands[:c]), list(operands[c:x]), list(operands[x:])

    def results(self, *avals: Aval) -> tuple[Aval, ...]:
        """The types of the results; the operands must fit the body."""
        wanted = [self.body.avals[i] for i in self.body.inputs]
        _check_fit("scan", [_step_aval(self, k, a) for k, a in enumerate(avals)], wanted)
        made = [self.body.avals[i] for i in self.body.outputs]
        _check_fit("scan", made[: self.carries], wanted[: self.carries])
        stacked = [Aval((self.length, *a.shape), a.dtype, a.device) for a in made[self.carries :]]
        return (*made[: self.carries], *stacked)

    def compute(self, operands: list[Raw]) -> list[np.ndarray]:
        """The results, step by step on NumPy's kernels."""
        carry, xs, constants = self.parts(operands)
        avals = [self.body.avals[i] for i in self.body.outputs[self.carries :]]
        ys = [np.empty((self.length, *a.shape), a.dtype) for a in avals]
        steps = range(self.length)
        for k in reversed(steps) if self.reverse else steps:
            out = compute_body(self.body, [*carry, *(x[k] for x in xs), *constants])
            carry = out[: self.carries]
            for y, value in zip(ys, out[self.carries :], strict=True):
                y[k] = value
        return [*map(np.array, carry), *ys]

    def __repr__(self) -> str:
        way = " backwards" if self.reverse else ""
        return f"<{self.length} steps{way}, {self.carries} carries, {self.xs} xs>"


def _step_aval(loop: Loop, k: int, a: Aval) -> Aval:
    """The aval that one step gets of operand k."""
    if not loop.carries <= k < loop.carries + loop.xs:
        return a
    if a.shape[:1] != (loop.length,):
        raise errors.ShapeError(f"scan: xs of shape {a.shape} for {loop.length} steps")
    return Aval(a.shape[1:], a.dtype, a.device)


def _check_fit(what: str, given: list[Aval], wanted: list[Aval]) -> None:
    if [(a.shape, a.dtype) for a in given] != [(a.shape, a.dtype) for a in wanted]:
        raise errors.ShapeError(f"{what}: operands {given} for a body of {wanted}")


@record(eq=False)
class Branch:
    """yes(*operands) if a first operand, the predicate, is true, else no(*operands)."""

    yes: Graph
    no: Graph

    @property
    def graphs(self) -> tuple[Graph, ...]:
        return self.yes, self.no

    def results(self, *avals: Aval) -> tuple[Aval, ...]:
        made = [[g.avals[i] for i in g.outputs] for g in self.graphs]
        for g in self.graphs:
            _check_fit("cond", list(avals[1:]), [g.avals[i] for i in g.inputs])
        _check_fit("cond", made[0], made[1])
        return tuple(made[0])

    def compute(self, operands: list[Raw]) -> list[np.ndarray]:
        taken = self.yes if bool(operands[0]) else self.no
        return compute_body(taken, operands[1:])

    def __repr__(self) -> str:
        return f"<{len(self.yes.equations)} or {len(self.no.equations)} equations>"


@record(eq=False)
class Repeat:
    """carry = body(carry, *constants) while test(carry, *constants) holds.

    Results are the last carries, and whether the loop ended because the test failed: it also ends
    after `most` steps, where that is given.
    """

    test: Graph
    body: Graph
    carries: int
    most: int | None = None

    @property
    def graphs(self) -> tuple[Graph, ...]:
        return self.test, self.body

    def results(self, *avals: Aval) -> tuple[Aval, ...]:
        for g in self.graphs:
            _check_fit("while_loop", list(avals), [g.avals[i] for i in g.inputs])
        made = [self.body.avals[i] for i in self.body.outputs]
        _check_fit("while_loop", made, list(avals[: self.carries]))
        return (*made, self.test.avals[self.test.outputs[0]])

    def compute(self, operands: list[Raw]) -> list[np.ndarray]:
        carry, constants, steps = operands[: self.carries], operands[self.carries :], 0
        while going := bool(compute_body(self.test, [*carry, *constants])[0]):
            if steps == self.most:
                break
            carry, steps = compute_body(self.body, [*carry, *constants]), steps + 1
        return [*map(np.array, carry), np.array(not going)]

    def __repr__(self) -> str:
        most = "" if self.most is None else f", at most {self.most} times"
        return f"<while{most}, {self.carries} carries>"


Structured = Loop | Branch | Repeat
STRUCTURED = (Loop, Branch, Repeat)
# The row's name for each class.
NAMES: dict[type, str] = {Loop: "scan", Branch: "cond", Repeat: "while"}


def inner_graphs(static: Static) -> Iterator[Graph]:
    """The graphs inside an equation."""
    for s in static:
        if isinstance(s, STRUCTURED):
            yield from s.graphs


def communicates(e: Equation) -> bool:
    """Whether an equation, or one inside of it, joins arrays of several processes.

    All of them must run it equally often and in the same order, whether its result is needed or
    not.
    """
    if e.op.collective:
        return True
    return any([communicates(inner) for g in inner_graphs(e.static) for inner in g.equations])


def structure_of(e: Equation) -> Any:
    """The loop or branch that an equation is; None for other equations."""
    return e.static[0] if e.op.name in NAMES.values() and e.static else None


def compute_body(graph: Graph, values: list[Raw]) -> list[np.ndarray]:
    """The outputs of a body, equation by equation on NumPy's kernels."""
    numpy_ = BACKENDS[np.ndarray]
    held = {**graph.constants, **dict(zip(graph.inputs, map(np.asarray, values), strict=True))}
    with numpy_.quiet():
        for e in graph.equations:
            operands = [i.value if isinstance(i, Literal) else held[i] for i in e.inputs]
            z = e.op.call(KERNELS[e.op][np.ndarray], operands, e.static)
            zs = (z,) if e.op.outputs == 1 else z
            held.update(zip(e.outputs, map(numpy_.whole, zs), strict=True))
    return [held[i] for i in graph.outputs]


def replay_body(graph: Graph, values: list[Array]) -> list[Array]:
    """The outputs of a body on tensors of any level: its equations as operations."""
    held: dict[int, Any] = {i: wrap(raw) for i, raw in graph.constants.items()}
    held |= zip(graph.inputs, values, strict=True)
    for e in graph.equations:
        operands = [i.value if isinstance(i, Literal) else held[i] for i in e.inputs]
        z = e.op.call(caller(e.op), operands, e.static)
        held.update(zip(e.outputs, (z,) if e.op.outputs == 1 else z, strict=True))
    return [held[i] for i in graph.outputs]


# -- tracing a body ------------------------------------------------------------------------------


class BodyTrace(Staging):
    """The trace of a body: the outer tensors that the body captures become inputs of its graph.

    captured  by the identity of a tensor's data and node: (the outer tensor, the index of its
              input)
    """

    replayed = True

    def __init__(self, name: str):
        super().__init__(name)
        self.tag: int = next(tags)
        self.captured: dict[tuple[int, int], tuple[Any, int]] = {}

    def constant(self, value: Array) -> int:
        """The index of an outer value in the graph: an input, or a constant if a raw array."""
        tensor = value.__class__ in TENSORS
        if not tensor and value.__class__ not in BOXES:
            return super().constant(value)
        if value.__class__ is Staged and value.level == self.tag:
            return value.index
        key = (id(value._data), id(value._node)) if tensor else (id(value), id(None))
        if key not in self.captured:
            outer = value if tensor else wrap(value)
            i = self.input(self.tag, _aval(outer)).index
            self.captured[key] = (outer, i)
        return self.captured[key][1]

    def of(self, tensor: Array) -> Any:
        """A tensor as a value of the body."""
        if level_of(tensor) >= self.tag:
            return tensor
        return wrap(Staged(self.tag, self, self.constant(tensor)))

    def captured_tensors(self) -> list[Array]:
        """The captured tensors, in the order of their inputs."""
        return [outer for outer, _ in self.captured.values()]


def _aval(x) -> Aval:
    return Aval(tuple(x.shape), x.dtype, x.device)


# -- rows ----------------------------------------------------------------------------------------


@lru_cache(maxsize=None)
def row(kind: type, arity: int, outputs: int, tracked: tuple[int, ...], rules: Any) -> Op:
    """The row of one kind of structured equations; the structure is its static parameter.

    rules   (rule, batch), which the layer above supplies
    """

    def compute(xp, *args):
        *operands, structure = args
        made = structure.compute(operands)
        return made[0] if outputs == 1 else tuple(made)

    def shape(*args):
        *avals, structure = args
        made = structure.results(*avals)
        return made[0] if outputs == 1 else made

    name = NAMES[kind]
    rule, batch = rules
    more = {"outputs": outputs, "tracked": tracked, "batch": batch, "static": True}
    return Op(name, compute, shape, rule, arity, **more)
