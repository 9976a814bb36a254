"""An update rule as passes over memory: traced once, then run in place on block after block."""

from collections.abc import Callable

import numpy as np

from ..core.backends import KERNELS
from ..ops.complex_ import sign
from ..ops.elementwise import maximum, sqrt
from .aligned import aligned


class Register:
    """A value of a program; a rule takes it for an array."""

    __slots__ = ("index", "program")
    __array_ufunc__ = None

    def __init__(self, program: "Program", index: int):
        self.program, self.index = program, index

    def __neg__(self):
        return self.program.emit(np.negative, self)


def _operator(ufunc: np.ufunc) -> Callable:
    return lambda self, other: self.program.emit(ufunc, self, other)


def _reflected(ufunc: np.ufunc) -> Callable:
    return lambda self, other: self.program.emit(ufunc, other, self)


for _name, _ufunc in {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.divide,
}.items():
    setattr(Register, f"__{_name}__", _operator(_ufunc))
    setattr(Register, f"__r{_name}__", _reflected(_ufunc))
for _row, _ufunc in ((sqrt, np.sqrt), (sign, np.sign), (maximum, np.maximum)):
    KERNELS[_row.op][Register] = (
        lambda x, *others, ufunc=_ufunc: x.program.emit(ufunc, x, *others)
    )  # fmt: skip


class Program:
    """The passes that a rule makes over `columns` arrays: p, g, and the state.

    The results go into the memory of p and of the state, temporaries into a few buffers.
    """

    def __init__(self, rule: Callable, columns: int, dtype: np.dtype, hyper: dict):
        self.dtype = dtype
        self.columns = columns
        self.constants: list[np.ndarray] = []
        self._registers = columns
        self._fixed: dict[float, Register] = {}
        self._emitted: list[tuple] = []  # (ufunc, operands, result), by registers' indices
        results = rule(*[Register(self, i) for i in range(columns)], **hyper)
        self.passes, self.buffers = self._allocated(self._homes(results))

    def emit(self, ufunc: np.ufunc, *args) -> Register:
        """Write one pass down."""
        operands = [a if isinstance(a, Register) else self._constant(a) for a in args]
        out = self._new()
        self._emitted.append((ufunc, tuple([r.index for r in operands]), out.index))
        return out

    def _new(self) -> Register:
        self._registers += 1
        return Register(self, self._registers - 1)

    def _constant(self, value: float) -> Register:
        """A number as a 0-d array, over which NumPy takes less time."""
        if value not in self._fixed:
            self._fixed[value] = self._new()
            self.constants.append(np.asarray(value, self.dtype))
        return self._fixed[value]

    def _homes(self, results) -> dict[int, int]:
        """The place of each register that is a column, or a result and so written into one."""
        homes = {i: i for i in range(self.columns)}
        homes |= {r.index: self.columns + k for k, r in enumerate(self._fixed.values())}
        places = [0, *range(2, self.columns)]
        made: list[int] = []
        for place, result in zip(places, results, strict=True):
            taken = result.index < self.columns or result.index in made
            copied = taken and result.index != place
            made.append((self.emit(np.positive, result) if copied else result).index)
        last = self._last_reads()
        when = {out: at for at, (_, _, out) in enumerate(self._emitted)}
        for place, index in zip(places, made, strict=True):
            if index != place and when[index] < last.get(place, 0):  # the old values are read later
                index = self.emit(np.positive, Register(self, index)).index
            homes[index] = place
        return homes

    def _last_reads(self) -> dict[int, int]:
        return {i: at for at, (_, operands, _) in enumerate(self._emitted) for i in operands}

    def _allocated(self, homes: dict[int, int]) -> tuple[list[tuple], int]:
        """The passes by places: columns, constants, then as few buffers as will do.

        A column whose old values are read no more is a buffer until its result is made; passes
        over less memory are faster.
        """
        first = self.columns + len(self.constants)
        last, free, count, passes = self._last_reads(), [], 0, []
        until = {homes[out]: at for at, (_, _, out) in enumerate(self._emitted) if out in homes}
        for at, (ufunc, operands, out) in enumerate(self._emitted):
            places = [homes[i] for i in operands]
            ending = {homes[i] for i in operands if last[i] == at}
            free += [p for p in ending if p >= first or until.get(p, 0) > at]
            if out not in homes:
                fitting = [p for p in free if last.get(out, at) <= until.get(p, len(self._emitted))]
                homes[out] = fitting[-1] if fitting else first + count
                count += not fitting
            free = [p for p in free if p != homes[out]]
            passes.append((ufunc, places[0], *(places[1:] or [None]), homes[out]))
        return passes, count

    def runner(self, size: int) -> Callable[[list[np.ndarray]], None]:
        """A function that runs the passes on columns of at most `size` elements, in place."""
        buffers = [aligned((size,), self.dtype) for _ in range(self.buffers)]
        passes, constants = self.passes, self.constants

        def run(columns: list[np.ndarray]) -> None:
            n = len(columns[0])
            memory = [*columns, *constants, *[b[:n] for b in buffers]]
            for ufunc, a, b, out in passes:
                if b is None:
                    ufunc(memory[a], out=memory[out])
                else:
                    ufunc(memory[a], memory[b], out=memory[out])

        return run
