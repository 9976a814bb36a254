"""`least_squares`, `root` and `curve_fit` beside SciPy with hand-made derivatives."""

import numpy as np
import pytest
import scipy.optimize
from scipy.sparse import issparse

import weft as wf

from .common import EPS, Seen, blind

# least_squares

T = np.linspace(0.0, 4.0, 25)
OUTLIERS = 2.0 * np.exp(-1.3 * T) + 0.5 + np.where(np.arange(25) % 8 == 3, 0.8, 0.0)


def decay(x, t=T, y=OUTLIERS):
    t, y = wf.asarray(t), wf.asarray(y)
    return x[0] * wf.exp(-x[1] * t) + x[2] - y


def decay_by_hand(x):
    return x[0] * np.exp(-x[1] * T) + x[2] - OUTLIERS


def decay_slopes_by_hand(x):
    e = np.exp(-x[1] * T)
    return np.stack([e, -x[0] * T * e, np.ones_like(T)], axis=1)


@pytest.mark.parametrize("loss", ["linear", "soft_l1", "huber", "cauchy", "arctan"])
@pytest.mark.parametrize("method", ["trf", "dogbox"])
def test_losses(loss, method):
    options = {"loss": loss, "f_scale": 0.1, "method": method, "xtol": 1e-12, "ftol": 1e-12}
    found = wf.optimize.least_squares(decay, [1.0, 1.0, 0.0], **options)
    expected = scipy.optimize.least_squares(
        decay_by_hand, [1.0, 1.0, 0.0], jac=decay_slopes_by_hand, **options
    )
    np.testing.assert_allclose(found.x.numpy(), expected.x, rtol=1e-6)
    assert found.nfev == expected.nfev
    if loss == "cauchy":  # the outliers hardly count
        np.testing.assert_allclose(found.x.numpy(), [2.0, 1.3, 0.5], atol=0.05)


@pytest.mark.parametrize("method", ["trf", "dogbox", "lm"])
@pytest.mark.parametrize("x_scale", [None, "jac", 2.0, [1.0, 2.0, 3.0], wf.tensor([1.0, 2.0, 3.0])])
def test_scales(method, x_scale):
    found = wf.optimize.least_squares(decay, [1.0, 1.0, 0.0], method=method, x_scale=x_scale)
    expected = scipy.optimize.least_squares(
        decay_by_hand, [1.0, 1.0, 0.0], jac=decay_slopes_by_hand, xtol=1e-12, ftol=1e-12
    )
    np.testing.assert_allclose(found.x.numpy(), expected.x, rtol=1e-4)
    np.testing.assert_allclose(
        found.jac, decay_slopes_by_hand(found.x.numpy()), rtol=100 * EPS, atol=EPS
    )


def tridiagonal(x):
    zero = wf.zeros(1, dtype="float64", device=x.device)
    left, right = wf.concat([zero, x[:-1]]), wf.concat([x[1:], zero])
    return (3 - 2 * x) * x - left - 2 * right + 1


@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize(
    "method, options, sparse",
    [
        ("trf", {}, True),
        ("dogbox", {}, True),
        ("trf", {"x_scale": "jac"}, True),
        ("trf", {"loss": "soft_l1"}, True),
        ("trf", {"tr_solver": "exact"}, False),
        ("lm", {}, False),
    ],
)
def test_many_unknowns_have_a_sparse_jacobian(method, options, sparse, device):
    start = wf.full(220, -1.0, dtype="float64", device=device)
    found = wf.optimize.least_squares(tridiagonal, start, method=method, **options)
    assert issparse(found.jac) == sparse and found.x.device == device
    assert np.abs(tridiagonal(found.x.to("cpu")).numpy()).max() < 1e-6
    if sparse:
        assert found.jac.nnz == 3 * 220 - 2


def test_a_given_jacobian_is_used():
    for jac in (decay_slopes, "3-point"):
        found = wf.optimize.least_squares(blind(decay), [1.0, 1.0, 0.0], jac=jac)
        exact = wf.optimize.least_squares(decay, [1.0, 1.0, 0.0])
        np.testing.assert_allclose(found.x.numpy(), exact.x.numpy(), rtol=1e-5)


def decay_slopes(x):
    t = wf.asarray(T)
    e = wf.exp(-x[1] * t)
    return wf.stack([e, -x[0] * t * e, wf.ones_like(t)], axis=1)


# root


@pytest.mark.parametrize(
    "method",
    "hybr lm broyden1 broyden2 anderson linearmixing diagbroyden excitingmixing krylov "
    "df-sane".split(),
)
def test_each_method_of_root(method, monkeypatch):
    seen = Seen(monkeypatch, "root")

    def f(x):
        return 1.0 - x - 0.2 * wf.sin(x[::-1])

    found = wf.optimize.root(f, [0.5, 1.5, 1.0], method=method)
    assert found.success
    assert np.abs(f(found.x).numpy()).max() < 1e-5
    if method not in ("hybr", "lm"):
        assert seen["jac"] is None
        return
    x = np.array([0.3, 0.1, -0.4])
    by_hand = -np.eye(3) - 0.2 * np.diag(np.cos(x[::-1]))[:, ::-1]
    np.testing.assert_allclose(seen["jac"](x), by_hand, rtol=10 * EPS)


