"""Every method of `minimize` gets its derivatives, every result the form of the start."""

import numpy as np
import pytest
import scipy.optimize
from scipy.sparse import issparse

import weft as wf

from .common import EPS, METHODS, NO_GRADIENT, Seen, blind, reaches, rosenbrock, valley

# Derivatives for every method of `minimize`


@pytest.mark.parametrize("method", METHODS)
def test_each_method_gets_its_derivatives(method, monkeypatch):
    seen = Seen(monkeypatch, "minimize")
    x = np.array([0.9, 0.75, 0.6])
    limit = "maxfun" if method == "TNC" else "maxiter"
    wf.optimize.minimize(rosenbrock, x, method=method, options={limit: 20})
    second = METHODS[method]
    assert {n for n in ("hess", "hessp") if seen[n]} == ({second} if second else set())
    if method in NO_GRADIENT:
        assert seen["jac"] is None
        assert seen.f(x) == pytest.approx(scipy.optimize.rosen(x), rel=10 * EPS)
        return
    assert seen["jac"] is True
    value, slope = seen.f(x)
    assert value == pytest.approx(scipy.optimize.rosen(x), rel=10 * EPS)
    np.testing.assert_allclose(slope, scipy.optimize.rosen_der(x), rtol=100 * EPS)
    v = np.array([0.3, -1.0, 2.0])
    if second == "hess":
        np.testing.assert_allclose(
            seen["hess"](x), scipy.optimize.rosen_hess(x), rtol=100 * EPS, atol=1e-12
        )
    elif second == "hessp":
        expected = scipy.optimize.rosen_hess_prod(x, v)
        np.testing.assert_allclose(seen["hessp"](x, v), expected, rtol=100 * EPS, atol=1e-11)


@pytest.mark.parametrize("method", METHODS)
def test_each_method_finds_the_minimum(method):
    # COBYLA's own tolerance is 1e-4; that of the other methods without gradients is as small.
    found = wf.optimize.minimize(valley, [0.5, 3.0, 1.0], method=method, tol=1e-8)
    assert found.success
    np.testing.assert_allclose(found.x.numpy(), 2.0, atol=1e-4)
    assert found.x.dtype == wf.float64


def test_a_method_of_the_user_gets_everything():
    def newton(f, x0, args, jac, hess, hessp, bounds, constraints, callback, steps):
        x = x0
        for _ in range(steps):
            step = np.linalg.solve(hess(x), -jac(x))
            np.testing.assert_allclose(hessp(x, step), -jac(x), atol=1e-9 * abs(jac(x)).max())
            x = x + step
        return scipy.optimize.OptimizeResult(x=x, fun=f(x))

    found = wf.optimize.minimize(valley, [0.5, 3.0], method=newton, options={"steps": 8})
    np.testing.assert_allclose(found.x.numpy(), 2.0, rtol=1e-12)


@pytest.mark.parametrize("n", [50, 250])
def test_a_large_sparse_hessian_is_sparse(n, monkeypatch):
    seen = Seen(monkeypatch, "minimize")
    x = np.linspace(0.5, 1.5, n)
    wf.optimize.minimize(rosenbrock, x, method="trust-constr", options={"maxiter": 2})
    matrix = seen["hess"](x)
    assert issparse(matrix) == (n > 200)
    dense = matrix.toarray() if issparse(matrix) else matrix
    np.testing.assert_allclose(dense, scipy.optimize.rosen_hess(x), rtol=1e-12, atol=1e-10)


def test_a_large_full_hessian_is_dense(monkeypatch):
    seen = Seen(monkeypatch, "minimize")
    x = np.linspace(-1.0, 1.0, 220)
    wf.optimize.minimize(
        lambda x: (x.sum() ** 2) + (x**2).sum(), x, method="trust-constr", options={"maxiter": 1}
    )
    np.testing.assert_allclose(seen["hess"](x), 2.0 + 2.0 * np.eye(220), atol=1e-12)


def test_products_at_one_place_share_the_gradient(monkeypatch):
    calls = []

    def counted(x):
        calls.append(1)
        return rosenbrock(x)

    seen = Seen(monkeypatch, "minimize")
    wf.optimize.minimize(counted, [0.9, 0.75], method="trust-ncg", options={"maxiter": 1})
    x, before = np.array([0.3, 0.4]), len(calls)
    for v in np.eye(2):
        np.testing.assert_allclose(
            seen["hessp"](x, v), scipy.optimize.rosen_hess_prod(x, v), rtol=100 * EPS
        )
    assert len(calls) == before + 1


