"""Values defined by equations: their derivatives against closed forms, in all modes and orders."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import brentq

import weft as wf
from weft import errors
from weft.core import op as rows

RNG = np.random.default_rng(3)


def double(x, **options):
    return wf.tensor(x, dtype="float64", **options)


def close(got, expected, rtol=1e-9):
    np.testing.assert_allclose(got.detach().numpy(), expected, rtol=rtol, atol=1e-12)


def forward(f):
    return lambda x: wf.jvp(f, (x,), (wf.ones_like(x),))[1]


MODES = {"forward": forward, "reverse": wf.grad}


def sqrt(a):
    return wf.implicit.root(lambda x: x * x - a, double(1.0))


@pytest.mark.parametrize("modes", list(product(MODES, repeat=3)), ids="-over-".join)
def test_the_square_root_to_third_order_in_every_mixture_of_modes(modes):
    third, second, first = modes
    one = MODES[first](sqrt)
    two = MODES[second](one)
    three = MODES[third](two)
    a = double(4.0)
    close(sqrt(a), 2.0)
    close(one(a), 0.25)
    close(two(a), -1 / 32)
    close(three(a), 3 / 8 * 4**-2.5)
    close(wf.vmap(three)(double([1.0, 4.0, 9.0])), 3 / 8 * np.array([1.0, 4.0, 9.0]) ** -2.5)


def test_elements_of_a_batch_that_need_different_numbers_of_steps():
    a = double([1.0, 1e-6, 1e6, 2.0])
    close(wf.vmap(sqrt)(a), np.sqrt(a.numpy()))
    close(wf.jacobian(wf.vmap(sqrt))(a), np.diag(0.5 / np.sqrt(a.numpy())))
    close(wf.grad(lambda a: wf.vmap(sqrt)(a).sum())(a), 0.5 / np.sqrt(a.numpy()))
    nested = wf.vmap(wf.vmap(wf.grad(sqrt)))(a.reshape((2, 2)))
    close(nested, 0.5 / np.sqrt(a.numpy()).reshape(2, 2))


def anomaly(mean, eccentricity):
    """Kepler's equation."""
    return wf.implicit.root(lambda x: x - eccentricity * wf.sin(x) - mean, mean)


def test_keplers_equation():
    mean, e = double(0.8), double(0.6)
    x = anomaly(mean, e).item()
    by_mean, by_e = wf.grad(anomaly, (0, 1))(mean, e)
    close(by_mean, 1 / (1 - 0.6 * np.cos(x)))
    close(by_e, np.sin(x) / (1 - 0.6 * np.cos(x)))
    means = double(np.linspace(0.1, 3.0, 5))
    x = wf.vmap(anomaly, (0, None))(means, e).numpy()
    slope = 1 / (1 - 0.6 * np.cos(x))
    close(wf.vmap(wf.grad(wf.grad(anomaly)), (0, None))(means, e), -0.6 * np.sin(x) * slope**3)
    mixed = wf.vmap(wf.grad(wf.grad(anomaly), 1), (0, None))(means, e)
    close(mixed, (np.cos(x) - 0.6 * np.sin(x) ** 2 * slope) * slope**2)


def test_fixed_points_of_the_cosine():
    x = wf.implicit.fixed_point(wf.cos, double(1.0))
    close(x, 0.7390851332151607, rtol=1e-11)

    def f(a):
        return wf.implicit.fixed_point(lambda x, a: wf.cos(a * x), double(1.0), a)

    a = double(0.9)
    x = f(a).item()
    s = np.sin(0.9 * x)
    close(wf.grad(f)(a), -s * x / (1 + 0.9 * s))
    wf.check_grads(f, (a,))


def test_a_fixed_point_of_a_linear_map_by_its_matrix_and_its_shift():
    a, b = 0.9 * np.linalg.qr(RNG.normal(size=(6, 6)))[0], RNG.normal(size=6)
    w = RNG.normal(size=6)
    inverse = np.linalg.inv(np.eye(6) - a)

    def loss(a, b):
        return wf.implicit.fixed_point(lambda x: a @ x + b, wf.zeros(6, dtype="float64")) @ double(
            w
        )

    by_a, by_b = wf.grad(loss, (0, 1))(double(a), double(b))
    close(by_b, inverse.T @ w, 1e-8)
    close(by_a, np.outer(inverse.T @ w, inverse @ b), 1e-8)


