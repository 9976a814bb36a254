"""Folds: identities, how partial results combine, and accumulators."""

import math

import numpy as np

from ...core import dtypes
from ...core.record import record
from ..ir.kernel import FoldStep
from .code import Code, LLValue, lanes_of
from .convert import is_float, is_signed, register_type, round_to_half
from .lanes_in_memory import opaque_first


def accumulator_dtype(kind: str, dtype: np.dtype) -> np.dtype:
    """The dtype in which a fold with results of `dtype` accumulates."""
    return dtypes.accumulator(dtype) if kind in ("sum", "prod", "mean") else dtype


def identity(code: Code, kind: str, dtype: np.dtype, lanes: int) -> LLValue:
    """The identity element of a fold."""
    top: float | int = math.inf
    low: float | int = -math.inf
    if dtype == dtypes.bool_:
        low, top = 0, 1
    elif not is_float(dtype):
        low, top = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    if dtype in dtypes.UNSIGNED:
        top = -1
    number = {"sum": 0, "mean": 0, "prod": 1, "max": low, "min": top, "any": 0, "all": 1}
    return code.constant(register_type(dtype, lanes), number[kind])


def combine(kind: str, a: LLValue, b: LLValue, dtype: np.dtype) -> LLValue:
    """Combine two partial results; NaN propagates in a maximum or minimum."""
    if kind in ("sum", "mean"):
        return a.contractible("add", b)
    if kind == "prod":
        return a * b
    if kind in ("any", "all"):
        return a | b if kind == "any" else a & b
    if dtype == dtypes.bool_:
        return a | b if kind == "max" else a & b
    if a.type.element == "float" and "units" in a.code.module.features:
        return a.intrinsic("maximum" if kind == "max" else "minimum", b)  # one instruction
    word = "gt" if kind == "max" else "lt"
    better = b.compare(word, a, is_signed(dtype))
    y = better.choose(b, a)
    return b.is_nan().choose(b, y) if is_float(dtype) else y


def across(kind: str, value: LLValue, dtype: np.dtype) -> LLValue:
    """Reduce the lanes of a partial result to one number, by halves."""
    code, lanes = value.code, value.type.lanes
    while lanes > 1:
        lanes //= 2
        whole, half = value.type, lanes_of(value.type.element, lanes)
        parts = []
        for start in (0, lanes):
            picks = ", ".join(f"i32 {start + i}" for i in range(lanes))
            mask = f"<{lanes} x i32> <{picks}>"
            text = f"shufflevector {whole.text} {value.name}, {whole.text} poison, {mask}"
            if lanes == 1:
                text = f"extractelement {whole.text} {value.name}, i32 {start}"
            parts.append(code.emit(half, text))
        value = combine(kind, parts[0], parts[1], dtype)
    return value


@record
class Accumulator:
    """A fold in progress, in memory that LLVM promotes to registers.

    run    the partial result since the last `join`; of all terms unless there are many
    total  the sum of the runs before that
    lost   the accumulated rounding error of `total` (compensated summation)
    """

    number: int
    fold: FoldStep
    dtype: np.dtype
    lanes: int
    run: LLValue
    total: LLValue | None = None
    lost: LLValue | None = None

    def read(self, cell: LLValue) -> LLValue:
        return cell.code.load(register_type(self.dtype, self.lanes), cell, 64)

    def add(self, value: LLValue, count: int) -> None:
        """Add a term in each of the first `count` lanes."""
        code, kind = value.code, self.fold.kind
        if count < self.lanes:
            value = self._neutral_where_idle(value, count)
        code.store(combine(kind, self.read(self.run), value, self.dtype), self.run, 64)

    def _neutral_where_idle(self, value: LLValue, count: int) -> LLValue:
        """The identity in the lanes that do not count."""
        code, lanes = value.code, self.lanes
        counts = opaque_first(code, lanes, count)
        return counts.choose(value, identity(code, self.fold.kind, self.dtype, lanes))

    def finish(self, across_lanes: bool, terms: int) -> LLValue:
        """The result: one number, or one in each lane."""
        return self.settle(self.partial(across_lanes), terms)

    def partial(self, across_lanes: bool) -> LLValue:
        """What was added so far: one number, or one in each lane."""
        value = self.read(self.total or self.run)
        if self.lost is not None:  # NaN beside an infinite total
            lost = self.read(self.lost)
            value = value + lost.is_nan().choose(lost.same(0.0), lost)
        if across_lanes:
            value = across(self.fold.kind, value, self.dtype)
        return value

    def settle(self, value: LLValue, terms: int) -> LLValue:
        """The result, of the combination of all terms."""
        if self.fold.kind == "mean":
            value = value / float(terms)
        return round_to_half(value, self.fold.dtype)


def accumulator_of(code: Code, number: int, fold: FoldStep, lanes: int, many: bool) -> Accumulator:
    """A new accumulator; sums of many floats are made of runs."""
    dtype = accumulator_dtype(fold.kind, fold.dtype)
    runs = many and fold.kind in ("sum", "mean") and is_float(dtype)
    cells = [code.local(register_type(dtype, lanes)) for _ in range(3 if runs else 1)]
    for cell in cells:
        code.store(identity(code, fold.kind, dtype, lanes), cell, 64)
    return Accumulator(number, fold, dtype, lanes, *cells)


def join(made: list[Accumulator]) -> None:
    """Add the runs to the totals, and accumulate the rounding errors."""
    for a in made:
        if a.total is None or a.lost is None:
            continue
        code = a.run.code
        run, total, lost = map(a.read, (a.run, a.total, a.lost))
        joined = total + run
        back = joined - total
        code.store(lost + ((total - (joined - back)) + (run - back)), a.lost, 64)
        code.store(joined, a.total, 64)
        code.store(run.same(0.0), a.run, 64)
