"""A target whose routines are a GPU's, in the emulator; NumPy does the rest."""

from math import gcd

from weft.compiler.cuda.routines.routine import GridRoutine
from weft.compiler.cuda.routines.table import ROWS, readable, routine_of
from weft.compiler.ir.schedule import NativeStep
from weft.compiler.passes.copies import copies

from ..interpreter import PRODUCT_DTYPES, Interpreted, Interpreter, Memory, passes_of
from .staged import emulate_stage


class GridMemory(Memory):
    """One call's memory."""

    def _routine(self, step: NativeStep) -> None:
        routine = step.routine
        assert isinstance(routine, GridRoutine)
        kinds = (*routine.operands, *routine.results, *routine.scratch)
        numbers = (*step.operands, *step.results)
        pairs = zip(numbers, kinds, strict=True)
        arrays = [self.walk(i, a.shape, a.strides) for i, a in pairs]
        aligned = gcd(16, *(a.ctypes.data for a in arrays))
        for stage in routine.stages:
            run = emulate_stage(stage, aligned).run
            run(*(arrays[k] for k in stage.arrays))


class Emulation(Interpreted):
    """A schedule that is interpreted, its routines emulated."""

    memory_type = GridMemory


def _copy_operands(graph):
    return copies(graph, tuple(ROWS), readable, PRODUCT_DTYPES)


class EmulatedRoutines(Interpreter):
    """NumPy as a machine with a GPU's routines."""

    key = ("emulated routines",)
    passes = tuple(
        (name, _copy_operands if name == "copies" else one)
        for name, one in passes_of(PRODUCT_DTYPES)
    )

    def routine(self, graph, views, e):
        return routine_of(graph, views, e)

    def build(self, schedule, plan, capture=True) -> Emulation:
        return Emulation(schedule, plan)


EMULATED = EmulatedRoutines()
