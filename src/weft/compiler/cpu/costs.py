"""About how long steps take, in nanoseconds of one core, and into which pieces they are divided.

How many units make a piece is a function of the step and the machine alone: whoever takes a piece
computes the same.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import prod

import numpy as np

from ..ir.kernel import Kernel, Step
from ..ir.schedule import (
    GemmStep,
    GuardStep,
    KernelStep,
    LibraryStep,
    NativeStep,
    Schedule,
    ScheduleStep,
    TiledStep,
)
from . import blas
from .routines.routine import as_native_routine

# A piece takes at least so long, since handing one over takes a microsecond; there are at most so
# many, and as many for each processor.
PIECE, MOST = 8_000, 256
# More pieces than that where they would take longer than this: signals are looked for in between.
LONGEST, PIECES = 2_000_000, 1 << 15
# From how long on a step is one that a signal is to end: nothing is written in place before it.
LONG = 20e6
# From how much work on a step is shared at all: a worker that sleeps takes long to come.
SHARED = 20_000
_BYTE, _LIGHT, _HEAVY = 0.05, 0.03, 0.5
_FLOPS, _VECTOR = {4: 100.0, 8: 50.0}, 4  # a nanosecond, of BLAS; so many times slower
_NARROW = 12.0  # products of so few rows or columns take twice as long


def product_cost(step: GemmStep, dtype: np.dtype) -> float:
    """About how long a product takes."""
    cost = step.flops / _FLOPS[dtype.itemsize]
    if 1 in (step.m, step.n):  # every element of a matrix is read for one multiplication
        return cost * _VECTOR
    return cost * (1 + _NARROW / max(min(step.m, step.n), 1))


def may_end(schedule: Schedule, step: ScheduleStep) -> bool:
    """Whether a call may end at a step: by an error, or since a signal does not wait for it."""
    if isinstance(step, GuardStep | LibraryStep):
        return True
    if isinstance(step, NativeStep):
        return step.routine.endless or as_native_routine(step.routine).cost >= LONG
    if isinstance(step, KernelStep):
        return work(step.kernel) >= LONG
    product = step.product if isinstance(step, TiledStep) else step
    cost = product_cost(product, schedule.buffers[product.c].dtype)
    return cost + (work(step.then.kernel) if isinstance(step, TiledStep) else 0.0) >= LONG


def chunk_of(count: int, grain: int, cost: float) -> int:
    """The units of a piece."""
    if cost < SHARED:
        return max(count, 1)
    pieces = max(min(int(cost / PIECE), MOST), min(int(cost / LONGEST), PIECES))
    pieces -= pieces % blas.PROCESSORS if pieces > blas.PROCESSORS else 0
    return max(-(-count // (pieces * grain)) * grain, 1)


@lru_cache(maxsize=1024)
def work(kernel: Kernel) -> float:
    """About how long a kernel takes."""
    moved = sum(o.dtype.itemsize for o in kernel.operands if any(o.strides))
    moved += sum(kernel.dtypes[r.value].itemsize for r in kernel.results)
    steps: Sequence[Step] = [s for s in kernel.steps if isinstance(s, Step)]
    wide = max((d.itemsize for d in kernel.dtypes), default=4) / 4
    each = _BYTE * moved
    each += wide * sum(_LIGHT if s.is_light else _HEAVY for s in steps)
    return each * prod(kernel.domain)
