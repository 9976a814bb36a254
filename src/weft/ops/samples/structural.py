"""Inputs for the rows of shape and of basic indexing."""

from dataclasses import replace
from typing import Any

import numpy as np

from ...core.aval import Shape
from .case import Case, Cases, Rng, Sampler


def draw(rng: Rng, shape: Shape, complex_: bool = False) -> np.ndarray:
    x = rng.standard_normal(shape)
    return x + 1j * rng.standard_normal(shape) if complex_ else x


def over(*cases: tuple[Any, ...]) -> Sampler:
    """A sampler of (shape, *static) for rows of one argument, the first of them complex too."""

    def sampler(rng):
        for k, (shape, *static) in enumerate(cases):
            label = " ".join(map(str, (shape, *static)))
            yield Case((draw(rng, shape),), tuple(static), label)
            if not k:
                yield Case((draw(rng, shape, True),), tuple(static), f"complex {label}")

    return sampler


arrays: Sampler = over(((2, 3),), ((),), ((0, 2),))


def constants(rng: Rng) -> Cases:
    """Derivatives are zero by decree: finite differences say nothing of them."""
    for case in arrays(rng):
        yield replace(case, smooth=False)


reshapes: Sampler = over(
    ((2, 3), (3, 2)), ((), (1, 1)), ((1,), ()), ((2, 0), (0, 3)), ((2, 2, 2), (8,))
)
permutes: Sampler = over(((2, 3), (1, 0)), ((), ()), ((2, 1, 3), (2, 0, 1)), ((0, 2), (1, 0)))
broadcasts: Sampler = over(
    ((3, 1), (2, 3, 2)), ((), (2, 2)), ((), ()), ((1,), (0,)), ((2, 1), (2, 1)), ((1, 2), (0, 3, 2))
)
flips: Sampler = over(((2, 3), (1,)), ((2, 3), (0, 1)), ((), ()), ((0, 2), (0,)), ((2, 2), ()))
rolls: Sampler = over(
    ((2, 3), (1,), (1,)), ((3, 2), (-1, 3), (0, 1)), ((0, 2), (1,), (0,)), ((3,), (1, 1), (0, 0))
)
diagonals: Sampler = over(((2, 3), 0), ((3, 3), -1), ((2, 2, 2), 1), ((0, 2), 0), ((2, 2), 5))


def casts(rng: Rng) -> Cases:
    for shape in ((2, 2), (), (0,)):
        yield Case((draw(rng, shape),), (np.dtype("float64"),), f"{shape} float64")
        yield Case((draw(rng, shape),), (np.dtype("complex128"),), f"{shape} real to complex")
        yield Case((draw(rng, shape, True),), (np.dtype("float64"),), f"{shape} complex to real")
    yield Case((np.array([7, -2, 0]),), (np.dtype("int8"),), "narrower integers")
    yield Case((np.array([1, 0, 3]),), (np.dtype("float64"),), "from integers")
    yield Case((np.array([True, False]),), (np.dtype("float64"),), "from booleans")


def sums(rng: Rng) -> Cases:
    yield from over(
        ((2, 3), (0,), False),
        ((2, 3), (1,), True),
        ((2, 3), (0, 1), False),
        ((2, 3), (), False),
        ((2, 2, 2), (0, 2), True),
        ((), (), True),
        ((0, 2), (0,), False),
        ((0, 2), (1,), True),
        ((2, 1, 3), (0, 1), True),
    )(rng)
    for dtype in ("int8", "uint8", "bool", "uint32", "uint64", "int64"):
        x = rng.integers(0, 2, (2, 3)).astype(dtype)
        yield Case((x,), ((0,), False), f"sum of {dtype}")


