"""Inputs for the rows about the order of elements."""

import numpy as np

from .case import Case, Cases, Rng
from .reduce import distinct

_ALONG = (((3, 2), 0), ((2, 4), 1), ((2, 3, 2), 1), ((5,), 0), ((1,), 0), ((0, 2), 1), ((2, 0), 1))
_TIES = np.array([[2.0, 1.0, 2.0, 1.0], [1.0, 1.0, 1.0, 0.0]])
_NANS = np.array([1.0, np.nan, 3.0, np.nan, -2.0])


def orders(rng: Rng) -> Cases:
    for shape, axis in _ALONG:
        for descending in (False, True):
            label = f"{shape} along {axis}{' down' * descending}"
            yield Case((distinct(rng, shape),), (axis, descending), label)
    for descending in (False, True):
        yield Case((_TIES,), (1, descending), "ties", smooth=False)
        yield Case((_NANS,), (0, descending), "NaN", smooth=False)


def running(rng: Rng) -> Cases:
    for shape, axis in _ALONG:
        yield Case((distinct(rng, shape),), (axis,), f"{shape} along {axis}")
    yield Case((_TIES,), (1,), "ties", smooth=False)
    yield Case((_NANS,), (0,), "NaN", smooth=False)


def topk(rng: Rng) -> Cases:
    for largest in (True, False):
        for shape, axis, k in (((3, 2), 0, 2), ((2, 4), 1, 3), ((4,), 0, 0), ((9,), 0, 2)):
            label = f"{k} of {shape} along {axis}{' largest' * largest}"
            yield Case((distinct(rng, shape),), (k, axis, largest), label)
        yield Case((np.zeros((2, 0)),), (0, 1, largest), "empty")
        yield Case((distinct(rng, (2, 9)),), (9, 1, largest), "all")


def peaks(rng: Rng) -> Cases:
    for shape, axis in (((3, 2), 0), ((2, 4), 1), ((2, 3, 2), 1), ((1,), 0), ((0, 2), 1)):
        yield Case((distinct(rng, shape),), (axis,), f"{shape} along {axis}")
    yield Case((_TIES,), (1,), "ties", smooth=False)
    yield Case((_NANS[:3],), (0,), "NaN", smooth=False)


def searches(rng: Rng) -> Cases:
    sequence = np.array([-1.0, 0.0, 0.0, 2.0])
    for right in (False, True):
        for shape in ((3, 2), (), (0,)):
            yield Case((sequence, rng.uniform(-2, 3, shape)), (right,), f"{shape}")
        yield Case((sequence, sequence), (right,), "ties")
        integers = np.sort(rng.integers(0, 8, 3))
        yield Case((integers, rng.integers(0, 8, (2, 2))), (right,), "integers")
        yield Case((np.zeros(0), sequence), (right,), "in nothing")


def duplicates(rng: Rng) -> Cases:
    # Floats that repeat would no longer do so when the tests move them.
    yield Case((distinct(rng, (2, 2)),), (), "matrix")
    yield Case((np.array([[3, 1, 3], [3, 1, 2]]),), (), "integers")
    yield Case((np.array([True, False, True]),), (), "booleans")
    yield Case((np.array([np.nan, 1.0, np.nan, 0.5]),), (), "NaN")
    yield Case((np.array(2.0),), (), "0-d")
    yield Case((np.zeros((0, 2)),), (), "empty")


def bins(rng: Rng) -> Cases:
    yield Case((np.array([0, 3, 1, 3]),), (5,), "some")
    yield Case((np.zeros(0, np.int64),), (2,), "none")
