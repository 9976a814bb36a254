"""Memory that native code looks into: words at fixed addresses, and bytes between cache lines."""

import numpy as np

LINE = 64


class WordArray(np.ndarray):
    """64-bit integers, and whatever must live as long as they do since they hold its address."""

    hold: object = None


def allocate_aligned(nbytes: int, line: int = LINE) -> np.ndarray:
    """Bytes that begin where a cache line does."""
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
    """Where an array's first element is."""
    return array.__array_interface__["data"][0]
