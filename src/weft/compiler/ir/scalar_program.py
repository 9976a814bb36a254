"""Scalar programs: small arrays unrolled into scalars, each element a value of its own.

A `ScalarProgram` says which elements are loaded, which scalar steps run, and where the results are
stored. `ScalarProgramBuilder` traces it by running equations on arrays of names: a transpose or a
stack moves names, an elementwise row becomes one step per element, sums and matrix products become
additions and multiplications.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import reduce
from math import copysign
from typing import Any

import numpy as np

from ...core import dtypes
from ...core.aval import Aval
from ...core.backends import BACKENDS, KERNELS
from ...core.op import TABLE
from ...core.record import record
from ...graph.graph import Equation, Graph, Literal
from .kernel import FOLDS, Step, renumber

FMA = "fma"  # x·y + z: not a row of the table; floats are rounded once
Name = int | Literal  # the name of a computed number, or the number itself
Typed = tuple[tuple[int, ...], np.dtype]  # a shape and a dtype


@record
class Load:
    """An element of an operand, by its row-major index."""

    operand: int
    index: int
    dtype: np.dtype


@record
class Constant:
    """A number of a dtype, by its Python repr: so 0.0 is not -0.0, and NaN equals NaN."""

    text: str
    dtype: np.dtype

    @property
    def value(self) -> bool | int | float:
        kind = float if dtypes.is_inexact(self.dtype) else int
        return self.text == "True" if self.dtype == dtypes.bool_ else kind(self.text)


ScalarValue = Load | Constant | Step  # what a scalar program consists of


@record
class ScalarProgram:
    """Values are numbered in the order of computation; a result names one value per element."""

    operands: tuple[Typed, ...]
    values: tuple[ScalarValue, ...]
    results: tuple[tuple[Typed, tuple[int, ...]], ...]

    @property
    def steps(self) -> int:
        """How many numbers are computed, loads and constants aside."""
        return sum(isinstance(v, Step) for v in self.values)


def interpret_program(
    line: ScalarProgram, operands: Sequence[np.ndarray]
) -> tuple[np.ndarray, ...]:
    """Interpret a scalar program by NumPy's kernels, number by number."""
    known: list[Any] = []
    for v in line.values:
        if isinstance(v, Load):
            known.append(np.asarray(operands[v.operand].reshape(-1)[v.index]))
        elif isinstance(v, Constant):
            known.append(np.asarray(v.value, v.dtype))
        else:
            given = [i.value if isinstance(i, Literal) else known[i] for i in v.inputs]
            known.append(_by_numpy(v.row, given, v.static, v.dtype))
    return tuple(
        np.array([known[i] for i in names], dtype).reshape(shape)
        for (shape, dtype), names in line.results
    )


def _by_numpy(row: str, given: list[Any], static: tuple[Any, ...], dtype: np.dtype) -> np.ndarray:
    numpy_ = BACKENDS[np.ndarray]
    with numpy_.quiet():
        if row == FMA:
            x, y, z = given
            return np.asarray(x * y + z, dtype)
        return np.asarray(numpy_.whole(KERNELS[TABLE[row]][np.ndarray](*given, *static)), dtype)


# -- building one ----------------------------------------------------------------------------

# The rows that move elements of small arrays; other rows that move elements stay steps.
# Their kernels run on arrays of names, too; where they insert zeros, they leave name 0.
STRIDED = ("strides", "parts")


