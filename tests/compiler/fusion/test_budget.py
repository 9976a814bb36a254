"""Schedules whose steps run again beside those without: the same bits, in the bytes of a budget."""

import os
from dataclasses import replace

import numpy as np
import pytest

import weft as wf
from weft import errors
from weft.compiler import pipeline
from weft.compiler.fusion import eviction, recompute
from weft.compiler.fusion.budget import Ladder, apply_checkpoints
from weft.compiler.fusion.eviction import evict
from weft.compiler.fusion.footprint import Footprint
from weft.compiler.fusion.recompute import NEVER, Recipes
from weft.compiler.fusion.repeat import Rerun, repeat
from weft.compiler.ir.schedule import Schedule
from weft.compiler.ir.verify import verify
from weft.compiler.memory import call_bytes, live_bytes, plan, verify_plan
from weft.compiler.pipeline import current_target
from weft.core.checkpointing import MIB, CheckpointConfig

from ..gpu_like import GPU_LIKE
from ..passes.graphs import traced
from ..programs import Program
from ..schedules import Machine, compiled
from .test_fuse import perceptron, transformer
from .test_random_graphs import SHAPES, descent, given, program

GRAPHS = 4000 if os.environ.get("WEFT_SOAK") else 60


def random_schedule(seed: int) -> tuple[Schedule, list[np.ndarray]]:
    """A random program, or a step down its gradient, in part in the memory of its inputs."""
    rng = np.random.default_rng(seed)
    shapes = [SHAPES[k] for k in rng.integers(0, len(SHAPES), 5)]
    arrays = [rng.normal(size=s).astype(np.float32) for s in shapes]
    f = program(rng)
    graph = traced(descent(f) if seed % 3 else f, *arrays)
    want = [graph.avals[i] for i in graph.outputs]
    return current_target().tune(compiled(graph, given(rng, arrays, want)), True), arrays


def bits(schedule: Schedule, arrays) -> list[bytes]:
    """The outputs, and the inputs that were written into, of a run in memory full of NaN."""
    verify(schedule)
    return [x.tobytes() for x in Machine(schedule, arrays).run()]


def recipes_of(schedule: Schedule) -> Recipes:
    return Recipes(schedule, current_target().cost, current_target().alignment)


def random_order(rng, recipes: Recipes) -> list[int | Rerun]:
    """Some buffers are kept across some position, the rest is dropped and computed again."""
    at = int(rng.integers(0, len(recipes.reads) + 1))
    kept = frozenset(i for i in recipes.sizes if rng.random() < rng.random())
    whole = plan(recipes.schedule).size
    limit = float("inf") if rng.random() < 0.3 else rng.random() * whole
    found = evict(recipes, limit, at if rng.random() < 0.7 else NEVER, kept)
    return [*range(len(recipes.reads))] if found is None else found.order


def check_random(seed: int) -> int:
    """How many steps ran again in some random orders, all of them with the same results."""
    schedule, arrays = random_schedule(seed)
    rng, want = np.random.default_rng(seed), bits(schedule, arrays)
    recipes, count = recipes_of(schedule), 0
    footprint = Footprint(recipes, current_target().alignment)
    for _ in range(4):
        order = random_order(rng, recipes)
        made = repeat(recipes, order)
        assert bits(made, arrays) == want
        assert footprint.measure(order).plan() == plan(made, current_target().alignment)
        count += len(made.steps) - len(schedule.steps)
    return count


@pytest.mark.parametrize("batch", range(5))
def test_random_orders_give_the_same_bits(batch):
    assert sum(check_random(seed) for seed in range(batch, GRAPHS, 5)) > GRAPHS / 5


def faults() -> int:
    """How many random programs show a fault."""
    found = 0
    for seed in range(60):
        try:
            check_random(seed)
        except (AssertionError, KeyError):
            found += 1
    return found


def test_inputs_that_are_overwritten_expire(monkeypatch):
    monkeypatch.setattr(recompute, "_overwritten", lambda schedule: {})
    assert faults()


def test_what_several_steps_write_is_computed_again_by_all_of_them(monkeypatch):
    monkeypatch.setattr(recompute, "_groups", lambda schedule, parts: [[p] for p in parts])
    assert faults()


# -- the ladder --------------------------------------------------------------------------------


SHARES = (1, 0.9, 0.75, 0.5, 0.35, 0.25, 0.1)


def check_ladder(schedule: Schedule, arrays, shares=SHARES) -> list[int]:
    """Budgets from the whole arena down: each plan fits, peaks fall, results are the same."""
    target = current_target()
    placed = plan(schedule, target.alignment)
    taken = call_bytes(schedule, placed)
    fixed = taken.fixed + taken.tables
    want, sizes = bits(schedule, arrays), []
    for share in shares:
        budget = fixed + int(share * placed.size)
        config = CheckpointConfig("auto", memory_budget_mb=budget / MIB)
        try:
            made, under = apply_checkpoints(schedule, placed, target, config)
        except errors.BudgetExceeded as e:
            check_refusal(schedule, placed, target, e.smallest)
            assert budget < e.smallest
            break
        assert fixed + under.size <= budget
        assert replace(under, again=None) == plan(made, target.alignment)
        assert bits(made, arrays) == want
        sizes.append(under.size)
    assert sizes == sorted(sizes, reverse=True)
    return sizes


