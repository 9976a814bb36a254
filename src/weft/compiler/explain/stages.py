"""The value after each stage of the compiler, as text: `explain(stage=…)`."""

from collections.abc import Mapping
from typing import Any

from ... import errors
from ...core.checkpointing import CheckpointConfig
from ...graph.graph import Graph
from ..memory import MemoryPlan
from ..pipeline import stages
from ..target import Target
from .report import kernels_text

STAGES = ("trace", "passes", "schedule", "memory", "build")


def after_stage(
    graph: Graph,
    donated: Mapping[int, int],
    target: Target,
    checkpoint: CheckpointConfig | None,
    capture: bool,
    stage: str,
) -> str:
    """The text of the value after a stage; the disk cache is not used."""
    if stage not in STAGES:
        raise errors.ArgumentError(
            f"explain: stage={stage!r}, expected {', '.join(map(repr, STAGES))}"
        )
    for name, value in stages(graph, donated, target, checkpoint, capture):
        if name == stage:
            return _describe(stage, value)
    raise AssertionError(stage)


def _describe(stage: str, value: Any) -> str:
    if stage == "memory":
        return _plan_text(value)
    return str(kernels_text(value.schedule) if stage == "build" else value)


def _plan_text(plan: MemoryPlan) -> str:
    """The offset of each buffer in the arena."""
    lines = [f"arena of {plan.size} bytes, {plan.least} of them alive at once"]
    places = sorted(plan.offsets.items(), key=lambda place: place[1])
    return "\n".join([*lines, *[f"  b{i} at {at}" for i, at in places]])
