"""Loop fission: products outside of loops, with the same values; nothing else moves."""

import numpy as np
import pytest

import weft as wf
from weft.compiler.passes import fission as module
from weft.compiler.passes.dead import dead
from weft.compiler.passes.fission import fission
from weft.compiler.passes.loops import loops
from weft.graph.verify import verify

from ..equations import interpret

RNG = np.random.default_rng(0)
W, U, V = (RNG.standard_normal(s) / 2 for s in ((4, 4), (5, 4), (5,)))
XS, LINES, H, G = (RNG.standard_normal(s) for s in ((6, 3, 5), (6, 5), (3, 4), (6, 4)))


def t(x):
    return wf.tensor(x)


def cell(w, u, xs, h, **options):
    def step(h, x):
        h = wf.tanh(h @ w + x @ u)
        return h, h

    return wf.scan(step, h, xs, **options)


def gradient(*args, **options):
    return wf.grad(lambda *q: sum((y * y).sum() for y in cell(*q, **options)), (0, 1, 2, 3))(*args)


def traced(f, *args):
    """The graph of a compiled function after the first passes, and values for its inputs."""
    compiled = wf.compile(f)
    compiled(*map(t, args))
    values = [*args, *[p.read(None) for p in compiled._last().places[len(args) :]]]
    return loops(dead(compiled.graph)), [np.asarray(v) for v in values]


def bodies_of(graph):
    return [e.static[0] for e in graph.equations if e.op.name == "scan"]


def rows_in(graph) -> list[str]:
    return [e.op.name for loop in bodies_of(graph) for e in loop.body.equations]


def check(f, *args):
    """Fission keeps a function's values; its graph before and after."""
    graph, values = traced(f, *args)
    made = fission(graph)
    verify(made)
    for x, y in zip(interpret(graph, values), interpret(made, values), strict=True):
        np.testing.assert_allclose(y, x, rtol=1e-12, atol=1e-12)
    return graph, made


@pytest.mark.parametrize("options", [{}, {"reverse": True}])
def test_a_cells_gradient_keeps_one_product_in_each_loop(options):
    before, after = check(lambda *q: gradient(*q, **options), W, U, XS, H)
    assert rows_in(before).count("matmul") == 6
    assert rows_in(after).count("matmul") == 2
    assert [loop.carries for loop in bodies_of(after)] == [1, 1]


PROGRAMS = {
    "vectors": (
        lambda w, xs, g: wf.scan(lambda h, x: (wf.tanh(h + x @ w), h), g[0], xs),
        U,
        LINES,
        G,
    ),
    "a matrix from the left": (
        lambda w, xs, g: wf.scan(lambda h, x: (wf.tanh(h + w.T @ x), h), g[0], xs),
        *(U, LINES, G),
    ),
    "a sum of all elements": (
        lambda xs: wf.scan(lambda s, x: (s + (x * x).sum(), None), t(np.array(0.5)), xs)[0],
        XS,
    ),
    "a sum that keeps its axes": (
        lambda xs: wf.scan(lambda s, x: (s + x.sum(-1, keepdims=True), None), t(V[:3, None]), xs)[
            0
        ],
        XS,
    ),
    "several terms": (
        lambda w, xs, h: wf.scan(
            lambda c, x: ((wf.tanh(c[0] @ w), c[1] + c[0].T @ x + c[0].T @ x * 1.0), None),
            (h, t(U.T)),
            xs,
        )[0],
        *(W, XS, H),
    ),
    "a layer of results": (
        lambda w, v, xs, g: wf.scan(
            lambda h, x: (wf.tanh(h + x[:4]), ((h * 2) @ w + v, h @ w, x @ wf.ones((5, 4)))),
            *(g[0], xs),
        ),
        *(W, V[:4], LINES, G),
    ),
    "a product that is not turned": (
        lambda xs: wf.scan(lambda s, x: (s + x @ t(XS)[0].T @ (x @ x.T), None), t(np.eye(3)), xs)[
            0
        ],
        XS,
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_the_same(name):
    f, *args = PROGRAMS[name]
    check(f, *args)


def test_a_layer_of_results_is_after_the_loop():
    f, *args = PROGRAMS["a layer of results"]
    _, after = check(f, *args)
    assert "matmul" not in rows_in(after)


KEPT = {
    "a sum that is a result of each step": lambda s, x: (s + x.T @ x, s),
    "a sum that is used": lambda s, x: (s + wf.tanh(s) * (x.T @ x).sum(), None),
    "a difference": lambda s, x: (x.T @ x - s, None),
}


@pytest.mark.parametrize("name", KEPT)
def test_carries_that_are_more_than_sums_stay(name):
    _, after = check(lambda xs: wf.scan(KEPT[name], t(np.ones((5, 5))), xs), XS)
    assert [loop.carries for loop in bodies_of(after)] == [1]


def test_nothing_is_stacked_beyond_the_room(monkeypatch):
    monkeypatch.setattr(module, "ROOM", 100)
    before, after = check(gradient, W, U, XS, H)
    assert rows_in(after).count("matmul") == rows_in(before).count("matmul")


def test_a_sum_of_another_step_shows(monkeypatch):
    """The check can fail: the stacks of a product in the wrong order."""
    product = module._product

    def turned(*args):
        term = product(*args)
        if term is None:
            return None

        def total(b, stacks):
            return term.total(b, (b.emit("flip", stacks[0], (0,)), stacks[1]))

        return module.Term(term.stacked, total)

    monkeypatch.setattr(module, "_product", turned)
    with pytest.raises(AssertionError):
        check(gradient, W, U, XS, H)
