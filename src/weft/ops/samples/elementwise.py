"""Inputs for the elementwise rows."""

from math import inf, nan
from typing import Any

import numpy as np

from ...core.types import Static
from .case import PAIRS, SHAPES, Case, Cases, Rng, Sampler, reals


def point(*values: Any, static: Static = (), smooth: bool = True, label: str = "point") -> Case:
    """Arguments stated in full: lists become arrays, scalars stay Python's."""
    args = tuple(np.array(v) if isinstance(v, list) else v for v in values)
    return Case(args, static, label, smooth=smooth)


def kinks(*values: Any, static: Static = ()) -> Case:
    """A stated case at which finite differences say nothing."""
    return point(*values, static=static, smooth=False, label="kink")


def chain(*parts: Sampler | Case) -> Sampler:
    """The draws of some samplers and stated cases, one after the other."""

    def sampler(rng):
        for part in parts:
            yield from (part,) if isinstance(part, Case) else part(rng)

    return sampler


def with_static(sampler: Sampler, *statics: Static) -> Sampler:
    """The draws of `sampler`, each under every set of static parameters."""

    def each(rng):
        for static in statics:
            for case in sampler(rng):
                yield Case(case.args, static, f"{case.label} {static}", smooth=case.smooth)

    return each


def _shapes(count: int):
    return [(s,) for s in SHAPES] if count == 1 else PAIRS


def integers(*ranges: tuple[int, int]) -> Sampler:
    """Whole numbers as int64, one (low, high) range, high excluded, for each argument."""

    def sampler(rng):
        for shapes in _shapes(len(ranges)):
            args = (rng.integers(lo, hi, s) for (lo, hi), s in zip(ranges, shapes, strict=True))
            yield Case(tuple(args), label="integers " + "×".join(map(str, shapes)))

    return sampler


def truths(count: int) -> Sampler:
    """Booleans."""

    def sampler(rng):
        for shapes in _shapes(count):
            yield Case(tuple(rng.random(s) < 0.5 for s in shapes), label="booleans")

    return sampler


def selections(rng: Rng) -> Cases:
    """A condition and two branches, broadcast every way; branches that are Python scalars."""
    for c, a, b in (((3, 2),) * 3, ((2,), (3, 2), ()), ((3, 1), (1, 2), (2,)), ((0, 2), (2,), ())):
        condition = rng.random(c) < 0.5
        left, right = rng.normal(size=a), rng.normal(size=b)
        yield Case((condition, left, right), label=f"{c}×{a}×{b}")
        yield Case((condition, left + 1j, right * 1j), label=f"complex {c}×{a}×{b}")
    yield point([True, False], [1.0, 2.0], 0.0, label="scalar branch")
    yield point([True, False], 0.5, [1.0, 2.0], label="scalar branch")


real: Sampler = reals((-2, 2))
unary: Sampler = reals((-2, 2), complex_too=True)
beyond_zero: Sampler = reals((0.2, 3), complex_too=True)
positive: Sampler = chain(beyond_zero, kinks([0.0]))
within_one: Sampler = chain(reals((-0.9, 0.9), complex_too=True), kinks([-1.0, 1.0]))
beyond_one: Sampler = chain(
    reals((1.2, 3), complex_too=True), point([-1.5 + 0.5j, -0.5 - 2j]), kinks([1.0])
)
above_minus_one: Sampler = chain(reals((-0.8, 2), complex_too=True), kinks([-1.0]))
roots: Sampler = chain(reals((0.2, 3)), point([-2.0, -0.3]), kinks([0.0]))
squares: Sampler = chain(unary, point([0.0, -0.0, 1.5], label="zero"))
polar: Sampler = chain(unary, kinks([0.0, -0.0, 1.5]), kinks([0j, 1 + 1j]))

