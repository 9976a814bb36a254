"""Loops and branches as routines: one kernel, whose threads go through all steps together."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np

from ....core.aval import Aval
from ....core.record import record
from ....graph.graph import Literal
from ....graph.structured import Branch, Loop, Repeat
from ...emit.code import LLValue, lanes_of
from ...emit.control import WORD, behind, each, when
from ...ir.routine import RoutineArray, array
from ...memory import round_up
from ..machine import Machine
from .blocks import (
    BlockEmitter,
    BlockRoutine,
    GridBlock,
    block_of,
    keep_near,
    schedule_body,
)
from .carries import DoubleBuffer, carry_places, line_up, nbytes
from .inline import BlockArray, Threads
from .registry import grid
from .routine import GridRoutine, RoutineStage
from .rows import RowSplit, split_rows
from .slices import SliceEmitter
from .uses import AFTER, BEFORE, SCRATCH, SLICES, Place

_BYTE = np.dtype(np.uint8)
# The assumed number of steps of a `while` loop inside of another one.
_SUPPOSED = 16
# Threads of a block, and bytes of shared memory that it may have.
THREADS, SHARED = 256, 48 << 10


@record
class ControlStage(RoutineStage):
    """The launch of a loop or branch."""

    routine: "ControlRoutine"

    @property
    def grid(self) -> int:
        return self.routine.blocks

    @property
    def block(self) -> int:
        return THREADS

    def emit(self, machine: Machine) -> None:
        r = self.routine
        byte = lanes_of("i8")
        room = machine.shared(byte, r.room) if r.room else None
        arrays = [BlockArray(p, k) for k, p in enumerate(machine.pointers)]
        if r.near:
            arrays.append(BlockArray(machine.shared(byte, r.size)))
        elif r.blocks > 1:
            arrays[-1] = arrays[-1].behind(machine.block().cast("zext", "i64") * r.size)
        r.emit_inside(Threads(machine, THREADS, room), arrays)
        machine.finish()


class ControlRoutine(BlockRoutine):
    """The base of loops and branches."""

    @property
    def blocks(self) -> int:
        """The blocks of the grid."""
        return 1

    @property
    def parts(self) -> tuple[GridBlock, ...]:
        """The blocks of code in it."""
        return tuple([x for x in vars(self).values() if isinstance(x, GridBlock)])

    @property
    def size(self) -> int:
        """Bytes of scratch memory of each block."""
        return round_up(max(1, *[b.scratch for b in self.parts]))

    @property
    def scratch(self) -> tuple[RoutineArray, ...]:
        return (array(_BYTE, (self.size * (1 if self.near else self.blocks),)),)

    @property
    def room(self) -> int:
        return max([b.room for b in self.parts])

    @property
    def work(self) -> int:
        return max([b.work for b in self.parts])

    @property
    def near(self) -> bool:
        """Whether its scratch memory is shared memory, if it is launched by itself."""
        return self.size + self.room <= SHARED

    @property
    def draws(self) -> bool:
        return any(b.draws for b in self.parts)

    @property
    def stages(self) -> tuple[ControlStage, ...]:
        count = len(self.operands) + len(self.results)
        far = 0 if self.near else len(self.scratch)
        return (ControlStage(tuple(range(count + far)), self),)


@record
class GridScan(ControlRoutine):
    """A loop of `length` steps; the carries are double-buffered.

    split   into how many blocks, each with as many rows of all carries
    whole   the loop in one block, as it is inside of another routine, or why there is none; None:
            it is in one block already
    """

    noun = "loop"
    carries: tuple[RoutineArray, ...]
    others: tuple[RoutineArray, ...]
    ys: tuple[RoutineArray, ...]
    length: int
    reverse: bool
    block: GridBlock
    split: int = 1
    whole: "GridScan | str | None" = None

    @property
    def operands(self) -> tuple[RoutineArray, ...]:
        return (*self.carries, *self.others)

    @property
    def results(self) -> tuple[RoutineArray, ...]:
        return (*self.carries, *self.ys)

    @property
    def blocks(self) -> int:
        return self.split

    @property
    def work(self) -> int:
        return self.length * self.block.work

    @property
    def inner(self) -> "GridScan | str":
        return self if self.whole is None else self.whole

    @property
    def endless(self) -> bool:
        return self.block.endless

    def describe(self) -> list[str]:
        way = ", from the last" if self.reverse else ""
        return [f"scan of {self.length} steps{way}", *self.block.describe()]

    def emit_inside(self, threads: Threads, arrays: Sequence[BlockArray]) -> None:
        writing = BlockEmitter(threads, arrays, arrays[-1])
        rooms = DoubleBuffer(threads, arrays, self.carries, len(self.operands), self.split)
        ahead = SliceEmitter(self.block.slices, threads, arrays, self.length, self._index)
        held = writing.hold(self.block)
        if self.length:
            ahead.begin()
        rooms.fill()

        def step(i: LLValue) -> None:
            loaded = ahead.load(i + 2)
            writing.step = self._index(i)
            writing.base |= {**rooms.halves(i), SLICES: ahead.half(i)}
            writing.write(self.block, held)
            ahead.advance(i, loaded)
            threads.machine.barrier()

        each(threads.code, 0, self.length, step)
        rooms.empty(threads.code.constant(WORD, self.length))

    def _index(self, count: LLValue) -> LLValue:
        """The index of a step, by the number of steps before it."""
        return (self.length - 1) - count if self.reverse else count


@record
class GridWhile(ControlRoutine):
    """A loop that ends when its test fails, or after `most` steps; also whether the test failed."""

    noun = "loop"
    carries: tuple[RoutineArray, ...]
    others: tuple[RoutineArray, ...]
    most: int | None
    flag: int  # offset of the test's result in the scratch memory
    test: GridBlock
    step: GridBlock

    @property
    def operands(self) -> tuple[RoutineArray, ...]:
        return (*self.carries, *self.others)

    @property
    def results(self) -> tuple[RoutineArray, ...]:
        return (*self.carries, array(np.dtype(np.bool_), ()))

    @property
    def work(self) -> int:
        return (self.most or _SUPPOSED) * (self.test.work + self.step.work)

    @property
    def endless(self) -> bool:
        return self.most is None or self.test.endless or self.step.endless

    def describe(self) -> list[str]:
        most = "" if self.most is None else f", at most {self.most} times"
        return [
            *(f"while_loop{most}", "as long as"),
            *[f"  {line}" for line in self.test.describe()],
            *("do", *[f"  {line}" for line in self.step.describe()]),
        ]

    def emit_inside(self, threads: Threads, arrays: Sequence[BlockArray]) -> None:
        code, machine = threads.code, threads.machine
        writing = BlockEmitter(threads, arrays, arrays[-1])
        rooms = DoubleBuffer(threads, arrays, self.carries, len(self.operands))
        held = [writing.hold(b) for b in (self.test, self.step)]
        rooms.fill()
        head, inside, out, entry = code.label(), code.label(), code.label(), code.block
        code.go(head)
        code.start(head)
        i = code.phi(WORD)
        i.add(code.constant(WORD, 0), entry)
        writing.base |= rooms.halves(i.value)
        writing.write(self.test, held[0])
        machine.barrier()
        going = code.load(lanes_of("i8"), behind(arrays[-1].pointer, self.flag), 1)
        holds = going.compare("ne", 0)
        go_on = holds if self.most is None else holds & (i.value < self.most)
        code.go_if(go_on, inside, out)
        code.start(inside)
        writing.write(self.step, held[1])
        machine.barrier()
        i.add(i.value + 1, code.block)
        code.go(head)
        code.start(out)
        rooms.empty(i.value)
        ended, size = arrays[len(self.operands) + len(self.carries)], 1

        def put() -> None:
            if ended.number is not None:
                machine.access(ended.number, ended.pointer, size, size)
            code.store(going.equals(0).cast("zext", "i8"), ended.pointer, size)

        when(threads.number().equals(0), put)


@record
class GridCond(ControlRoutine):
    """One of two blocks, chosen by the first operand."""

    noun = "branch"
    given: tuple[RoutineArray, ...]
    made: tuple[RoutineArray, ...]
    yes: GridBlock
    no: GridBlock

    @property
    def operands(self) -> tuple[RoutineArray, ...]:
        return (array(np.dtype(np.bool_), ()), *self.given)

    @property
    def results(self) -> tuple[RoutineArray, ...]:
        return self.made

    @property
    def endless(self) -> bool:
        return self.yes.endless or self.no.endless

    def describe(self) -> list[str]:
        return [
            *("cond", "if it holds", *[f"  {line}" for line in self.yes.describe()]),
            *("else", *[f"  {line}" for line in self.no.describe()]),
        ]

    def emit_inside(self, threads: Threads, arrays: Sequence[BlockArray]) -> None:
        code, choice = threads.code, arrays[0]
        if choice.number is not None:
            threads.machine.access(choice.number, choice.pointer, 1, 1)
        taken = code.load(lanes_of("i8"), choice.pointer, 1).compare("ne", 0)
        when(taken, lambda: BlockEmitter(threads, arrays, arrays[-1]).write(self.yes))
        when(taken ^ True, lambda: BlockEmitter(threads, arrays, arrays[-1]).write(self.no))


# -- from equations ------------------------------------------------------------------------------

# Routines by structure: the routine of an equation is looked up several times.
_MADE: WeakKeyDictionary = WeakKeyDictionary()


def _array(a: Aval) -> RoutineArray:
    return array(a.dtype, a.shape)


def _make(graph, e, make: Callable[..., GridRoutine | str]) -> GridRoutine | str:
    """The routine of an equation, made once."""
    if any(isinstance(i, Literal) for i in e.inputs):
        return "its operands are Python's numbers"
    (structure,) = e.static
    if structure not in _MADE:
        _MADE[structure] = make(structure, *[graph.avals[i] for i in e.inputs])
    return _MADE[structure]


@grid("scan")
def _scan(graph, views, e) -> GridRoutine | str:
    return _make(graph, e, _scan_routine)


def _scan_routine(loop: Loop, *avals: Aval) -> GridRoutine | str:
    schedule = schedule_body(loop.body)
    if isinstance(schedule, str):
        return schedule
    schedule = keep_near(schedule, loop.carries)
    whole = _scan_in_blocks(loop, avals, RowSplit(schedule, None, 1))
    split = split_rows(schedule, loop.carries)
    made = whole if split is None else _scan_in_blocks(loop, avals, split)
    return replace(made, whole=whole) if split and isinstance(made, GridScan) else made


def _scan_in_blocks(loop: Loop, avals: Sequence[Aval], split: RowSplit) -> "GridScan | str":
    """The routine of a loop whose blocks have some of the rows each."""
    given, made = [_array(a) for a in avals], [_array(a) for a in loop.results(*avals)]
    n, m, parts = loop.carries, loop.carries + loop.xs, split.parts
    carries = tuple(given[:n])

    def stepped(k: int, a: RoutineArray) -> Place:
        return Place(k, 0, nbytes(a) // max(loop.length, 1))

    inputs = [
        *carry_places(carries, BEFORE, parts),
        *(stepped(k, given[k]) for k in range(n, m)),
        *map(Place, range(m, len(given))),
    ]
    ys = [stepped(len(given) + k, made[k]) for k in range(n, len(made))]
    outputs, room = [*carry_places(carries, AFTER, parts), *ys], 2 * line_up(carries, parts)[1]
    block = block_of(split.schedule, inputs, outputs, room, THREADS, split.shifts, parts)
    if isinstance(block, str):
        return block
    rest = (tuple(given[n:]), tuple(made[n:]), loop.length, loop.reverse, block)
    return GridScan(carries, *rest, parts)


@grid("while")
def _while(graph, views, e) -> GridRoutine | str:
    return _make(graph, e, _while_routine)


def _while_routine(repeat: Repeat, *avals: Aval) -> GridRoutine | str:
    given, n = [_array(a) for a in avals], repeat.carries
    carries = tuple(given[:n])
    inputs = [*carry_places(carries, BEFORE), *map(Place, range(n, len(given)))]
    flag = 2 * line_up(carries)[1]
    outputs = ([Place(SCRATCH, flag)], carry_places(carries, AFTER))
    blocks = _blocks(repeat.graphs, inputs, outputs, flag + 1)
    if isinstance(blocks, str):
        return blocks
    return GridWhile(carries, tuple(given[n:]), repeat.most, flag, *blocks)


@grid("cond")
def _cond(graph, views, e) -> GridRoutine | str:
    return _make(graph, e, _cond_routine)


def _cond_routine(branch: Branch, *avals: Aval) -> GridRoutine | str:
    given, made = [_array(a) for a in avals], [_array(a) for a in branch.results(*avals)]
    inputs = [Place(k) for k in range(1, len(given))]
    outputs = [Place(len(given) + k) for k in range(len(made))]
    blocks = _blocks(branch.graphs, inputs, (outputs, outputs), 0)
    if isinstance(blocks, str):
        return blocks
    return GridCond(tuple(given[1:]), tuple(made), *blocks)


def _blocks(graphs, inputs, outputs, scratch: int) -> list[GridBlock] | str:
    """The blocks of two graphs; otherwise the reason why there are none."""
    blocks = []
    for graph, places in zip(graphs, outputs, strict=True):
        schedule = schedule_body(graph)
        made = schedule
        if not isinstance(schedule, str):
            made = block_of(schedule, inputs, places, scratch, THREADS)
        if isinstance(made, str):
            return made
        assert isinstance(made, GridBlock)
        blocks.append(made)
    return blocks
