"""Indexing, assignment and composites inside vmap: what code for one element may write."""

import numpy as np
import pytest

import weft as wf
from weft import errors

RNG = np.random.default_rng(0)
MATRICES = wf.tensor(RNG.normal(size=(4, 3, 2)))
VECTORS = wf.tensor(RNG.normal(size=(4, 3)))
NUMBERS = wf.tensor(RNG.normal(size=4))
PLACES = wf.tensor(np.array([0, 2, 1, -1]))
PAIRS = wf.tensor(np.array([[0, 1], [1, -1], [2, 2], [0, 0]]))
MASKS = VECTORS > 0
WEIGHTS = wf.tensor(RNG.normal(size=3))


def looped(f, args):
    return np.stack([np.asarray(f(*(a[k] for a in args))) for k in range(len(args[0]))])


def agrees(f, *args):
    got, want = np.asarray(wf.vmap(f)(*args)), looped(f, args)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=1e-14, strict=True)


READ = {
    "a place of its own": (lambda x, i: x[i], MATRICES, PLACES),
    "a place in what is shared": (lambda i: WEIGHTS[i], PLACES),
    "a place on the last axis": (lambda x, i: x[:, i % 2], MATRICES, PLACES),
    "a place and a number": (lambda x, i: x[i, 1], MATRICES, PLACES),
    "a place and a new axis": (lambda x, i: x[i, None], MATRICES, PLACES),
    "places": (lambda x, i: x[i], MATRICES, PAIRS),
    "places on two axes": (lambda x, i: x[i, i % 2], MATRICES, PAIRS),
    "places and a number": (lambda x, i: x[i, 0], MATRICES, PAIRS),
    "shared places": (lambda x: x[[0, 2]], MATRICES),
    "shared places on two axes": (lambda x: x[[0, -1], [1, 1]], MATRICES),
    "a shared mask": (lambda x: x[wf.tensor([True, False, True])], MATRICES),
    "a number": (lambda x: x[-1], MATRICES),
    "a slice": (lambda x: x[1:], MATRICES),
    "a slice backwards": (lambda x: x[::-1, 0], MATRICES),
    "a new axis": (lambda x: x[..., None], MATRICES),
    "rows one by one": (lambda x: sum(row.sum() for row in x), MATRICES),
}


@pytest.mark.parametrize("what", READ)
def test_reading(what):
    agrees(*READ[what])


def written(key, value):
    """y = zeros; y[key] = value."""
    y = wf.zeros(3)
    y[key] = value
    return y


def clipped(x, value):
    y = x.clone()
    y[y > 0] = value
    return y


def filled(x):
    y = wf.zeros(3)
    for k in range(3):
        y[k] = x[k] * k
    return y


def increased(x, i):
    y = x.clone()
    y[i] += 1.0
    return y


def column(x):
    y = wf.zeros((3, 4))
    y[:, 1] = x
    y[0, 2:] = x[0]
    return y


WRITTEN = {
    "a value of its own": (lambda v: written(1, v), NUMBERS),
    "at a place of its own": (written, PLACES, NUMBERS),
    "a number at a place of its own": (lambda i: written(i, 1.0), PLACES),
    "at places, the last of which wins": (written, PAIRS, VECTORS[:, :2]),
    "by a mask": (lambda m: written(m, 5.0), MASKS),
    "by a mask, a value of its own": (clipped, VECTORS, NUMBERS),
    "by a mask, a number": (lambda x: clipped(x, 0.0), VECTORS),
    "element after element": (filled, VECTORS),
    "to what was there": (increased, VECTORS, PLACES),
    "a column": (column, VECTORS),
    "set": (lambda x, i, v: x.at[i].set(v), VECTORS, PLACES, NUMBERS),
    "set a row": (lambda x, i, v: x.at[i].set(v), MATRICES, PLACES, MATRICES[:, 0]),
    "set in what is shared": (lambda i, v: WEIGHTS.at[i].set(v), PLACES, NUMBERS),
    "add at places": (lambda x, i: x.at[i].add(1.0), VECTORS, PAIRS),
    "add values at places": (lambda x, i, v: x.at[i].add(v), VECTORS, PAIRS, VECTORS[:, :2]),
    "multiply": (lambda x, i, v: x.at[i].multiply(v), VECTORS, PLACES, NUMBERS),
    "add at a flat place": (lambda x: x.add_at_index(1, 2.0), VECTORS),
    "put along an axis": (
        lambda x, i, v: wf.put_along_axis(x, i, v, axis=0),
        VECTORS,
        PAIRS[:, :1],
        NUMBERS[:, None],
    ),
}


