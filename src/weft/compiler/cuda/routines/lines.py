"""Stages that scan contiguous lines: blocks have lines, or parts of long ones."""

from math import gcd

from ....core.record import record
from ...emit.code import LLValue, lanes_of
from ...emit.control import when
from ..arrays import WIDEST
from ..machine import WARP, Machine
from .routine import RoutineStage
from .rules import Rule
from .scans import State, scan_block
from .threads import BLOCK, Thread, join, lane, start_thread

# Elements of a thread that are loaded together.
TOGETHER = 4


def block_of(n: int) -> int:
    """The threads for a line of n elements."""
    block = WARP
    while block < BLOCK and block * TOGETHER < n:
        block *= 2
    return block


@record
class PartStage(RoutineStage):
    """A part of a line in each block.

    part  the elements of a part: all of the line, or whole turns of the block
    """

    rule: Rule
    lead: int
    n: int
    part: int

    @property
    def parts(self) -> int:
        """The parts of a line, at most as many as a block has threads."""
        return -(-self.n // self.part)

    @property
    def block(self) -> int:
        return block_of(self.part)

    @property
    def grid(self) -> int:
        return self.lead * self.parts

    def start(self, machine: Machine) -> tuple[Thread, LLValue, LLValue]:
        """The thread, its line and the number of its part."""
        t = start_thread(machine, self.aligned, self.lead * self.n, self.n + BLOCK * TOGETHER)
        return t, *t.split(t.wide(machine.block()), self.parts)

    def scan(self, t: Thread, line: LLValue, p: LLValue, before: State, write: bool) -> State:
        """Emit the scan of a part after a state; the state at its end."""
        some, scan = self.block * TOGETHER, self.rule.scan(t)
        first, thread = line * self.n, t.wide(t.machine.thread()) * TOGETHER
        begin, rest = p * self.part, t.number(self.n) - p * self.part
        size = (rest < self.part).choose(rest, t.number(self.part))

        def turn(i: LLValue, carried: list[LLValue]) -> State:
            at = begin + i + thread
            own = self._read(t, first, at, scan.identity)
            for n in range(1, TOGETHER):
                own[n] = scan.combine(own[n - 1], own[n])
            ahead, total = scan_block(t, scan, own[-1], self.block, some < self.part)
            if write:
                ahead = scan.combine(tuple(carried), ahead)
                self._write(t, first, at, [scan.combine(ahead, x) for x in own])
            return scan.combine(tuple(carried), total)

        return tuple(t.loop(t.number(0), size, some, before, turn))

    @property
    def lanes(self) -> int:
        """The neighbouring elements that are accessed together: lines are whole groups of them."""
        return gcd(self.n, TOGETHER)

    def _align(self, t: Thread, item: int) -> int:
        return gcd(self.lanes * item, t.aligned, WIDEST)

    def _read(self, t: Thread, first: LLValue, at: LLValue, none: State) -> list[State]:
        """The elements of a thread, each as a state; beyond the line, ones that change nothing."""
        kind, lanes, made = self.rule.types[0], self.lanes, list[State]()
        for k in range(0, TOGETHER, lanes):
            inside = at + k < self.n
            place = first + inside.choose(at + k, at.same(0))
            align = self._align(t, self.rule.dtype.itemsize)
            group = t.load(0, place, lanes_of(kind.element, lanes), align)
            for n in range(lanes):
                where = (at + (k + n)).cast("zext", "i64")
                state = self.rule.start([lane(group, n)], where)
                made.append(tuple([inside.choose(x, y) for x, y in zip(state, none, strict=True)]))
        return made

    def _write(self, t: Thread, first: LLValue, at: LLValue, made: list[State]) -> None:
        for k in range(0, TOGETHER, self.lanes):

            def put(k: int = k) -> None:
                for n in range(len(made[0])):
                    group = join([state[n] for state in made[k : k + self.lanes]])
                    align = self._align(t, group.type.width // 8)
                    t.store(1 + n, first + at + k, group, align)

            when(at + k < self.n, put)


@record
class TotalStage(PartStage):
    """The state at the end of each part alone. Arrays: the operand, then totals."""

    def emit(self, machine: Machine) -> None:
        t, line, p = self.start(machine)
        total = self.scan(t, line, p, self.rule.scan(t).identity, False)

        def put() -> None:
            for n, part in enumerate(total):
                t.store(1 + n, line * self.parts + p, part)

        when(machine.thread().equals(0), put)
        machine.finish()


@record
class ScanStage(PartStage):
    """The results. Arrays: the operand, results, and if there are several parts, their totals."""

    def emit(self, machine: Machine) -> None:
        t, line, p = self.start(machine)
        before = self.rule.scan(t).identity
        if self.parts > 1:
            before = self._before(t, line, p)
        self.scan(t, line, p, before, True)
        machine.finish()

    def _before(self, t: Thread, line: LLValue, p: LLValue) -> State:
        """The state of all parts before one: a thread has the total of each."""
        scan, states = self.rule.scan(t), len(self.rule.types)
        thread = t.wide(t.machine.thread())
        inside = thread < p
        at = line * self.parts + inside.choose(thread, t.number(0))
        totals = [t.load(1 + states + n, at, kind) for n, kind in enumerate(self.rule.types)]
        mine = [inside.choose(x, none) for x, none in zip(totals, scan.identity, strict=True)]
        return scan_block(t, scan, tuple(mine), self.block, False)[1]
