"""A target whose loops and branches are grid routines in the emulator; NumPy does the rest."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from weft.compiler.cache import schedules
from weft.compiler.cuda import computes, routines
from weft.compiler.cuda.machine import Machine
from weft.compiler.cuda.routines.routine import GridRoutine, Stage
from weft.compiler.cuda.routines.table import ROWS, readable, routine_of
from weft.compiler.ir.schedule import NativeStep
from weft.compiler.passes.bodies import bodies
from weft.compiler.passes.copies import copies
from weft.compiler.passes.fission import fission
from weft.compiler.target import optimise

from ..interpreter import PASSES as PLAIN
from ..interpreter import ROUTINES, Interpreted, Interpreter, Memory
from .emulator import Emulated


@dataclass(frozen=True)
class Launch:
    """A stage whose arrays are aligned to their elements only."""

    stage: Stage

    @property
    def grid(self) -> int:
        return self.stage.grid

    @property
    def block(self) -> int:
        return self.stage.block

    @property
    def arrays(self) -> tuple[int, ...]:
        return self.stage.arrays

    def emit(self, machine: Machine) -> None:
        self.stage.emit(machine, 1)


@lru_cache(maxsize=256)
def emulated(stage: Stage, faults: frozenset[int] = frozenset()) -> Emulated:
    """A stage in the emulator; `faults` are barriers at which nobody waits."""
    return Emulated(Launch(stage), faults=faults)


@contextmanager
def emulating_anew() -> Iterator[None]:
    """A block in which stages are emitted anew, as mistakes that are planted need."""
    emulated.cache_clear()
    try:
        yield
    finally:
        emulated.cache_clear()


class GridMemory(Memory):
    """Memory whose routines are done by grids, in both orders of threads."""

    def _routine(self, step: NativeStep) -> None:
        routine = step.routine
        if not isinstance(routine, GridRoutine):
            super()._routine(step)
            return
        whole = (*routine.operands, *routine.results, *routine.scratch)
        arrays = [
            self.walk(i, a.shape, a.strides)
            for i, a in zip((*step.operands, *step.results), whole, strict=True)
        ]
        first, made = len(routine.operands), len(routine.operands) + len(routine.results)
        runs = []
        for down in (False, True):
            for a in arrays[first:]:
                a.reshape(-1).view(np.uint8)[...] = 0xFF
            for stage in routine.stages:
                emulated(stage).run(*[arrays[i] for i in stage.arrays], down=down)
            runs.append([a.copy() for a in arrays[first:made]])
        for up, down in zip(*runs, strict=True):
            np.testing.assert_array_equal(up, down, err_msg="the order of threads shows")


class OnGrids(Interpreted):
    memory_type = GridMemory


OWN = {
    "bodies": lambda graph: bodies(graph, lambda inner: optimise(inner, PASSES)),
    "copies": lambda graph: copies(graph, (*ROUTINES, *ROWS), readable),
}
PASSES = []
for name, function in PLAIN:
    PASSES.append((name, OWN.get(name, function)))
    if name == "loops":
        PASSES.append(("fission", fission))


class Grids(Interpreter):
    """NumPy, with loops and branches on grids."""

    key, passes = ("grids",), PASSES

    def supports(self, graph, e) -> str:
        return computes.supports(graph, e)

    def routine(self, graph, views, e):
        made = routine_of(graph, views, e)
        return super().routine(graph, views, e) if made is None else made

    def build(self, schedule, plan):
        return OnGrids(schedule, plan)


schedules.ROUTINES.add(routines.__name__)
GRIDS = Grids()
