"""About how long steps take, in nanoseconds of one core, and into which pieces they are divided.

How many units make a piece is a function of the step and the machine alone: whoever takes a piece
computes the same.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import prod

from . import blas
from .kernel import Kernel, Step
from .nest import LIGHT
from .schedule import GemmStep, Schedule

# A piece takes at least so long, since handing one over takes a microsecond; there are at most so
# many, and as many for each processor.
PIECE, MOST = 8_000, 256
# From how much work on a step is shared at all: a worker that sleeps takes long to come.
SHARED = 20_000
_BYTE, _LIGHT, _HEAVY = 0.05, 0.03, 0.5
_FLOPS, _VECTOR = {4: 100.0, 8: 50.0}, 4  # a nanosecond, of BLAS; so many times slower
_NARROW = 12.0  # products of so few rows or columns take twice as long


def product_cost(schedule: Schedule, step: GemmStep) -> float:
    """About how long a product takes."""
    cost = step.flops / _FLOPS[schedule.buffers[step.c].dtype.itemsize]
    if 1 in (step.m, step.n):  # every element of a matrix is read for one multiplication
        return cost * _VECTOR
    return cost * (1 + _NARROW / max(min(step.m, step.n), 1))


def chunk_of(count: int, grain: int, cost: float) -> int:
    """The units of a piece."""
    if cost < SHARED:
        return max(count, 1)
    pieces = min(int(cost / PIECE), MOST)
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
    each += wide * sum(_LIGHT if s.row in LIGHT else _HEAVY for s in steps)
    return each * prod(kernel.domain)
