"""Inputs for the rows of indexing by arrays: duplicates, negative indices, none at all."""

import numpy as np

from .case import Case, Cases, Rng
from .structural import draw

# (shape of x, indices, axis)
_TAKES = (
    ((4, 2), [0, 2, 0, -1], 0),
    ((2, 3), [[2, 0], [2, 2]], 1),
    ((3,), 1, 0),
    ((2, 3), -1, 1),
    ((3, 2), [], 0),
    ((2, 3, 2), [1, 1], 1),
    ((0, 2), [], 0),
    ((2, 0), [1, 1, 0], 0),
    ((2, 0), [[]], 1),
)


def _index(i) -> np.ndarray:
    return np.asarray(i, np.int64)


def _taken_shape(shape, i, axis) -> tuple[int, ...]:
    return (*shape[:axis], *i.shape, *shape[axis + 1 :])


def takes(rng: Rng) -> Cases:
    for k, (shape, i, axis) in enumerate(_TAKES):
        yield Case((draw(rng, shape), _index(i)), (axis,), f"{shape}[{i}] on axis {axis}")
        if k < 2:
            yield Case((draw(rng, shape, True), _index(i)), (axis,), f"complex {shape}[{i}]")
    yield Case((draw(rng, (3,)), np.array([2, 0], np.int32)), (0,), "int32 indices")
    yield Case((np.arange(4), _index([3, 3])), (0,), "integers")


def segment_sums(rng: Rng) -> Cases:
    for k, (shape, i, axis) in enumerate(_TAKES):
        i = _index(i)
        x = draw(rng, _taken_shape(shape, i, axis), complex_=k == 1)
        yield Case((x, i), (axis, shape[axis]), f"{i.tolist()} into {shape} on axis {axis}")


def index_puts(rng: Rng) -> Cases:
    for k, (shape, i, axis) in enumerate(_TAKES):
        i = _index(i)
        v = draw(rng, _taken_shape(shape, i, axis), complex_=k == 1)
        label = f"{i.tolist()} of {shape} on axis {axis}"
        yield Case((draw(rng, shape, complex_=k == 1), i, v), (axis,), label)
    i = _index([1, 0, 1])
    yield Case((draw(rng, (2, 3)), i, draw(rng, ())), (0,), "a 0-d value, duplicates")
    yield Case((draw(rng, (2, 3)), i, draw(rng, (3, 1))), (0,), "a spread value, duplicates")
    yield Case((draw(rng, (2, 3)), _index([[1, 0], [1, 1]]), draw(rng, (2, 1))), (1,), "spread")
    yield Case((draw(rng, (2, 3)), i, 0.5), (1,), "a Python scalar")


def writes(rng: Rng) -> Cases:
    for i, size in (([0, 2, 0, 1], 3), ([[1, -1], [1, 0]], 2), ([], 2), (1, 2)):
        yield Case((_index(i),), (size,), f"{i} of {size}")


# (shape of x, indices, axis)
_ALONGS = (
    ((2, 3), [[2, 0, 2, -1], [1, 1, 1, 0]], 1),
    ((3, 2), [[2, 0]], 0),
    ((3,), [1, 1, 0, 1], 0),
    ((2, 2, 2), [[[1, 0]], [[0, -2]]], 1),
    ((2, 3), np.zeros((2, 0), int), 1),
    ((0, 2), np.zeros((0, 3), int), 1),
)


def alongs(rng: Rng) -> Cases:
    for shape, i, axis in _ALONGS:
        for complex_ in (False, True):
            x = draw(rng, shape, complex_)
            yield Case((x, _index(i)), (axis,), f"{shape} on axis {axis} complex={complex_}")


def scatter_sums(rng: Rng) -> Cases:
    for shape, i, axis in _ALONGS:
        i = _index(i)
        for complex_ in (False, True):
            label = f"into {shape} on axis {axis} complex={complex_}"
            yield Case((draw(rng, i.shape, complex_), i), (axis, shape[axis]), label)


def positions(rng: Rng) -> Cases:
    for shape, i, axis in _ALONGS:
        yield Case((_index(i),), (axis, shape, "scatter"), f"{shape} on axis {axis}")
    yield Case((_index([[1], [0]]),), (1, (3, 2), "scatter"), "fewer rows than the array")


def ravels(rng: Rng) -> Cases:
    yield Case((_index([0, -1]), _index([[1], [2]])), ((2, 3),), "broadcast")
    yield Case((_index(1), _index([0, 1, 1]), _index(-2)), ((2, 2, 4),), "three axes")
    yield Case((_index([]), _index(0)), ((0, 2),), "none")


def masks(rng: Rng) -> Cases:
    for mask in (rng.random((2, 3)) < 0.5, np.array(True), np.zeros((0, 2), bool)):
        yield Case((mask,), (), f"{mask.shape}")


def one_hots(rng: Rng) -> Cases:
    for i in (_index([2, 0, 2]), _index(1), _index([[0], [1]]), _index([])):
        yield Case((i,), (3, np.dtype("float64")), f"{i.shape}")
        yield Case((i,), (3, np.dtype("int32")), f"{i.shape} int32")
