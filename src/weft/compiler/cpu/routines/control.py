"""Loops and branches as routines: native control flow around blocks."""

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ....core.aval import Aval
from ....core.record import record
from ....graph.graph import Literal
from ....graph.structured import Branch, Loop, Repeat
from ...emit.code import LLModule, LLValue, lanes_of
from ...emit.control import POINTER, WORD, behind, leave, pointer, when
from ...ir.routine import RoutineArray, array
from ...native.signals import Fuel
from .blocks import AFTER, BEFORE, SCRATCH, Block, BlockEmitter, BufferPlace, block_of
from .gather import move
from .registry import native
from .routine import NativeRoutine, RoutineBody

_BYTE = np.dtype(np.uint8)
# The assumed number of steps of a `while` loop, for its cost.
_SUPPOSED = 16
# Nanoseconds from which on a loop polls for signals between its steps.
_LONG = 1e6


def _bytes(a: RoutineArray) -> int:
    return a.size * a.dtype.itemsize


def _line(arrays: tuple[RoutineArray, ...]) -> tuple[tuple[int, ...], int]:
    """Offsets of arrays that are stored in a row, each at a cache line; and the size of all."""
    offsets, at = [], 0
    for a in arrays:
        offsets.append(at)
        at += -(-_bytes(a) // 64) * 64
    return tuple(offsets), at


class _Reloaded(Sequence):
    """The pointers of a record, loaded where they are used.

    A loop over many arrays would otherwise keep all of their addresses live from its beginning to
    its end, for which there are no registers.
    """

    def __init__(self, record: LLValue, count: int):
        self._record, self._count = record, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        return pointer(self._record, range(self._count)[index])


class ControlRoutine(NativeRoutine):
    """The base of loops and branches.

    Their record has one more word, after that for checks: the watch of the call.
    """

    inside = True

    @property
    def count(self) -> int:
        return 1

    @property
    def draws(self) -> bool:
        return any(isinstance(x, Block) and x.draws for x in vars(self).values())

    def look(self, b: RoutineBody, cost: float) -> None:
        """Poll for signals between the steps of a long loop, each of which takes `cost`."""
        if b.fuel is not None and (self.endless or self.cost >= _LONG):
            b.fuel.spend(cost)

    def write(self, module: LLModule, name: str, checked: bool = False) -> None:
        code = module.function("void", [POINTER, WORD, WORD], name)
        record, begin, end = code.parameters
        number = len(self.operands) + len(self.results) + len(self.scratch)
        verdict = pointer(record, number) if checked else None
        fuel = Fuel(code, pointer(record, number + 1))
        self.body(RoutineBody(code, _Reloaded(record, number), begin, end, verdict, fuel))
        leave(code)


@record
class ScanRoutine(ControlRoutine):
    """A loop of `length` steps; the carries are double-buffered."""

    noun = "loop"
    carries: tuple[RoutineArray, ...]
    others: tuple[RoutineArray, ...]
    ys: tuple[RoutineArray, ...]
    length: int
    reverse: bool
    block: Block

    @property
    def operands(self) -> tuple[RoutineArray, ...]:
        return (*self.carries, *self.others)

    @property
    def results(self) -> tuple[RoutineArray, ...]:
        return (*self.carries, *self.ys)

    @property
    def scratch(self) -> tuple[RoutineArray, ...]:
        return (array(_BYTE, (max(self.block.scratch, 1),)),)

    @property
    def cost(self) -> float:
        return self.length * self.block.cost

    @property
    def shared(self) -> float:
        return self.length * self.block.shared

    @property
    def multiplies(self) -> bool:
        return self.block.multiplies

    @property
    def endless(self) -> bool:
        return self.block.endless

    def describe(self) -> list[str]:
        way = ", from the last" if self.reverse else ""
        return [f"scan of {self.length} steps{way}", *self.block.describe()]

    def body(self, b: RoutineBody) -> None:
        writing = BlockEmitter(b, b.arrays[-1])

        def steps(room: "_DoubleBuffer") -> None:
            self.look(b, self.block.cost)
            i = room.count
            writing.step = (self.length - 1) - i if self.reverse else i
            writing.base |= {BEFORE: room.before, AFTER: room.after}
            writing.write(self.block)

        rooms = _DoubleBuffer(b, self.carries, len(self.operands))
        rooms.loop(lambda i: i < self.length, steps)


class _DoubleBuffer:
    """The double buffer of a loop's carries: filled from the operands, copied to the results."""

    def __init__(self, b: RoutineBody, carries: tuple[RoutineArray, ...], results: int):
        self.b, self.carries = b, carries
        self.offsets, self.size = _line(carries)
        self.first_result = results
        self.before = self.after = b.arrays[-1]
        self.count = b.code.constant(WORD, 0)

    def loop(
        self, goes_on: Callable[[LLValue], LLValue], step: Callable[["_DoubleBuffer"], None]
    ) -> None:
        """Emit the loop: step(self) as long as goes_on(number of steps so far)."""
        code, scratch = self.b.code, self.b.arrays[-1]
        for k, (a, at) in enumerate(zip(self.carries, self.offsets, strict=True)):
            move(code, behind(scratch, at), self.b.arrays[k], _bytes(a))
        other = behind(scratch, self.size)
        head, inside, out, entry = code.label(), code.label(), code.label(), code.block
        code.go(head)
        code.start(head)
        i, here, there = code.phi(WORD), code.phi(POINTER), code.phi(POINTER)
        for phi, value in ((i, code.constant(WORD, 0)), (here, scratch), (there, other)):
            phi.add(value, entry)
        self.count, self.before, self.after = i.value, here.value, there.value
        code.go_if(goes_on(i.value), inside, out)
        code.start(inside)
        step(self)
        following = i.value + 1
        for phi, value in ((i, following), (here, there.value), (there, here.value)):
            phi.add(value, code.block)
        code.go(head)
        code.start(out)
        for k, (a, at) in enumerate(zip(self.carries, self.offsets, strict=True)):
            move(code, self.b.arrays[self.first_result + k], behind(here.value, at), _bytes(a))


@record
class WhileRoutine(ControlRoutine):
    """A loop that ends when its test fails, or after `most` steps; also whether the test failed."""

    noun = "loop"
    carries: tuple[RoutineArray, ...]
    others: tuple[RoutineArray, ...]
    most: int | None
    flag: int  # offset of the test's result in the scratch memory
    test: Block
    step: Block

    @property
    def operands(self) -> tuple[RoutineArray, ...]:
        return (*self.carries, *self.others)

    @property
    def results(self) -> tuple[RoutineArray, ...]:
        return (*self.carries, array(np.dtype(np.bool_), ()))

    @property
    def scratch(self) -> tuple[RoutineArray, ...]:
        return (array(_BYTE, (max(self.test.scratch, self.step.scratch),)),)

    @property
    def cost(self) -> float:
        return (self.most or _SUPPOSED) * (self.test.cost + self.step.cost)

    @property
    def shared(self) -> float:
        return (self.most or _SUPPOSED) * (self.test.shared + self.step.shared)

    @property
    def multiplies(self) -> bool:
        return self.test.multiplies or self.step.multiplies

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

    def body(self, b: RoutineBody) -> None:
        code, writing = b.code, BlockEmitter(b, b.arrays[-1])
        rooms = _DoubleBuffer(b, self.carries, len(self.operands))
        byte = lanes_of("i8")

        def goes_on(i: LLValue) -> LLValue:
            writing.base |= {BEFORE: rooms.before, AFTER: rooms.after}
            writing.write(self.test)
            going = code.load(byte, behind(b.arrays[-1], self.flag), 1)
            ended = going.equals(0).cast("zext", "i8")
            code.store(ended, b.arrays[len(self.operands) + len(self.carries)], 1)
            go = going.compare("ne", 0)
            return go if self.most is None else go & (i < self.most)

        def steps(_: "_DoubleBuffer") -> None:
            self.look(b, self.test.cost + self.step.cost)
            writing.write(self.step)

        rooms.loop(goes_on, steps)


@record
class CondRoutine(ControlRoutine):
    """One of two blocks, chosen by the first operand."""

    noun = "branch"
    given: tuple[RoutineArray, ...]
    made: tuple[RoutineArray, ...]
    yes: Block
    no: Block

    @property
    def operands(self) -> tuple[RoutineArray, ...]:
        return (array(np.dtype(np.bool_), ()), *self.given)

    @property
    def results(self) -> tuple[RoutineArray, ...]:
        return self.made

    @property
    def scratch(self) -> tuple[RoutineArray, ...]:
        return (array(_BYTE, (max(self.yes.scratch, self.no.scratch, 1),)),)

    @property
    def cost(self) -> float:
        return max(self.yes.cost, self.no.cost)

    @property
    def shared(self) -> float:
        return max(self.yes.shared, self.no.shared)

    @property
    def multiplies(self) -> bool:
        return self.yes.multiplies or self.no.multiplies

    @property
    def endless(self) -> bool:
        return self.yes.endless or self.no.endless

    def describe(self) -> list[str]:
        return [
            *("cond", "if it holds", *[f"  {line}" for line in self.yes.describe()]),
            *("else", *[f"  {line}" for line in self.no.describe()]),
        ]

    def body(self, b: RoutineBody) -> None:
        code = b.code
        taken = code.load(lanes_of("i8"), b.arrays[0], 1).compare("ne", 0)
        when(taken, lambda: BlockEmitter(b, b.arrays[-1]).write(self.yes))
        when(taken ^ True, lambda: BlockEmitter(b, b.arrays[-1]).write(self.no))


# -- from equations ------------------------------------------------------------------------------

# Routines by structure: the routine of an equation is looked up several times.
_MADE: WeakKeyDictionary = WeakKeyDictionary()


def _array(a: Aval) -> RoutineArray:
    return array(a.dtype, a.shape)


def _make_if_native(structure, make: Callable[[], NativeRoutine | str]) -> NativeRoutine | str:
    if structure not in _MADE:
        _MADE[structure] = make()
    return _MADE[structure]


def _room(carries: tuple[RoutineArray, ...], pointer: int) -> list[BufferPlace]:
    return [BufferPlace(pointer, at) for at in _line(carries)[0]]


@native("scan")
def _scan(graph, views, e) -> NativeRoutine | str:
    if any(isinstance(i, Literal) for i in e.inputs):
        return "its operands are Python's numbers"
    (loop,) = e.static
    return _make_if_native(loop, lambda: _scan_routine(loop, *[graph.avals[i] for i in e.inputs]))


def _scan_routine(loop: Loop, *avals: Aval) -> NativeRoutine | str:
    given, made = [_array(a) for a in avals], [_array(a) for a in loop.results(*avals)]
    n, m = loop.carries, loop.carries + loop.xs
    carries = tuple(given[:n])

    def stepped(k: int, a: RoutineArray) -> BufferPlace:
        return BufferPlace(k, 0, _bytes(a) // max(loop.length, 1))

    inputs = [
        *_room(carries, BEFORE),
        *(stepped(k, given[k]) for k in range(n, m)),
        *map(BufferPlace, range(m, len(given))),
    ]
    ys = [stepped(len(given) + k, made[k]) for k in range(n, len(made))]
    block = block_of(loop.body, inputs, [*_room(carries, AFTER), *ys], 2 * _line(carries)[1])
    if isinstance(block, str):
        return block
    rest = (tuple(given[n:]), tuple(made[n:]), loop.length, loop.reverse, block)
    return ScanRoutine(carries, *rest)


@native("while")
def _while(graph, views, e) -> NativeRoutine | str:
    if any(isinstance(i, Literal) for i in e.inputs):
        return "its operands are Python's numbers"
    (repeat,) = e.static
    return _make_if_native(
        repeat, lambda: _while_routine(repeat, *[graph.avals[i] for i in e.inputs])
    )


def _while_routine(repeat: Repeat, *avals: Aval) -> NativeRoutine | str:
    given, n = [_array(a) for a in avals], repeat.carries
    carries = tuple(given[:n])
    inputs = [*_room(carries, BEFORE), *map(BufferPlace, range(n, len(given)))]
    flag = 2 * _line(carries)[1]
    test = block_of(repeat.test, inputs, [BufferPlace(SCRATCH, flag)], flag + 1)
    step = block_of(repeat.body, inputs, _room(carries, AFTER), flag + 1)
    for block in (test, step):
        if isinstance(block, str):
            return block
    assert isinstance(test, Block) and isinstance(step, Block)
    return WhileRoutine(carries, tuple(given[n:]), repeat.most, flag, test, step)


@native("cond")
def _cond(graph, views, e) -> NativeRoutine | str:
    if any(isinstance(i, Literal) for i in e.inputs):
        return "its operands are Python's numbers"
    (branch,) = e.static
    return _make_if_native(
        branch, lambda: _cond_routine(branch, *[graph.avals[i] for i in e.inputs])
    )


def _cond_routine(branch: Branch, *avals: Aval) -> NativeRoutine | str:
    given, made = [_array(a) for a in avals], [_array(a) for a in branch.results(*avals)]
    inputs = [BufferPlace(k) for k in range(1, len(given))]
    outputs = [BufferPlace(len(given) + k) for k in range(len(made))]
    blocks = [block_of(g, inputs, outputs, 0) for g in branch.graphs]
    for block in blocks:
        if isinstance(block, str):
            return block
    yes, no = blocks
    assert isinstance(yes, Block) and isinstance(no, Block)
    return CondRoutine(tuple(given[1:]), tuple(made), yes, no)