def test_the_iteration_is_accelerated():
    slow = wf.implicit.fixed_point(lambda x: 0.999 * x + 1, double(0.0), max_steps=10)
    close(slow, 1000.0)
    repelling = wf.implicit.fixed_point(lambda x: 4 - 2 * x, double(1.0), max_steps=10)
    close(repelling, 4 / 3)


X, Y = RNG.normal(size=(8, 3)), RNG.normal(size=8)


def ridge(c, x=None, y=None):
    x, y = double(X) if x is None else x, double(Y) if y is None else y

    def cost(w):
        return ((x @ w - y) ** 2).sum() + c * (w * w).sum()

    return wf.implicit.argmin(cost, wf.zeros(3, dtype="float64"))


def closed_ridge(c, x=None, y=None):
    x, y = double(X) if x is None else x, double(Y) if y is None else y
    return wf.linalg.solve(x.T @ x + c * wf.eye(3, dtype="float64"), x.T @ y)


def test_ridge_regression_by_its_regulariser_and_its_data():
    c, x, y = double(0.7), double(X), double(Y)
    close(ridge(c), closed_ridge(c).numpy())
    for k, arg in enumerate((c, x, y)):
        for mode in (wf.jacfwd, wf.jacrev, wf.jacobian):
            got, expected = (mode(f, k)(c, x, y) for f in (ridge, closed_ridge))
            close(got, expected.numpy())
        assert got.shape == (3, *arg.shape)


def test_ridge_regression_to_second_order_and_in_a_batch():
    w = double(RNG.normal(size=3))
    c = double(0.7)

    def loss(solution):
        return lambda c: (wf.sin(solution(c)) * w).sum()

    for derivative in (wf.hessian, lambda f: wf.grad(wf.grad(f)), lambda f: forward(wf.grad(f))):
        close(derivative(loss(ridge))(c), derivative(loss(closed_ridge))(c).numpy(), 1e-8)
    cs = double([0.1, 1.0, 10.0])
    close(wf.vmap(ridge)(cs), wf.vmap(closed_ridge)(cs).numpy())
    for f in (wf.grad, wf.hessian):
        got, expected = (wf.vmap(f(loss(s)))(cs) for s in (ridge, closed_ridge))
        close(got, expected.numpy(), 1e-8)


def test_what_the_function_finds_by_closure_gets_its_gradient():
    a = double([4.0, 9.0], requires_grad=True)
    b = wf.Parameter(double(2.0))
    x = wf.implicit.root(lambda x: x * x - wf.exp(b) * a, wf.ones(2, dtype="float64"))
    grads = x.sum().backward()
    close(grads[a], 0.5 * np.e / np.sqrt([4.0, 9.0]))
    close(grads[b], 0.5 * np.e * 5)
    with wf.GradientTape() as tape:
        c = tape.watch(double(4.0))
        y = wf.implicit.root(lambda x: x * x - c, double(1.0))
    close(tape.gradient(y, c), 0.25)
    d = wf.DualTensor(double(4.0), double(2.0))
    close(wf.implicit.root(lambda x: x * x - d, double(1.0)).tangent, 0.5)


def test_trees_of_unknowns_and_arguments():
    def f(x, p):
        return [x["u"] ** 2 - p["a"], x["v"] * x["u"].sum() - p["b"][0]]

    def loss(p):
        x = wf.implicit.root(f, {"u": wf.ones((2, 1), dtype="float64"), "v": double(1.0)}, p)
        assert x["u"].shape == (2, 1) and x["v"].shape == ()
        return x["v"] + x["u"][1, 0]

    p = {"a": double([[4.0], [9.0]]), "b": (double(10.0),)}
    close(loss(p), 5.0)
    got = wf.grad(loss)(p)
    close(got["b"][0], 0.2)
    close(got["a"], [[-10 / 25 / 4], [-10 / 25 / 6 + 1 / 6]])
    single = wf.implicit.root(lambda x: x * x - 2, wf.tensor(1.0))
    assert single.dtype == wf.float32 and abs(single.item() - 2**0.5) < 1e-6
    assert wf.implicit.root(lambda x: 2 * x - 1, 3).item() == 0.5


