"""Kernels without folds: every thread computes some groups of neighbouring elements."""

from collections.abc import Sequence
from functools import partial, reduce
from math import prod
from operator import or_

import numpy as np

from ...core.record import record
from ..emit.arithmetic import anywhere
from ..emit.code import LLValue
from ..ir.axes import Axis, axes_of, merge_axes
from ..ir.kernel import Kernel, moving
from .arrays import WIDEST, GridArrays, Point, alignment, dtypes_of, index_type
from .machine import WARP, Machine
from .steps import emit_step, heavy_steps, words_alive

# Threads of a block; elements that a thread has side by side at most.
BLOCK = 256
LANES = 8
# The same where more than so many steps are not light: each element of a long chain takes tens of
# registers, and the time is the arithmetic's.
LANES_OF_CHAINS = ((8, 1), (4, 2), (2, 4))
# Without folds they are as many as have so few words of values alive: 64 registers leave room for
# 32 warps, and neighbours share what is computed once for a thread.
WORDS = 56
# Lines of a block that is a tile: a warp for each.
ROWS = BLOCK // WARP
# Bytes of memory that are written at once.
SECTOR = 32
# Whole groups from which on a line may have elements after them.
WHOLE = WARP
# Bytes that a thread should have under way, and threads from which on it takes several groups.
UNDER_WAY, THREADS = 32, 1 << 18


