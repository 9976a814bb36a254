"""Which steps of a schedule may run again, with what operands, and at what cost.

Steps that write the same buffer (the parts of a concatenation, say, or a product that adds to its
result) are one unit: they run again together, in order, into new buffers. A product and its
epilogue are two units: the epilogue alone may run again while the product is there.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import inf, prod

from ...core.record import record
from ..ir.kernel import FoldStep, renumber
from ..ir.schedule import (
    GemmStep,
    KernelStep,
    NativeStep,
    Schedule,
    ScheduleStep,
    TiledStep,
)
from ..memory import adopted_roots, live_apart, round_up

NEVER = -1  # expires before the first step
_HEAVY, _RATE = 16, 50.0  # operations of a heavy row, and of a routine in a nanosecond

Cost = Callable[[Schedule, ScheduleStep], float]


@record
class Part:
    """A step, or the product or epilogue of a tiled one, with its position in the schedule."""

    at: int
    step: ScheduleStep


@record
class Unit:
    """Parts that run again together.

    reads    the scratch buffers of other units that it reads
    writes   the buffers that it writes, most of them scratch; copies of outputs are not used
    cost     of one run, in nanoseconds
    expires  the last position before which it may run again: inputs are overwritten after it
    """

    parts: tuple[Part, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    cost: float
    expires: float


class Recipes:
    """The units of a schedule, and the life of its scratch buffers.

    Buffers are roots, by their number in the schedule.

    units     in the order of their first steps
    unit_of   the unit that writes a buffer
    sources   by unit, the buffers that it reads, each with the unit that writes it
    expires   by unit, the last position before which it may run again
    sizes     bytes of scratch buffers in the arena; none for those that the target adopts
    profile   by position, the bytes that are alive in the arena
    outside   bytes that the target adopts, at the worst step
    settled   the last step that writes a scratch buffer
    reads     by position, the scratch buffers that must be there before a step
    makes     by position, the scratch buffers that are written first there
    ends      by position, the scratch buffers that are written last there
    uses      the positions of the steps that read a buffer after it is settled
    children  the buffers that units which read a buffer, and may run again, write
    cost      of the whole schedule, in nanoseconds
    """

    def __init__(self, schedule: Schedule, cost: Cost, alignment: int, adopts: bool = False):
        self.schedule = schedule
        self._roots: dict[int, tuple[int, ...]] = {}  # by the identity of a step, which stays
        self._roles = [b.role for b in schedule.buffers]
        parts = list(_parts(schedule))
        self._first, self.settled = self._written(parts)
        adopted = adopted_roots(schedule) if adopts else frozenset()
        self.sizes = {
            i: 0 if i in adopted else round_up(schedule.buffers[i].nbytes, alignment)
            for i in self._first
            if self._roles[i] == "scratch"
        }
        self.profile, outside = live_apart(schedule, alignment, adopts)
        self.outside = max(outside)
        self._expires = _overwritten(schedule)
        self.units = self._units(parts, cost)
        self.cost = sum([cost(schedule, step) for step in schedule.steps])
        self.unit_of = {i: n for n, u in enumerate(self.units) for i in u.writes}
        self.sources = [[(i, self.unit_of[i]) for i in u.reads] for u in self.units]
        self.expires = [u.expires for u in self.units]
        self._life()

    def _written(self, parts: Sequence[Part]) -> tuple[dict[int, int], dict[int, int]]:
        """The first and last positions at which roots are written."""
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for p in parts:
            for i in _roots(self.schedule, p.step.writes):
                first.setdefault(i, p.at)
                last[i] = p.at
        return first, last

    def _units(self, parts: Sequence[Part], cost: Cost) -> list[Unit]:
        groups = _groups(self.schedule, parts)
        torn = self._torn(parts, groups)
        made = [self._unit(group, torn, cost) for group in groups]
        return [unit for unit in made if unit.parts]

    def _torn(self, parts: Sequence[Part], groups: Sequence[Sequence[Part]]) -> set[int]:
        """The roots that a step reads before the last one of the unit that writes them.

        Steps of that unit itself may read them. Others come between its steps, and may compute what
        the later ones read: it cannot run again at once.
        """
        number = {id(p): n for n, p in enumerate(parts)}
        last: dict[int, int] = {}
        unit: dict[int, int] = {}
        for k, group in enumerate(groups):
            for i in _every_root(self.schedule, group):
                last[i], unit[i] = number[id(group[-1])], k
        own = {id(p): k for k, group in enumerate(groups) for p in group}
        torn = set()
        for n, p in enumerate(parts):
            for i in _roots(self.schedule, p.step.reads):
                if unit.get(i) != own[id(p)] and last.get(i, -1) > n:
                    torn.add(i)
        return torn

    def _unit(self, group: Sequence[Part], torn: set[int], cost: Cost) -> Unit:
        schedule, written = self.schedule, {*_every_root(self.schedule, group)}
        group = [p for p in map(self._without_outputs, group) if p.step.writes]
        writes = list(dict.fromkeys(i for p in group for i in _roots(schedule, p.step.writes)))
        read = dict.fromkeys(i for p in group for i in _roots(schedule, p.step.reads))
        others = [i for i in read if i not in writes]
        again = all(_runs_again(p.step) for p in group) and not torn & {*read, *written}
        expires = min([self._expires.get(i, inf) for i in others], default=inf)
        return Unit(
            tuple(group),
            tuple(i for i in others if self._roles[i] == "scratch"),
            tuple(writes),
            sum(cost(schedule, p.step) for p in group),
            expires if again else NEVER,
        )

    def _without_outputs(self, part: Part) -> Part:
        """A kernel that runs again does not write outputs again, nor read what only they need."""
        step = part.step
        if not isinstance(step, KernelStep):
            return part
        roles = [self._roles[self.schedule.storage(i)] for i in step.results]
        kept = [n for n, role in enumerate(roles) if role == "scratch"]
        return part if len(kept) == len(roles) else replace(part, step=pruned(step, kept))

    def _life(self) -> None:
        count = len(self.schedule.steps)
        self.reads: list[list[int]] = [[] for _ in range(count)]
        self.makes: list[list[int]] = [[] for _ in range(count)]
        self.ends: list[list[int]] = [[] for _ in range(count)]
        self.uses: dict[int, list[int]] = {i: [] for i in self.sizes}
        self.children: dict[int, list[int]] = {i: [] for i in self.sizes}
        for k, step in enumerate(self.schedule.steps):
            for i in _roots(self.schedule, step.reads):
                if i in self.sizes and self._first[i] < k:
                    self.reads[k].append(i)
                    self.uses[i].append(k)
        for i in self.sizes:
            self.makes[self._first[i]].append(i)
            self.ends[self.settled[i]].append(i)
        for u in self.units:
            if u.expires != NEVER:
                for i in u.reads:
                    self.children[i] += [w for w in u.writes if w in self.sizes]

    def roots(self, step: ScheduleStep) -> tuple[int, ...]:
        """The roots that a step of the schedule, or a part of a unit, reads and writes."""
        found = self._roots.get(id(step))
        if found is None:
            found = tuple(_roots(self.schedule, (*step.reads, *step.writes)))
            self._roots[id(step)] = found
        return found

    def flops(self, unit: Unit) -> float:
        """The operations of a unit for each element of its largest result."""
        buffers = self.schedule.buffers
        size = max([buffers[i].size for i in unit.writes], default=1)
        return sum([_flops(p.step, unit.cost) for p in unit.parts]) / max(size, 1)

    def nbytes(self, unit: Unit) -> int:
        """The bytes that a unit's new buffers take."""
        buffers, sizes = self.schedule.buffers, self.sizes
        return sum([sizes[i] if i in sizes else round_up(buffers[i].nbytes) for i in unit.writes])


