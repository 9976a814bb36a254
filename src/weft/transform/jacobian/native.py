"""Plans in native code: the sweeps of a Jacobian as one compiled function of what they read.

A plan is compiled when its calls so far have cost about as much as compiling it will. The rule
counts calls and equations and uses no clock, so that every run does the same. The function itself
is still run and traced at each call: another branch, or another number, gives another program, and
the tensors that it reads are read again.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import errors
from ...arrays.tensor import Tensor
from ...core.call import caller
from ...core.record import field, record
from ...core.settings import current
from ...core.value import TENSORS, wrap
from ...graph.graph import Equation, Literal
from ...graph.symbol import Trace
from ..modes.trace import Traced
from .compiler import compile_later, is_installed
from .sweeps import Structure, Sweeper

if TYPE_CHECKING:
    from .plan import Candidate, Plan

# The estimated time of compiling, in seconds: a constant, and for each equation of the function.
_COMPILING, _PER_EQUATION = 0.05, 3e-3
_MOST_EQUATIONS = 5000  # of a function; compiling a longer one would take too long
_MOST_BYTES = 1 << 28  # of intermediate values, by an upper bound
_MOST_PROGRAMS = 8  # of one plan: literals may differ at each call


@record(frozen=False)
class _SweepProgram:
    """The sweeps for one set of literals: the number of calls, and the compiled code."""

    calls: int = 0
    code: Callable[..., Tensor] | None = None


@record(frozen=False)
class NativePlan:
    """The native code of one plan.

    price   the number of calls after which it is compiled
    reason  why it is never compiled; empty if it may be
    """

    price: int
    reason: str = ""
    programs: dict[tuple[Literal, ...], _SweepProgram] = field(default_factory=dict)

    def describe(self, s: Sweeper) -> str:
        """Whether calls with this trace are compiled, or when or why not, for the plan's text."""
        reason = self.reason or _why_not_native(s)
        if reason:
            return f"not compiled: {reason}"
        made = sum(p.code is not None for p in self.programs.values())
        return f"compiled: {made} programs" if made else f"compiled after {self.price} calls"

    def run(self, s: Sweeper, plan: "Plan") -> Tensor | None:
        """The plan's result by native code; None if that is not compiled yet, or never is."""
        if self.reason or _why_not_native(s):
            return None
        key = tuple([i for e in s.trace.equations for i in e.inputs if i.__class__ is Literal])
        program = self.programs.get(key)
        if program is None:
            if len(self.programs) >= _MOST_PROGRAMS:
                self.programs.pop(next(iter(self.programs)), None)
            program = self.programs[key] = _SweepProgram()
        program.calls += 1
        if program.code is None and program.calls <= self.price:
            return None
        return self._compute(program, s, plan)

    def _compute(self, program: _SweepProgram, s: Sweeper, plan: "Plan") -> Tensor | None:
        read = (*s.trace.inputs, *s.trace.constants)
        if program.code is None:
            program.code = compile_later(_sweeps(s, plan.chosen, plan.structure, read))
        try:
            return program.code(*[wrap(_raw(s.trace.values[i])) for i in read])
        except (errors.StagingError, errors.VariantsExhausted) as e:
            program.code, self.reason = None, f"{type(e).__name__}: {e.message}"
            return None


def native_of(s: Sweeper, sweeps: int, seconds: float) -> NativePlan:
    """The native plan for this number of sweeps, which are estimated to take `seconds`."""
    equations = s.trace.equations
    price = int((_COMPILING + _PER_EQUATION * len(equations)) / max(seconds, 1e-6)) + 1
    size = s.bytes_per_seed * min(sweeps, s.chunk)
    reason = ""
    if len(equations) > _MOST_EQUATIONS:
        reason = f"it has {len(equations)} equations, the limit is {_MOST_EQUATIONS}"
    elif size > _MOST_BYTES:
        reason = f"compiled code keeps its memory, which might be {size >> 20} MB"
    else:
        own = [e.op.name for e in equations if e.op.foreign or not _is_plain(e.static)]
        reason = f"{own[0]} has parameters that may change from call to call" if own else ""
    return NativePlan(price, reason)


def _is_plain(static) -> bool:
    """Whether parameters are numbers, strings and dtypes, which a plan's key holds completely."""
    if isinstance(static, tuple | list):
        return all([_is_plain(x) for x in static])
    return static is None or isinstance(static, int | float | complex | str | np.dtype | slice)


def _why_not_native(s: Sweeper) -> str:
    """Why the sweeps over this trace are not run as native code; empty if they may be."""
    settings = current.get()
    if not is_installed():
        return "there is no compiler"
    if settings.determinism is not None:
        return "in deterministic mode every call rounds alike, the first ones as well"
    if settings.levels or settings.staging is not None:
        return "it is part of another transformation"
    for i in (*s.trace.inputs, *s.trace.constants):
        value = s.trace.values[i]
        if not isinstance(_raw(value), np.ndarray):
            return "its arguments are no arrays of NumPy's"
        if settings.grad and value.__class__ in TENSORS:
            return "a gradient of the Jacobian may be asked for; no_grad() rules that out"
    return ""


def _raw(value) -> Any:
    """The array of an input or constant of a trace."""
    raw = value._data if value.__class__ in TENSORS else value
    return np.asarray(raw) if isinstance(raw, np.generic) else raw


def _sweeps(
    s: Sweeper, chosen: "Candidate", structure: Structure | None, read: tuple[int, ...]
) -> Callable[..., Tensor]:
    """The sweeps as a function of a trace's inputs and constants."""
    old, limit = s.trace, s.memory_limit
    equations, inputs, outputs = list(old.equations), list(old.inputs), list(old.outputs)
    constants, count = tuple(old.constants), len(old.values)

    def jacobian(*given):
        trace = Trace()
        trace.values = [None] * count
        trace.equations, trace.inputs, trace.outputs = equations, inputs, outputs
        for i, x in zip(read, given, strict=True):
            trace.values[i] = x._data
        trace.constants = {i: trace.values[i] for i in constants}
        for e in equations:
            for i, v in zip(e.outputs, _run(trace, e), strict=True):
                trace.values[i] = v
        sweeper = Sweeper(Traced(trace, lambda leaves: leaves), limit)
        sweeper.structure = structure
        return chosen.run(sweeper)

    return jacobian


def _run(trace: Trace, e: Equation) -> tuple:
    given = [i.value if i.__class__ is Literal else trace.values[i] for i in e.inputs]
    z = e.op.call(caller(e.op), given, e.static)
    return (z,) if e.op.outputs == 1 else tuple(z)
