"""Stages that order elements by the places they go to: a stable radix sort, four bits at a time.

Up to some thousand elements are compared with each other instead, which takes one launch.

Elements that go to one place stay in their order, and what is computed of them has the same bits in
every run.
"""

from collections.abc import Callable
from functools import partial
from math import gcd

import numpy as np

from ....core import dtypes
from ....core.record import record
from ...emit.code import LLValue, lanes_of
from ...emit.control import when
from ...ir.routine import RoutineArray, array
from ..machine import WORD, Machine
from .places import PlaceStage
from .routine import RoutineStage
from .scans import Counters
from .threads import BLOCK, FAR, Along, Thread, blocks_for, bytes_of, lane, place_along

_BITS = 4
_DIGITS = 1 << _BITS
# Elements of a thread that are loaded together, and the most blocks: each reads all blocks' counts.
_TOGETHER, _BLOCKS = 4, 128
# The most elements that are compared with each other.
FEW = 1 << 14


@record
class Keys:
    """The places that elements go to, by their indices."""

    index: np.dtype
    sizes: Along

    @property
    def count(self) -> int:
        return self.sizes.picked

    @property
    def places(self) -> int:
        return self.sizes.places

    @property
    def passes(self) -> int:
        return max(-(-(self.places - 1).bit_length() // _BITS), 1)

    def why_not(self) -> str:
        """Why elements cannot be ordered; empty if they can."""
        if max(self.count + BLOCK, 2 * self.places) >= FAR:
            return f"{self.count} numbers go to {self.places} places: too many to be ordered"
        return ""

    @property
    def scratch(self) -> tuple[RoutineArray, ...]:
        """Elements' keys and numbers, twice; ends of places; counts of digits by blocks."""
        line = array(dtypes.int32, (self.count,))
        ends = array(dtypes.int32, (self.places, 2))
        return *(line,) * 4, ends, array(dtypes.int32, (_DIGITS, blocks_of(self.count)))

    def stages(self, indices: int, first: int) -> tuple[tuple[RoutineStage, ...], int, int]:
        """The stages, and where they leave the ordered numbers, and the ends of each place.

        `indices` is the place of the indices among the routine's arrays, `first` of the scratch.
        """
        keys, orders = (first, first + 2), (first + 1, first + 3)
        ends, counts, last = first + 4, first + 5, self.passes % 2
        made: list[RoutineStage] = [StartStage((indices, keys[0], orders[0], ends), self)]
        if self.count <= FEW:
            made.append(RankStage((keys[0], orders[1], ends), self.count, self.places))
            return tuple(made), orders[1], ends
        for p in range(self.passes):
            now, then = p % 2, 1 - p % 2
            if blocks_of(self.count) > 1:
                made.append(CountStage((keys[now], counts), self.count))
            places = keys[now], orders[now], counts, keys[then], orders[then]
            made.append(OrderStage(places, self.count))
        made.append(EndsStage((keys[last], ends), self.count, self.passes))
        return tuple(made), orders[last], ends


def elements_of(count: int) -> int:
    """How many of so many elements a thread has."""
    return _TOGETHER * -(-count // (_TOGETHER * BLOCK * _BLOCKS))


def blocks_of(count: int) -> int:
    """The blocks that so many elements have."""
    return blocks_for(count, BLOCK * elements_of(count))


@record
class StartStage(PlaceStage):
    """Keys of elements, their numbers, and no ends. Arrays: indices, keys, numbers, ends."""

    keys: Keys

    @property
    def count(self) -> int:
        return max(self.keys.count, self.keys.places)

    @property
    def extents(self) -> tuple[int, ...]:
        return (2 * self.keys.places,)

    def emit_place(self, t: Thread, at: LLValue) -> None:
        keys, sizes = self.keys, self.keys.sizes

        def enter() -> None:
            index = t.index_at(0, keys.index, at, sizes.n)
            t.store(1, at, t.word(place_along(t, at, index, sizes)))
            t.store(2, at, t.word(at))

        def clear() -> None:
            t.put(3, at, t.code.constant(bytes_of(8), 0))

        t.below(at, keys.count, keys.count == self.count, enter)
        t.below(at, keys.places, keys.places == self.count, clear)


@record
class RankStage(PlaceStage):
    """The rank of each element among all. Arrays: keys, ordered numbers, ends.

    Before an element come those of lower keys, and those of its key that come before it.
    """

    elements: int
    places: int

    @property
    def count(self) -> int:
        return self.elements

    @property
    def extents(self) -> tuple[int, ...]:
        return (2 * self.places,)

    def emit_place(self, t: Thread, at: LLValue) -> None:
        key, me = t.load(0, at, WORD), t.word(at)
        whole = self.elements - self.elements % _TOGETHER
        wide = lanes_of("i32", _TOGETHER)

        def count(other: LLValue, j: LLValue, found: list[LLValue]) -> list[LLValue]:
            same = other.equals(key)
            kinds = (other < key, same & (j < me), same & (j > me))
            return [n + k.cast("zext", "i32") for n, k in zip(found, kinds, strict=True)]

        def some(i: LLValue, found: list[LLValue]) -> list[LLValue]:
            others = t.load(0, i, wide, gcd(4 * _TOGETHER, t.aligned))
            for n in range(_TOGETHER):
                found = count(lane(others, n), t.word(i + n), found)
            return found

        def one(i: LLValue, found: list[LLValue]) -> list[LLValue]:
            return count(t.load(0, i, WORD), t.word(i), found)

        none = [t.code.constant(WORD, 0)] * 3
        found = t.loop(t.number(0), t.number(whole), _TOGETHER, none, some)
        lower, before, after = t.loop(t.number(whole), t.number(self.elements), 1, found, one)
        rank, place = lower + before, t.wide(key)
        t.store(1, t.wide(rank), me)
        when(before.equals(0), lambda: t.store(2, place * 2, rank))
        when(after.equals(0), lambda: t.store(2, place * 2 + 1, rank + 1))


@record
class DigitStage(RoutineStage):
    """A pass over elements by the lowest digit of their keys; a thread has neighbouring ones."""

    elements: int

    @property
    def block(self) -> int:
        return BLOCK

    @property
    def grid(self) -> int:
        return blocks_of(self.elements)

    def each_key(self, t: Thread, body: Callable[[LLValue, LLValue, LLValue], None]) -> None:
        """Emit body(element, key, digit) for the elements of this thread, in order."""
        each, count = elements_of(self.elements), self.elements
        first = t.place() * each

        def some(i: LLValue, _: list[LLValue]) -> list[LLValue]:
            elements = [first + i + n for n in range(_TOGETHER)]
            near = [(e < count).choose(e, e.same(count - 1)) for e in elements]
            keys = [t.load(0, e, WORD) for e in near]
            for e, key in zip(elements, keys, strict=True):
                when(e < count, partial(body, e, key, key & (_DIGITS - 1)))
            return []

        t.loop(t.number(0), t.number(each), _TOGETHER, [], some)

    def count_digits(self, t: Thread) -> tuple[Counters, LLValue]:
        """Where a thread's elements of a digit start in the ordered block; how many there are.

        The words are those of all threads for the first digit, then for the second, and so on.
        """
        counters, thread = Counters(t, _DIGITS * BLOCK), t.machine.thread()
        for g in range(_DIGITS):
            counters.put(thread + g * BLOCK, t.number(0))
        self.each_key(t, lambda e, key, digit: _take(counters, thread, digit))
        return counters, counters.scan()


def _turn(key: LLValue, bits: int) -> LLValue:
    """The bits of a word so many places further up, around its end."""
    bits %= 32
    return (key << bits) | key.logical_shift(32 - bits) if bits else key


def _take(counters: Counters, thread: LLValue, digit: LLValue) -> None:
    counters.take(digit * BLOCK + thread)


@record
class CountStage(DigitStage):
    """How many elements of each digit a block has. Arrays: keys, counts."""

    def emit(self, machine: Machine) -> None:
        t = Thread(machine, WORD, self.aligned)
        counters, total = self.count_digits(t)
        machine.barrier()
        g = machine.thread()

        def put() -> None:
            last = g.equals(_DIGITS - 1)
            following = counters.get(last.choose(g, g + 1) * BLOCK)
            amount = last.choose(total, following) - counters.get(g * BLOCK)
            t.store(1, g * self.grid + machine.block(), amount)

        when(g < _DIGITS, put)
        machine.finish()


@record
class OrderStage(DigitStage):
    """Write elements in the order of a digit, with their next digits as the lowest ones.

    Arrays: keys and numbers of the elements, counts, keys and numbers of the ordered ones.
    """

    def emit(self, machine: Machine) -> None:
        t = Thread(machine, WORD, self.aligned)
        counters, _ = self.count_digits(t)
        shifts = self._shifts(t, counters) if self.grid > 1 else None
        machine.barrier()
        thread = machine.thread()

        def move(e: LLValue, key: LLValue, digit: LLValue) -> None:
            to = counters.take(digit * BLOCK + thread)
            if shifts is not None:
                to = to + shifts.get(digit)
            t.store(3, to, _turn(key, -_BITS))
            t.store(4, to, t.load(1, e, WORD))

        self.each_key(t, move)
        machine.finish()

    def _shifts(self, t: Thread, counters: Counters) -> Counters:
        """For each digit, by how much this block's elements start later than in the block.

        They are there after the next barrier.
        """
        blocks, thread = self.grid, t.machine.thread()
        size = -(-_DIGITS * blocks // BLOCK) * BLOCK
        before = Counters(t, size)
        for n in range(0, size, BLOCK):
            at = thread + n
            inside = at < _DIGITS * blocks
            amount = t.load(2, inside.choose(at, at.same(0)), WORD)
            before.put(at, inside.choose(amount, amount.same(0)))
        before.scan()
        t.machine.barrier()
        shifts = Counters(t, BLOCK)

        def put() -> None:
            start = before.get(thread * blocks + t.machine.block())
            shifts.put(thread, start - counters.get(thread * BLOCK))

        when(thread < _DIGITS, put)
        return shifts


@record
class EndsStage(PlaceStage):
    """Where the elements of each place begin and end among the ordered ones. Arrays: keys, ends."""

    elements: int
    passes: int

    @property
    def count(self) -> int:
        return self.elements

    @property
    def extents(self) -> tuple[int, ...]:
        return (self.elements,)

    def emit_place(self, t: Thread, at: LLValue) -> None:
        first, last = at.equals(0), at.equals(self.elements - 1)
        key = t.load(0, at, WORD)
        begins = first | t.load(0, first.choose(at, at - 1), WORD).compare("ne", key)
        ends = last | t.load(0, last.choose(at, at + 1), WORD).compare("ne", key)
        place = _turn(key, _BITS * self.passes)
        when(begins, lambda: t.store(1, place * 2, t.word(at)))
        when(ends, lambda: t.store(1, place * 2 + 1, t.word(at) + 1))
