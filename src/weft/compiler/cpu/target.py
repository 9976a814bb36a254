"""The CPU target: LLVM for kernels and routines, BLAS and our own code for products."""

from typing import Any

import numpy as np

from ...core.op import Op
from ..cache import schedules
from ..emit import variates
from ..ir.kernel import Kernel
from ..ir.routine import Routine
from ..ir.schedule import GemmStep, Schedule, ScheduleStep
from ..limits import LIMITS, Limits
from ..memory import ALIGNMENT, MemoryPlan
from ..native.objects import machine_key
from ..target import Passes
from . import routines
from .blas import tile_rule
from .computes import Computes
from .costs import LONG, product_cost, step_cost
from .costs import work as kernel_cost
from .epilogues import fuse_epilogues
from .passes import PASSES
from .routines.routine import as_native_routine
from .runtime.executable import NativeExecutable


class Cpu(Computes):
    """The host processor."""

    alignment: int = ALIGNMENT
    adopts: bool = False
    limits: Limits = LIMITS
    passes: Passes = PASSES

    @property
    def key(self) -> tuple[Any, ...]:
        return ("cpu", *machine_key(), tile_rule())

    def takes_long(self, work: Kernel | Routine | GemmStep, dtype: np.dtype | None = None) -> bool:
        if isinstance(work, GemmStep):
            assert dtype is not None
            return product_cost(work, dtype) >= LONG
        return (
            kernel_cost(work) if isinstance(work, Kernel) else as_native_routine(work).cost
        ) >= LONG

    def library_fails(self, op: Op) -> bool:
        return True

    def tune(self, schedule: Schedule, tight: bool) -> Schedule:
        return fuse_epilogues(schedule)

    def cost(self, schedule: Schedule, step: ScheduleStep) -> float:
        return step_cost(schedule, step)

    def build(self, schedule: Schedule, plan: MemoryPlan, capture: bool = True) -> NativeExecutable:
        return NativeExecutable(schedule, plan)


schedules.ROUTINES.update((routines.__name__, variates.__name__))
CPU = Cpu()
