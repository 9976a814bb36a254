"""Cells: the numbers of a call that are the host's, in a GPU's memory.

Learning rates, step counts, random counters: they are written before the program runs, in the order
of its stream, as parameters of one small launch; nothing waits for them.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....core.record import record
from ..gpu import Gpu

_WORDS = 2  # a cell begins at a multiple of so many words, as kernels demand of addresses


@record
class Cells:
    """Cells of some inputs: `tensors` by position, and where the words of each begin."""

    memory: Any
    tensors: dict[int, Any]
    places: list[tuple[int, slice]]
    words: np.ndarray

    @staticmethod
    def of(gpu: Gpu, given: dict[int, np.ndarray]) -> "Cells":
        """Cells for arrays like these, by position of the input."""
        sizes = {i: _WORDS * -(-x.nbytes // (8 * _WORDS)) for i, x in given.items()}
        words = np.zeros(sum(sizes.values()), np.uint64)
        memory = gpu.arrays.zeros((8 * len(words),), np.dtype(np.uint8))
        tensors, places, at = {}, [], 0
        for i, x in given.items():
            part = memory[8 * at : 8 * at + x.nbytes].view(gpu.arrays.raw_dtype(x.dtype))
            tensors[i] = part.reshape(x.shape)
            places.append((i, slice(8 * at, 8 * at + x.nbytes)))
            at += sizes[i]
        return Cells(memory, tensors, places, words)

    def write(self, gpu: Gpu, values: Sequence[Any]) -> None:
        """Write the host's numbers of a call."""
        if len(self.words):
            line = self.words.view(np.uint8)
            for i, place in self.places:
                line[place] = np.frombuffer(np.ascontiguousarray(values[i]), np.uint8)
            gpu.write(gpu.arrays.address(self.memory), self.words)

    def serve(self, values: Sequence[Any]) -> bool:
        """Whether the host's numbers of a call are those that there are cells for."""
        hosts = [i for i, x in enumerate(values) if x.__class__ is np.ndarray]
        return hosts == [i for i, _ in self.places]