# What the user gives is used


def valley_slope(x, centre=2.0):
    y = x - centre
    return 2 * y + 4 * y**3 + 2 * y.sum()


def valley_hessian(x, centre=2.0):
    return wf.diag(2 + 12 * (x - centre) ** 2) + 2.0


@pytest.mark.parametrize("method", ["BFGS", "L-BFGS-B", "SLSQP", "TNC", "CG"])
@pytest.mark.parametrize("jac", [valley_slope, "3-point", "2-point"])
def test_a_given_gradient_is_used(method, jac):
    options = {"tol": 1e-6} if method == "TNC" else {}
    found = wf.optimize.minimize(blind(valley), [0.5, 3.0], method=method, jac=jac, **options)
    reaches(found, atol=1e-3)
    blinded = wf.optimize.minimize(blind(valley), [0.5, 3.0], method=method)
    assert blinded.x.tolist() == [0.5, 3.0]


def test_a_given_gradient_may_be_returned_beside_the_value():
    def both(x, centre):
        return valley(x.detach(), centre), valley_slope(x, centre)

    reaches(wf.optimize.minimize(both, [0.5, 3.0], (7.0,), jac=True), 7.0)


@pytest.mark.parametrize("method", ["Newton-CG", "trust-ncg", "trust-krylov", "trust-exact"])
def test_a_given_hessian_is_used(method):
    used = []

    def hess(x, centre):
        used.append(x)
        return valley_hessian(x, centre)

    found = wf.optimize.minimize(
        blind(valley), [0.5, 3.0], (2.0,), method=method, jac=valley_slope, hess=hess
    )
    reaches(found)
    assert used and all(isinstance(x, wf.Tensor) for x in used)


@pytest.mark.parametrize("method", ["Newton-CG", "trust-ncg", "trust-krylov", "trust-constr"])
def test_a_given_product_is_used(method):
    used = []

    def hessp(x, v, centre):
        used.append(v)
        return valley_hessian(x, centre) @ v

    found = wf.optimize.minimize(
        blind(valley), [0.5, 3.0], (2.0,), method=method, jac=valley_slope, hessp=hessp
    )
    reaches(found, atol=1e-4)
    assert used and all(isinstance(v, wf.Tensor) for v in used)


@pytest.mark.parametrize("hess", ["2-point", scipy.optimize.BFGS(), scipy.optimize.SR1()])
def test_quasi_newton_updates_are_passed_on(hess, monkeypatch):
    seen = Seen(monkeypatch, "minimize")
    found = wf.optimize.minimize(valley, [0.5, 3.0], method="trust-constr", hess=hess)
    assert seen["hess"] is hess
    reaches(found, atol=1e-4)


def test_derivatives_of_a_tree_may_have_its_form():
    start = {"a": wf.zeros(2, dtype="float64"), "b": wf.tensor(1.0, dtype="float64")}

    def f(p):
        return ((p["a"] - 1) ** 2).sum() + (p["b"] - p["a"][0]) ** 2

    found = wf.optimize.minimize(f, start, method="trust-exact", jac=wf.grad(f), hess=wf.hessian(f))
    np.testing.assert_allclose(found.x["a"].numpy(), 1.0, rtol=1e-8)
    assert found.x["b"].item() == pytest.approx(1.0, rel=1e-8)

    def residuals(p):
        return wf.concat([p["a"] - 1, wf.reshape(p["b"] - p["a"][0], (1,))])

    found = wf.optimize.least_squares(residuals, start, jac=wf.jacobian(residuals))
    assert found.x["b"].item() == pytest.approx(1.0, rel=1e-8)


# The form of the start


@pytest.mark.parametrize(
    "x0",
    [[0, 1], (0.1, 0.1), [[0, 1], [2, 3]], 0.1, 1, [0.1], list(np.ones(2))],
    ids=str,
)
def test_numbers_are_one_float64_tensor(x0):
    seen = []

    def f(x):
        seen.append(x.detach().tolist())
        return (x**2).sum()

    found = wf.optimize.minimize(f, x0)
    np.testing.assert_array_equal(seen[0], np.asarray(x0, np.float64))
    assert found.x.shape == np.shape(x0) and found.x.dtype == wf.float64