_SLICES = (
    ((3, 4), ((1, 2, 1), (0, 4, 1))),
    ((3, 4), (1, (3, 4, -1))),
    ((3, 4), ((2, 2, -2), 3)),
    ((3, 4), ((0, 0, 1), (1, 2, 2))),
    ((3, 2), (2, None, 1)),
    ((3, 2), (None, (0, 3, 1), None, (1, 2, -1))),
    ((), ()),
    ((), (None, None)),
    ((0, 2), ((0, 0, 1), 1)),
    ((5,), ((4, 2, -3),)),
    ((2, 2, 2), (0, (1, 2, -1), (0, 1, 1))),
)


def slices(rng: Rng) -> Cases:
    yield from over(*_SLICES)(rng)
    yield Case((np.arange(6).reshape(2, 3),), ((1, (2, 3, -1)),), "integers")


def _taken_shape(index) -> tuple[int, ...]:
    return tuple(1 if p is None else p[1] for p in index if type(p) is not int)


def unslices(rng: Rng) -> Cases:
    yield from over(*((_taken_shape(index), index, shape) for shape, index in _SLICES))(rng)


def slice_sets(rng: Rng) -> Cases:
    for shape, index in _SLICES:
        x, v = draw(rng, shape), draw(rng, _taken_shape(index))
        yield Case((x, v), (index,), f"{shape} {index}")
    x, v = draw(rng, (2, 3), True), draw(rng, (3,), True)
    yield Case((x, v), (((0, 2, 1), (2, 3, -1)),), "complex, spread over rows")
    yield Case((draw(rng, (2, 3)), draw(rng, ())), ((1, (0, 2, 2)),), "a 0-d value")
    yield Case((draw(rng, (2, 3)), 0.5), ((1, (0, 2, 2)),), "a Python scalar")


_JOINED = (
    (((2, 3), (2, 1)), 1),
    (((2, 3),), 0),
    (((2, 2), (1, 2), (0, 2)), 0),
    (((1,), (2,), (3,)), 0),
    (((2, 0), (2, 0)), 0),
)


def concats(rng: Rng) -> Cases:
    for shapes, axis in _JOINED:
        ends = tuple(np.cumsum([s[axis] for s in shapes]).tolist())
        for complex_ in (False, True):
            args = tuple(draw(rng, s, complex_) for s in shapes)
            yield Case(args, (axis, ends), f"{shapes} on axis {axis} complex={complex_}")
    mixed = (draw(rng, (2,)), draw(rng, (1,), True), np.array([1, 2]))
    yield Case(mixed, (0, (2, 3, 5)), "dtypes mixed")


def stacks(rng: Rng) -> Cases:
    for shape, n, axis in (((2, 2), 2, 1), ((2,), 3, 0), ((2,), 2, 1), ((), 3, 0), ((0, 2), 2, 2)):
        for complex_ in (False, True):
            args = tuple(draw(rng, shape, complex_) for _ in range(n))
            yield Case(args, (axis,), f"{n} of {shape} on axis {axis} complex={complex_}")


def pads(rng: Rng) -> Cases:
    yield from over(
        ((2, 3), ((1, 0), (0, 2)), 0.0),
        ((2, 2), ((0, 0), (1, 1)), 2.5),
        ((), (), 1.0),
        ((0, 2), ((1, 1), (0, 1)), -1.0),
    )(rng)
    yield Case((draw(rng, (3,)),), (((2, 1),), float("-inf")), "infinities", smooth=False)
    yield Case((np.arange(3),), (((2, 1),), 7), "integers")


windows: Sampler = over(
    ((5,), 3, 1, 0),
    ((5,), 2, 2, 0),
    ((2, 4), 3, 1, 1),
    ((5, 2), 2, 3, 0),
    ((2, 4, 1), 1, 2, 1),
    ((0, 3), 2, 1, 1),
    ((4,), 4, 1, 0),
)

overlaps: Sampler = over(
    ((3, 3), 1, 0, 5),
    ((2, 2), 2, 0, 5),
    ((2, 2, 3), 1, 1, 4),
    ((2, 2, 2), 3, 0, 5),
    ((2, 4, 1), 1, 1, 4),
    ((0, 2, 2), 1, 1, 3),
    ((2, 3), 2, 0, 6),
)
