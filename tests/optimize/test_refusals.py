"""What cannot be solved is refused, with what came and what to do."""

import numpy as np
import pytest
from scipy.optimize import Bounds

import weft as wf
from weft import errors

from .common import valley

X = np.linspace(0.0, 3.0, 12)
Y = 1.5 * X - 0.7


def line(x, slope, offset):
    return slope * x + offset


quadratic, identity = (lambda x: (x**2).sum()), (lambda x: x)
minimize, least_squares = wf.optimize.minimize, wf.optimize.least_squares
root, curve_fit = wf.optimize.root, wf.optimize.curve_fit
WRONG = [
    (lambda: minimize(identity, [1.0, 2.0]), errors.NonScalarBackward, r"\(2,\).*least_squares"),
    (lambda: minimize(quadratic, wf.tensor([1, 2])), errors.DTypeError, r"int64.*to\('float64'\)"),
    (lambda: minimize(quadratic, np.array([1, 2])), errors.DTypeError, "int64"),
    (lambda: minimize(quadratic, [1.0, np.nan]), errors.ArgumentError, "nan at flat index 1"),
    (lambda: root(identity, {"a": wf.tensor([np.inf])}), errors.ArgumentError, "inf at flat"),
    (lambda: minimize(quadratic, wf.tensor([1j])), errors.DTypeError, "wf.complex"),
    (lambda: minimize(quadratic, []), errors.ArgumentError, "no number"),
    (lambda: minimize(quadratic, "abc"), errors.DTypeError, "got str"),
    (lambda: minimize(lambda x: None, [1.0]), errors.DTypeError, "returned None"),
    (lambda: minimize(lambda x: wf.log(x - 2.0).sum(), [1.0]), errors.ArgumentError, "nan at x0"),
    (lambda: minimize(lambda x: (x**0.5).sum(), [0.0]), errors.ArgumentError, "gradient at x0"),
    (lambda: minimize(lambda x: (x * 1j).sum(), [1.0]), errors.DTypeError, "complex.*real"),
    (lambda: minimize(quadratic, [1.0], jac="cs"), errors.ArgumentError, "'cs'.*exact"),
    (lambda: minimize(quadratic, [1.0], hess="cs"), errors.ArgumentError, "'cs'.*exact"),
    (lambda: minimize(quadratic, [1.0, 2.0], bounds=[(0, 1)]), errors.ShapeError, "1 bounds for 2"),
    (
        lambda: minimize(quadratic, [1.0, 2.0], bounds=Bounds([0.0] * 3, 1.0)),
        errors.ShapeError,
        r"\(3,\).*\(2,\)",
    ),
    (
        lambda: minimize(quadratic, [1.0, 2.0], jac=lambda x: x[:, None] * x),
        errors.ShapeError,
        "grad",
    ),
    (
        lambda: minimize(quadratic, [1.0], constraints={"fun": quadratic}),
        errors.ArgumentError,
        "'type'",
    ),
    (lambda: minimize(quadratic, [1.0, 2.0], jac=lambda x: x.sum()), errors.ShapeError, "gradient"),
    (lambda: minimize(quadratic, [1.0], jac=True), errors.ArgumentError, "value, derivative"),
    (lambda: root(identity, [1.0], jac=True), errors.ArgumentError, "value, derivative"),
    (lambda: least_squares(lambda x: wf.log(x), [-1.0]), errors.ArgumentError, "nan at the start"),
    (lambda: least_squares(lambda x: x * 1j, [1.0]), errors.DTypeError, "imaginary part"),
    (lambda: least_squares(identity, [1.0], jac="cs"), errors.ArgumentError, "'cs'"),
    (lambda: least_squares(identity, [1.0, 2.0], x_scale=[1.0] * 3), errors.ShapeError, "x_scale"),
    (
        lambda: least_squares(lambda p: p["a"], {"a": wf.ones(2)}, bounds=({"b": 0.0}, 1.0)),
        errors.ArgumentError,
        "another structure",
    ),
    (
        lambda: least_squares(lambda x: x[:1] + x[1:], wf.ones(2), jac=lambda x: wf.ones((2, 1))),
        errors.ShapeError,
        r"\(2, 1\).*\(2,\)",
    ),
    (lambda: root(lambda x: x[:1], [1.0, 2.0]), errors.ShapeError, "1 results for 2 unknowns"),
    (lambda: root(identity, [1.0], options={"col_deriv": 1}), errors.ArgumentError, "col_deriv"),
    (lambda: curve_fit(line, X, Y[:5], [1.0, 1.0]), errors.ShapeError, "12 values for 5 data"),
    (lambda: curve_fit(line, X, Y * np.nan, [1.0, 1.0]), errors.ArgumentError, "ydata is nan"),
    (lambda: curve_fit(line, X / 0.0, Y, [1.0, 1.0]), errors.ArgumentError, "xdata is (nan|inf)"),
    (lambda: curve_fit(line, X, Y * 1j, [1.0, 1.0]), errors.DTypeError, "ydata is complex"),
    (
        lambda: curve_fit(line, X, Y, [1.0, 1.0], nan_policy="omit"),
        errors.ArgumentError,
        "isfinite",
    ),
    (
        lambda: wf.vmap(lambda x: root(identity, x).x)(wf.ones((2, 2))),
        errors.GradientError,
        "outside",
    ),
]


