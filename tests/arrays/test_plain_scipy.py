"""Plain SciPy with Weft's gradients, and its functions on tensors that nobody differentiates."""

import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.optimize

import weft as wf
from weft import errors

START = np.array([1.2, 0.7, -0.5])
CURVED = ["Newton-CG", "dogleg", "trust-ncg", "trust-exact", "trust-krylov", "trust-constr"]
METHODS = ["CG", "BFGS", "L-BFGS-B", "TNC", "SLSQP", *CURVED]


def loss(x):
    return 10 * ((x[1:] - x[:-1] ** 2) ** 2).sum() + ((1 - x[:-1]) ** 2).sum() + 0.1 * x[2] ** 4


def convex(x):
    return ((x - wf.asarray([1.0, 2.0, 3.0], dtype=float)) ** 2).sum() + (x**4).sum()


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("method", METHODS)
def test_minimize(method, together):
    f = convex if method == "dogleg" else loss
    options = {"hess": wf.hessian(f)} if method in CURVED else {}
    given = (wf.value_and_grad(f), True) if together else (f, wf.grad(f))
    found = scipy.optimize.minimize(given[0], START, jac=given[1], method=method, **options)
    best = scipy.optimize.minimize(
        lambda x: f(wf.asarray(x)).item(), START, method="Powell", tol=1e-12
    )
    assert found.fun == pytest.approx(best.fun, abs=1e-6)
    assert type(found.x) is np.ndarray and found.x.dtype == np.float64
    assert not isinstance(found.fun, wf.Tensor) and not isinstance(found.jac, wf.Tensor)


def test_constraints():
    total = {
        "type": "eq",
        "fun": lambda x: wf.asarray(x).sum() - 1,
        "jac": wf.grad(lambda x: x.sum()),
    }
    both = wf.value_and_grad(convex)
    one = scipy.optimize.minimize(both, START, jac=True, method="SLSQP", constraints=total)
    within = scipy.optimize.NonlinearConstraint(
        lambda x: wf.asarray(x).sum(),
        1,
        1,
        wf.grad(lambda x: x.sum()),
        lambda x, v: np.zeros((3, 3)),
    )
    two = scipy.optimize.minimize(both, START, jac=True, method="trust-constr", constraints=within)
    assert one.x.sum() == pytest.approx(1) and one.x == pytest.approx(two.x, abs=1e-4)


@pytest.mark.parametrize("method", ["trf", "dogbox", "lm"])
def test_least_squares(method):
    def residuals(x):
        x = wf.asarray(x)
        return wf.stack([x[0] - 1, 10 * (x[1] - x[0] ** 2), x[2]])

    found = scipy.optimize.least_squares(
        residuals, START, jac=wf.jacobian(residuals), method=method
    )
    assert found.x == pytest.approx([1, 1, 0], abs=1e-6) and type(found.x) is np.ndarray
    root = scipy.optimize.root(residuals, START, jac=wf.jacobian(residuals))
    assert root.x == pytest.approx([1, 1, 0], abs=1e-6)


CONVERSIONS = [
    *(np.atleast_1d, np.atleast_2d, np.atleast_3d, np.copy, np.asarray, np.array),
    *(np.ascontiguousarray, np.asfortranarray, np.asanyarray, np.asarray_chkfinite, np.require),
]


@pytest.mark.parametrize("convert", CONVERSIONS, ids=lambda f: f.__name__)
def test_conversions_of_an_untracked_tensor_are_arrays(convert):
    for x in (START, START[0]):
        got, want = convert(wf.tensor(x)), convert(x)
        assert type(got) is np.ndarray and got.shape == want.shape and got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
    assert isinstance(np.sin(wf.tensor(START)), wf.Tensor)  # functions give tensors

    def kept(x):
        return (wf.asarray(convert(x)) ** 2).sum()

    if convert in (np.atleast_1d, np.atleast_2d, np.atleast_3d, np.copy):
        for g in (wf.grad(kept), wf.jacobian(kept), wf.jacfwd(kept)):
            np.testing.assert_allclose(g(wf.tensor(START)).numpy(), 2 * START)
        assert wf.vmap(lambda x: convert(x).sum())(wf.tensor(START)).shape == (3,)
        assert wf.compile(kept)(wf.tensor(START)).item() == pytest.approx((START**2).sum())
    else:
        for g in (wf.grad(kept), wf.jacobian(kept), wf.jacfwd(kept), wf.vmap(kept)):
            with pytest.raises(errors.InterchangeError):
                g(wf.tensor(START))