def check_refusal(schedule: Schedule, placed, target, smallest: int) -> None:
    """The budget that a refusal names works, and a byte less does not."""

    def under(budget: int):
        config = CheckpointConfig("auto", memory_budget_mb=budget / MIB)
        return apply_checkpoints(schedule, placed, target, config)

    _, made = under(smallest)
    taken = call_bytes(schedule, placed)
    assert made.size + taken.fixed + taken.tables == smallest
    with pytest.raises(errors.BudgetExceeded) as e:
        under(smallest - 1)
    assert e.value.smallest == smallest
    assert isinstance(e.value, MemoryError)


@pytest.mark.parametrize("batch", range(5))
def test_ladders_of_random_graphs(batch):
    for seed in range(batch, GRAPHS // 2, 5):
        check_ladder(*random_schedule(seed))


@pytest.mark.parametrize("model", [perceptron, transformer])
def test_ladders_of_training_steps(model):
    graph, arrays, donated = model(np.random.default_rng(0))
    assert check_ladder(current_target().tune(compiled(graph, donated), True), arrays)


@pytest.mark.parametrize("strategy", ["none", "selective", "block", "full"])
def test_strategies_give_the_same_bits(strategy):
    for seed in range(1, GRAPHS, 4):
        schedule, arrays = random_schedule(seed)
        target, placed = current_target(), plan(schedule, current_target().alignment)
        made, under = apply_checkpoints(schedule, placed, target, CheckpointConfig(strategy))
        assert bits(made, arrays) == bits(schedule, arrays)
        assert under.size <= placed.size


# -- what never runs again ---------------------------------------------------------------------


def test_products_that_add_run_again_with_what_they_add_to():
    p = Program()
    x, w = p.buffer("input", 4, 4), p.buffer("input", 4, 4)
    s, y = p.buffer("scratch", 4, 4), p.buffer("output", 4, 4)
    p.row("negative", [x], s)
    p.product(x, w, s, beta=1.0)
    p.product(s, w, y)
    recipes = recipes_of(p.schedule(y))
    (unit,) = [u for u in recipes.units if s in u.writes]
    assert [type(part.step).__name__ for part in unit.parts] == ["KernelStep", "GemmStep"]
    assert unit.expires == float("inf")


def test_a_buffer_that_changes_after_it_is_read_stays():
    p = Program()
    x, s = p.buffer("input", 4, 4), p.buffer("scratch", 4, 4)
    t, y = p.buffer("scratch", 4, 4), p.buffer("output", 4, 4)
    p.row("negative", [x], s)
    p.row("exp", [s], t)  # of the first value of s
    p.product(x, x, s, beta=1.0)
    p.row("add", [s, t], y)
    recipes = recipes_of(p.schedule(y))
    assert [u.expires for u in recipes.units if {s, t} & {*u.writes}] == [NEVER, NEVER]


def packed_layers(x, *packed):
    """The gradient of layers whose weights are unpacked from 8 bits."""

    def loss(x):
        for w in packed:
            x = wf.sin(x @ (wf.astype(w, "float32") * 0.01))
        return (x * x).sum()

    return wf.grad(loss)(x)


@pytest.mark.parametrize("like", ["cpu", "gpu"])
def test_weights_are_unpacked_again_right_before_their_layer(monkeypatch, like):
    """A chain of layers that runs again has the weights of one at a time, not of all."""
    rng, target = np.random.default_rng(0), GPU_LIKE if like == "gpu" else current_target()
    x = rng.normal(size=(512, 256)).astype(np.float32)
    packed = [rng.integers(-99, 99, (256, 256)).astype(np.int8) for _ in range(16)]
    graph = traced(packed_layers, x, *packed)
    schedule, placed = pipeline.lower_anew(graph, {}, target)

    def smallest() -> int:
        made, found = Ladder(schedule, placed, target).smallest()
        verify(made)
        verify_plan(made, found)
        return found.peak

    found = smallest()

    def in_order(walk, chain):
        return sorted(chain, key=lambda n: (walk.recipes.units[n].parts[-1].at, n))

    monkeypatch.setattr(eviction._Walk, "_in_order", in_order)
    assert found < 0.8 * smallest()


def test_what_is_adopted_counts_at_its_own_worst_step():
    """The arena stays as large as it is while library results are at their worst."""
    apart = 0
    for seed in range(40):
        graph, *_ = traced_random(seed)
        schedule, placed = pipeline.lower_anew(graph, {}, GPU_LIKE)
        found = Recipes(schedule, GPU_LIKE.cost, GPU_LIKE.alignment, adopts=True)
        assert found.outside == placed.adopted
        assert placed.least == max(found.profile, default=0)
        both = max(live_bytes(schedule, GPU_LIKE.alignment, adopts=True), default=0)
        least = Footprint(found, GPU_LIKE.alignment, adopts=True).measure(range(len(found.reads)))
        assert least.least == placed.least + placed.adopted >= both
        apart += least.least > both
    assert apart


def traced_random(seed: int):
    """A random graph, and the arrays that it takes."""
    rng = np.random.default_rng(seed)
    arrays = [
        rng.normal(size=SHAPES[k]).astype(np.float32) for k in rng.integers(0, len(SHAPES), 5)
    ]
    f = program(rng)
    return traced(descent(f) if seed % 2 else f, *arrays), arrays
