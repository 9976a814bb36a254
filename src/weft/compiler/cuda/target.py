"""The target of NVIDIA's GPUs: kernels as PTX, products and the rest by PyTorch's libraries."""

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from ...core.op import Op
from ...graph.graph import Equation, Graph
from ..ir.kernel import Kernel
from ..ir.routine import Routine
from ..ir.schedule import GemmStep, Schedule, ScheduleStep
from ..ir.views import View
from ..limits import Limits
from ..memory import MemoryPlan
from ..target import Passes
from .computes import PRODUCT_DTYPES, library_fails, supports
from .costs import step_cost
from .gpu import Gpu
from .limits import GPU_LIMITS
from .many import merge_launches
from .passes import PASSES
from .ptx import FEATURES
from .routines.table import routine_of
from .runtime.executable import CudaExecutable
from .tuning import tuning


class Cuda:
    """One GPU; `cuda` gives the one object of a device."""

    alignment: int = 256
    adopts: bool = True
    limits: Limits = GPU_LIMITS
    passes: Passes = PASSES
    product_dtypes: Collection[np.dtype] = PRODUCT_DTYPES

    def __init__(self, gpu: Gpu):
        self.gpu = gpu

    @property
    def key(self) -> tuple[Any, ...]:
        return ("cuda", self.gpu.sm, *FEATURES, tuning())

    def supports(self, graph: Graph, e: Equation) -> str:
        return supports(graph, e)

    def routine(self, graph: Graph, views: Mapping[int, View], e: Equation) -> Routine | str | None:
        return routine_of(graph, views, e)

    def library_fails(self, op: Op) -> bool:
        return library_fails(op)

    def takes_long(self, work: Kernel | Routine | GemmStep, dtype: np.dtype | None = None) -> bool:
        return False

    def tune(self, schedule: Schedule, tight: bool) -> Schedule:
        return merge_launches(schedule, self.alignment, self.limits, tight)

    def cost(self, schedule: Schedule, step: ScheduleStep) -> float:
        return step_cost(schedule, step)

    def build(self, schedule: Schedule, plan: MemoryPlan, capture: bool = True) -> CudaExecutable:
        return CudaExecutable(schedule, plan, self.gpu, capture)


@lru_cache(maxsize=None)
def cuda(device: str) -> Cuda:
    """The target of a device, by Weft's name of it."""
    from .device import gpu_of

    return Cuda(gpu_of(device))