def _roots(schedule: Schedule, buffers: Sequence[int]) -> list[int]:
    return list(dict.fromkeys(map(schedule.storage, buffers)))


def _every_root(schedule: Schedule, parts: Sequence[Part]) -> Iterator[int]:
    for p in parts:
        yield from _roots(schedule, p.step.writes)


def pruned(step: KernelStep, kept: Sequence[int]) -> KernelStep:
    """A kernel with some of its results, and what they are computed of."""
    kernel = replace(step.kernel, results=tuple([step.kernel.results[n] for n in kept]))
    base, live = len(kernel.operands), sorted(kernel.live)
    number = {i: k for k, i in enumerate(live)}
    results = tuple([replace(r, value=number[r.value]) for r in kernel.results])
    made = replace(
        kernel,
        operands=tuple([kernel.operands[i] for i in live if i < base]),
        steps=tuple([renumber(kernel.steps[i - base], number) for i in live if i >= base]),
        results=results,
        piece=kernel.piece if any(r.over_rows for r in results) else 0,
    )
    operands = tuple([step.operands[i] for i in live if i < base])
    return replace(
        step, kernel=made, operands=operands, results=tuple(step.results[n] for n in kept)
    )


def _parts(schedule: Schedule) -> Iterator[Part]:
    for k, step in enumerate(schedule.steps):
        if isinstance(step, TiledStep):
            yield Part(k, step.product)
            yield Part(k, step.then)
        else:
            yield Part(k, step)


def _groups(schedule: Schedule, parts: Sequence[Part]) -> list[list[Part]]:
    """The parts, together with those that write the same roots; in the order of their first."""
    group_of: dict[int, list[int]] = {}  # by root
    member: list[list[int]] = []
    for n, p in enumerate(parts):
        group = [n]
        for i in _roots(schedule, p.step.writes):
            other = group_of.get(i)
            if other is not None and other is not group:
                merged = sorted([*other, *group])
                for m in merged:
                    for j in _roots(schedule, parts[m].step.writes):
                        group_of[j] = merged
                    if m < n:
                        member[m] = merged
                group = merged
            group_of[i] = group
        member.append(group)
    once = {group[0]: group for group in member}
    return [[parts[n] for n in group] for _, group in sorted(once.items())]


def _overwritten(schedule: Schedule) -> dict[int, int]:
    """The position of the first step that overwrites each donated input."""
    found: dict[int, int] = {}
    for k, step in enumerate(schedule.steps):
        for i in _roots(schedule, step.writes):
            donor = schedule.buffers[i].takes
            if donor is not None:
                found.setdefault(donor, k)
    return found


def _runs_again(step: ScheduleStep) -> bool:
    """Whether a step computes the same again, without effects; random numbers are drawn once."""
    if isinstance(step, NativeStep):
        return not (step.routine.endless or step.routine.draws)
    return isinstance(step, KernelStep | GemmStep)


def _flops(step: ScheduleStep, cost: float) -> float:
    """The operations of a step; a heavy one counts for many, a routine by its time."""
    if isinstance(step, GemmStep):
        return step.flops
    if isinstance(step, KernelStep):
        light = [isinstance(s, FoldStep) or s.is_light for s in step.kernel.steps]
        return prod(step.kernel.domain) * sum([1 if x else _HEAVY for x in light])
    return _RATE * cost