@pytest.mark.parametrize("what", WRITTEN)
def test_writing(what):
    agrees(*WRITTEN[what])


COMPOSITES = {
    "reshape": (lambda x: x.reshape(-1), MATRICES),
    "transpose": (lambda x: x.T, MATRICES),
    "concat": (lambda x: wf.concat([WEIGHTS, x, WEIGHTS]), VECTORS),
    "stack": (lambda x: wf.stack([x, WEIGHTS], axis=1), VECTORS),
    "stack of numbers": (lambda x: wf.stack([x, x * 2, wf.tensor(1.0)]), NUMBERS),
    "pad": (lambda x: wf.pad(x, ((1, 0), (0, 2))), MATRICES),
    "pad by reflection": (lambda x: wf.pad(x, ((1, 0), (0, 1)), mode="reflect"), MATRICES),
    "tile": (lambda x: wf.tile(x, (2, 1)), MATRICES),
    "repeat": (lambda x: wf.repeat(x, 2, axis=1), MATRICES),
    "diag": (lambda x: wf.diag(x), VECTORS),
    "diagonal": (lambda x: wf.diagonal(x), MATRICES),
    "meshgrid": (lambda x: wf.meshgrid(x, WEIGHTS)[0], VECTORS),
    "split": (lambda x: wf.split(x, 3)[1], MATRICES),
    "take": (lambda x, i: wf.take(x, i % 2, axis=1), MATRICES, PAIRS),
    "where": (lambda x, m: wf.where(m, x, 0.0), VECTORS, MASKS),
    "median": (lambda x: wf.median(x, axis=0), MATRICES),
    "quantile": (lambda x, q: wf.quantile(x, abs(q) / 3, axis=0), MATRICES, NUMBERS),
    "histogram": (lambda x: wf.histogram(x, wf.tensor([-1.0, 0.0, 1.0]))[0], VECTORS),
    "interp": (lambda x, xp, fp: wf.interp(x, wf.sort(xp), fp), NUMBERS, VECTORS, VECTORS),
    "interp with a period": (
        lambda x, xp, fp: wf.interp(x, xp, fp, period=2.0),
        NUMBERS,
        VECTORS,
        VECTORS,
    ),
    "searchsorted": (lambda x, v: wf.searchsorted(wf.sort(x), v), VECTORS, NUMBERS),
    "searchsorted for a number": (lambda x: wf.searchsorted(wf.sort(x), 0.0), VECTORS),
}


@pytest.mark.parametrize("what", COMPOSITES)
def test_composites(what):
    agrees(*COMPOSITES[what])


def test_places_that_differ_on_two_levels():
    def inner(rows, i):
        return wf.vmap(lambda r, j: r[(i + j) % 2])(rows, wf.tensor([0, 1, -1]))

    agrees(inner, MATRICES, PLACES)


@pytest.mark.parametrize("right", [False, True])
def test_searchsorted_puts_nan_last(right):
    sequences = np.array([[0.0, 1.0, np.nan, np.nan], [-1.0, 0.0, 0.0, np.nan]])
    x = np.array([np.nan, 0.0, 2.0, -5.0])
    side = "right" if right else "left"
    got = wf.vmap(lambda s: wf.searchsorted(s, wf.tensor(x), side=side))(wf.tensor(sequences))
    want = np.stack([np.searchsorted(s, x, side) for s in sequences])
    np.testing.assert_array_equal(np.asarray(got), want)


