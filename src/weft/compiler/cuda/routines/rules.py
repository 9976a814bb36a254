"""What running sums, products, recurrences and extremes compute of a line."""

import numpy as np

from ....core import dtypes
from ....core.record import record
from ...emit.code import LLValue, Type, lanes_of
from ...emit.logarithms import logaddexp
from .scans import Scan, State
from .threads import LONG, Thread, element

EXTREMES = ("cummax", "cummin")


@record
class Rule:
    """What is computed along a line. A state is the number so far, of extremes also its place."""

    kind: str
    dtype: np.dtype

    @property
    def scannable(self) -> bool:
        product = self.kind == "cumprod" and self.dtype in dtypes.REAL
        return not product and self.kind != "linear_recurrence"

    @property
    def given(self) -> int:
        return 2 if self.kind == "linear_recurrence" else 1

    @property
    def types(self) -> tuple[Type, ...]:
        """The types of a state."""
        one = lanes_of(element(self.dtype))
        return (one, LONG) if self.kind in EXTREMES else (one,)

    def start(self, x: list[LLValue], at: LLValue) -> State:
        """The state of the element at a place alone."""
        return (x[-1], at) if self.kind in EXTREMES else (x[-1],)

    def follow(self, before: State, x: list[LLValue], at: LLValue) -> State:
        """The state at a place, after another one."""
        if self.kind == "linear_recurrence":
            return (x[1] + x[0] * before[0],)
        return self.combine(before, self.start(x, at))

    def combine(self, first: State, second: State) -> State:
        """The state of two parts of a line."""
        a, b = first[0], second[0]
        if self.kind == "cumsum":
            return (a + b,)
        if self.kind == "cumprod":
            return (a * b,)
        if self.kind == "logcumsumexp":
            return (logaddexp(a, b),)
        taken = self._is_taken(a, b)
        return taken.choose(b, a), taken.choose(second[1], first[1])

    def _is_taken(self, before: LLValue, x: LLValue) -> LLValue:
        """Whether x becomes the extreme: NaN always does, and is never replaced."""
        signed = self.dtype in dtypes.SIGNED
        better = x.compare("ge" if self.kind == "cummax" else "le", before, signed)
        return better | x.is_nan() if self.dtype in dtypes.REAL else better

    def scan(self, t: Thread) -> Scan:
        """The operation of a scan, and what changes no element that follows it."""
        numbers = [t.code.constant(self.types[0], self._identity())]
        places = [t.code.constant(LONG, 0)] if self.kind in EXTREMES else []
        return Scan(self.combine, (*numbers, *places))

    def _identity(self) -> float | int:
        is_real = self.dtype in dtypes.REAL
        if self.kind == "cumsum":
            return -0.0 if is_real else 0  # −0 added to a −0 keeps its sign
        if self.kind == "cumprod":
            return 1
        if is_real:
            return float("inf") if self.kind == "cummin" else float("-inf")
        limits = np.iinfo(self.dtype)
        limit = limits.max if self.kind == "cummin" else limits.min
        return int(np.array(limit, self.dtype).view(f"i{self.dtype.itemsize}"))
