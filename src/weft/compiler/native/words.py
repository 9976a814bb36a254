"""Memory that native code reads: 64-bit words at fixed addresses, and cache-line aligned bytes."""

import numpy as np

LINE = 64


class WordArray(np.ndarray):
    """64-bit integers, and the objects whose addresses they hold, to keep those alive."""

    hold: object = None


def allocate_aligned(nbytes: int, line: int = LINE) -> np.ndarray:
    """Bytes that start at a cache line."""
    memory = np.empty(nbytes + line, np.uint8)
    start = -memory.ctypes.data % line
    return memory[start : start + nbytes]


def words(count: int, hold: object = None) -> WordArray:
    """Zeros."""
    memory = allocate_aligned(8 * count, 2 * LINE).view(np.int64).view(WordArray)
    memory[:] = 0
    memory.hold = hold
    return memory


def address(array: np.ndarray) -> int:
    """The address of an array's first element."""
    return array.__array_interface__["data"][0]
