"""Scans across the threads of a block: by exchanges in a warp, by shared memory beyond it."""

from collections.abc import Callable, Sequence

from ....core.record import record
from ...emit.code import LLValue
from ...emit.control import when
from ..machine import WARP, WORD
from ..teams import exchange_number
from .threads import BLOCK, Thread, size_of

# What is scanned: some numbers that belong together.
State = tuple[LLValue, ...]


@record
class Scan:
    """An associative operation and its identity."""

    combine: Callable[[State, State], State]
    identity: State


def _choose(condition: LLValue, yes: State, no: State) -> State:
    return tuple([condition.choose(a, b) for a, b in zip(yes, no, strict=True)])


def scan_block(t: Thread, scan: Scan, mine: State, block: int, again: bool) -> tuple[State, State]:
    """What comes before this thread's part, in the order of threads, and all of the block's.

    `again`: whether this code runs more than once, so that shared memory is written again.
    """
    machine = t.machine
    number = machine.thread()
    before, total = _scan_warp(t, scan, mine, number)
    warps = block // WARP
    if warps == 1:
        return before, total
    rooms = [machine.shared(part.type, warps) for part in total]
    warp = number.logical_shift(WARP.bit_length() - 1)

    def cell(n: int, at: LLValue) -> LLValue:
        return t.code.address(rooms[n], at.cast("zext", "i64"), total[n].type.element)

    def put() -> None:
        for n, part in enumerate(total):
            t.code.store(part, cell(n, warp), size_of(part.type))

    def get(at: LLValue) -> State:
        kinds = [part.type for part in total]
        return tuple([t.code.load(k, cell(n, at), size_of(k)) for n, k in enumerate(kinds)])

    when((number & (WARP - 1)).equals(0), put)
    machine.barrier()
    ahead = all_of_it = scan.identity
    for w in range(warps):
        ahead = _choose(warp.equals(w), all_of_it, ahead)
        at = warp.same(w)
        part = tuple(
            [t.code.load(p.type, cell(n, at), size_of(p.type)) for n, p in enumerate(mine)]
        )
        all_of_it = scan.combine(all_of_it, part)
    if again:
        machine.barrier()
    return scan.combine(ahead, before), all_of_it


def _scan_warp(t: Thread, scan: Scan, mine: State, number: LLValue) -> tuple[State, State]:
    """What comes before a thread in its warp, and all of the warp's: by doubling."""
    before, total, distance = scan.identity, mine, 1
    while distance < WARP:
        other = tuple([exchange_number(t.machine, part, distance) for part in total])
        upper = (number & distance).compare("ne", 0)
        before = _choose(upper, scan.combine(other, before), before)
        first, second = _choose(upper, other, total), _choose(upper, total, other)
        total = scan.combine(first, second)
        distance *= 2
    return before, total


def add_words(t: Thread) -> Scan:
    """Sums of words."""
    return Scan(lambda a, b: (a[0] + b[0],), (t.code.constant(WORD, 0),))


class Counters:
    """Words in shared memory, whole multiples of the block.

    A thread scans neighbouring ones, and another thread's lie `each` apart: a word of padding after
    every 32 keeps them in different banks.
    """

    def __init__(self, t: Thread, count: int):
        assert count % BLOCK == 0
        self.t, self.each = t, count // BLOCK
        self.room = t.machine.shared(WORD, count + count // WARP)

    def _cell(self, at: LLValue) -> LLValue:
        padded = at + at.logical_shift(WARP.bit_length() - 1)
        return self.t.code.address(self.room, padded.cast("zext", "i64"), "i32")

    def get(self, at: LLValue) -> LLValue:
        return self.t.code.load(WORD, self._cell(at), 4)

    def put(self, at: LLValue, value: LLValue) -> None:
        self.t.code.store(value, self._cell(at), 4)

    def take(self, at: LLValue) -> LLValue:
        """The word, which is increased by one."""
        old = self.get(at)
        self.put(at, old + 1)
        return old

    def scan(self) -> LLValue:
        """Replace each word by the sum of those before it; return the sum of all.

        Another thread's words are there after the next barrier.
        """
        t = self.t
        t.machine.barrier()
        first = t.machine.thread() * self.each
        own = [self.get(first + n) for n in range(self.each)]
        (before,), (total,) = scan_block(t, add_words(t), (_sum(own),), BLOCK, False)
        for n, word in enumerate(own):
            self.put(first + n, before)
            before = before + word
        return total


def _sum(words: Sequence[LLValue]) -> LLValue:
    total = words[0]
    for word in words[1:]:
        total = total + word
    return total
