"""An update rule as a compiled kernel: traced once for its numbers, then run in place."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..compiler.eager.flat import flat
from ..compiler.ir.kernel import Step
from ..core.backends import KERNELS
from ..ops.complex_ import sign
from ..ops.elementwise import maximum, sqrt


class Register:
    """A value of a program; a rule takes it for an array."""

    __slots__ = ("index", "program")
    __array_ufunc__ = None

    def __init__(self, program: "Program", index: int):
        self.program: Program = program
        self.index: int = index

    def __neg__(self) -> "Register":
        return self.program.emit("negative", self)


def _operator(row: str) -> Callable[..., Any]:
    return lambda self, other: self.program.emit(row, self, other)


def _reflected(row: str) -> Callable[..., Any]:
    return lambda self, other: self.program.emit(row, other, self)


for _name, _row in {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
}.items():
    setattr(Register, f"__{_name}__", _operator(_row))
    setattr(Register, f"__r{_name}__", _reflected(_row))
for _row in (sqrt, sign, maximum):
    KERNELS[_row.op][Register] = (
        lambda x, *others, name=_row.op.name: x.program.emit(name, x, *others)
    )  # fmt: skip


class Program:
    """What a rule makes of `columns` arrays (p, g and the state), written into p and the state.

    The rule's numbers are operands of the kernel, so that others need no other kernel.
    """

    def __init__(
        self, rule: Callable[..., Any], columns: int, dtype: np.dtype[Any], hyper: dict[str, Any]
    ):
        self.dtype = dtype
        self.columns = columns
        self._emitted: list[tuple[str, list[int]]] = []  # operands by registers' indices
        self._numbers: list[float] = []
        self._registers = columns
        results = rule(*[Register(self, i) for i in range(columns)], **hyper)
        self.constants: list[np.ndarray[Any, Any]] = [np.array([n], dtype) for n in self._numbers]
        self._kernel = self._compiled([r.index for r in results])

    def emit(self, row: str, *args: Any) -> Register:
        """Write one operation down."""
        operands = [a if isinstance(a, Register) else self._number(a) for a in args]
        self._emitted.append((row, [r.index for r in operands]))
        return self._new()

    def _new(self) -> Register:
        self._registers += 1
        return Register(self, self._registers - 1)

    def _number(self, value: float) -> Register:
        self._numbers.append(value)
        return Register(self, -len(self._numbers))

    def _compiled(self, results: list[int]):
        """The kernel, whose values are columns, numbers, and then what is computed."""
        count = len(self._numbers)

        def value(i: int) -> int:
            return self.columns - 1 - i if i < 0 else i if i < self.columns else i + count

        steps = tuple(
            [Step(row, tuple([value(i) for i in used]), self.dtype) for row, used in self._emitted]
        )
        made = tuple([value(i) for i in results])
        return flat(self.columns, count, self.dtype, steps, made)

    def __call__(self, columns: list[np.ndarray]) -> None:
        """Update columns of one length in place."""
        p, g, *state = columns
        self._kernel([p, g, *state, *self.constants, p, *state], len(p))
