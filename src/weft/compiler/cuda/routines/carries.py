"""The carries of a loop, double-buffered in memory of the block."""

from collections.abc import Sequence

from ...emit.code import LLValue
from ...ir.routine import RoutineArray
from .blocks import move
from .inline import BlockArray, Threads
from .uses import AFTER, BEFORE, Place


def nbytes(a: RoutineArray) -> int:
    """The size of an array in bytes."""
    return a.size * a.dtype.itemsize


def line_up(arrays: Sequence[RoutineArray], parts: int = 1) -> tuple[tuple[int, ...], int]:
    """Offsets of a part of each array, in a row, each at 64 bytes; and the size of all."""
    offsets, at = [], 0
    for a in arrays:
        offsets.append(at)
        at += -(-nbytes(a) // parts // 64) * 64
    return tuple(offsets), at


def carry_places(carries: Sequence[RoutineArray], pointer: int, parts: int = 1) -> list[Place]:
    """The places of a part of each carry, before or after a step."""
    return [Place(pointer, at) for at in line_up(carries, parts)[0]]


class DoubleBuffer:
    """The double buffer of a loop's carries: filled from the operands, copied to the results."""

    def __init__(
        self,
        threads: Threads,
        arrays: Sequence[BlockArray],
        carries: Sequence[RoutineArray],
        results: int,
        parts: int = 1,
    ):
        self.threads, self.arrays, self.parts = threads, arrays, parts
        self.carries, self.results = carries, results
        self.offsets, self.size = line_up(carries, parts)
        self.scratch = arrays[-1]

    def _move(self, first: int, outside: bool, at: LLValue | int) -> None:
        """Copy carries from, or to, the routine's arrays from a number on."""
        for k, (a, offset) in enumerate(zip(self.carries, self.offsets, strict=True)):
            mine = self.scratch.behind(at).behind(offset)
            theirs, count = self.arrays[first + k], a.size // self.parts
            if self.parts > 1:
                block = self.threads.machine.block().cast("zext", "i64")
                theirs = theirs.behind(block * (count * a.dtype.itemsize))
            to, source = (theirs, mine) if outside else (mine, theirs)
            move(self.threads, to, source, a.dtype, count)

    def fill(self) -> None:
        """Copy the first carries; all threads have done so then."""
        self._move(0, False, 0)
        self.threads.machine.barrier()

    def halves(self, count: LLValue) -> dict[int, BlockArray]:
        """The carries before and after a step, by the number of steps before it."""
        odd = (count & 1) * self.size
        return {
            BEFORE: self.scratch.behind(odd),
            AFTER: self.scratch.behind(self.size - odd),
        }

    def empty(self, count: LLValue) -> None:
        """Copy the carries after so many steps to the results."""
        self._move(self.results, True, (count & 1) * self.size)
