"""Products: scales and sums that BLAS makes, in the memory of the first product."""

import numpy as np
import pytest

import weft as wf
from weft.compiler.cpu.passes import PASSES
from weft.compiler.cpu.runtime.executable import NativeExecutable
from weft.compiler.ir.schedule import GemmStep, KernelStep
from weft.compiler.ir.verify import verify
from weft.compiler.memory import plan
from weft.compiler.passes.dead import dead
from weft.graph.verify import verify as verify_graph

from ..schedules import Machine, by_rows, compare, optimised, scheduled
from .graphs import lines, traced

products = dict(PASSES)["products"]
RNG = np.random.default_rng(0)
A, B, C, D = (RNG.standard_normal((24, 24)).astype(np.float32) for _ in range(4))
INPUTS = [A, B, C, D]


def changed(f) -> list[str]:
    """The equations' right sides after the pass."""
    graph = traced(f, *INPUTS)
    made = dead(products(graph))
    verify_graph(made)
    compare(by_rows(made, INPUTS), by_rows(graph, INPUTS))
    return [line.split(" = ")[1] for line in lines(made)[:-1]]


@pytest.mark.parametrize(
    ("f", "rows"),
    [
        (lambda a, b, c, d: (a @ b) * 0.5, ["scaled_matmul(v0, v1, 0.5)"]),
        (lambda a, b, c, d: -3 * (2.0 * (a @ b)), ["scaled_matmul(v0, v1, -6.0)"]),
        (lambda a, b, c, d: a @ b + c @ d, ["matmul(v0, v1)", "accumulate(v4, v2, v3, 1.0)"]),
        (
            lambda a, b, c, d: a @ b + (c @ d) * 0.25 + b @ c,
            ["matmul(v0, v1)", "accumulate(v4, v2, v3, 0.25)", "accumulate(v5, v1, v2, 1.0)"],
        ),
    ],
)
def test_what_is_left_to_blas(f, rows):
    assert changed(f) == rows


@pytest.mark.parametrize(
    "f",
    [
        lambda a, b, c, d: (a @ b) * 0.0,
        lambda a, b, c, d: (a @ b) * float("inf"),
        lambda a, b, c, d: (a @ b) * c,
        lambda a, b, c, d: (a @ b) + c,
        lambda a, b, c, d: (a @ b) + (a @ b)[0],
        lambda a, b, c, d: (lambda p: p + p)(a @ b),
        lambda a, b, c, d: (lambda p: (p * 2.0, p))(a @ b),
        lambda a, b, c, d: (lambda p: (p + p.T @ d, p))(a @ b),
    ],
)
def test_what_stays(f):
    rows = {line.split("(")[0] for line in changed(f)}
    assert not rows & {"scaled_matmul", "accumulate"}
    graph = optimised(traced(f, *INPUTS), verify_graph)
    compare(NativeExecutable(scheduled(graph))(INPUTS), by_rows(graph, INPUTS), units=256)


def total(a, b, c, d):
    """A product for each step, and the step's own product in between."""
    sum_, h = a @ b, c
    for _ in range(6):
        h = wf.tanh(h @ d)
        sum_ = sum_ + h.T @ h
    return sum_


def test_a_sum_of_products_takes_one_array():
    graph = traced(total, *INPUTS)
    schedule = scheduled(optimised(graph, verify_graph))
    verify(schedule)
    gemms = [s for s in schedule.steps if isinstance(s, GemmStep)]
    assert sum(s.beta == 1.0 for s in gemms) == 6
    assert len({s.c for s in gemms if s.beta} | {gemms[0].c}) <= 2
    assert {r for s in schedule.steps if isinstance(s, KernelStep) for r in s.rows} == {"tanh"}
    assert plan(schedule).size <= 2 * A.nbytes
    for checked in (False, True):
        compare(
            NativeExecutable(schedule, checked=checked)(INPUTS), by_rows(graph, INPUTS), units=512
        )
    compare(Machine(schedule, INPUTS).run(), by_rows(graph, INPUTS), units=512)


@pytest.mark.parametrize("shapes", [((24,), (24, 24)), ((3, 4, 24), (24, 5)), ((24, 24), (24,))])
def test_vectors_and_batches(shapes):
    x, y, u, v = (RNG.standard_normal(s).astype(np.float32) for s in (*shapes, *shapes))

    def f(x, y, u, v):
        return (x @ y) * 0.5 + (u @ v) * -2.0 + x @ v

    graph = traced(f, x, y, u, v)
    schedule = scheduled(optimised(graph, verify_graph))
    assert [s.beta for s in schedule.steps if isinstance(s, GemmStep)] == [0.0, 1.0, 1.0]
    compare(NativeExecutable(schedule)([x, y, u, v]), by_rows(graph, [x, y, u, v]), units=256)


def test_who_reads_a_sum_waits_for_all_of_it():
    def f(a, b, c, d):
        return wf.tanh(a @ b + wf.tanh(wf.tanh(c @ d) @ d) @ d)

    graph = traced(f, *INPUTS)
    schedule = scheduled(optimised(graph))
    verify(schedule)
    assert sum(isinstance(s, GemmStep) and s.beta == 1.0 for s in schedule.steps) == 1
    compare(NativeExecutable(schedule)(INPUTS), by_rows(graph, INPUTS), units=4096)


def test_memory_that_is_given_away_is_not_written_too_early():
    def f(a, b, c, d):
        return (b @ c + (a @ d) @ d,)

    graph = traced(f, *INPUTS)
    schedule = scheduled(optimised(graph), {0: 0})
    verify(schedule)
    given = [x.copy() for x in INPUTS]
    want = by_rows(graph, INPUTS)
    compare(NativeExecutable(schedule)(given), want, units=512)
    np.testing.assert_allclose(given[0], want[0], rtol=1e-4, atol=1e-4)


def test_gradients_of_a_shared_weight():
    w, x = wf.tensor(A), wf.tensor(B)

    def loss(w):
        h = x
        for _ in range(4):
            h = wf.tanh(h @ w)
        return (h * h).sum()

    compiled = wf.compile(wf.grad(loss))
    np.testing.assert_allclose(compiled(w).numpy(), wf.grad(loss)(w).numpy(), rtol=1e-3, atol=1e-4)
    steps = compiled._last().executable.schedule.steps
    assert sum(isinstance(s, GemmStep) and s.beta == 1.0 for s in steps) == 3
