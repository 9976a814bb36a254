"""Kernels of a few rows, built as a graph and lowered by the pipeline."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...core.aval import Aval
from ...core.op import Op
from ...graph.graph import Equation, Graph
from .. import pipeline
from ..ir.kernel import FoldStep, Kernel, Operand, Result, Step, Strides, renumber
from ..ir.schedule import KernelStep, Schedule, ScheduleStep
from ..ir.views import View
from ..limits import LIMITS, Limits
from ..memory import ALIGNMENT
from ..passes.rewriting import Builder


class AsWritten:
    """The lowering of a graph that is one kernel already: without passes, routines or tuning.

    So the CPU's passes and routines, which take longer to load than such a kernel takes to compile,
    are not loaded.
    """

    alignment: int = ALIGNMENT
    adopts: bool = False
    limits: Limits = LIMITS
    passes: tuple[()] = ()
    product_dtypes: tuple[()] = ()

    def supports(self, graph: Graph, e: Equation) -> str:
        return ""

    def routine(self, graph: Graph, views: Mapping[int, View], e: Equation) -> None:
        return None

    def takes_long(self, work: Any, dtype: np.dtype | None = None) -> bool:
        return False

    def library_fails(self, op: Op) -> bool:
        return True

    def cost(self, schedule: Schedule, step: ScheduleStep) -> float:
        return 0.0  # there is one step, and nothing to choose

    def tune(self, schedule: Schedule, tight: bool) -> Schedule:
        return schedule


def lower(avals: Sequence[Aval], write: Callable[..., Sequence[int]]) -> Kernel:
    """The kernel of the graph that `write(builder, *inputs)` builds; `write` returns the outputs.

    Its operands and results are in the order of the inputs and outputs.
    """
    builder = Builder(Graph(list(avals), list(range(len(avals)))))
    builder.at((lower.__code__, 0))
    graph = builder.finish([*write(builder, *builder.graph.inputs)])
    schedule, _ = pipeline.lower_anew(graph, {}, AsWritten())  # faster than the disk cache
    return _as_one(schedule)


def _as_one(schedule: Schedule) -> Kernel:
    """One kernel for a schedule whose steps are kernels over the same domain.

    Results may overwrite operands, so a second kernel could not read them.
    """
    number = {i: k for k, i in enumerate(schedule.inputs)}  # of the values in buffers
    kernels = [step for step in schedule.steps if isinstance(step, KernelStep)]
    assert len(kernels) == len(schedule.steps), "something is no kernel"
    first, accesses = kernels[0].kernel, dict[int, Strides]()
    steps: list[Step | FoldStep] = []
    for step in kernels:
        kernel = step.kernel
        assert (kernel.domain, kernel.folded) == (first.domain, first.folded), "several kernels"
        own = {k: number[i] for k, i in enumerate(step.operands)}
        for i, o in zip(step.operands, kernel.operands, strict=True):
            known = accesses.setdefault(i, o.strides)
            assert known == o.strides, "read in another order"
        for k, s in enumerate(kernel.steps, len(kernel.operands)):
            own[k] = len(schedule.inputs) + len(steps)
            steps.append(renumber(s, own))
        for i, r in zip(step.results, kernel.results, strict=True):
            number[i], accesses[i] = own[r.value], r.strides
    still = (0,) * len(first.domain)  # strides of inputs that are not read
    dtypes = [schedule.buffers[i].dtype for i in schedule.inputs]
    strides = [accesses.get(i, still) for i in schedule.inputs]
    return replace(
        first,
        operands=tuple(map(Operand, dtypes, strides)),
        steps=tuple(steps),
        results=tuple([Result(number[i], accesses[i]) for i in schedule.outputs]),
    )
