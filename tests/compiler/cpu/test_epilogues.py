"""Kernels in the tiles of products: which are, and that they compute what they did apart."""

from dataclasses import replace

import numpy as np
import pytest

import weft as wf
import weft.nn.functional as F
from weft.compiler.cpu import blas
from weft.compiler.cpu.epilogues import fits, fuse_epilogues, parts, verify_tiles
from weft.compiler.cpu.runtime import thread_pool as threads
from weft.compiler.cpu.runtime.executable import NativeExecutable
from weft.compiler.ir.schedule import GemmStep, GuardStep, KernelStep, TiledStep
from weft.compiler.ir.verify import MalformedSchedule, verify
from weft.compiler.memory import plan

from ..passes.graphs import traced
from ..programs import Program
from ..schedules import Machine, by_rows, compare, optimised, scheduled

RNG = np.random.default_rng(7)


def array(*shape: int, dtype=np.float32) -> np.ndarray:
    return RNG.normal(size=shape).astype(dtype)


def apart(f, *arrays, donated=None):
    return scheduled(optimised(traced(f, *arrays)), donated)


def together(f, *arrays, donated=None):
    schedule = fuse_epilogues(apart(f, *arrays, donated=donated))
    verify(schedule)
    return schedule


def epilogues(schedule) -> list[TiledStep]:
    return [s for s in schedule.steps if isinstance(s, TiledStep)]


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles of 8 and more rows and columns, so that small matrices have many."""
    for name, value in {"SIDE": 8, "LEAST": 8, "LONG": 16, "FIRST": 64, "AGAIN": 64}.items():
        monkeypatch.setattr(blas, name, value)
    monkeypatch.setattr(blas, "PROCESSORS", 4)


def check(f, *arrays, count: int = 1, checked: bool = True) -> TiledStep | None:
    """A function by tiles, with checked accesses, in threads, beside its rows and apart."""
    graph = optimised(traced(f, *arrays))
    schedule = together(f, *arrays)
    found = epilogues(schedule)
    assert len(found) == count, schedule
    want, least = by_rows(graph, arrays), arrays[0].dtype  # results may be wider than the product
    compare(Machine(schedule, arrays).run(), want, 256, least)
    runs = []
    for width in (1, 2, 3):
        threads.resize(width)
        try:
            runs.append(NativeExecutable(schedule, checked=checked)(arrays))
        finally:
            threads.resize()
    compare(runs[0], want, 256, least)
    separate = NativeExecutable(scheduled(graph))(arrays)
    for run in runs:
        for got, first in zip(run, separate, strict=True):
            np.testing.assert_array_equal(got, first)
    return found[0] if found else None


# -- what they compute ---------------------------------------------------------------------------


def test_a_bias_and_an_activation(small_tiles):
    step = check(lambda a, b, c: F.relu(a @ b + c), array(40, 24), array(24, 48), array(48))
    assert blas.tiles(step.product, step.tile)[1:] > (1, 1)
    assert len(parts(step)) == blas.tiles(step.product, step.tile)[2]


def test_columns_that_are_no_multiple_of_a_tile(small_tiles):
    step = check(lambda a, b, c: wf.exp(a @ b) * c, array(21, 9), array(9, 27), array(21, 27))
    assert {p.kernel.domain[1] for p in parts(step)} == {16, 11}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_transposed_factors(small_tiles, dtype):
    a, b, c = array(24, 40, dtype=dtype), array(48, 24, dtype=dtype), array(40, 1, dtype=dtype)
    check(lambda a, b, c: wf.tanh(a.T @ b.T - c), a, b, c)


def test_a_batch(small_tiles):
    step = check(lambda a, b, c: wf.sin(a @ b) + c, array(3, 32, 16), array(3, 16, 24), array(24))
    assert step.product.batch == (3,)


def test_a_batch_whose_units_are_matrices(small_tiles):
    f = lambda a, b, c: (a @ b) * c  # noqa: E731
    check(f, array(5, 8, 8), array(5, 8, 8), array(5, 1, 1))


def test_results_of_other_dtypes(small_tiles):
    def f(a, b):
        z = a @ b
        return z > 0, z.astype(wf.float16), z * 2

    check(f, array(40, 8), array(8, 40))


@pytest.mark.parametrize("dtype", ["int32", "float32", "float64", "int64", "float16", "bool"])
@pytest.mark.parametrize("of", [np.float32, np.float64])
def test_a_result_of_another_dtype(small_tiles, of, dtype):
    """It may be as wide as the product, and is not what BLAS writes."""
    given = array(24, 12, dtype=of), array(12, 32, dtype=of)
    check(lambda a, b: (a @ b).astype(getattr(wf, dtype)), *given, count=int(dtype != of.__name__))


def test_folds_of_rows_lie_in_tiles_of_whole_rows(monkeypatch, small_tiles):
    step = check(lambda a, b: F.softmax(a @ b, -1), array(64, 24), array(24, 8))
    assert step.tile[1] == 8 and step.then.kernel.folded == (1,)
    # A row that lies in several tiles is folded when all of them are there.
    check(lambda a, b: F.softmax(a @ b, -1), array(16, 8), array(8, 64), count=0)


def test_sums_of_columns(monkeypatch):
    sizes = {"LEAST": 64, "LONG": 64, "FIRST": 64, "AGAIN": 64, "PROCESSORS": 2}
    for name, value in sizes.items():
        monkeypatch.setattr(blas, name, value)

    def f(a, b, c):
        z = (a @ b) * c
        return z, z.sum(0)

    step = check(f, array(256, 12), array(12, 192), array(256, 192))
    assert step.then.kernel.piece == 16 and step.tile == (64, 64)


def test_sums_of_products(small_tiles):
    f = lambda a, b, c, d, e: F.silu(a @ b + c @ d + e)  # noqa: E731
    given = array(40, 8), array(8, 40), array(40, 16), array(16, 40), array(40)
    step = check(f, *given)
    assert step.product.beta == 1


def test_a_product_that_others_read_too(small_tiles):
    def f(a, b, c):
        z = a @ b
        return wf.exp(z), z, (z.T @ c)

    check(f, array(24, 8), array(8, 24), array(24, 24), count=1)


ACROSS = {
    "turned": lambda z: z + z.T,
    "from below": lambda z: wf.flip(z, axis=0) * 2,
    "from the right": lambda z: wf.flip(z, axis=1) * 2,
    "some rows": lambda z: wf.exp(z[::2]),
    "in other rows": lambda z: wf.tanh(z.reshape(-1, 2, z.shape[1]).sum(1)),
    "one half": lambda z: z[:8] * z[8:],
    "beside the first": lambda z: z * z[0],
}


@pytest.mark.parametrize("how", ACROSS)
@pytest.mark.parametrize("processors", [2, 4])
def test_products_that_are_not_read_in_order(small_tiles, monkeypatch, how, processors):
    """Units of the kernel read elements of other tiles: in tiles of whole rows, and of columns."""
    monkeypatch.setattr(blas, "PROCESSORS", processors)
    across = blas.tile_of(16, 16, 12) != (8, 16)
    assert across == (processors > 2)
    fine = how in ("some rows", "in other rows") and not across
    check(lambda a, b: ACROSS[how](a @ b), array(16, 12), array(12, 16), count=int(fine))


def test_vectors_are_another_function(small_tiles):
    check(lambda a, b: wf.tanh(a @ b), array(64, 8), array(8), count=0)


def test_random_products(small_tiles):
    """Sizes, batches, transposes, broadcast operands and folds by chance."""
    rng, found = np.random.default_rng(11), 0
    for _ in range(60):
        m, n, k = (int(rng.integers(2, 50)) for _ in range(3))
        batch = (int(rng.integers(2, 5)),) if rng.random() < 0.3 else ()
        turned = rng.random(2) < 0.3
        a = array(*batch, *((k, m) if turned[0] else (m, k)))
        b = array(*batch, *((n, k) if turned[1] else (k, n)))
        shape = [(*batch, m, n), (n,), (m, 1), (1, 1), (m, n)][rng.integers(5)]
        c, kind = array(*shape), rng.integers(4)

        def f(a, b, c, turned=turned, kind=kind):
            a = a.swapaxes(-1, -2) if turned[0] else a
            b = b.swapaxes(-1, -2) if turned[1] else b
            z = wf.tanh(a @ b) * c
            extra = [lambda: z > 0, lambda: z * 2, lambda: z.sum(-1), lambda: z.sum(-2)]
            return z, extra[kind]()

        graph, schedule = optimised(traced(f, a, b, c)), together(f, a, b, c)
        found += len(epilogues(schedule))
        got = NativeExecutable(schedule, checked=True)([a, b, c])
        compare(got, by_rows(graph, [a, b, c]), 512)
    assert found > 20


# -- in what order -------------------------------------------------------------------------------


def test_a_kernel_does_not_pass_what_it_needs():
    """The other operand comes after the product: what reads both stays where it is."""
    p = Program()
    a, b, x = p.buffer("input", 4, 4), p.buffer("input", 4, 4), p.buffer("input", 16)
    c, y, z = p.buffer("scratch", 4, 4), p.buffer("scratch", 16), p.buffer("output", 16)
    p.product(a, b, c)
    p.row("exp", (x,), y)
    p.row("add", (c, y), z)
    assert not epilogues(fuse_epilogues(p.schedule(z)))
    p.steps[0], p.steps[1] = p.steps[1], p.steps[0]
    (step,) = epilogues(fuse_epilogues(p.schedule(z)))
    assert step.product.c == z, "nobody else reads the product: it lies in the result's memory"


@pytest.mark.parametrize("between", ["nothing", "reads another", "reads", "may fail"])
def test_an_input_is_not_written_before_others_are_done_with_it(between):
    """The kernel writes into an input: after those who read it, and after what may fail."""
    p = Program()
    a, b, x = p.buffer("input", 4, 4), p.buffer("input", 4, 4), p.buffer("input", 4, 4)
    c, y, z = p.buffer("scratch", 4, 4), p.buffer("output", 16, takes=x), p.buffer("output", 4, 4)
    p.product(a, b, c)
    if between.startswith("reads"):
        p.row("exp", (x if between == "reads" else a,), z)
    elif between == "may fail":
        flag = p.buffer("input", dtype=np.bool_)
        p.steps.append(GuardStep(flag, wf.errors.IndexingError, "out of range", (None, 0)))
    p.row("add", (c, x), y)
    outputs = (y, z) if between.startswith("reads") else (y,)
    found = epilogues(fuse_epilogues(p.schedule(*outputs)))
    assert bool(found) == (between in ("nothing", "reads another"))


def test_factors_are_not_written_over():
    """The result takes the memory of a factor, which other tiles are made of."""
    p = Program()
    a, b = p.buffer("input", 4, 4), p.buffer("input", 4, 4)
    c, y = p.buffer("scratch", 4, 4), p.buffer("output", 16, takes=a)
    p.product(a, b, c)
    p.row("exp", (c,), y)
    schedule = p.schedule(y)
    assert not epilogues(fuse_epilogues(schedule))
    product, kernel = schedule.steps
    bad = replace(schedule, steps=(TiledStep(product, kernel, (4, 4)),))
    with pytest.raises(MalformedSchedule, match="writes over"):
        verify(bad)


def test_scratch_results_do_not_take_the_place_of_factors():
    def f(a, b):
        x = wf.exp(a)
        return wf.tanh(wf.sin(x @ b)) @ b

    schedule = together(f, array(8, 8), array(8, 8))
    first = epilogues(schedule)[0]
    placed = plan(schedule).offsets
    (result,) = first.then.results
    assert placed[first.product.a] != placed[result] == placed[first.product.c]

    def g(a, b):
        x = wf.exp(a)
        z = x @ b
        return (wf.tanh(z * x) @ b) * z

    schedule = together(g, array(8, 8), array(8, 8))
    first = epilogues(schedule)[0]
    assert first.product.a in first.then.operands
    placed = plan(schedule).offsets
    assert placed[first.product.a] != placed[first.then.results[0]]


def test_the_verifier_wants_units_in_tiles(small_tiles):
    schedule = apart(lambda a, b: F.softmax(a @ b, -1), array(16, 8), array(8, 64))
    product, kernel = schedule.steps
    assert isinstance(product, GemmStep) and isinstance(kernel, KernelStep)
    step = TiledStep(product, kernel, (8, 64))
    assert fits(step)
    verify(replace(schedule, steps=(step,)))
    with pytest.raises(MalformedSchedule, match="do not lie in tiles"):
        verify_tiles(replace(schedule, steps=(replace(step, tile=(8, 8)),)))


def test_work_for_more_threads_than_tiles_is_left_alone(monkeypatch):
    monkeypatch.setattr(blas, "FIRST", 1 << 40)
    f = lambda a, b: wf.exp(a @ b)  # noqa: E731
    assert not epilogues(together(f, array(400, 4), array(4, 400)))
    assert epilogues(together(f, array(40, 4), array(4, 40)))


# -- in programs ---------------------------------------------------------------------------------


def test_a_training_step_of_compiled_layers(small_tiles):
    def make():
        wf.random.seed(3)
        model = wf.nn.Sequential(wf.nn.Linear(24, 40), wf.nn.GELU(), wf.nn.Linear(40, 16))
        optimizer = wf.optim.AdamW(model.parameters(), lr=1e-2)

        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        return model, step

    x, y = wf.tensor(array(32, 24)), wf.tensor(RNG.integers(0, 16, 32))
    (eager, by_hand), (model, step) = make(), make()
    step = wf.compile(step)
    for _ in range(5):
        np.testing.assert_allclose(step(x, y).item(), by_hand(x, y).item(), rtol=1e-5)
    for p, q in zip(model.parameters(), eager.parameters(), strict=True):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-4, atol=1e-6)
    text = str(step.explain(verbose=True))
    assert "then add, gelu" in text and "in tiles of 16×16 of a product" in str(step.kernels)
