"""Any limits give the values of eager mode; a GPU's give enough blocks and few passes.

Graphs are small, so limits are drawn that are as small: folds in stages, of a few lines, of columns
in pieces, in kernels before and behind them, and values that are computed again.
"""

import os
from dataclasses import replace
from math import prod

import numpy as np
import pytest

import weft as wf
from weft.compiler import pipeline
from weft.compiler.cuda.limits import BLOCKS, GPU_LIMITS, PROCESSORS
from weft.compiler.fusion import joined_folds, line_folds
from weft.compiler.fusion.line_folds import split_lines
from weft.compiler.ir.kernel import FoldStep, Kernel, MalformedKernel
from weft.compiler.ir.schedule import KernelStep, LibraryStep, Schedule
from weft.compiler.ir.verify import MalformedSchedule, verify
from weft.compiler.limits import LIMITS, Limits
from weft.compiler.memory import verify_plan

from ..gpu_like import CALLS, GpuLike
from ..passes.graphs import traced
from ..schedules import Machine
from .test_random_graphs import SHAPES, descent, given, program

GRAPHS = 6000 if os.environ.get("WEFT_SOAK") else 240
F = wf.nn.functional


def drawn(rng) -> Limits:
    """Limits at which graphs of some hundred numbers have all forms."""

    def below(n: int) -> int:
        return int(rng.integers(0, n))

    fewest = 1 + below(3)
    return Limits(
        equations=int(rng.choice([2, 6, 96])),
        few_lines=below(9),
        few_lines_elements=below(40),
        split_lines=int(rng.choice([0, 6, 70])),
        stored_columns=below(6),
        repeated_elements=1 + below(64),
        heavy_repeats=below(4),
        full_fold_elements=2 + below(20),
        piece_elements=2 + below(4),
        fewest_pieces=fewest,
        even_pieces=fewest + below(2),
        usual_pieces=fewest + below(4),
        most_pieces=fewest + below(6),
        long_columns=1 + below(4),
        column_elements=below(20),
        piece_rows=((4, 1 + below(4)), (0, 1 + below(3))),
        pieces_together=((4, fewest % 3), (0, fewest - 1)),
        narrow_rows=int(rng.choice([1, 4, 8])),
        joined_elements=4 + below(30),
        joins_forward=bool(below(4)),
        arena_bytes=0,
        remat_bytes=1 + below(64),
        remat_rows=1 + below(9),
    )


def lowered(graph, target, donated=None) -> tuple[Schedule, object]:
    schedule, placed = pipeline.lower_anew(graph, donated or {}, target)
    verify(schedule)
    verify_plan(schedule, placed)
    return schedule, placed


def gradients_of_a_norm(x, w, b, g):
    y, pull = wf.vjp(lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b), x, w, b)
    return y, *pull(g)


def sums_before_and_behind(x, w, b, g):
    """Sums of columns, then rows that read the same arrays and what the sums were."""
    s = (g * x).sum(0)
    y = wf.softmax(x * w, -1) + g
    return s * b, y, (y * g).sum(0) + s, g.mean(0), wf.tanh(x - g.sum(0)).max(0)


MATRICES = (gradients_of_a_norm, sums_before_and_behind)


