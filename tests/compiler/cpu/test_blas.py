"""Products by BLAS: every layout against NumPy, tiles, threads, and what is left as it was."""

from itertools import product

import numpy as np
import pytest

from weft.backend.shared.blas import thread_count_functions
from weft.compiler.cpu import blas
from weft.compiler.cpu.runtime import thread_pool as threads
from weft.compiler.cpu.runtime.executable import NativeExecutable
from weft.compiler.emit.capsules import blas_function
from weft.compiler.ir.schedule import GemmStep

from ..programs import F32, F64, Program


@pytest.fixture(autouse=True)
def pool():
    before = threads.width()
    yield
    threads.resize(before)


def stored(rng, rows: int, columns: int, batch, transposed: bool, gap: int, dtype):
    """A batch of matrices with `gap` unused columns, as it lies in memory, and as it is meant."""
    size = (columns, rows) if transposed else (rows, columns)
    memory = rng.standard_normal((*batch, size[0], size[1] + gap)).astype(dtype)
    meant = memory[..., : size[1]]
    return memory, np.swapaxes(meant, -1, -2) if transposed else meant


def steps_of(memory: np.ndarray, batch) -> tuple[int, ...]:
    return tuple(s // memory.itemsize for s in memory.strides[: len(batch)])


def compare(m, n, k, batch=(), ta=False, tb=False, gap=0, alpha=1.0, beta=0.0, dtype=F32, seed=0):
    rng = np.random.default_rng(seed)
    a, x = stored(rng, m, k, batch, ta, gap, dtype)
    b, y = stored(rng, k, n, batch, tb, gap, dtype)
    c = rng.standard_normal((*batch, m, n + gap)).astype(dtype)
    p = Program()
    ia, ib, ic = (p.buffer("input", *v.shape, dtype=dtype) for v in (a, b, c))
    out = p.buffer("output", *c.shape, dtype=dtype)
    p.row("copy", (ic,), out)
    p.steps.append(
        GemmStep(
            *(ia, ib, out, m, n, k),
            *(v.shape[-1] for v in (a, b, c)),
            *(ta, tb, tuple(batch)),
            *(steps_of(v, batch) for v in (a, b, c)),
            alpha=alpha,
            beta=beta,
        )
    )
    expected = c.astype(F64)
    product = x.astype(F64) @ y.astype(F64)
    expected[..., :n] = alpha * product + (beta * expected[..., :n] if beta else 0)
    (got,) = NativeExecutable(p.schedule(out))([a, b, c])
    # |x|·|y| bounds the terms that are added up.
    bound = abs(alpha) * (abs(x).astype(F64) @ abs(y).astype(F64)) + 1
    rounding = np.finfo(dtype).eps * (k + 4)
    assert (abs(got - expected)[..., :n] <= rounding * bound).all()
    assert (got[..., n:] == c[..., n:]).all(), "columns beside the product were written"


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize(("ta", "tb"), [*product((False, True), repeat=2)])
@pytest.mark.parametrize(
    "size", [(5, 7, 3), (1, 9, 4), (9, 1, 4), (4, 6, 1), (130, 70, 65)], ids=str
)
def test_layouts(size, ta, tb, dtype):
    compare(*size, ta=ta, tb=tb, gap=3, dtype=dtype)


@pytest.mark.parametrize("scales", [(2.5, 0.0), (1.0, 1.0), (-0.5, 3.0), (0.0, 2.0)])
def test_scales(scales):
    compare(6, 5, 4, alpha=scales[0], beta=scales[1])
    compare(6, 5, 4, alpha=scales[0], beta=scales[1], dtype=F64)


@pytest.mark.parametrize("batch", [(3,), (2, 3), (1,), (0,), (2, 1, 2)], ids=str)
def test_batches(batch):
    compare(6, 5, 4, batch=batch, ta=True, gap=1)


def test_one_matrix_for_all_of_a_batch():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((4, 3, 5)).astype(F32), rng.standard_normal((5, 2)).astype(F32)
    p = Program()
    ia, ib, out = p.buffer("input", 4, 3, 5), p.buffer("input", 5, 2), p.buffer("output", 4, 3, 2)
    batch = {"batch": (4,), "a_strides": (15,), "b_strides": (0,), "c_strides": (6,)}
    p.steps.append(GemmStep(ia, ib, out, 3, 2, 5, 5, 2, 2, **batch))
    (got,) = NativeExecutable(p.schedule(out))([a, b])
    np.testing.assert_allclose(got, a @ b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("ta", "tb"), [*product((False, True), repeat=2)])
@pytest.mark.parametrize("size", [(1, 700, 900), (700, 1, 900)], ids=str)
def test_vectors_in_tiles(size, ta, tb):
    compare(*size, batch=(2,), ta=ta, tb=tb, gap=2, alpha=2.0, beta=0.5)


def test_nothing_to_add_up_gives_zeros():
    for size in ((3, 4, 0), (1, 4, 0), (4, 1, 0), (0, 4, 3), (0, 1, 3)):
        compare(*size)


def test_memory_that_was_not_set_is_not_read():
    p = Program()
    a, b = p.buffer("input", 3, 3), p.buffer("input", 3, 3)
    out = p.buffer("output", 3, 3)
    nan = p.constant(np.full((3, 3), np.nan, F32))
    p.row("copy", (nan,), out)
    p.product(a, b, out)
    x = np.eye(3, dtype=F32)
    assert (NativeExecutable(p.schedule(out))([x, x])[0] == x).all()


SIZES = [
    (1, 1, 1),
    (32, 128, 64),
    (256, 1024, 784),
    (1000, 384, 128),
    (1024, 128, 512),
    (7, 9000, 80),
]


@pytest.mark.parametrize("size", [*SIZES, (2048, 2048, 2048)], ids=str)
def test_tiles_cover_the_product_once(size):
    m, n, k = size
    rows, columns = blas.tile_of(m, n, k)
    step = GemmStep(0, 1, 2, m, n, k, k, n, n)
    _, down, across = blas.tiles(step)
    assert (down - 1) * rows < m <= down * rows
    assert (across - 1) * columns < n <= across * columns
    if step.flops <= blas.FIRST:
        assert (down, across) == (1, 1)


@pytest.mark.parametrize("size", [(256, 300, 200), (600, 130, 400), (1, 3000, 500)], ids=str)
def test_the_same_bits_for_any_number_of_threads(size):
    m, n, k = size
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, k)).astype(F32), rng.standard_normal((k, n)).astype(F32)
    p = Program()
    out = p.buffer("output", m, n)
    p.product(p.buffer("input", m, k), p.buffer("input", k, n), out)
    run = NativeExecutable(p.schedule(out))
    assert any(t.count > t.chunk for t in run.segments[0])
    found = []
    for width in (1, 2, 3):
        threads.resize(width)
        memory = run._memory()
        made = np.empty((m, n), F32)
        assert memory.first(a, b, made) == 0
        found.append(made.tobytes())
    assert len(set(found)) == 1


def test_the_number_of_threads_of_blas_is_put_back():
    known = thread_count_functions("scipy")
    if known is None:
        pytest.skip("SciPy's BLAS does not say how many threads it has")
    ask, tell = known
    before = ask()
    try:
        tell(2)
        compare(64, 64, 64)
        assert ask() == 2
    finally:
        tell(before)


def test_what_blas_cannot_count_is_refused():
    step = GemmStep(0, 1, 2, 1, 2**31, 1, 1, 2**31, 2**31)
    with pytest.raises(OverflowError, match="BLAS counts to"):
        blas.call_of(step, F32)


def test_a_function_that_is_not_there():
    with pytest.raises(LookupError, match="no function sgemmm"):
        blas_function("sgemmm")
