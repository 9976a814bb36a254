"""The memory plan: the offset of each scratch buffer in one arena.

Buffers that are alive at the same step do not overlap, except that a kernel's result may take the
memory of an operand whose last use is this kernel, if the kernel reads it at the index it writes.
"""

from collections.abc import Callable, Container, Iterable, Iterator
from itertools import accumulate
from math import inf

import numpy as np

from ..core.record import record
from .ir.kernel import Kernel, moving
from .ir.schedule import KernelStep, LibraryStep, Schedule, ScheduleStep, TiledStep
from .ir.verify import MalformedSchedule

ALIGNMENT = 64  # bytes: a cache line
# Bytes of an executable's own tables (addresses, tasks), at most: for each program, step, argument.
_TABLES, _OF_STEP, _OF_ARGUMENT = 96 << 10, 900, 170


@record
class Recomputation:
    """Steps that run again so that the arena is smaller.

    steps  their number
    share  their estimated time, as a share of that of all other steps
    plain  bytes of the arena without them
    """

    steps: int
    share: float
    plain: int


@record
class CallBytes:
    """The memory of one call, in bytes; calls in several threads at once have an arena each.

    inputs         arguments, captured tensors and state
    outputs        results with new memory
    constants      of the program
    library        results and copies inside of a library call, at most; where the target adopts
                   them, the results that are alive at once
    arena          values in between
    unconstrained  the arena if nothing is computed again
    tables         of the program itself, at most: addresses, tasks
    """

    inputs: int
    outputs: int
    constants: int
    library: int
    arena: int
    unconstrained: int
    tables: int

    @property
    def fixed(self) -> int:
        """All but the arena."""
        return self.inputs + self.outputs + self.constants + self.library

    @property
    def peak(self) -> int:
        """All of it but the tables."""
        return self.fixed + self.arena

    @property
    def enough(self) -> int:
        """A budget that is enough."""
        return self.peak + self.tables


def _library_bytes(schedule: Schedule, step: LibraryStep) -> int:
    """What a library call takes: its results, and copies of those and of its operands inside."""
    nbytes = [sum([schedule.buffers[i].nbytes for i in x]) for x in (step.writes, step.reads)]
    return 2 * nbytes[0] + nbytes[1]


def call_bytes(schedule: Schedule, placed: "MemoryPlan") -> CallBytes:
    """The memory of one call of a program."""
    own = [b for b in schedule.buffers if b.base is None and b.takes is None]
    inputs, outputs, constants = (
        sum([b.nbytes for b in own if b.role == role]) for role in ("input", "output", "constant")
    )
    library = placed.adopted
    if library is None:
        calls = [s for s in schedule.steps if isinstance(s, LibraryStep)]
        library = max([_library_bytes(schedule, step) for step in calls], default=0)
    again = placed.again or Recomputation(0, 0.0, placed.size)
    arguments = len(schedule.inputs) + len(schedule.outputs)
    tables = _TABLES + _OF_STEP * (len(schedule.steps) - again.steps) + _OF_ARGUMENT * arguments
    return CallBytes(inputs, outputs, constants, library, placed.size, again.plain, tables)


@record
class MemoryPlan:
    """The layout of the arena.

    offsets  in bytes, by scratch buffer
    size     bytes of the arena
    least    the bytes that are alive at the worst step: a lower bound of any plan
    again    what steps that run again save; None without such steps
    adopted  bytes of library results outside of the arena that are alive at once, at most; None if
             the target does not adopt them
    """

    offsets: dict[int, int]
    size: int
    least: int
    again: Recomputation | None = None
    adopted: int | None = None

    @property
    def peak(self) -> int:
        """The peak memory beside inputs and outputs: the arena, and what is adopted."""
        return self.size + (self.adopted or 0)


@record(frozen=False)
class ArenaSlot:
    """Buffers that take over one place from each other: from the first write to the last read."""

    buffers: list[int]
    nbytes: int
    first: int
    last: int


def plan(schedule: Schedule, alignment: int = ALIGNMENT, adopts: bool = False) -> MemoryPlan:
    """Plan the arena; each offset is a multiple of `alignment` bytes.

    adopts  whether the target adopts the results of library calls
    """
    slots, adopted = _slots(schedule, lifetimes(schedule), alignment, adopts)
    return plan_slots(slots, len(schedule.steps), adopted)


def plan_slots(
    slots: list[ArenaSlot], steps: int, adopted: list[ArenaSlot] | None = None
) -> MemoryPlan:
    """Plan the arena of some slots of a schedule of so many steps.

    adopted  the library's memory; None if the target adopts none
    """
    least = max(bytes_by_step(slots, steps))
    placed = _place(slots, least)
    offsets = {b: at for slot, at in zip(slots, placed, strict=True) for b in slot.buffers}
    apart = None if adopted is None else max(bytes_by_step(adopted, steps))
    return MemoryPlan(offsets, _end(slots, placed), least, adopted=apart)


