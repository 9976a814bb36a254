"""Kernels for tests: of one row on given arrays, and of arrays as they lie in memory."""

import numpy as np

from weft.compiler.cpu.emit_kernel import native
from weft.compiler.ir.kernel import Kernel, Operand, Result, Step, verify
from weft.graph.graph import Literal


def strides(a: np.ndarray) -> tuple[int, ...]:
    """An array's strides in elements."""
    return tuple(s // a.itemsize for s in a.strides)


def extent(a: np.ndarray) -> tuple[int, int]:
    """How many elements of an array's memory lie before its first element, and from it on."""
    low, high = np.lib.array_utils.byte_bounds(a)
    here = a.__array_interface__["data"][0]
    return (here - low) // a.itemsize, (high - here) // a.itemsize


def run(kernel: Kernel, *arrays: np.ndarray) -> None:
    """Check a kernel against its arrays, compile it and call it."""
    verify(kernel, tuple(map(extent, arrays)))
    native(kernel)(arrays)


def of_row(row: str, args: tuple, static: tuple, dtype: np.dtype) -> np.ndarray:
    """One row of arrays and Python scalars, broadcast."""
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    views = [np.broadcast_to(a, shape) for a in arrays]
    numbers = iter(range(len(arrays)))
    inputs = tuple(next(numbers) if isinstance(a, np.ndarray) else Literal(a) for a in args)
    out = np.empty(shape, dtype)
    kernel = Kernel(
        shape,
        tuple(Operand(v.dtype, strides(v)) for v in views),
        (Step(row, inputs, dtype, static),),
        (Result(len(arrays), strides(out)),),
    )
    run(kernel, *views, out)
    return out
