"""NumPy memory that begins where a cache line does: wide vectors cross no line."""

from math import prod
from typing import Any

import numpy as np

_LINE = 64


def allocate_aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray[Any, Any]:
    """A new array whose elements are not set."""
    size = prod(shape) * dtype.itemsize
    memory = np.empty(allocated_bytes(shape, dtype), np.uint8)
    start = -memory.ctypes.data % _LINE
    return memory[start : start + size].view(dtype).reshape(shape)


def allocated_bytes(shape: tuple[int, ...], dtype: np.dtype) -> int:
    """The bytes of memory that an array takes, with what its alignment needs."""
    return prod(shape) * dtype.itemsize + _LINE