_scalar_right, _scalar_left = point([0.5, 2.0], 3.0), point(-1.5, [0.5, 2.0])
binary: Sampler = chain(reals((-2, 2), (-2, 2), complex_too=True), _scalar_right, _scalar_left)
products: Sampler = chain(binary, kinks([0.0, 2.0], [0.0, 0.0]))
quotients: Sampler = chain(
    reals((-2, 2), (0.4, 2), complex_too=True),
    _scalar_right,
    _scalar_left,
    kinks([0.0, 1.0], [0.0, 0.0]),
)
steps: Sampler = chain(
    reals((2.4, 2.45), (1.0, 1.02)),
    integers((-9, 9), (1, 4)),
    point([-7, 7, -7, 7], [2, 2, -2, -2], label="integers of either sign"),
    point([-5.0, 5.0, -5.0, 5.0], [2.0, 2.0, -2.0, -2.0], label="either sign"),
    point([5.0, -3.0], 2.0),
    kinks([4.0, 0.0, 1.0], [2.0, 1.0, 0.0]),
)
scalar_powers: Sampler = chain(
    with_static(
        beyond_zero, (0,), (1,), (2,), (3,), (4,), (7,), (-1,), (-2,), (0.5,), (2.5,), (-1.5,)
    ),
    *(point([0.0, -1.5], static=(n,)) for n in (0, 1, 2, 3, 4, 5)),
    kinks([0.0], static=(0.5,)),
    kinks([0.0], static=(-1,)),
    point([2, 3], static=(3,), label="integers"),
)
powers: Sampler = chain(
    reals((0.3, 2), (-2, 2), complex_too=True),
    point([0.5, 2.0], 3.0),
    point([-0.5, 0.0, -2.0], 2, label="whole exponent"),
    point(2.0, [0.5, 2.0]),
    point([2, 3, 0], [0, 2, 3], label="integers"),
    kinks([0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 2.0, 3.0]),
    kinks([0.0, 0.0], [0.5, -1.0]),
)
distances: Sampler = chain(reals((0.3, 2), (-2, 2)), _scalar_right, kinks([0.0, 0.0], [0.0, 1.0]))
angles: Sampler = chain(
    reals((0.3, 2), (-2, 2)), _scalar_right, point(1.5, [0.5, -2.0]), kinks([0.0], [0.0])
)
log_sums: Sampler = chain(
    reals((-2, 2), (-2, 2)),
    point([0.5, -2.0], 0.0),
    point([500.0, 1.0], [501.0, 1.0], label="large and equal"),
    kinks([-inf, -inf, 1.0], [-inf, 1.0, -inf]),
)
fractions: Sampler = chain(
    reals((0.1, 0.4)),
    point([-1.7, -0.3, 1.2, 2.7]),
    kinks([-2.5, -0.5, -0.0, 0.0, 0.5, 1.5, 2.5]),
    point([3, -4], label="integers"),
)
rounded: Sampler = chain(fractions, point([1.2 - 0.7j, 2.6 + 0.2j]))
signs: Sampler = chain(
    reals((0.3, 2), (-2, -0.3)), point([-0.5, 2.0], -0.0), kinks([0.0, -0.0], [1.0, -1.0])
)


def sign_products(rng: Rng) -> Cases:
    for shape in SHAPES:
        x = rng.uniform(0.3, 2, shape) * rng.choice([-1.0, 1.0], shape)
        yield Case((rng.normal(size=shape), x, np.abs(x)), label=f"{shape}")
    yield kinks([1.0, -2.0, 3.0], [0.0, -0.0, -1.5], [0.0, 0.0, 1.5])


neighbours: Sampler = chain(reals((-2, 2), (-2, 2)), point([0.0, 1.0, -0.0], [1.0, inf, 0.0]))
tied: Sampler = chain(
    reals((-1, 1), (-1, 1)),
    point([0.5, -2.0], 0.0),
    kinks([1.0, 2.0, -0.0], [1.0, 3.0, 0.0]),
    point([1, 5], [3, 2], label="integers"),
)


def gates(rng: Rng) -> Cases:
    for shape in SHAPES:
        yield Case((rng.normal(size=shape), rng.random(shape) < 0.5), label=f"{shape}")


rectified: Sampler = chain(reals((0.2, 2)), point([-1.0, 2.0]), kinks([0.0, -0.0]))
clipped: Sampler = chain(
    with_static(reals((-2, 2)), (-0.5, 1.0), (None, 0.5), (0, None), (None, None), (1.0, -1.0)),
    kinks([-1.0, 0.0, 1.0], static=(-1.0, 1.0)),
    point([-3, 2, 7], static=(0, 5), label="integers"),
)

compared: Sampler = chain(
    reals((-1, 1), (-1, 1)),
    integers((-2, 3), (-2, 3)),
    point([1.0, 2.0, -0.0, nan], [1.0, 3.0, 0.0, nan]),
    point([1.0, 2.0], 1.0),
    point(2, [1, 2, 3]),
)
equated: Sampler = chain(compared, point([1j, 1 + 1j], [1j, 1.0 + 0j]))
tested: Sampler = chain(reals((-1, 1)), point([0.0, -0.0, 1.5, -2.0, inf, -inf, nan]))
bits: Sampler = chain(truths(2), integers((-8, 8), (-8, 8)))
