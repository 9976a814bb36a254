"""The arrays of a grid kernel: where a thread accesses them, loads and stores."""

from collections.abc import Callable, Sequence
from math import gcd
from typing import Any

import numpy as np

from ...core import dtypes
from ...core.record import record
from ..emit.code import LLValue, Type, lanes_of
from ..emit.convert import from_memory, memory_type, to_memory
from ..emit.lanes_in_memory import splat
from ..ir.axes import Axis
from ..ir.kernel import Kernel, reach
from ..ir.schedule import Schedule
from .counted import Counted
from .machine import Machine

# Bytes that one instruction loads or stores at most.
WIDEST = 16


@record
class Point:
    """Where a thread is: the offset in each array, in elements; None is 0."""

    offsets: tuple[LLValue | None, ...]


def dtypes_of(kernel: Kernel) -> list[np.dtype]:
    """The dtype of each array: operands, then results."""
    results = [kernel.dtypes[r.value] for r in kernel.results]
    return [*(o.dtype for o in kernel.operands), *results]


def alignment(array: int, size: int, axes: Sequence[Axis], aligned: int) -> int:
    """The alignment of an array's elements, of `size` bytes, that are reached by whole axes."""
    return gcd(WIDEST, aligned, *(axis.strides[array] * size for axis in axes))


def aligned_of(schedule: Schedule, buffers: Sequence[int]) -> int:
    """What the addresses of all of these buffers are multiples of, at most `WIDEST` bytes."""
    offsets = 0
    for i in buffers:
        b = schedule.buffers[i]
        offsets |= b.offset * b.dtype.itemsize
    return (offsets & -offsets) if offsets % WIDEST else WIDEST


def index_type(kernel: Kernel, threads: int) -> Type:
    """32 bits if all offsets and threads fit."""
    accesses: tuple[Any, ...] = (*kernel.operands, *kernel.results)
    ends = [n for x in accesses for n in reach(kernel.domain, x.strides)]
    return lanes_of("i32" if max([threads, *map(abs, ends)]) < 2**30 else "i64")


