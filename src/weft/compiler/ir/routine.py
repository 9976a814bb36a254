"""Routine: work that no kernel describes.

A routine is a frozen dataclass of sizes, dtypes and flags, which says what it reads and writes; a
target's routines also say how it is done.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import prod

import numpy as np


@dataclass(frozen=True)
class RoutineArray:
    """What a routine reads or writes of a buffer: elements that are `strides` apart."""

    dtype: np.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many elements there are."""
        return prod(self.shape)

    @property
    def contiguous(self) -> bool:
        """Whether they lie one after the other, row by row."""
        return self.strides == line(self.shape) or self.size == 0


def line(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of rows that lie one after the other; 0 on axes of one element."""
    return tuple(0 if n == 1 else prod(shape[a + 1 :]) for a, n in enumerate(shape))


def array(dtype: np.dtype, shape: tuple[int, ...]) -> RoutineArray:
    """An array that is laid out row by row."""
    return RoutineArray(dtype, tuple(shape), line(tuple(shape)))


class Routine(ABC):
    """What all routines have; subclasses are frozen dataclasses, equal if their code is."""

    noun = "routine"  # what reports call it

    @property
    @abstractmethod
    def operands(self) -> tuple[RoutineArray, ...]:
        """The arrays that are read, in the order of the record."""

    @property
    @abstractmethod
    def results(self) -> tuple[RoutineArray, ...]:
        """The arrays that are written, behind them."""

    @property
    def scratch(self) -> tuple[RoutineArray, ...]:
        """Memory that it needs until it is done, behind the results."""
        return ()

    @property
    def endless(self) -> bool:
        """Whether nothing but its values says how long it takes."""
        return False

    def told(self) -> list[str]:
        """What it does, a title and lines about what is inside; empty: its fields say that."""
        return []
