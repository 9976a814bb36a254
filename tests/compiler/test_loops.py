"""Loops and branches in compiled functions: one equation each, the same results as eager."""

import time

import numpy as np
import optree
import pytest

import weft as wf
from weft import errors
from weft.compiler.cache.schedules import key_of
from weft.compiler.cpu.passes import PASSES
from weft.compiler.cpu.routines.control import CondRoutine, ScanRoutine, WhileRoutine
from weft.compiler.cpu.runtime import thread_pool as threads
from weft.compiler.cpu.target import CPU
from weft.compiler.ir.schedule import LibraryStep, NativeStep
from weft.graph.structured import inner_graphs
from weft.graph.verify import verify

from .equations import interpret
from .schedules import optimised, scheduled

RNG = np.random.default_rng(0)
C, A, B = (RNG.standard_normal(4) for _ in range(3))
XS, ROWS, BATCH = (RNG.standard_normal(s) for s in ((7,), (7, 4), (3, 4)))
W = RNG.standard_normal((4, 4)) / 2


def t(x):
    return wf.tensor(x)


def scanned(c, a, b, **options):
    """A loop with parameters, a carry in a tuple and results in a dictionary."""

    def step(carry, x):
        c, n = carry
        c = c + 0.1 * (wf.tanh(a * c + b * x["v"]) - c) + x["w"]
        return (c, n + 1), {"sum": c.sum(), "old": carry[0] * n}

    xs = {"v": t(XS), "w": t(ROWS)}
    (c, n), ys = wf.scan(step, (c, t(0)), xs, **options)
    return c, n, ys


def loss(c, a, b, **options):
    c, n, ys = scanned(c, a, b, **options)
    return (c * c).sum() * n + (ys["sum"] ** 2).sum() + (ys["old"] ** 3).sum()


def of_loops(c):
    def outer(c, x):
        d, y = wf.scan(lambda d, z: (d * wf.sin(z * x + d), d.sum()), c, t(XS))
        return c + 0.3 * d, y

    return wf.scan(outer, c, t(XS[:3]))


def recurrent(c, w):
    return wf.scan(lambda h, x: (wf.tanh(h @ w + x), h), c, t(ROWS))


def branched(x):
    return wf.cond(x.sum() > 0, lambda x: wf.sqrt(x * x + 1), lambda x: -x * x, x)


def branched_in_loop(c):
    def step(c, x):
        return wf.cond(x > 0, lambda c: wf.tanh(c * t(A)), lambda c: c * x, c), c.sum()

    return wf.scan(step, c, t(XS))


def loop_in_branch(c):
    def loop(c):
        return wf.scan(lambda s, x: (s * wf.sin(s) * x + 1, None), c, t(XS))[0]

    return wf.cond(c.sum() > -100, loop, lambda c: c, c)


def repeated(c, **options):
    return wf.while_loop(lambda c: (c * c).sum() < 100, lambda c: c * 1.5 + t(A), c, **options)


def picked(c):
    order = t(np.array([0, 3, -1, 2, 0]))
    return wf.scan(lambda s, i: (s * c[i], (s[i], t(W)[i])), c, order)


def several(f):
    """The sum of everything that f gives in floating point."""

    def total(*args):
        leaves = optree.tree_leaves(f(*args))
        return sum((y * y).sum() for y in leaves if y.dtype.kind == "f")

    return total