class ScalarProgramBuilder:
    """Traces a scalar program. Names of numbers count from 1; 0 is a hole."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.values: list[ScalarValue] = []
        self.operands: list[int] = []
        self.arrays: dict[int, np.ndarray] = {}  # names, by the graph's values
        self._names: dict[tuple[Hashable, ...], int] = {}
        self._numbers: dict[int, float | int] = {}  # of constants, by their names

    # -- numbers -------------------------------------------------------------------------------

    def _name(self, key: tuple[Hashable, ...], value: ScalarValue) -> int:
        if key not in self._names:
            self.values.append(value)
            self._names[key] = len(self.values)
        return self._names[key]

    def constant(self, value: Any, dtype: np.dtype) -> int:
        """The name of a constant."""
        kind = float if dtypes.is_inexact(dtype) else bool if dtype == dtypes.bool_ else int
        made = kind(np.asarray(value).astype(dtype))
        name = self._name(("constant", repr(made), dtype), Constant(repr(made), dtype))
        self._numbers[name] = made
        return name

    def number(self, name: Name) -> float | int | None:
        """The constant that a name stands for; None if the name is computed."""
        return name.value if isinstance(name, Literal) else self._numbers.get(name)

    def step(self, row: str, inputs: Sequence[Name], dtype: np.dtype, *static: Any) -> int:
        """Append a row of numbers, and return its name."""
        known = [self.number(x) is not None for x in inputs]
        if all(known):
            given = [self._give(x) for x in inputs]
            return self.constant(_by_numpy(row, given, static, dtype), dtype)
        simpler = SIMPLER.get(row)
        if simpler is not None and (True in known or len(known) == 1):
            made = simpler(self, *inputs)
            if isinstance(made, int) and self.values[made - 1].dtype == dtype:
                return made
        key = (row, *inputs, dtype, repr(static) if static else "")
        name = self._names.get(key)
        if name is None:
            operands = tuple([x if isinstance(x, Literal) else x - 1 for x in inputs])
            name = self._name(key, Step(row, operands, dtype, static))
        return name

    def _give(self, x: Name) -> Any:
        if isinstance(x, Literal):
            return x.value
        v = self.values[x - 1]
        assert isinstance(v, Constant)
        return np.asarray(v.value, v.dtype)

    # -- arrays --------------------------------------------------------------------------------

    def names(self, x: int) -> np.ndarray:
        """The names of the elements of one of the graph's values."""
        if x not in self.arrays:
            self.arrays[x] = self._enter(x)
        return self.arrays[x]

    def _enter(self, x: int) -> np.ndarray:
        aval = self.graph.avals[x]
        if x in self.graph.constants:
            value = np.asarray(self.graph.constants[x])
            found = [self.constant(v, aval.dtype) for v in value.reshape(-1)]
        else:
            n, size = len(self.operands), int(np.prod(aval.shape))
            self.operands.append(x)
            found = [self._name(("load", n, k), Load(n, k, aval.dtype)) for k in range(size)]
        return np.array(found, np.int64).reshape(aval.shape)

    def write(self, e: Equation) -> None:
        """Trace an equation by running it on names."""
        out = self.graph.avals[e.outputs[0]]
        operands: list[Any] = [x if isinstance(x, Literal) else self.names(x) for x in e.inputs]
        if e.op.moves in STRIDED:
            made = self._move(e, operands, out.dtype)
        elif e.op.folds:
            made = self._fold(e, operands[0], out.dtype)
        elif e.op.name == "matmul":
            made = self._product(operands[0], operands[1], out.dtype)
        else:
            made = self._pointwise(e, operands, out)
        self.arrays[e.outputs[0]] = made.reshape(out.shape)

    def _move(self, e: Equation, operands: list[Any], dtype: np.dtype) -> np.ndarray:
        static, fill = e.static, 0
        if e.op.name == "pad":
            static, fill = (e.static[0], 0, *e.static[2:]), e.static[1]
        made = e.op.call(KERNELS[e.op][np.ndarray], operands, static)
        made = np.array(made, np.int64)
        if (made == 0).any():
            made[made == 0] = self.constant(fill, dtype)
        return made

    def _pointwise(self, e: Equation, operands: list[Any], out: Aval) -> np.ndarray:
        spread = [
            [x] * int(np.prod(out.shape))
            if isinstance(x, Literal)
            else np.broadcast_to(x, out.shape).reshape(-1).tolist()
            for x in operands
        ]
        made = [self.step(e.op.name, x, out.dtype, *e.static) for x in zip(*spread, strict=True)]
        return np.array(made, np.int64)

    def _fold(self, e: Equation, x: np.ndarray, dtype: np.dtype) -> np.ndarray:
        axes = tuple(e.static[0])
        kept = [a for a in range(x.ndim) if a not in axes]
        terms = x.transpose((*kept, *axes)).reshape(int(np.prod([x.shape[a] for a in kept])), -1)
        own, count = self._working(dtype), terms.shape[1]
        made = []
        for line in terms.tolist():
            total = self._tree(FOLDS[e.op.folds], [self._as(t, own) for t in line], own)
            if e.op.folds == "mean":
                total = self.step("divide", [total, Literal(float(count))], own)
            made.append(self._as(total, dtype))
        return np.array(made, np.int64)

    def _tree(self, row: str, terms: list[int], dtype: np.dtype) -> int:
        """Combine terms pairwise: short dependency chains, and small rounding errors."""
        while len(terms) > 1:
            pairs = zip(terms[::2], terms[1::2], strict=False)
            made = [self.step(row, pair, dtype) for pair in pairs]
            terms = made + (terms[-1:] if len(terms) % 2 else [])
        return terms[0]

    def _product(self, x: np.ndarray, y: np.ndarray, dtype: np.dtype) -> np.ndarray:
        x, y = (x[None] if x.ndim == 1 else x), (y[:, None] if y.ndim == 1 else y)
        batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
        rows = np.broadcast_to(x, (*batch, *x.shape[-2:])).reshape(-1, *x.shape[-2:])
        columns = np.broadcast_to(y, (*batch, *y.shape[-2:])).reshape(-1, *y.shape[-2:])
        return np.array(
            [
                self._dot(row, column, dtype)
                for a, b in zip(rows.tolist(), columns.swapaxes(1, 2).tolist(), strict=True)
                for row in a
                for column in b
            ],
            np.int64,
        )

    def _dot(self, x: list[int], y: list[int], dtype: np.dtype) -> int:
        """Σ xₖ·yₖ. Factors of a constant 0 are kept, since the other factor may be infinite."""
        first = self.step("multiply", [x[0], y[0]], dtype)
        pairs = zip(x[1:], y[1:], strict=True)
        return reduce(lambda total, p: self._multiply_add(p[0], p[1], total, dtype), pairs, first)

    def _multiply_add(self, x: int, y: int, total: int, dtype: np.dtype) -> int:
        """x·y + total."""
        known = [self.number(v) for v in (x, y)]
        if None not in known or 1 in known or -1 in known:
            return self.step("add", [self.step("multiply", [x, y], dtype), total], dtype)
        if self.number(total) == 0:  # the sign of a zero in a sum of products is unspecified
            return self.step("multiply", [x, y], dtype)
        return self.step(FMA, [x, y, total], dtype)

    def _working(self, dtype: np.dtype) -> np.dtype:
        return dtypes.accumulator(dtype) if dtypes.is_inexact(dtype) else dtype

    def _as(self, x: int, dtype: np.dtype) -> int:
        own = self.values[x - 1].dtype
        return x if own == dtype else self.step("cast", [x], dtype, dtype)

    # -- the result ----------------------------------------------------------------------------

    def finish(self, outputs: Sequence[int]) -> tuple[ScalarProgram, list[int]]:
        """The program of these values of the graph, and the values that are its operands."""
        wanted = [(self.names(i).reshape(-1) - 1).tolist() for i in outputs]
        live, todo = set(), [k for names in wanted for k in names]
        while todo:
            k = todo.pop()
            if k not in live:
                live.add(k)
                v = self.values[k]
                todo += [i for i in v.inputs if isinstance(i, int)] if isinstance(v, Step) else []
        order = sorted(live)
        new = {k: n for n, k in enumerate(order)}
        read = sorted({v.operand for k in order if isinstance(v := self.values[k], Load)})
        values = tuple(_renumber(self.values[k], new, read) for k in order)
        avals = self.graph.avals
        results = tuple(
            ((avals[i].shape, avals[i].dtype), tuple(new[k] for k in names))
            for i, names in zip(outputs, wanted, strict=True)
        )
        sources = [self.operands[n] for n in read]
        operands = tuple((avals[i].shape, avals[i].dtype) for i in sources)
        return ScalarProgram(operands, values, results), sources


