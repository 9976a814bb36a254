"""Merge kernels that do not depend on each other into one launch.

A launch takes as long as a kernel of some hundred thousand elements. Kernels of one family, which
compute the same of arrays of any sizes, wait until a step needs one of their results. Then they are
launched together, with those that come later and could run already. Of larger kernels those are
merged that have little from the cache: casts of weights, updates of parameters.
"""

from collections.abc import Hashable, Iterator, Sequence
from itertools import accumulate
from math import inf, prod

from ...core.record import record
from ..ir.kernel import Kernel
from ..ir.schedule import KernelStep, NativeStep, Schedule, ScheduleStep
from ..ir.verify import may_fail
from ..limits import Limits
from ..memory import live_bytes, plan
from .arrays import aligned_of
from .costs import gain_of_merging
from .flat import FlatPlan
from .folds import FoldPlan
from .routines.many import ManyKernels, access_of, body_key, plan_part, reach_of

# Elements of a small kernel at most: larger ones take longer than a launch, and what they read may
# be in the cache only where they are.
ELEMENTS = 1 << 20
# Bytes after which the cache has something else.
CACHE = 1 << 25
# What large kernels may take of the memory that is not in use at a step.
SHARES = (1 / 2, 1 / 4, 1 / 16)
# Parameters of a launch at most (they have 4 KiB), and bodies of its code.
PARAMETERS, BODIES = 400, 8


def merge_launches(
    schedule: Schedule, alignment: int, limits: Limits, tight: bool = False
) -> Schedule:
    """The schedule with kernels merged, where that takes hardly more memory.

    tight  whether large kernels stay where they are: what they keep alive is much
    """
    families = _families(schedule)
    small = {k: family for k, family in families.items() if not family.large}
    live = live_bytes(schedule, alignment, adopts=True) if families else []
    most = max(int(max(live, default=0) * (1 + limits.remat_share / 2)), limits.arena_bytes)
    room = [most - n for n in live]
    if len(small) < len(families) and not tight:
        before = plan(schedule, alignment, adopts=True).peak
        allowed = max(before * (1 + limits.remat_share), limits.arena_bytes)
        # Arrays that are alive for long leave gaps in the arena: the fewer of them, the less.
        for share in SHARES:
            made = _Merger(schedule, families, [int(n * share) for n in room]).merged()
            if plan(made, alignment, adopts=True).peak <= allowed:
                return made
    return _Merger(schedule, small, room).merged() if small else schedule


# -- what may be merged ------------------------------------------------------------------------


@record
class Family:
    """Kernels that may be in one launch: those of equal forms, large or small."""

    form: Hashable
    large: bool


def _families(schedule: Schedule) -> dict[int, Family]:
    """The family of each step that has one, with others in it."""
    found: dict[Family, list[int]] = {}
    cache = _Cache(schedule)
    for k, step in enumerate(schedule.steps):
        if not isinstance(step, KernelStep) or not _is_mergeable(step.kernel):
            continue
        large = prod(step.kernel.domain) > ELEMENTS
        if not large or (_is_of_inputs(schedule, step) and gain_of_merging(cache.nbytes(k)) > 0):
            family = Family(_form(step.kernel, _aligned(schedule, step)), large)
            found.setdefault(family, []).append(k)
    return {k: family for family, steps in found.items() if len(steps) > 1 for k in steps}


def _is_mergeable(kernel: Kernel) -> bool:
    arrays = len(kernel.operands) + len(kernel.results)
    if kernel.piece or not prod(kernel.domain) or arrays > PARAMETERS // 2:
        return False
    ends = [abs(end) for n in range(arrays) for end in reach_of(kernel, n)]
    return max(ends, default=0) < 2**30


def _is_of_inputs(schedule: Schedule, step: KernelStep) -> bool:
    """Whether a kernel has no folds, and half of what it reads at least are inputs.

    Others compute activations again, maybe: those would take the room that weights need.
    """
    total = given = 0
    for n, i in enumerate(step.operands):
        nbytes = _nbytes(step.kernel, n)
        total += nbytes
        given += nbytes if schedule.buffers[schedule.storage(i)].role == "input" else 0
    return not step.kernel.folded and 2 * given >= total


def _nbytes(kernel: Kernel, number: int) -> int:
    """The bytes that a kernel accesses of an array."""
    access = access_of(kernel, number)
    return access.size * access.dtype.itemsize


