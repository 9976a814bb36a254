"""What the calls of a block use of memory: places, spans, and where threads have to wait."""

from collections.abc import Sequence
from dataclasses import replace
from math import gcd

import numpy as np

from ....core.record import record
from ...ir.kernel import Operand, Result, reach
from ...ir.schedule import GemmStep, KernelStep, Schedule
from ...memory import round_up
from .slices import MOST, Slice, Slices

# The numbers of pointers that are not among the routine's arrays.
BEFORE, AFTER, SCRATCH, SLICES, CONSTANT = -1, -2, -3, -4, -5
# The same for scratch memory whose beginning is not known yet.
ARENA = -(1 << 30)
# Bytes that pointers of memory of a block's own are multiples of.
_ALIGNED = 16


@record
class Place:
    """The address of an array: bytes past a pointer, and more for each step and each block.

    pointer  one of the routine's arrays, by its number, or one of BEFORE and AFTER (the carries of
             a step), SCRATCH, SLICES and CONSTANT − k
    stride   bytes from one step of the loop to the next
    shift    bytes from one block of the grid to the next
    """

    pointer: int
    offset: int = 0
    stride: int = 0
    shift: int = 0

    def advanced_by(self, count: int) -> "Place":
        """The place so many bytes further."""
        return replace(self, offset=self.offset + count) if count else self

    def aligned(self, item: int) -> int:
        """What its address is a multiple of; arrays of the routine are of their elements."""
        known = item if self.pointer >= 0 else _ALIGNED
        return gcd(known, self.offset, self.stride, self.shift)


@record
class Use:
    """An array of a step: its place, the bytes that are used from there on, and how."""

    place: Place
    dtype: np.dtype
    low: int
    high: int
    writes: bool

    def moved(self, shift: int, blocks: int) -> "Use":
        """The use of an array that moves from block to block; of their own memory, by all."""
        made = replace(self, place=replace(self.place, shift=shift))
        if self.place.pointer >= 0:
            return made
        last = shift * (blocks - 1)
        return replace(made, low=self.low + min(last, 0), high=self.high + max(last, 0))

    @property
    def span(self) -> tuple[int, int]:
        """The bytes behind the pointer, of the first step and block."""
        return self.place.offset + self.low, self.place.offset + self.high

    def meets(self, other: "Use") -> bool:
        """Whether one of them writes what the other one uses."""
        if self.place.pointer != other.place.pointer or not (self.writes or other.writes):
            return False
        (a, b), (c, d) = self.span, other.span
        return a < d and c < b


def uses_of(schedule: Schedule, s, roots: dict[int, Place]) -> list[Use]:
    """What a step reads and writes, in the order of its arrays."""
    if isinstance(s, KernelStep):
        numbers, first = (*s.operands, *s.results), len(s.operands)
        every: tuple[Operand | Result, ...] = (*s.kernel.operands, *s.kernel.results)
        arrays = [(s.kernel.domain, x.strides) for x in every]
    elif isinstance(s, GemmStep):
        numbers, first = (s.a, s.b, s.c), 2
        arrays = [(sizes, strides) for _, sizes, strides in s.accesses()]
    else:
        numbers, first, r = (*s.operands, *s.results), len(s.operands), s.routine
        arrays = [(a.shape, a.strides) for a in (*r.operands, *r.results, *r.scratch)]
    made = []
    for n, (i, (sizes, strides)) in enumerate(zip(numbers, arrays, strict=True)):
        dtype = schedule.buffers[i].dtype
        low, high = reach(tuple(sizes), tuple(strides))
        place = _place(schedule, roots, i)
        made.append(Use(place, dtype, low * dtype.itemsize, high * dtype.itemsize, n >= first))
    return made


def _place(schedule: Schedule, roots: dict[int, Place], i: int) -> Place:
    b = schedule.buffers[i]
    return roots[schedule.storage(i)].advanced_by(b.offset * b.dtype.itemsize)


def find_slices(uses: Sequence[Sequence[Use]], at: int, threads: int) -> Slices:
    """The arrays of steps that are read by each step in one place, as far as they are small."""
    found: dict[int, list[Use]] = {}
    for u in [u for step in uses for u in step]:
        if u.place.pointer >= 0 and u.place.stride:
            found.setdefault(u.place.pointer, []).append(u)
    parts, size, room = [], 0, MOST
    for pointer, group in found.items():
        low, high = min(u.span[0] for u in group), max(u.span[1] for u in group)
        same = {(u.place.stride, u.place.shift, u.dtype) for u in group}
        if len(same) > 1 or any(u.writes for u in group) or high <= low:
            continue
        ((stride, shift, dtype),) = same
        count = (high - low) // dtype.itemsize
        part = Slice(pointer, low, stride, shift, size, dtype, count)
        if part.per_thread(threads) <= room:
            room -= part.per_thread(threads)
            size += round_up(high - low)
            parts.append(part)
    return Slices(tuple(parts), at, size)


def settle(u: Use, ahead: Slices, begin: int) -> Use:
    """A use at its final place: scratch memory begins somewhere, and slices are in it."""
    p = u.place
    if p.pointer == ARENA:
        return replace(u, place=replace(p, pointer=SCRATCH, offset=begin + p.offset))
    for s in ahead.parts:
        if s.array == p.pointer:
            return replace(u, place=Place(SLICES, s.at + p.offset - s.offset))
    return u


class Spans:
    """What calls have used since threads waited for each other."""

    def __init__(self) -> None:
        self._since: list[Use] = []
        self._room = False

    def enter(self, uses: Sequence[Use], room: int) -> bool:
        """Enter a call that also uses shared memory or not; whether threads must wait before."""
        waits = any(a.meets(b) for a in uses for b in self._since) or (self._room and room > 0)
        self._since = [*([] if waits else self._since), *uses]
        self._room = room > 0 or (self._room and not waits)
        return waits
