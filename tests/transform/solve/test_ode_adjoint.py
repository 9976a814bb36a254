"""The adjoint's error is near rtol, where the solution cannot be solved backwards as well.

The reference is SciPy's solution at tight tolerances, differentiated by complex steps.
"""

import os

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import weft as wf

SOAK = os.environ.get("WEFT_SOAK") == "1"
FACTOR = 100  # the gradient's error, in units of rtol times the largest element


def _van_der_pol(stack, y, p):
    return stack([y[1], p[0] * (1 - y[0] ** 2) * y[1] - y[0]])


def _lorenz(stack, y, p):
    return stack([p[0] * (y[1] - y[0]), y[0] * (p[1] - y[2]) - y[1], y[0] * y[1] - p[2] * y[2]])


def _stiff(stack, y, p):
    return stack([-p[0] * (y[0] - y[1] * y[1]), -p[1] * y[1]])


def _reactions(stack, y, p):
    """Robertson's, with rates that explicit steps can follow."""
    slow, back, fast = p[0] * y[0], p[1] * y[1] * y[2], p[2] * y[1] * y[1]
    return stack([back - slow, slow - back - fast, fast])


PROBLEMS = {
    "van der Pol, 1": (_van_der_pol, [2.0, 0.0], [1.0], 6.0),
    "van der Pol, 5": (_van_der_pol, [2.0, 0.0], [5.0], 4.0),
    "van der Pol, 10": (_van_der_pol, [2.0, 0.0], [10.0], 20.0 if SOAK else 2.0),
    "Lorenz": (_lorenz, [1.0, 1.0, 20.0], [10.0, 28.0, 8 / 3], 1.0),
    "stiff": (_stiff, [1.0, 1.0], [100.0, 1.0], 2.0),
    "reactions": (_reactions, [1.0, 0.0, 0.0], [0.04, 10.0, 300.0], 5.0),
}
RTOLS = [1e-6, 1e-9] if SOAK else [1e-6]


def _reference(problem) -> np.ndarray:
    f, y0, p, end = problem
    at, found = np.array([*y0, *p], complex), []
    for k in range(at.size):
        moved = at.copy()
        moved[k] += 1e-30j
        y, q = moved[: len(y0)], moved[len(y0) :]
        solved = solve_ivp(
            lambda t, y, q=q: f(np.array, y, q),
            (0, end),
            y,
            method="DOP853",
            rtol=1e-12,
            atol=1e-14,
        )
        found.append((solved.y[:, -1] @ _weights(y0)).imag / 1e-30)
    return np.array(found)


def _weights(y0) -> np.ndarray:
    return np.cos(np.arange(len(y0)))


def _loss(problem, rtol: float, times=(1.0,)):
    f, y0, _, end = problem

    def loss(y, p):
        ys = wf.odeint(
            lambda y, t, p: f(wf.stack, y, p),
            y,
            [0.0, *[end * t for t in times]],
            p,
            gradient="adjoint",
            rtol=rtol,
            atol=rtol * 1e-3,
        )
        return (ys[-1] * wf.asarray(_weights(y0))).sum()

    return loss


def _check(gradient, problem, rtol: float) -> None:
    _, y0, p, _ = problem
    found = gradient(wf.tensor(y0, dtype="float64"), wf.tensor(p, dtype="float64"))
    found, expected = np.concatenate([g.numpy() for g in found]), _reference(problem)
    error = np.abs(found - expected).max() / np.abs(expected).max()
    assert error <= FACTOR * rtol, (error, found, expected)


@pytest.mark.parametrize("rtol", RTOLS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_adjoint_is_as_exact_as_the_solution(name, rtol):
    problem = PROBLEMS[name]
    _check(wf.grad(_loss(problem, rtol), argnums=(0, 1)), problem, rtol)


@pytest.mark.parametrize("name", PROBLEMS if SOAK else ["van der Pol, 5", "stiff"])
def test_the_adjoint_in_a_program_is_as_exact_as_the_solution(name):
    problem = PROBLEMS[name]
    gradient = wf.compile(wf.grad(_loss(problem, 1e-9), argnums=(0, 1)))
    _check(gradient, problem, 1e-9)


def test_several_times():
    problem = PROBLEMS["van der Pol, 1"]
    _check(wf.grad(_loss(problem, 1e-6, (0.3, 0.5, 1.0)), argnums=(0, 1)), problem, 1e-6)


def test_second_derivatives():
    problem = (_stiff, [1.0, 1.0], [20.0, 1.0], 1.0)
    loss = _loss(problem, 1e-8 if SOAK else 1e-7)
    y, p = wf.tensor(problem[1], dtype="float64"), wf.tensor(problem[2], dtype="float64")
    v = wf.asarray(np.array([0.3, -0.7]))
    found = wf.grad(lambda p: (wf.grad(loss, argnums=1)(y, p) * v).sum())(p).numpy()
    h = 1e-4
    up, down = (wf.grad(loss, argnums=1)(y, p + s * h * v).numpy() for s in (1, -1))
    np.testing.assert_allclose(found, (up - down) / (2 * h), rtol=1e-4, atol=1e-8)
