"""Elementary functions beside mpmath: two units in the last place, right at every edge."""

import mpmath as mp
import numpy as np
import pytest
import scipy.special as sp

from weft.core import dtypes

from ..kernels import of_row

FLOATS = (dtypes.float32, dtypes.float64)
COUNT = 400


def normal(x):
    return mp.erfc(-x / mp.sqrt(2)) / 2


def uniform(low, high):
    return lambda rng, dtype: rng.uniform(low, high, COUNT)


def powers(low, high, signed=True):
    """± powers of two with exponents between fractions of the dtype's range."""

    def draw(rng, dtype):
        top = {dtypes.float32: 126, dtypes.float64: 1021}[dtype]
        x = np.exp2(rng.uniform(low * top, high * top, COUNT))
        return x * rng.choice([-1, 1], COUNT) if signed else x

    return draw


def largest(share):
    """Within a share of the range in which the exponential is finite."""

    def draw(rng, dtype):
        top = {dtypes.float32: 88.7, dtypes.float64: 709.7}[dtype]
        return rng.uniform(-1.17 * top, share * top, COUNT)

    return draw


def turns(rng, dtype):
    """Floats next to multiples of π/2."""
    return np.pi / 2 * rng.integers(-60_000, 60_000, COUNT)


def near_one(rng, dtype):
    return 1 + np.exp2(rng.uniform(-20, -1, COUNT)) * rng.choice([-1, 1], COUNT)


small = powers(-0.25, -0.001)
# Function: mpmath's, and where it is tried.
ONE = {
    "exp": (mp.exp, [largest(1), uniform(-2, 2), small]),
    "exp2": (lambda x: mp.mpf(2) ** x, [uniform(-149, 127), uniform(-2, 2)]),
    "expm1": (mp.expm1, [largest(1), uniform(-2, 2), small]),
    "log": (mp.log, [powers(-1, 1, False), near_one, uniform(0.5, 3)]),
    "log2": (lambda x: mp.log(x, 2), [powers(-1, 1, False), near_one, uniform(0.5, 3)]),
    "log10": (mp.log10, [powers(-1, 1, False), near_one, uniform(0.5, 3)]),
    "log1p": (mp.log1p, [powers(-0.5, 1, False), uniform(-0.999, 3), small]),
    "sin": (mp.sin, [uniform(-4, 4), uniform(-1e5, 1e5), turns, powers(-0.3, 1)]),
    "cos": (mp.cos, [uniform(-4, 4), uniform(-1e5, 1e5), turns, powers(-0.3, 1)]),
    "tan": (mp.tan, [uniform(-4, 4), uniform(-1e5, 1e5), turns, powers(-0.3, 1)]),
    "tanh": (mp.tanh, [uniform(-3, 3), uniform(-30, 30), small]),
    "sinh": (mp.sinh, [largest(1), uniform(-3, 3), small]),
    "cosh": (mp.cosh, [largest(1), uniform(-3, 3)]),
    "asin": (mp.asin, [uniform(-1, 1), small]),
    "acos": (mp.acos, [uniform(-1, 1), small]),
    "atan": (mp.atan, [uniform(-5, 5), powers(-0.9, 1)]),
    "asinh": (mp.asinh, [uniform(-5, 5), powers(-0.9, 1)]),
    "acosh": (mp.acosh, [uniform(1, 4), powers(0, 1, False)]),
    "atanh": (mp.atanh, [uniform(-0.999, 0.999), small]),
    "cbrt": (lambda x: mp.sign(x) * mp.cbrt(abs(x)), [powers(-1, 1), uniform(-3, 3)]),
    "expit": (lambda x: 1 / (1 + mp.exp(-x)), [uniform(-5, 5), uniform(-80, 30)]),
    "softplus": (lambda x: mp.log1p(mp.exp(x)), [uniform(-5, 5), uniform(-80, 30)]),
    "erf": (mp.erf, [uniform(-2, 2), uniform(-5, 5), powers(-0.9, 0)]),
    "erfc": (mp.erfc, [uniform(-3, 3), uniform(0, 9), small]),
    "erfcx": (lambda x: mp.exp(x * x) * mp.erfc(x), [uniform(-4, 4), uniform(0, 100)]),
    "ndtr": (normal, [uniform(-4, 4), uniform(-12, 0)]),
    "log_ndtr": (lambda x: mp.log(normal(x)), [uniform(-4, 4), uniform(-50, 0)]),
    "gelu": (lambda x: x * normal(x), [uniform(-4, 4), uniform(-12, 0), small]),
    "gammaln": (lambda x: mp.log(abs(mp.gamma(x))), [uniform(3, 50)]),
}
# Units where two are not reached: float64's tails of the normal distribution, float32's product
# of one, which is quick instead; SciPy's Γ.
UNITS = {"erfc": 2.5, "ndtr": 2.6, "gelu": 5, "gammaln": 4, "log_ndtr": 4}
TWO = {
    "pow": (lambda x, y: x**y, [uniform(0.1, 3), uniform(-30, 30)]),
    "atan2": (mp.atan2, [uniform(-3, 3), powers(-0.2, 0.2)]),
    "hypot": (mp.hypot, [powers(-0.9, 0.9), powers(-0.9, 0.9)]),
}