def verify_plan(schedule: Schedule, placed: MemoryPlan) -> None:
    """Raise `MalformedSchedule` unless every scratch buffer lies in the arena or is adopted."""
    known = placed.offsets.keys() | (() if placed.adopted is None else adopted_roots(schedule))
    missing = sorted(lifetimes(schedule).keys() - known)
    if missing:
        raise MalformedSchedule(f"{missing} have no place in the arena")
    for i, b in enumerate(schedule.buffers):
        if b.role == "scratch" and b.base is None and i in placed.offsets:
            at = placed.offsets[i]
            if at < 0 or at % b.dtype.alignment or at + b.nbytes > placed.size:
                raise MalformedSchedule(f"b{i} is at {at} of {placed.size} bytes: {b}")


def round_up(nbytes: int, alignment: int = ALIGNMENT) -> int:
    """Bytes, rounded up to a multiple of the alignment."""
    return -(-nbytes // alignment) * alignment


def lifetimes(schedule: Schedule) -> dict[int, tuple[int, int]]:
    """For each scratch buffer that is no view: the steps that write it first and use it last.

    A buffer that is not read lives as long as the step that writes it.
    """
    spans: dict[int, tuple[int, int]] = {}
    for k, step in enumerate(schedule.steps):
        for i in (*step.reads, *step.writes):
            s = schedule.storage(i)
            if schedule.buffers[s].role == "scratch":
                spans[s] = (spans.get(s, (k, k))[0], k)
    return spans


def adopted_roots(schedule: Schedule) -> frozenset[int]:
    """The scratch buffers that library calls write: a target may adopt them."""
    calls = [s for s in schedule.steps if isinstance(s, LibraryStep)]
    written = [i for s in calls for i in s.writes]
    return frozenset(i for i in written if schedule.buffers[i].role == "scratch")


def passing_bytes(schedule: Schedule, step: ScheduleStep) -> int:
    """The bytes of a library call's results that are copied to outputs, and not adopted."""
    if not isinstance(step, LibraryStep):
        return 0
    written = [schedule.buffers[schedule.storage(i)] for i in step.writes]
    return sum([b.nbytes for b in written if b.role != "scratch"])


# -- in place --------------------------------------------------------------------------------


def in_place(kernel: Kernel, operand: int, result: int) -> bool:
    """Whether a result may be written to an operand's memory while the kernel runs.

    The same element must be read and written at every index, and not be read in a later sweep.
    """
    o, r = kernel.operands[operand], kernel.results[result]
    width = kernel.dtypes[r.value].itemsize
    if o.strides != r.strides or o.dtype.itemsize != width or r.over_rows:
        return False
    depth = kernel.settled[r.value]
    if depth % 2:
        return kernel.settled[operand] == -1
    return not any(operand in moving(kernel, k) for k in range(depth // 2 + 1, kernel.sweeps))


def may_inherit(schedule: Schedule, step: ScheduleStep) -> Iterator[tuple[int, int]]:
    """(result, operand) pairs of roots: the result may take the operand's memory if it dies.

    Outputs are among them: a copy of one is in the arena.
    """
    buffers = [*step.reads, *step.writes]
    every = {i for i in buffers if schedule.buffers[i].role in ("scratch", "output")}
    yield from _pairs(schedule, step, every, every)


def _pairs(
    schedule: Schedule, step: ScheduleStep, operands: Container[int], results: Container[int]
) -> Iterator[tuple[int, int]]:
    """The pairs of some results and operands."""
    factors: set[int] = set()  # operands of a product, which later tiles still read
    if isinstance(step, TiledStep):
        factors = {schedule.storage(i) for i in (step.product.a, step.product.b)}
        step = step.then
    if not isinstance(step, KernelStep):
        return
    buffers = schedule.buffers
    dying = [
        j for j in step.operands if j in operands and buffers[j].base is None and j not in factors
    ]
    if not dying:
        return
    storages = [schedule.storage(b) for b in step.operands]
    for r, i in enumerate(step.results):
        if buffers[i].base is not None or i not in results:
            continue
        for j in dying:
            if buffers[i].nbytes != buffers[j].nbytes:
                continue
            same = [n for n, b in enumerate(storages) if b == j]
            if all(in_place(step.kernel, n, r) for n in same):
                yield i, j


def _heirs(
    schedule: Schedule, k: int, step: ScheduleStep, spans: dict[int, tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """(result, operand) pairs of roots: the result may take the memory of what dies at step k."""
    dying = {j for j in (*step.reads, *step.writes) if j in spans and spans[j][1] == k}
    if dying:
        fresh = {i for i in step.writes if spans.get(i, (k, k))[0] == k}
        yield from _pairs(schedule, step, dying, fresh)


def _slots(
    schedule: Schedule, spans: dict[int, tuple[int, int]], alignment: int, adopts: bool
) -> tuple[list[ArenaSlot], list[ArenaSlot] | None]:
    """One slot for buffers that take over memory from each other; one for each other buffer.

    Then those of what is adopted, which nothing takes over.
    """
    apart = adopted_roots(schedule) if adopts else frozenset()
    slots: dict[int, ArenaSlot] = {}
    for b, (first, last) in spans.items():
        slots[b] = ArenaSlot([b], round_up(schedule.buffers[b].nbytes, alignment), first, last)
    adopted = [slots.pop(b) for b in sorted(apart)]
    spans = {b: span for b, span in spans.items() if b not in apart}
    for k, step in enumerate(schedule.steps):
        if adopts and (nbytes := passing_bytes(schedule, step)):
            adopted.append(ArenaSlot([], round_up(nbytes, alignment), k, k))
        inherited: set[int] = set()
        for heir, parent in _heirs(schedule, k, step, spans):
            if heir in spans and not {heir, parent} & inherited:
                inherited |= {heir, parent}
                slot = slots[parent]
                slot.buffers.append(heir)
                slot.last = spans[heir][1]
                slots[heir] = slot
    return list({id(s): s for s in slots.values()}.values()), adopted if adopts else None


# -- placing ---------------------------------------------------------------------------------

_NO_GAP = np.iinfo(np.int64).max


def _by_size(slot: ArenaSlot) -> tuple:
    return -slot.nbytes, slot.first


def _by_time(slot: ArenaSlot) -> tuple:
    return slot.first, -slot.nbytes


def _by_life(slot: ArenaSlot) -> tuple:
    return slot.first - slot.last, -slot.nbytes


def _by_area(slot: ArenaSlot) -> tuple:
    return (slot.first - slot.last - 1) * slot.nbytes, slot.first


def _place(slots: list[ArenaSlot], least: int) -> list[int]:
    """The offsets of the best of some orders; the first that takes the least bytes ends it."""
    best, size = [0] * len(slots), inf
    for key in (_by_size, _by_time, _by_life, _by_area):
        offsets = _place_slots(slots, key)
        if _end(slots, offsets) < size:
            best, size = offsets, _end(slots, offsets)
        if size <= least:
            break
    return best


def _place_slots(slots: list[ArenaSlot], key: Callable[[ArenaSlot], tuple]) -> list[int]:
    """The offsets: each slot in turn goes into the smallest gap that it fits."""
    offsets = [0] * len(slots)
    # Those that are placed, by offset: first and last steps, offsets and ends.
    first, last, start, stop = placed = np.zeros((4, len(slots)), np.int64)
    for count, n in enumerate(sorted(range(len(slots)), key=lambda n: key(slots[n]))):
        slot = slots[n]
        meets = (first[:count] <= slot.last) & (last[:count] >= slot.first)
        at = offsets[n] = _gap(start[:count][meets], stop[:count][meets], slot.nbytes)
        # Ranges without bytes come before those that begin where they are.
        k = int(start[:count].searchsorted(at, "right" if slot.nbytes else "left"))
        placed[:, k + 1 : count + 1] = placed[:, k:count]
        placed[:, k] = slot.first, slot.last, at, at + slot.nbytes
    return offsets


def _gap(start: np.ndarray, stop: np.ndarray, nbytes: int) -> int:
    """The start of the smallest gap between taken ranges; their end if none is wide enough.

    start, stop  of the ranges, in the order of `start`
    """
    if not len(start):
        return 0
    ends = np.maximum.accumulate(stop)
    width = start.copy()
    width[1:] -= ends[:-1]  # of the gap before each range
    width[width < nbytes] = _NO_GAP
    k = int(width.argmin())
    if width[k] == _NO_GAP:
        return int(ends[-1])
    return int(ends[k - 1]) if k else 0


def _end(slots: list[ArenaSlot], offsets: list[int]) -> int:
    return max((at + s.nbytes for at, s in zip(offsets, slots, strict=True)), default=0)


def live_bytes(schedule: Schedule, alignment: int = ALIGNMENT, adopts: bool = False) -> list[int]:
    """By step, the bytes that are alive, in the arena and adopted."""
    return [sum(both) for both in zip(*live_apart(schedule, alignment, adopts), strict=True)]


def live_apart(
    schedule: Schedule, alignment: int = ALIGNMENT, adopts: bool = False
) -> tuple[list[int], list[int]]:
    """By step, the bytes that are alive in the arena, and those that are adopted.

    The least that a plan takes is the largest of the ones and the largest of the others.
    """
    slots, adopted = _slots(schedule, lifetimes(schedule), alignment, adopts)
    count = len(schedule.steps)
    return bytes_by_step(slots, count), bytes_by_step(adopted or [], count)


def bytes_by_step(slots: Iterable[ArenaSlot], steps: int) -> list[int]:
    """By step, the bytes of the slots that are alive."""
    change = [0] * (steps + 1)
    for s in slots:
        change[s.first] += s.nbytes
        change[s.last + 1] -= s.nbytes
    return list(accumulate(change))
