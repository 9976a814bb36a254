"""From a graph to a schedule: groups become kernels, products GEMMs, the rest views and calls."""

from collections.abc import Iterator, Mapping
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np

from ...core import dtypes
from ...core.aval import Aval
from ...errors import IndexingError
from ...graph.graph import Equation, Graph, Literal
from ...graph.guard import WITHIN
from ..ir.gemm import BIASED, gemm
from ..ir.kernel import FoldStep, Kernel, Operand, Result, Step
from ..ir.routine import Routine
from ..ir.schedule import (
    Buffer,
    GuardStep,
    KernelStep,
    LibraryStep,
    NativeStep,
    Schedule,
    ScheduleStep,
    row_major,
)
from ..ir.uses import arrays
from ..ir.views import LOOKS, View, views_of
from ..limits import Limits
from ..memory import in_place
from ..target import Lowering
from .canonical import canonical
from .classify import UnitKind
from .column_folds import by_rows
from .domain import STILL, Axes, Group
from .groups import Grouping, Unit
from .joined_folds import join_column_folds
from .line_folds import split_lines
from .order import Peak, Work, order_units, peak_of
from .parts import Placement, fills, gaps, parts_of
from .softmax import by_products
from .two_stage_folds import Stages, split_stages


def schedule_graph(
    graph: Graph, target: Lowering, donated: Mapping[int, int] | None = None
) -> Schedule:
    """The schedule of a graph after the target's passes.

    donated   maps the position of an output to that of the input whose memory it may take
    """
    made = Assembly(graph, target, donated or {}).schedule()
    return join_column_folds(made, target.limits)


class KernelForms:
    """The forms of kernels, by kernels: equal ones become one object.

    Programs repeat their layers, and are assembled several times.
    """

    def __init__(self, limits: Limits):
        self._limits = limits
        self._finished: dict[Kernel, Kernel] = {}
        self._stages: dict[Kernel, Stages | None] = {}

    def finished(self, kernel: Kernel) -> Kernel:
        """A fused kernel in the form in which it is computed."""
        found = self._finished.get(kernel)
        if found is None:
            found = self._finished[kernel] = canonical(by_products(kernel))
        return found

    def stages(self, kernel: Kernel) -> Stages | None:
        """The stages of a kernel that folds too much for one; None if one is enough."""
        if kernel not in self._stages:
            stages = split_stages(kernel, self._limits) or by_rows(kernel, self._limits)
            self._stages[kernel] = stages or split_lines(kernel, self._limits)
        return self._stages[kernel]


