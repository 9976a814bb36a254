"""The time of each step of a program on a GPU, beside what its memory and arithmetic allow."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from statistics import median

import torch

from ....core import dtypes
from ...ir.schedule import GemmStep, GuardStep, Schedule, ScheduleStep
from ...target import Measure

_TIMES = 5
# Multiplications and additions of one multiprocessor in one cycle, of products, by compute
# capability and bytes of an element.
_FLOPS = {80: {2: 2048, 4: 128, 8: 128}, 90: {2: 4096, 4: 256, 8: 256}}


@lru_cache(maxsize=None)
def _bytes_per_second(index: int) -> float:
    """What the memory moves at most, by its clock and width."""
    found = torch.cuda.get_device_properties(index)
    return 2e3 * found.memory_clock_rate * found.memory_bus_width / 8


@lru_cache(maxsize=None)
def _flops_per_second(index: int, width: int) -> float | None:
    found = torch.cuda.get_device_properties(index)
    known = [sm for sm in _FLOPS if sm <= 10 * found.major + found.minor]
    if not known:
        return None
    return 1e3 * found.clock_rate * found.multi_processor_count * _FLOPS[max(known)][width]


def measure_steps(
    schedule: Schedule, actions: Sequence[Callable[[], None]], after: Callable[[int], None]
) -> list[Measure]:
    """Run the steps some times, and give the time of each.

    after  called with the number of each step that was done
    """
    index = torch.cuda.current_device()
    times: list[list[float]] = [[] for _ in actions]
    for _ in range(_TIMES):
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(len(actions) + 1)]
        # So that steps are not timed that wait for the host, which takes some 20 µs for each.
        torch.cuda._sleep(1_000_000 + 40_000 * len(actions))
        marks[0].record()
        for k, action in enumerate(actions):
            action()
            marks[k + 1].record()
            after(k)
        torch.cuda.synchronize()
        for k in range(len(actions)):
            times[k].append(1e-3 * marks[k].elapsed_time(marks[k + 1]))
    return [
        _measured(schedule, step, median(t), index)
        for step, t in zip(schedule.steps, times, strict=True)
    ]


def _measured(schedule: Schedule, step: ScheduleStep, seconds: float, index: int) -> Measure:
    buffers = schedule.buffers
    places = {(schedule.storage(i), buffers[i].offset): buffers[i].nbytes for i in step.reads}
    nbytes = sum(places.values()) + sum([buffers[i].nbytes for i in step.writes])
    least: float | None = nbytes / _bytes_per_second(index)
    if isinstance(step, GemmStep):
        dtype = buffers[step.c].dtype
        speed = _flops_per_second(index, 2 if dtype in dtypes.HALF else dtype.itemsize)
        least = None if speed is None else max(least or 0.0, step.flops / speed)
    if isinstance(step, GuardStep) or least is None or seconds <= 0:
        return Measure(seconds, nbytes, None)
    return Measure(seconds, nbytes, min(least / seconds, 1.0))