def test_complex_unknowns_also_where_the_function_is_not_holomorphic():
    z = wf.tensor(3 + 4j, dtype="complex128")

    def holomorphic(z):
        return wf.implicit.root(lambda x: x * x - z, wf.tensor(1 + 0j, dtype="complex128"))

    value, tangent = wf.jvp(holomorphic, (z,), (wf.ones_like(z),))
    close(value, 2 + 1j)
    close(tangent, 0.5 / (2 + 1j))

    def other(z):
        x = wf.implicit.root(lambda x: x * 3 + wf.conj(x) - z, wf.zeros_like(z))
        return (wf.real(x) * wf.imag(x)).sum()

    wf.check_grads(lambda re, im: other(wf.complex(re, im)), (double(1.0), double(2.0)), order=1)


def test_an_equation_inside_an_equation():
    def cube_root(a):
        return wf.implicit.root(lambda z: z**3 - a, double(1.0))

    def f(a):  # y^(4/3) = a
        return wf.implicit.root(lambda y: y * cube_root(y) - a, double(1.0))

    a = double(5.0)
    close(f(a), 5**0.75)
    close(wf.grad(f)(a), 0.75 * 5**-0.25)
    close(wf.grad(wf.grad(f))(a), -0.25 * 0.75 * 5**-1.25)
    close(wf.vmap(wf.grad(f))(double([5.0, 2.0])), 0.75 * np.array([5.0, 2.0]) ** -0.25)


def test_a_solver_of_ones_own():
    def bracketed(f, _x0):
        return double(brentq(lambda x: f(double(x)).item(), 0.0, 10.0, xtol=1e-14))

    def f(a):
        return wf.implicit.root(lambda x, a: x * x - a, double(1.0), a, solver=bracketed, tol=1e-10)

    close(wf.grad(wf.grad(f))(double(4.0)), -1 / 32)

    def cost(w, c):
        return ((double(X) @ w - double(Y)) ** 2).sum() + c * (w * w).sum()

    def minimized(f, x0):
        return wf.optimize.minimize(f, x0, tol=1e-12).x

    def g(c):
        return wf.implicit.argmin(cost, double([0.0] * 3), c, solver=minimized).sum()

    def expected(c):
        return closed_ridge(c).sum()

    close(wf.grad(g)(double(0.7)), wf.grad(expected)(double(0.7)).numpy(), 1e-5)
    close(forward(g)(double(0.7)), wf.grad(expected)(double(0.7)).numpy(), 1e-5)
    with pytest.raises(errors.ConvergenceError, match="residual is 3, the tolerance 1e-06"):
        wf.implicit.root(lambda x: x * x - 4, double(1.0), solver=lambda f, x: x, tol=1e-6)


@pytest.mark.usefixtures("no_graphs")
def test_nothing_of_the_solver_is_kept():
    saved = []
    for start in (2.0, 1e6):
        a = double([4.0], requires_grad=True)
        x = wf.implicit.root(lambda x, a=a: x * x - a, double([start]))
        saved.append((len(wf.graph_of(x)), wf.memory_stats().bytes))
        del x
    assert saved[0] == saved[1]
    assert saved[0][1] < 100


def test_repeated_calls_leave_nothing_behind():
    before = len(rows.TABLE)
    derivative = wf.jacobian(wf.vmap(sqrt))
    for _ in range(3):
        derivative(double([3.0, 2.0]))
    from weft.transform.jacobian.jacobians import _plans_of

    (plans,) = _plans_of(derivative.__wrapped__).values()
    assert len(plans) == 1 and len(rows.TABLE) == before


