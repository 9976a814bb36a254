"""An update rule as a compiled kernel: traced for the numbers of a step, then run in place.

A rule is traced at every step, since its numbers change; only a new trace becomes a graph for the
pipeline. So values are registers: tracing AdamW takes 20 to 30 µs with them, and 200 to 300 with
the compiler's staged values (both on a busy machine).
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from ..compiler.eager.flat import MOST, FlatKernel
from ..core.aval import Aval
from ..core.backends import KERNELS
from ..ops.complex_ import sign
from ..ops.elementwise import maximum, sqrt


class Register:
    """A value of the traced rule, in the place of an array."""

    __slots__ = ("index", "program")
    __array_ufunc__ = None

    def __init__(self, program: "UpdateProgram", index: int):
        self.program: UpdateProgram = program
        self.index: int = index

    def __neg__(self) -> "Register":
        return self.program.emit("negative", self)


def _operator(row: str) -> Callable[..., Any]:
    return lambda self, other: self.program.emit(row, self, other)


def _reflect(row: str) -> Callable[..., Any]:
    return lambda self, other: self.program.emit(row, other, self)


for _name, _row in {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
}.items():
    setattr(Register, f"__{_name}__", _operator(_row))
    setattr(Register, f"__r{_name}__", _reflect(_row))
for _row in (sqrt, sign, maximum):
    KERNELS[_row.op][Register] = (
        lambda x, *others, name=_row.op.name: x.program.emit(name, x, *others)
    )  # fmt: skip


class UpdateProgram:
    """A rule traced over `columns` arrays (p, g and the state); it updates p and the state.

    The rule's numbers are operands of the kernel, so that new numbers need no new kernel.
    """

    def __init__(
        self, rule: Callable[..., Any], columns: int, dtype: np.dtype[Any], hyper: dict[str, Any]
    ):
        self.dtype = dtype
        self.columns = columns
        self._emitted: list[tuple[str, tuple[int, ...]]] = []  # operands by registers' indices
        self._numbers: list[float] = []
        self._registers = columns
        results = rule(*[Register(self, i) for i in range(columns)], **hyper)
        self.constants: list[np.ndarray[Any, Any]] = [np.array([n], dtype) for n in self._numbers]
        written = tuple(self._emitted), tuple([r.index for r in results])
        self._kernel = _compile(columns, len(self._numbers), dtype, *written)

    def emit(self, row: str, *args: Any) -> Register:
        """Append one operation to the trace."""
        operands = [a if isinstance(a, Register) else self._number(a) for a in args]
        self._emitted.append((row, tuple([r.index for r in operands])))
        return self._new()

    def _new(self) -> Register:
        self._registers += 1
        return Register(self, self._registers - 1)

    def _number(self, value: float) -> Register:
        self._numbers.append(value)
        return Register(self, -len(self._numbers))

    def __call__(self, columns: list[np.ndarray]) -> None:
        """Update columns of one length in place."""
        p, g, *state = columns
        self._kernel([p, g, *state, *self.constants, p, *state], len(p))


@lru_cache(maxsize=256)
def _compile(
    columns: int,
    numbers: int,
    dtype: np.dtype,
    emitted: tuple[tuple[str, tuple[int, ...]], ...],
    results: tuple[int, ...],
) -> FlatKernel:
    """The kernel of a traced rule; the numbers, after the columns, have registers −1, −2, …"""
    from ..compiler.eager.lowering import lower  # slow to import

    def write(b: Any, *inputs: int) -> list[int]:
        values = [*inputs[:columns]]
        given = inputs[columns:]
        for row, used in emitted:
            values.append(b.emit(row, *[values[i] if i >= 0 else given[-1 - i] for i in used]))
        # A result that is one of the columns still needs an equation that stores it.
        return [b.emit("positive", values[i]) if i < columns else values[i] for i in results]

    avals = [Aval((MOST,), dtype, "cpu")] * columns + [Aval((), dtype, "cpu")] * numbers
    return FlatKernel(lower(avals, write))
