"""Schedules for a target that adopts library results, whose calls do not fail, beside eager mode.

Random graphs and random products; memory plans beside brute force; and planted faults.
"""

import os
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
import torch

import weft as wf
from weft.compiler import pipeline
from weft.compiler.cuda.computes import CHECKED, library_fails
from weft.compiler.fusion.budget import apply_checkpoints
from weft.compiler.ir.schedule import GemmStep, KernelStep, LibraryStep, Schedule
from weft.compiler.ir.verify import MalformedSchedule, verify
from weft.compiler.memory import (
    MemoryPlan,
    adopted_roots,
    call_bytes,
    lifetimes,
    round_up,
    verify_plan,
)
from weft.core import dtypes
from weft.core.backends import KERNELS
from weft.core.checkpointing import MIB, CheckpointConfig
from weft.core.op import TABLE
from weft.errors import BudgetExceeded

from .fusion.test_random_graphs import SHAPES, descent, given, program
from .gpu_like import GPU_LIKE
from .passes.graphs import traced
from .schedules import Machine

SOAK = bool(os.environ.get("WEFT_SOAK"))
GRAPHS, PRODUCTS = (4000, 4000) if SOAK else (150, 120)
F = wf.nn.functional


def lowered(graph, donated=None) -> tuple[Schedule, MemoryPlan]:
    schedule, placed = pipeline.lower_anew(graph, donated or {}, GPU_LIKE)
    verify(schedule, GPU_LIKE.product_dtypes)
    verify_plan(schedule, placed)
    return schedule, placed


def random_graph(seed: int):
    """A graph, its inputs, and which of their memory is given to outputs."""
    rng = np.random.default_rng(seed)
    shapes = [SHAPES[k] for k in rng.integers(0, len(SHAPES), 5)]
    arrays = [rng.normal(size=s).astype(np.float32) for s in shapes]
    f = program(rng)
    graph = traced(descent(f) if seed % 2 else f, *arrays)
    want = [np.asarray(graph.values[i]) for i in graph.outputs]
    return graph, arrays, want, given(rng, arrays, want)


def adopting() -> tuple:
    """The first of those graphs whose schedule adopts something, and places something else."""
    for seed in range(100):
        graph, *_ = random_graph(seed)
        schedule, placed = lowered(graph)
        if placed.adopted and placed.offsets and adopted_roots(schedule):
            return graph, schedule, placed
    raise AssertionError("none adopts anything")


def adopted(schedule: Schedule, placed: MemoryPlan) -> int:
    """Bytes that calls have allocated and that are needed or copied, by the worst step."""
    spans, buffers, most = lifetimes(schedule), schedule.buffers, 0
    for k, step in enumerate(schedule.steps):
        alive = {i for i, (first, last) in spans.items() if first <= k <= last}
        kept = sum(round_up(buffers[i].nbytes, 256) for i in alive - placed.offsets.keys())
        copied = [i for i in step.writes if buffers[i].role != "scratch"]
        passing = sum(buffers[i].nbytes for i in copied) if isinstance(step, LibraryStep) else 0
        most = max(most, kept + round_up(passing, 256))
    return most


# -- values ----------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", range(10))
def test_random_graphs(batch):
    for seed in range(batch, GRAPHS, 10):
        graph, arrays, want, donated = random_graph(seed)
        schedule, placed = lowered(graph, donated)
        for a, b in zip(Machine(schedule, arrays, placed=placed).run(), want, strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            bound = 2e-4 * max(1.0, np.abs(b).max(initial=0))
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=bound)


def factors(rng, dtype) -> tuple[str, list[np.ndarray]]:
    """The subscripts of a product and its factors: batches, transposes, vectors."""
    batch = "bc"[: rng.integers(0, 3)]
    rows, columns = (c if rng.random() < 0.8 else "" for c in "ik")
    left, right, out = (
        "".join(rng.permutation([*batch, *term]))
        for term in (rows + "j", "j" + columns, rows + columns)
    )
    if rng.random() < 0.3:
        right = right.translate(str.maketrans("", "", "bc"))  # one matrix for the whole batch
    sizes = dict(zip("bcijk", map(int, rng.integers(1, 6, 5)), strict=True))
    arrays = [
        rng.normal(size=[sizes[c] for c in term]).astype(np.float32).astype(dtype)
        for term in (left, right)
    ]
    return f"{left},{right}->{out}", arrays


