"""Guards on a GPU: nothing waits for their flags.

A guard whose flag is false writes its number into the program's status, and which indices it saw.
Kernels that write into inputs do nothing from then on. The host reads the status when it comes.
"""

from ...core.record import record
from ..emit.code import LLValue, lanes_of
from ..emit.convert import memory_type
from ..ir.routine import RoutineArray
from .machine import Machine

LONG, BYTE = lanes_of("i64"), lanes_of("i8")
# Words of the status: the number of the guard, the first index that is wrong, the least, the most.
NUMBER, FIRST, LEAST, MOST, STATUS = range(5)


@record
class GuardStage:
    """One guard.

    number  what the status says if it fails, not 0
    seen    the indices that it checked, in a row, and the range that they have to be in
    """

    number: int
    seen: RoutineArray | None = None
    low: int = 0
    high: int = 0
    grid: int = 1
    block: int = 32

    @property
    def arrays(self) -> tuple[int, ...]:
        return tuple(range(2 if self.seen is None else 3))

    def emit(self, machine: Machine) -> None:
        code = machine.code
        flag, status, *_ = machine.pointers
        look, fail, end = code.label(), code.label(), code.label()
        code.go_if(machine.thread().compare("eq", 0), look, end)
        code.start(look)
        machine.access(0, flag, 1, 1)
        machine.access(1, status, 8 * STATUS, 8)
        wrong = code.load(BYTE, flag, 1).compare("eq", 0)
        first = code.load(LONG, status, 8).compare("eq", 0)  # no guard has failed before it
        code.go_if(wrong & first, fail, end, rarely=True)
        code.start(fail)
        code.store(code.constant(LONG, self.number), status, 8)
        if self.seen is not None:
            self._note(machine, self.seen)
        code.go(end)
        code.start(end)
        machine.finish()

    def _note(self, machine: Machine, seen: RoutineArray) -> None:
        """Write down the indices: the first that is wrong, the least and the most."""
        code, (_, status, indices) = machine.code, machine.pointers
        words = [code.address(status, i, "i64") for i in (FIRST, LEAST, MOST)]
        first, least, most = words
        kind, width = memory_type(seen.dtype), seen.dtype.itemsize
        signed = seen.dtype.kind == "i"

        def index(at: LLValue) -> LLValue:
            place = code.address(indices, at, kind.element)
            machine.access(2, place, width, width)
            value = code.load(kind, place, width)
            return value if width == 8 else value.cast("sext" if signed else "zext", "i64")

        start = index(code.constant(LONG, 0))
        for word in words:
            code.store(start, word, 8)
        again, out = code.label(), code.label()
        before = code.block
        code.go(again)
        code.start(again)
        i = code.phi(LONG)
        i.add(code.constant(LONG, 0), before)
        x = index(i.value)
        old = code.load(LONG, first, 8)
        fine = (old >= self.low) & (old < self.high)  # nothing wrong has come yet
        code.store(fine.choose(x, old), first, 8)
        for word, less in ((least, True), (most, False)):
            held = code.load(LONG, word, 8)
            better = x < held if less else x > held
            code.store(better.choose(x, held), word, 8)
        on = i.value + 1
        i.add(on, code.block)
        code.go_if(on < seen.size, again, out)
        code.start(out)
