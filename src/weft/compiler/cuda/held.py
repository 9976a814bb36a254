"""Lines in shared memory: what several sweeps read is loaded once.

Each thread stores what it loads, and loads it from there again: nobody waits for the others.
"""

from collections.abc import Mapping

from ...core.record import field, record
from ..emit.code import LLValue, Type, lanes_of
from ..ir.axes import Axis
from ..ir.kernel import Kernel, moving
from .arrays import WIDEST, GridArrays
from .sweeps import changes

# Bytes of a line at most: the smallest of these processors gives a block 99 KiB, of which folds
# take some; on the largest two blocks fit.
HELD = 100_864


def first_sweeps(kernel: Kernel, lane: Axis) -> dict[int, int]:
    """The operands of a line that several sweeps read along a lane, and the first that does."""
    found = {}
    for i in range(len(kernel.operands)):
        sweeps = [k for k in range(kernel.sweeps) if i in moving(kernel, k)]
        if changes(kernel, i) and lane.strides[i] == 1 and len(sweeps) > 1:
            found[i] = sweeps[0]
    return found


def held_bytes(kernel: Kernel, lane: Axis, lanes: int) -> dict[int, int]:
    """The bytes of each such operand, in groups of lanes; none if they do not fit."""
    groups = -(-lane.size // lanes)
    found = {
        i: -(-groups * lanes * kernel.operands[i].dtype.itemsize // WIDEST) * WIDEST
        for i in first_sweeps(kernel, lane)
    }
    return found if sum(found.values()) <= HELD else {}


@record(frozen=False, eq=False)
class HeldLine:
    """The operands of a line that are in shared memory, by groups of some elements.

    first  the sweep that loads each
    rooms  where each begins
    kinds  the type that a group of each has in registers
    """

    arrays: GridArrays
    first: Mapping[int, int]
    rooms: Mapping[int, LLValue]
    kinds: dict[int, Type] = field(default_factory=dict)

    def store(self, operand: int, group: LLValue, words: LLValue) -> None:
        """Keep a group that this thread has loaded."""
        self.kinds[operand] = words.type
        place, align = self._place(operand, group)
        self.arrays.code.store(words, place, align)

    def load(self, operand: int, group: LLValue) -> LLValue:
        """A group that this thread has stored."""
        place, align = self._place(operand, group)
        return self.arrays.code.load(self.kinds[operand], place, align)

    def _place(self, operand: int, group: LLValue) -> tuple[LLValue, int]:
        kind = self.kinds[operand]
        size = kind.lanes * kind.width // 8
        at = self.arrays.times(group, size).cast("sext", "i64")
        return self.arrays.code.address(self.rooms[operand], at, "i8"), min(size, WIDEST)


def hold_line(arrays: GridArrays, lane: Axis, lanes: int) -> HeldLine:
    """Shared memory for a line."""
    kernel, byte = arrays.kernel, lanes_of("i8")
    sizes = held_bytes(kernel, lane, lanes)
    room, at, rooms = arrays.machine.shared(byte, sum(sizes.values())), 0, {}
    for i, size in sizes.items():
        rooms[i] = arrays.code.address(room, at, "i8")
        at += size
    return HeldLine(arrays, first_sweeps(kernel, lane), rooms)