OUTER = {
    "grad": lambda h: wf.grad(lambda c: h(c).sum())(wf.ones(2)),
    "jvp": lambda h: wf.jvp(h, (wf.ones(2),), (wf.ones(2),)),
    "vmap": lambda h: wf.vmap(h)(wf.ones((3, 2))),
    "jacobian": lambda h: wf.jacobian(h)(wf.ones(2)),
}
SOLVERS = {
    "minimize": lambda c: minimize(lambda x: ((x - c) ** 2).sum(), [0.0, 0.0]).x,
    "minimize, no gradient": lambda c: (
        minimize(lambda x: ((x - c) ** 2).sum(), [0.0, 0.0], method="Powell").x
    ),
    "least_squares": lambda c: least_squares(lambda x, c: x - c, [0.0, 0.0], (c,)).x,
    "constraint": lambda c: (
        minimize(
            lambda x: (x**2).sum(), [1.0, 1.0], constraints={"type": "eq", "fun": lambda x: x - c}
        ).x
    ),
    "root": lambda c: root(lambda x: x - c, [0.0, 0.0]).x,
    "curve_fit": lambda c: curve_fit(lambda x, a, b: a * x + b * c.sum(), X, Y, [1.0, 1.0])[0],
}


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("solver", SOLVERS)
def test_no_derivative_is_lost_on_the_way(outer, solver):
    with pytest.raises(errors.NotDifferentiable, match="solve outside"):
        OUTER[outer](SOLVERS[solver])


@pytest.mark.parametrize("method", ["BFGS", "trust-exact", "Newton-CG", "Powell"])
def test_other_solutions_are_constants_inside_a_transformation(method):
    def scaled(c):
        return c * minimize(valley, [0.5, 3.0], method=method).x

    slope = OUTER["grad"](scaled)
    np.testing.assert_allclose(slope.numpy(), 2.0, atol=1e-4)
    np.testing.assert_allclose(OUTER["jvp"](scaled)[1].numpy(), 2.0, atol=1e-4)
    np.testing.assert_allclose(OUTER["vmap"](scaled).numpy(), 2.0 * np.ones((3, 2)), atol=1e-4)
    np.testing.assert_allclose(OUTER["jacobian"](scaled).numpy(), 2.0 * np.eye(2), atol=1e-4)


@pytest.mark.parametrize("outer", OUTER)
def test_other_equations_are_constants_inside_a_transformation(outer):
    def scaled(c):
        a = least_squares(tridiagonal, -np.ones(220)).x[:2]  # with a sparse Jacobian
        b = root(lambda x: x - 2.0, [0.0, 0.0]).x + curve_fit(line, X, Y, [1.0, 1.0])[0]
        return c * (a + b)

    found = OUTER[outer](scaled)
    expected = OUTER[outer](lambda c: c * wf.asarray(scaled(wf.ones(2)).numpy()))
    for got, same in zip(wf.asarray(found), wf.asarray(expected), strict=True):
        np.testing.assert_allclose(got.numpy(), same.numpy(), rtol=1e-6)


def tridiagonal(x):
    zero = wf.zeros(1, dtype="float64")
    return (3 - 2 * x) * x - wf.concat([zero, x[:-1]]) - 2 * wf.concat([x[1:], zero]) + 1


@pytest.mark.parametrize("wrong, error, message", WRONG, ids=range(len(WRONG)))
@pytest.mark.filterwarnings("ignore:(divide|invalid):RuntimeWarning")
def test_errors(wrong, error, message):
    with pytest.raises(error, match=message):
        wrong()
