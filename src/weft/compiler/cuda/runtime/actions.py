"""What each step of a schedule does on a GPU: launches of our own, or calls of the library."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ....graph.graph import Literal
from ...calling import library_results
from ...ir.routine import RoutineArray, array
from ...ir.schedule import (
    GemmStep,
    GuardStep,
    KernelStep,
    LibraryStep,
    NativeStep,
    Schedule,
    ScheduleStep,
)
from ...ir.verify import MalformedSchedule
from ...memory import MemoryPlan
from ..counted import count_operands
from ..gpu import GridFunctions, GridWork, Launch
from ..guards import GuardStage
from ..products import multiply
from ..routines.routine import GridRoutine
from .bodies import Bodies, is_structured
from .frame import Frame


class Actions:
    """A function for each step, in the memory of a frame.

    status     the cell of the guards: once one has failed, no step writes inputs
    guards     the steps that check values
    from_disk  whether the code of all launches came from the disk cache
    """

    def __init__(self, schedule: Schedule, placed: MemoryPlan, frame: Frame, status: Any):
        self.schedule, self.plan, self._frame, self._status = schedule, placed, frame, status
        self.arrays, self._bodies = frame.gpu.arrays, Bodies(frame.gpu.arrays)
        self.guards = [s for s in schedule.steps if isinstance(s, GuardStep)]
        works = {k: self._works(step) for k, step in enumerate(schedule.steps)}
        functions = frame.gpu.functions([work for found in works.values() for work, _ in found])
        steps = enumerate(schedule.steps)
        self.functions = [self._action(s, works[k], functions) for k, s in steps]
        self.from_disk = functions.from_disk

    def _works(self, step: ScheduleStep) -> list[tuple[GridWork, list[int]]]:
        """What a step launches of our own, and the positions of its parameters' addresses."""
        frame = self._frame
        if isinstance(step, KernelStep):
            buffers = (*step.operands, *step.results)
            stops = bool(self.guards) and any([self._takes(i) for i in step.results])
            kernel = count_operands(self.schedule, step)
            work = GridWork(kernel, frame.aligned(buffers), stops)
            return [(work, [*map(frame.position, buffers), *([0] if stops else [])])]
        if isinstance(step, NativeStep):
            return self._stages(step)
        if isinstance(step, GuardStep):
            places = [frame.position(step.flag), 0]
            number, seen = 1 + self.guards.index(step), self._indices(step)
            if seen is None:
                return [(GridWork(GuardStage(number), 1), places)]
            assert step.seen is not None
            buffer, low, high = step.seen
            stage = GuardStage(number, seen, low, high)
            return [(GridWork(stage, 1), [*places, frame.position(buffer)])]
        return []

    def _stages(self, step: NativeStep) -> list[tuple[GridWork, list[int]]]:
        """The stages of a routine."""
        routine, buffers = step.routine, (*step.operands, *step.results)
        if not isinstance(routine, GridRoutine):
            raise MalformedSchedule(f"a GPU has no {type(routine).__name__}")
        found, stops = [], bool(self.guards) and any([self._takes(i) for i in step.results])
        for stage in routine.stages:
            used = [buffers[k] for k in stage.arrays]
            aligned = self._frame.aligned([buffers[k] for k in stage.wide])
            stage = stage if aligned >= stage.aligned else replace(stage, aligned=aligned)
            places = [*map(self._frame.position, used), *([0] if stops else [])]
            found.append((GridWork(stage, aligned, stops), places))
        return found

    def _indices(self, step: GuardStep) -> RoutineArray | None:
        """The indices that a guard checks, if they lie in a row."""
        if step.seen is None:
            return None
        b = self.schedule.buffers[step.seen[0]]
        return array(b.dtype, b.shape) if b.contiguous and b.size else None

    def _takes(self, i: int) -> bool:
        return self.schedule.buffers[self.schedule.storage(i)].takes is not None

    def _action(
        self,
        step: ScheduleStep,
        works: list[tuple[GridWork, list[int]]],
        functions: GridFunctions,
    ) -> Callable[[], None]:
        frame = self._frame
        if works:
            launches = [_Bound(frame, functions.launches[work], at) for work, at in works]
            return launches[0] if len(launches) == 1 else _Sequence(launches)
        if isinstance(step, GemmStep):
            return lambda: self._multiply(step)
        if isinstance(step, LibraryStep):
            return lambda: self._call(step)
        raise MalformedSchedule(f"a GPU has no {type(step).__name__}")

    # Calls of the library

    def _call(self, step: LibraryStep) -> None:
        """A kernel of the library: its results are taken over, or copied to where they belong."""
        frame, buffers = self._frame, self.schedule.buffers
        operands = [i.value if isinstance(i, Literal) else frame.tensor(i) for i in step.inputs]
        if is_structured(step.static):
            results = self._bodies.results(step.static[0], operands)
        else:
            results = library_results(step, operands, self.arrays.kind)
        for i, made in zip(step.outputs, map(self.arrays.whole, results), strict=True):
            b = buffers[i]
            if b.role == "scratch" and b.base is None and i not in self.plan.offsets:
                frame.place(i, made.contiguous())
            elif self.guards and self._takes(i):
                kept = frame.tensor(i)
                kept.copy_(made.where(self._status[0] == 0, kept))
            else:
                frame.tensor(i).copy_(made)

    def _multiply(self, step: GemmStep) -> None:
        a, b, c, *bias = [self._frame.walk(*access) for access in step.accesses()]
        if self.guards and self._takes(step.c):
            made = c.clone()
            multiply(step, a, b, made, *bias)
            c.copy_(made.where(self._status[0] == 0, c))
        else:
            multiply(step, a, b, c, *bias)


class _Bound:
    """A launch whose parameters are bound when the words are there."""

    def __init__(
        self, frame: Frame, bind: Callable[[np.ndarray, list[int]], Launch], places: list[int]
    ):
        self._frame, self._bind, self._places = frame, bind, places
        self._launch: Launch | None = None

    def __call__(self) -> None:
        if self._launch is None:
            self._launch = self._bind(self._frame.words, self._places)
        self._launch()


class _Sequence:
    """Launches, one after the other."""

    def __init__(self, launches: Sequence[Launch]):
        self._launches = launches

    def __call__(self) -> None:
        for launch in self._launches:
            launch()
