"""Sums of products that are rounded once, where modules may do that."""

from fractions import Fraction

import numpy as np
import pytest

from weft.compiler.cpu.emit_kernel import ENTRY, Image, link
from weft.compiler.cpu.loops import lower
from weft.compiler.emit.code import LLModule
from weft.compiler.ir.kernel import Kernel, Operand, Result, Step
from weft.compiler.native.machine import compile_module, host
from weft.core import dtypes

F = dtypes.float32
# Each of x, y, z (values 0, 1, 2) by steps, and what is exact before the last rounding.
CONTRACTED = {
    "x·y + z": ((("multiply", 0, 1), ("add", 3, 2)), lambda x, y, z: x * y + z),
    "z + x·y": ((("multiply", 0, 1), ("add", 2, 3)), lambda x, y, z: x * y + z),
    "x·y − z": ((("multiply", 0, 1), ("subtract", 3, 2)), lambda x, y, z: x * y - z),
    "z − x·y": ((("multiply", 0, 1), ("subtract", 2, 3)), lambda x, y, z: z - x * y),
    "z + x²": ((("square", 0), ("add", 2, 3)), lambda x, y, z: z + x * x),
    "z − (−x)·x": (
        (("negative", 0), ("multiply", 3, 0), ("subtract", 2, 4)),
        lambda x, y, z: z + x * x,
    ),
}
# Symmetric differences, which are exactly zero.
ZEROS = {
    "x·y − y·x": (("multiply", 0, 1), ("multiply", 1, 0), ("subtract", 3, 4)),
    "x·y + (−x)·y": (("negative", 0), ("multiply", 0, 1), ("multiply", 3, 1), ("add", 4, 5)),
    "x·y − x·y": (("multiply", 0, 1), ("subtract", 3, 3)),
    "x² − x·x": (("square", 0), ("multiply", 0, 0), ("subtract", 3, 4)),
}


def run(steps: tuple, features: tuple[str, ...] = ("contract",)) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    data = rng.uniform(-2, 2, (3, 300)).astype(np.float32)
    made = tuple([Step(row, tuple(inputs), F) for row, *inputs in steps])
    operands = (Operand(F, (1,)),) * 3
    kernel = Kernel((300,), operands, made, (Result(2 + len(made), (1,)),))
    module = LLModule(host().attributes, features)
    nest = lower(kernel, module, ENTRY)
    out = np.empty(300, np.float32)
    link(Image(compile_module(module), (), nest.count, nest.grain, False))([*data, out])
    return data, out


def worst(steps: tuple, exact, features: tuple[str, ...] = ("contract",)) -> float:
    """The largest error in units in the last place."""
    data, out = run(steps, features)
    most = 0.0
    for x, y, z, got in zip(*data, out, strict=True):
        want = exact(*(Fraction(float(v)) for v in (x, y, z)))
        unit = Fraction(float(np.spacing(np.float32(float(abs(want))))))
        most = max(most, float(abs(Fraction(float(got)) - want) / unit))
    return most


@pytest.mark.parametrize("name", CONTRACTED)
def test_a_sum_with_a_product_is_rounded_once(name):
    steps, exact = CONTRACTED[name]
    assert worst(steps, exact) <= 0.5
    assert worst(steps, exact, ()) > 0.5


@pytest.mark.parametrize("name", ZEROS)
def test_symmetric_differences_stay_zero(name):
    assert not run(ZEROS[name])[1].any()