def random_program(seed: int):
    rng = np.random.default_rng(seed)
    if seed % 3 == 0:
        f, n, m = MATRICES[seed % 2], *map(int, rng.integers(2, 12, 2))
        shapes = [(n, m), (m,), (m,), (n, m)]
    else:
        f, shapes = program(rng), [SHAPES[k] for k in rng.integers(0, len(SHAPES), 5)]
        f = descent(f) if seed % 2 else f
    arrays = [rng.normal(size=s).astype(np.float32) for s in shapes]
    graph = traced(f, *arrays)
    want = [np.asarray(graph.values[i]) for i in graph.outputs]
    limits = replace(drawn(rng), aligned_parts=(0, 1, 1, 8)[seed // 3 % 4])
    target = GpuLike(limits, CALLS if rng.random() < 0.3 else ())
    return graph, arrays, want, target, given(rng, arrays, want)


def differs(seed: int) -> bool:
    graph, arrays, want, target, donated = random_program(seed)
    schedule, placed = lowered(graph, target, donated)
    for a, b in zip(Machine(schedule, arrays, placed=placed).run(), want, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        bound = 2e-4 * max(1.0, np.abs(b).max(initial=0))
        if not np.allclose(a, b, rtol=2e-4, atol=bound, equal_nan=True):
            return True
    return False


@pytest.mark.parametrize("batch", range(12))
def test_random_graphs_under_random_limits(batch):
    assert not [seed for seed in range(batch, GRAPHS, 12) if differs(seed)]


def test_the_random_limits_reach_every_form(monkeypatch):
    """Lines in stages, sums that join kernels behind them, and columns in pieces."""
    found = dict.fromkeys(("lines", "behind", "pieces"), 0)

    def counted(name, f):
        def call(*args):
            made = f(*args)
            found[name] += made is not None
            return made

        return call

    from weft.compiler.fusion import assemble

    monkeypatch.setattr(assemble, "split_lines", counted("lines", line_folds.split_lines))
    monkeypatch.setattr(assemble, "by_rows", counted("pieces", assemble.by_rows))
    behind = counted("behind", joined_folds._later_host)
    monkeypatch.setattr(joined_folds, "_later_host", behind)
    for seed in range(160):
        graph, _, _, target, donated = random_program(seed)
        lowered(graph, target, donated)
    assert min(found.values()) >= 10, found


# -- planted faults --------------------------------------------------------------------------


def test_pieces_of_lines_that_are_folded_otherwise_show(monkeypatch):
    right = line_folds._first

    def wrong(*given):
        kernel = right(*given)
        steps = [replace(s, kind="max") if isinstance(s, FoldStep) else s for s in kernel.steps]
        return replace(kernel, steps=tuple(steps))

    monkeypatch.setattr(line_folds, "_first", wrong)
    assert any(map(differs, range(60)))


def test_partial_results_in_one_place_show(monkeypatch):
    right = line_folds._line
    monkeypatch.setattr(line_folds, "_line", lambda *given: (*right(*given)[:-1], 0))
    with pytest.raises(MalformedKernel, match="more than once"):
        any(map(differs, range(60)))


def test_a_sum_that_is_not_put_off_shows(monkeypatch):
    """What reads the sum would come before its kernel."""

    def stays(schedule, steps, at, host):
        return [*steps[:at], *steps[at + 1 :]], host - 1

    monkeypatch.setattr(joined_folds, "_put_off", stays)
    with pytest.raises(MalformedSchedule, match="not there"):
        for seed in range(120):
            differs(seed)


def test_a_host_that_changes_what_a_sum_reads_shows(monkeypatch):
    monkeypatch.setattr(joined_folds, "_changed", lambda schedule, step: set())

    def wrong(seed):
        try:
            return differs(seed)
        except (MalformedSchedule, AssertionError):
            return True

    assert any(map(wrong, range(400)))


# -- a GPU's limits --------------------------------------------------------------------------

GPU = GpuLike(calls=())


def kernels(f, *shapes, dtype="float32", limits=GPU_LIMITS) -> list[KernelStep]:
    arrays = [np.zeros(s, wf.canonical_dtype(dtype)) for s in shapes]
    schedule, _ = lowered(traced(f, *arrays), GpuLike(limits, ()))
    assert not any(isinstance(s, LibraryStep) for s in schedule.steps)
    return [s for s in schedule.steps if isinstance(s, KernelStep)]


def blocks(kernel: Kernel) -> int:
    """The units that share no fold: pieces, or lines."""
    if kernel.piece:
        return -(-kernel.domain[0] // kernel.piece)
    return prod(n for a, n in enumerate(kernel.domain) if a not in kernel.folded)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_norm_and_its_gradients_read_each_array_once(dtype):
    n, m = 16384, 512
    shapes = ((n, m), (m,), (m,), (n, m))
    steps = kernels(gradients_of_a_norm, *shapes, dtype=dtype)
    large = [s for s in steps if prod(s.kernel.domain) >= n * m]
    (norm,) = large
    assert norm.kernel.piece and {0, 3} <= {*norm.operands} and blocks(norm.kernel) >= BLOCKS
    apart = replace(GPU_LIMITS, joins_forward=False)
    if dtype == "float32":  # the sum of g comes first, and has a pass of its own
        more = kernels(gradients_of_a_norm, *shapes, dtype=dtype, limits=apart)
        assert sum(prod(s.kernel.domain) >= n * m for s in more) == 2


@pytest.mark.parametrize("rows", [256, 1000, 4096, 8192, 16384, 20000, 65536, 1 << 17])
def test_columns_have_pieces_for_all_processors(rows):
    first, second = kernels(lambda x: x.sum(0), (rows, 512))
    assert blocks(first.kernel) >= min(BLOCKS, rows // 8)
    assert prod(second.kernel.domain) * 8 <= rows * 512 + 8 * 512  # few partial sums


@pytest.mark.parametrize("shape", [(1, 1 << 20), (8, 50257), (64, 1 << 16), (131, 4096)])
def test_few_long_lines_have_two_stages(shape):
    steps = kernels(lambda x: (x * 2).sum(-1), shape)
    if len(steps) == 1:  # a prime number of columns, or lines that are not long
        assert shape[0] * 2 >= PROCESSORS
        return
    assert blocks(steps[0].kernel) >= min(BLOCKS, shape[0] * 29)
    assert [s.kernel for s in kernels(lambda x: (x * 2).sum(-1), shape, limits=LIMITS)]


def test_many_lines_have_one_stage():
    (only,) = kernels(lambda x: (x * 2).sum(-1), (512, 1 << 14))
    assert only.kernel.folded == (1,) and split_lines(only.kernel, GPU_LIMITS) is None


@pytest.mark.parametrize("n", [1 << 17, 1 << 24, 1_000_003])
def test_sums_of_everything_have_pieces_for_all_processors(n):
    first, *_, second = kernels(lambda x: (x * x).sum(), (n,))
    assert blocks(first.kernel) >= min(BLOCKS, n >> 10) and blocks(second.kernel) == 1
    (only,) = kernels(lambda x: (x * x).sum(), (n // 1024,))
    assert blocks(only.kernel) == 1


@pytest.mark.parametrize("limits", [LIMITS, GPU_LIMITS], ids=["cpu", "gpu"])
def test_sums_of_any_length(limits):
    """Lengths that pieces do not divide, with remainders of one element among them."""
    usual, rng = limits.usual_pieces, np.random.default_rng(0)
    least = limits.full_fold_elements // usual + 1
    for k in rng.integers(least, 4 * least, 40):
        n = int(k) * usual + int(rng.integers(0, 3))
        x = rng.normal(size=n).astype(np.float32)
        graph = traced(lambda x: ((x * x).sum(), x.max(), (x + 1).mean()), x)
        target = GpuLike(limits, ())
        schedule, placed = lowered(graph, target)
        for a, i in zip(Machine(schedule, [x], placed=placed).run(), graph.outputs, strict=True):
            np.testing.assert_allclose(a, np.asarray(graph.values[i]), rtol=1e-5)


def test_a_heavy_row_of_a_vector_is_computed_again_for_each_line():
    (only,) = kernels(lambda x, v: x * wf.exp(v), (4096, 512), (512,))
    assert "exp" in only.rows
    assert len(kernels(lambda x, v: x * wf.exp(v), (4096, 512), (512,), limits=LIMITS)) == 2