class _Cache:
    """What the cache may have of kernels' arrays where they are in a schedule."""

    def __init__(self, schedule: Schedule):
        self._schedule = schedule
        moved = [sum([schedule.buffers[i].nbytes for i in _buffers(s)]) for s in schedule.steps]
        self._moved = [0, *accumulate(moved)]
        self._writers: dict[int, list[int]] = {}
        self._readers: dict[int, list[int]] = {}
        for k, step in enumerate(schedule.steps):
            for found, buffers in ((self._writers, step.writes), (self._readers, step.reads)):
                for root in {schedule.storage(i) for i in buffers}:
                    found.setdefault(root, []).append(k)

    def nbytes(self, k: int) -> int:
        """The bytes of step k's operands, and of its results that a later step finds there."""
        step, total = self._schedule.steps[k], 0
        assert isinstance(step, KernelStep)
        for n, i in enumerate((*step.operands, *step.results)):
            root, size = self._schedule.storage(i), _nbytes(step.kernel, n)
            distance = self._since(k, root) if n < len(step.operands) else self._until(k, root)
            total += size if distance + size <= CACHE else 0
        return total

    def _since(self, k: int, root: int) -> float:
        """The bytes that are moved after an array was written and before step k."""
        before = [j for j in self._writers.get(root, ()) if j < k]
        return self._moved[k] - self._moved[before[-1] + 1] if before else inf

    def _until(self, k: int, root: int) -> float:
        """The bytes that are moved after step k and before an array is read."""
        after = [j for j in self._readers.get(root, ()) if j > k]
        return self._moved[after[0]] - self._moved[k + 1] if after else inf


def _buffers(step: ScheduleStep) -> set[int]:
    return {*step.reads, *step.writes}


def _aligned(schedule: Schedule, step: KernelStep) -> int:
    """What all arrays of a step are multiples of, in bytes, but single numbers."""
    places = enumerate((*step.operands, *step.results))
    return aligned_of(schedule, [i for n, i in places if access_of(step.kernel, n).size > 1])


def _form(kernel: Kernel, aligned: int) -> Hashable:
    """Equal for kernels that may be in one launch: they have the same steps and blocks."""
    _, plan = plan_part(kernel, aligned)
    if isinstance(plan, FoldPlan) and not plan.lane_folded:
        return kernel, aligned  # each body has much shared memory
    kinds = tuple([o.dtype for o in kernel.operands])
    stored = tuple([r.value for r in kernel.results])
    return kinds, kernel.steps, stored, isinstance(plan, FlatPlan), plan.block, aligned


# -- dependences -------------------------------------------------------------------------------


def dependences(schedule: Schedule) -> list[set[int]]:
    """For each step, the steps before it that it must follow.

    A step follows those that write what it reads, that read what it overwrites, and that write the
    same place; and if it overwrites an input, those that may fail.
    """
    writers: dict[int, list[tuple[int, tuple[int, int]]]] = {}
    readers: dict[int, list[int]] = {}
    failing: list[int] = []
    found: list[set[int]] = []
    for k, step in enumerate(schedule.steps):
        after: set[int] = set()
        for root in {schedule.storage(i) for i in step.reads}:
            after.update([w for w, _ in writers.get(root, ())])
            readers.setdefault(root, []).append(k)
        for root, place in _places(schedule, step):
            takes = schedule.buffers[root].takes
            after.update(readers.get(root, ()))
            after.update([w for w, other in writers.get(root, ()) if _meet(place, other)])
            if takes is not None:
                after.update(readers.get(takes, ()), failing)
            writers.setdefault(root, []).append((k, place))
        if may_fail(step):
            failing.append(k)
        found.append(after - {k})
    return found


def _places(schedule: Schedule, step: ScheduleStep) -> Iterator[tuple[int, tuple[int, int]]]:
    """The roots that a step writes, and from which element to which."""
    if not isinstance(step, KernelStep):
        for i in step.writes:
            root = schedule.storage(i)
            yield root, (0, schedule.buffers[root].size)
        return
    for number, i in enumerate(step.results, len(step.operands)):
        low, high = reach_of(step.kernel, number)
        at = schedule.buffers[i].offset
        yield schedule.storage(i), (at + low, at + high)


def _meet(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] < b[1] and b[0] < a[1]


def _parameters(step: KernelStep) -> set[Hashable]:
    """The parameters of a kernel in a launch with others."""
    places = enumerate((*step.operands, *step.results))
    return {(i, access_of(step.kernel, n)) for n, i in places}


# -- merging -----------------------------------------------------------------------------------


@record(frozen=False, eq=False)
class _Pending:
    """Kernels of a family that wait to be launched, and the bytes that they keep alive."""

    aligned: int
    steps: list[int]
    buffers: set[Hashable]
    bodies: set[Hashable]
    nbytes: int


