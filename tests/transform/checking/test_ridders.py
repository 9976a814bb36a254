"""The yardstick itself: extrapolated differences against derivatives known in closed form."""

import numpy as np
import pytest

from weft.transform.checking.ridders import ridders

EPS = np.finfo(np.float64).eps

KNOWN = {
    "sin": (np.sin, np.cos, (-3.0, -0.5, 0.0, 1.0, 20.0)),
    "exp": (np.exp, np.exp, (-5.0, 0.0, 2.0, 10.0)),
    "log": (np.log, lambda x: 1 / x, (1e-3, 0.05, 1.0, 300.0)),
    "sqrt": (np.sqrt, lambda x: 0.5 / np.sqrt(x), (1e-2, 1.0, 50.0)),
    "arccos": (np.arccos, lambda x: -1 / np.sqrt(1 - x * x), (-0.99, 0.0, 0.97)),
    "abs": (np.abs, np.sign, (-0.02, 0.3, 4.0)),
    "floor": (np.floor, np.zeros_like, (0.13, 2.97, -1.5)),
}


@pytest.mark.parametrize("name", KNOWN)
def test_error_is_within_the_bound_and_the_bound_is_sharp(name):
    f, df, points = KNOWN[name]
    for point in points:
        x = np.array([point])
        noise = 4 * EPS * (np.abs(f(x)) + np.abs(df(x) * x))
        step = np.maximum(np.abs(x), 0.1) / 8
        with np.errstate(invalid="ignore"):
            estimate = ridders(f, x, step[None], noise)
        expected = (df(x) * step)[:, None]
        assert (np.abs(estimate.value - expected) <= estimate.bound).all()
        assert (estimate.bound <= 1e-7 * np.maximum(np.abs(expected), np.abs(f(x)))).all()


def test_columns_are_directions():
    a = np.arange(6.0).reshape(2, 3)
    estimate = ridders(lambda x: a @ x, np.ones(3), np.eye(3), np.full(2, EPS))
    np.testing.assert_allclose(estimate.value, a, atol=estimate.bound.max())


def test_a_kink_at_the_point_itself_is_not_resolved():
    def f(x):
        return np.maximum(x, 0) ** 0.5

    estimate = ridders(f, np.zeros(1), np.array([[0.1]]), np.array([EPS]))
    assert not estimate.bound[0, 0] <= 1e-3


@pytest.mark.parametrize("name", ["sin", "exp", "log", "sqrt"])
def test_one_sided_differences(name):
    f, df, points = KNOWN[name]
    for point in points:
        x = np.array([point])
        noise = 4 * EPS * (np.abs(f(x)) + np.abs(df(x) * x))
        step = np.maximum(np.abs(x), 0.1) / 8
        estimate = ridders(f, x, step[None], noise, one_sided=True)
        expected = (df(x) * step)[:, None]
        assert (np.abs(estimate.value - expected) <= estimate.bound).all()
        assert (estimate.bound <= 1e-5 * np.maximum(np.abs(expected), np.abs(f(x)))).all()


def test_one_sided_differences_do_not_look_back():
    estimate = ridders(np.sqrt, np.ones(1), -np.eye(1) / 8, np.array([EPS]), one_sided=True)
    np.testing.assert_allclose(estimate.value, -0.0625, atol=1e-9)
