"""Numbers among the arguments, looked at in every way that Python has: as in eager mode."""

import math

import numpy as np
import pytest

import weft as wf

W = wf.ones(3)


def matched(x, s):
    match s:
        case float():
            return x * s
        case _:
            return x * 100


# What is done with a number, and how many programs the values 0.5, 2, 2 and 3.5 take.
WAYS = {
    "isinstance": (lambda x, s: x * s if isinstance(s, float) else x * 100, 1),
    "isinstance of several": (lambda x, s: x * s if isinstance(s, int | float) else x * 100, 1),
    "class": (lambda x, s: x * s if s.__class__ is float else x * 100, 1),
    "match": (matched, 1),
    "arithmetic": (lambda x, s: W * s + x * (2 * s - 1), 1),
    "callable": (lambda x, s: x * 2 if callable(s) else x * s, 1),
    "numpy function": (lambda x, s: x * np.sin(s), 1),
    "type": (lambda x, s: x * s if type(s) is float else x * 100, 3),
    "repr": (lambda x, s: x * float(repr(s)), 3),
    "str": (lambda x, s: x * float(str(s)), 3),
    "format": (lambda x, s: x * float(f"{s:.3f}"), 3),
    "percent": (lambda x, s: x * float("%f" % s), 3),
    "method": (lambda x, s: x * 2 if s.is_integer() else x * 3, 3),
    "ratio": (lambda x, s: x * s.as_integer_ratio()[0], 3),
    "real": (lambda x, s: x * s.real, 3),
    "math": (lambda x, s: x * math.sin(s), 3),
    "floor": (lambda x, s: x * math.floor(s), 3),
    "float64": (lambda x, s: x * np.float64(s), 3),
    "complex": (lambda x, s: x * abs(complex(s, 1)), 3),
    "key": (lambda x, s: x * {0.5: 1.0, 2.0: 3.0, 3.5: 4.0}[s], 3),
    "sorted": (lambda x, s: x * sorted([s, 1.0, 2.5])[1], 3),
    "maximum": (lambda x, s: x * max(s, 1.0), 2),
    "truth": (lambda x, s: x * (2 if s else 3), 1),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_number_is_what_it_is(way):
    f, programs = WAYS[way]
    compiled = wf.compile(f)
    for value in (0.5, 2.0, 2.0, 3.5):
        x = wf.tensor([1.0, -2.0, 3.0])
        np.testing.assert_allclose(compiled(x, value), f(x, value), rtol=1e-6)
    assert len(compiled.recompilations) == programs - 1


def test_attributes_that_floats_do_not_have():
    with pytest.raises(AttributeError, match="'float' object has no attribute 'shape'"):
        wf.compile(lambda x, s: x * s.shape[0])(W, 2.0)
