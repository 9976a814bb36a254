"""Estimates of the time of steps on a GPU: of bytes, of arithmetic, and of the launch."""

import numpy as np

from ...core import dtypes
from ..ir.schedule import GemmStep, Schedule, ScheduleStep

LAUNCH = 2000.0  # nanoseconds
# What a launch of a large kernel takes besides its bytes, until blocks fill the card and while they
# run out: casts of 14 MB take 4.6 µs more than as a part of one launch, updates of 71 MB 8.5 µs.
ENDS = 4500.0
BYTES = 4000.0  # per nanosecond, of memory: what kernels reach on a card of 2024
FLOPS = {  # per nanosecond, of products, by the bytes of an element
    2: 600_000.0,
    4: 45_000.0,
    8: 50_000.0,
}


def step_cost(schedule: Schedule, step: ScheduleStep) -> float:
    """The approximate nanoseconds of a step."""
    nbytes = sum([schedule.buffers[i].nbytes for i in (*step.reads, *step.writes)])
    return LAUNCH + max(nbytes / BYTES, _flops(schedule, step))


def gain_of_merging(cached: int) -> float:
    """The nanoseconds that a kernel gains in a launch with others.

    cached  the bytes that the cache has where the kernel is, and maybe not where it is moved to
    """
    return ENDS - cached / BYTES


def _flops(schedule: Schedule, step: ScheduleStep) -> float:
    if not isinstance(step, GemmStep):
        return 0.0
    dtype: np.dtype = schedule.buffers[step.c].dtype
    return step.flops / FLOPS[2 if dtype in dtypes.HALF else dtype.itemsize]
