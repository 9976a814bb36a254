"""Inputs for the rows of windows: convolutions and pools."""

from math import prod

import numpy as np

from ...backend.shared.window_sizes import counts_of
from .case import Case, Cases, Rng, Sampler
from .linalg import draw

# images, channels, size, channels of the result, kernel, stride, padding, dilation, groups
_CONVOLUTIONS = {
    "line": (1, 1, (4,), 2, (2,), (1,), ((0, 0),), (1,), 1),
    "padded": (1, 2, (3,), 1, (3,), (1,), ((1, 1),), (1,), 1),
    "steps": (1, 1, (5,), 1, (2,), (2,), ((1, 0),), (1,), 1),
    "cropped": (1, 1, (5,), 1, (2,), (2,), ((0, -1),), (1,), 1),
    "dilated": (1, 1, (5,), 1, (2,), (2,), ((1, 0),), (3,), 1),
    "steps beyond the kernel": (2, 1, (4,), 1, (1,), (3,), ((0, 0),), (1,), 1),
    "groups": (1, 4, (2,), 2, (2,), (1,), ((0, 0),), (1,), 2),
    "depthwise": (1, 2, (3,), 2, (2,), (1,), ((0, 1),), (1,), 2),
    "several by channel": (1, 2, (2,), 4, (2,), (1,), ((0, 0),), (1,), 2),
    "plane": (1, 1, (3, 2), 1, (2, 2), (1, 1), ((0, 0), (1, 0)), (1, 1), 1),
    "plane by steps": (1, 1, (3, 3), 1, (2, 1), (1, 2), ((0, 0), (0, 0)), (2, 1), 1),
    "single elements": (2, 2, (3, 1), 2, (1, 1), (2, 1), ((0, 0), (0, 0)), (1, 1), 1),
    "space": (1, 1, (2, 2, 2), 1, (1, 2, 2), (1, 1, 2), ((0, 0),) * 3, (1, 1, 1), 1),
    "no images": (0, 1, (3,), 1, (2,), (1,), ((0, 0),), (1,), 1),
    "no channels": (1, 0, (3,), 1, (2,), (1,), ((0, 0),), (1,), 1),
}
_BIASED = ("padded", "complex padded", "groups", "depthwise", "plane", "no images")
_COMPLEX = ("padded", "steps", "depthwise")


def _cases(arrays):
    """A sampler: `arrays` gives the two arguments' shapes."""

    def sampler(rng):
        for label, (n, c, size, o, kernel, *how, groups) in _CONVOLUTIONS.items():
            counts = counts_of(size, kernel, *how)
            shapes = {"x": (n, c, *size), "w": (o, c // groups, *kernel), "y": (n, o, *counts)}
            first, second = (shapes[role] for role in arrays)
            static = (*how, groups)
            yield Case((draw(rng, first), draw(rng, second)), static, label)
            if label in _COMPLEX:
                pair = draw(rng, first, True), draw(rng, second, True)
                yield Case(pair, static, f"complex {label}")
            if label == "padded":
                yield Case((draw(rng, first), draw(rng, second, True)), static, "real by complex")

    return sampler


convolutions: Sampler = _cases("xw")
transposed: Sampler = _cases("yw")
weights: Sampler = _cases("xy")


def biased_convolutions(rng: Rng) -> Cases:
    for case in convolutions(rng):
        x, w = case.args
        if case.label in _BIASED:
            yield Case((x, w, draw(rng, w.shape[:1], w.dtype.kind == "c")), case.static, case.label)


def convolution_gradients(rng: Rng) -> Cases:
    for case in convolutions(rng):
        x, w = case.args
        counts = counts_of(x.shape[2:], w.shape[2:], *case.static[:3])
        g = draw(rng, (x.shape[0], w.shape[0], *counts), w.dtype.kind == "c")
        yield Case((g, x, w), case.static, case.label)


# the axes in front, size, kernel, stride, padding, dilation
_POOLS = {
    "line": ((2,), (4,), (2,), (2,), ((0, 0),), (1,)),
    "overlapping": ((), (5,), (3,), (1,), ((1, 1),), (1,)),
    "cropped": ((1, 1), (6,), (2,), (3,), ((0, -1),), (1,)),
    "dilated": ((2,), (5,), (2,), (1,), ((0, 0),), (3,)),
    "plane": ((1, 2), (2, 4), (2, 2), (2, 2), ((0, 0),) * 2, (1, 1)),
    "plane, padded": ((2,), (3, 2), (2, 2), (2, 1), ((1, 0), (1, 0)), (1, 1)),
    "beyond the end": ((1,), (4,), (3,), (2,), ((1, 0),), (1,)),
    "space": ((), (2, 3, 2), (1, 2, 2), (1, 1, 2), ((0, 0),) * 3, (1, 1, 1)),
    "nothing": ((0,), (3,), (2,), (1,), ((0, 0),), (1,)),
}


def _pools(make):
    """A sampler of make(rng, shape of the array, shape of the results, how)."""

    def sampler(rng):
        for label, (lead, size, *how) in _POOLS.items():
            counts = counts_of(size, *how)
            yield from make(rng, (*lead, *size), (*lead, *counts), tuple(how), label)

    return sampler


def _distinct(rng, shape):
    """Numbers that differ by at least a half, so that finite differences see no kink."""
    n = prod(shape)
    return (rng.permutation(n) - n / 2 + rng.uniform(0, 0.4, n)).reshape(shape)


def _max_cases(rng, shape, counts, how, label):
    yield Case((_distinct(rng, shape),), how, label)
    if label == "overlapping":
        yield Case((np.array([1.0, 2.0, 2.0, 2.0, np.nan]),), how, "equal", smooth=False)


def _pick_cases(rng, shape, counts, how, label):
    taps = rng.integers(0, prod(how[0]), counts)
    yield Case((draw(rng, shape), taps), how, label)
    yield Case((draw(rng, shape, True), taps), how, f"complex {label}")


def _put_cases(rng, shape, counts, how, label):
    taps = rng.integers(0, prod(how[0]), counts)
    yield Case((draw(rng, counts), taps), how, label)
    yield Case((draw(rng, counts, True), taps), how, f"complex {label}")


def _make_sums(which: int):
    def cases(rng, *rest):
        shapes, (*how, dilation), label = rest[:2], rest[2], rest[3]
        if set(dilation) == {1}:
            yield Case((draw(rng, shapes[which]),), tuple(how), label)
            yield Case((draw(rng, shapes[which], True),), tuple(how), f"complex {label}")

    return cases


max_pools: Sampler = _pools(_max_cases)
picks: Sampler = _pools(_pick_cases)
puts: Sampler = _pools(_put_cases)
sum_pools: Sampler = _pools(_make_sums(0))
spreads: Sampler = _pools(_make_sums(1))