def check_product(seed: int) -> tuple[Schedule, float]:
    """α·einsum + bias, then a second product added: beside float64, by the roundings of a half."""
    rng = np.random.default_rng(seed)
    dtype = dtypes.HALF[seed % 2]
    term, (a, b) = factors(rng, dtype)
    alpha = float(np.round(rng.normal(), 2)) if rng.random() < 0.5 else 1.0
    out = term.split("->")[1]
    again = rng.random() < 0.5
    bias = np.asarray(rng.normal(size=np.einsum(term, a, b, dtype=np.float32).shape[-1:]), dtype)

    def f(a, b, bias):
        z = wf.einsum(term, a, b) * alpha
        z = z + wf.einsum(term, a * 2, b) if again else z
        return z + bias if out else z

    graph = traced(f, a, b, bias)
    schedule, placed = lowered(graph)
    (got,) = Machine(schedule, [a, b, bias], placed=placed).run()
    wide = [x.astype(np.float64) for x in (a, b, bias)]
    want = np.einsum(term, *wide[:2]) * (alpha + 2 * again) + (wide[2] if out else 0)
    size = np.einsum(term, *map(np.abs, wide[:2])) * (abs(alpha) + 2 * again)
    size = size + (np.abs(wide[2]) if out else 0)
    assert got.dtype == dtype and got.shape == want.shape
    # A product, its scale, a sum and the bias round once each, and an operand of a sum of rows.
    bound = 8 * float(ml_dtypes.finfo(dtype).eps)
    return schedule, float((np.abs(got.astype(np.float64) - want) / (bound * size + 1e-30)).max())


@pytest.mark.parametrize("batch", range(4))
def test_products_of_halves(batch):
    gemms = 0
    for seed in range(batch, PRODUCTS, 4):
        schedule, error = check_product(seed)
        assert error <= 1, seed
        gemms += sum(isinstance(s, GemmStep) for s in schedule.steps)
        assert not any(s.op.name in ("einsum", "matmul") for s in calls(schedule))
    assert gemms >= PRODUCTS / 4


def calls(schedule: Schedule) -> list[LibraryStep]:
    return [s for s in schedule.steps if isinstance(s, LibraryStep)]


def test_a_linear_layer_of_halves_is_a_product_and_a_kernel():
    rng = np.random.default_rng(0)
    x, w, b = (rng.normal(size=s).astype(np.float32) for s in ((2, 8, 16), (4, 16), (4,)))

    def loss(x, w, b):
        with wf.amp.autocast("bfloat16"):
            return wf.gelu(F.linear(x, w, b))

    schedule, _ = lowered(traced(loss, x, w, b))
    (gemm,) = [s for s in schedule.steps if isinstance(s, GemmStep)]
    assert schedule.buffers[gemm.c].dtype == dtypes.bfloat16
    assert (gemm.m, gemm.n, gemm.k, gemm.transpose_b) == (16, 4, 16, True)
    last = schedule.steps[-1]
    assert isinstance(last, KernelStep) and {"add", "gelu"} <= {*last.rows}
    assert not calls(schedule)


# -- memory ----------------------------------------------------------------------------------


def test_what_calls_make_has_no_place_in_the_arena():
    found = 0
    for seed in range(60):
        graph, _, _, donated = random_graph(seed)
        schedule, placed = lowered(graph, donated)
        made = {i for s in calls(schedule) for i in s.writes}
        assert not made & placed.offsets.keys()
        assert placed.adopted == adopted(schedule, placed) == call_bytes(schedule, placed).library
        found += bool(placed.adopted)
    assert found > 30


def test_budgets_count_what_is_adopted():
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=s).astype(np.float32) for s in ((256, 256), (256, 256)))

    def f(x, w):
        def loss(x):
            for _ in range(6):
                x = wf.exp(wf.sin(x @ w)) * wf.sin(x)
            return (wf.tanh(x) * x).sum()

        return wf.grad(loss)(x)

    schedule, placed = lowered(traced(f, x, w))
    whole = call_bytes(schedule, placed)
    assert whole.peak == whole.fixed + whole.arena and placed.adopted == whole.library > 0
    budgets = []
    for share in (0.95, 0.85, 0.7, 0.1):
        budget = int(whole.tables + whole.peak * share)
        config = CheckpointConfig("auto", memory_budget_mb=budget / MIB)
        try:
            made, plan = apply_checkpoints(schedule, placed, GPU_LIKE, config)
        except BudgetExceeded as e:
            budgets.append(e.smallest)
            continue
        verify(made)
        verify_plan(made, plan)
        assert plan.adopted == adopted(made, plan)
        assert call_bytes(made, plan).enough <= budget
        got, want = (
            Machine(s, [x, w], placed=p).run() for s, p in ((made, plan), (schedule, placed))
        )
        np.testing.assert_array_equal(got[0], want[0])
    assert len(budgets) in (1, 2, 3)


