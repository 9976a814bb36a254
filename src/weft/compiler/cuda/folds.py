"""Kernels with folds: a team of threads for each line, or for some lines side by side."""

from collections.abc import Callable, Sequence
from math import prod

from ...core.record import field, record
from ..emit.code import LLValue
from ..emit.folds import accumulator_dtype
from ..ir.axes import Axis, axes_of, merge_axes
from ..ir.kernel import FoldStep, Kernel
from .arrays import GridArrays, Point, dtypes_of, index_type
from .flat import WHOLE, most_lanes, pick_lane, pick_lanes
from .held import held_bytes, hold_line
from .machine import WARP, Machine
from .sweeps import SweepEmitter, Turn, Turns, changes, retained
from .teams import Rows, fold_columns, fold_neighbours

# Threads of a block at most; of a block of several short lines; and of a row of columns.
BLOCK, SHORT, WIDTH = 1024, 128, 32
# Registers of a processor that may hold what several sweeps use, and of a thread.
REGISTERS, OWN = 40_960, 160
# Turns that are emitted one after the other; those of a loop's body; terms from which on a thread
# adds sums of runs.
UNROLLED, BODY, MANY = 8, 4, 256
# Bytes of an array that a thread should have under way.
UNDER_WAY = 16
# Lines from which on there are enough of them; threads and blocks that fill the processor.
LINES, THREADS, BLOCKS = 512, 1 << 17, 128
# Bytes of shared memory.
SHARED = 32 << 10


