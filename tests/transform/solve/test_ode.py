"""Ordinary differential equations: closed forms, SciPy, and derivatives in all modes."""

import tracemalloc

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import weft as wf
from weft import errors
from weft.transform.solve.dormand_prince import StepControl, integrate

TIGHT = {"rtol": 1e-10, "atol": 1e-12}


def double(x, **options):
    return wf.tensor(x, dtype="float64", **options)


def close(got, expected, rtol):
    np.testing.assert_allclose(got.detach().numpy(), expected, rtol=rtol, atol=rtol)


def predators(y, t, p):
    """The equations of Lotka and Volterra."""
    x, z = y[0], y[1]
    return wf.stack([p[0] * x - p[1] * x * z, -p[2] * z + p[3] * x * z])


Y0, P = double([1.0, 1.2]), double([1.5, 1.0, 3.0, 1.0])
TS = double([0.0, 0.4, 1.1])


def reference(y0, p, ts):
    def f(_, y):
        return [p[0] * y[0] - p[1] * y[0] * y[1], -p[2] * y[1] + p[3] * y[0] * y[1]]

    span = (ts[0], ts[-1])
    return solve_ivp(f, span, y0, "DOP853", ts, rtol=1e-13, atol=1e-14).y.T


def difference(f, x, direction):
    """A derivative along a direction, by differences of fourth order."""
    h = 1e-3
    g = [f(x + k * h * direction) for k in (-2, -1, 1, 2)]
    return (g[0] - 8 * g[1] + 8 * g[2] - g[3]) / (12 * h)


@pytest.fixture(params=["discrete", "adjoint"])
def gradient(request):
    return request.param


def test_the_exponential_forwards_and_backwards_in_time(gradient):
    ts = np.array([0.0, 0.3, 0.3, 1.0, 2.5])
    y = wf.odeint(lambda y, t: -y, double(1.0), ts, gradient=gradient, **TIGHT)
    close(y, np.exp(-ts), 1e-9)
    y = wf.odeint(lambda y, t: -y, double(1.0), -ts, gradient=gradient, **TIGHT)
    close(y, np.exp(ts), 1e-9)
    assert wf.odeint(lambda y, t: -y, double([1.0, 2.0]), [3.0]).tolist() == [[1.0, 2.0]]
    assert wf.odeint(lambda y, t: -y, double(2.0), [3.0, 3.0]).tolist() == [2.0, 2.0]
    assert wf.odeint(lambda y, t: -y, wf.zeros(0), [0.0, 1.0]).shape == (2, 0)


def test_the_harmonic_oscillator_as_a_tree():
    ts = np.linspace(0, 7, 40)

    def f(y, t):
        return {"x": y["v"], "v": -y["x"]}

    y = wf.odeint(f, {"x": double([1.0, 0.0]), "v": double([0.0, 2.0])}, ts, **TIGHT)
    close(y["x"], np.stack([np.cos(ts), 2 * np.sin(ts)], 1), 1e-8)
    close(y["v"], np.stack([-np.sin(ts), 2 * np.cos(ts)], 1), 1e-8)


def test_a_complex_solution():
    ts = np.linspace(0, 3, 5)
    y0 = wf.tensor([1 + 1j], dtype="complex128")
    y = wf.odeint(lambda y, t: 2j * y, y0, ts, **TIGHT)
    close(y, (1 + 1j) * np.exp(2j * ts)[:, None], 1e-9)


def test_predators_and_prey_against_scipy():
    ts = np.linspace(0, 6, 25)
    y = wf.odeint(predators, Y0, ts, P, **TIGHT)
    close(y, reference(Y0.numpy(), P.numpy(), ts), 1e-8)


@pytest.mark.parametrize("rtol", [1e-4, 1e-6, 1e-8])
def test_the_error_follows_the_tolerance(rtol):
    ts = np.linspace(0, 6, 25)
    exact = reference(Y0.numpy(), P.numpy(), ts)
    y = wf.odeint(predators, Y0, ts, P, rtol=rtol, atol=rtol / 100)
    error = abs(y.numpy() / exact - 1).max()
    assert rtol / 1000 < error < 100 * rtol


