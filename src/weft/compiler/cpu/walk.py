"""Walking a kernel's arrays: loops, points in them, and the accesses at a point."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ...core.record import record
from ..emit.code import Code, LLValue, lanes_of
from ..emit.convert import memory_type
from ..emit.folds import combine
from ..emit.lanes_in_memory import read, write
from ..ir.axes import Axis
from ..ir.kernel import Kernel
from .loop_nest import Nest

INDEX = lanes_of("i64")


@record
class LoopPoint:
    """A point of the loops: the offset of each array (None: 0), and how many lanes are valid.

    `index` is the position along folded lanes.
    """

    offsets: tuple[LLValue | None, ...]
    count: int = 1
    index: LLValue | None = None


Extents = tuple[tuple[int, int], ...]


@record(frozen=False, eq=False)
class ArrayWalk:
    """Emits a function over a kernel's arrays."""

    code: Code
    kernel: Kernel
    nest: Nest
    extents: Extents
    pointers: Sequence[LLValue]
    verdict: LLValue
    begin: LLValue
    end: LLValue

    def __post_init__(self) -> None:
        self.first_step = len(self.kernel.operands)
        # Where columns are folded: the axis of rows, and the number of the current piece.
        self.rows = self.nest.outer[0] if self.nest.piece else None
        self.piece = self.begin

    def loop(
        self, start: LLValue | int, stop: LLValue | int, step: int, body: Callable[[LLValue], None]
    ) -> None:
        """Emit body(index) for start, start + step, … below stop; a single turn has no loop."""
        code = self.code
        if isinstance(start, int) and isinstance(stop, int) and stop - start <= step:
            if stop > start:
                body(code.constant(INDEX, start))
            return
        start, stop = (code.constant(INDEX, v) if isinstance(v, int) else v for v in (start, stop))
        inside, after, before = code.label(), code.label(), code.block
        code.go_if(start < stop, inside, after)
        code.start(inside)
        i = code.phi(INDEX)
        i.add(start, before)
        body(i.value)
        following = code.emit(INDEX, f"add nsw i64 {i.value}, {step}")
        i.add(following, code.block)
        code.go_if(following < stop, inside, after)
        code.start(after)

    def advance(self, place: LoopPoint, axis: Axis, index: LLValue) -> LoopPoint:
        """The point `index` steps along an axis."""
        made = []
        for i, (offset, stride) in enumerate(zip(place.offsets, axis.strides, strict=True)):
            if stride and index.name != "0":
                at = self.piece if axis is self.rows and self._is_over_rows(i) else index
                by = at if stride == 1 else self.index_arithmetic("mul", at, stride)
                offset = by if offset is None else self.index_arithmetic("add", offset, by)
            made.append(offset)
        return replace(place, offsets=tuple(made))

    def index_arithmetic(self, verb: str, a: LLValue, b: LLValue | int) -> LLValue:
        return self.code.emit(INDEX, f"{verb} nsw i64 {a}, {b}")

    def _is_over_rows(self, i: int) -> bool:
        """Whether array i holds folds of columns."""
        return i >= self.first_step and bool(self.kernel.results[i - self.first_step].over_rows)

    def require(self, condition: LLValue, number: int) -> None:
        """Return unless a condition holds."""
        code = self.code
        bad, good = code.label(), code.label()
        code.go_if(condition ^ True, bad, good, rarely=True)
        code.start(bad)
        cell = code.load(lanes_of("ptr"), self.verdict, 8)
        code.store(code.constant(INDEX, number), cell, 8)
        code.do("ret void")
        code.start(good)

    def operand(self, i: int, place: LoopPoint, lanes: int) -> LLValue:
        """An operand's elements at a point."""
        dtype = self.kernel.operands[i].dtype
        stride = self.nest.lane.strides[i] if lanes > 1 else 0
        count = min(place.count, lanes)
        pointer = self._pointer(i, place, dtype, (count - 1) * stride)
        return read(self.code, pointer, dtype, lanes, stride, count)

    def store(self, r: int, place: LoopPoint, value: LLValue, afresh: bool = False) -> None:
        """Store elements of a result at a point; folds of columns combine with what is there."""
        i, result = self.first_step + r, self.kernel.results[r]
        dtype, stride = self.kernel.dtypes[result.value], self.nest.lane.strides[i]
        pointer = self._pointer(i, place, dtype, (place.count - 1) * stride)
        if result.over_rows and not afresh:
            there = read(self.code, pointer, dtype, value.type.lanes, stride, place.count)
            value = combine(result.over_rows, there, value, dtype)
        write(self.code, value, pointer, dtype, stride, place.count)

    def _pointer(self, i: int, place: LoopPoint, dtype: np.dtype, span: int) -> LLValue:
        """The address of array i at a point; its lanes reach as far as `span`."""
        offset = place.offsets[i]
        if self.extents:
            at = self.code.constant(INDEX, 0) if offset is None else offset
            before, after = self.extents[i]
            self.require((at + min(span, 0) >= -before) & (at + max(span, 0) < after), i + 1)
        if offset is None:
            return self.pointers[i]
        return self.code.address(self.pointers[i], offset, memory_type(dtype).element)
