"""Cells: the numbers of a call that are the host's, in a GPU's memory.

Learning rates, step counts, random counters: they are written before the program runs, in the order
of its stream, as parameters of one small launch; nothing waits for them.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..gpu import Gpu

_WORDS = 2  # a cell begins at a multiple of so many words, as kernels demand of addresses


class Cells:
    """The cells of some inputs: `tensors` by position."""

    def __init__(self, gpu: Gpu, given: dict[int, np.ndarray]):
        """Cells for arrays like these, by position of the input."""
        sizes = {i: _WORDS * -(-x.nbytes // (8 * _WORDS)) for i, x in given.items()}
        words = np.zeros(sum(sizes.values()), np.uint64)
        self._memory = gpu.arrays.zeros((8 * len(words),), np.dtype(np.uint8))
        self.tensors: dict[int, Any] = {}
        self.kinds = {i: (x.shape, x.dtype) for i, x in given.items()}
        self._send, words = gpu.writer(gpu.arrays.address(self._memory), len(words))
        self._places: list[tuple[int, tuple[int, ...], np.dtype, np.ndarray]] = []
        line, at = words.view(np.uint8), 0
        for i, x in given.items():
            part = self._memory[at : at + x.nbytes].view(gpu.arrays.raw_dtype(x.dtype))
            self.tensors[i] = part.reshape(x.shape)
            place = line[at : at + x.nbytes].view(x.dtype).reshape(x.shape)
            self._places.append((i, x.shape, x.dtype, place))
            at += 8 * sizes[i]

    def write(self, values: Sequence[Any]) -> bool:
        """Write the host's numbers of a call; whether they are those that there are cells for."""
        for i, shape, dtype, place in self._places:
            x = values[i]
            if x.__class__ is not np.ndarray or x.shape != shape:
                return False
            if x.dtype is not dtype and x.dtype != dtype:
                return False
            place[...] = x
        self._send()
        return True