def test_the_interpolant_has_order_four():
    errors_ = []
    for h in (0.4, 0.2):
        ts = np.linspace(0, h, 9)
        y = wf.odeint(lambda y, t: wf.cos(t) * y, double(1.0), ts, rtol=1.0, atol=1.0)
        errors_.append(abs(y.numpy() - np.exp(np.sin(ts)))[1:-1].max())
    assert 2**4.5 < errors_[0] / errors_[1] < 2**6


def test_the_time_is_handed_over_and_single_precision_stays():
    y = wf.odeint(lambda y, t: 3 * t**2, wf.tensor(0.0), [0.0, 1.0, 2.0])
    assert y.dtype == wf.float32
    np.testing.assert_allclose(y.numpy(), [0.0, 1.0, 8.0], rtol=1e-5)


def loss(y0, p, ts, gradient, options=TIGHT):
    return (wf.odeint(predators, y0, ts, p, gradient=gradient, **options) ** 2).sum()


def test_gradients_against_differences_of_a_precise_solution(gradient):
    args = (Y0, P, TS)
    got = wf.grad(lambda *a: loss(*a, gradient), (0, 1, 2))(*args)
    rng = np.random.default_rng(4)
    for k, g in enumerate(got):
        values = [a.numpy() for a in args]
        along = rng.normal(size=values[k].shape)

        def value(x, k=k, values=values):
            changed = [*values[:k], x, *values[k + 1 :]]
            return (reference(*changed) ** 2).sum()

        expected = difference(value, values[k], along)
        close((g * double(along)).sum(), expected, 1e-6)
        tangent = wf.jvp(
            lambda x, k=k: loss(*args[:k], x, *args[k + 1 :], gradient),
            (args[k],),
            (double(along),),
        )[1]
        close(tangent, expected, 1e-6)


def test_the_discrete_gradient_is_that_of_the_computed_solution():
    """At a loose tolerance, too: a step of length h multiplies y by a polynomial in k·h."""
    factor = np.polynomial.Polynomial([1, 1, 1 / 2, 1 / 6, 1 / 24, 1 / 120, 1 / 600])
    ends = [0.0]

    def f(k):
        control = StepControl(0.05, 0.05, 100, (1,))
        return integrate(
            lambda y, t: -k * y,
            double([1.0]),
            double([0.0, 4.0]),
            control,
            lambda y, t, slope: ends.append(t.item()),
        )[1, 0]

    value, slope = wf.value_and_grad(f)(double(1.5))
    z = -1.5 * np.diff(ends)
    close(value, factor(z).prod(), 1e-12)
    close(slope, (factor.deriv()(z) / factor(z) * z / 1.5).sum() * factor(z).prod(), 1e-12)
    assert abs(slope.item() / (-4 * np.exp(-6)) - 1) > 1e-3


def test_second_order(gradient):
    f = lambda p: loss(Y0, p, TS, gradient, {"rtol": 1e-7, "atol": 1e-9})  # noqa: E731
    v = double([0.3, -0.2, 0.5, 0.1])
    product = wf.hvp(f, (P,), (v,))
    values = [
        (reference(Y0.numpy(), P.numpy() + h * v.numpy(), TS.numpy()) ** 2).sum()
        for h in (-2e-3, -1e-3, 0.0, 1e-3, 2e-3)
    ]
    curvature = np.dot([-1, 16, -30, 16, -1], values) / 12e-6
    close((product * v).sum(), curvature, 1e-4)
    close(wf.grad(lambda p: (wf.grad(f)(p) * v).sum())(P), product.numpy(), 1e-5)


def test_third_order_of_the_exponential(gradient):
    def f(k):
        return wf.odeint(lambda y, t: -k * y, double(1.0), [0.0, 1.0], gradient=gradient)[-1]

    third = wf.grad(wf.grad(wf.grad(f)))(double(0.5))
    close(third, -np.exp(-0.5), 1e-5)


