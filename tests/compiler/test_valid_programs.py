"""Programs that eager mode runs and that once could not be compiled."""

import enum
import math

import numpy as np
import pytest
import torch

import weft as wf
from weft.errors import ConvergenceError, StagingError, WeftError

F = wf.nn.functional
rng = np.random.default_rng(0)


def normal(*shape):
    return wf.tensor(rng.standard_normal(shape).astype(np.float32))


X = normal(3, 4)


@pytest.mark.parametrize("name", ["sqrt", "exp", "sin", "abs", "square", "floor", "erf", "log1p"])
@pytest.mark.parametrize("number", [2, 2.5, True, np.float64(2), np.float32(2)])
def test_functions_of_numbers_alone(name, number):
    function = getattr(wf, name)
    want, got = X / function(number), wf.compile(lambda x: x / function(number))(X)
    assert want.dtype == got.dtype
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    "name", ["add", "divide", "hypot", "maximum", "pow", "atan2", "floor_divide"]
)
def test_functions_of_two_numbers(name):
    function = getattr(wf, name)
    for a, b in [(2, 3), (2.0, 3), (True, 2.5), (7, 2.0)]:
        want, got = function(a, b) + X, wf.compile(lambda x, a=a, b=b: function(a, b) + x)(X)
        assert want.dtype == got.dtype
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6)


class Size(enum.IntEnum):
    SMALL = 2


class Rate(float, enum.Enum):
    SLOW = 0.5


@pytest.mark.parametrize("member", [Size.SMALL, Rate.SLOW, type("Whole", (int,), {})(3)])
def test_numbers_in_classes_of_their_own(member):
    plain = int(member) if isinstance(member, int) else float(member)
    uses = {
        "times": lambda x, v: x * v,
        "over": lambda x, v: v / x,
        "power": lambda x, v: abs(x) ** v,
        "integers": lambda x, v: wf.tensor([1, 2]) + v,
        "compared": lambda x, v: x > v,
        "tensor": lambda x, v: wf.tensor(v),
        "full": lambda x, v: wf.full(3, v),
        "where": lambda x, v: wf.where(x > 0, x, v),
        "clip": lambda x, v: wf.clip(x, -v, v),
        "listed": lambda x, v: wf.tensor([v, v]),
    }
    for label, use in uses.items():
        want = use(X, plain)
        for got in (use(X, member), wf.compile(lambda x, use=use: use(x, member))(X)):
            assert got.dtype == want.dtype, label
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6, err_msg=label)


BOOLEANS = {
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
    "**": lambda a, b: a**b,
    "square": lambda a, b: np.square(a),
}


@pytest.mark.parametrize("name", BOOLEANS)
def test_booleans_are_computed_as_numpy_does(name):
    a, b = np.array([True, False, True]), np.array([True, True, True])
    use = BOOLEANS[name]
    want = use(a, b)
    for f in (use, wf.compile(use)):
        got = f(wf.tensor(a), wf.tensor(b))
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got.numpy(), want)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 7])
def test_booleans_beside_integers_are_integers(n):
    a = wf.tensor([True, False])
    for f in (lambda a: a**n, lambda a: wf.clip(a, 0, n), lambda a: a + n):
        got, compiled = f(a), wf.compile(f)(a)
        assert got.dtype == compiled.dtype == wf.int64
        np.testing.assert_array_equal(got.numpy(), compiled.numpy())


def test_clip_of_booleans_by_booleans():
    a = wf.tensor([True, False])
    for f in (lambda a: wf.clip(a, False, True), lambda a: wf.clip(a, True)):
        got, compiled = f(a), wf.compile(f)(a)
        assert got.dtype == compiled.dtype == wf.bool
        np.testing.assert_array_equal(got.numpy(), compiled.numpy())


@pytest.mark.parametrize("many", [True, False])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_ctc(reduction, many):
    n, steps, classes = (3 if many else 1), 8, 5
    x = normal(steps, n, classes)
    labels = rng.integers(1, classes, (n, 3))
    frames, counts = rng.integers(6, steps + 1, n), rng.integers(1, 4, n)
    given = [wf.tensor(v) for v in (labels, frames, counts)]

    def f(x, *given):
        return F.ctc_loss(F.log_softmax(x, -1), *given, reduction=reduction)

    def gradient(x, *given):
        x = x.detach().requires_grad_()
        return f(x, *given).sum().backward()[x]

    theirs = torch.tensor(x.numpy(), requires_grad=True)
    loss = torch.nn.functional.ctc_loss(
        theirs.log_softmax(-1), *(torch.tensor(v) for v in (labels, frames, counts)), 0, reduction
    )
    loss.sum().backward()
    for run in (lambda f: f, wf.compile):
        np.testing.assert_allclose(run(f)(x, *given).numpy(), loss.detach().numpy(), rtol=1e-5)
        got = run(gradient)(x, *given).numpy()
        np.testing.assert_allclose(got, theirs.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_ctc_of_targets_for_another_number_of_sequences_is_refused():
    x, lengths = F.log_softmax(normal(8, 2, 5), -1), wf.tensor([8, 8])
    with pytest.raises(WeftError, match="4 targets"):
        F.ctc_loss(x, wf.ones((4, 2), dtype=wf.int64), lengths, wf.tensor([2, 2]))


A = wf.tensor([2.0, 3.0, 4.0], dtype=wf.float64)
START = wf.ones(3, dtype=wf.float64)
IMPLICIT = {
    "root": lambda a: wf.implicit.root(lambda x, a: x * x - a, START, a),
    "fixed_point": lambda a: wf.implicit.fixed_point(lambda x, a: wf.cos(x) * a / 8, START, a),
    "argmin": lambda a: wf.implicit.argmin(lambda x, a: ((x - a) ** 4 + x * x).sum(), START, a),
    "by closure": lambda a: wf.implicit.root(lambda x: x**3 - a, START),
}


@pytest.mark.parametrize("name", IMPLICIT)
def test_values_that_equations_define(name):
    f = IMPLICIT[name]
    total = lambda a: (f(a) ** 2).sum()  # noqa: E731
    uses = {
        "value": f,
        "gradient": wf.grad(total),
        "tangent": lambda a: wf.jvp(f, (a,), (a * 0 + 1,))[1],
        "hessian": lambda a: wf.hvp(total, (a,), (a * 0 + 1,)) if name != "argmin" else f(a),
    }
    for label, use in uses.items():
        want, got = use(A), wf.compile(use)(A)
        for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (want, got)), strict=True):
            np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=1e-8, err_msg=label)


