"""Routines: gathers and scatters in native code, against NumPy and eager mode."""

from dataclasses import replace

import numpy as np
import pytest

import weft as wf
from weft.compiler.cpu.routines.gather import Take
from weft.compiler.cpu.routines.scatter import SegmentSum
from weft.compiler.ir.schedule import NativeStep
from weft.compiler.ir.verify import MalformedSchedule, verify
from weft.errors import IndexingError

from ..routines import compared, routines_of
from ..schedules import call_routine

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("pieces", [1, 3, 100])
@pytest.mark.parametrize("index", [np.int8, np.uint16, np.int32, np.int64])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.complex64, bool])
def test_take_in_pieces(dtype, index, pieces):
    x = (RNG.standard_normal((3, 7, 5)) * 9).astype(dtype)
    i = RNG.integers(0 if index == np.uint16 else -7, 7, 11).astype(index)
    out = np.zeros((3, 11, 5), dtype)
    call_routine(Take(x.dtype, i.dtype, 3, 7, 11, 5), [x, i, out], pieces)
    np.testing.assert_array_equal(out, np.take(x, i, 1, mode="wrap"))


def test_indices_outside_are_reported_and_never_followed():
    x, i, out = np.zeros(7), np.array([3, 7]), np.zeros(2)
    with pytest.raises(AssertionError, match="array 1 was left"):
        call_routine(Take(x.dtype, i.dtype, 1, 7, 2, 1), [x, i, out])
    f = wf.compile(lambda x, i: x[i])
    x = wf.tensor(np.arange(7.0))
    for bad in ([0, -8], [0, 7], [2**40, 1]):
        wrong = min(bad) if min(bad) < 0 else max(bad)
        with pytest.raises(IndexingError, match=f"take: index {wrong} is out of range for length"):
            f(x, wf.tensor(np.array(bad)))
    assert routines_of(f) == ["Take"]


def test_a_routine_stays_in_its_buffers():
    f = wf.compile(lambda x, i: x[i])
    f(wf.tensor(np.zeros((4, 3))), wf.tensor([0, 3]))
    schedule = f._last().executable.schedule
    k, step = next((k, s) for k, s in enumerate(schedule.steps) if isinstance(s, NativeStep))
    wrong = replace(step, routine=replace(step.routine, n=5))
    steps = (*schedule.steps[:k], wrong, *schedule.steps[k + 1 :])
    with pytest.raises(MalformedSchedule, match="is accessed from 0 to 15 of 12 elements"):
        verify(replace(schedule, steps=steps))


# -- rows against eager mode -----------------------------------------------------------------

X = RNG.standard_normal((4, 6, 5)).astype(np.float32)
PLACES = RNG.integers(-4, 4, (3, 2))
ALONG = RNG.integers(-6, 6, (4, 3, 5))


def gradient(f, *arrays):
    """The gradient of Σ f² by the first argument."""

    def pulled(x, *rest):
        x = x.detach().requires_grad_()
        y = f(x, *rest)
        return (y * y).sum().backward()[x]

    return pulled


def put(x, i, v):
    x = x * 1
    x[i] = v
    return x


def added(x, i, v):
    return wf.index_add(x, 0, i, v)