def test_jacobians_and_batches(gradient):
    options = {"rtol": 1e-7, "atol": 1e-9, "gradient": gradient}

    def end(y0, p):
        return wf.odeint(predators, y0, TS, p, **options)[-1]

    jacobians = [mode(end, 1)(Y0, P).numpy() for mode in (wf.jacfwd, wf.jacrev)]
    np.testing.assert_allclose(*jacobians, rtol=1e-5, atol=1e-6)
    starts = double([[1.0, 1.2], [2.0, 0.5]])
    got = wf.vmap(wf.jacrev(end), (0, None))(starts, P).numpy()
    expected = np.stack([wf.jacfwd(end)(y, P).numpy() for y in starts])
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    total = wf.grad(lambda p: wf.vmap(end, (0, None))(starts, p).sum())(P)
    single = sum(wf.grad(lambda p, y=y: end(y, p).sum())(P).numpy() for y in starts)
    close(total, single, 1e-5)


def test_what_the_function_finds_by_closure_gets_its_gradient(gradient):
    k = double(0.7, requires_grad=True)
    w = wf.Parameter(double([[0.0, 1.0], [-1.0, 0.0]]))
    y = wf.odeint(
        lambda y, t: w @ y * wf.exp(k), double([1.0, 0.0]), [0.0, 0.5], gradient=gradient, **TIGHT
    )
    grads = y[-1, 0].backward()
    angle = 0.5 * np.exp(0.7)
    close(y[-1], [np.cos(angle), -np.sin(angle)], 1e-8)
    close(grads[k], -np.sin(angle) * angle, 1e-8)
    # Along w itself the exponent of the matrix grows: ⟨∂, w⟩ is the derivative by a factor.
    close((grads[w] * w.detach()).sum(), -np.sin(angle) * angle, 1e-8)


def test_complex_parameters(gradient):
    def f(re, im):
        k = wf.complex(re, im)
        y0 = wf.tensor([1.0 + 0.5j], dtype="complex128")
        y = wf.odeint(lambda y, t: k * y, y0, [0.0, 1.0], gradient=gradient, **TIGHT)
        return wf.real(y[-1]).sum()

    by_re, by_im = wf.grad(f, (0, 1))(double(-0.3), double(2.0))
    end = (1 + 0.5j) * np.exp(-0.3 + 2j)
    close(by_re, end.real, 1e-8)
    close(by_im, (1j * end).real, 1e-8)


def test_small_cotangents_are_as_precise_as_large_ones(gradient):
    k = double(2.0)

    def f(k, scale):
        return (
            scale * wf.odeint(lambda y, t: -k * y, double(1.0), [0.0, 1.0], gradient=gradient)[-1]
        )

    for scale in (1e-12, 1e12):
        np.testing.assert_allclose(wf.grad(f)(k, scale).item(), -np.exp(-2) * scale, rtol=1e-5)


def saved_bytes(gradient, rtol):
    p = double(P.numpy(), requires_grad=True)
    y = wf.odeint(predators, Y0, [0.0, 5.0], p, gradient=gradient, rtol=rtol, atol=rtol)
    assert y.requires_grad
    return wf.memory_stats().bytes


def test_the_adjoint_keeps_nothing_of_the_steps():
    wf.clear_tape()
    few, many = (saved_bytes("adjoint", rtol) for rtol in (1e-3, 1e-10))
    assert few == many < 500
    assert saved_bytes("discrete", 1e-10) > 5 * saved_bytes("discrete", 1e-3)


def test_the_adjoint_needs_no_more_memory_for_more_steps():
    peaks = []
    for frequency in (2.0, 25.0):
        w = double(frequency, requires_grad=True)
        y0 = wf.ones((2, 3000), dtype="float64")
        y = wf.odeint(
            lambda y, t, w=w: w * wf.stack([y[1], -y[0]]),
            y0,
            [0.0, 1.0],
            gradient="adjoint",
            rtol=1e-4,
        )
        tracemalloc.start()
        y[-1, 0].sum().backward()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.3 * peaks[0]


@pytest.mark.parametrize("device", ["cpu", "torch"])
def test_both_backends(gradient, device):
    k = wf.tensor([0.5, 2.0], dtype="float64", device=device, requires_grad=True)
    y0 = wf.ones(2, dtype="float64", device=device)
    y = wf.odeint(lambda y, t: -k * y, y0, [0.0, 1.0], gradient=gradient, **TIGHT)
    assert y.device == device
    got = y[-1].sum().backward()[k].tolist()
    np.testing.assert_allclose(got, -np.exp([-0.5, -2.0]), rtol=1e-8)


