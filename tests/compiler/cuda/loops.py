"""A target whose loops and branches are grid routines in the emulator; NumPy does the rest."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache

import numpy as np

from weft.compiler.cuda import computes
from weft.compiler.cuda.computes import PRODUCT_DTYPES
from weft.compiler.cuda.limits import GPU_LIMITS
from weft.compiler.cuda.passes import PASSES
from weft.compiler.cuda.routines.routine import GridRoutine, RoutineStage
from weft.compiler.cuda.routines.table import routine_of
from weft.compiler.ir.schedule import NativeStep

from ..interpreter import Interpreted, Interpreter, Memory
from .emulator import Emulated


@lru_cache(maxsize=256)
def emulated(stage: RoutineStage, faults: frozenset[int] = frozenset()) -> Emulated:
    """A stage in the emulator; `faults` are barriers at which nobody waits."""
    return Emulated(replace(stage, aligned=1), faults=faults)


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


class Grids(Interpreter):
    """NumPy, with the passes and routines of a GPU."""

    key, passes, limits, product_dtypes = ("grids",), PASSES, GPU_LIMITS, PRODUCT_DTYPES

    def supports(self, graph, e) -> str:
        return computes.supports(graph, e)

    def routine(self, graph, views, e):
        made = routine_of(graph, views, e)
        return super().routine(graph, views, e) if made is None else made

    def build(self, schedule, plan, capture=True):
        return OnGrids(schedule, plan)


GRIDS = Grids()
