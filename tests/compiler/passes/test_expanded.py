"""Rows that are written out: compiled without a library call, beside eager mode."""

import numpy as np
import pytest

import weft as wf

from ..routines import compared

RNG = np.random.default_rng(9)
X = RNG.standard_normal((5, 40, 6)).astype(np.float32)


@pytest.mark.parametrize("axis", [0, 1, 2, None])
@pytest.mark.parametrize("f", [wf.argmax, wf.argmin])
def test_places_of_extremes(f, axis):
    for keepdims in (False, True):
        compared(lambda x, k=keepdims: f(x, axis=axis, keepdims=k), X)
        compared(lambda x, k=keepdims: f(x, axis=axis, keepdims=k), (X * 2).astype(np.int8))


def test_the_first_of_equal_extremes_and_nan():
    x = np.array([[1.0, 3.0, 3.0, 2.0], [np.nan, 9.0, np.nan, 1.0], [-np.inf] * 4])
    for f in (wf.argmax, wf.argmin):
        compared(lambda x, f=f: f(x, axis=1), x)


def test_a_cell_and_its_gradient():
    cell = wf.nn.LSTMCell(6, 7)
    h, c = RNG.standard_normal((2, 40, 7)).astype(np.float32)

    def f(x, h, c):
        x = x.detach().requires_grad_()
        h, c = cell(x, (h, c))
        return h, c, (h * h + c).sum().backward()[x]

    compared(f, X[0], h, c, units=64)


def test_a_gated_unit_and_its_gradient():
    cell = wf.nn.GRUCell(6, 7)
    h = RNG.standard_normal((40, 7)).astype(np.float32)

    def f(x, h):
        x = x.detach().requires_grad_()
        h = cell(x, h)
        return h, (h * h).sum().backward()[x]

    compared(f, X[0], h, units=64)
