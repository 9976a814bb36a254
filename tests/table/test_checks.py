"""Proof that the checks of values can fail: errors beside the derivative, planted and found."""

from dataclasses import replace

import numpy as np
import pytest

from weft.core import dtypes
from weft.core.op import LinearRule

from .check import check_row
from .rows import load

TABLE = load()


def _in_memory_order(xp, x, axes):
    return np.flip(x.ravel(order="K").reshape(x.shape), axes)


def _overwriting_transpose(g, _x, axes):
    g += 0.5
    return np.flip(g, axes) - 0.5


# row, what is changed in it, the backend that shows it, the check that must find it
PLANTED = {
    "shape rule says float32": (
        "tanh",
        {"shape": lambda x: x.like(dtype=dtypes.float32)},
        "numpy",
        "shape rule",
    ),
    "shape rule drops an axis": (
        "flip",
        {"shape": lambda x, axes: x.like(x.shape[1:])},
        "torch",
        "shape rule",
    ),
    "backends differ": (
        "sin",
        {"compute": lambda xp, x: xp.sin(x) + (1e-12 if xp.name == "torch" else 0.0)},
        "torch",
        "value",
    ),
    "integers differ": (
        "argmax",
        {"compute": lambda xp, x, *s: xp.argmax(x, *s) + int(xp.name == "torch")},
        "torch",
        "value",
    ),
    "float32 becomes float64": (
        "tanh",
        {"compute": lambda xp, x: np.tanh(x.astype(np.result_type(x, np.float64)))},
        "numpy",
        "precision",
    ),
    "float32 computed in half precision": (
        "tanh",
        {
            "compute": lambda xp, x: np.tanh(
                x if x.itemsize > 4 else x.astype(np.half).astype(x.dtype)
            )
        },
        "numpy",
        "precision",
    ),
    "an argument is overwritten": (
        "exp",
        {"compute": lambda xp, x: np.exp(x, out=x) if x.flags.writeable else np.exp(x)},
        "numpy",
        "layout",
    ),
    "memory order decides": ("flip", {"compute": _in_memory_order}, "numpy", "layout"),
    "a cotangent is overwritten": (
        "flip",
        {"rule": LinearRule((_overwriting_transpose,))},
        "numpy",
        "gradient",
    ),
}


@pytest.mark.parametrize("what", PLANTED)
def test_a_planted_error_is_found(what):
    name, changes, backend, kind = PLANTED[what]
    assert kind not in {p.kind for p in check_row(TABLE[name], backend)}
    assert kind in {p.kind for p in check_row(replace(TABLE[name], **changes), backend)}
