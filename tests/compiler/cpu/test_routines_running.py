"""Running sums, products, recurrences and extremes in native code, against eager mode."""

import numpy as np
import pytest

import weft as wf
from weft.compiler.cpu.routines.running import Running
from weft.ops.cumulate import linear_recurrence

from ..routines import compared, routines_of
from ..schedules import call_routine

RNG = np.random.default_rng(5)
SHAPES = [(7,), (16,), (100,), (3, 40), (40, 3), (2, 5, 70), (1, 1)]
FUNCTIONS = {
    "cumsum": lambda x, axis: wf.cumulative_sum(x, axis=axis),
    "cumprod": lambda x, axis: wf.cumulative_prod(x, axis=axis),
    "logcumsumexp": lambda x, axis: wf.logcumsumexp(x, axis),
    "cummax": lambda x, axis: tuple(wf.cummax(x, axis)),
    "cummin": lambda x, axis: tuple(wf.cummin(x, axis)),
    "recurrence": lambda x, axis: linear_recurrence(wf.sin(x), x, axis),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int8, np.uint32])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_against_eager_mode(name, shape, dtype):
    x = (RNG.standard_normal(shape) * (1 if name == "cumprod" else 3)).astype(dtype)
    if dtype == np.uint32 and name in ("recurrence", "logcumsumexp"):
        pytest.skip("sin and exp of large integers")
    for axis in range(len(shape)):
        units = 8 * shape[axis] if np.dtype(dtype).kind == "f" else 64
        compared(lambda x, axis=axis: FUNCTIONS[name](x, axis), x, units=units)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name):
    x = RNG.standard_normal((3, 20, 4))

    def f(x):
        x = x.detach().requires_grad_()
        y = FUNCTIONS[name](x, 1)
        y = y[0] if isinstance(y, tuple) else y
        return (y * y).sum().backward()[x]

    compared(f, x, units=512)


def test_nan_infinities_and_ties():
    x = np.array([[1.0, np.nan, 5.0, np.nan, -np.inf], [2.0, 2.0, -np.inf, np.inf, np.inf]])
    with np.errstate(all="ignore"):
        for name in ("cummax", "cummin", "cumsum", "logcumsumexp"):
            compared(lambda x, name=name: FUNCTIONS[name](x, 1), x, units=8)
    zeros = wf.compile(lambda x: wf.cumulative_sum(x, axis=0))(wf.tensor(np.full(20, -0.0)))
    assert np.signbit(zeros.numpy()).all()


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("row", [1, 3, 33])
def test_sums_in_pieces(row, pieces):
    x = RNG.integers(-9, 9, (4, 50, row)).astype(np.float32)
    out = np.zeros_like(x)
    call_routine(Running("cumsum", x.dtype, 4, 50, row), [x, out], pieces)
    np.testing.assert_array_equal(out, np.cumsum(x, 1))


def test_a_long_sum_is_accurate():
    x = RNG.random(1 << 16).astype(np.float32)
    g = wf.compile(lambda x: wf.cumulative_sum(x, axis=0))
    got = g(wf.tensor(x)).numpy()
    assert routines_of(g) == ["Running"]
    np.testing.assert_allclose(got, np.cumsum(x.astype(np.float64)), rtol=1e-5)