class Assembly:
    """A schedule under construction."""

    graph: Graph
    views: dict[int, View]
    target: Lowering
    outputs: set[int]
    read: dict[int, set[int]]
    fused: dict[int, tuple[Kernel, list[View], list[int]]]
    open: set[int]
    long: set[int]
    works: dict[int, Work]
    order: list[int]

    def __init__(
        self,
        graph: Graph,
        target: Lowering,
        donated: Mapping[int, int],
        in_place: bool = True,
        groups: Grouping | None = None,
        forms: KernelForms | None = None,
    ):
        """Lower a graph.

        in_place  whether parts of arrays may be computed in their places
        groups    the groups of another assembly of this graph
        forms     those of other assemblies for the target
        """
        self.graph, self.target = graph, target
        self._forms = forms or KernelForms(target.limits)
        self.groups = groups or Grouping(graph, views_of(graph), target)
        grouping = self.grouping = self.groups.copy()
        views = self.views = grouping.views
        self.buffers: list[Buffer] = []
        self.constants: dict[int, np.ndarray] = {}
        self.buffer_of: dict[tuple[Any, ...], int] = {}  # by (root, shape, strides, offset)
        # Buffers of one number, by dtype and bytes.
        self.numbers: dict[tuple[np.dtype, bytes], int] = {}
        self.outputs = {views[i].root for i in graph.outputs}
        for i in graph.inputs:
            self._own(i, "input")
        taking = {views[graph.outputs[k]].root for k in donated}
        aligned = target.limits.aligned_parts if in_place else 0
        self.placement = Placement(grouping, aligned, taking)
        self.memory = self.placement.memory
        units = grouping.units.items()
        self.read = {u: self._roots_read(unit) for u, unit in units}
        self.readers: dict[int, set[int]] = {}  # units, by roots
        for u, roots in self.read.items():
            for root in roots:
                self.readers.setdefault(root, set()).add(u)
        self.fused = {u: self._fuse_group(unit, unit.group) for u, unit in units if unit.group}
        self.donors: dict[int, int] = {}  # by outputs: the inputs whose memory they are written to
        self.late: dict[int, int] = {}  # the same, for outputs that are copied there at the end
        self.open = {u for u, unit in units if donated and self._is_open(unit)}
        written = {grouping.unit_of[root] for root in taking}
        self.long = {
            u for u, unit in units if donated and u not in written and self._is_long(u, unit)
        }
        for k, n in donated.items():
            self._donate(views[graph.outputs[k]].root, graph.inputs[n])
        self.works = {u: self._work(u, unit) for u, unit in grouping.units.items()}
        self.order = order_units(self.works, frozenset(self.outputs))

    # -- buffers -------------------------------------------------------------------------------

    def _own(self, root: int, role: str, takes: int | None = None) -> int:
        """The buffer of a root."""
        aval = self.graph.avals[root]
        strides = row_major(aval.shape)
        self.buffers.append(Buffer(aval.shape, aval.dtype, role, strides, takes=takes))
        n = self.buffer_of[root, aval.shape, strides, 0] = len(self.buffers) - 1
        return n

    def root(self, root: int) -> int:
        """The buffer of a root, created on first use."""
        shape = self.graph.avals[root].shape
        n = self.buffer_of.get((root, shape, row_major(shape), 0))
        if n is not None:
            return n
        if root in self.graph.constants:
            n = self._own(root, "constant")
            self.constants[n] = np.asarray(self.graph.constants[root], order="C")
            return n
        return self._own(
            root, "output" if root in self.outputs else "scratch", self._donated_input(root)
        )

    def _donated_input(self, root: int) -> int | None:
        donor = self.donors.get(root)
        return None if donor is None else self.root(donor)

    def view(self, v: View) -> int:
        """The buffer of a view."""
        base = self.root(v.root)
        strides = tuple(0 if n == 1 else s for n, s in zip(v.shape, v.strides, strict=True))
        own = self.buffers[base]
        if v.shape == own.shape and v.offset == 0 and v.contiguous:
            return base
        key = v.root, v.shape, strides, v.offset
        if key not in self.buffer_of:
            made = Buffer(v.shape, own.dtype, own.role, strides, base, v.offset)
            self.buffers.append(made)
            self.buffer_of[key] = len(self.buffers) - 1
        return self.buffer_of[key]

    def number(self, value: complex, dtype: np.dtype) -> int:
        """A buffer that holds one number."""
        held = np.array(value, dtype)
        key = dtype, held.tobytes()
        if key not in self.numbers:
            self.buffers.append(Buffer((), dtype, "constant", ()))
            self.numbers[key] = len(self.buffers) - 1
            self.constants[self.numbers[key]] = held
        return self.numbers[key]

    # -- steps ---------------------------------------------------------------------------------

    def peak(self) -> tuple[Peak, set[int]]:
        """The moment of peak memory, and the equations that run after it."""
        found = peak_of(self.works, self.order, frozenset(self.outputs))
        return found, {k for u in found.later for k in self.grouping.units[u].equations}

    def early(self) -> int:
        """The most bytes at a time that are there for parts which are computed later.

        A whole is alive from its first part on, which is long before its last one, maybe.
        """
        place, change = {u: n for n, u in enumerate(self.order)}, [0] * len(self.order)
        for whole, parts in self.placement.within.items():
            at = [place[self.grouping.unit_of[x]] for x in (*parts, whole)]
            change[min(at)] += _nbytes(self.graph.avals[whole])
            for n, x in zip(at, parts, strict=False):
                change[n] -= _nbytes(self.graph.avals[x])
            change[at[-1]] -= self._own_bytes(whole)
        return max(accumulate(change), default=0)

    @property
    def points(self) -> set[int]:
        """The elementwise equations of kernels."""
        kernels = [unit for unit in self.grouping.units.values() if unit.group is not None]
        every = {k for unit in kernels for k in unit.equations}
        return {k for k in every if not self.graph.equations[k].op.folds}

    def schedule(self) -> Schedule:
        """Emit all steps, in order."""
        steps: list[ScheduleStep] = []
        for u in self.order:
            steps += self._steps(u, self.grouping.units[u])
        steps += [self._copy_to_donor(root, donor) for root, donor in self.late.items()]
        outputs = [self._output(self.views[i]) for i in self.graph.outputs]
        inputs = tuple(self.root(i) for i in self.graph.inputs)
        return Schedule(tuple(self.buffers), inputs, tuple(outputs), tuple(steps), self.constants)

    def _donate(self, root: int, donor: int) -> None:
        """Give an input's memory to an output: written in place, or copied there at the end.

        Every unit that may fail or never end runs first, so that a call that fails leaves all
        inputs unchanged. So does every long unit that can, since a signal may interrupt it.
        """
        grouping, u = self.grouping, self.grouping.unit_of[root]
        precedes = grouping.order.precedes
        readers = self.readers.get(donor, set())
        earlier = (readers | self.open) - {u}
        early = u not in self.open and not any(precedes(u, w) for w in earlier)
        early = early and root not in grouping.sums  # its first product would wait, too
        if not early or (u in readers and not self._may_replace(u, root, donor)):
            self.late[root] = donor
            self.outputs.discard(root)
            return
        self.donors[root] = donor
        grouping.order.wait(u, earlier | {w for w in self.long if not precedes(u, w)})

    def _is_open(self, unit: Unit) -> bool:
        """Whether a unit may fail, or never end."""
        e = self.graph.equations[unit.equations[0]]
        if unit.kind is UnitKind.LIBRARY:
            return self.target.library_fails(e.op)
        if unit.kind is UnitKind.NATIVE:
            return self._routine(e).endless
        return unit.kind is UnitKind.GUARD

    def _is_long(self, u: int, unit: Unit) -> bool:
        """Whether a unit takes so long that a signal may interrupt it."""
        if unit.group is not None:
            return self.target.takes_long(self.fused[u][0])
        e = self.graph.equations[unit.equations[0]]
        if unit.kind is UnitKind.NATIVE:
            return self.target.takes_long(self._routine(e))
        if unit.kind is UnitKind.PRODUCT:
            a, b, c = (self.memory[i] for i in (*arrays(e)[-2:], *e.outputs))
            dtype = self.graph.avals[e.outputs[0]].dtype
            return self.target.takes_long(gemm(e, a, b, c, (0, 0, 0)), dtype)
        return False

    def _may_replace(self, u: int, root: int, donor: int) -> bool:
        """Whether a unit may write a result over an input that it reads."""
        if u not in self.fused:
            return False
        kernel, reads, stored = self.fused[u]
        places = [n for n, v in enumerate(reads) if v.root == donor]
        return all(in_place(kernel, n, stored.index(root)) for n in places)

    def _roots_read(self, unit: Unit) -> set[int]:
        equations = [self.graph.equations[k] for k in unit.equations]
        return {self.views[i].root for e in equations for i in e.inputs if isinstance(i, int)}

    def _work(self, u: int, unit: Unit) -> Work:
        equations = [self.graph.equations[k] for k in unit.equations]
        own = {i for e in equations for i in e.outputs}
        kept = own if unit.group is None else set(self.grouping.stored_values(unit))
        made = {i for i in kept if self.views[i].root == i}
        return Work(
            frozenset(self.grouping.order.needs[u]),
            self.placement.roots(self.read[u] - own),
            {i: self._own_bytes(i) for i in made if self.memory[i].root not in self.outputs},
            unit.kind is UnitKind.GUARD or any([e.op.collective for e in equations]),
        )

    def _own_bytes(self, root: int) -> int:
        """The bytes of a root but those of others that are in it."""
        inside = [self.graph.avals[i] for i in self.placement.within.get(root, ())]
        return _nbytes(self.graph.avals[root]) - sum(map(_nbytes, inside))

    def _copy_to_donor(self, root: int, donor: int) -> KernelStep:
        """Copy a result to the donated input whose memory it takes."""
        source = self.root(root)
        own = self.buffers[source]
        target = Buffer(own.shape, own.dtype, "output", own.strides, takes=self.root(donor))
        self.buffers.append(target)
        self.buffer_of["brought", root] = len(self.buffers) - 1
        kernel = Kernel(
            own.shape, (Operand(own.dtype, own.strides),), (), (Result(0, own.strides),)
        )
        return KernelStep(canonical(kernel), (source,), (len(self.buffers) - 1,))

    def _output(self, v: View) -> int:
        brought = self.buffer_of.get(("brought", v.root))
        if brought is None or v.shape == self.buffers[brought].shape:
            return self.view(v) if brought is None else brought
        own = self.buffers[brought]
        self.buffers.append(Buffer(v.shape, own.dtype, own.role, v.strides, brought))
        return len(self.buffers) - 1

    def _steps(self, u: int, unit: Unit) -> list[ScheduleStep]:
        if unit.group is not None:
            return self._kernels(u, unit)
        e = self.graph.equations[unit.equations[0]]
        if unit.kind is UnitKind.PRODUCT:
            a, b, c = (self.memory[i] for i in (*arrays(e)[-2:], *e.outputs))
            buffers = self.view(a), self.view(b), self.view(c)
            bias = self.view(self.memory[e.inputs[0]]) if e.op.name == BIASED else None
            return [gemm(e, a, b, c, buffers, bias)]
        if unit.kind is UnitKind.PARTS:
            return list(self._parts(e))
        if unit.kind is UnitKind.NATIVE:
            return [self._native(e)]
        if unit.kind is UnitKind.GUARD:
            flag = self.view(self.views[e.inputs[1]])
            message, *others = e.static
            if e.op is WITHIN:
                seen = (self.view(self.views[e.inputs[2]]), *others)
                return [GuardStep(flag, IndexingError, message, e.origin, seen)]
            return [GuardStep(flag, others[0] if others else IndexingError, message, e.origin)]
        return [self._library(e, self.grouping.reasons.get(unit.equations[0], ""))]

    def _routine(self, e: Equation) -> Routine:
        routine = self.target.routine(self.graph, self.views, e)
        assert isinstance(routine, Routine), routine
        return routine

    def _native(self, e: Equation) -> NativeStep:
        routine = self._routine(e)
        operands = tuple(self.view(self.views[i]) for i in arrays(e))
        scratch = [self._line(a.size, a.dtype) for a in routine.scratch]
        results = (*(self.root(i) for i in e.outputs), *scratch)
        return NativeStep(routine, operands, results, (e.origin,))

    def _library(self, e: Equation, reason: str) -> LibraryStep:
        inputs = tuple(i if isinstance(i, Literal) else self.view(self.views[i]) for i in e.inputs)
        outputs = tuple(self.root(i) for i in e.outputs)
        fails = self.target.library_fails(e.op)
        return LibraryStep(e.op, inputs, e.static, outputs, e.origin, reason, fails)

    # -- concatenation -------------------------------------------------------------------------

    def _parts(self, e: Equation) -> Iterator[KernelStep]:
        """Copies of the parts that are not in their places, and what is beside a part."""
        placement, (y,) = self.placement, e.outputs
        whole = self.memory[y]
        if fills(e):
            value = e.static[1] if e.op.name == "pad" else 0
            placed = (y, 0) in placement.placed
            for v in gaps(self.graph, e, whole) if placed else [whole]:
                yield self._fill_step(e, v, value)
        for n, (x, target) in enumerate(parts_of(self.graph, e, whole)):
            if (y, n) not in placement.placed:
                yield self._copy_step(e, x, target)

    def _copy_step(self, e: Equation, x: int, target: View) -> KernelStep:
        source: Any = LOOKS["broadcast_to"](self.memory[x], target.shape)
        kernel = Kernel(
            target.shape,
            (Operand(self.graph.avals[x].dtype, source.strides),),
            (),
            (Result(0, target.strides),),
        )
        return KernelStep(
            canonical(kernel), (self.view(self.memory[x]),), (self.view(target),), (e.origin,)
        )

    def _fill_step(self, e: Equation, v: View, value) -> KernelStep:
        """Fill a view with one number."""
        dtype = self.graph.avals[v.root].dtype
        operand = Operand(dtype, (0,) * len(v.shape))
        kernel = Kernel(v.shape, (operand,), (), (Result(0, v.strides),))
        return KernelStep(
            canonical(kernel), (self.number(value, dtype),), (self.view(v),), (e.origin,)
        )

    # -- kernels -------------------------------------------------------------------------------

    def _kernels(self, u: int, unit: Unit) -> list[ScheduleStep]:
        kernel, reads, stored = self.fused[u]
        origins = tuple(dict.fromkeys(self.graph.equations[k].origin for k in unit.equations))
        operands = tuple(map(self.view, reads))
        results = tuple([self.view(self.memory[x]) for x in stored])
        stages = self._forms.stages(kernel)
        if stages is None:
            return [KernelStep(kernel, operands, results, origins)]
        lines = tuple(self._line(stages.length, dtype) for dtype in stages.lines)
        whole = tuple(results[k] for k in stages.whole)
        scalars = tuple(operands[k] for k in stages.operands)
        folded = tuple(results[k] for k in stages.folded)
        steps = [KernelStep(stages.first, operands, (*whole, *lines), origins)]
        if stages.rest is not None:
            pairs = zip(operands, kernel.operands, strict=True)
            read = [self._behind(i, stages.behind * o.strides[0]) for i, o in pairs]
            strides = [kernel.results[k].strides[0] for k in stages.whole]
            made = [self._behind(i, stages.behind * s) for i, s in zip(whole, strides, strict=True)]
            made += [self._behind(i, stages.length - 1) for i in lines]
            steps.append(KernelStep(stages.rest, (*read,), (*made,), origins))
        return [*steps, KernelStep(stages.second, (*lines, *scalars), folded, origins)]

    def _behind(self, i: int, offset: int) -> int:
        """A view of a buffer from an offset on."""
        b = self.buffers[i]
        if not offset:
            return i
        base = i if b.base is None else b.base
        self.buffers.append(Buffer((1,), b.dtype, b.role, (1,), base, b.offset + offset))
        return len(self.buffers) - 1

    def _line(self, n: int, dtype: np.dtype) -> int:
        """Scratch memory that holds no value of the graph."""
        self.buffers.append(Buffer((n,), dtype, "scratch", (1,)))
        return len(self.buffers) - 1

    def _fuse_group(self, unit: Unit, group: Group) -> tuple[Kernel, list[View], list[int]]:
        """The kernel of a group, its operands in the order of first use, and its stored values."""
        equations = [self.graph.equations[k] for k in unit.equations]
        reads: dict[tuple, tuple[View, Operand]] = {}
        number: dict[tuple, int] = {}
        outside: dict[tuple[int, int], int] = {}  # by an equation's result and its operand
        for e in equations:
            for x in self.grouping.uses.arrays(e):
                if self.grouping.axes_in(group, x) is None:
                    key, read = self._read(group, e, x)
                    reads.setdefault(key, read)
                    outside[e.outputs[0], x] = number.setdefault(key, len(number))
        steps: list[Step | FoldStep] = []
        made: dict[int, int] = {}

        def value(e: Equation, x):
            if isinstance(x, Literal):
                return x
            n = outside.get((e.outputs[0], x))
            return made[self.grouping.member(group, x)] if n is None else n

        for e in equations:
            self._step(e, [value(e, x) for x in e.inputs], steps, len(reads))
            made[e.outputs[0]] = len(reads) + len(steps) - 1
        stored = self.grouping.stored_values(unit)
        results = tuple(
            Result(made[x], _strides(group, group.values[x], self.memory[x].strides))
            for x in stored
        )
        operands = tuple(operand for _, operand in reads.values())
        folded = tuple(sorted(group.folded))
        kernel = Kernel(tuple(group.domain), operands, tuple(steps), results, folded)
        return self._forms.finished(kernel), [v for v, _ in reads.values()], stored

    def _read(self, group: Group, e: Equation, x: int) -> tuple[tuple, tuple[View, Operand]]:
        v = self.memory[x]
        strides = _strides(group, self.grouping.operand_axes(group, e, x), v.strides)
        return (v.root, v.offset, strides), (v, Operand(self.graph.avals[x].dtype, strides))

    def _step(self, e: Equation, inputs: list, steps: list, first: int) -> None:
        dtype = self.graph.avals[e.outputs[0]].dtype
        if not e.op.folds:
            steps.append(Step(e.op.name, tuple(inputs), dtype, e.static))
            return
        (x,), kind = inputs, e.op.folds
        if kind in ("any", "all") and self.graph.avals[e.inputs[0]].dtype != dtypes.bool_:
            steps.append(Step("cast", (x,), dtypes.bool_, (dtypes.bool_,)))
            x = first + len(steps) - 1
        steps.append(FoldStep(kind, x, dtype))


def _nbytes(aval: Aval) -> int:
    return prod(aval.shape) * aval.dtype.itemsize


def _strides(group: Group, axes: Axes, strides: tuple[int, ...]) -> tuple[int, ...]:
    """The stride of a value along each axis of the domain."""
    made = [0] * len(group.domain)
    for a, s in zip(axes, strides, strict=True):
        if a != STILL:
            made[a] = s
    return tuple(made)
