"""Routines as native functions over units: `name(record, begin, end)`.

Units may run in any order on any thread: each writes its own part of the results, in a fixed order,
and keeps its temporaries on the stack; scratch memory is shared by all units.
"""

from abc import abstractmethod
from collections.abc import Sequence

from ....core.record import record
from ...emit.code import Code, LLModule, LLValue, lanes_of
from ...emit.control import POINTER, WORD, leave, pointer, put, when
from ...emit.lanes_in_memory import splat
from ...ir import routine
from ...native.signals import Fuel

# Bytes of the stack that a function may use.
STACK = 512 << 10


@record
class RoutineBody:
    """The function that is emitted: pointers to the first elements, and its units.

    `verdict` is where a checking function reports an out-of-bounds access; `fuel` polls for signals
    in loops.
    """

    code: Code
    arrays: Sequence[LLValue]
    begin: LLValue
    end: LLValue
    verdict: LLValue | None
    fuel: Fuel | None = None

    def require(self, condition: LLValue, number: int) -> None:
        """If accesses are checked: return unless the access to array `number` is inside."""
        cell = self.verdict
        if cell is None:
            return

        def give_up() -> None:
            put(self.code.constant(WORD, number + 1), cell, 0)
            leave(self.code)

        when(condition ^ True, give_up, rarely=True)


class NativeRoutine(routine.Routine):
    """A routine that emits its code as LLVM IR."""

    inside = False  # whether it is emitted inline in the routine that contains it

    @property
    @abstractmethod
    def count(self) -> int:
        """The number of units."""

    @property
    def grain(self) -> int:
        """Pieces are multiples of this many units."""
        return 1

    @property
    @abstractmethod
    def cost(self) -> float:
        """Approximate nanoseconds of one core for all units."""

    @property
    def shared(self) -> float:
        """The nanoseconds of work that it divides among threads by itself, inside of a unit."""
        return 0.0

    @property
    def multiplies(self) -> bool:
        """Whether it calls BLAS, which is limited to one thread meanwhile."""
        return False

    @abstractmethod
    def body(self, b: RoutineBody) -> None:
        """Emit the code for the units from begin to end; control must reach its end."""

    def write(self, module: LLModule, name: str, checked: bool = False) -> None:
        """Emit the function `name(record, begin, end)` into a module."""
        code = module.function("void", [POINTER, WORD, WORD], name)
        record, begin, end = code.parameters
        number = len(self.operands) + len(self.results) + len(self.scratch)
        arrays = tuple(pointer(record, i) for i in range(number))
        verdict = pointer(record, number) if checked else None
        self.body(RoutineBody(code, arrays, begin, end, verdict))
        leave(code)


def as_native_routine(work: routine.Routine) -> NativeRoutine:
    """A step's routine, as one that emits its code."""
    assert isinstance(work, NativeRoutine), work
    return work


def require_lanes(
    b: RoutineBody, number: int, at: LLValue, step: int, mask: LLValue, size: int
) -> None:
    """If accesses are checked: the lanes of a mask, `step` apart from `at` on, are in the array."""
    if b.verdict is None:
        return
    lanes, code = mask.type.lanes, b.code
    steps = ", ".join(f"i64 {step * k}" for k in range(lanes))
    places = splat(at, lanes) + LLValue(code, lanes_of("i64", lanes), f"<{steps}>")
    good = places.compare("lt", size, signed=False) | (mask ^ True)
    bits = code.emit(lanes_of(f"i{lanes}"), f"bitcast {good.type.text} {good.name} to i{lanes}")
    b.require(bits.equals(-1), number)
