"""Estimates of the time of steps on a GPU: of bytes, of arithmetic, and of the launch."""

import numpy as np

from ...core import dtypes
from ..ir.schedule import GemmStep, Schedule, ScheduleStep

LAUNCH = 2000.0  # nanoseconds
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


def _flops(schedule: Schedule, step: ScheduleStep) -> float:
    if not isinstance(step, GemmStep):
        return 0.0
    dtype: np.dtype = schedule.buffers[step.c].dtype
    return step.flops / FLOPS[2 if dtype in dtypes.HALF else dtype.itemsize]
