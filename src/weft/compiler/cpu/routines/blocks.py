"""Blocks: the body of a loop or a branch as native code inside of a routine.

A block is to a body what a schedule is to a program, with offsets from pointers that the routine
has: kernels and other routines are emitted inline, in order, and run on the thread that runs the
routine, so that a step of a small body costs nothing beyond its arithmetic.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from ....core.record import record
from ....graph.graph import Graph
from ...emit.code import Code, LLValue
from ...emit.control import POINTER, WORD, behind, invoke, nothing, put
from ...ir.kernel import Kernel, Step
from ...ir.schedule import (
    GemmStep,
    GuardStep,
    KernelStep,
    LibraryStep,
    NativeStep,
    Schedule,
    TiledStep,
    lies_in_rows,
)
from ...memory import plan, round_up
from ...native.products import ProductRecord as ProductFields
from ...native.products import VectorProduct as VectorFields
from ..blas import BlasCall, call_of, is_vector
from ..costs import chunk_of, product_cost, work
from ..loop_nest import nest_of
from ..loops import emit_inline, lower
from ..runtime.tasks import extents_of
from ..walk import Extents
from .gather import move
from .routine import NativeRoutine, RoutineBody, as_native_routine
from .straight import Straight

# The numbers of pointers that are not among the routine's arrays.
BEFORE, AFTER, SCRATCH, CONSTANT = -1, -2, -3, -4
# Up to this many kernels are emitted inline; of more, each is a function: LLVM's time grows
# faster than linearly.
FEW = 6
# Routines up to this many nanoseconds are inline, too; a function's stack is freed on return.
BRIEF = 2_000.0
# Nanoseconds of a call, and of a product's call.
_CALL, _PRODUCT = 5.0, 50.0


@record
class BufferPlace:
    """The address of an array: bytes past a pointer, plus a stride per step of the loop.

    pointer  one of the routine's arrays, by its number, or one of BEFORE and AFTER (the carries of
             a step), SCRATCH and CONSTANT − k
    offset   bytes
    stride   bytes
    """

    pointer: int
    offset: int = 0
    stride: int = 0

    def advanced_by(self, count: int) -> "BufferPlace":
        """The place so many bytes further."""
        return replace(self, offset=self.offset + count) if count else self


@record
class BlockProduct:
    """A matrix product: the words of its `blas.call_of`, without addresses.

    function  the driver's; `blas` is BLAS's, or ours, whose address is word `at`
    offsets   bytes, whose address is a word, too
    """

    sizes: tuple[int, ...]
    function: str
    blas: str
    at: int
    words: tuple[int, ...]
    offsets: tuple[int, ...]


@record
class Move:
    """A copy of bytes from one place to another."""

    nbytes: int


@record
class BlockCall:
    """One computation, the places of its arrays, and its units, in all and per piece."""

    work: "Kernel | BlockProduct | Move | NativeRoutine"
    places: tuple[BufferPlace, ...]
    extents: Extents = ()
    count: int = 1
    chunk: int = 1

    @property
    def shared(self) -> bool:
        """Whether threads share it: there are several pieces."""
        return self.count > self.chunk


@record
class Block:
    """Calls in order; constants by their bytes, as hexadecimal digits."""

    calls: tuple[BlockCall, ...]
    constants: tuple[str, ...]
    scratch: int
    cost: float
    shared: float  # the cost of the calls that threads share

    def describe(self) -> list[str]:
        """What is computed, a line for each call, and more for loops and branches in it."""
        return [line for c in self.calls for line in _describe(c.work)]

    @property
    def endless(self) -> bool:
        """Whether it contains a loop that may be endless."""
        return any(isinstance(c.work, NativeRoutine) and c.work.endless for c in self.calls)

    @property
    def draws(self) -> bool:
        """Whether it draws random numbers."""
        return any(isinstance(c.work, NativeRoutine) and c.work.draws for c in self.calls)

    @property
    def multiplies(self) -> bool:
        """Whether it contains a call of BLAS."""
        return any(
            isinstance(c.work, BlockProduct)
            or (isinstance(c.work, NativeRoutine) and c.work.multiplies)
            for c in self.calls
        )


def _describe(work: "Kernel | BlockProduct | Move | NativeRoutine") -> list[str]:
    if isinstance(work, Kernel):
        rows = [s.row if isinstance(s, Step) else f"fold {s.kind}" for s in work.steps]
        return [f"kernel {'×'.join(map(str, work.domain)) or '1'}: {', '.join(rows) or 'copy'}"]
    if isinstance(work, Move):
        return [f"copy of {work.nbytes} bytes"]
    if isinstance(work, BlockProduct):
        *left, k, n = work.sizes
        return [f"product {'×'.join(map(str, (*left, k)))} · {k}×{n}"]
    title, *inside = work.describe() or [type(work).__name__]
    return [title, *[f"  {line}" for line in inside]]


def block_of(
    graph: Graph, inputs: list[BufferPlace], outputs: list[BufferPlace], scratch: int
) -> Block | str:
    """The block of a graph after the passes; otherwise the reason why there is none.

    inputs, outputs  their places
    scratch          bytes of the scratch memory that are used otherwise
    """
    from ...fusion.assemble import schedule_graph  # which imports the routines
    from ..target import CPU

    schedule = schedule_graph(graph, CPU)
    memory = plan(schedule)
    begin = round_up(scratch)
    roots = dict(zip(schedule.inputs, inputs, strict=True))
    roots |= zip(map(schedule.storage, schedule.outputs), outputs, strict=True)
    roots |= {i: BufferPlace(SCRATCH, begin + at) for i, at in memory.offsets.items()}
    roots |= {i: BufferPlace(CONSTANT - k) for k, i in enumerate(schedule.constants)}

    def place(i: int) -> BufferPlace:
        b = schedule.buffers[i]
        return roots[schedule.storage(i)].advanced_by(b.offset * b.dtype.itemsize)

    calls, cost, shared = [], 0.0, 0.0
    for s in schedule.steps:
        if isinstance(s, LibraryStep):
            return f"it runs in Python because of {s.op.name} at {s.line} in its body: {s.reason}"
        if isinstance(s, GuardStep):
            return "it runs in Python because of a check in its body"
        assert not isinstance(s, TiledStep), "only whole programs have them"
        call, own = _call(schedule, s, place)
        calls.append(call)
        cost += own
        shared += own if call.shared else 0.0
        if isinstance(call.work, NativeRoutine):
            shared += call.work.shared
    constants = tuple(np.ascontiguousarray(v).tobytes().hex() for v in schedule.constants.values())
    return Block(tuple(calls), constants, begin + memory.size, cost, shared)


def _call(
    schedule: Schedule, s: KernelStep | GemmStep | NativeStep, place: Callable[[int], BufferPlace]
) -> tuple[BlockCall, float]:
    """A step, and its approximate nanoseconds."""
    if isinstance(s, GemmStep):
        dtype = schedule.buffers[s.c].dtype
        call, cost = call_of(s, dtype), product_cost(s, dtype)
        made = _product(s, call)
        units = call.count, chunk_of(call.count, 1, cost)
        return BlockCall(made, tuple(map(place, call.places)), (), *units), _PRODUCT + cost
    places = tuple(map(place, (*s.operands, *s.results)))
    if isinstance(s, NativeStep):
        routine = as_native_routine(s.routine)
        units = routine.count, chunk_of(routine.count, routine.grain, routine.cost)
        return BlockCall(routine, places, (), *units), _CALL + routine.cost
    cost, copied = work(s.kernel), _plain_copy(s.kernel)
    if copied is not None:
        return BlockCall(copied, places), cost
    nest = nest_of(s.kernel)
    units = nest.count, chunk_of(nest.count, nest.grain, cost)
    return BlockCall(s.kernel, places, extents_of(schedule, s), *units), _CALL + cost


def _plain_copy(kernel: Kernel) -> Move | None:
    """The copy that a kernel amounts to; None if it does anything else."""
    if len(kernel.operands) != 1 or len(kernel.results) != 1 or kernel.folded:
        return None
    (operand,), (result,) = kernel.operands, kernel.results
    copies = [isinstance(s, Step) and s.row == "copy" for s in kernel.steps]
    rows = lies_in_rows(kernel.domain, operand.strides) and operand.strides == result.strides
    if not all(copies) or len(copies) > 1 or not rows or kernel.piece:
        return None
    return Move(prod(kernel.domain) * operand.dtype.itemsize)


def _product(s: GemmStep, call: BlasCall) -> BlockProduct:
    vector = is_vector(s)
    at = VectorFields.FUNCTION if vector else ProductFields.FUNCTION
    words = [0 if k in (ProductFields.OFFSETS, at) else w for k, w in enumerate(call.record)]
    return BlockProduct(
        (*s.batch, s.m, s.k, s.n),
        "weft_vector_product" if vector else "weft_product",
        call.symbol,
        int(at),
        tuple(words),
        tuple(call.offsets.tolist()),
    )


# -- emitting ------------------------------------------------------------------------------------


class _LazyPointers(Sequence):
    """Pointers that are emitted where they are used."""

    def __init__(self, pointer: Callable[[BufferPlace], LLValue], places: tuple[BufferPlace, ...]):
        self._pointer, self._places = pointer, places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: Any) -> Any:
        return self._pointer(self._places[index])


class BlockEmitter:
    """Emits blocks into the function of a routine.

    base  the pointers that are not among the routine's arrays, by their numbers
    step  the index of the loop, by which strided arrays advance
    """

    b: RoutineBody
    code: Code

    def __init__(self, b: RoutineBody, scratch: LLValue):
        self.b, self.code = b, b.code
        self.base: dict[int, LLValue] = {SCRATCH: scratch}
        self.step: LLValue | None = None
        self._cell: LLValue | None = None

    def write(self, block: Block) -> None:
        """Emit all calls at the current point."""
        for k, digits in enumerate(block.constants):
            name = self.code.module.data(bytes.fromhex(digits))
            self.base[CONSTANT - k] = LLValue(self.code, POINTER, f"@{name}")
        few = sum(isinstance(c.work, Kernel) for c in block.calls) <= FEW
        for c in block.calls:
            # Scalars are many, and each is read once: its address, too.
            single = isinstance(c.work, Straight) or (
                isinstance(c.work, Kernel) and not c.work.domain
            )
            late = _LazyPointers(self._pointer, c.places)
            self._call(c, late if single and not c.shared and few else list(late), few)

    def _call(self, c: BlockCall, arrays: Sequence[LLValue], few: bool) -> None:
        code, work = self.code, c.work
        if isinstance(work, Move):
            move(code, arrays[1], arrays[0], work.nbytes)
        elif isinstance(work, BlockProduct):
            self._product(c, work, arrays)
        elif (
            isinstance(work, NativeRoutine) and not c.shared and (work.inside or work.cost < BRIEF)
        ):
            begin, end = (code.constant(WORD, n) for n in (0, work.count))
            work.body(RoutineBody(code, arrays, begin, end, self.b.verdict, self.b.fuel))
        elif isinstance(work, Kernel) and few and not c.shared:
            emit_inline(work, code, arrays, self._verdict(), self._extents(c))
        else:
            self._function(c, arrays)

    def _extents(self, c: BlockCall) -> Extents:
        return c.extents if self.b.verdict is not None else ()

    def _pointer(self, p: BufferPlace) -> LLValue:
        at = self.b.arrays[p.pointer] if p.pointer >= 0 else self.base[p.pointer]
        at = behind(at, p.offset) if p.offset else at
        return behind(at, self.step * p.stride) if p.stride and self.step else at

    def _verdict(self) -> LLValue:
        """A cell with the address where out-of-bounds accesses are reported."""
        if self._cell is None:
            self._cell = self.code.local(POINTER)
        if self.b.verdict is not None:
            put(self.b.verdict, self._cell, 0)
        return self._cell

    def _function(self, c: BlockCall, arrays: Sequence[LLValue]) -> None:
        """Call a separate function; the pointers it reads (its record) are on the stack."""
        code, module = self.code, self.code.module
        name = f"{code.name}_{len(module.exports)}"
        if isinstance(c.work, Kernel):
            lower(c.work, module, name, self._extents(c))
        else:
            assert isinstance(c.work, NativeRoutine)
            c.work.write(module, name, self.b.verdict is not None)
        record = code.local(POINTER, len(arrays) + 1)
        for i, pointer in enumerate(arrays):
            put(pointer, record, i)
        if self.b.verdict is not None:
            put(self.b.verdict, record, len(arrays))
        self._units(name, record, c)

    def _product(self, c: BlockCall, product: BlockProduct, arrays: Sequence[LLValue]) -> None:
        """Call the driver's product function, whose record is on the stack."""
        code, module = self.code, self.code.module
        record = code.local(WORD, len(product.words))
        move(code, record, self._data(product.words), 8 * len(product.words))
        for i, pointer in enumerate(arrays):
            put(pointer, record, i)
        put(self._data(product.offsets), record, ProductFields.OFFSETS)
        module.declare(product.blas, "void", [POINTER], pure=False)
        put(LLValue(code, POINTER, f"@{product.blas}"), record, product.at)
        self._units(product.function, record, c)

    def _data(self, words: tuple[int, ...]) -> LLValue:
        content = np.array(words, np.int64).tobytes()
        return LLValue(self.code, POINTER, f"@{self.code.module.data(content)}")

    def _units(self, name: str, record: LLValue, c: BlockCall) -> None:
        """Run all units of a function, by threads if there are several pieces."""
        code, module = self.code, self.code.module
        count = code.constant(WORD, c.count)
        if not c.shared:
            invoke(code, name, "void", [record, code.constant(WORD, 0), count])
            return
        module.declare(name, "void", [POINTER, WORD, WORD], pure=False)
        pool = LLValue(code, POINTER, f"@{module.elsewhere('weft_thread_pool')}")
        function = LLValue(code, POINTER, f"@{name}")
        chunk, fuel = code.constant(WORD, c.chunk), self.b.fuel
        watch = nothing(code) if fuel is None else fuel.watch
        called = [pool, function, record, count, chunk, watch]
        stopped = invoke(code, "weft_share", "i64", called)
        if fuel is not None:
            fuel.leave_if_stopped(stopped)