def exactly(function, *xs: np.ndarray) -> list:
    mp.mp.prec = 1200 if max(np.abs(xs[0]), default=0) > 1e9 else 160
    return [function(*(mp.mpf(float(v)) for v in point)) for point in zip(*xs, strict=True)]


def check(name, function, units, *xs):
    got = of_row(name, xs, (), xs[0].dtype)
    info = np.finfo(xs[0].dtype)
    for value, want, *point in zip(got, exactly(function, *xs), *xs, strict=True):
        exponent = max(int(mp.floor(mp.log(abs(want), 2))) if want else -2000, info.minexp)
        unit = mp.mpf(2) ** (exponent - info.nmant)
        if abs(want) > float(info.max):
            assert np.isinf(value), (name, point, value)
            continue
        off = abs(mp.mpf(float(value)) - want) / unit
        assert off <= units, f"{name}{tuple(map(float, point))}: {value}, {mp.nstr(off, 4)} units"


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", ONE)
def test_functions_of_one_number(name, dtype):
    function, draws = ONE[name]
    rng = np.random.default_rng(1)
    x = np.concatenate([draw(rng, dtype) for draw in draws]).astype(dtype)
    if name in ("asin", "acos"):
        x = x[np.abs(x) <= 1]
    if name == "acosh":
        x = x[x >= 1]
    check(name, function, UNITS.get(name, 2.0), x)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", TWO)
def test_functions_of_two_numbers(name, dtype):
    function, draws = TWO[name]
    rng = np.random.default_rng(1)
    check(name, function, 2.0, *(draw(rng, dtype).astype(dtype) for draw in draws))


EDGES = {
    "expit": sp.expit,
    "erf": sp.erf,
    "erfc": sp.erfc,
    "erfcx": sp.erfcx,
    "ndtr": sp.ndtr,
    "log_ndtr": sp.log_ndtr,
    "softplus": lambda x: np.logaddexp(0, x),
    **{f"a{name}": getattr(np, f"arc{name}") for name in ("sin", "cos", "tan", "sinh", "cosh")},
    **{name: getattr(np, name) for name in ("exp", "exp2", "expm1", "log", "log2", "log10")},
    **{name: getattr(np, name) for name in ("log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "atan2": np.arctan2,
    "hypot": np.hypot,
    "pow": np.power,
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", EDGES)
def test_zeros_infinities_nan_and_denormal_numbers(name, dtype):
    info = np.finfo(dtype)
    ends = [0.0, np.inf, info.max, info.tiny, info.smallest_subnormal, info.tiny * 0.75, 1, 0.5]
    ends += [2, 3, 1 + info.eps, 1 - info.eps, info.eps, 30, 100, 1000, 1e30, 87.5, 103.9, 745.1]
    x = np.array([s * e for e in ends for s in (1, -1)] + [np.nan]).astype(dtype)
    args = (x,) if name not in TWO else tuple(g.ravel() for g in np.meshgrid(x, x))
    with np.errstate(all="ignore"):
        want = EDGES[name](*(a.astype(np.float64) for a in args)).astype(dtype)
        got = of_row(name, args, (), dtype)
        near = np.abs(got - want) <= 4 * np.spacing(np.abs(want))
        if name in ("erfc", "ndtr", "log_ndtr"):  # where SciPy's are a few hundred units off
            near |= np.abs(got - want) <= 1e-12 * np.abs(want)
    signs = np.signbit(got) == np.signbit(want)
    right = ((near | (got == want)) & signs) | (np.isnan(got) & np.isnan(want))
    wrong = np.flatnonzero(~right)
    assert not wrong.size, [(*(a[i] for a in args), got[i], want[i]) for i in wrong[:3]]
