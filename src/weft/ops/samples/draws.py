"""Inputs for the rows of random numbers: states of streams."""

import numpy as np

from .case import Case, Cases, Rng

_SHAPES = ((3, 2), (), (5,), (0, 2))


def _state(rng):
    """A stream's key, position and nonce."""
    return rng.integers(0, 2**63, 3).astype(np.uint64)


def _cases(rng, *how):
    for shape in _SHAPES:
        yield Case((_state(rng),), (shape, *how), f"{shape}")


def draw_uniform(rng: Rng) -> Cases:
    for name in ("float32", "float64", "float16"):
        dtype = np.dtype(name)
        last = float(np.nextafter(dtype.type(1), dtype.type(0)))
        yield from _cases(rng, dtype, 0.0, 1.0, last)
    last = float(np.nextafter(np.float32(2), np.float32(0)))
    yield from _cases(rng, np.dtype("complex64"), -1.0, 2.0, last)


def draw_normal(rng: Rng) -> Cases:
    for name in ("float32", "float64"):
        yield from _cases(rng, np.dtype(name), 0.0, 1.0)
        yield from _cases(rng, np.dtype(name), 2.0, 0.5)


def draw_integers(rng: Rng) -> Cases:
    yield from _cases(rng, np.dtype("int64"), -3, 10)
    yield from _cases(rng, np.dtype("uint8"), 0, 256)
    yield from _cases(rng, np.dtype("int64"), -(2**62), 2**63)


def draw_below(rng: Rng) -> Cases:
    for threshold in (0, 1 << 31, 1 << 32):
        yield from _cases(rng, threshold)


def draw_below_each(rng: Rng) -> Cases:
    for shape, of in (((3, 2), (2,)), ((4,), ()), ((2, 3), (2, 3)), ((0, 2), (2,))):
        yield Case((_state(rng), rng.uniform(0, 2**32, of)), (shape,), f"{shape} {of}")


def draw_order(rng: Rng) -> Cases:
    for n in (5, 1, 0, 40):
        yield Case((_state(rng),), (n,), f"{n}")
