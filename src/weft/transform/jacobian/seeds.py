"""The seeds of many sweeps: rows of a matrix, split into pieces, which are cached if small."""

from math import prod

import numpy as np

from ...backend.device import place
from ...core.aval import Aval
from ...core.types import Raw

_KEPT_BYTES = 1 << 23  # of all cached pieces; the others are computed at each use


class Seeds:
    """One seed in each row of a matrix.

    matrix  (count, width), or None for the identity, which is never stored as a whole
    """

    matrix: np.ndarray | None
    count: int

    def __init__(self, matrix: np.ndarray | None = None, *, width: int | None = None):
        self.matrix = matrix
        self.count = width if matrix is None else len(matrix)  # type: ignore[assignment]
        self._kept: dict[tuple[tuple[int, int], int, Aval], Raw | None] = {}
        self._bytes = 0

    def piece(self, rows: tuple[int, int], at: int, aval: Aval) -> Raw | None:
        """The part of rows [a, b) that belongs to a value whose elements start at `at`.

        A raw array (b − a, *shape) on the value's device; None if it is zero.
        """
        key = (rows, at, aval)
        if key in self._kept:
            return self._kept[key]
        made = self._make(rows, at, aval)
        if made is None or self._bytes + made.nbytes <= _KEPT_BYTES:
            self._kept[key] = made
            self._bytes += 0 if made is None else made.nbytes
        return made

    def _make(self, rows: tuple[int, int], at: int, aval: Aval) -> Raw | None:
        first, last = rows
        size = prod(aval.shape)
        if self.matrix is not None:
            block = self.matrix[first:last, at : at + size]
            if not block.any():
                return None
            block = block.astype(aval.dtype)
        else:
            a, b = max(first, at), min(last, at + size)
            if a >= b:
                return None
            block = np.zeros((last - first, size), aval.dtype)
            block[np.arange(a - first, b - first), np.arange(a - at, b - at)] = 1
        return place(block.reshape(last - first, *aval.shape), aval.device)


def identity(width: int) -> Seeds:
    """The seeds of a dense Jacobian."""
    return Seeds(width=width)
