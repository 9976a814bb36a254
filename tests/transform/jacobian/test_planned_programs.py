"""Planned Jacobians of awkward programs: complex inside, results twice, batches, replays."""

from dataclasses import replace

import numpy as np
import pytest

import weft as wf
from weft.transform.jacobian.colouring import column_colouring

RNG = np.random.default_rng(11)


def T(x):
    return wf.asarray(np.asarray(x, np.float64))


def by_jvp(f, x):
    columns = []
    for k in range(x.size):
        e = np.zeros(x.size)
        e[k] = 1.0
        columns.append(wf.jvp(f, (x,), (T(e.reshape(x.shape)),))[1].numpy().ravel())
    return np.stack(columns, -1)


def shifted_moduli(x):
    return (abs(x + 1j * T(np.linspace(1, 2, x.size))) ** 2).sum()


def power_spectrum(x):
    return (abs(wf.fft.rfft(x)) ** 4).sum()


@pytest.mark.parametrize("mode", ["auto", "forward", "reverse"])
@pytest.mark.parametrize("f", [shifted_moduli, power_spectrum])
@pytest.mark.parametrize("n", [3, 24])
def test_hessians_with_complex_values_inside(f, n, mode):
    x = T(RNG.normal(size=n))
    want = by_jvp(wf.grad(f), x)
    found = wf.hessian(f, mode=mode)(x).numpy()
    np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-9 * np.abs(want).max())


@pytest.mark.parametrize("mode", ["auto", "forward", "reverse"])
def test_a_result_that_is_returned_twice(mode):
    def f(x):
        y = x * x
        return y, y.sum(), y

    x = T([1.0, 2.0, 3.0])
    first, total, again = wf.jacobian(f, mode=mode)(x)
    np.testing.assert_array_equal(first.numpy(), np.diag(2 * x.numpy()))
    np.testing.assert_array_equal(again.numpy(), first.numpy())
    np.testing.assert_array_equal(total.numpy(), 2 * x.numpy())


def test_a_jacobian_inside_a_checkpoint():
    def f(p):
        return (wf.jacobian(lambda y: y**2 * p)(p * 2) ** 2).sum()

    p = T([0.7, 0.3, 1.2])
    want = wf.grad(f)(p).numpy()
    for _ in range(20):
        np.testing.assert_array_equal(wf.grad(lambda p: wf.checkpoint(f, p))(p).numpy(), want)