@record
class FlatPlan:
    """How threads share a domain.

    outer   the axes but the one whose elements are computed side by side, `lane`
    rest    elements of a line after its last whole group; each has a thread of its own
    groups  the work: whole groups, then single elements
    spread  the groups of a thread
    tiled   whether a block has a warp of groups of each of some lines, and not more of one line:
            then what other arrays have side by side, along the last outer axis, is read at once
    """

    outer: tuple[Axis, ...]
    lane: Axis
    lanes: int
    rest: int
    groups: int
    spread: int
    block: int
    tiled: bool = False

    @property
    def grid(self) -> int:
        return -(-self.groups // (self.block * self.spread))


def plan_flat(kernel: Kernel, aligned: int) -> FlatPlan:
    """The plan of a kernel without folds."""
    kinds = dtypes_of(kernel)
    axes = merge_axes([axis for axis in axes_of(kernel) if axis.size != 1])
    lane = pick_lane(axes, kinds)
    outer = tuple([axis for axis in axes if axis is not lane])
    most = 1 if _interleaves(kernel, lane) else _most_lanes(kernel)
    lanes = pick_lanes(outer, lane, kinds, aligned, most, 1 if not outer else WHOLE)
    crossing = _crossing(outer, lane, lanes)
    if crossing is not None:
        outer = (*(axis for axis in outer if axis is not crossing), crossing)
    rest = lane.size % lanes
    groups = prod([axis.size for axis in outer]) * (lane.size // lanes + rest)
    spread = _spread(kernel, lane, lanes) if groups >= THREADS and not rest else 1
    if crossing is not None:
        return FlatPlan(outer, lane, lanes, rest, groups, 1, BLOCK, True)
    block = BLOCK if groups >= THREADS // 4 else BLOCK // 2
    return FlatPlan(outer, lane, lanes, rest, groups, spread, block)


def _crossing(outer: Sequence[Axis], lane: Axis, lanes: int) -> Axis | None:
    """Another axis along which some array is contiguous, if blocks can be tiles of both."""
    if lane.size % (lanes * WARP):
        return None
    fit = [axis for axis in outer if 1 in map(abs, axis.strides) and axis.size % ROWS == 0]
    return fit[-1] if fit else None


def _interleaves(kernel: Kernel, lane: Axis) -> bool:
    """Whether a result has gaps between elements that share a sector.

    Threads then have neighbouring elements: else each of them would write its sectors several
    times, and nothing joins those writes.
    """
    first = len(kernel.operands)
    pairs = [(lane.strides[first + k], r.value) for k, r in enumerate(kernel.results)]
    return any(s not in (0, 1) and abs(s) * kernel.dtypes[v].itemsize < SECTOR for s, v in pairs)


def most_lanes(kernel: Kernel, of_elements: bool = False) -> int:
    """The elements that a thread may have side by side.

    of_elements  whether steps that are computed once per line do not count
    """
    heavy = heavy_steps(kernel, of_elements)
    return next((lanes for steps, lanes in LANES_OF_CHAINS if heavy > steps), LANES)


def _most_lanes(kernel: Kernel) -> int:
    """The same for a kernel without folds."""
    lanes, words = LANES, words_alive(kernel)
    while is_chain(kernel) and lanes > 1 and lanes * words > WORDS:
        lanes //= 2
    return lanes


def is_chain(kernel: Kernel) -> bool:
    """Whether the time of a kernel is its arithmetic's."""
    return heavy_steps(kernel) > LANES_OF_CHAINS[-1][0]


def pick_lane(axes: Sequence[Axis], kinds: Sequence[np.dtype]) -> Axis:
    """The axis along which most bytes are contiguous; of equal ones the narrowest."""
    if not axes:
        return Axis(1, (0,) * len(kinds))

    sizes = [
        d.itemsize * prod([axis.size for axis in axes if axis.strides[i]])
        for i, d in enumerate(kinds)
    ]

    def contiguous(axis: Axis) -> int:
        pairs = zip(axis.strides, sizes, strict=True)
        return sum(size for stride, size in pairs if abs(stride) == 1)

    return max(reversed(axes), key=contiguous)


def pick_lanes(
    others: Sequence[Axis],
    lane: Axis,
    kinds: Sequence[np.dtype],
    aligned: int,
    most: int,
    whole: int = 0,
) -> int:
    """The elements side by side: as many as some array can be accessed by at once.

    whole  the groups that a line has at least, if elements may be left after them; 0: none may.
           Of several lines, all must begin at aligned addresses then.
    """
    lanes = most
    while lanes > 1:
        group = Axis(1, tuple([s * lanes for s in lane.strides]))
        found = [
            (lanes * kind.itemsize, alignment(i, kind.itemsize, [*others, group], aligned))
            for i, kind in enumerate(kinds)
            if lane.strides[i] == 1
        ]
        fits = any(size <= WIDEST and wide % size == 0 for size, wide in found)
        if lane.size % lanes:
            # Neighbours that are read one by one are not worth it.
            every = not others or all(wide % min(size, WIDEST) == 0 for size, wide in found)
            fits = fits and every and bool(whole) and lane.size > whole * lanes
        if fits:
            return lanes
        lanes //= 2
    return 1


def _spread(kernel: Kernel, lane: Axis, lanes: int) -> int:
    if heavy_steps(kernel) > 1:
        return 1
    sizes = [o.dtype.itemsize for i, o in enumerate(kernel.operands) if lane.strides[i]]
    loaded = max(sum(sizes) * lanes, 1)
    return min(max(UNDER_WAY // loaded, 1), 4)


def emit_flat(
    kernel: Kernel, plan: FlatPlan, machine: Machine, aligned: int, length: LLValue | None = None
) -> None:
    """Emit the function of one thread.

    length  that of the only axis, less than 2**30, where it is not known; nothing is spread then
    """
    index = index_type(kernel, plan.grid * plan.block * plan.spread)
    arrays = GridArrays(machine, kernel, plan.lane, plan.outer, aligned, index)
    block, thread = map(arrays.wide, (machine.block(), machine.thread()))
    first = arrays.plus(arrays.times(block, plan.block * plan.spread), thread)
    if plan.tiled:
        first = _tile_place(arrays, plan, block, thread)
    ends = _ends(plan) if length is None else _ends_of(arrays, plan, length)
    code = machine.code
    after = code.label()
    if plan.spread > 1:
        _emit_groups(arrays, plan, first)
    else:
        inside = code.label()
        code.go_if(first < ends.whole, inside, after)
        code.start(inside)
        _emit_elements(arrays, [(_point(arrays, plan, first), None)], plan.lanes)
        code.go(after)
        code.start(after)
    if ends.rest != 0:
        single = first - ends.whole
        inside = (single >= 0) & (single < ends.rest)
        arrays.when(inside, lambda: _emit_single(arrays, plan, single, ends.start))
    machine.finish()


@record
class _Ends:
    """Where groups end: whole ones, the elements after them, and the first of these in a line."""

    whole: LLValue | int
    rest: LLValue | int
    start: LLValue | int


def _ends(plan: FlatPlan) -> _Ends:
    lines = prod([axis.size for axis in plan.outer])
    single = lines * plan.rest
    return _Ends(plan.groups - single, single, plan.lane.size - plan.rest)


def _ends_of(arrays: GridArrays, plan: FlatPlan, length: LLValue) -> _Ends:
    """The same of a line of any length."""
    assert not plan.outer and plan.spread == 1
    length = arrays.wide(length)
    whole = length.divide(plan.lanes, False)
    start = arrays.times(whole, plan.lanes)
    return _Ends(whole, 0 if plan.lanes == 1 else length - start, start)


def _tile_place(arrays: GridArrays, plan: FlatPlan, block: LLValue, thread: LLValue) -> LLValue:
    """The group of a thread where blocks are tiles of lines."""
    across = plan.lane.size // plan.lanes // WARP
    line = arrays.times(block.divide(across, False), ROWS)
    line = arrays.plus(line, thread.divide(WARP, False))
    along = arrays.times(block.modulo(across, False), WARP)
    along = arrays.plus(along, thread.modulo(WARP, False))
    return arrays.plus(arrays.times(line, across * WARP), along)


def _emit_groups(arrays: GridArrays, plan: FlatPlan, first: LLValue) -> None:
    """Several groups of a thread; it loads the last one again in the place of missing ones."""
    made = []
    for k in range(plan.spread):
        group, inside = arrays.plus(first, k * plan.block), None
        if plan.groups % (plan.block * plan.spread):
            inside = group < plan.groups
            group = inside.choose(group, arrays.number(plan.groups - 1))
        made.append((_point(arrays, plan, group), inside))
    _emit_elements(arrays, made, plan.lanes)


def _point(arrays: GridArrays, plan: FlatPlan, group: LLValue) -> Point:
    line = Axis(plan.lane.size // plan.lanes, plan.lane.strides)
    *places, along = arrays.split(group, [*plan.outer, line])
    point = arrays.start
    for axis, at in zip(plan.outer, places, strict=True):
        point = arrays.advance(point, axis, at)
    return arrays.advance(point, plan.lane, along, plan.lanes)


def _emit_single(arrays: GridArrays, plan: FlatPlan, single: LLValue, start: LLValue | int) -> None:
    """One of the elements after whole groups; of a line they begin at `start`."""
    point = arrays.start
    if plan.outer:
        point = arrays.walk(point, plan.outer, single.divide(plan.rest, False))
        single = single.modulo(plan.rest, False)
    point = arrays.advance(point, plan.lane, arrays.plus(single, start))
    _emit_elements(arrays, [(point, None)], 1)


def _emit_elements(
    arrays: GridArrays, points: Sequence[tuple[Point, LLValue | None]], lanes: int
) -> None:
    """All steps at some points: everything is loaded before anything is stored."""
    if is_chain(arrays.kernel):
        for point, inside in points:
            arrays.when(inside, partial(_emit_chain, arrays, point, lanes))
        return
    known = _compute(arrays, [point for point, _ in points], lanes)
    for (point, inside), values in zip(points, known, strict=True):
        arrays.when(inside, partial(_store, arrays, point, values))


def _emit_chain(arrays: GridArrays, point: Point, lanes: int) -> None:
    """All steps without their rare cases; if there is one, all again for one element at a time.

    So there is one branch, and registers hold no place to return to from each rare case.
    """
    code = arrays.code
    code.doubts = []
    (values,) = _compute(arrays, [point], lanes)
    doubts, code.doubts = code.doubts, None
    if not doubts:
        _store(arrays, point, values)
        return
    again, usual, after = code.label(), code.label(), code.label()
    code.go_if(anywhere(reduce(or_, doubts)), again, usual, rarely=True)
    code.start(usual)
    _store(arrays, point, values)
    code.go(after)
    code.start(again)
    arrays.loop(lanes, 1, partial(_emit_exactly, arrays, point))
    code.go(after)
    code.start(after)


def _emit_exactly(arrays: GridArrays, point: Point, lane: LLValue) -> None:
    """All steps of one element of a group, with their rare cases."""
    at = arrays.advance(point, arrays.lane, lane)
    _store(arrays, at, _compute(arrays, [at], 1)[0])


def _compute(arrays: GridArrays, points: Sequence[Point], lanes: int) -> list[dict[int, LLValue]]:
    """The values at some points."""
    kernel, code = arrays.kernel, arrays.code
    base, needed = len(kernel.operands), sorted(moving(kernel, 0))
    values = [{i: arrays.read(i, point, lanes) for i in needed if i < base} for point in points]
    for known in values:
        for i in needed:
            if i >= base:
                known[i] = emit_step(code, kernel, i, known.__getitem__)
    return values


def _store(arrays: GridArrays, point: Point, known: dict[int, LLValue]) -> None:
    for r, result in enumerate(arrays.kernel.results):
        arrays.write(len(arrays.kernel.operands) + r, point, known[result.value])
