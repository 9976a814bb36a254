"""One thread of a stage: its place in the grid, loops, accesses of arrays."""

from collections.abc import Callable, Sequence
from math import gcd

import numpy as np

from ....core import dtypes
from ....core.record import record
from ...emit.code import LLValue, Type, lanes_of
from ...emit.control import when
from ..arrays import WIDEST
from ..machine import WORD, Machine

BLOCK = 256
LONG = lanes_of("i64")
# Places from which on indices have 64 bits.
FAR = 1 << 30


@record
class Along:
    """Sizes of arrays (lead, n, row) that `indices` places along the middle axis are picked of."""

    lead: int
    n: int
    indices: int
    row: int

    @property
    def picked(self) -> int:
        """The elements with an index each."""
        return self.lead * self.indices * self.row

    @property
    def places(self) -> int:
        return self.lead * self.n * self.row


def blocks_for(count: int, block: int = BLOCK) -> int:
    """The blocks of a grid that has a thread for each of `count` places."""
    return -(-count // block)


def bytes_of(size: int) -> Type:
    """The type that moves so many bytes at once: a power of two, at most sixteen."""
    return lanes_of("i32", 4) if size == WIDEST else lanes_of(f"i{8 * size}")


def size_of(kind: Type) -> int:
    return kind.lanes * kind.width // 8


def element(dtype: np.dtype) -> str:
    """The LLVM type in which numbers are moved and added."""
    floats = {dtypes.float32: "float", dtypes.float64: "double"}
    return floats.get(dtype) or f"i{8 * dtype.itemsize}"


@record(frozen=False, eq=False)
class Thread:
    """Emits what a thread does. Places are not negative, and have the type `index`."""

    machine: Machine
    index: Type
    aligned: int

    def __post_init__(self) -> None:
        self.code = self.machine.code

    # -- places -------------------------------------------------------------------------------

    def number(self, value: int) -> LLValue:
        return self.code.constant(self.index, value)

    def wide(self, value: LLValue) -> LLValue:
        """The number of a thread or block as a place."""
        return value.cast("zext", self.index.element)

    def word(self, at: LLValue) -> LLValue:
        """A place as a word, of stages whose places are words."""
        return at.cast("trunc", "i32")

    def place(self) -> LLValue:
        """The number of this thread in a grid of whole blocks."""
        first = self.wide(self.machine.block()) * BLOCK
        return first + self.wide(self.machine.thread())

    def split(self, at: LLValue, size: int) -> tuple[LLValue, LLValue]:
        """The quotient and the remainder of a place."""
        if size == 1:
            return at, self.number(0)
        return at.divide(size, False), at.modulo(size, False)

    # -- flow ---------------------------------------------------------------------------------

    def below(self, at: LLValue, count: int, whole: bool, body: Callable[[], None]) -> None:
        """Emit code that runs at the places below `count`; if `whole`, there are no others."""
        if whole:
            body()
        else:
            when(at < count, body)

    def loop(
        self,
        start: LLValue,
        stop: LLValue,
        step: int,
        carried: Sequence[LLValue],
        body: Callable[[LLValue, list[LLValue]], Sequence[LLValue]],
    ) -> list[LLValue]:
        """Emit body(i, values) for start ≤ i < stop; each returns the values of the next one."""
        code = self.code
        inside, after, before = code.label(), code.label(), code.block
        code.go_if(start < stop, inside, after)
        code.start(inside)
        i, values = code.phi(start.type), [code.phi(v.type) for v in carried]
        made = body(i.value, [v.value for v in values])
        following, end = i.value + step, code.block
        code.go_if(following < stop, inside, after)
        i.add(start, before)
        i.add(following, end)
        for v, first, new in zip(values, carried, made, strict=True):
            v.add(first, before)
            v.add(new, end)
        code.start(after)
        results = [code.phi(v.type) for v in carried]
        for r, first, new in zip(results, carried, made, strict=True):
            r.add(first, before)
            r.add(new, end)
        return [r.value for r in results]

    # -- accesses -----------------------------------------------------------------------------

    def _pointer(self, array: int, at: LLValue | int, kind: Type) -> LLValue:
        base = self.machine.pointers[array]
        at = at if isinstance(at, int) else at.cast("zext", "i64")
        return self.code.address(base, at, kind.element)

    def load(self, array: int, at: LLValue | int, kind: Type, align: int = 0) -> LLValue:
        """Load lanes from an element on; 0: they are aligned to all of their bytes."""
        size, pointer = size_of(kind), self._pointer(array, at, kind)
        self.machine.access(array, pointer, size, align or size)
        return self.code.load(kind, pointer, align or size)

    def store(self, array: int, at: LLValue | int, value: LLValue, align: int = 0) -> None:
        """Store lanes from an element on; 0: they are aligned to all of their bytes."""
        size, pointer = size_of(value.type), self._pointer(array, at, value.type)
        self.machine.access(array, pointer, size, align or size)
        self.code.store(value, pointer, align or size)

    def fetch(self, array: int, at: LLValue, nbytes: int) -> LLValue:
        """The bytes of place `at`, `nbytes` each, a power of two."""
        kind = bytes_of(nbytes)
        first = at.cast("zext", "i64") * kind.lanes
        return self.load(array, first, kind, gcd(nbytes, self.aligned))

    def put(self, array: int, at: LLValue, value: LLValue) -> None:
        """Store what `fetch` fetched."""
        kind = value.type
        first = at.cast("zext", "i64") * kind.lanes
        self.store(array, first, value, gcd(size_of(kind), self.aligned))

    def raise_to(self, array: int, at: LLValue, word: LLValue) -> None:
        """Make a word at least as large as another, whatever other threads do."""
        pointer = self._pointer(array, at, WORD)
        self.machine.access(array, pointer, 4, 4)
        self.code.emit(WORD, f"atomicrmw max ptr {pointer}, i32 {word} monotonic")

    def index_at(self, array: int, dtype: np.dtype, k: LLValue, n: int) -> LLValue:
        """Index k of an axis of length n: negative ones count from the end, others are clamped."""
        raw = self.load(array, k, lanes_of(f"i{8 * dtype.itemsize}"))
        i = raw.cast("sext" if dtype in dtypes.SIGNED else "zext", "i64")
        i = (i < 0).choose(i + n, i)
        i = i.compare("lt", n, signed=False).choose(i, i.same(n - 1))
        return i.cast("trunc", self.index.element)


def lane(value: LLValue, n: int) -> LLValue:
    """One lane of a value."""
    kind = value.type
    if kind.lanes == 1:
        return value
    text = f"extractelement {kind} {value}, i32 {n}"
    return value.code.emit(lanes_of(kind.element), text)


def join(values: Sequence[LLValue]) -> LLValue:
    """Numbers as the lanes of one value."""
    code, one = values[0].code, values[0].type
    if len(values) == 1:
        return values[0]
    kind = lanes_of(one.element, len(values))
    made = LLValue(code, kind, "poison")
    for n, value in enumerate(values):
        made = code.emit(kind, f"insertelement {kind} {made}, {one} {value}, i32 {n}")
    return made


def start_thread(machine: Machine, aligned: int, *counts: int) -> Thread:
    """A thread whose places are below these counts."""
    index = WORD if max(counts) < FAR else LONG
    return Thread(machine, index, aligned)


def place_along(t: Thread, u: LLValue, index: LLValue, sizes: Along) -> LLValue:
    """The place (a, index, c) of the element u = (a, j, c)."""
    before, c = t.split(u, sizes.row)
    if sizes.lead > 1:
        index = before.divide(sizes.indices, False) * sizes.n + index
    return index if sizes.row == 1 else index * sizes.row + c
