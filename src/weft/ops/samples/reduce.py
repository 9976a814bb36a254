"""Inputs for the reductions and the running sums and products."""

from math import inf

import numpy as np

from ...core.aval import Shape
from .case import Case, Cases, Rng

# Shape and axes.
_OVER = (
    ((3, 2), (0,)),
    ((3, 2), (1,)),
    ((2, 2, 3), (0, 2)),
    ((2, 3), (0, 1)),
    ((2, 1, 2), (1,)),
    ((5,), (0,)),
    ((1,), (0,)),
    ((3,), ()),
    ((), ()),
    ((0, 2), (1,)),
)
_NOTHING = (((0,), (0,)), ((2, 0), (1,)), ((2, 0, 3), (0, 1)))


def draw(rng: Rng, shape: Shape, complex_: bool = False) -> np.ndarray:
    """Entries between 0.3 and 1.5 in size, of either sign."""
    x = rng.uniform(0.3, 1.5, shape) * rng.choice([-1.0, 1.0], shape)
    return x + 1j * rng.uniform(0.2, 0.9, shape) if complex_ else x


def distinct(rng: Rng, shape: Shape) -> np.ndarray:
    """Entries no two of which are nearer than 0.2 to each other."""
    n = int(np.prod(shape))
    steps = rng.permutation(n) + rng.uniform(0, 0.5, n) - n / 3
    return np.asarray(0.4 * steps).reshape(shape)


def _reductions(shapes=_OVER):
    for shape, axes in shapes:
        for keepdims in (False, True):
            yield shape, axes, keepdims, f"{shape} over {axes}{' kept' * keepdims}"


def sums(rng: Rng) -> Cases:
    for shape, axes, keepdims, label in _reductions():
        yield Case((draw(rng, shape),), (axes, keepdims), label)
    for shape, axes, keepdims, label in _reductions(_OVER[:3]):
        yield Case((draw(rng, shape, True),), (axes, keepdims), f"complex {label}")


def _with_zeros(x, *places):
    x = x.copy()
    x.reshape(-1)[list(places)] = 0
    return x


def products(rng: Rng) -> Cases:
    yield from sums(rng)
    for shape, axes, keepdims, label in _reductions(_NOTHING):
        yield Case((draw(rng, shape),), (axes, keepdims), f"empty {label}")
    for n in (2, 3, 4, 5, 7):
        x = draw(rng, (n,))
        yield Case((_with_zeros(x, 1),), ((0,), False), f"a zero in {n}")
        yield Case((_with_zeros(x, 0, n - 1),), ((0,), False), f"two zeros in {n}")
    x = draw(rng, (2, 2, 3))
    yield Case((_with_zeros(x, 0, 1, 6),), ((0, 2), False), "zeros over two axes")
    yield Case((np.zeros((4,)),), ((0,), True), "only zeros")
    yield Case((_with_zeros(draw(rng, (3,), True), 1),), ((0,), False), "complex with a zero")


def extremes(rng: Rng) -> Cases:
    for shape, axes, keepdims, label in _reductions():
        yield Case((distinct(rng, shape),), (axes, keepdims), label)
    ties = np.array([[2.0, 1.0, 2.0], [1.0, 1.0, 1.0]])
    for axes in ((0,), (1,), (0, 1)):
        yield Case((ties,), (axes, False), f"ties over {axes}", smooth=False)
    yield Case((np.array([1.0, np.nan, 3.0]),), ((0,), False), "NaN", smooth=False)
    yield Case((np.array([1.0, -inf, inf]),), ((0,), False), "infinities", smooth=False)


def extreme_shares(rng: Rng) -> Cases:
    for case in extremes(rng):
        (x,), (axes, _) = case.args, case.static
        if x.size:
            top = np.max(x, axis=axes, keepdims=True)
            yield Case((x, top), (axes,), case.label, smooth=False)


def arg_extremes(rng: Rng) -> Cases:
    for shape, axis in (((3, 2), 0), ((3, 2), 1), ((3, 2), None), ((4,), 0), ((), None)):
        for keepdims in (False, True):
            yield Case((distinct(rng, shape),), (axis, keepdims), f"{shape} along {axis}")
    yield Case((np.array([[2.0, 1.0, 2.0], [1.0, 1.0, 1.0]]),), (1, False), "ties")
    yield Case((np.array([1.0, np.nan, 3.0, np.nan]),), (0, False), "NaN")
    yield Case((np.array([3, 1, 3, 1]),), (0, False), "integers")
    yield Case((np.array([False, True, True]),), (0, False), "booleans")
    yield Case((np.zeros((0, 2)),), (1, False), "empty")


def deviations(rng: Rng) -> Cases:
    for case in sums(rng):
        yield Case(case.args, (*case.static, 0), case.label)
    yield Case((draw(rng, (3, 2)),), ((0,), True, 1), "(3, 2) over (0,), correction 1")
    yield Case((draw(rng, (4,)),), ((0,), False, 1.5), "correction 1.5")
    yield Case((np.full((3,), 0.5),), ((0,), False, 0), "all equal", smooth=False)


