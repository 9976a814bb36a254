"""The test problems of Moré, Garbow and Hillstrom as plain functions of a tensor.

J. J. Moré, B. S. Garbow, K. E. Hillstrom: Testing Unconstrained Optimization Software. ACM
Transactions on Mathematical Software 7 (1981), 17-41. Each problem is Σ fᵢ(x)², with its standard
start and the minima that the article lists; numbers are as published, the last digit truncated or
rounded.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import pi

import numpy as np

import weft as wf


@dataclass(frozen=True)
class Problem:
    """A sum of squares.

    minima    the values of Σ fᵢ² at the listed minima, as published; "0" is exact
    solution  where Σ fᵢ² is zero, if that is known in closed form
    """

    residuals: Callable
    start: tuple[float, ...]
    minima: tuple[str, ...] = ("0",)
    solution: tuple[float, ...] = ()
    m: int = 0
    name: str = field(default="")


PROBLEMS: dict[str, Problem] = {}


def problem(start, m, minima=("0",), solution=(), name=""):
    """Enter a function into the list under its name (or another, where it is there twice)."""

    def entered(f):
        key = name or f.__name__
        PROBLEMS[key] = Problem(f, tuple(start), minima, tuple(solution), m, key)
        return f

    return entered


def numbers(text: str):
    return wf.asarray(np.array([float(word) for word in text.split()]))


def indices(n: int, first: int = 1):
    """1, 2, …, n as floats."""
    return wf.asarray(np.arange(first, first + n, dtype=np.float64))


def joined(*parts):
    """Numbers and vectors in one vector."""
    return wf.concat([wf.reshape(p, (-1,)) for p in parts])


@problem((-1.2, 1.0), 2, solution=(1.0, 1.0))
def rosenbrock(x):
    return wf.stack([10 * (x[1] - x[0] ** 2), 1 - x[0]])


@problem((0.5, -2.0), 2, ("0", "48.9842"), solution=(5.0, 4.0))
def freudenstein_and_roth(x):
    a, b = x
    return wf.stack([-13 + a + ((5 - b) * b - 2) * b, -29 + a + ((b + 1) * b - 14) * b])


@problem((0.0, 1.0), 2)
def powell_badly_scaled(x):
    return wf.stack([1e4 * x[0] * x[1] - 1, wf.exp(-x[0]) + wf.exp(-x[1]) - 1.0001])


@problem((1.0, 1.0), 3, solution=(1e6, 2e-6))
def brown_badly_scaled(x):
    return wf.stack([x[0] - 1e6, x[1] - 2e-6, x[0] * x[1] - 2])


@problem((1.0, 1.0), 3, solution=(3.0, 0.5))
def beale(x):
    return wf.asarray([1.5, 2.25, 2.625], dtype="float64") - x[0] * (1 - x[1] ** indices(3))


@problem((0.3, 0.4), 10, ("124.362",))
def jennrich_and_sampson(x):
    i = indices(10)
    return 2 + 2 * i - (wf.exp(i * x[0]) + wf.exp(i * x[1]))


@problem((-1.0, 0.0, 0.0), 3, solution=(1.0, 0.0, 0.0))
def helical_valley(x):
    turn = wf.atan(x[1] / x[0]) / (2 * pi) + wf.where(x[0] > 0, 0.0, 0.5)
    radius = wf.sqrt(x[0] ** 2 + x[1] ** 2)
    return wf.stack([10 * (x[2] - 10 * turn), 10 * (radius - 1), x[2]])


BARD = numbers(".14 .18 .22 .25 .29 .32 .35 .39 .37 .58 .73 .96 1.34 2.10 4.39")


@problem((1.0, 1.0, 1.0), 15, ("8.21487e-3", "17.4286"))
def bard(x):
    u = indices(15)
    v = 16 - u
    return BARD - (x[0] + u / (v * x[1] + wf.minimum(u, v) * x[2]))


GAUSS = numbers(
    ".0009 .0044 .0175 .0540 .1295 .2420 .3521 .3989 .3521 .2420 .1295 .0540 .0175 .0044 .0009"
)


@problem((0.4, 1.0, 0.0), 15, ("1.12793e-8",))
def gaussian(x):
    t = (8 - indices(15)) / 2
    return x[0] * wf.exp(-x[1] * (t - x[2]) ** 2 / 2) - GAUSS


MEYER = numbers(
    "34780 28610 23650 19630 16370 13720 11540 9744 8261 7030 6005 5147 4427 3820 3307 2872"
)


@problem((0.02, 4000.0, 250.0), 16, ("87.9458",))
def meyer(x):
    return x[0] * wf.exp(x[1] / (45 + 5 * indices(16) + x[2])) - MEYER


@problem((5.0, 2.5, 0.15), 99, solution=(50.0, 25.0, 1.5))
def gulf_research_and_development(x):
    t = indices(99) / 100
    y = 25 + (-50 * wf.log(t)) ** (2 / 3)
    return wf.exp(-(wf.abs(y - x[1]) ** x[2]) / x[0]) - t


@problem((0.0, 10.0, 20.0), 10, solution=(1.0, 10.0, 1.0))
def box_three_dimensional(x):
    t = indices(10) / 10
    return wf.exp(-t * x[0]) - wf.exp(-t * x[1]) - x[2] * (wf.exp(-t) - wf.exp(-10 * t))


@problem((3.0, -1.0, 0.0, 1.0), 4, solution=(0.0,) * 4)
def powell_singular(x):
    a, b, c, d = x
    return wf.stack([a + 10 * b, 5**0.5 * (c - d), (b - 2 * c) ** 2, 10**0.5 * (a - d) ** 2])


@problem((-3.0, -1.0, -3.0, -1.0), 6, solution=(1.0,) * 4)
def wood(x):
    a, b, c, d = x
    return wf.stack(
        [
            10 * (b - a**2),
            1 - a,
            90**0.5 * (d - c**2),
            1 - c,
            10**0.5 * (b + d - 2),
            10**-0.5 * (b - d),
        ]
    )


KOWALIK = numbers(".1957 .1947 .1735 .1600 .0844 .0627 .0456 .0342 .0323 .0235 .0246")
KOWALIK_AT = numbers("4 2 1 .5 .25 .167 .125 .1 .0833 .0714 .0625")


@problem((0.25, 0.39, 0.415, 0.39), 11, ("3.07505e-4", "1.02734e-3"))
def kowalik_and_osborne(x):
    u = KOWALIK_AT
    return KOWALIK - x[0] * (u**2 + u * x[1]) / (u**2 + u * x[2] + x[3])


@problem((25.0, 5.0, -5.0, -1.0), 20, ("85822.2",))
def brown_and_dennis(x):
    t = indices(20) / 5
    return (x[0] + t * x[1] - wf.exp(t)) ** 2 + (x[2] + x[3] * wf.sin(t) - wf.cos(t)) ** 2


OSBORNE_1 = numbers(
    ".844 .908 .932 .936 .925 .908 .881 .850 .818 .784 .751 .718 .685 .658 .628 .603 .580 "
    ".558 .538 .522 .506 .490 .478 .467 .457 .448 .438 .431 .424 .420 .414 .411 .406"
)


@problem((0.5, 1.5, -1.0, 0.01, 0.02), 33, ("5.46489e-5",))
def osborne_1(x):
    t = 10 * indices(33, first=0)
    return OSBORNE_1 - (x[0] + x[1] * wf.exp(-t * x[3]) + x[2] * wf.exp(-t * x[4]))


@problem((1.0, 2.0, 1.0, 1.0, 1.0, 1.0), 13, ("5.65565e-3", "0"), (1.0, 10.0, 1.0, 5.0, 4.0, 3.0))
def biggs_exp6(x):
    t = indices(13) / 10
    y = wf.exp(-t) - 5 * wf.exp(-10 * t) + 3 * wf.exp(-4 * t)
    return x[2] * wf.exp(-t * x[0]) - x[3] * wf.exp(-t * x[1]) + x[5] * wf.exp(-t * x[4]) - y


OSBORNE_2 = numbers(
    "1.366 1.191 1.112 1.013 .991 .885 .831 .847 .786 .725 .746 .679 .608 .655 .616 .606 .602 "
    ".626 .651 .724 .649 .649 .694 .644 .624 .661 .612 .558 .533 .495 .500 .423 .395 .375 .372 "
    ".391 .396 .405 .428 .429 .523 .562 .607 .653 .672 .708 .633 .668 .645 .632 .591 .559 .597 "
    ".625 .739 .710 .729 .720 .636 .581 .428 .292 .162 .098 .054"
)


@problem((1.3, 0.65, 0.65, 0.7, 0.6, 3.0, 5.0, 7.0, 2.0, 4.5, 5.5), 65, ("4.01377e-2",))
def osborne_2(x):
    t = indices(65, first=0) / 10
    peaks = wf.exp(-((t[:, None] - x[8:]) ** 2) * x[5:8])
    return OSBORNE_2 - (x[0] * wf.exp(-t * x[4]) + peaks @ x[1:4])


@problem((0.0,) * 6, 31, ("2.28767e-3",), name="watson_6")
@problem((0.0,) * 9, 31, ("1.39976e-6",), name="watson_9")
@problem((0.0,) * 12, 31, ("4.72238e-10",), name="watson_12")
def watson(x):
    j = indices(x.size, first=0)
    t = indices(29)[:, None] / 29
    slope = (j[1:] * t ** j[:-1]) @ x[1:]
    return joined(slope - ((t**j) @ x) ** 2 - 1, x[0], x[1] - x[0] ** 2 - 1)


@problem((-1.2, 1.0) * 5, 10, solution=(1.0,) * 10)
def extended_rosenbrock(x):
    odd, even = x[::2], x[1::2]
    return joined(10 * (even - odd**2), 1 - odd)


@problem((3.0, -1.0, 0.0, 1.0) * 3, 12, solution=(0.0,) * 12)
def extended_powell_singular(x):
    a, b, c, d = x[::4], x[1::4], x[2::4], x[3::4]
    return joined(a + 10 * b, 5**0.5 * (c - d), (b - 2 * c) ** 2, 10**0.5 * (a - d) ** 2)


@problem((1.0, 2.0, 3.0, 4.0), 5, ("2.24997e-5",), name="penalty_1_4")
@problem(map(float, range(1, 11)), 11, ("7.08765e-5",), name="penalty_1_10")
def penalty_1(x):
    return joined(1e-5**0.5 * (x - 1), (x**2).sum() - 0.25)


@problem((0.5,) * 4, 8, ("9.37629e-6",), name="penalty_2_4")
@problem((0.5,) * 10, 20, ("2.93660e-4",), name="penalty_2_10")
def penalty_2(x):
    i, a = indices(x.size), 1e-5**0.5
    e, y = wf.exp(x / 10), wf.exp(i / 10)
    return joined(
        x[0] - 0.2,
        a * (e[1:] + e[:-1] - (y[1:] + y[:-1])),
        a * (e[1:] - wf.exp(wf.asarray(np.array(-0.1)))),
        ((x.size - i + 1) * x**2).sum() - 1,
    )


@problem([1 - j / 10 for j in range(1, 11)], 12, solution=(1.0,) * 10)
def variably_dimensioned(x):
    whole = (indices(x.size) * (x - 1)).sum()
    return joined(x - 1, whole, whole**2)


@problem((0.2,) * 5, 5, solution=(0.0,) * 5)
def trigonometric(x):
    return x.size - wf.cos(x).sum() + indices(x.size) * (1 - wf.cos(x)) - wf.sin(x)


@problem((0.5,) * 10, 10, ("0", "1"), solution=(1.0,) * 10)
def brown_almost_linear(x):
    return joined(x[:-1] + x.sum() - (x.size + 1), wf.prod(x) - 1)


def grid(n: int):
    return indices(n) / (n + 1)


def parabola(n: int):
    t = np.arange(1, n + 1) / (n + 1)
    return (t * (t - 1)).tolist()


@problem(parabola(10), 10)
def discrete_boundary_value(x):
    zero = wf.zeros(1, dtype="float64")
    bent = 2 * x - joined(zero, x[:-1]) - joined(x[1:], zero)
    return bent + (x + grid(x.size) + 1) ** 3 / (2 * (x.size + 1) ** 2)


@problem(parabola(10), 10)
def discrete_integral_equation(x):
    t = grid(x.size)
    green = wf.minimum(t[:, None], t) * (1 - wf.maximum(t[:, None], t))
    return x + green @ (x + t + 1) ** 3 / (2 * (x.size + 1))


@problem((-1.0,) * 10, 10)
def broyden_tridiagonal(x):
    zero = wf.zeros(1, dtype="float64")
    return (3 - 2 * x) * x - joined(zero, x[:-1]) - 2 * joined(x[1:], zero) + 1


@problem((-1.0,) * 10, 10)
def broyden_banded(x):
    i = np.arange(x.size)
    away = i[:, None] - i
    band = wf.asarray(((away <= 5) & (away >= -1) & (away != 0)).astype(np.float64))
    return x * (2 + 5 * x**2) + 1 - band @ (x * (1 + x))


@problem((1.0,) * 5, 10, ("5",), name="linear_full_rank")
def linear_full_rank(x):
    whole = 2 * x.sum() / 10 + 1
    return joined(x - whole, -whole * wf.ones(5, dtype="float64"))


@problem((1.0,) * 5, 10, ("2.142857142857",))
def linear_rank_1(x):
    return indices(10) * (indices(5) * x).sum() - 1


@problem((1.0,) * 5, 10, ("3.647058823529",))
def linear_rank_1_with_zero_columns_and_rows(x):
    whole = (indices(3, first=2) * x[1:4]).sum()
    edge = -wf.ones(1, dtype="float64")
    return joined(edge, indices(8) * whole - 1, edge)


@problem([j / 8 for j in range(1, 8)], 7, name="chebyquad_7")
@problem([j / 9 for j in range(1, 9)], 8, ("3.51687e-3",), name="chebyquad_8")
@problem([j / 10 for j in range(1, 10)], 9, name="chebyquad_9")
@problem([j / 11 for j in range(1, 11)], 10, ("6.50395e-3",), name="chebyquad_10")
def chebyquad(x):
    y = 2 * x - 1
    before, now, found = wf.ones_like(y), y, []
    for i in range(1, x.size + 1):
        integral = 0.0 if i % 2 else -1 / (i * i - 1)
        found.append(now.mean() - integral)
        before, now = now, 2 * y * now - before
    return wf.stack(found)