@pytest.mark.parametrize("method", ["hybr", "lm"])
def test_a_given_jacobian_of_root_is_used(method):
    def f(x):
        return x.detach() ** 3 - 8.0

    found = wf.optimize.root(f, [3.0, 4.0], method=method, jac=lambda x: wf.diag(3 * x**2))
    np.testing.assert_allclose(found.x.numpy(), 2.0, rtol=1e-8)
    found = wf.optimize.root(
        lambda x: (f(x), wf.diag(3 * x**2)), [3.0, 4.0], method=method, jac=True
    )
    np.testing.assert_allclose(found.x.numpy(), 2.0, rtol=1e-8)


# curve_fit against the closed form of linear regression

X = np.linspace(0.0, 3.0, 12)
NOISE = np.array([0.3, -0.1, 0.2, -0.4, 0.1, 0.25, -0.3, 0.05, -0.2, 0.15, 0.1, -0.15])
Y = 1.5 * X - 0.7 + NOISE
A = np.stack([X, np.ones_like(X)], axis=1)


def line(x, slope, offset):
    return slope * x + offset


def regression(covariance):
    """Generalised least squares: (AᵀΣ⁻¹A)⁻¹AᵀΣ⁻¹y, and (AᵀΣ⁻¹A)⁻¹."""
    weight = np.linalg.inv(covariance)
    cov = np.linalg.inv(A.T @ weight @ A)
    return cov @ A.T @ weight @ Y, cov


SIGMA = np.linspace(0.1, 0.4, 12)
CORRELATED = np.diag(SIGMA**2) + 0.02 * np.exp(-np.abs(X[:, None] - X))


@pytest.mark.parametrize("method", ["lm", "trf", "dogbox"])
@pytest.mark.parametrize("sigma", [None, SIGMA, CORRELATED, SIGMA.tolist()], ids="1scl")
@pytest.mark.parametrize("absolute", [False, True])
def test_curve_fit_is_linear_regression(method, sigma, absolute):
    covariance = np.eye(12) if sigma is None else np.asarray(sigma)
    covariance = covariance if covariance.ndim == 2 else np.diag(covariance**2)
    best, cov = regression(covariance)
    if not absolute:
        residual = Y - A @ best
        cov = cov * (residual @ np.linalg.solve(covariance, residual)) / 10
    found, spread = wf.optimize.curve_fit(
        line, wf.asarray(X), wf.asarray(Y), [1.0, 1.0], sigma, absolute, method=method
    )
    assert found.dtype == spread.dtype == wf.float64
    np.testing.assert_allclose(found.numpy(), best, rtol=1e-8)
    np.testing.assert_allclose(spread.numpy(), cov, rtol=1e-8)


@pytest.mark.parametrize("given", [list, tuple, np.asarray, wf.asarray], ids=lambda g: g.__name__)
def test_curve_fit_reads_data_in_double_precision(given):
    found, _ = wf.optimize.curve_fit(line, given(X), given(1.1 * X + 0.3), [1.0, 1.0])
    np.testing.assert_allclose(found.numpy(), [1.1, 0.3], rtol=1e-12)


def test_curve_fit_on_torch():
    x = wf.tensor(X, device="torch")
    found, _ = wf.optimize.curve_fit(line, x, wf.tensor(Y, device="torch"), [1.0, 1.0])
    np.testing.assert_allclose(found.numpy(), regression(np.eye(12))[0], rtol=1e-8)


def test_curve_fit_with_several_predictors():
    z = np.cos(X)
    y = 2.0 * X + 3.0 * z

    def by_rows(x, a, b):
        return a * x[0] + b * x[1]

    def by_name(x, a, b):
        return a * x["first"] + b * x["second"]

    for f, x in (
        (by_rows, (X, z)),
        (by_rows, wf.tensor(np.stack([X, z]))),
        (by_name, {"first": X, "second": wf.asarray(z)}),
    ):
        found, _ = wf.optimize.curve_fit(f, x, y, [1.0, 1.0])
        np.testing.assert_allclose(found.numpy(), [2.0, 3.0], rtol=1e-10)


def test_curve_fit_leaves_integers_alone():
    group = np.array([0, 1, 2] * 4)

    def means(group, *levels):
        return wf.stack(levels)[group]

    found, _ = wf.optimize.curve_fit(means, wf.asarray(group), Y, [0.0, 0.0, 0.0])
    np.testing.assert_allclose(found.numpy(), [Y[k::3].mean() for k in range(3)], rtol=1e-10)


def test_curve_fit_with_bounds_and_more():
    found, *_, flag = wf.optimize.curve_fit(
        line, X, Y, [0.5, 0.0], bounds=(0.0, [1.0, 5.0]), full_output=True
    )
    assert found[0].item() == pytest.approx(1.0) and flag in (1, 2, 3, 4)
    used = []

    def slopes(x, slope, offset):
        used.append(slope)
        return wf.stack([x, wf.ones_like(x)], axis=1)

    found, _ = wf.optimize.curve_fit(
        lambda x, a, b: line(x, a, b).detach(), X, Y, [1.0, 1.0], jac=slopes
    )
    np.testing.assert_allclose(found.numpy(), regression(np.eye(12))[0], rtol=1e-8)
    assert used