ALL = (0, 1, 2)
PROGRAMS = {
    "values": (scanned, C, A, B),
    "gradient": (wf.grad(loss, ALL), C, A, B),
    "gradient, from the last": (wf.grad(lambda *q: loss(*q, reverse=True), ALL), C, A, B),
    "gradient in stretches": (wf.grad(lambda *q: loss(*q, segments=3), ALL), C, A, B),
    "stretches from the last": (
        wf.grad(lambda *q: loss(*q, segments=2, reverse=True), ALL),
        *(C, A, B),
    ),
    "jvp": (lambda c, a, b: wf.jvp(loss, (c, a, b), (b, c, a)), C, A, B),
    "forward over reverse": (lambda c, a, b: wf.hvp(loss, (c, a, b), (b, c, a)), C, A, B),
    "reverse over reverse": (wf.grad(several(wf.grad(loss, ALL)), ALL), C, A, B),
    "third order": (wf.grad(several(wf.grad(several(wf.grad(loss)))), 1), C, A, B),
    "hessian": (lambda c: wf.hessian(lambda c: loss(c, t(A), t(B)))(c), C),
    "vmap": (lambda c: wf.vmap(lambda c: scanned(c, t(A), t(B)))(c), BATCH),
    "vmap of the xs": (
        lambda x: wf.vmap(lambda x: wf.scan(lambda c, v: (c * v, (c, v)), t(A), x))(x),
        ROWS.T.copy(),
    ),
    "vmap of gradients": (
        lambda c: wf.vmap(wf.grad(loss, ALL), in_axes=(0, None, None))(c, t(A), t(B)),
        BATCH,
    ),
    "gradient of vmap": (
        wf.grad(lambda c, a: wf.vmap(lambda c: loss(c, a, t(B)))(c).sum(), (0, 1)),
        *(BATCH, A),
    ),
    "no xs": (lambda c: wf.scan(lambda s, x: (s * 0.9, s), c, length=4), C),
    "no steps": (wf.grad(several(lambda c: wf.scan(lambda s, _: (s * s, s), c, length=0))), C),
    "one step": (wf.grad(several(lambda c: wf.scan(lambda s, _: (s * s, s), c, length=1))), C),
    "no carry": (wf.grad(lambda x: wf.map(lambda v: (v * v * t(A)).sum(), x).sum()), XS),
    "a map of rows": (lambda x: wf.map(lambda v: (v, v.sum()), x), ROWS),
    "the same at each step": (lambda c: wf.scan(lambda s, _: (s, c * 2), c, length=3), C),
    "two carries change places": (
        lambda c, a: wf.scan(lambda s, x: ((s[1], s[0] * x), s), (c, a), t(XS)),
        *(C, A),
    ),
    "loops in loops": (of_loops, C),
    "gradient of loops in loops": (wf.grad(several(of_loops)), C),
    "products": (recurrent, C, W),
    "gradient of products": (wf.grad(several(recurrent), (0, 1)), C, W),
    "gradient of products of a batch": (wf.grad(several(recurrent), (0, 1)), BATCH[:1] * W, W),
    "cond, yes": (branched, np.abs(C)),
    "cond, no": (branched, -np.abs(C)),
    "gradient of cond": (wf.grad(several(branched)), -np.abs(C)),
    "hvp of cond": (lambda x: wf.hvp(several(branched), (x,), (t(A),)), np.abs(C)),
    "second order of cond": (wf.grad(several(wf.grad(several(branched)))), C),
    "vmap of cond": (lambda x: wf.vmap(branched)(x), BATCH),
    "vmap of a gradient of cond": (lambda x: wf.vmap(wf.grad(several(branched)))(x), BATCH),
    "vmap of operands of cond": (
        lambda x: wf.vmap(lambda r: wf.cond(x[0, 0] > 0, lambda: wf.exp(r), lambda: r * 2))(x),
        BATCH,
    ),
    "cond without operands": (
        lambda x, y: wf.cond((x * y).sum() > 0, lambda: {"a": x + y}, lambda: {"a": y - x}),
        *(C, A),
    ),
    "cond in a loop": (branched_in_loop, C),
    "gradient of cond in a loop": (wf.grad(several(branched_in_loop)), C),
    "loop in cond": (wf.grad(several(loop_in_branch)), C),
    "while": (repeated, C),
    "while, no steps": (repeated, 100 * C),
    "gradient of while": (wf.grad(several(lambda c: repeated(c, max_steps=20))), C),
    "jvp of while": (lambda c: wf.jvp(repeated, (c,), (t(B),)), C),
    "vmap of while": (lambda c: wf.vmap(repeated)(c), BATCH),
    "vmap of a gradient of while": (
        lambda c: wf.vmap(wf.grad(several(lambda c: repeated(c, max_steps=20))))(c),
        BATCH,
    ),
    "jvp of vmap of while": (
        lambda c: wf.jvp(lambda c: wf.vmap(repeated)(c), (c,), (c * c,)),
        BATCH,
    ),
    "while over integers": (
        lambda c: wf.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] * c), (t(0), c)),
        C,
    ),
    "indices": (picked, C),
    "gradient of indices": (wf.grad(several(picked)), C),
    "half precision": (
        lambda c: wf.scan(lambda s, x: (s * 1.5, s), c, length=5),
        C[:3].astype("f2"),
    ),
    "truth values": (lambda c: wf.scan(lambda s, x: (s ^ (c > x), s), c > 0, t(XS)), C),
    "nothing in the arrays": (
        lambda e: wf.scan(lambda e, x: (e * x, e.sum() + x), e, t(XS)),
        C[:0],
    ),
}
PYTHON = ("a sort", "a decomposition", "complex numbers")
PROGRAMS |= {
    "a sort": (wf.grad(several(lambda c: wf.scan(lambda s, x: (wf.sort(s * x), s), c, t(XS)))), C),
    "a decomposition": (
        lambda c: wf.scan(lambda s, x: (wf.linalg.solve(t(W + 3 * np.eye(4)), s), None), c, t(XS)),
        C,
    ),
    "complex numbers": (lambda c: wf.scan(lambda s, x: (s * s * x, s), c, t(XS)), C + 1j * A),
}