PLAIN = """
import numpy as np, scipy.interpolate, scipy.linalg, scipy.signal, scipy.integrate, weft as wf
u = wf.tensor(np.array([1.0, 2.0, 3.0, 5.0])); v = u.numpy()
s = wf.asarray(np.sin(np.arange(300.0))); t = s.numpy()
column = lambda a: a.reshape((4, 1))
sos = scipy.signal.butter(2, 0.2, output="sos")
pairs = {
    "toeplitz": [scipy.linalg.toeplitz(x) for x in (u, v)],
    "welch": [scipy.signal.welch(x)[1] for x in (s, t)],
    "csd": [scipy.signal.csd(x, x)[1] for x in (s, t)],
    "sosfilt": [scipy.signal.sosfilt(sos, x) for x in (s, t)],
    "filtfilt": [scipy.signal.filtfilt(*scipy.signal.butter(2, 0.2), x) for x in (s, t)],
    "Pchip": [scipy.interpolate.PchipInterpolator(x, x * x)(x + 0.1) for x in (u, v)],
    "Akima": [scipy.interpolate.Akima1DInterpolator(x, x * x)(x) for x in (u, v)],
    "RBF": [scipy.interpolate.RBFInterpolator(column(x), x)(column(x)) for x in (u, v)],
    "CubicSpline": [scipy.interpolate.CubicSpline(x, x * x)(x - 0.1) for x in (u, v)],
    "solve_ivp": [scipy.integrate.solve_ivp(lambda t, y: -y, (0, 1), x).y for x in (u, v)],
    "expm": [scipy.linalg.expm(x.reshape((2, 2))) for x in (u, v)],
}
for name, (got, want) in pairs.items():
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-12, err_msg=name)
"""


def test_functions_on_untracked_tensors():
    """As SciPy is by default, which its namespace dispatch (on in these tests) is not."""
    environment = {k: v for k, v in os.environ.items() if k != "SCIPY_ARRAY_API"}
    subprocess.run([sys.executable, "-c", PLAIN], check=True, env=environment)


def test_python_types_are_numpys_dtypes():
    kinds = {float: "float64", complex: "complex128", int: "int64", bool: "bool"}
    for kind, name in kinds.items():
        made = [wf.zeros(2, dtype=kind), wf.tensor([1, 0], dtype=kind), wf.ones(2).astype(kind)]
        made += [
            wf.asarray([1, 0], dtype=kind),
            wf.arange(2).to(kind) if kind is not bool else made[0],
        ]
        assert {t.dtype.name for t in made} == {name}
    assert wf.zeros(2).dtype == wf.float32


def test_python_floats_are_as_precise_as_the_data():
    x = np.linspace(0.0, 1.0, 5)

    def f(a, x):
        return (wf.sin(a * x) ** 2).sum()

    exact = (2 * np.sin(0.1 * x) * np.cos(0.1 * x) * x).sum()
    for g in (
        *(wf.grad(f)(0.1, x), wf.grad(f)(0.1, x=x), wf.vjp(f, 0.1, x)[1](1.0)[0]),
        *(wf.jacobian(f)(0.1, x), wf.jacfwd(f)(0.1, x), wf.compile(wf.grad(f))(0.1, x)),
        wf.jvp(f, (0.1, x), (1.0, 0 * x))[1],
    ):
        assert g.dtype == wf.float64 and g.item() == pytest.approx(exact, rel=1e-13)
    assert wf.grad(f)(0.1, x.astype(np.float32)).dtype == wf.float32
    assert wf.grad(lambda a: a * a)(0.1).dtype == wf.float32


def test_odeint_takes_lists_of_numbers():
    ts = np.linspace(0.0, 1.0, 4)
    want = wf.odeint(lambda y, t: wf.stack([y[1], -y[0]]), wf.tensor([1.0, 2.0], dtype=float), ts)
    for y0 in ([1.0, 2.0], (1, 2.0)):
        for f in (lambda y, t: [y[1], -y[0]], lambda y, t: wf.stack([y[1], -y[0]])):
            got = wf.odeint(f, y0, ts)
            assert got.dtype == wf.float64
            np.testing.assert_allclose(got.numpy(), want.numpy())
    assert wf.odeint(lambda y, t: -y, [1.0, 2.0], [0.0, 1.0]).shape == (2, 2)


def test_small_numbers_beside_unsigned_ones():
    u, a = wf.tensor(np.array([1, 2, 3], np.uint64)), np.array([1, 2, 3], np.uint64)
    for values in (0, 2, [1, 3], [0]):
        for f in (np.isin, np.searchsorted):
            np.testing.assert_array_equal(np.asarray(f(u, values)), f(a, values))
    assert wf.isin(2, u).item() and not wf.isin(u, []).any()
