"""Bounds, constraints and callbacks of the solvers, in the form of the start."""

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, NonlinearConstraint
from scipy.sparse import issparse

import weft as wf

from .common import EPS, METHODS, Seen, rosenbrock, valley

# Bounds


def test_bounds_of_a_tensor():
    x0, expected = [[0.5, 0.5], [0.5, 0.5]], [[1.0, 1.0], [2.0, 2.0]]
    upper = np.array([[1.0, 1.0], [np.inf, np.inf]])
    flat = [(None, 1.0), (None, 1.0), (None, None), (None, None)]
    for bounds in (flat, Bounds(-np.inf, upper), Bounds(-np.inf, upper.ravel())):
        found = wf.optimize.minimize(lambda x: ((x - 2.0) ** 2).sum(), x0, bounds=bounds)
        np.testing.assert_allclose(found.x.numpy(), expected, rtol=1e-6)


def test_bounds_of_a_tree():
    start = {"a": wf.zeros(2), "b": wf.tensor(0.0)}
    bounds = {"a": (None, [0.5, np.inf]), "b": (-3.0, -1.0)}

    def residuals(p):
        return wf.concat([p["a"] - 2.0, wf.reshape(p["b"], (1,))])

    found = wf.optimize.minimize(
        lambda p: (residuals(p) ** 2).sum(), {**start, "b": wf.tensor(-2.0)}, bounds=bounds
    )
    assert found.x["a"].tolist() == pytest.approx([0.5, 2.0], rel=1e-6)
    assert found.x["b"].item() == pytest.approx(-1.0)
    box = ({"a": -np.inf, "b": -3.0}, {"a": np.array([0.5, np.inf]), "b": -1.0})
    for method in ("trf", "dogbox"):
        found = wf.optimize.least_squares(
            residuals, {**start, "b": wf.tensor(-2.0)}, bounds=box, method=method
        )
        assert found.x["a"].tolist() == pytest.approx([0.5, 2.0], rel=1e-6)
        assert found.x["b"].item() == pytest.approx(-1.0, rel=1e-6)


# Constraints: the closest point to (2, 2) on or in the unit circle is (1, 1)/√2


def distance(x):
    return ((x - 2.0) ** 2).sum()


def square(x, radius=1.0):
    return (x**2).sum() - radius**2


CIRCLE = np.sqrt(0.5)
CONSTRAINTS = {
    "dict, inside": {"type": "ineq", "fun": lambda x: -square(x)},
    "dict, on it": {"type": "eq", "fun": square, "args": (1.0,)},
    "nonlinear": NonlinearConstraint(square, -np.inf, 0.0),
    "in a list": [NonlinearConstraint(square, -0.0, 0.0), LinearConstraint([[1, -1]], -1, 1)],
    "given slope": {"type": "eq", "fun": lambda x: square(x.detach()), "jac": lambda x: 2 * x},
    "given": NonlinearConstraint(
        lambda x: square(x.detach()),
        0.0,
        0.0,
        jac=lambda x: 2 * x,
        hess=lambda x, v: 2 * v[0] * wf.eye(2, dtype="float64"),
    ),
}


@pytest.mark.parametrize("method", ["SLSQP", "trust-constr", "COBYLA", "COBYQA"])
@pytest.mark.parametrize("name", CONSTRAINTS)
@pytest.mark.filterwarnings("ignore:Constraint options:scipy.optimize.OptimizeWarning")
def test_constraints(name, method):
    found = wf.optimize.minimize(
        distance, [0.4, 0.7], method=method, constraints=CONSTRAINTS[name], tol=1e-8
    )
    np.testing.assert_allclose(found.x.numpy(), CIRCLE, atol=1e-4)


@pytest.mark.parametrize("name", ["dict, on it", "nonlinear"])
def test_trust_constr_gets_the_curvature_of_constraints(name, monkeypatch):
    seen = Seen(monkeypatch, "minimize")
    wf.optimize.minimize(distance, [0.4, 0.7], method="trust-constr", constraints=CONSTRAINTS[name])
    (constraint,) = seen["constraints"]
    x = np.array([0.3, 0.9])
    np.testing.assert_allclose(constraint.jac(x), [2 * x], rtol=10 * EPS)
    np.testing.assert_allclose(constraint.hess(x, np.array([3.0])), 6 * np.eye(2), rtol=10 * EPS)


