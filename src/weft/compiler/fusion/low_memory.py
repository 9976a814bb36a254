"""Schedules that hold little: values are computed again where that lowers the plan's peak."""

from collections.abc import Mapping

from ...graph.graph import Graph
from ..cpu.epilogues import tiled
from ..ir.schedule import Schedule
from ..memory import Plan, plan
from ..passes.remat import remat
from .assemble import Assembly
from .joined_folds import joined

# Bytes of an arena from which on less is looked for, the share that must be gained, and how often.
LARGE, WORTH, ROUNDS = 1 << 20, 0.01, 4


def lean(graph: Graph, donated: Mapping[int, int]) -> tuple[Schedule, Plan]:
    """The schedule of a graph that has been through the passes, and its memory plan.

    donated   the position of an output to that of the input whose memory it may take
    """
    made = Assembly(graph, donated)
    schedule, placed = _planned(made)
    switch = False
    for _ in range(ROUNDS):
        if placed.size < LARGE:
            break
        peak, late = made.peak()
        graph = remat(made.graph, peak.alive, late, switch)
        other = None if graph is made.graph else Assembly(graph, donated)
        tried = None if other is None else _planned(other)
        if other is not None and tried is not None and tried[1].size <= placed.size * (1 - WORTH):
            made, (schedule, placed) = other, tried
        elif switch:
            break
        else:
            switch = True
    return _by_tiles(schedule, placed)


def _by_tiles(schedule: Schedule, placed: Plan) -> tuple[Schedule, Plan]:
    """The same with kernels in the tiles of products, unless that takes more memory."""
    made = tiled(schedule)
    planned = plan(made)
    return (made, planned) if planned.size <= placed.size * (1 + WORTH) else (schedule, placed)


def _planned(made: Assembly) -> tuple[Schedule, Plan]:
    schedule = joined(made.schedule())
    return schedule, plan(schedule)