def _renumber(v: ScalarValue, new: dict[int, int], read: list[int]) -> ScalarValue:
    if isinstance(v, Load):
        return Load(read.index(v.operand), v.index, v.dtype)
    return v if isinstance(v, Constant) else renumber(v, new)


# -- identities of numbers, as in the pass `algebra` -----------------------------------------


def _is(w: ScalarProgramBuilder, x: Name, number: float) -> bool:
    v = w.number(x)
    return v is not None and v == number and copysign(1, v) == copysign(1, number)


def _multiply(w: ScalarProgramBuilder, x: Name, y: Name) -> Name | None:
    return y if _is(w, x, 1) else x if _is(w, y, 1) else None


def _add(w: ScalarProgramBuilder, x: Name, y: Name) -> Name | None:
    return y if _is(w, x, -0.0) else x if _is(w, y, -0.0) else None


def _choose(w: ScalarProgramBuilder, condition: Name, x: Name, y: Name) -> Name | None:
    flag = w.number(condition)
    return None if flag is None else x if flag else y


def _second_if(number: float) -> Callable[[ScalarProgramBuilder, Name, Name], Name | None]:
    return lambda w, x, y: x if _is(w, y, number) else None


def _same(w: ScalarProgramBuilder, x: Name, *static: Any) -> Name:
    return x


# Identities: the operand that a row reduces to, or None; one of another dtype does not count.
SIMPLER: dict[str, Callable[..., Name | None]] = {
    "multiply": _multiply,
    "add": _add,
    "subtract": _second_if(0.0),
    "divide": _second_if(1),
    "where": _choose,
    **dict.fromkeys(("cast", "positive", "conj", "real", "copy", "alias", "detach"), _same),
}
