"""Tasks: the steps of a schedule as native functions over units, and how those are divided.

How many units make a piece is a function of the step alone: whoever takes a piece computes the
same. Costs are rough, in nanoseconds of one core.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

from . import blas
from .kernel import Kernel, Step
from .llvm.loops import Extents
from .nest import LIGHT, nest_of
from .objects import Checked, Functions
from .schedule import Buffer, GemmStep, GuardStep, KernelStep, NativeStep, Schedule

# A piece takes at least so long, since handing one over takes a microsecond; and there are at most
# so many.
PIECE, MOST = 8_000, 256
# From how much work on a step is shared at all: a worker that sleeps takes long to come.
SHARED = 20_000
_BYTE, _LIGHT, _HEAVY = 0.05, 0.03, 0.5
_FLOPS, _VECTOR = {4: 100.0, 8: 50.0}, 4  # a nanosecond, of BLAS; so many times slower


@dataclass(frozen=True)
class Task:
    """A step's function, called as function(record, begin, end) for pieces of its units.

    Of a guard the function is 0: it looks at its flag.

    record   words: the addresses of the buffers `places`, then whatever else it reads
    hold     what the record has addresses of
    chunk    the units of a piece
    checked  whether the record's last word is where to report an access outside
    """

    step: KernelStep | GemmStep | NativeStep | GuardStep
    function: int
    places: tuple[int, ...]
    record: Sequence[int]
    count: int
    chunk: int
    cost: float
    checked: bool = False
    hold: Any = None


def extents_of(schedule: Schedule, step: KernelStep) -> Extents:
    """How many elements lie before and behind each of a kernel's pointers."""

    def extent(i: int) -> tuple[int, int]:
        b: Buffer = schedule.buffers[i]
        return b.offset, schedule.buffers[schedule.storage(i)].size - b.offset

    return tuple(extent(i) for i in (*step.operands, *step.results))


def kernels_of(schedule: Schedule, checked: bool) -> list[Checked]:
    """The kernels and routines that have to be compiled."""
    found: list[Checked] = []
    for s in schedule.steps:
        if isinstance(s, KernelStep):
            found.append((s.kernel, extents_of(schedule, s) if checked else ()))
        elif isinstance(s, NativeStep):
            found.append((s.routine, checked))
    return found


def task_of(
    schedule: Schedule,
    step: KernelStep | GemmStep | NativeStep | GuardStep,
    functions: Functions,
    checked: bool,
) -> Task:
    """A step as a task."""
    if isinstance(step, GuardStep):
        return Task(step, 0, (step.flag,), (0,), 1, 1, 0.0)
    if isinstance(step, GemmStep):
        return _product(schedule, step)
    if isinstance(step, NativeStep):
        return _routine(step, functions, checked)
    key = (step.kernel, extents_of(schedule, step) if checked else ())
    places = (*step.operands, *step.results)
    nest, cost = nest_of(step.kernel), work(step.kernel)
    count = 0 if _idle(step.kernel) else nest.count
    chunk = chunk_of(count, nest.grain, cost)
    record = (0,) * (len(places) + 1)
    return Task(step, functions.addresses[key], places, record, count, chunk, cost, checked)


def _routine(step: NativeStep, functions: Functions, checked: bool) -> Task:
    routine, places = step.routine, (*step.operands, *step.results)
    chunk = chunk_of(routine.count, routine.grain, routine.cost)
    record = (0,) * (len(places) + 1)
    function = functions.addresses[routine, checked]
    return Task(step, function, places, record, routine.count, chunk, routine.cost, checked)


def _idle(kernel: Kernel) -> bool:
    return any(n == 0 for a, n in enumerate(kernel.domain) if a not in kernel.folded)


def _product(schedule: Schedule, step: GemmStep) -> Task:
    dtype = schedule.buffers[step.c].dtype
    call = blas.call_of(step, dtype)
    cost = product_cost(schedule, step)
    chunk = chunk_of(call.count, 1, cost)
    return Task(
        *(step, call.function, call.places, call.record),
        *(call.count, chunk, cost),
        hold=call.offsets,
    )


def product_cost(schedule: Schedule, step: GemmStep) -> float:
    """About how long a product takes."""
    cost = step.flops / _FLOPS[schedule.buffers[step.c].dtype.itemsize]
    # With a vector, every element of a matrix is read for one multiplication.
    return cost * _VECTOR if 1 in (step.m, step.n) else cost


def chunk_of(count: int, grain: int, cost: float) -> int:
    """The units of a piece."""
    if cost < SHARED:
        return max(count, 1)
    pieces = min(int(cost / PIECE), MOST)
    return max(-(-count // (pieces * grain)) * grain, 1)


@lru_cache(maxsize=1024)
def work(kernel: Kernel) -> float:
    """About how long a kernel takes."""
    moved = sum(o.dtype.itemsize for o in kernel.operands if any(o.strides))
    moved += sum(kernel.dtypes[r.value].itemsize for r in kernel.results)
    steps: Sequence[Step] = [s for s in kernel.steps if isinstance(s, Step)]
    wide = max((d.itemsize for d in kernel.dtypes), default=4) / 4
    each = _BYTE * moved
    each += wide * sum(_LIGHT if s.row in LIGHT else _HEAVY for s in steps)
    return each * prod(kernel.domain)
