"""Parts of arrays that are computed in their places: random programs of them beside eager mode.

Memory that nothing has written is NaN, so that a part that is missing shows, and so does one that
is written over before it is read.
"""

import os
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import weft as wf
from weft.compiler import pipeline
from weft.compiler.cuda.limits import GPU_LIMITS
from weft.compiler.fusion import assemble, parts
from weft.compiler.fusion.assemble import Assembly
from weft.compiler.fusion.budget import apply_checkpoints
from weft.compiler.fusion.classify import UnitKind
from weft.compiler.ir.schedule import GemmStep, KernelStep, Schedule
from weft.compiler.ir.verify import MalformedSchedule, verify
from weft.compiler.memory import call_bytes, verify_plan
from weft.compiler.target import optimise
from weft.core.checkpointing import CheckpointConfig
from weft.errors import BudgetExceeded

from ..gpu_like import GpuLike
from ..passes.graphs import traced
from ..schedules import Machine
from .test_limits import drawn, lowered
from .test_random_graphs import given

GRAPHS = 8000 if os.environ.get("WEFT_SOAK") else 320
MIB = 1 << 20
ALWAYS = replace(GPU_LIMITS, aligned_parts=1)


# -- programs --------------------------------------------------------------------------------


def _joined(rng, values):
    """Values of one shape but for an axis, side by side."""
    x = values[rng.integers(len(values))]
    axis = int(rng.integers(x.ndim))
    rest = [n for a, n in enumerate(x.shape) if a != axis]
    alike = [y for y in values if y.ndim == x.ndim and _without(y.shape, axis) == rest]
    chosen = [x, *(alike[k] for k in rng.integers(0, len(alike), int(rng.integers(1, 3))))]
    return wf.concat(chosen, axis=axis)


def _without(shape, axis: int) -> list[int]:
    return [n for a, n in enumerate(shape) if a != axis]


def _stacked(rng, values):
    x = values[rng.integers(len(values))]
    alike = [y for y in values if y.shape == x.shape]
    count = int(rng.integers(1, 4))
    chosen = [x, *(alike[k] for k in rng.integers(0, len(alike), count))]
    return wf.stack(chosen, axis=int(rng.integers(-1, x.ndim)))


def _padded(rng, values):
    x = values[rng.integers(len(values))]
    widths = [tuple(map(int, rng.integers(0, 3, 2) * (rng.random() < 0.5))) for _ in x.shape]
    return wf.pad(x, widths, constant_values=float(rng.integers(0, 2)) * 0.5)


