"""Rematerialisation: light values a second time after the worst moment, and less memory for it."""

import re
import tracemalloc
from dataclasses import replace
from math import inf

import numpy as np
import pytest

import weft as wf
from weft.compiler.cpu.epilogues import fuse_epilogues
from weft.compiler.cpu.runtime.executable import NativeExecutable
from weft.compiler.cpu.target import CPU
from weft.compiler.cuda.limits import GPU_LIMITS
from weft.compiler.fusion.assemble import Assembly
from weft.compiler.fusion.low_memory import schedule_and_plan
from weft.compiler.fusion.remat import remat
from weft.compiler.ir.verify import verify
from weft.compiler.ir.views import views_of
from weft.compiler.limits import LIMITS
from weft.compiler.memory import plan
from weft.compiler.pipeline import current_target, lower, lower_anew
from weft.graph.graph import Graph
from weft.graph.verify import verify as verify_graph

from ..fusion.test_random_graphs import SHAPES, descent, given, program
from ..gpu_like import GpuLike
from ..passes.graphs import lines, traced
from ..schedules import Machine, by_rows, compare, optimised, scheduled

ROWS = np.linspace(-1.0, 1.0, 64 * 128, dtype=np.float32).reshape(64, 128)
SCALE = np.linspace(0.5, 2.0, 128, dtype=np.float32)
WEIGHT = np.linspace(-1.0, 1.0, 128 * 128, dtype=np.float32).reshape(128, 128)


def scaled(x, s, w):
    """y = x·s is read by a product early, and by another one late."""
    t = wf.tanh(x)
    y = t * s
    h = wf.exp(y @ w)
    return (h.T @ y), t


def prepared(f, *arrays) -> Graph:
    return optimised(traced(f, *arrays), verify_graph)


def by_row(graph: Graph, row: str) -> list[int]:
    return [k for k, e in enumerate(graph.equations) if e.op.name == row]


def test_a_light_value_is_computed_again_for_its_late_reader():
    graph = prepared(scaled, ROWS, SCALE, WEIGHT)
    (exp,), (tanh,), (multiply,) = (by_row(graph, r) for r in ("exp", "tanh", "multiply"))
    alive = {graph.equations[k].outputs[0] for k in (tanh, multiply)}
    # An output stays anyway: what is made of it is not worth a look, unless it is alive.
    graph.outputs = graph.outputs[:1]
    before = lines(graph)
    made = remat(graph, alive, set(range(exp, len(graph.equations))), (), LIMITS)
    verify_graph(made)
    after = lines(made)
    assert before[:-2] == after[: len(before) - 2]
    tail = after[len(before) - 2 :]
    assert [re.sub(r".*= (\w+).*", r"\1", line) for line in tail[:-1]] == [
        *("later", "later", "multiply", "matmul"),
    ]
    compare(by_rows(made, [ROWS, SCALE, WEIGHT]), by_rows(graph, [ROWS, SCALE, WEIGHT]))


@pytest.mark.parametrize(
    "change", ["heavy", "small", "not alive", "an output", "nobody reads it late"]
)
def test_what_is_kept(change):
    graph = prepared(scaled, ROWS, SCALE, WEIGHT)
    if change == "an output":
        graph.outputs.append(graph.equations[by_row(graph, "multiply")[0]].outputs[0])
    limits = replace(LIMITS, remat_bytes=ROWS.nbytes + 1) if change == "small" else LIMITS
    if change == "heavy":
        dear = [e._replace(op=replace(e.op, cost="heavy")) for e in graph.equations]
        graph = replace(graph, equations=dear)
    alive = {e.outputs[0] for e in graph.equations if e.op.name in ("multiply", "tanh")}
    start = by_row(graph, "exp")[0] if change != "nobody reads it late" else len(graph.equations)
    late = set(range(start, len(graph.equations)))
    alive = set() if change == "not alive" else alive
    assert remat(graph, alive, late, (), limits) is graph
    if change == "heavy":  # unless the target computes heavy rows again
        points = Assembly(graph, CPU, {}).points
        assert remat(graph, alive, late, points, limits) is graph
        assert remat(graph, alive, late, points, replace(limits, heavy_repeats=2)) is not graph


def deep(x, s, w):
    """Layers whose scaled inputs are kept for the products of a backward pass."""
    kept = []
    for _ in range(6):
        t = wf.tanh(x)
        y = t * s + 1.0
        kept.append((t, y))
        x = y @ w
    g = wf.exp(-x * x)
    total = wf.zeros_like(w)
    for t, y in reversed(kept):
        total = total + y.T @ g
        g = (g @ w.T) * (1.0 - t * t)
    return total


def test_the_plan_has_less(monkeypatch):
    monkeypatch.setattr(CPU, "limits", replace(LIMITS, arena_bytes=0))
    rows = np.tile(ROWS, (16, 1))
    graph = prepared(deep, rows, SCALE, WEIGHT)
    plain = scheduled(graph)
    schedule, placed = schedule_and_plan(graph, CPU, {})
    verify(schedule)
    assert placed.size <= plan(plain).size - 3 * rows.nbytes
    inputs = [rows, SCALE, WEIGHT]
    for checked in (False, True):
        compare(
            NativeExecutable(schedule, placed, checked)(inputs), by_rows(graph, inputs), units=2048
        )


