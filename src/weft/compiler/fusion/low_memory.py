"""Rematerialise values where that lowers the peak of the memory plan."""

from collections.abc import Mapping
from math import inf

from ...graph.graph import Graph
from ..ir.schedule import Schedule
from ..limits import Limits
from ..memory import MemoryPlan, plan
from ..target import Lowering
from .assemble import Assembly, KernelForms
from .joined_folds import join_column_folds
from .output_shapes import shape_outputs
from .remat import remat


def schedule_and_plan(
    graph: Graph, target: Lowering, donated: Mapping[int, int], tight: bool = False
) -> tuple[Schedule, MemoryPlan]:
    """The schedule and memory plan of a graph after the target's passes.

    donated   maps the position of an output to that of the input whose memory it may take
    tight     whether steps are going to run again, so that less memory is taken
    """
    limits, forms = target.limits, KernelForms(target.limits)
    made = Assembly(graph, target, donated, forms=forms)
    schedule, placed = _plan(made)
    in_place = bool(made.placement.placed)
    if placed.peak >= limits.arena_bytes and made.early() > placed.peak * limits.remat_share:
        other = Assembly(graph, target, donated, False, made.groups, forms)
        tried = _plan(other)
        if tried[1].peak < placed.peak * (1 - limits.remat_share):
            in_place, made, (schedule, placed) = False, other, tried
    switch = False
    for _ in range(limits.remat_rounds):
        if placed.peak < limits.arena_bytes:
            break
        peak, late = made.peak()
        graph = remat(made.graph, peak.alive, late, made.points, limits, switch)
        other = None
        if graph is not made.graph:
            other = Assembly(graph, target, donated, in_place, forms=forms)
        tried = None if other is None else _plan(other)
        if other is not None and tried is not None and _saves(placed, tried[1], limits):
            if not _pays((schedule, placed), tried, target):
                break
            made, (schedule, placed) = other, tried
        elif switch:
            break
        else:
            switch = True
    return _tune(schedule, placed, target, tight)


def _saves(before: MemoryPlan, after: MemoryPlan, limits: Limits) -> bool:
    return after.peak <= before.peak * (1 - limits.remat_share)


def _pays(
    before: tuple[Schedule, MemoryPlan], after: tuple[Schedule, MemoryPlan], target: Lowering
) -> bool:
    """Whether a round does not take too long for what it saves."""
    if target.limits.remat_time == inf:
        return True
    times = [sum([target.cost(s, step) for step in s.steps]) for s, _ in (before, after)]
    saved = 1 - after[1].peak / before[1].peak
    return times[1] <= times[0] * (1 + target.limits.remat_time * saved)


def _tune(
    schedule: Schedule, placed: MemoryPlan, target: Lowering, tight: bool
) -> tuple[Schedule, MemoryPlan]:
    """Let the target tune a schedule, unless that takes more memory; shape its outputs."""
    made = target.tune(schedule, tight)
    planned = plan(made, target.alignment, target.adopts)
    most = max(placed.peak * (1 + target.limits.remat_share), target.limits.arena_bytes)
    if planned.peak <= most:
        schedule, placed = made, planned
    return shape_outputs(schedule), placed


def _plan(made: Assembly) -> tuple[Schedule, MemoryPlan]:
    schedule = join_column_folds(made.schedule(), made.target.limits)
    return schedule, plan(schedule, made.target.alignment, made.target.adopts)
