"""The compiler from top to bottom: each stage a function of data to data.

    trace      frontend/trace.py      a call of a function  → a graph, and the variant around it
    passes     target.passes          a graph               → a graph of the same values
    schedule   fusion/                a graph               → kernels, products, routines in order
    memory     memory.py              a schedule            → where each scratch buffer lies
    build      target.build           a schedule and a plan → an executable

The schedule is chosen together with its plan: values are rematerialised where that lowers the
plan's peak (`fusion/low_memory.py`). Under a checkpoint strategy steps run again, too
(`fusion/budget.py`). Schedules and plans are cached on disk.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..core.checkpointing import CheckpointConfig
from ..core.settings import SettingsBlock, current
from ..graph.graph import Graph
from .cache import schedules
from .fusion.low_memory import schedule_and_plan
from .ir.schedule import Schedule
from .memory import MemoryPlan
from .target import Executable, Lowering, Target, optimise
from .timing import stage


def current_target() -> Target:
    """The target of the block `using`, else the CPU."""
    return target_for("cpu")


def target_for(device: str) -> Target:
    """The target of the block `using`, else the one for arrays on a device."""
    chosen = current.get().target
    if chosen is not None:
        return chosen
    if device not in ("cpu", "torch"):
        from .cuda.target import cuda

        return cuda(device)
    from .cpu.target import CPU  # at first use: it loads LLVM

    return CPU


def using(target: Target) -> SettingsBlock:
    """A block in which functions are compiled for another target, as separate variants."""
    return SettingsBlock(target=target)


def build(
    graph: Graph,
    donated: Mapping[int, int],
    target: Target,
    checkpoint: CheckpointConfig | None = None,
    capture: bool = True,
) -> Executable:
    """The executable of a traced graph.

    donated     the position of an output to that of the input whose memory it may take
    checkpoint  what is kept in memory, and what is computed again
    capture     whether a GPU runs it as one captured graph
    """
    schedule, placed = lower(graph, donated, target, checkpoint)
    with stage("native code"):
        return target.build(schedule, placed, capture)


def lower(
    graph: Graph,
    donated: Mapping[int, int],
    target: Target,
    checkpoint: CheckpointConfig | None = None,
) -> tuple[Schedule, MemoryPlan]:
    """The schedule of a traced graph and its memory plan, from the disk cache if it has them."""
    chosen = (*target.key, target.limits)
    key = schedules.key_of(graph, donated, chosen, checkpoint)

    def make() -> tuple[Schedule, MemoryPlan]:
        if checkpoint is None:
            return lower_anew(graph, donated, target)
        plain = schedules.key_of(graph, donated, (*chosen, "tight"))
        made = _cached(graph, plain, lambda: lower_anew(graph, donated, target, tight=True))
        return _recompute(*made, target, checkpoint)

    return _cached(graph, key, make)


def _cached(
    graph: Graph, key: str | None, make: Callable[[], tuple[Schedule, MemoryPlan]]
) -> tuple[Schedule, MemoryPlan]:
    """What the disk cache has under a key; else it is made, and kept there."""
    kept = schedules.fetch(key)
    if kept is not None:
        with stage("plan from the cache"):
            return schedules.read(graph, kept)
    schedule, placed = make()
    schedules.keep(graph, key, schedule, placed)
    return schedule, placed


def _recompute(
    schedule: Schedule, placed: MemoryPlan, target: Target, checkpoint: CheckpointConfig
) -> tuple[Schedule, MemoryPlan]:
    from .fusion.budget import apply_checkpoints  # few programs need it

    with stage("checkpoints"):
        return apply_checkpoints(schedule, placed, target, checkpoint)


def lower_anew(
    graph: Graph, donated: Mapping[int, int], target: Lowering, tight: bool = False
) -> tuple[Schedule, MemoryPlan]:
    """The schedule of a graph and its memory plan, without the disk cache.

    tight  whether steps are going to run again, so that less memory is taken
    """
    with stage("passes"):
        simple = optimise(graph, target.passes)
    with stage("schedule"):
        return schedule_and_plan(simple, target, donated, tight)


def stages(
    graph: Graph,
    donated: Mapping[int, int],
    target: Target,
    checkpoint: CheckpointConfig | None = None,
    capture: bool = True,
) -> Iterator[tuple[str, Any]]:
    """The value after each stage of a traced graph, by name; the disk cache is not used."""
    yield "trace", graph
    simple = optimise(graph, target.passes)
    yield "passes", simple
    schedule, placed = schedule_and_plan(simple, target, donated, checkpoint is not None)
    if checkpoint is not None:
        schedule, placed = _recompute(schedule, placed, target, checkpoint)
    yield "schedule", schedule
    yield "memory", placed
    yield "build", target.build(schedule, placed, capture)
