"""Kernels whose results have nothing in common, taken apart: each part needs less memory."""

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from ..ir.schedule import KernelStep, Schedule, ScheduleStep
from .recompute import pruned

# The share of a kernel's domain up to which an operand is small: reading it twice costs nothing.
_SMALL = 1 / 16
# Kernels that touch this share of the bytes of the step that touches the most are taken apart.
_LARGE = 1 / 2


def take_apart(schedule: Schedule) -> Schedule:
    """The schedule in which kernels of several results with nothing in common are several."""
    touched = [_touched(schedule, step) for step in schedule.steps]
    large = _LARGE * max(touched, default=0)
    steps = tuple(
        [
            part
            for step, nbytes in zip(schedule.steps, touched, strict=True)
            for part in (_parts(schedule, step) if nbytes >= large else [step])
        ]
    )
    return schedule if len(steps) == len(schedule.steps) else replace(schedule, steps=steps)


def _touched(schedule: Schedule, step: ScheduleStep) -> int:
    """The bytes of the arena that a step reads and writes."""
    roots = {*map(schedule.storage, (*step.reads, *step.writes))}
    return sum([schedule.buffers[i].nbytes for i in roots if schedule.buffers[i].role == "scratch"])


def _parts(schedule: Schedule, step: ScheduleStep) -> Iterator[ScheduleStep]:
    groups = _independent(schedule, step) if isinstance(step, KernelStep) else []
    if isinstance(step, KernelStep) and len(groups) > 1:
        yield from [pruned(step, group) for group in groups]
    else:
        yield step


def _independent(schedule: Schedule, step: KernelStep) -> list[list[int]]:
    """The numbers of results, in groups that have no value, large operand or memory in common."""
    groups: list[tuple[set[tuple[str, int]], list[int]]] = []
    for n in range(len(step.results)):
        needs, members = _needs(schedule, step, n), [n]
        apart = [g for g in groups if needs.isdisjoint(g[0])]
        for others, group in groups:
            if not needs.isdisjoint(others):
                members = [*group, *members]
        joined = needs.union(*[g[0] for g in groups if g not in apart])
        groups = [*apart, (joined, members)]
    return sorted([members for _, members in groups])


def _needs(schedule: Schedule, step: KernelStep, n: int) -> set[tuple[str, int]]:
    """The values that a result is computed of, and the roots that it reads and writes.

    Operands that are small do not count, unless the kernel writes to their memory.
    """
    kernel = replace(step.kernel, results=(step.kernel.results[n],))
    base, small = len(kernel.operands), _SMALL * prod(kernel.domain)
    roots = {schedule.storage(i) for i in step.results}
    written = roots | {schedule.buffers[i].takes for i in roots}
    own = schedule.storage(step.results[n])
    found = {("root", i) for i in (own, schedule.buffers[own].takes) if i is not None}
    for value in kernel.live:
        if value >= base:
            found.add(("value", value))
            continue
        root = schedule.storage(step.operands[value])
        if schedule.buffers[root].size > small or root in written:
            found.add(("root", root))
    return found