def test_under_a_checkpoint(gradient):
    k = double(0.5, requires_grad=True)

    def end(k):
        return wf.odeint(lambda y, t: -k * y, double(1.0), [0.0, 1.0], gradient=gradient)[-1]

    plain = end(k).backward()[k].item()
    assert wf.checkpoint(end, k).backward()[k].item() == plain


def test_a_branch_is_not_differentiated_wrongly():
    def pulse(y, t):
        return y * 3.0 if 0.4 < t < 0.6 else y * 1.0

    k = double(1.0)
    with pytest.raises(errors.ArgumentError, match=r"near t = 0\.\d+ f did other.*wf\.where"):
        wf.grad(lambda y: wf.odeint(pulse, y, [0.0, 1.0], gradient="adjoint")[-1])(k)
    slope = wf.grad(lambda y: wf.odeint(pulse, y, [0.0, 1.0])[-1])(k)
    close(slope, np.exp(1.4), 1e-3)


def test_an_equation_inside_a_differential_equation_and_the_other_way_round(gradient):
    options = {"rtol": 1e-8, "atol": 1e-10, "gradient": gradient}

    def through_a_root(k):  # z² = y, so that y' = −k√y
        def slope(y, t):
            return -k * wf.implicit.root(lambda z: z * z - y, double(1.0))

        return wf.odeint(slope, double(1.0), [0.0, 1.0], **options)[-1]

    if gradient == "discrete":
        close(wf.grad(through_a_root)(double(0.8)), -0.6, 1e-6)
    else:  # the solver makes other numbers of steps at other times
        with pytest.raises(errors.ArgumentError, match="or a solver in f"):
            wf.grad(through_a_root)(double(0.8))
    close(through_a_root(double(0.8)), 0.6**2, 1e-7)

    def shot(k):  # the slope at 0 with which y'' = −ky, y(0) = 0 arrives at y(1) = 1
        def miss(v):
            y0 = wf.stack([0 * v, v])
            return (
                wf.odeint(lambda y, t: wf.stack([y[1], -k * y[0]]), y0, [0.0, 1.0], **options)[
                    -1, 0
                ]
                - 1
            )

        return wf.implicit.root(miss, double(1.0))

    s = np.sqrt(2)
    close(shot(double(2.0)), s / np.sin(s), 1e-7)
    close(
        wf.grad(shot)(double(2.0)), (1 / np.sin(s) - s * np.cos(s) / np.sin(s) ** 2) / (2 * s), 1e-6
    )


def test_errors_say_when_and_what_to_do():
    one = double(1.0)
    with pytest.raises(errors.ConvergenceError, match=r"at t = 1 the step .*test_ode\.py"):
        wf.odeint(lambda y, t: y * y, one, [0.0, 2.0])
    with pytest.raises(errors.ConvergenceError, match="not finite at the start, t = 1"):
        wf.odeint(lambda y, t: y / (t - 1), one, [1.0, 2.0])
    with pytest.raises(errors.ConvergenceError, match="20 steps did not reach t = 100"):
        wf.odeint(lambda y, t: wf.cos(t) * y, one, [0.0, 100.0], max_steps=20)
    with pytest.raises(errors.ArgumentError, match="increase or decrease"):
        wf.odeint(lambda y, t: y, one, [0.0, 2.0, 1.0])
    with pytest.raises(errors.ArgumentError, match="vector of times"):
        wf.odeint(lambda y, t: y, one, 1.0)
    with pytest.raises(errors.ArgumentError, match="expected one of 'discrete', 'adjoint'"):
        wf.odeint(lambda y, t: y, one, [0.0, 1.0], gradient="exact")
    with pytest.raises(errors.ArgumentError, match="expected one of 'dopri5'"):
        wf.odeint(lambda y, t: y, one, [0.0, 1.0], method="euler")
    with pytest.raises(errors.ShapeError, match=r"f\(y, t\) has shape \(1,\)"):
        wf.odeint(lambda y, t: y.reshape((1,)), one, [0.0, 1.0])
    with pytest.raises(errors.BatchingError, match="ts must be the same"):
        wf.vmap(lambda t: wf.odeint(lambda y, s: y, one, wf.stack([0 * t, t])))(double([1.0, 2.0]))
