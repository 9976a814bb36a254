"""Bounds of rows' values: every value of operands within theirs, rounded to any float type."""

import math

import numpy as np
import pytest
from scipy import special

from weft.compiler.emit import intervals
from weft.compiler.emit.code import LLModule, LLValue, lanes_of
from weft.compiler.emit.intervals import Interval, bounds_of, lies_within, note_bounds

FLOAT = lanes_of("float")
UNARY = {
    **{"sin": np.sin, "cos": np.cos, "tanh": np.tanh, "erf": special.erf, "exp": np.exp},
    **{"expit": special.expit, "ndtr": special.ndtr, "negative": np.negative, "abs": np.abs},
    **{"square": np.square, "relu": lambda x: np.maximum(x, 0)},
}
BINARY = {
    **{"add": np.add, "subtract": np.subtract, "multiply": np.multiply},
    "strong_product": lambda g, d: np.where((g == 0) | (d == 0), 0, g * d),
    **dict.fromkeys(("maximum", "clip_lower"), np.maximum),
    **dict.fromkeys(("minimum", "clip_upper"), np.minimum),
}
ENDS = (-math.inf, -7e4, -300.0, -2.0, -1e-8, 0.0, 1e-30, 0.3, 1.0, 90.0, 5e4, 1e38, math.inf)


def value(code, name: str, bounds: Interval) -> LLValue:
    x = LLValue(code, FLOAT, name)
    code.memo["bounds", name] = bounds
    return x


def points(rng: np.random.Generator, bounds: Interval) -> np.ndarray:
    """Numbers of an interval: its ends, zeros, and others of all sizes."""
    low, high = bounds
    near = np.clip(rng.normal(size=20), low, high)
    far = np.clip(rng.normal(size=20) * 10.0 ** rng.uniform(-9, 38, 20), low, high)
    return np.concatenate([[low, high, *np.clip([0.0, -0.0], low, high)], near, far])


def check(row: str, rng: np.random.Generator) -> None:
    """Draw operands' bounds, note the row's, and look for values outside."""
    code = LLModule("", ("units",)).function("void", [])
    function = (UNARY | BINARY)[row]
    ranges = [
        tuple(map(float, sorted(rng.choice(ENDS, 2)))) for _ in range(1 if row in UNARY else 2)
    ]
    operands = [value(code, f"%x{k}", r) for k, r in enumerate(ranges)]
    if row == "multiply" and rng.random() < 0.3:
        operands[1], ranges[1] = operands[0], ranges[0]
    elif row in BINARY and rng.random() < 0.4:  # a number of Python's, in either place
        k = int(rng.integers(2))
        operands[k], ranges[k] = float(ranges[k][0]), (ranges[k][0], ranges[k][0])
    y = LLValue(code, FLOAT, "%y")
    note_bounds(row, operands, y)
    low, high = bounds_of(y)
    first = points(rng, ranges[0])
    grid = [first] if row in UNARY else list(np.meshgrid(first, points(rng, ranges[-1])))
    if row in BINARY and operands[1] is operands[0]:
        grid = [first, first]
    with np.errstate(all="ignore"):
        for kind in (np.float32, np.float16):
            found = function(*[g.astype(np.float64) for g in grid]).astype(kind)
            found = found[~np.isnan(found)]
            assert np.all((low <= found) & (found <= high)), (row, ranges, (low, high))


@pytest.mark.parametrize("row", [*UNARY, *BINARY])
def test_values_lie_within_bounds(row):
    rng = np.random.default_rng(0)
    for _ in range(60):
        check(row, rng)


def test_every_row_is_tried():
    assert set(intervals._ROWS) == {*UNARY, *BINARY}


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        ("subtract", intervals._sum),
        ("multiply", lambda a, b: (a[0] * b[0], a[1] * b[1])),
        ("abs", lambda x: (abs(x[0]), abs(x[1]))),
        ("strong_product", lambda a, b: (1.0, 1.0)),
    ],
)
def test_wrong_bounds_show(row, wrong, monkeypatch):
    monkeypatch.setitem(intervals._ROWS, row, wrong)
    rng = np.random.default_rng(0)
    with pytest.raises(AssertionError):
        for _ in range(60):
            check(row, rng)


def test_numbers_and_unknown_values():
    code = LLModule("", ("units",)).function("void", [])
    x, y = LLValue(code, FLOAT, "%x"), LLValue(code, FLOAT, "%y")
    assert not lies_within(x, -1e300, 1e300)
    note_bounds("minimum", [x, 3], y)
    assert lies_within(y, -math.inf, 4.0) and not lies_within(y, -1e300, 4.0)
    assert bounds_of(math.nan) == (-math.inf, math.inf)


def test_processors_note_nothing():
    code = LLModule().function("void", [])
    y = LLValue(code, FLOAT, "%y")
    note_bounds("tanh", [LLValue(code, FLOAT, "%x")], y)
    assert not code.memo
