"""The steps' parts of a loop's xs in memory of the block, loaded two steps before they are used.

Arrays in the device's memory take as long to arrive as a short step takes.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from ....core.record import record
from ...emit.code import LLValue
from ...emit.control import WORD, when
from ...emit.convert import memory_type
from .inline import BlockArray, Threads

# Elements of all slices of a step that a thread loads, at most.
MOST = 4


@record
class Slice:
    """The part of an array that one step reads.

    array   its number among the routine's arrays
    offset  bytes of its first element at step 0; `stride` more for each step, `shift` for each
            block
    at      bytes of its place among the slices of a step
    """

    array: int
    offset: int
    stride: int
    shift: int
    at: int
    dtype: np.dtype
    count: int

    def per_thread(self, threads: int) -> int:
        """The elements of a thread."""
        return -(-self.count // threads)


@record
class Slices:
    """The slices of a step: twice in the scratch memory, `size` bytes from byte `at` on."""

    parts: tuple[Slice, ...]
    at: int
    size: int


class SliceEmitter:
    """Emits the loads and stores of slices; `next` is what was loaded in the step before."""

    def __init__(
        self,
        slices: Slices,
        threads: Threads,
        arrays: Sequence[BlockArray],
        steps: int,
        index: Callable[[LLValue], LLValue],
    ):
        self.slices, self.threads, self.arrays = slices, threads, arrays
        self.steps, self.index, self.code = steps, index, threads.code
        kinds = [(s, j) for s in slices.parts for j in range(s.per_thread(threads.count))]
        self.items = [(s, j, self.code.local(memory_type(s.dtype))) for s, j in kinds]

    def half(self, count: LLValue) -> BlockArray:
        """Where the slices of a step are."""
        return self.arrays[-1].behind((count & 1) * self.slices.size + self.slices.at)

    def begin(self) -> None:
        """Store the slices of the first step, and load those of the second."""
        first, second = (self.code.constant(WORD, k) for k in (0, 1))
        self._keep(self.load(first))
        self._store(first)
        self._keep(self.load(second))

    def load(self, count: LLValue) -> list[LLValue]:
        """This thread's elements of a step's slices; of the last step's, if there is none."""
        count = (count < self.steps).choose(count, self.steps - 1)
        return [self._load(s, j, self.index(count)) for s, j, _ in self.items]

    def advance(self, count: LLValue, loaded: Sequence[LLValue]) -> None:
        """Store the slices of the step after `count`; what was loaded is for the one after it."""
        self._store(count + 1)
        self._keep(loaded)

    def _keep(self, values: Sequence[LLValue]) -> None:
        for (_, _, cell), value in zip(self.items, values, strict=True):
            self.code.store(value, cell, 64)

    def _element(self, j: int) -> LLValue:
        return self.threads.number() + j * self.threads.count

    def _load(self, s: Slice, j: int, step: LLValue) -> LLValue:
        element, size = self._element(j), s.dtype.itemsize
        if (j + 1) * self.threads.count > s.count:
            element = (element < s.count).choose(element, s.count - 1)
        array = self.arrays[s.array].behind(step * s.stride + s.offset)
        if s.shift:
            array = array.behind(self.threads.machine.block().cast("zext", "i64") * s.shift)
        pointer = self.code.address(array.pointer, element, memory_type(s.dtype).element)
        if array.number is not None:
            self.threads.machine.access(array.number, pointer, size, size)
        return self.code.load(memory_type(s.dtype), pointer, size)

    def _store(self, count: LLValue) -> None:
        half = self.half(count)
        for s, j, cell in self.items:
            inside = (j + 1) * self.threads.count <= s.count
            put = partial(self._put, s, half.behind(s.at), self._element(j), cell)
            put() if inside else when(self._element(j) < s.count, put)

    def _put(self, s: Slice, to: BlockArray, element: LLValue, cell: LLValue) -> None:
        kind, size = memory_type(s.dtype), s.dtype.itemsize
        pointer = self.code.address(to.pointer, element, kind.element)
        if to.number is not None:
            self.threads.machine.access(to.number, pointer, size, size)
        self.code.store(self.code.load(kind, cell, 64), pointer, size)