def test_plans_on_disk_are_the_same(monkeypatch, tmp_path):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    graph, *_ = adopting()
    first, second = (pipeline.lower(graph, {}, GPU_LIKE) for _ in range(2))
    assert str(first[0]) == str(second[0]) and first[1] == second[1] and first[1].adopted
    assert [s.fails for s in calls(first[0])] == [s.fails for s in calls(second[0])]


# -- calls that cannot fail ------------------------------------------------------------------


def test_an_input_may_be_written_before_a_call_that_cannot_fail():
    x, y = (np.ones((4, 4), np.float32) for _ in range(2))

    def f(x, y):
        return x * 2, wf.tanh(y)

    def g(x, y):
        return x * 2, wf.linalg.inv(y + 3 * wf.eye(4))

    for h, fails in ((f, False), (g, True)):
        schedule, _ = lowered(traced(h, x, y), {0: 0})
        assert [s.fails for s in calls(schedule)] == [fails]
        turned = replace(schedule, steps=tuple(sorted(schedule.steps, key=takes(schedule))))
        if not fails:
            verify(turned)
            continue
        with pytest.raises(MalformedSchedule, match="after an input is written"):
            verify(turned)


def takes(schedule: Schedule):
    """The steps that write inputs first."""
    buffers = schedule.buffers
    return lambda s: not any(buffers[i].takes is not None for i in s.writes)


def test_updates_do_not_wait_for_calls_that_cannot_fail():
    """The update of an input precedes a call that needs it; no copy at the end is made."""
    x = np.ones((4, 4), np.float32)

    def f(x):
        z = x * 2
        return z, wf.tanh(z)

    schedule, _ = lowered(traced(f, x), {0: 0})
    first, second = schedule.steps
    assert isinstance(second, LibraryStep) and not second.fails
    assert schedule.buffers[first.writes[0]].takes == schedule.inputs[0]
    with_cpu, _ = pipeline.lower_anew(traced(f, x), {0: 0}, pipeline.target_for("cpu"))
    assert not calls(with_cpu)


def test_a_function_of_the_user_may_fail():
    op = replace(TABLE["tanh"], name="mine", foreign=True)
    assert library_fails(op) and not library_fails(TABLE["tanh"])


def test_rows_whose_kernels_may_refuse_values_are_known():
    """LAPACK's routines say on the host whether they succeeded."""

    def kernel(op):
        found = KERNELS[op][torch.Tensor]
        return getattr(getattr(found, "func", found), "__qualname__", "")

    wf.tensor(torch.ones(2))  # which loads the backend
    found = {name for name, op in TABLE.items() if kernel(op).startswith("lapack.")}
    assert len(found) > 20 and found <= CHECKED <= TABLE.keys()


# -- planted faults --------------------------------------------------------------------------


def test_a_buffer_without_a_place_shows():
    _, schedule, placed = adopting()
    fewer = dict(list(placed.offsets.items())[1:])
    with pytest.raises(MalformedSchedule, match="no place"):
        verify_plan(schedule, replace(placed, offsets=fewer))
    with pytest.raises(MalformedSchedule, match="no place"):
        verify_plan(schedule, replace(placed, adopted=None))


def test_products_in_other_dtypes_than_the_targets_are_refused():
    schedule, _ = check_product(3)
    with pytest.raises(MalformedSchedule, match="one of float32, float64"):
        verify(schedule, (dtypes.float32, dtypes.float64))


def test_a_scale_that_is_lost_shows(monkeypatch):
    run = Machine._gemm
    monkeypatch.setattr(Machine, "_gemm", lambda self, s: run(self, replace(s, alpha=1.0)))
    assert any(check_product(seed)[1] > 1 for seed in range(12))


def test_memory_that_an_adopted_result_is_taken_for_shows(monkeypatch):
    """A kernel's result in the place of another one that is alive."""

    def wrong(seed):
        graph, arrays, want, donated = random_graph(seed)
        schedule, placed = lowered(graph, donated)
        placed = replace(placed, offsets=dict.fromkeys(placed.offsets, 0))
        made = Machine(schedule, arrays, placed=placed).run()
        return any(not np.allclose(a, b, atol=1e-3) for a, b in zip(made, want, strict=True))

    assert any(map(wrong, range(10)))
