"""Shapes, axes and integers read from arguments."""

import numpy as np
import pytest

import weft as wf
from weft.core.aval import Aval, axes_in, axis_in, broadcast, integer_in
from weft.errors import AxisError, DTypeError, ShapeError


def test_broadcast_agrees_with_numpy():
    rng = np.random.default_rng(0)
    agreed = 0
    for _ in range(500):
        shapes = [tuple(rng.integers(0, 4, size=rng.integers(0, 4))) for _ in range(3)]
        shapes = [tuple(map(int, s)) for s in shapes]
        try:
            expected = np.broadcast_shapes(*shapes)
        except ValueError:
            with pytest.raises(ShapeError, match=r"f: shapes .* do not broadcast: .* on axis -\d"):
                broadcast("f", *shapes)
        else:
            assert broadcast("f", *shapes) == expected
            agreed += 1
    assert 50 < agreed < 450
    assert broadcast("f") == ()


def test_axes():
    assert [axis_in("f", a, 3) for a in (0, 2, -1, -3)] == [0, 2, 2, 0]
    assert axes_in("f", None, 3) == (0, 1, 2) and axes_in("f", -1, 3) == (2,)
    assert axes_in("f", (2, -3), 3) == (2, 0) and axes_in("f", (), 3) == ()
    for axis in (3, -4):
        with pytest.raises(AxisError, match=rf"f: axis {axis} is out of range for 3 dimensions"):
            axis_in("f", axis, 3)
    with pytest.raises(AxisError, match="twice"):
        axes_in("f", (0, -3), 3)


@pytest.mark.parametrize("value", [3, np.int8(3), np.array(3), wf.tensor(3)])
def test_integers(value):
    assert integer_in("f", "k", value) == 3 and type(integer_in("f", "k", value)) is int


@pytest.mark.parametrize("value", [3.0, "3", None, np.float64(3), wf.tensor(3.0), [3]])
def test_no_integers(value):
    with pytest.raises(DTypeError, match=r"f: k .*, expected an integer \(at test_aval.py:\d+\)"):
        integer_in("f", "k", value)


def test_like():
    a = Aval((2, 3), wf.float32, "torch")
    assert a.ndim == 2 and a.like() == a
    assert a.like([4]) == Aval((4,), wf.float32, "torch")
    assert a.like(dtype=wf.int64) == Aval((2, 3), wf.int64, "torch")