def test_a_tree_keeps_its_form():
    start = {"w": wf.zeros((2, 3)), "more": [wf.ones(2, dtype="float64"), 0.1]}
    seen = []

    def f(p):
        seen.append(p)
        w, (v, s) = p["w"], p["more"]
        return ((w - 1) ** 2).sum() + ((v - s) ** 2).sum() + (s - 0.25) ** 2

    found = wf.optimize.minimize(f, start)
    assert seen[0]["w"].dtype == wf.float64 and seen[0]["w"].shape == (2, 3)
    assert found.x["w"].dtype == wf.float32 and found.x["w"].shape == (2, 3)
    v, s = found.x["more"]
    assert v.dtype == s.dtype == wf.float64
    np.testing.assert_allclose(found.x["w"].numpy(), 1.0, atol=1e-5)
    np.testing.assert_allclose(v.numpy(), 0.25, atol=1e-5)


def test_a_parameter_as_start_is_left_alone():
    p = wf.Parameter(wf.tensor([1.0, 5.0]))
    found = wf.optimize.minimize(valley, p)
    assert p.tolist() == [1.0, 5.0] and p.grad is None
    assert not found.x.requires_grad
    reaches(found)


def test_float32_is_solved_in_double_precision():
    found = wf.optimize.minimize(
        lambda x: ((x - 1.0) ** 4).sum(), wf.tensor([3.0, 2.0]), method="trust-exact", tol=1e-15
    )
    assert found.x.dtype == wf.float32
    assert found.fun < np.finfo(np.float32).eps ** 2  # single precision stalls far above
    assert found.jac.dtype == np.float64


@pytest.mark.parametrize("method", ["BFGS", "trust-ncg", "trust-exact", "Nelder-Mead"])
def test_a_start_on_torch(method):
    centre = wf.tensor([2.0, 2.0], dtype="float64", device="torch")
    seen = set()

    def f(x):
        seen.add((x.device, str(x.dtype)))
        return ((x - centre) ** 2).sum()

    start = wf.tensor([1.0, 5.0], device="torch")
    found = wf.optimize.minimize(f, start, method=method, tol=1e-8)
    assert found.x.device == "torch" and found.x.dtype == wf.float32
    assert seen == {("torch", "float64")}
    np.testing.assert_allclose(found.x.to("cpu").numpy(), 2.0, rtol=1e-6)


def test_the_leaves_may_be_on_different_devices():
    start = {"a": wf.zeros(2, device="torch"), "b": wf.zeros(2)}
    found = wf.optimize.least_squares(lambda p: (p["a"] - 1.0, p["b"] + p["a"].to("cpu")), start)
    assert (found.x["a"].device, found.x["b"].device) == ("torch", "cpu")
    np.testing.assert_allclose(found.x["b"].numpy(), -1.0)


def test_x_is_not_overwritten_later():
    held = []

    def f(x):
        held.append((x.detach(), x.detach().tolist()))
        return valley(x)

    for method in ("L-BFGS-B", "Nelder-Mead", "TNC"):
        wf.optimize.minimize(f, [0.5, 3.0], method=method, callback=lambda x: f(x))
    assert all(x.tolist() == then for x, then in held) and len(held) > 20


def test_further_arguments():
    reaches(wf.optimize.minimize(valley, [1.0, 2.0], args=(5.0,)), 5.0)
    reaches(wf.optimize.minimize(valley, [1.0, 2.0], args=5.0), 5.0)  # as SciPy takes it
    reaches(wf.optimize.least_squares(lambda x, c: x - c, [1.0], (wf.tensor(5.0),)), 5.0)
    reaches(wf.optimize.root(lambda x, c: x - c, [1.0], 5.0), 5.0)


def test_parameters_captured_by_the_function_are_constants():
    scale = wf.Parameter(wf.tensor(3.0, dtype="float64"))
    found = wf.optimize.least_squares(lambda x: scale * x - 6.0, np.zeros(250))
    assert issparse(found.jac) and not found.x.requires_grad
    reaches(found)
    for method in ("BFGS", "trust-ncg", "trust-exact"):
        reaches(
            wf.optimize.minimize(lambda x: ((scale * x - 6.0) ** 2).sum(), [0.0], method=method)
        )