def rosenbrock(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


BATCHED = [
    lambda x: x[::-1] ** 2,
    lambda x: x[1:] * x[:-1],
    lambda x: wf.concat([x[:5], x.reshape(4, 6).sum(1)]),
    lambda x: wf.take(x, wf.asarray([3, 1, 3])) * x[0],
    lambda x: wf.take(x, wf.argsort(x)) * x,
    lambda x: wf.pad(x, (1, 2)) ** 2,
    lambda x: wf.softmax(x.reshape(4, 6), axis=1).T,
]


@pytest.mark.parametrize("f", BATCHED)
def test_planned_jacobians_inside_vmap(f):
    X = T(RNG.normal(size=(3, 24)))
    found = wf.vmap(wf.jacobian(f))(X).numpy().reshape(3, -1, 24)
    for k in range(3):
        np.testing.assert_allclose(found[k], by_jvp(f, X[k]), rtol=1e-12, atol=1e-13)


def test_planned_hessians_inside_vmap():
    X = T(RNG.normal(size=(3, 24)))
    found = wf.vmap(wf.hessian(rosenbrock))(X).numpy()
    for k in range(3):
        want = by_jvp(wf.grad(rosenbrock), X[k])
        np.testing.assert_allclose(found[k], want, rtol=1e-10, atol=1e-9)


def complex_bottleneck(x):
    w = T(np.linspace(-1, 1, 3 * x.size).reshape(3, x.size)) * (1 + 0.5j)
    z = w @ x.to(wf.complex128)
    back = T(np.cos(np.arange(3 * x.size)).reshape(x.size, 3)) * (0.3 - 1j)
    return wf.real(back @ (z * z))


def test_complex_values_are_no_bottleneck():
    x = T(RNG.normal(size=40))
    want = by_jvp(complex_bottleneck, x)
    J = wf.jacobian(complex_bottleneck)
    for _ in range(2):
        np.testing.assert_allclose(J(x).numpy(), want, rtol=1e-9, atol=1e-9)
    for strategy in ("auto", "mixed"):
        with wf.GradientTape(scheduler=wf.SchedulerConfig(strategy=strategy)) as tape:
            y = complex_bottleneck(tape.watch(x))
        np.testing.assert_allclose(tape.jacobian(y, x).numpy(), want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_refused_plan_is_not_kept(monkeypatch, compiled):
    """Columns that meet in a row in one sweep: wrong for any values, also for zeros."""
    from weft.transform.jacobian import plan

    def careless(pattern):
        real = column_colouring(pattern)
        colours = np.ones_like(real.column_colours)
        return replace(real, column_colours=colours, gather=real.gather % pattern.shape[0])

    monkeypatch.setattr(plan, "column_colouring", careless)
    J = wf.jacobian(lambda x: x[1:] * x[:-1], mode="columns")
    J = wf.compile(J) if compiled else J
    for _ in range(2):
        with pytest.raises(wf.errors.PlanError, match="unmixed"):
            J(wf.zeros(30, dtype=wf.float64))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (wf.sort(x.reshape(6, 4), axis=1)[:, :2] ** 2).sum(),
        lambda x: (wf.max(x.reshape(6, 4), axis=1) ** 2).sum(),
        lambda x: (x.at[3].multiply(x[4]) ** 2).sum(),
    ],
)
def test_hessians_whose_pattern_is_wider_on_one_side(f):
    x = T(RNG.normal(size=24))
    want = by_jvp(wf.grad(f), x)
    np.testing.assert_allclose(wf.hessian(f)(x).numpy(), want, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(wf.hessian(f, format="csr")(x).toarray(), want, atol=1e-12)


def test_cancellation_is_no_fault_of_a_plan():
    f = lambda x: wf.sin(x[1:]) ** 2 + wf.cos(x[1:]) ** 2 + 0 * x[:-1]  # noqa: E731
    for _ in range(20):
        found = wf.jacobian(f, format="csr")(T(RNG.normal(size=24)))
        assert abs(found).max() < 1e-15


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_other_precisions(dtype):
    x = T(np.linspace(0.5, 1.5, 24)).to(dtype)
    f = lambda x: x[1:] * x[:-1]  # noqa: E731
    found = wf.jacobian(f)(x)
    assert found.dtype == x.dtype
    want = by_jvp(f, x.to("float64"))
    np.testing.assert_allclose(found.to("float64").numpy(), want, rtol=1e-2)
    np.testing.assert_allclose(wf.jacobian(f, format="csr")(x).toarray(), want, rtol=1e-2)


def test_no_nan_from_a_branch_not_taken_in_a_trace():
    def f(x):
        root = lambda a: wf.sqrt(a) ** 2  # noqa: E731
        return wf.vmap(lambda a: wf.cond(a > 0, root, lambda a: -a, a))(x)

    for way in (wf.jacrev, wf.jacfwd, wf.jacobian):
        np.testing.assert_allclose(way(f)(T([-1.0, 2.0])).numpy(), [[-1, 0], [0, 1]], atol=1e-12)


def test_aux():
    f = lambda x: (x**2, {"sum": x.sum(), "name": "squares"})  # noqa: E731
    J, aux = wf.jacobian(f, has_aux=True)(T([1.0, 2.0]))
    assert J.tolist() == [[2.0, 0.0], [0.0, 4.0]]
    assert aux["sum"].item() == 3.0 and aux["name"] == "squares"
    H, aux = wf.hessian(lambda x: ((x**3).sum(), x + 1), has_aux=True)(T([1.0, 2.0]))
    assert H.tolist() == [[6.0, 0.0], [0.0, 12.0]] and aux.tolist() == [2.0, 3.0]


def test_refusals():
    x = T([1.0, 2.0])
    with pytest.raises(wf.errors.NotDifferentiable, match="complex result"):
        wf.jacobian(lambda x: x * 1j)(x)
    with pytest.raises(wf.errors.NotDifferentiable, match="complex number"):
        wf.grad(lambda x: (x * 1j).sum())(x)
    with pytest.raises(wf.errors.NotDifferentiable, match="result of dtype int64"):
        wf.jacobian(lambda x: wf.argmax(x))(x)
    with pytest.raises(wf.errors.ArgumentError, match="memory_limit"):
        wf.jacobian(lambda x: x, memory_limit=-1)
    with pytest.raises(wf.errors.ArgumentError, match="no tensors"):
        wf.jacobian(lambda a, x: x)({}, x)
    both = wf.jacobian(lambda a, b: a * b, argnums=[0, 1])(x, x)
    assert both[0].tolist() == both[1].tolist() == [[1.0, 0.0], [0.0, 2.0]]
