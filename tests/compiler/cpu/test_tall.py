"""Products with a long inner axis: cut into parts of one length, whose sum they are."""

import numpy as np
import pytest

import weft as wf
from weft.compiler.cpu.passes.tall import FLOPS, PARTS, SIDE, TERMS, parts_of, tall
from weft.compiler.cpu.runtime.executable import NativeExecutable
from weft.compiler.ir.schedule import GemmStep
from weft.graph.verify import verify

from ..passes.graphs import lines, traced
from ..schedules import by_rows, compare, compiled

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ((50, 50, 10_000), 16),
        ((64, 64, 4096), 16),
        ((64, 64, 4090), 10),  # of 409 terms
        ((50, 50, 9973), 1),  # a prime
        ((64, 64, 2 * TERMS - 2), 1),
        ((64, 64, 2 * TERMS), 2),
        ((32, 32, 1024), 1),  # it is small
        ((65, 64, 10_000), 1),  # tiles of the result can be shared
        ((64, 65, 10_000), 1),
        ((64, 1, 1_000_000), 1),  # a vector
    ],
)
def test_how_many_parts_there_are(sizes, parts):
    assert parts_of(*sizes) == parts


def test_parts_are_neither_many_nor_small():
    for _ in range(2000):
        m, n, k = (int(RNG.integers(1, top)) for top in (80, 80, 20_000))
        parts = parts_of(m, n, k)
        assert k % parts == 0 and parts <= PARTS
        if parts > 1:
            assert k // parts >= TERMS and 2 * m * n * k // parts >= FLOPS
            assert 1 < min(m, n) <= max(m, n) <= SIDE


FORMS = {
    "a @ b": (lambda a, b: a @ b, (40, 6000), (6000, 50)),
    "aᵀ @ b": (lambda a, b: a.T @ b, (6000, 40), (6000, 50)),
    "a @ bᵀ": (lambda a, b: a @ b.T, (40, 6000), (50, 6000)),
    "parts": (lambda a, b: a[:, 3:] @ b[::2], (40, 6003), (12_000, 50)),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("form", FORMS)
def test_the_sum_of_its_parts(form, dtype):
    f, *shapes = FORMS[form]
    arrays = [RNG.normal(size=shape).astype(dtype) for shape in shapes]
    graph = traced(f, *arrays)
    made = tall(graph)
    verify(made)
    assert [row in "\n".join(lines(made)) for row in ("matmul", "sum")] == [True, True]
    compare(by_rows(made, arrays), by_rows(graph, arrays))
    schedule = compiled(graph)
    (product,) = [s for s in schedule.steps if isinstance(s, GemmStep)]
    assert product.batch == (parts_of(40, 50, 6000),) and product.k * product.batch[0] == 6000
    for checked in (False, True):
        found = NativeExecutable(schedule, checked=checked)(arrays)
        compare(found, by_rows(graph, arrays))


def test_a_hessian():
    x, w = RNG.normal(size=(3000, 40)), RNG.normal(size=40)

    def loss(w):
        return wf.nn.functional.softplus(wf.asarray(x) @ w).mean()

    found = wf.compile(wf.hessian(loss))(wf.tensor(w)).numpy()
    s = 1 / (1 + np.exp(-x @ w))
    want = x.T @ ((s * (1 - s))[:, None] * x) / len(x)
    np.testing.assert_allclose(found, want, rtol=1e-11, atol=1e-14)
