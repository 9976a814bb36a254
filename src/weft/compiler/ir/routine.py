"""Routine: work that no kernel describes.

A routine is a frozen dataclass of sizes, dtypes and flags that declares what it reads and writes; a
target's subclasses also emit it.
"""

from abc import ABC, abstractmethod
from math import prod

import numpy as np

from ...core.record import record


@record
class RoutineArray:
    """A strided array that a routine reads or writes, inside a buffer."""

    dtype: np.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def contiguous(self) -> bool:
        """Whether the elements are contiguous, row by row."""
        return self.strides == line(self.shape) or self.size == 0


def line(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of contiguous rows; 0 on axes of length 1."""
    return tuple(0 if n == 1 else prod(shape[a + 1 :]) for a, n in enumerate(shape))


def array(dtype: np.dtype, shape: tuple[int, ...]) -> RoutineArray:
    """A contiguous array, row by row."""
    return RoutineArray(dtype, tuple(shape), line(tuple(shape)))


class Routine(ABC):
    """The base of all routines; subclasses are records, equal if their code is."""

    noun = "routine"  # what reports call it

    @property
    @abstractmethod
    def operands(self) -> tuple[RoutineArray, ...]:
        """The arrays that are read, in the order of the record."""

    @property
    @abstractmethod
    def results(self) -> tuple[RoutineArray, ...]:
        """The arrays that are written; in the record they follow the operands."""

    @property
    def scratch(self) -> tuple[RoutineArray, ...]:
        """Scratch memory for the time of the call; in the record it follows the results."""
        return ()

    @property
    def endless(self) -> bool:
        """Whether its running time depends on values, and may be unbounded."""
        return False

    @property
    def draws(self) -> bool:
        """Whether it draws random numbers: no schedule computes them twice."""
        return False

    def describe(self) -> list[str]:
        """What it does, a title and lines about what is inside; empty: its fields say that."""
        return []