@pytest.mark.parametrize("device", ["cpu", "torch"])
def test_both_backends(device):
    a = wf.tensor([4.0, 9.0], dtype="float64", device=device, requires_grad=True)
    x = wf.implicit.root(lambda x: x * x - a, wf.ones(2, dtype="float64", device=device))
    assert x.device == device
    np.testing.assert_allclose(x.sum().backward()[a].tolist(), [0.25, 1 / 6], rtol=1e-12)
    y = wf.checkpoint(lambda a: wf.implicit.fixed_point(lambda x: wf.cos(x * a / 10), a), a)
    grads = y.sum().backward()[a].tolist()
    free = wf.implicit.fixed_point(lambda x: wf.cos(x * a / 10), a).sum().backward()[a].tolist()
    assert grads == free
    m = wf.implicit.argmin(lambda x: ((x - a) ** 2).sum() + (x**4).sum(), a)
    np.testing.assert_allclose(
        m.sum().backward()[a].tolist(), 2 / (2 + 12 * np.array(m.tolist()) ** 2), rtol=1e-9
    )


def test_minima_of_functions_that_are_not_convex():
    def valley(x, a):
        return (a - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2

    x = wf.implicit.argmin(valley, double([-1.2, 1.0]), double(1.0))
    close(x, [1.0, 1.0])
    close(
        wf.jacrev(lambda a: wf.implicit.argmin(valley, double([-1.2, 1.0]), a))(double(1.0)), [1, 2]
    )
    double_well = wf.implicit.argmin(lambda x: (x**2 - 1) ** 2, double(0.1))
    close(double_well, 1.0)
    lost_in_rounding = wf.implicit.argmin(lambda x: wf.log(wf.cosh(x - 1)), double(5.0))
    close(lost_in_rounding, 1.0)


def test_steps_that_would_leave_the_domain_are_shortened():
    close(wf.implicit.root(lambda x: wf.log(x), double(5.0)), 1.0)
    close(wf.implicit.root(lambda x: wf.atan(x), double(3.0)), 0.0)
    close(wf.implicit.root(lambda x: (x + 1) - 1, double(0.3)), 0.0)
    assert wf.implicit.root(lambda x: 2 * x, wf.zeros(0)).shape == (0,)


def test_the_start_has_no_derivative():
    assert wf.grad(lambda x0: wf.implicit.root(lambda x: x * x - 4, x0))(double(1.0)).item() == 0


def test_errors_say_what_to_do():
    with pytest.raises(errors.ConvergenceError, match=r"residual is 1, .*test_implicit\.py"):
        wf.implicit.root(lambda x: x * x + 1, double(1.0))
    with pytest.raises(errors.ConvergenceError, match="1 of 2 problems"):
        wf.vmap(lambda a: wf.implicit.root(lambda x: x * x + a, double(1.0)))(double([1.0, -1.0]))
    with pytest.raises(errors.ConvergenceError, match="more max_steps"):
        wf.implicit.fixed_point(lambda x: 2 * x + wf.sin(50 * x), double(1.0), max_steps=5)
    with pytest.raises(errors.ConvergenceError):
        wf.implicit.argmin(lambda x: x, double(1.0))
    with pytest.raises(errors.ConvergenceError, match="no minimum, a saddle or a maximum"):
        wf.implicit.argmin(lambda x: (x**2 - 1) ** 2, double(0.0))
    with pytest.raises(errors.ShapeError, match="2 numbers for 1 unknowns"):
        wf.implicit.root(lambda x: wf.stack([x, x]), double(1.0))
    with pytest.raises(errors.NonScalarBackward, match="one number"):
        wf.implicit.argmin(lambda x: x, double([1.0, 2.0]))
    with pytest.raises(errors.ShapeError, match=r"g\(x\) has shape"):
        wf.implicit.fixed_point(lambda x: wf.stack([x, x]), double(1.0))


@pytest.mark.parametrize("mode", MODES)
def test_a_singular_problem_is_named(mode):
    def f(a):
        return wf.implicit.root(lambda x: (x - a) ** 2, double(2.0))

    with pytest.raises(errors.LinAlgError, match=r"implicit\.root \(called at test_implicit\.py"):
        MODES[mode](f)(double(2.0))