def _sliced(rng, values):
    x = values[rng.integers(len(values))]
    axis, step = int(rng.integers(x.ndim)), int(rng.choice([1, 1, 2, 3, -1, -2]))
    start = int(rng.integers(0, max(x.shape[axis] // 2, 1)))
    key = slice(start, None, step) if step > 0 else slice(None, None, step)
    return x[(slice(None),) * axis + (key,)]


def _elementwise(rng, values):
    f = (wf.tanh, lambda x: x * 0.5 + 1, lambda x: x * x, wf.sin)[rng.integers(4)]
    return f(values[rng.integers(len(values))])


def _sum(rng, values):
    x = values[rng.integers(len(values))]
    alike = [y for y in values if y.shape == x.shape]
    return x - 0.5 * alike[rng.integers(len(alike))]


def _normed(rng, values):
    return wf.softmax(values[rng.integers(len(values))], axis=-1)


def _folded(rng, values):
    x = values[rng.integers(len(values))]
    return x.mean(int(rng.integers(x.ndim)), keepdims=True)


def _product(rng, values):
    x = values[rng.integers(len(values))]
    n = x.shape[-1]
    right = wf.sin(wf.arange(n * 4, dtype=x.dtype, device=x.device).reshape(n, 4))
    return (x @ right) * 0.3 if rng.random() < 0.5 else x @ right


def _turned(rng, values):
    x = values[rng.integers(len(values))]
    return x.swapaxes(*map(int, rng.integers(0, x.ndim, 2)))


def _reshaped(rng, values):
    x = values[rng.integers(len(values))]
    return x.reshape(-1, x.shape[-1]) if rng.random() < 0.5 else x.reshape(*x.shape[:-1], -1, 1)


MOVES = (_joined, _stacked, _padded, _sliced)
KINDS = (*MOVES, *MOVES, _elementwise, _elementwise, _sum, _normed, _folded, _product)
KINDS += (_turned, _reshaped)


def program(seed: int):
    """A function of three arrays; what it does depends on the seed alone."""

    def f(*arrays):
        rng = np.random.default_rng([7, seed])
        values = list(arrays)
        for _ in range(int(rng.integers(4, 16))):
            y = KINDS[rng.integers(len(KINDS))](rng, values)
            if 0 < y.size <= 400 and 0 < y.ndim < 5:
                values.append(y)
        return [values[k] for k in rng.integers(0, len(values), int(rng.integers(1, 4)))]

    return f


def gradients(f):
    """What f returns, and the gradients of the sum of its squares."""

    def step(*arrays):
        def loss(xs):
            return sum((r * r).mean() for r in f(*xs))

        value, grads = wf.value_and_grad(loss)(list(arrays))
        return value, *grads

    return step


def random_program(seed: int):
    rng = np.random.default_rng(seed)
    shapes = [[(3, 4), (3, 4), (3, 4)], [(2, 3, 4), (2, 2, 4), (2, 3, 4)]][seed % 2]
    arrays = [rng.normal(size=s).astype(np.float32) for s in shapes]
    f = program(seed)
    graph = traced(gradients(f) if seed % 3 == 0 else f, *arrays)
    want = [np.asarray(graph.values[i]) for i in graph.outputs]
    limits = ALWAYS if rng.random() < 0.5 else replace(drawn(rng), aligned_parts=1)
    return graph, arrays, want, GpuLike(limits, ()), given(rng, arrays, want)


def close(got, want) -> bool:
    pairs = zip(got, want, strict=True)
    return all(
        (a.shape, a.dtype) == (b.shape, b.dtype)
        and np.allclose(a, b, rtol=2e-4, atol=2e-4 * max(1.0, np.abs(b).max(initial=0)))
        for a, b in pairs
    )


def differs(seed: int) -> bool:
    graph, arrays, want, target, donated = random_program(seed)
    schedule, placed = lowered(graph, target, donated)
    return not close(Machine(schedule, arrays, placed=placed).run(), want)


@pytest.mark.parametrize("batch", range(8))
def test_random_programs_of_parts(batch):
    assert not [seed for seed in range(batch, GRAPHS, 8) if differs(seed)]


def test_the_random_programs_reach_every_form():
    """Parts of every row, parts that are wholes, products, and parts that others read as well."""
    found: Counter[str] = Counter()
    for seed in range(GRAPHS):
        graph, _, _, target, donated = random_program(seed)
        made = Assembly(optimise(graph, target.passes), target, donated)
        placement, grouping = made.placement, made.grouping
        rows = {i: e.op.name for e in made.graph.equations for i in e.outputs}
        found.update(rows[whole] for whole, _ in placement.placed)
        for root in {i for inside in placement.within.values() for i in inside}:
            found[grouping.units[grouping.unit_of[root]].kind.name] += 1
            readers = [k for x in placement._values[root] for k in grouping.uses.readers.get(x, ())]
            found["read by others"] += len(readers) > 1
            found["of one row"] += made.graph.avals[root].shape != made.memory[root].shape
    kinds = (UnitKind.POINT.name, UnitKind.PARTS.name, UnitKind.PRODUCT.name)
    for form in ("concat", "stack", "pad", "unslice", *kinds, "read by others"):
        assert found[form] >= 10, (form, found)


def test_budgets_of_programs_with_parts():
    """Under a budget steps run again, with the same results."""
    ran = 0
    for seed in range(GRAPHS // 2):
        graph, arrays, want, target, donated = random_program(seed)
        schedule, placed = lowered(graph, target, donated)
        whole = call_bytes(schedule, placed)
        share = (0.9, 0.8)[seed // 2 % 2]
        budget = whole.tables + whole.fixed + int(whole.arena * share)
        config = CheckpointConfig("auto", memory_budget_mb=budget / MIB)
        try:
            made, plan = apply_checkpoints(schedule, placed, target, config)
        except BudgetExceeded:
            continue
        verify(made)
        verify_plan(made, plan)
        assert close(Machine(made, arrays, placed=plan).run(), want), seed
        ran += len(made.steps) > len(schedule.steps)
    assert ran >= 5


# -- what becomes of programs ----------------------------------------------------------------


def copies(schedule: Schedule) -> list[KernelStep]:
    """The kernels that compute nothing."""
    return [s for s in schedule.steps if isinstance(s, KernelStep) and not s.kernel.steps]


def of(f, *shapes, limits=GPU_LIMITS) -> Schedule:
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=s).astype(np.float32) for s in shapes]
    graph = traced(f, *arrays)
    schedule, placed = lowered(graph, GpuLike(limits, ()))
    want = [np.asarray(graph.values[i]) for i in graph.outputs]
    assert close(Machine(schedule, arrays, placed=placed).run(), want)
    return schedule


def rotated(x, cosine, sine):
    wide = x.reshape(*x.shape[:-1], x.shape[-1] // 2, 2)
    a, b = wide[..., 0], wide[..., 1]
    y = wf.stack([a * cosine - b * sine, a * sine + b * cosine], axis=-1)
    return y.reshape(*x.shape)


def test_tokens_that_are_joined_and_turned_are_not_copied():
    def f(text, image, cosine, sine):
        norm = wf.nn.functional.rms_norm
        q = wf.concat([norm(text, (16,)), norm(image, (16,))], axis=1)
        return rotated(q, cosine, sine)

    shapes = ((2, 8, 16), (2, 24, 16), (32, 8), (32, 8))
    assert len(copies(of(f, *shapes, limits=replace(GPU_LIMITS, aligned_parts=0)))) == 4
    schedule = of(f, *shapes)
    assert not copies(schedule) and len(schedule.steps) == 3


def test_a_product_writes_to_its_place():
    def f(x, w):
        return wf.concat([x @ w, wf.tanh(x)], axis=-1)

    schedule = of(f, (8, 16), (16, 4))
    (gemm,) = [s for s in schedule.steps if isinstance(s, GemmStep)]
    assert not copies(schedule) and gemm.ldc == 20


def test_only_what_is_beside_a_part_is_filled():
    schedule = of(lambda x: wf.pad(wf.tanh(x), ((4, 8), (0, 0))), (4, 4))
    assert sorted(s.kernel.domain for s in copies(schedule)) == [(16,), (32,)]


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (lambda y: (y, wf.concat([y, y * 2])))(wf.tanh(x)),  # an output itself
        lambda x: wf.concat([wf.sort(wf.tanh(x)), x]),  # a routine or a call computes it
        lambda x: (lambda y: (wf.concat([x, y]), wf.sort(y)))(wf.tanh(x)),  # or reads it
        lambda x: wf.concat([wf.tanh(x)[:2], x]),  # it is not all that was computed
        lambda x: wf.concat([x, x]),
    ],
)
def test_parts_that_are_needed_elsewhere_are_copied(f):
    assert copies(of(f, (4, 4)))


def test_places_that_are_not_aligned_are_not_taken():
    def f(x):
        return wf.concat([x[:1] * 3, wf.tanh(x)])

    assert len(copies(of(f, (7,)))) == 1 and not copies(of(f, (7,), limits=ALWAYS))


def test_a_whole_that_would_be_alive_for_long_is_copied_to():
    """The first part is early and small, and all else comes before the last one."""

    def f(x, y):
        first, z = wf.tanh(x), y
        for _ in range(4):
            z = wf.sin(z @ z) * 0.1
        return wf.concat([first, z.sum(0)[None] + y * z.mean()]).sum()

    shapes = ((1, 256), (256, 256))
    graph = traced(f, *(np.ones(s, np.float32) for s in shapes))
    for enough in (0, 1 << 30):
        limits = replace(GPU_LIMITS, arena_bytes=enough, remat_rounds=0)
        _, placed = pipeline.lower_anew(graph, {}, GpuLike(limits, ()))
        apart = replace(limits, aligned_parts=0)
        _, other = pipeline.lower_anew(graph, {}, GpuLike(apart, ()))
        assert placed.peak <= other.peak * 1.01 or enough


# -- planted faults --------------------------------------------------------------------------


def shows(seeds=range(160)) -> bool:
    def wrong(seed):
        try:
            return differs(seed)
        except AssertionError:
            return True

    return any(map(wrong, seeds))


def test_a_gap_that_is_not_filled_shows(monkeypatch):
    right = parts.gaps
    monkeypatch.setattr(assemble, "gaps", lambda *given: right(*given)[1:])
    assert shows()


def test_a_fill_of_the_whole_shows(monkeypatch):
    monkeypatch.setattr(assemble, "gaps", lambda graph, e, whole: [whole])
    assert shows()


def test_an_output_in_a_whole_shows(monkeypatch):
    monkeypatch.setattr(parts, "OUTPUT", -2)
    assert shows()


def test_readers_that_look_elsewhere_show(monkeypatch):
    right = parts.Placement._looks

    def wrong(self, root, place):
        found = right(self, root, place)
        return None if found is None else {x: v for x, v in found.items() if x == root}

    monkeypatch.setattr(parts.Placement, "_looks", wrong)
    assert shows()


def backward_rows(x, w):
    """Rows that are put into zeros in reverse, and multiplied."""
    y = wf.tanh(x)
    into = wf.vjp(lambda t: t[::-2], wf.zeros((2 * x.shape[0], x.shape[1])))[1](y)[0]
    return into, y @ w


def interleaved_products(x, w):
    return wf.stack([x @ w, x @ wf.tanh(w)], axis=-1)


@pytest.mark.parametrize(
    "check, f", [("readable", backward_rows), ("writable", interleaved_products)]
)
def test_products_that_cannot_access_a_place_show(monkeypatch, check, f):
    shapes = ((4, 4), (4, 4))
    assert len(copies(of(f, *shapes, limits=ALWAYS))) >= 2
    monkeypatch.setattr(parts, check, lambda *given: True)
    with pytest.raises(AssertionError):
        of(f, *shapes, limits=ALWAYS)


def test_a_donated_whole_that_is_written_early_shows(monkeypatch):
    """A product reads the donated input, and a part that would be in its memory by then."""

    def f(x, y, z):
        part = wf.tanh(y)
        return wf.concat([part, wf.sin(z)]), x @ part.T

    graph = traced(f, *(np.ones(s, np.float32) for s in ((4, 4), (2, 4), (2, 4))))
    target, right = GpuLike(ALWAYS, ()), parts.Placement.__init__
    schedule, _ = lowered(graph, target, {0: 0})
    assert schedule.donated and len(copies(schedule)) == 2

    def wrong(self, grouping, aligned, fixed):
        right(self, grouping, aligned, ())

    monkeypatch.setattr(parts.Placement, "__init__", wrong)
    with pytest.raises(MalformedSchedule, match="not there"):
        lowered(graph, target, {0: 0})