def test_an_arena_that_does_not_shrink_is_as_it_was(monkeypatch):
    monkeypatch.setattr(CPU, "limits", replace(LIMITS, arena_bytes=0, remat_share=0.99))
    graph = prepared(deep, ROWS, SCALE, WEIGHT)
    assert str(schedule_and_plan(graph, CPU, {})[0]) == str(fuse_epilogues(scheduled(graph)))


def cut_at(graph: Graph, at: int) -> tuple[set[int], set[int]]:
    """What is alive before an equation, and it and all after it."""
    views = views_of(graph)
    early = {i for e in graph.equations[:at] for i in e.outputs}
    read = {i for e in graph.equations[at:] for i in e.inputs if isinstance(i, int)}
    return {views[i].root for i in read} & early, set(range(at, len(graph.equations)))


@pytest.mark.parametrize("heavy", [0, 3])
def test_random_graphs_have_the_same_values(heavy):
    limits, changed = replace(LIMITS, remat_bytes=1, heavy_repeats=heavy), 0
    for seed in range(160):
        rng = np.random.default_rng(seed)
        arrays = [rng.normal(size=SHAPES[k]).astype(np.float32) for k in rng.integers(0, 5, 5)]
        traced_ = traced(descent(program(rng)) if seed % 2 else program(rng), *arrays)
        want = [np.asarray(traced_.values[i]) for i in traced_.outputs]
        graph = optimised(traced_)
        if not graph.equations:
            continue
        alive, late = cut_at(graph, int(rng.integers(len(graph.equations))))
        made = remat(graph, alive, late, Assembly(graph, current_target(), {}).points, limits)
        changed += made is not graph
        verify_graph(made)
        schedule = scheduled(made, given(rng, arrays, want))
        verify(schedule)
        for a, b in zip(Machine(schedule, arrays).run(), want, strict=True):
            least = 2e-4 * max(1.0, np.abs(b).max(initial=0))
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=least)
    assert changed > 20


def test_the_peak_of_a_step_is_what_was_said(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "objects"))
    model = wf.nn.Sequential(
        wf.nn.Linear(64, 256), wf.nn.LayerNorm(256), wf.nn.GELU(), wf.nn.Linear(256, 64)
    )
    optimizer = wf.optim.AdamW(model.parameters(), lr=1e-3)
    x = wf.tensor(np.random.default_rng(0).standard_normal((512, 64), dtype=np.float32))

    def step(x):
        optimizer.zero_grad()
        loss = ((model(x) - x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    compiled = wf.compile(step)
    compiled(x)
    run = compiled._last().executable
    peak, arena = run.peak, run.plan.size
    assert arena > 1 << 20 and f"peak {peak} bytes: arena {arena} + outputs" in run.explain()[1]

    def measured(f) -> int:
        f(x)
        tracemalloc.start()
        try:
            f(x)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            f(x)
            return tracemalloc.get_traced_memory()[1] - before
        finally:
            tracemalloc.stop()

    grown, gradients = measured(compiled), sum([4 * p.size for p in model.parameters()])
    assert grown < 0.02 * peak  # new gradients are where the old ones were
    assert abs(grown + gradients + arena - peak) <= 0.02 * peak
    assert peak <= measured(step)


def test_a_stored_schedule_is_the_lean_one(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "objects"))
    monkeypatch.setattr(CPU, "limits", replace(LIMITS, arena_bytes=0))
    rows = np.tile(ROWS, (16, 1))
    first = lower(traced(deep, rows, SCALE, WEIGHT), {}, CPU)
    second = lower(traced(deep, rows, SCALE, WEIGHT), {}, CPU)
    assert first[1] == second[1] and str(first[0]) == str(second[0])
    assert first[1].size < plan(scheduled(prepared(deep, rows, SCALE, WEIGHT))).size


# -- what is computed again on a GPU ---------------------------------------------------------


def residual(x, *weights):
    """Blocks whose sums are computed again from the products of all blocks before, if at all."""
    for w in weights:
        x = x + wf.tanh(x @ w) * 0.5
    return (x * x).sum()


@pytest.mark.parametrize("share", [0.0, inf])
def test_nothing_is_computed_again_that_takes_longer(share):
    arrays = [np.ones((256, 256), np.float32) for _ in range(7)]
    graph = traced(wf.grad(residual, argnums=tuple(range(7))), *arrays)
    limits = replace(GPU_LIMITS, arena_bytes=0, remat_time=share, remat_bytes=0)
    found = []
    for rounds in (0, 4):
        target = GpuLike(replace(limits, remat_rounds=rounds), ())
        schedule, placed = lower_anew(graph, {}, target)
        found.append((placed.peak, sum([target.cost(schedule, step) for step in schedule.steps])))
    (most, time), (peak, longer) = found
    assert peak <= most
    assert (longer <= time) == (share == 0)