def truths(rng: Rng) -> Cases:
    for shape, axes, keepdims, label in _reductions((*_OVER, *_NOTHING)):
        x = draw(rng, shape) * rng.choice([0.0, 1.0], shape)
        yield Case((x,), (axes, keepdims), label)
    yield Case((np.array([True, False]),), ((0,), False), "booleans")
    yield Case((np.array([[0, 3], [0, 0]]),), ((0,), True), "integers")
    yield Case((np.array([np.nan, 0.0, 1j]),), ((0,), False), "complex with NaN")


def norms(rng: Rng) -> Cases:
    for p in (2, 3, 4, 1.5, 0.5, -1, 2.5):
        for shape, axes, keepdims, label in _reductions(_OVER if p == 2 else _OVER[1:4:2]):
            yield Case((draw(rng, shape),), (axes, keepdims, p), f"{p}: {label}")
        yield Case((draw(rng, (3,), True),), ((0,), False, p), f"{p}: complex")
        zero = np.zeros((2,))
        yield Case((zero,), ((0,), False, p), f"{p}: of zero", smooth=False)
    for p in (2, 4):
        x = _with_zeros(draw(rng, (3,)), 1)
        yield Case((x,), ((0,), False, p), f"{p}: with a zero")
    x = np.array([[0.0, 0.0], [3.0, 4.0]])
    yield Case((x,), ((1,), False, 2), "2: a row of zeros", smooth=False)
    yield Case((_with_zeros(draw(rng, (3,)), 1),), ((0,), False, 3), "3: zero", smooth=False)
    yield Case((np.zeros((2, 0)),), ((1,), False, 2), "2: empty")


def logsumexp(rng: Rng) -> Cases:
    yield from sums(rng)
    for shape, axes, keepdims, label in _reductions(_NOTHING):
        yield Case((draw(rng, shape),), (axes, keepdims), f"empty {label}")
    yield Case((np.array([700.0, 710.0, 711.0]),), ((0,), False), "large", smooth=False)
    masked = np.array([[0.5, -inf, 1.0], [-inf, -inf, -inf]])
    yield Case((masked,), ((1,), False), "-inf", smooth=False)


def shares(rng: Rng) -> Cases:
    for case in logsumexp(rng):
        axes, keepdims = case.static
        if keepdims or not case.smooth:
            yield Case(case.args, (axes,), case.label, smooth=case.smooth)


def softmax(rng: Rng) -> Cases:
    for shape, axis in (
        ((3, 2), 0),
        ((3, 2), 1),
        ((2, 2, 2), 1),
        ((1,), 0),
        ((0, 2), 1),
        ((2, 0), 1),
    ):
        yield Case((draw(rng, shape),), (axis,), f"{shape} along {axis}")
    yield Case((np.array([700.0, 710.0, 711.0]),), (0,), "large", smooth=False)
    yield Case((np.array([0.5, -inf, 1.0]),), (0,), "-inf", smooth=False)


def softmax_products(rng: Rng) -> Cases:
    for shape, axis in (((3, 2), 0), ((2, 3), 1), ((1,), 0), ((0, 2), 1), ((2, 0), 1)):
        yield Case((draw(rng, shape), draw(rng, shape)), (axis,), f"{shape} along {axis}")


_ALONG = (((3, 2), 0), ((2, 4), 1), ((2, 3, 2), 1), ((5,), 0), ((1,), 0), ((0, 2), 1), ((2, 0), 1))


def running(rng: Rng) -> Cases:
    for shape, axis in _ALONG:
        yield Case((draw(rng, shape),), (axis,), f"{shape} along {axis}")


def running_sums(rng: Rng) -> Cases:
    yield from running(rng)
    yield Case((draw(rng, (2, 3), True),), (1,), "complex")


def running_products(rng: Rng) -> Cases:
    yield from running_sums(rng)
    for n in (2, 3, 6):
        x = draw(rng, (n,))
        yield Case((_with_zeros(x, 1),), (0,), f"a zero in {n}")
        yield Case((_with_zeros(x, 0, n - 1),), (0,), f"two zeros in {n}")
    yield Case((_with_zeros(draw(rng, (2, 4)), 1, 2, 4),), (1,), "zeros in rows")


def running_logs(rng: Rng) -> Cases:
    yield from running(rng)
    yield Case((np.array([-800.0, 700.0, 710.0, -5.0]),), (0,), "large", smooth=False)
    yield Case((np.array([-inf, -inf, 0.5, -inf, 1.0]),), (0,), "-inf", smooth=False)


def recurrences(rng: Rng) -> Cases:
    for shape, axis in _ALONG:
        a, b = draw(rng, shape), draw(rng, shape)
        yield Case((a, b), (axis,), f"{shape} along {axis}")
    yield Case((draw(rng, (2, 3), True), draw(rng, (2, 3), True)), (1,), "complex")
    yield Case((_with_zeros(draw(rng, (4,)), 0, 2), draw(rng, (4,))), (0,), "zeros")
    yield Case((draw(rng, (300,)), draw(rng, (300,))), (0,), "in blocks")
