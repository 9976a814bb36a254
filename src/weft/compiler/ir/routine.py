"""Routine: work that no kernel describes, as a native function over units.

A routine is a frozen dataclass of sizes, dtypes and flags, which says what it reads and writes and
writes the code. Units may be done in any order by any thread: each writes its own part of the
results, in an order of its own, and keeps what else it needs on the stack.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from ..emit.code import Code, Module, Value, lanes_of
from ..emit.control import POINTER, WORD, leave, pointer, put, when
from ..emit.lanes_in_memory import splat
from ..native.signals import Fuel

# Bytes of the stack that a function may take for itself.
STACK = 512 << 10


@dataclass(frozen=True)
class Array:
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


def array(dtype: np.dtype, shape: tuple[int, ...]) -> Array:
    """An array that is laid out row by row."""
    return Array(dtype, tuple(shape), line(tuple(shape)))


@dataclass(frozen=True)
class Body:
    """The function that is being written: pointers to the first elements, and its units.

    `verdict` is where a checking function reports that it left an array, `fuel` how loops look for
    signals.
    """

    code: Code
    arrays: Sequence[Value]
    begin: Value
    end: Value
    verdict: Value | None
    fuel: Fuel | None = None

    def require(self, condition: Value, number: int) -> None:
        """If accesses are checked: give up, unless array `number` is not left."""
        cell = self.verdict
        if cell is None:
            return

        def give_up() -> None:
            put(self.code.constant(WORD, number + 1), cell, 0)
            leave(self.code)

        when(condition ^ True, give_up, rarely=True)


class Routine(ABC):
    """What all routines have; subclasses are frozen dataclasses, equal if their code is."""

    noun = "routine"  # what reports call it
    inside = False  # whether it is written into the routine that it is a part of

    @property
    @abstractmethod
    def operands(self) -> tuple[Array, ...]:
        """The arrays that are read, in the order of the record."""

    @property
    @abstractmethod
    def results(self) -> tuple[Array, ...]:
        """The arrays that are written, behind them."""

    @property
    def scratch(self) -> tuple[Array, ...]:
        """Memory that units share until all are done, behind the results."""
        return ()

    @property
    @abstractmethod
    def count(self) -> int:
        """How many units there are."""

    @property
    def grain(self) -> int:
        """Pieces are multiples of so many units."""
        return 1

    @property
    @abstractmethod
    def cost(self) -> float:
        """About how many nanoseconds one core takes for all units."""

    @property
    def shared(self) -> float:
        """The nanoseconds of work that it shares among threads by itself, inside of a unit."""
        return 0.0

    @property
    def multiplies(self) -> bool:
        """Whether it calls BLAS, which has to be kept to one thread meanwhile."""
        return False

    @property
    def endless(self) -> bool:
        """Whether nothing but its values says how long it takes."""
        return False

    def told(self) -> list[str]:
        """What it does, a title and lines about what is inside; empty: its fields say that."""
        return []

    @abstractmethod
    def body(self, b: Body) -> None:
        """Write the code for the units from begin to end; control must reach its end."""

    def write(self, module: Module, name: str, checked: bool = False) -> None:
        """Write the function `name(record, begin, end)` into a module."""
        code = module.function("void", [POINTER, WORD, WORD], name)
        record, begin, end = code.parameters
        number = len(self.operands) + len(self.results) + len(self.scratch)
        arrays = tuple(pointer(record, i) for i in range(number))
        verdict = pointer(record, number) if checked else None
        self.body(Body(code, arrays, begin, end, verdict))
        leave(code)


def require_lanes(b: Body, number: int, at: Value, step: int, mask: Value, size: int) -> None:
    """If accesses are checked: the lanes of a mask, `step` apart from `at` on, are in the array."""
    if b.verdict is None:
        return
    lanes, code = mask.type.lanes, b.code
    steps = ", ".join(f"i64 {step * k}" for k in range(lanes))
    places = splat(at, lanes) + Value(code, lanes_of("i64", lanes), f"<{steps}>")
    good = places.compare("lt", size, signed=False) | (mask ^ True)
    bits = code.emit(lanes_of(f"i{lanes}"), f"bitcast {good.type.text} {good.name} to i{lanes}")
    b.require(bits.equals(-1), number)
