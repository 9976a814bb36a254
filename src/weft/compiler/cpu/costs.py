"""The cost model: nanoseconds of a step on one core, and the size of its pieces.

The number of units in a piece is a function of the step and the machine alone: results do not
depend on which thread takes a piece.
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

# A piece takes at least PIECE, since handing one over takes a microsecond; there are at most MOST,
# a multiple of the processors.
PIECE, MOST = 8_000, 256
# More pieces than that where one would take longer than this: signals are polled in between.
LONGEST, PIECES = 2_000_000, 1 << 15
# From this long on a signal may interrupt a step: nothing is written in place before it.
LONG = 20e6
# From this much work on a step is shared at all: waking a worker takes long.
SHARED = 20_000
_BYTE, _LIGHT, _HEAVY = 0.05, 0.03, 0.5
_FLOPS, _VECTOR = {4: 100.0, 8: 50.0}, 4  # BLAS's flops per ns; gemv's slowdown
_NARROW = 12.0  # products with this few rows or columns take twice as long


def product_cost(step: GemmStep, dtype: np.dtype) -> float:
    """The approximate time of a product."""
    cost = step.flops / _FLOPS[dtype.itemsize]
    if 1 in (step.m, step.n):  # every element of a matrix is read for one multiplication
        return cost * _VECTOR
    return cost * (1 + _NARROW / max(min(step.m, step.n), 1))


def step_cost(schedule: Schedule, step: ScheduleStep) -> float:
    """The approximate time of a step; that of guards and library calls is not known."""
    if isinstance(step, KernelStep):
        return work(step.kernel)
    if isinstance(step, NativeStep):
        return as_native_routine(step.routine).cost
    if isinstance(step, GemmStep):
        return product_cost(step, schedule.buffers[step.c].dtype)
    if isinstance(step, TiledStep):
        return step_cost(schedule, step.product) + work(step.then.kernel)
    return 0.0


def may_end(schedule: Schedule, step: ScheduleStep) -> bool:
    """Whether a call may end at a step: by an error, or interrupted by a signal."""
    endless = isinstance(step, NativeStep) and step.routine.endless
    failing = isinstance(step, GuardStep | LibraryStep)
    return failing or endless or step_cost(schedule, step) >= LONG


def chunk_of(count: int, grain: int, cost: float) -> int:
    """The number of units in a piece."""
    if cost < SHARED:
        return max(count, 1)
    pieces = max(min(int(cost / PIECE), MOST), min(int(cost / LONGEST), PIECES))
    pieces -= pieces % blas.PROCESSORS if pieces > blas.PROCESSORS else 0
    return max(-(-count // (pieces * grain)) * grain, 1)


@lru_cache(maxsize=1024)
def work(kernel: Kernel) -> float:
    """The approximate time of a kernel."""
    moved = sum(o.dtype.itemsize for o in kernel.operands if any(o.strides))
    moved += sum(kernel.dtypes[r.value].itemsize for r in kernel.results)
    steps: Sequence[Step] = [s for s in kernel.steps if isinstance(s, Step)]
    wide = max((d.itemsize for d in kernel.dtypes), default=4) / 4
    each = _BYTE * moved
    each += wide * sum(_LIGHT if s.is_light else _HEAVY for s in steps)
    return each * prod(kernel.domain)