def test_a_large_constraint_is_sparse(monkeypatch):
    seen = Seen(monkeypatch, "minimize")
    n = 220
    wf.optimize.minimize(
        lambda x: ((x - 2.0) ** 2).sum(),
        np.linspace(0.1, 0.9, n),
        method="trust-constr",
        constraints=NonlinearConstraint(lambda x: x**3, -np.inf, 1.0),
        options={"maxiter": 2},
    )
    (constraint,) = seen["constraints"]
    x = np.linspace(-1.0, 1.0, n)
    slopes, curvature = constraint.jac(x), constraint.hess(x, np.ones(n))
    assert issparse(slopes) and issparse(curvature)
    np.testing.assert_allclose(slopes.toarray(), np.diag(3 * x**2), rtol=10 * EPS)
    np.testing.assert_allclose(curvature.toarray(), np.diag(6 * x), rtol=10 * EPS)


def test_methods_without_gradients_need_none():
    def outside(x):
        return wf.floor(x * 8.0) / 8.0 - 0.5  # no useful derivative

    found = wf.optimize.minimize(
        distance, [0.4, 0.7], method="COBYLA", constraints={"type": "ineq", "fun": outside}
    )
    np.testing.assert_allclose(found.x.numpy(), 2.0, atol=1e-3)


def test_constraints_take_trees():
    found = wf.optimize.minimize(
        lambda p: (p["a"] - 2.0) ** 2 + (p["b"] - 2.0) ** 2,
        {"a": wf.tensor(0.4), "b": wf.tensor(0.7)},
        constraints={"type": "eq", "fun": lambda p: p["a"] ** 2 + p["b"] ** 2 - 1.0},
        tol=1e-12,
    )
    assert [v.item() for v in found.x.values()] == pytest.approx([CIRCLE, CIRCLE], rel=1e-6)


# Callbacks


@pytest.mark.parametrize("method", METHODS)
def test_callbacks_get_the_form_of_the_start(method):
    steps = []

    def callback(x, *state):
        assert bool(state) == (method == "trust-constr")
        steps.append(x)

    found = wf.optimize.minimize(
        lambda p: valley(p["x"]), {"x": wf.zeros(2)}, method=method, callback=callback
    )
    assert steps and all(s["x"].dtype == wf.float32 and s["x"].shape == (2,) for s in steps)
    np.testing.assert_allclose(steps[-1]["x"].numpy(), found.x["x"].numpy(), atol=0.05)
    if len(steps) > 2:
        assert steps[0]["x"].tolist() != steps[-1]["x"].tolist()  # not one overwritten array


@pytest.mark.parametrize("method", ["BFGS", "trust-constr", "Nelder-Mead", "SLSQP"])
def test_callbacks_get_the_intermediate_result(method):
    values = []

    def callback(intermediate_result):
        assert isinstance(intermediate_result.x, wf.Tensor)
        values.append(intermediate_result.fun)
        if len(values) == 2:
            raise StopIteration

    found = wf.optimize.minimize(rosenbrock, [-1.2, 1.0], method=method, callback=callback)
    assert len(values) == 2 and not found.success
    assert isinstance(found.x, wf.Tensor)


def test_callbacks_of_least_squares_and_root():
    steps = []
    wf.optimize.least_squares(lambda x: x**2 - 2.0, wf.tensor([1.0]), callback=steps.append)
    assert steps[-1].dtype == wf.float32 and steps[-1].item() == pytest.approx(np.sqrt(2))
    wf.optimize.root(
        lambda x: x**2 - 2.0,
        wf.tensor([1.0]),
        method="krylov",
        tol=1e-10,
        callback=lambda x, f: steps.append(x),
    )
    assert isinstance(steps[-1], wf.Tensor) and steps[-1].item() == pytest.approx(np.sqrt(2))
