"""Random grid kernels in the emulator beside the CPU's: the same bits in both orders of threads."""

import os

import numpy as np
import pytest

from weft.compiler.cpu.emit_kernel import native
from weft.core import dtypes

from .emulator import Emulated
from .programs import Case, GridProgram

COUNT = 20_000 if os.environ.get("WEFT_SOAK") else 150


def copied(a: np.ndarray) -> np.ndarray:
    """A copy of an array's memory, gaps included, and the same view of it."""
    low, high = np.lib.array_utils.byte_bounds(a)
    here = a.__array_interface__["data"][0]
    memory = np.empty(high - low + 64, np.uint8)
    start = -memory.ctypes.data % 16 + low % 16
    source = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_uint8 * (high - low)).from_address(low))
    memory[start : start + high - low] = source
    return np.ndarray(a.shape, a.dtype, memory, start + here - low, a.strides)


def emulate(case: Case, down: bool, emulated: Emulated) -> list[np.ndarray]:
    """The results; those that take an operand's memory are written there."""
    operands = [copied(a) for a in case.operands]
    outs = [copied(a) for a in case.outs]
    for r, o in case.shared.items():
        outs[r] = operands[o][tuple(slice(n) for n in outs[r].shape)]
    emulated.run(*operands, *outs, down=down)
    return outs


def check(case: Case) -> None:
    outs = [copied(a) for a in case.outs]
    native(case.kernel)([*case.operands, *outs])
    emulated = Emulated(case.kernel, case.aligned)
    up, down = (emulate(case, order, emulated) for order in (False, True))
    for result, want, a, b in zip(case.kernel.results, outs, up, down, strict=True):
        np.testing.assert_array_equal(a, b, err_msg="the order of threads shows")
        exact = case.kernel.dtypes[result.value] in dtypes.SIGNED
        bound = 0.0 if exact else case.bound
        np.testing.assert_allclose(
            a.astype(np.float64), want.astype(np.float64), rtol=0, atol=bound
        )


@pytest.mark.parametrize("seed", range(COUNT))
def test_a_random_grid_is_the_cpus(seed):
    with np.errstate(all="ignore"):
        case = GridProgram(seed).case()
    check(case)
