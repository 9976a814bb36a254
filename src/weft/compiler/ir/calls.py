"""Where native code stops: calls of libraries, and collectives that run in the background.

A sum over all processes begins at its place in a schedule. It ends before the first step that needs
its result, or that writes into an input: an input is unchanged if a collective fails.
"""

from enum import Enum

from ...core.record import record
from .schedule import LibraryStep, Schedule, ScheduleStep


class Part(Enum):
    """What is done at a place of a schedule."""

    WHOLE = "the call"
    BEGIN = "the collective begins"
    END = "its result is waited for"


@record
class Call:
    """A library call, or the begin or the end of one that runs in the background."""

    step: LibraryStep
    part: Part


def cut(schedule: Schedule) -> tuple[list[list[ScheduleStep]], list[Call]]:
    """The native steps in segments, and the calls between them: one segment more than calls."""
    segments: list[list[ScheduleStep]] = [[]]
    calls: list[Call] = []
    ends: dict[int, list[LibraryStep]] = {}
    for k, step in enumerate(schedule.steps):
        for begun in ends.pop(k, ()):
            calls.append(Call(begun, Part.END))
            segments.append([])
        if not isinstance(step, LibraryStep):
            segments[-1].append(step)
            continue
        end = _end(schedule, k, step)
        if end is not None:
            ends.setdefault(end, []).append(step)
        calls.append(Call(step, Part.WHOLE if end is None else Part.BEGIN))
        segments.append([])
    for begun in ends.pop(len(schedule.steps), ()):
        calls.append(Call(begun, Part.END))
        segments.append([])
    return segments, calls


def _end(schedule: Schedule, at: int, step: LibraryStep) -> int | None:
    """The step before which a sum must be there; None if it is not worth starting it before."""
    if step.op.name != "all_reduce" or not step.op.collective:
        return None
    storage, steps = schedule.storage, schedule.steps
    made = {storage(i) for i in step.outputs}
    for k in range(at + 1, len(steps)):
        writes = {storage(i) for i in steps[k].writes}
        touched = writes.union([storage(i) for i in steps[k].reads])
        changes = any([schedule.buffers[i].takes is not None for i in writes])
        if changes or not made.isdisjoint(touched):
            return k if k > at + 1 else None
    # A result that no step reads has its memory to the end only if it is an output.
    kept = made.issubset([storage(i) for i in schedule.outputs])
    return len(steps) if kept and at + 1 < len(steps) else None