ROWS = {
    "index": (lambda x, i: x[i], (X, PLACES)),
    "index of bytes": (lambda x, i: x[i], (X, PLACES.astype(np.int8))),
    "index of axis 1": (lambda x, i: x[:, i], (X, RNG.integers(-6, 6, 7))),
    "index of the last axis": (lambda x, i: x[..., i], (X, RNG.integers(0, 5, (2, 2)))),
    "two indices": (lambda x, i, j: x[i, j], (X, PLACES, RNG.integers(-6, 6, 2))),
    "indices apart": (lambda x, i, j: x[i, :, j], (X, PLACES, RNG.integers(-5, 5, 2))),
    "of a transpose": (lambda x, i: wf.permute_dims(x, (2, 0, 1))[i], (X, PLACES)),
    "embedding": (lambda w, i: wf.nn.functional.embedding(i, w), (X[0], abs(PLACES))),
    "take_along_axis": (lambda x, i: wf.take_along_axis(x, i, axis=1), (X, ALONG)),
    "along the last axis": (
        lambda x, i: wf.take_along_axis(x, i, axis=2),
        (X, RNG.integers(0, 5, (4, 6, 1))),
    ),
    "gather": (lambda x, i: wf.gather(x, 1, i), (X, ALONG[:2, :, :4])),
    "scatter": (lambda x, i, v: wf.scatter(x, 1, i, v), (X, ALONG, X[:, :3])),
    "scatter_add": (lambda x, i, v: wf.scatter_add(x, 1, i, v), (X, ALONG, X[:, :3])),
    "index_add": (added, (X, RNG.integers(0, 4, 9), np.ones((9, 6, 5), np.float32))),
    "assignment": (put, (X, PLACES, np.float32(3))),
    "assignment of rows": (put, (X, RNG.integers(-4, 4, 9), X[0])),
    "one_hot": (lambda x, i: wf.nn.functional.one_hot(i, 9) * x[0, 0, 0], (X, abs(PLACES))),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows(name):
    f, arrays = ROWS[name]
    compared(f, *arrays)
    compared(f, *[a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays])


@pytest.mark.parametrize("name", ROWS)
def test_gradients_of_rows(name):
    f, arrays = ROWS[name]
    compared(gradient(f), *arrays, units=16)


def test_of_several_writes_the_last_wins():
    x, i, v = np.zeros((4, 40), np.float32), np.array([1, 1, 3, 1]), np.arange(4.0)
    v = np.broadcast_to(v[:, None], (4, 40)).astype(np.float32)
    compared(put, x, i, v, routines=["IndexPut"])

    def written(v, x, i):
        v = v.detach().requires_grad_()
        return (put(x, i, v) * 2).sum().backward()[v]

    g = compared(written, v, x, i)
    assert "LastWrites" in routines_of(g)


@pytest.mark.parametrize("pieces", [1, 2, 7])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, np.complex64])
@pytest.mark.parametrize("row", [1, 5, 32, 70])
def test_sums_in_pieces(row, dtype, pieces):
    x = (RNG.standard_normal((3, 50, row)) * 9).astype(dtype)
    i = RNG.integers(-7, 7, 50)
    out = np.ones((3, 7, row), dtype)
    call_routine(SegmentSum(x.dtype, i.dtype, 3, 7, 50, row), [x, i, out], pieces)
    want = np.zeros_like(out)
    for k in range(50):
        want[:, i[k]] += x[:, k]
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("pieces", [1, 5])
def test_sums_of_few_rows_in_a_large_table(pieces):
    x, i = RNG.standard_normal((2, 30, 37)).astype(np.float32), RNG.integers(-5001, 5001, 30)
    i[3] = i[7]
    routine = SegmentSum(x.dtype, i.dtype, 2, 5001, 30, 37)
    assert routine.ranges > 1
    out = np.ones((2, 5001, 37), np.float32)
    call_routine(routine, [x, i, out], pieces)
    want = np.zeros_like(out)
    for k in range(30):
        want[:, i[k]] += x[:, k]
    np.testing.assert_array_equal(out, want)


BAD = {
    "take": (lambda x, i: x[i], r"take: index -?\d+ is out of range for length 4"),
    "put": (lambda x, i: put(x, i, 1.0), r"index: index -?\d+ is out of range for length 4"),
    "add": (lambda x, i: added(x, i, 1.0), r"index: index -?\d+ is out of range for length 4"),
    "two": (lambda x, i: x[i, i], r"index: index -?\d+ is out of range for length 4"),
    "one_hot": (
        lambda x, i: wf.nn.functional.one_hot(abs(i), 4),
        r"one_hot: classes 0 to \d+ are not all in 0 to 3",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_indices_out_of_range_raise_before_anything_is_changed(name):
    f, message = BAD[name]
    state = wf.tensor(np.zeros(3))

    def step(x, i):
        state[...] = state + 1
        return f(x, i)

    g = wf.compile(step)
    x = wf.tensor(X)
    g(x, wf.tensor(np.array([0, 3])))
    assert state.tolist() == [1, 1, 1]
    for bad in ([0, 4], [-5, 0], [-(2**62), 0]):
        with pytest.raises(IndexingError):
            f(x, wf.tensor(np.array(bad)))
        with pytest.raises(IndexingError, match=message) as found:
            g(x, wf.tensor(np.array(bad)))
        assert "test_routines.py" in str(found.value)
    assert state.tolist() == [1, 1, 1]


def test_sums_of_half_types_are_made_in_float32():
    x = np.ones((4000, 2), np.float16)
    i = np.zeros(4000, np.int64)

    def counted(x, i):
        return wf.index_add(x[:1] * 0, 0, i, x)

    g = compared(counted, x, i)
    assert routines_of(g) == ["SegmentSum"]
    assert float(g(wf.tensor(x), wf.tensor(i))[0, 0]) == 4000
