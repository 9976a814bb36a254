"""Epilogues: kernels that process the tiles of a product while they are in the cache.

A product is computed tile by tile, and its consumer, such as a bias and an activation, or column
sums, reads the result once more. Where the units of that kernel lie within tiles of the product,
both become one step: the thread that computed a tile runs the kernel's units of it at once.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod

from ..ir.kernel import Kernel
from ..ir.schedule import (
    GemmStep,
    KernelStep,
    Schedule,
    ScheduleStep,
    TiledStep,
    row_major,
    step_text,
)
from ..ir.tiles import TileKernel, parts
from ..ir.verify import MalformedSchedule
from ..memory import in_place
from . import blas
from .blas import is_vector, tile_sizes, tiles
from .costs import SHARED, may_end, work
from .loop_nest import nest_of

# -- which steps fuse ----------------------------------------------------------------------------


def fuse_epilogues(schedule: Schedule) -> Schedule:
    """Fuse products with the kernels that read them first.

    A product that would have to wait for its kernel is left alone: its operands would have to be
    kept until then, and nothing would be gained.
    """
    steps, at = list(schedule.steps), 0
    while at < len(steps):
        reader = _reader(schedule, steps, at)
        if reader is not None:
            made = _fit_epilogue(schedule, steps[at], steps[reader])
            if made is not None and _may_rise(schedule, made.then, steps[at + 1 : reader]):
                del steps[reader]
                steps[at] = made
        at += 1
    return _in_results(replace(schedule, steps=tuple(steps)))


def _reader(schedule: Schedule, steps: Sequence[ScheduleStep], at: int) -> int | None:
    """The first step that reads a product, if it is a kernel."""
    product = steps[at]
    if not isinstance(product, GemmStep):
        return None
    for k in range(at + 1, len(steps)):
        if product.c in map(schedule.storage, steps[k].reads):
            return k if isinstance(steps[k], KernelStep) else None
    return None


def _fit_epilogue(
    schedule: Schedule, product: ScheduleStep, step: ScheduleStep
) -> TiledStep | None:
    """A product and a kernel as one step; None if the kernel cannot run tile by tile."""
    assert isinstance(product, GemmStep) and isinstance(step, KernelStep)
    own = schedule.buffers[product.c]
    read = [i for i in step.operands if schedule.storage(i) == product.c]
    if is_vector(product) or own.base is not None or any(schedule.buffers[i].offset for i in read):
        return None
    if prod(tiles(product)) < blas.PROCESSORS and work(step.kernel) >= SHARED:
        return None  # on its own the kernel is divided among more threads
    if _memory(schedule, step.writes) & _memory(schedule, product.reads):
        return None  # other tiles are computed from what the kernel would overwrite
    operands = [product.c if i in read else i for i in step.operands]
    made = TiledStep(product, replace(step, operands=tuple(operands)), tile_sizes(product))
    return made if fits(made) else None


def _in_results(schedule: Schedule) -> Schedule:
    """Let products that only their epilogues read use the memory of new results, where possible."""
    users = Counter(i for step in schedule.steps for i in _storages(schedule, step))
    steps = [
        _in_result(schedule, step, users) if isinstance(step, TiledStep) else step
        for step in schedule.steps
    ]
    return replace(schedule, steps=tuple(steps))


def _storages(schedule: Schedule, step: ScheduleStep) -> set[int]:
    return {schedule.storage(i) for i in (*step.reads, *step.writes)}


def _in_result(schedule: Schedule, step: TiledStep, users: Mapping[int, int]) -> TiledStep:
    """users  how many steps use each root buffer"""
    c, then = step.product.c, step.then
    if schedule.buffers[c].role != "scratch" or users[c] > 1:
        return step
    numbers = [n for n, i in enumerate(then.operands) if i == c]
    for r, i in enumerate(then.results):
        b = schedule.buffers[i]
        new = b.role == "output" and b.base is None and b.takes is None and users[i] == 1
        alike = b.dtype == schedule.buffers[c].dtype
        if new and alike and all(in_place(then.kernel, n, r) for n in numbers):
            operands = tuple(i if j == c else j for j in then.operands)
            return replace(
                step, product=replace(step.product, c=i), then=replace(then, operands=operands)
            )
    return step


def _may_rise(schedule: Schedule, step: KernelStep, between: Sequence[ScheduleStep]) -> bool:
    """Whether a kernel may run before some steps.

    A call that fails or is interrupted leaves its inputs unchanged, so none is overwritten before a
    step that may end the call.
    """
    donated = any(schedule.buffers[i].takes is not None for i in step.writes)
    ending = donated and any(may_end(schedule, s) for s in between)
    return _apart(schedule, step, between) and not ending


def _apart(schedule: Schedule, step: ScheduleStep, others: Iterable[ScheduleStep]) -> bool:
    """Whether a step commutes with others: neither writes what the other one uses."""
    read, written = _memory(schedule, step.reads), _memory(schedule, step.writes)
    for other in others:
        theirs = _memory(schedule, other.writes)
        if theirs & (read | written) or written & _memory(schedule, other.reads):
            return False
    return True


def _memory(schedule: Schedule, buffers: Iterable[int]) -> set[int]:
    """The memory that buffers lie in; an output may take that of an input."""
    storages = {schedule.storage(i) for i in buffers}
    return {i if (t := schedule.buffers[i].takes) is None else t for i in storages}


# -- how a kernel maps to tiles ------------------------------------------------------------------


def units_of(step: TiledStep) -> tuple[int, int]:
    """How many units of the kernels a row of the product has, as a fraction."""
    n, elements = step.product.n, _elements(step, parts(step)[0].kernel)
    return (1, elements // n) if elements >= n else (n // elements, 1)


def _elements(step: TiledStep, kernel: Kernel) -> int:
    """How many elements of the product belong to a unit of a kernel."""
    p = step.product
    return prod(p.batch) * p.m * p.n // max(nest_of(kernel).count, 1)


def fits(step: TiledStep) -> bool:
    """Whether every unit of the kernels reads elements of one tile, and in order."""
    p, kernel = step.product, step.then.kernel
    dense = p.ldc == p.n and p.c_strides == row_major((*p.batch, p.m, p.n))[: len(p.batch)]
    if not dense:
        return False
    if step.tile[1] < p.n:
        rows = prod(p.batch) * p.m
        if kernel.folded or kernel.domain not in ((rows, p.n), (rows * p.n,)):
            return False
        if any(part.kernel.operands[k].strides != (p.n, 1) for part, k in _readings(step)):
            return False
        if any(nest_of(part.kernel).count != rows for part in parts(step)):
            return False
    return all(_in_order(step, part.kernel, k) for part, k in _readings(step))


def _readings(step: TiledStep) -> list[tuple[TileKernel, int]]:
    """The kernels, with the numbers of the operands that are the product."""
    numbers = [k for k, i in enumerate(step.then.operands) if i == step.product.c]
    return [(part, k) for part in parts(step) for k in numbers]


def _in_order(step: TiledStep, kernel: Kernel, operand: int) -> bool:
    """Whether unit j reads elements j·w to (j + 1)·w − 1, and tiles start where units may.

    All units have the same extent, and the last one stays inside the array.
    """
    p, nest = step.product, nest_of(kernel)
    w, first = _elements(step, kernel), nest.outer[0] if nest.outer else nest.lane
    if nest.count * w != prod(p.batch) * p.m * p.n or (w % p.n and p.n % w):
        return False
    if nest.count > 1 and first.strides[operand] != w:
        return False
    batch, down, _ = tiles(p, step.tile)
    begins = [p.m] * (batch > 1) + [step.tile[0]] * (down > 1)
    return all(rows * p.n % (w * nest.grain) == 0 for rows in begins)


def verify_tiles(schedule: Schedule) -> None:
    """Raise `MalformedSchedule` unless units of epilogues lie within tiles."""
    for step in schedule.steps:
        if isinstance(step, TiledStep) and not fits(step):
            raise MalformedSchedule(f"{step_text(step)}: units of the kernel do not lie in tiles")