@record(frozen=False, eq=False)
class GridArrays:
    """Emits accesses of a kernel's arrays.

    lane   the axis along which a thread accesses several elements at once
    steps  the axes by which whole vectors are apart
    """

    machine: Machine
    kernel: Kernel
    lane: Axis
    steps: Sequence[Axis]
    aligned: int
    index: Type

    def __post_init__(self) -> None:
        self.code = self.machine.code
        self.dtypes = dtypes_of(self.kernel)
        self.start = Point((None,) * len(self.dtypes))

    # -- numbers --------------------------------------------------------------------------------

    def number(self, value: int) -> LLValue:
        return self.code.constant(self.index, value)

    def wide(self, value: LLValue) -> LLValue:
        """A number of a thread or block as an index."""
        return value.cast("zext", self.index.element)

    def plus(self, a: LLValue, b: LLValue | int) -> LLValue:
        return self.code.emit(self.index, f"add nsw {self.index.text} {a}, {b}")

    def times(self, a: LLValue, b: LLValue | int) -> LLValue:
        return a if b == 1 else self.code.emit(self.index, f"mul nsw {self.index.text} {a}, {b}")

    def split(self, index: LLValue, axes: Sequence[Axis]) -> list[LLValue]:
        """The place on each axis, of a place on all of them; the last one moves fastest."""
        made: list[LLValue] = []
        for axis in reversed(axes[1:]):
            made.insert(0, index.modulo(axis.size, False))
            index = index.divide(axis.size, False)
        return [index, *made] if axes else []

    def advance(self, point: Point, axis: Axis, index: LLValue, scale: int = 1) -> Point:
        """The point index·scale steps along an axis."""
        made, known = [], dict[int, LLValue]()
        for offset, stride in zip(point.offsets, axis.strides, strict=True):
            if stride and index.name != "0":
                if stride not in known:
                    known[stride] = self.times(index, stride * scale)
                by = known[stride]
                offset = by if offset is None else self.plus(offset, by)
            made.append(offset)
        return Point(tuple(made))

    def walk(self, point: Point, axes: Sequence[Axis], index: LLValue) -> Point:
        """The point at a place on several axes."""
        for axis, at in zip(axes, self.split(index, axes), strict=True):
            point = self.advance(point, axis, at)
        return point

    # -- flow -----------------------------------------------------------------------------------

    def when(self, condition: LLValue | None, body: Callable[[], None]) -> None:
        """Emit code that runs if a condition holds; None holds always."""
        if condition is None:
            body()
            return
        inside, after = self.code.label(), self.code.label()
        self.code.go_if(condition, inside, after)
        self.code.start(inside)
        body()
        self.code.go(after)
        self.code.start(after)

    def loop(self, stop: LLValue | int, step: int, body: Callable[[LLValue], None]) -> None:
        """Emit body(index) for 0, step, … below stop, which is positive."""
        code = self.code
        if isinstance(stop, int) and stop <= step:
            body(self.number(0))
            return
        inside, after, before = code.label(), code.label(), code.block
        code.go(inside)
        code.start(inside)
        i = code.phi(self.index)
        i.add(self.number(0), before)
        body(i.value)
        following = self.plus(i.value, step)
        i.add(following, code.block)
        code.go_if(following < stop, inside, after)
        code.start(after)

    # -- accesses -------------------------------------------------------------------------------

    def read(self, array: int, point: Point, lanes: int) -> LLValue:
        """An array's elements at a point, as they are in registers."""
        return from_memory(self.fetch(array, point, lanes), self.dtypes[array])

    def fetch(self, array: int, point: Point, lanes: int, count: int = 0) -> LLValue:
        """An array's elements at a point, as they are in memory; one number is broadcast.

        count  how many there are, if not all; the others are equal to the first then
        """
        stride, one = self.lane.strides[array], self._element(array)
        if self.counts(array):
            along, start = self._count(array, point, lanes)
            return along if start is None else splat(start, lanes) + along
        if lanes == 1 or stride == 0:
            return splat(self._load(array, self._pointer(array, point), one), lanes)
        pointer, kind = self._pointer(array, point), lanes_of(one.element, lanes)
        if stride == 1 and not count:
            return self._load(array, pointer, kind)
        value = splat(self._load(array, pointer, one), lanes)
        for n in range(1, count or lanes):
            item = self._load(array, self._beside(pointer, n * stride, one), one)
            text = f"insertelement {kind} {value}, {one} {item}, i32 {n}"
            value = self.code.emit(kind, text)
        return value

    def counts(self, array: int) -> bool:
        """Whether an array is an operand that counts."""
        operands = self.kernel.operands
        return array < len(operands) and isinstance(operands[array], Counted)

    def _count(self, array: int, point: Point, lanes: int) -> tuple[LLValue, LLValue | None]:
        """The elements of an array that counts are the sums of these; None is 0.

        Where they are says what they are: constants for the lanes, and the offset of a point.
        """
        operand = self.kernel.operands[array]
        assert isinstance(operand, Counted)
        kind, offset = self._element(array), point.offsets[array]
        stride, first = self.lane.strides[array], operand.first
        numbers = ", ".join(f"{kind} {first + n * stride}" for n in range(lanes))
        wide = lanes_of(kind.element, lanes)
        along = LLValue(self.code, wide, f"<{numbers}>" if lanes > 1 else str(first))
        if offset is None:
            return along, None
        narrow = offset.type.width > kind.width
        return along, offset.cast("trunc" if narrow else "sext", kind.element)

    def finds(self, number: LLValue, array: int, point: Point, lanes: int) -> LLValue:
        """Which elements of an array that counts equal a number: compared with constants."""
        along, start = self._count(array, point, lanes)
        return splat(number if start is None else number - start, lanes).equals(along)

    def fetch_words(self, array: int, point: Point, lanes: int, count: int = 0) -> LLValue:
        """An array's elements at a point, in the fewest registers; see `unpack`."""
        if not self._in_words(array, lanes):
            return self.fetch(array, point, lanes, count)
        kind = lanes_of(self._element(array).element, lanes)
        size = lanes * kind.width // 8
        words = lanes_of("i32", size // 4)
        if count:
            value = self.fetch(array, point, lanes, count)
            return self.code.emit(words, f"bitcast {kind} {value} to {words}")
        pointer, align = self._pointer(array, point), self._align(array, kind)
        self.machine.access(array, pointer, size, align)
        return self.code.load(words, pointer, align)

    def unpack(self, array: int, value: LLValue, lanes: int) -> LLValue:
        """Elements that were fetched as words, as they are in registers."""
        dtype = self.dtypes[array]
        if not self._in_words(array, lanes):
            return from_memory(value, dtype)
        if dtype == dtypes.bfloat16:
            return _interleave(value << 16, value & -0x10000).as_float("float")
        kind = memory_type(dtype, lanes)
        return from_memory(self.code.emit(kind, f"bitcast {value.type} {value} to {kind}"), dtype)

    def _in_words(self, array: int, lanes: int) -> bool:
        size = self.dtypes[array].itemsize
        return self.lane.strides[array] == 1 and size < 4 and lanes * size % 4 == 0

    def write(self, array: int, point: Point, value: LLValue, count: int = 0) -> None:
        """Store elements of an array, from registers, at a point; `count` of them, if not 0."""
        value = to_memory(value, self.dtypes[array])
        stride, one, lanes = self.lane.strides[array], self._element(array), value.type.lanes
        pointer = self._pointer(array, point)
        if lanes == 1 or (stride == 1 and not count):
            self._store(array, pointer, value)
            return
        for n in range(count or lanes):
            item = self.code.emit(one, f"extractelement {value.type} {value}, i32 {n}")
            self._store(array, self._beside(pointer, n * stride, one), item)

    def _element(self, array: int) -> Type:
        dtype = self.dtypes[array]
        if dtype == dtypes.bfloat16 and "bfloat" in self.code.module.features:
            return lanes_of("bfloat")
        return memory_type(dtype)

    def _pointer(self, array: int, point: Point) -> LLValue:
        base, offset = self.machine.pointers[array], point.offsets[array]
        if offset is None:
            return base
        wide = offset.cast("sext", "i64")
        return self.code.address(base, wide, self._element(array).element)

    def _beside(self, pointer: LLValue, steps: int, one: Type) -> LLValue:
        return self.code.address(pointer, steps, one.element) if steps else pointer

    def _align(self, array: int, kind: Type) -> int:
        size = kind.width // 8
        if kind.lanes == 1:
            return size
        lane = Axis(1, tuple([s * kind.lanes for s in self.lane.strides]))
        return max(size, alignment(array, size, [*self.steps, lane], self.aligned))

    def _load(self, array: int, pointer: LLValue, kind: Type) -> LLValue:
        align = self._align(array, kind)
        self.machine.access(array, pointer, kind.lanes * kind.width // 8, align)
        return self.code.load(kind, pointer, align)

    def _store(self, array: int, pointer: LLValue, value: LLValue) -> None:
        kind, align = value.type, self._align(array, value.type)
        self.machine.access(array, pointer, kind.lanes * kind.width // 8, align)
        self.code.store(value, pointer, align)


def _interleave(a: LLValue, b: LLValue) -> LLValue:
    """The lanes of two values in turn."""
    lanes = a.type.lanes
    if lanes == 1:
        a, b = splat(a, 2), splat(b, 2)
    kind, made = a.type, lanes_of(a.type.element, 2 * lanes)
    picks = ", ".join(f"i32 {i + k * kind.lanes}" for i in range(lanes) for k in (0, 1))
    mask = f"<{made.lanes} x i32> <{picks}>"
    return a.code.emit(made, f"shufflevector {kind} {a}, {kind} {b}, {mask}")