class _Merger:
    """Walks over the steps, in which kernels of families wait as long as they can."""

    def __init__(self, schedule: Schedule, families: dict[int, Family], room: list[int]):
        """`room` is, by step, what more may be alive in bytes."""
        self._schedule, self._families, self._room = schedule, families, room
        self._deps = dependences(schedule)
        self._members: dict[Family, list[int]] = {}
        for k, family in families.items():
            self._members.setdefault(family, []).append(k)
        self._waiting: dict[Family, _Pending] = {}
        self._done: set[int] = set()
        self._made: list[ScheduleStep] = []
        self._last = {schedule.storage(i): k for k, s in enumerate(schedule.steps) for i in s.reads}

    def merged(self) -> Schedule:
        for k, step in enumerate(self._schedule.steps):
            self._make_room(k)
            if k in self._done:
                continue
            family = self._families.get(k)
            if family is None:
                self._launch(self._needed(k), k)
                self._put(k, step)
            else:
                self._wait(k, family)
        self._launch(list(self._waiting), len(self._schedule.steps))
        s = self._schedule
        return Schedule(s.buffers, s.inputs, s.outputs, tuple(self._made), s.constants)

    def _make_room(self, k: int) -> None:
        """Launch what keeps too much alive until step k."""
        waiting = self._waiting
        while waiting and sum([w.nbytes for w in waiting.values()]) > self._room[k]:
            most = max(waiting, key=lambda family: waiting[family].nbytes)
            if not waiting[most].nbytes:
                return
            self._launch([most], k)

    def _put(self, k: int, step: ScheduleStep) -> None:
        self._done.add(k)
        self._made.append(step)

    def _step(self, k: int) -> KernelStep:
        step = self._schedule.steps[k]
        assert isinstance(step, KernelStep)
        return step

    # Waiting

    def _wait(self, k: int, family: Family) -> None:
        if family in self._needed(k) or not self._fits(k, family):
            self._launch([family], k)
        self._join(k, family)
        self._waiting[family].nbytes += self._dying(k)

    def _needed(self, k: int) -> list[Family]:
        """The families that must be launched before a step, through others, too."""
        found: dict[Family, None] = {}
        todo = [k]
        while todo:
            for j in self._deps[todo.pop()] - self._done:
                family = self._families[j]
                if family not in found:
                    found[family] = None
                    todo += self._waiting[family].steps
        return list(found)

    def _fits(self, k: int, family: Family) -> bool:
        waiting = self._waiting.get(family)
        if waiting is None:
            return True
        step = self._step(k)
        buffers = waiting.buffers | _parameters(step)
        bodies = waiting.bodies | {body_key(step.kernel, waiting.aligned)}
        return len(buffers) <= PARAMETERS and len(bodies) <= BODIES

    def _join(self, k: int, family: Family) -> None:
        step = self._step(k)
        if family not in self._waiting:
            aligned = _aligned(self._schedule, step)
            self._waiting[family] = _Pending(aligned, [], set(), set(), 0)
        waiting = self._waiting[family]
        waiting.steps.append(k)
        waiting.buffers |= _parameters(step)
        waiting.bodies.add(body_key(step.kernel, waiting.aligned))

    def _dying(self, k: int) -> int:
        """The bytes of scratch memory that a step is the last to read."""
        roots = {self._schedule.storage(i) for i in self._step(k).operands}
        mine = [self._schedule.buffers[r] for r in roots if self._last[r] == k]
        return sum([b.nbytes for b in mine if b.role == "scratch"])

    # Launching

    def _launch(self, families: Sequence[Family], now: int) -> None:
        """Launch families before step `now`, each after those that it needs."""
        for family in families:
            if family not in self._waiting:
                continue
            before = [f for k in self._waiting[family].steps for f in self._needed(k)]
            self._launch([f for f in dict.fromkeys(before) if f != family], now)
            self._advance(family, now)
            waiting = self._waiting.pop(family)
            self._done.update(waiting.steps)
            steps = [self._step(k) for k in waiting.steps]
            self._made.append(steps[0] if len(steps) == 1 else together(steps, waiting.aligned))

    def _advance(self, family: Family, now: int) -> None:
        """Let later kernels join that could run now; their results are alive from now on."""
        waiting = self._waiting[family]
        for k in self._members[family]:
            if k < now or k in self._done or k in waiting.steps or not self._deps[k] <= self._done:
                continue
            buffers = [self._schedule.buffers[i] for i in self._step(k).results]
            nbytes = sum([b.nbytes for b in buffers if b.role == "scratch"])
            if self._fits(k, family) and nbytes <= min(self._room[now : k + 1]):
                self._room[now : k + 1] = [n - nbytes for n in self._room[now : k + 1]]
                self._join(k, family)


def together(steps: Sequence[KernelStep], aligned: int) -> NativeStep:
    """One launch of kernels; an array that several access in the same way is one parameter."""
    kernels = list(dict.fromkeys([s.kernel for s in steps]))
    sides: tuple[dict[Hashable, int], ...] = ({}, {})
    buffers: tuple[list[int], list[int]] = ([], [])
    placed = []
    for step in steps:
        own = []
        for side, places in enumerate((step.operands, step.results)):
            for n, i in enumerate(places, side * len(step.operands)):
                key = i, access_of(step.kernel, n)
                if key not in sides[side]:
                    sides[side][key] = len(buffers[side])
                    buffers[side].append(i)
                own.append((side, sides[side][key]))
        placed.append((kernels.index(step.kernel), own))
    reads = len(buffers[0])
    members = tuple([(k, *(at + side * reads for side, at in own)) for k, own in placed])
    operands, results = map(tuple, buffers)
    routine = ManyKernels(tuple(kernels), members, reads, aligned)
    origins = tuple(dict.fromkeys([o for s in steps for o in s.origins]))
    return NativeStep(routine, operands, results, origins)
