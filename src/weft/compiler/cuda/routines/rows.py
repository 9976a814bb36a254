"""Rows that a loop never mixes: each block of a grid runs the whole loop for some of them.

The carries, and all that the steps compute, must have a row for each index of the first axis of the
carries, and each step must compute a row of its results from the same row of these. What depends on
no carry may be read anywhere.
"""

from collections.abc import Sequence
from dataclasses import replace

from ....core.record import record
from ...ir.kernel import Operand, Result, reach
from ...ir.schedule import GemmStep, KernelStep, Schedule, ScheduleStep
from .blocks import Shifts

# Blocks at most: as many as run at the same time.
BLOCKS = 128


@record
class RowSplit:
    """The schedule of one block's rows, and by how much its arrays move from block to block."""

    schedule: Schedule
    shifts: Shifts | None
    parts: int


@record(eq=False)
class _Access:
    """An array of a step: its strides, first element in its root, and whether it has rows."""

    strides: tuple[int, ...]
    buffer: int
    offset: int
    row: int  # elements of a row; 0: every block has, or reads, all of it


def split_rows(schedule: Schedule, carries: int) -> RowSplit | None:
    """The schedule of a loop's body for some rows; None if steps mix them."""
    firsts = {schedule.buffers[i].shape[:1] for i in schedule.inputs[:carries]}
    if len(firsts) != 1 or firsts == {()}:
        return None
    ((count,),) = firsts
    parts = max([n for n in range(1, min(count, BLOCKS) + 1) if count % n == 0], default=1)
    own = _own(schedule, carries)
    if parts == 1 or any(schedule.buffers[i].size % count for i in own):
        return None
    rows = {i: schedule.buffers[i].size // count for i in own}
    far = set(map(schedule.storage, schedule.outputs[carries:]))
    steps, shifts = [], []
    for s in schedule.steps:
        made = _split_step(schedule, s, rows, count, parts)
        if made is None:
            return None
        step, accesses, along = made
        steps.append(step)
        pairs = zip(accesses, along, strict=True)
        shifts.append(tuple(_shift(schedule, x, d, count // parts, far) for x, d in pairs))
    buffers = [
        replace(b, shape=(b.size // parts,), strides=(1,)) if i in own else b
        for i, b in enumerate(schedule.buffers)
    ]
    made = replace(schedule, buffers=tuple(buffers), steps=tuple(steps))
    return RowSplit(made, tuple(shifts), parts)


def _own(schedule: Schedule, carries: int) -> set[int]:
    """The roots that a block has its own rows of: carries, and what is computed from them.

    What needs no carry is computed by every block, all of it.
    """
    own = {*schedule.inputs[:carries], *map(schedule.storage, schedule.outputs)}
    before = -1
    while len(own) > before:
        before = len(own)
        for s in schedule.steps:
            if _touches(schedule, s, own):
                own.update(map(schedule.storage, s.writes))
    return own


def _touches(schedule: Schedule, s: ScheduleStep, own: set[int]) -> bool:
    return any(schedule.storage(i) in own for i in (*s.reads, *s.writes))


def _shift(schedule: Schedule, x: _Access, along: int, rows: int, far: set[int]) -> int:
    """The bytes by which an array moves from block to block: nothing in memory of a block's own."""
    item = schedule.buffers[x.buffer].dtype.itemsize
    near = x.row and schedule.storage(x.buffer) not in far
    return 0 if near else along * rows * item


def _split_step(schedule: Schedule, s, rows: dict[int, int], count: int, parts: int):
    """A step for some rows, its arrays, and how far each moves from row to row."""
    if isinstance(s, KernelStep) and not s.kernel.piece:
        sizes, accesses = s.kernel.domain, _of_kernel(schedule, s, rows)
        axes = [a for a in range(len(sizes)) if a not in s.kernel.folded]
    elif isinstance(s, GemmStep):
        sizes, accesses = (*s.batch, s.m, s.n, s.k), _of_product(schedule, s, rows)
        axes = list(range(len(sizes) - 1))
    else:
        return None
    if not any(x.row for x in accesses):
        return s, accesses, [0] * len(accesses)
    for a in axes:
        if sizes[a] % count == 0 and all(_by_rows(x, sizes, a, count) for x in accesses):
            along = [x.strides[a] * (sizes[a] // count) for x in accesses]
            return _cut(s, a, parts), accesses, along
    return None


def _by_rows(x: _Access, sizes: Sequence[int], axis: int, count: int) -> bool:
    """Whether an access stays in a row for each part of an axis."""
    if not x.row:
        return True
    inner = [n // count if a == axis else n for a, n in enumerate(sizes)]
    low, high = reach(tuple(inner), x.strides)
    inside = x.offset + low >= 0 and x.offset + high <= x.row
    return inside and x.strides[axis] * (sizes[axis] // count) == x.row


def _access(schedule: Schedule, rows: dict[int, int], i: int, strides) -> _Access:
    b = schedule.buffers[i]
    return _Access(tuple(strides), i, b.offset, rows.get(schedule.storage(i), 0))


def _of_kernel(schedule: Schedule, s: KernelStep, rows: dict[int, int]) -> list[_Access]:
    accesses: tuple[Operand | Result, ...] = (*s.kernel.operands, *s.kernel.results)
    numbers = (*s.operands, *s.results)
    return [_access(schedule, rows, i, x.strides) for i, x in zip(numbers, accesses, strict=True)]


def _of_product(schedule: Schedule, s: GemmStep, rows: dict[int, int]) -> list[_Access]:
    """The matrices along the axes of the batch, rows, columns and terms."""
    a = (1, 0, s.lda) if s.transpose_a else (s.lda, 0, 1)
    b = (0, s.ldb, 1) if s.transpose_b else (0, 1, s.ldb)
    every = ((s.a, s.a_strides, a), (s.b, s.b_strides, b), (s.c, s.c_strides, (s.ldc, 1, 0)))
    return [_access(schedule, rows, i, (*x, *y)) for i, x, y in every]


def _cut(s: KernelStep | GemmStep, axis: int, parts: int) -> KernelStep | GemmStep:
    """A step with a part of an axis."""
    if isinstance(s, KernelStep):
        sizes = [n // parts if a == axis else n for a, n in enumerate(s.kernel.domain)]
        return replace(s, kernel=replace(s.kernel, domain=tuple(sizes)))
    if axis < len(s.batch):
        sizes = [n // parts if a == axis else n for a, n in enumerate(s.batch)]
        return replace(s, batch=tuple(sizes))
    return replace(s, m=s.m // parts) if axis == len(s.batch) else replace(s, n=s.n // parts)