def test_slopes_that_are_singular():
    """Newton's method takes the step of least squares there, in a program too."""
    f = lambda a: wf.implicit.root(lambda x, a: x.sum() - a.sum() + x * 0, START, a)  # noqa: E731
    np.testing.assert_allclose(f(A).numpy(), [3.0, 3.0, 3.0])
    np.testing.assert_allclose(wf.compile(f)(A).numpy(), [3.0, 3.0, 3.0])


def test_an_equation_without_a_solution_is_an_error_of_the_call():
    compiled = wf.compile(lambda a: wf.implicit.root(lambda x: x * x - a, START))
    np.testing.assert_allclose(compiled(A).numpy(), np.sqrt(A.numpy()))
    with pytest.raises(ConvergenceError, match="not solved to the tolerance"):
        compiled(-A)
    np.testing.assert_allclose(compiled(A).numpy(), np.sqrt(A.numpy()))


@pytest.mark.parametrize("layer", [wf.nn.BatchNorm1d, wf.nn.BatchNorm2d])
def test_batch_norm_that_counts_all_batches_alike(layer):
    shape = (5, 3) if layer is wf.nn.BatchNorm1d else (5, 3, 2, 2)
    eager, compiled = layer(3, momentum=None), layer(3, momentum=None)
    run = wf.compile(lambda x: compiled(x))
    for _ in range(4):
        x = normal(*shape)
        np.testing.assert_allclose(
            run(x).detach().numpy(), eager(x).detach().numpy(), rtol=1e-4, atol=1e-5
        )
    for name, value in eager.state_dict().items():
        got = compiled.state_dict()[name].numpy()
        np.testing.assert_allclose(got, value.numpy(), rtol=1e-5, atol=1e-6, err_msg=name)
    assert len(run.recompilations) == 0


def bad(x):
    raise ValueError("no")


def far(x):
    """An index that is out of range, which a program finds at its call."""
    return wf.tensor([0, 1]) + (x.sum() * 0 + 7).to(wf.int64)


def while_drawing(x):
    return wf.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] + wf.randn(())), (0, 0.0))[1]


RAISES = {
    "while it is traced, before a draw": lambda x: wf.randn((3,)) if bad(x) else None,
    "while it is traced, after a draw": lambda x: wf.randn((3,)) + bad(x),
    "at the call, before a draw": lambda x: x[0][far(x)].sum() + wf.randn((3,)),
    "at the call, after a draw": lambda x: wf.randn((3,))[far(x)],
    "at the call, in a loop that draws": lambda x: while_drawing(x) + x[0][far(x)],
    "dropout": lambda x: F.dropout(x)[0][far(x)],
    "another stream": lambda x: wf.randn((3,), generator=STREAM)[far(x)],
}
STREAM = wf.random.Generator(3)


@pytest.mark.parametrize("name", RAISES)
def test_a_call_that_fails_draws_nothing(name):
    compiled = wf.compile(RAISES[name])
    wf.random.seed(5)
    before = STREAM.state_dict()
    for _ in range(2):
        with pytest.raises((ValueError, WeftError)):
            compiled(X)
    got = wf.randn((4,)).tolist()
    wf.random.seed(5)
    assert got == wf.randn((4,)).tolist()
    assert before == STREAM.state_dict()


def test_a_program_whose_call_is_refused_draws_nothing():
    w = wf.tensor([1.0, 2.0, 3.0])

    @wf.compile
    def f(x):
        w.copy_(w + x)
        return wf.randn((3,)) + w

    f(wf.ones(3))
    wf.random.seed(5)
    with pytest.raises(StagingError):
        f(w[:3])
    got = wf.randn((4,)).tolist()
    wf.random.seed(5)
    assert got == wf.randn((4,)).tolist()
    assert math.isfinite(w.sum().item())