REFUSED = {
    "by a mask": (lambda x, m: x[m], VECTORS, MASKS),
    "what is shared by a mask": (lambda m: WEIGHTS[m], MASKS),
    "values to where a mask is": (
        lambda x, m: x.at[m].set(wf.tensor([1.0, 2.0])),
        VECTORS,
        MASKS,
    ),
    "places that are not zero": (wf.nonzero, MASKS),
    "a slice": (lambda x, i: x[i:], VECTORS, PLACES),
    "distinct values": (wf.unique_values, VECTORS),
    "counts of unknown number": (lambda i: wf.bincount(i % 2), PAIRS),
}


@pytest.mark.parametrize("what", REFUSED)
def test_shapes_that_depend_on_values_are_refused(what):
    f, *args = REFUSED[what]
    with pytest.raises(errors.BatchingError):
        wf.vmap(f)(*args)


OUTSIDE = {
    "both": (lambda x, i: x[i + 3], VECTORS, PLACES),
    "what is shared": (lambda i: WEIGHTS[i + 3], PLACES),
    "shared places": (lambda x: x[wf.tensor([5])], VECTORS),
    "on another axis": (lambda x: wf.take(x, wf.tensor([5]), axis=1), MATRICES),
    "written": (lambda x, i: x.at[i + 3].set(0.0), VECTORS, PLACES),
    "added": (lambda x, i: x.at[i + 3].add(1.0), VECTORS, PLACES),
    "along an axis": (lambda x, i: wf.take_along_axis(x, i + 4, axis=0), VECTORS, PAIRS),
    "along a shared array": (lambda i: wf.take_along_axis(WEIGHTS, i + 4, axis=0), PAIRS),
    "shared along an axis": (
        lambda x: wf.take_along_axis(x, wf.tensor([5]), axis=0),
        VECTORS,
    ),
    "classes": (lambda i: wf.one_hot(i + 4, 3), PAIRS),
}


@pytest.mark.parametrize("what", OUTSIDE)
def test_places_outside_are_refused(what):
    f, *args = OUTSIDE[what]
    with pytest.raises(errors.IndexingError, match=r"out of range|not all in"):
        wf.vmap(f)(*args)


MISFITS = {
    "reshape": (lambda x: x.reshape(5), MATRICES, r"\(3, 2\) has 6 elements"),
    "add": (lambda x: x + wf.zeros(5), MATRICES, r"shapes \(3, 2\), \(5,\)"),
    "tril": (wf.tril, VECTORS, r"\(3,\) has 1 axes"),
    "concat": (lambda x: wf.concat([x, wf.zeros((2, 2))]), VECTORS, r"\(3,\) and \(2, 2\)"),
    "stack": (lambda x: wf.stack([x, wf.zeros(2)]), VECTORS, r"\(3,\) and \(2,\)"),
    "sum": (lambda x: x.sum(axis=2), MATRICES, "axis 2 is out of range for 2 dimensions"),
    "set": (lambda x: x.at[0].set(x), VECTORS, r"shape \(3,\) for places of shape \(\)"),
    "broadcast_to": (lambda x: wf.broadcast_to(x, (2, 2)), VECTORS, r"shapes \(3,\), \(2, 2\)"),
    "searchsorted": (lambda x: wf.searchsorted(x, 0.0), MATRICES, r"has shape \(3, 2\)"),
}


@pytest.mark.parametrize("size", [4, 3, 1, 0])
@pytest.mark.parametrize("what", MISFITS)
def test_errors_show_the_shapes_of_an_element(what, size):
    f, x, message = MISFITS[what]
    with pytest.raises(errors.WeftError, match=message):
        wf.vmap(f)(x[:size])
