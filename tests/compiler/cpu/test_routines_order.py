"""Sorting in native code, against NumPy and eager mode."""

import numpy as np
import pytest

import weft as wf
from weft.compiler.cpu.routines.order import FEW, LONGEST, Order
from weft.compiler.ir.schedule import LibraryStep

from ..routines import compared, steps_of
from ..schedules import call_routine

RNG = np.random.default_rng(7)
DTYPES = [np.float32, np.float64, np.float16, np.int8, np.int64, np.uint16, np.uint64, bool]


@pytest.mark.parametrize("pieces", [1, 4])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("n", [1, 2, 16, 17, 33, 100, 1000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, np.uint64])
def test_orders_in_pieces(dtype, n, descending, pieces):
    x = (RNG.standard_normal((5, n)) * 20).astype(dtype)
    values, places = np.zeros_like(x), np.zeros(x.shape, np.int64)
    routine = Order(x.dtype, 5, n, n, descending, True, True)
    call_routine(routine, [x, values, places], pieces)
    want = np.argsort(x, 1, kind="stable")
    if descending:
        want = n - 1 - np.argsort(x[:, ::-1], 1, kind="stable")[:, ::-1]
    np.testing.assert_array_equal(places, want)
    np.testing.assert_array_equal(values, np.take_along_axis(x, want, 1))


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_against_eager_mode(axis, dtype):
    x = (RNG.standard_normal((6, 20, 3)) * 9).astype(dtype)
    for descending in (False, True):
        compared(lambda x, d=descending: wf.sort(x, axis=axis, descending=d), x)
        compared(lambda x, d=descending: wf.argsort(x, axis=axis, descending=d), x)


@pytest.mark.parametrize("k", [1, 3, 20])
@pytest.mark.parametrize("largest", [False, True])
def test_topk(largest, k):
    x = RNG.permutation(400).reshape(2, 10, 20).astype(np.float32)
    compared(lambda x: tuple(wf.topk(x, k, axis=2, largest=largest)), x, routines=["Order"])
    few = min(k, 10)
    compared(lambda x: tuple(wf.topk(x, few, axis=1, largest=largest)), x, routines=["Order"])

    def pulled(x):
        x = x.detach().requires_grad_()
        values, _ = wf.topk(x, k, axis=2, largest=largest)
        return (values * values).sum().backward()[x]

    compared(pulled, x)


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
@pytest.mark.parametrize("k", [1, 5, 32])
def test_some_of_a_long_line(k, dtype):
    x = RNG.permutation(6000).reshape(3, 2000).astype(dtype)
    compared(lambda x: tuple(wf.topk(x, k, axis=1)), x, routines=["Order"])
    ties = (x // 300).astype(dtype)
    g = wf.compile(lambda x: tuple(wf.topk(x, k, axis=1)))
    _, places = (y.numpy() for y in g(wf.tensor(ties)))
    want = 1999 - np.argsort(ties[:, ::-1], 1, kind="stable")[:, ::-1][:, :k]
    np.testing.assert_array_equal(places, want)


def test_nan_infinities_and_zeros():
    x = np.array([[np.nan, 0.0, -0.0, np.inf, -np.inf, 1.0, np.nan, -1.0, -np.nan, 0.0]])
    for descending in (False, True):
        compared(lambda x, d=descending: wf.sort(x, axis=1, descending=d), x)
        compared(lambda x, d=descending: wf.argsort(x, axis=1, descending=d), x)


def test_long_lines_are_the_backends():
    for f, x in ((wf.argsort, np.arange(LONGEST + 1.0)), (wf.sort, np.arange(FEW + 1.0))):
        g = wf.compile(lambda x, f=f: f(x))
        g(wf.tensor(x))
        (step,) = steps_of(g)
        assert isinstance(step, LibraryStep) and "backend" in step.reason