def alike(one, other):
    """Two results: the same structure, dtypes and, to rounding, numbers."""
    assert optree.tree_structure(one) == optree.tree_structure(other)
    for x, y in zip(optree.tree_leaves(one), optree.tree_leaves(other), strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        unit = 0 if x.dtype.kind in "biu" else np.finfo(x.dtype).eps
        x, y = x.detach().numpy(), y.detach().numpy()
        scale = np.abs(x).max(initial=1.0)
        np.testing.assert_allclose(y, x, rtol=0, atol=256 * unit * scale)


def every(graph):
    """The equations of a graph and of all graphs in it."""
    for e in graph.equations:
        yield e
        for body in inner_graphs(e.static):
            yield from every(body)


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_eager(name, target, monkeypatch):
    monkeypatch.setenv("WEFT_CHECK_BOUNDS", "1")
    f, *args = PROGRAMS[name]
    args = [t(a) for a in args]
    compiled = wf.compile(f)
    alike(f(*args), compiled(*args))
    graph = compiled.graph
    verify(graph)
    structured = any(e.op.name in ("scan", "cond", "while") for e in every(graph))
    assert structured or name in ("vmap of cond", "vmap of a gradient of cond")
    steps = scheduled(optimised(graph, verify)).steps
    if target is None and name not in PYTHON:
        assert not any(isinstance(s, LibraryStep) for s in steps)
        assert not any("Python" in line for line in compiled.explain().split("\n"))


@pytest.mark.parametrize(
    "name", ["gradient", "loops in loops", "gradient of cond in a loop", "indices"]
)
def test_each_pass_keeps_the_values(name):
    f, *args = PROGRAMS[name]
    compiled = wf.compile(f)
    compiled(*[t(a) for a in args])
    graph = compiled.graph
    values = [*args, *[p.read(None) for p in compiled._last().places[len(args) :]]]
    values = [np.asarray(v) for v in values]
    want = interpret(graph, values)
    for what, apply in PASSES:
        graph = apply(graph)
        verify(graph)
        for x, y in zip(want, interpret(graph, values), strict=True):
            np.testing.assert_allclose(y, x, rtol=1e-12, atol=1e-12, err_msg=what)


def test_branches_that_are_not_taken_are_not_computed():
    f = wf.compile(lambda x: wf.cond(x.sum() > 0, lambda: 1 / x, lambda: x * 0))
    g = wf.compile(wf.grad(lambda x: wf.cond(x > 0, lambda: wf.log(x), lambda: x * 0)))
    assert not f(t(np.zeros(3))).numpy().any()
    assert g(t(0.0)).item() == 0  # NaN, if both were
    f(t(np.ones(3)))
    (branch,) = [s for s in f._last().executable.schedule.steps if isinstance(s, NativeStep)]
    inside = [c.work.steps[0].row for b in (branch.routine.yes, branch.routine.no) for c in b.calls]
    assert inside == ["divide", "multiply"]


def unrecorded(c, x):
    with wf.no_grad():
        s = wf.sin(c)
    return s * c + x, None


@wf.custom_op(vjp=lambda g, y, x: (7 * g,))
def straight_through(x):
    return wf.sign(x) * 0.5 + x


STOPPED = {
    "detach": lambda c: wf.scan(lambda c, x: (wf.sin(c.detach()) * c + x, None), c, t(XS))[0],
    "no_grad": lambda c: wf.scan(unrecorded, c, t(XS))[0],
    "a rule of the user's": lambda c: wf.scan(lambda c, x: (straight_through(c), c), c, length=2),
    "detach of a parameter": lambda c: wf.scan(lambda s, x: (s * c.detach() * c, s), t(A), t(XS)),
    "detach in a branch": lambda c: wf.cond(c.sum() > -100, lambda: c.detach() * c, lambda: c),
    "detach in a while_loop": lambda c: wf.while_loop(
        lambda c: (c * c).sum() < 50, lambda c: c.detach() * c + 2, c, max_steps=10
    ),
}


@pytest.mark.parametrize("name", STOPPED)
def test_where_no_derivative_goes(name):
    f = several(STOPPED[name])
    alike(wf.grad(f)(t(C)), wf.compile(wf.grad(f))(t(C)))
    if name != "a rule of the user's":  # which says nothing of forward mode
        tangent = lambda c: wf.jvp(f, (c,), (t(A),))  # noqa: E731
        alike(tangent(t(C)), wf.compile(tangent)(t(C)))


def test_functions_of_the_user_in_bodies():
    @wf.custom_op(vjp=lambda g, y, x: (3 * g,))
    def tripled(x):
        return wf.tensor(np.asarray(x.numpy()) * 3)

    def f(x):
        return wf.scan(lambda c, v: (tripled(c) + v, None), x, t(XS))[0].sum()

    compiled = wf.compile(wf.value_and_grad(f))
    alike(wf.value_and_grad(f)(t(C)), compiled(t(C)))
    assert "runs in Python because of" in compiled.explain()


# -- random numbers ------------------------------------------------------------------------------


def drawing(c, **options):
    def step(c, x):
        first = wf.rand(1, dtype="float64")
        d, y = wf.scan(lambda d, z: (d * 0.5 + wf.randn(4, dtype="float64"), d), c, length=3)
        return d * x, (first, y, wf.rand(2))

    return wf.rand(1), wf.scan(step, c, t(XS), **options), wf.rand(1)


@pytest.mark.parametrize("options", [{}, {"reverse": True}, {"segments": 2}], ids=str)
def test_draws_are_those_of_eager(options):
    compiled = wf.compile(lambda c: drawing(c, **options))
    wf.random.seed(5)
    want = [drawing(t(C), **options) for _ in range(3)], wf.rand(2)
    wf.random.seed(5)
    alike(want, ([compiled(t(C)) for _ in range(3)], wf.rand(2)))


def test_a_gradient_sees_the_same_draws():
    def f(c):
        return wf.scan(
            lambda c, x: (wf.tanh(c * wf.randn(4, dtype="float64") + x), None), c, t(XS)
        )[0].sum()

    compiled = wf.compile(wf.grad(f))
    wf.random.seed(5)
    want = [wf.grad(f)(t(C)) for _ in range(2)]
    wf.random.seed(5)
    alike(want, [compiled(t(C)) for _ in range(2)])


# -- bad input -----------------------------------------------------------------------------------

BUFFER = wf.zeros(4, dtype="float64")
KEPT: list = []


def written(c):
    def step(c, x):
        BUFFER[...] = c
        return c, None

    return wf.scan(step, c, t(XS))[0]


def kept(c):
    def step(c, x):
        KEPT.append(c * x)
        return c, None

    wf.scan(step, c, t(XS))
    return KEPT[-1] + 1


BAD = {
    "another shape": (
        lambda c: wf.scan(lambda c, x: (wf.stack([c, c]), None), c, t(XS)),
        errors.ShapeError,
        r"in <lambda> \(test_loops.py:\d+\) carry was float64 of shape \(4,\) and became",
    ),
    "another dtype": (
        lambda c: wf.scan(lambda c, x: (c.to("float32"), None), c, t(XS)),
        errors.ShapeError,
        "carry was float64 of shape .* and became float32",
    ),
    "another structure": (
        lambda c: wf.while_loop(lambda c: c.sum() < 9, lambda c: (c, c), c),
        errors.ShapeError,
        "carry was tensor and became",
    ),
    "branches that differ": (
        lambda c: wf.cond(c.sum() > 0, lambda c: c, lambda c: c.sum(), c),
        errors.ShapeError,
        "the result was float64 of shape .* and became",
    ),
    "an if in a body": (
        lambda c: wf.scan(lambda c, x: (c if x > 0 else -c, None), c, t(XS)),
        errors.StagingError,
        "wf.cond",
    ),
    "a tensor from outside written": (written, errors.StagingError, "return it from there"),
    "a tensor kept": (kept, errors.LeakedTensor, "was kept somewhere"),
    "a while_loop pulled back": (
        wf.grad(lambda c: repeated(c).sum()),
        errors.NotDifferentiable,
        "give max_steps",
    ),
    "too many steps": (
        lambda c: repeated(c, max_steps=1),
        errors.LoopLimit,
        r"<lambda> \(test_loops.py:\d+\) still holds after max_steps=1 steps",
    ),
    "an index in a loop": (
        lambda c: wf.scan(lambda s, i: (s * c[i], None), c, t(np.array([0, 9, 1]))),
        errors.IndexingError,
        r"index: 9 is out of range for axis 0 of length 4 \(at test_loops.py",
    ),
    "an index in a branch": (
        lambda c: wf.cond(c.sum() > -100, lambda: c[t(np.array([0, 9]))], lambda: c[:2]),
        errors.IndexingError,
        "take: index 9 is out of range for length 4",
    ),
    "an index in a loop in a loop": (
        lambda c: wf.scan(
            lambda s, x: (wf.scan(lambda s, i: (s * c[i], None), s, t(np.array([9])))[0], None),
            *(c, t(XS)),
        ),
        errors.IndexingError,
        "index: 9 is out of range for axis 0 of length 4",
    ),
    "an index in a while_loop": (
        lambda c: wf.while_loop(
            lambda s: s[0] < 9, lambda s: (s[0] + 1, s[1] * c[s[0]]), (t(0), c)
        ),
        errors.IndexingError,
        "index: 4 is out of range for axis 0 of length 4",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    f, kind, message = BAD[name]
    compiled = wf.compile(f)
    with pytest.raises(kind, match=message):
        compiled(t(C))


def test_an_index_in_the_branch_that_is_not_taken_is_not_looked_at():
    f = wf.compile(lambda c: wf.cond(c.sum() > 100, lambda: c[t(np.array([0, 9]))], lambda: c[:2]))
    alike(t(C[:2]), f(t(C)))


# -- what it is made of --------------------------------------------------------------------------


def routines(compiled):
    steps = compiled._last().executable.schedule.steps
    return [s.routine for s in steps if isinstance(s, NativeStep)]


def test_a_gradient_is_two_loops_and_saves_what_it_needs():
    f = wf.compile(
        wf.grad(lambda c: wf.scan(lambda c, x: (wf.tanh(c * x), None), c, t(XS))[0].sum())
    )
    f(t(C))
    forward, back = routines(f)
    assert isinstance(forward, ScanRoutine) and isinstance(back, ScanRoutine)
    assert (forward.length, forward.reverse) == (7, False) and (back.length, back.reverse) == (
        7,
        True,
    )
    # The tangent of a step needs its tanh only, which is made once and saved.
    assert [a.shape for a in forward.ys] == [(7, 4)]
    rows = [s.row for c in back.block.calls for s in c.work.steps]
    assert "tanh" not in rows


def test_a_linear_body_saves_nothing():
    f = wf.compile(wf.grad(lambda c: wf.scan(lambda c, x: (c * x + t(A), None), c, t(XS))[0].sum()))
    f(t(C))
    (back,) = routines(f)  # nobody needs the values
    assert back.reverse and not back.ys


@pytest.mark.parametrize("carried", [False, True])
def test_what_does_not_change_is_computed_before(carried):
    def f(c, a):
        if not carried:
            return wf.scan(lambda c, x: (c * wf.exp(a) + x, None), c, t(XS))[0]
        return wf.scan(lambda s, x: ((s[0] * wf.exp(s[1]) + x, s[1]), None), (c, a), t(XS))[0][0]

    compiled = wf.compile(f)
    alike(f(t(C), t(A)), compiled(t(C), t(A)))
    (loop,) = routines(compiled)
    assert len(loop.carries) == 1
    assert [s.row for c in loop.block.calls for s in c.work.steps] == ["multiply", "add"]


def test_stretches_save_their_first_carries():
    big = RNG.standard_normal((64, 256))

    def f(c, segments):
        return wf.scan(lambda c, x: (wf.sin(c) * x, None), c, t(XS.repeat(16)), segments=segments)[
            0
        ].sum()

    def arena(segments):
        compiled = wf.compile(wf.grad(lambda c: f(c, segments)))
        alike(wf.grad(lambda c: f(c, "none"))(t(big)), compiled(t(big)))
        return compiled._last().executable.plan.size

    # 112 steps: all of their carries, or those of 10 stretches and of the steps of one.
    assert arena("none") > 112 * big.nbytes
    assert arena(10) < 40 * big.nbytes


def test_compiling_does_not_take_longer_for_more_steps():
    def f(c, n):
        return wf.grad(lambda c: wf.scan(lambda c, _: (wf.tanh(c), None), c, length=n)[0].sum())(c)

    times = []
    for n in (10, 100_000):
        compiled = wf.compile(lambda c, n=n: f(c, n))
        start = time.perf_counter()
        compiled(t(C[:1]))
        times.append(time.perf_counter() - start)
        assert len(compiled.graph.equations) < 10
    assert times[1] < times[0] + 1.0


def test_threads_share_large_bodies_and_make_the_same_bits():
    w, xs = (t(RNG.standard_normal(s).astype("f4") / 16) for s in ((256, 256), (4, 256, 256)))

    def f(w, xs):
        h, ys = wf.scan(lambda h, x: (wf.tanh(h @ w + x), h.sum()), xs[0], xs)
        return (h * h).sum() + ys.sum()

    found = []
    for count in (1, 2):
        compiled = wf.compile(wf.grad(f, (0, 1)))
        compiled(w, xs)
        assert max(r.shared for r in routines(compiled)) > 0
        with pytest.MonkeyPatch.context() as patch:
            threads.resize(count)
            patch.setattr(threads, "resize", lambda *_: None)
            assert threads.width() == count
            found.append([g.numpy().tobytes() for g in compiled(w, xs)])
    assert found[0] == found[1]


def test_different_loops_have_different_keys():
    def key(f):
        compiled = wf.compile(f)
        compiled(t(C))
        return key_of(compiled.graph, {}, CPU.key)

    def loop(length=4, factor=0.5, reverse=False, row=wf.sin):
        return lambda c: wf.scan(lambda c, _: (row(c) * factor, c), c, None, length, reverse)

    others = [loop(), loop(5), loop(4, 0.25), loop(reverse=True), loop(row=wf.cos)]
    others += [loop(length=4, factor=1)]
    keys = [key(f) for f in others]
    assert None not in keys and len(set(keys)) == len(keys)
    assert key(loop()) == keys[0]


def test_a_stored_loop_computes_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    f, *args = PROGRAMS["gradient of cond in a loop"]
    made = [wf.compile(f) for _ in range(2)]
    first, second = (g(*map(t, args)) for g in made)
    alike(first, second)
    assert "loaded from the cache" in made[1].explain()


def test_reports_show_loops():
    f = wf.compile(
        lambda c: wf.cond(c.sum() > 0, lambda: repeated(c), lambda: recurrent(c, t(W))[0])
    )
    f(t(C))
    (branch,) = routines(f)
    assert isinstance(branch, CondRoutine)
    assert isinstance(branch.yes.calls[0].work, WhileRoutine)
    text = str(f.kernels)
    for words in ("branch at test_loops.py", "while_loop", "scan of 7 steps", "product 1×4 · 4×4"):
        assert words in text
    assert "branch" in f.explain()
    assert "scan(" in str(f.graph) and "tanh" in str(f.graph)


def test_a_call_can_be_differentiated_from_outside():
    def f(c, a):
        return (wf.scan(lambda c, x: (wf.tanh(c * x) + a, None), c, t(XS))[0] ** 2).sum()

    compiled = wf.compile(f)
    c, a = wf.tensor(C, requires_grad=True), wf.tensor(A, requires_grad=True)
    want, found = f(c, a).backward(), compiled(c, a).backward()
    alike([want[c], want[a]], [found[c], found[a]])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_against_jax(dtype):
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    jnp = jax.numpy
    arrays = [x.astype(dtype) for x in (BATCH, W, ROWS[:, None, :])]

    def network(xp, scan, h, w, xs):
        def step(h, x):
            h = xp.tanh(h @ w + x)
            return h, (h * h).sum()

        h, ys = scan(step, h, xs)
        return h.sum() + (ys * ys).sum()

    def ours(*args):
        return network(wf, wf.scan, *args)

    def theirs(*args):
        return network(jnp, jax.lax.scan, *args)

    want = jax.grad(theirs, (0, 1, 2))(*map(jnp.asarray, arrays))
    found = wf.compile(wf.grad(ours, (0, 1, 2)))(*map(t, arrays))
    for x, y in zip(want, found, strict=True):
        x = np.asarray(x)
        bound = 64 * np.finfo(dtype).eps * np.abs(x).max()
        np.testing.assert_allclose(y.numpy(), x, rtol=0, atol=bound)
    directions = [a[::-1].copy() for a in arrays]
    _, want = jax.jvp(
        jax.grad(theirs, 1), *(tuple(map(jnp.asarray, v)) for v in (arrays, directions))
    )
    hvp = wf.compile(lambda *v: wf.jvp(wf.grad(ours, 1), v[:3], v[3:])[1])
    found = hvp(*map(t, (*arrays, *directions)))
    bound = 256 * np.finfo(dtype).eps * np.abs(np.asarray(want)).max()
    np.testing.assert_allclose(found.numpy(), np.asarray(want), rtol=0, atol=bound)