@record
class FoldPlan:
    """How threads share lines.

    kept, folds  the axes but the one whose elements are computed side by side, `lane`
    groups       the groups of `lanes` elements of a line, or the elements of lines side by side
    team         the threads of a line
    lines        the lines, or groups of lines, of a block
    count        all lines, or groups of lines
    unrolled     whether a thread's turns are emitted one by one
    ragged       the length of all lines together, if the last of them is shorter; else 0
    rest         the elements of a line after its last whole group; one thread has them
    held         whether shared memory has what several sweeps read of a line
    """

    kept: tuple[Axis, ...]
    folds: tuple[Axis, ...]
    lane: Axis
    lane_folded: bool
    lanes: int
    groups: int
    team: int
    lines: int
    count: int
    unrolled: bool
    ragged: int = 0
    rest: int = 0
    held: bool = False

    @property
    def block(self) -> int:
        return self.team * self.lines

    @property
    def grid(self) -> int:
        return -(-self.count // self.lines)

    @property
    def together(self) -> int:
        """The blocks that a multiprocessor should have room for."""
        return 2 if self.held and 2 * self.block <= BLOCK else 1

    @property
    def turns(self) -> int:
        return -(-self.groups // self.team) + bool(self.rest)


def plan_folds(kernel: Kernel, aligned: int) -> FoldPlan:
    """The plan of a kernel with folds."""
    made = _plan(kernel, aligned, most_lanes(kernel))
    if made.held:  # then more is loaded at once
        wider = _plan(kernel, aligned, most_lanes(kernel, of_elements=True))
        return wider if wider.held else made
    return made


def _plan(kernel: Kernel, aligned: int, most: int) -> FoldPlan:
    axes = [(axis, a in kernel.folded) for a, axis in enumerate(axes_of(kernel)) if axis.size != 1]
    kept = merge_axes([axis for axis, folded in axes if not folded])
    folds = merge_axes([axis for axis, folded in axes if folded])
    kinds = dtypes_of(kernel)
    lane = pick_lane([*kept, *folds], kinds)
    lane_folded = not any(axis is lane for axis in kept)
    kept = [axis for axis in kept if axis is not lane]
    folds = [axis for axis in folds if axis is not lane]
    whole = WHOLE if lane_folded and not folds else 0
    lanes = pick_lanes([*kept, *folds], lane, kinds, aligned, most, whole)
    groups = prod([axis.size for axis in folds])
    count = prod([axis.size for axis in kept])
    held = False
    if not lane_folded:
        lanes = spread_columns(count * lane.size, lanes)
    along, rest = lane.size // lanes, lane.size % lanes
    if lane_folded:
        team, lines, unrolled = fit_lines(kernel, groups * along, count, lanes, rest)
        groups *= along
        alone = lines == 1 and not folds and not unrolled
        held = alone and bool(held_bytes(kernel, lane, lanes))
        if held and count >= LINES:
            team = min(team, BLOCK // 2)  # one block computes while another one loads
    else:
        count *= along
        team, lines, unrolled = fit_columns(kernel, groups, count, lanes)
    return FoldPlan(
        *(tuple(kept), tuple(folds), lane, lane_folded, lanes),
        *(groups, team, lines, count, unrolled),
        *(0, rest, held),
    )


def power_of_two(n: int) -> int:
    """The smallest one that is not less than n."""
    return 1 << max(n - 1, 0).bit_length()


def fit_lines(
    kernel: Kernel, groups: int, count: int, lanes: int, rest: int = 0
) -> tuple[int, int, bool]:
    """Team, lines of a block, and whether to unroll, for folds along lines."""

    def fits(team: int) -> bool:
        return fits_registers(kernel, -(-groups // team) + bool(rest), lanes, team)

    half = -(-groups // 2) if count >= LINES else groups
    team = min(power_of_two(half), BLOCK)
    if WARP < team and groups <= 4 * WARP and fits(WARP):
        team = WARP
    most = min(power_of_two(groups), BLOCK)
    while team < most and not fits(team):
        team *= 2
    lines = 1 if team > WARP else max(min(SHORT, WARP * power_of_two(count)) // team, WARP // team)
    return team, lines, fits(team)


def fits_registers(kernel: Kernel, turns: int, lanes: int, team: int) -> bool:
    """Whether what a thread holds fits its registers."""
    return turns <= UNROLLED and words_held(kernel, turns * lanes) <= min(REGISTERS // team, OWN)


def words_held(kernel: Kernel, count: int) -> int:
    """The words of a thread's `count` elements that several sweeps use, or folds of columns.

    A row of a piece is loaded while the one before is computed.
    """
    columns = sum(bool(r.over_rows) for r in kernel.results)
    rows = [o for i, o in enumerate(kernel.operands) if kernel.piece and changes(kernel, i)]
    ahead = sum(o.dtype.itemsize for o in rows if any(o.strides[a] for a in kernel.folded))
    return (retained(kernel) + columns) * count + ahead * count // 4


def spread_columns(columns: int, lanes: int) -> int:
    """Fewer columns side by side where there would not be enough blocks."""
    while lanes > 1 and columns // lanes < BLOCKS * WIDTH:
        lanes //= 2
    return lanes


def fit_columns(kernel: Kernel, groups: int, count: int, lanes: int) -> tuple[int, int, bool]:
    """The same for folds of several lines side by side."""
    kinds = [accumulator_dtype(s.kind, s.dtype) for s in kernel.steps if isinstance(s, FoldStep)]
    row = WIDTH * lanes * max(sum(d.itemsize for d in kinds), 1)
    most = min(THREADS // max(count, 1), power_of_two(groups) // 4, BLOCK // WIDTH, SHARED // row)
    team = power_of_two(most + 1) // 2 if most > 0 else 1
    lines = WIDTH if team > 1 else SHORT
    return team, lines, fits_registers(kernel, -(-groups // team), lanes, SHORT)


@record
class LineWalk:
    """A thread's turns along a line: each team's thread takes every `team`-th group."""

    arrays: GridArrays
    plan: FoldPlan
    member: LLValue
    length: LLValue | None = None  # of a line that may be shorter than the others
    kept: dict[Point, list[Turn]] = field(default_factory=dict)

    def each(self, point: Point, body: Callable[[Turns], None]) -> None:
        plan, arrays = self.plan, self.arrays
        if plan.unrolled:
            body(self.turns(point))
            return
        step = plan.team * self._body
        whole = plan.groups // step * step
        if whole:
            arrays.loop(whole, step, lambda i: body(self._some(point, i, 0, step)))
        if plan.groups > whole:
            body(self._some(point, arrays.number(whole), whole, plan.groups - whole))
        if plan.rest:
            arrays.when(self._has_rest, lambda: body([self._rest(point)]))

    @property
    def _body(self) -> int:
        """The turns of a loop's body: more of them where each loads little."""
        if not self.plan.lane_folded:
            return BODY
        kernel = self.arrays.kernel
        moving = [o for i, o in enumerate(kernel.operands) if kernel.settled[i] == 0]
        least = min([o.dtype.itemsize for o in moving], default=UNDER_WAY)
        return max(BODY, UNDER_WAY // (self.plan.lanes * least))

    def turns(self, point: Point) -> list[Turn]:
        """All turns of a site, where they are emitted one by one."""
        if point not in self.kept:
            self.kept.clear()
            made = self._some(point, self.arrays.number(0), 0, self.plan.groups)
            if self.plan.rest:
                made.append(self._rest(point, self._has_rest))
            self.kept[point] = made
        return self.kept[point]

    @property
    def _has_rest(self) -> LLValue:
        """Whether this thread has the elements after the last whole group."""
        return self.member.equals(self.plan.groups % self.plan.team)

    def _rest(self, point: Point, inside: LLValue | None = None) -> Turn:
        plan, arrays = self.plan, self.arrays
        group = arrays.number(plan.groups)
        at = arrays.advance(point, plan.lane, group, plan.lanes)
        return Turn(at, inside, plan.rest, group)

    def _some(self, point: Point, start: LLValue, skipped: int, count: int) -> list[Turn]:
        """The turns from a group on, of `count` groups; `skipped` is `start` where it is known."""
        arrays, team, made = self.arrays, self.plan.team, []
        for first in range(0, count, team):
            group, inside = arrays.plus(self.member, start), None
            group = arrays.plus(group, first) if first else group
            if self.length is not None:
                inside = group < self.length
                group = inside.choose(group, arrays.plus(self.length, -1))
            elif first + team > count:
                inside = group < skipped + count
                group = inside.choose(group, arrays.number(skipped + count - 1))
            made.append(Turn(self._point(point, group), inside, group=group))
        return made

    def _point(self, point: Point, group: LLValue) -> Point:
        plan, arrays = self.plan, self.arrays
        if not plan.lane_folded:
            return arrays.walk(point, plan.folds, group)
        line = Axis(plan.lane.size // plan.lanes, plan.lane.strides)
        *places, along = arrays.split(group, [*plan.folds, line])
        for axis, at in zip(plan.folds, places, strict=True):
            point = arrays.advance(point, axis, at)
        return arrays.advance(point, plan.lane, along, plan.lanes)


def emit_folds(kernel: Kernel, plan: FoldPlan, machine: Machine, aligned: int) -> None:
    """Emit the function of one thread."""
    index = index_type(kernel, plan.grid * plan.block)
    arrays = GridArrays(machine, kernel, plan.lane, [*plan.kept, *plan.folds], aligned, index)
    thread = machine.thread()
    if plan.lane_folded:
        line, member = thread.divide(plan.team, False), thread.modulo(plan.team, False)
    else:
        line, member = thread.modulo(plan.lines, False), thread.divide(plan.lines, False)
    rows = Rows(plan.lines, plan.team, line, member)
    across = _across(arrays, plan, rows)
    base = len(kernel.operands)
    place = arrays.plus(arrays.times(arrays.wide(machine.block()), plan.lines), arrays.wide(line))
    inside = None
    if plan.count % plan.lines:
        inside = place < plan.count
        place = inside.choose(place, arrays.number(plan.count - 1))
    length = _length(arrays, plan, place) if plan.ragged else None
    emitter = SweepEmitter(
        *(kernel, arrays, LineWalk(arrays, plan, arrays.wide(member), length)),
        *(plan.lanes, plan.lane_folded, not plan.unrolled and plan.turns > MANY),
        *(across, None if plan.team == 1 else member.equals(0)),
        lambda r, turn, value: arrays.write(base + r, turn.point, value, turn.count),
        hold_line(arrays, plan.lane, plan.lanes) if plan.held else None,
    )
    emitter.site(_site(arrays, plan, place), inside)
    machine.finish()


def _length(arrays: GridArrays, plan: FoldPlan, place: LLValue) -> LLValue:
    """The length of the lines of a piece: the first of the kept axes counts pieces."""
    along = plan.count // plan.kept[0].size
    first = arrays.times(place.divide(along, False), plan.groups)
    return shorter(arrays, first, plan.groups, plan.ragged)


def shorter(arrays: GridArrays, start: LLValue, length: int, end: int) -> LLValue:
    """`length`, or what is left from `start` to `end`."""
    left = end - start
    return (left < length).choose(left, arrays.number(length))


def _across(arrays: GridArrays, plan: FoldPlan, rows: Rows) -> Callable[[Sequence], list[LLValue]]:
    if plan.lane_folded:
        return lambda parts: fold_neighbours(arrays, parts, plan.team)
    return lambda parts: fold_columns(arrays, parts, rows)


def _site(arrays: GridArrays, plan: FoldPlan, place: LLValue) -> Point:
    if plan.lane_folded:
        return arrays.walk(arrays.start, plan.kept, place)
    line = Axis(plan.lane.size // plan.lanes, plan.lane.strides)
    *places, along = arrays.split(place, [*plan.kept, line])
    point = arrays.start
    for axis, at in zip(plan.kept, places, strict=True):
        point = arrays.advance(point, axis, at)
    return arrays.advance(point, plan.lane, along, plan.lanes)
