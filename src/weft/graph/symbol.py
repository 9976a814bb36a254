"""Symbol: the box of tracing with values; its operations append equations and compute as well."""

from typing import Any

from .. import errors
from ..core.aval import Aval
from ..core.backends import PYTHON_SCALARS
from ..core.box import GLANCES, NUMBERS, Box, Level, constant_error
from ..core.call import caller
from ..core.dtypes import is_complex, is_inexact, promote_all
from ..core.op import TABLE, Op
from ..core.origin import origin
from ..core.types import Raw, Static
from ..core.value import aval_of
from .graph import Equation, Graph, Literal


class Trace(Graph):
    """A graph that is being recorded, with the value of everything in it."""

    def __init__(self):
        self._avals: list[Aval] = []
        self.values: list[Raw] = []
        super().__init__()
        self._known: dict[int, int] = {}  # index by identity; `constants` keeps it alive

    @property
    def avals(self) -> list[Aval]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The types, computed lazily: many traces are only swept over."""
        known = self._avals
        known += [aval_of(v) for v in self.values[len(known) :]]
        return known

    @avals.setter
    def avals(  # pyright: ignore[reportIncompatibleVariableOverride]
        self, avals: list[Aval]
    ) -> None:
        self._avals = avals

    def enter(self, value: Raw) -> int:
        """The index of a new value of the program."""
        self.values.append(value)
        return len(self.values) - 1

    def constant(self, value: Raw) -> int:
        """The index of a value from outside; the same value has one index."""
        i = self._known.get(id(value))
        if i is None:
            i = self._known[id(value)] = self.enter(value)
            self.constants[i] = value
        return i


class Symbol(Box):
    """A value of a trace: its index there, which leads to its value in this run."""

    __slots__ = ("index", "trace")
    maker = "jacobian, hessian or linearize"
    level: float
    trace: Trace
    index: int

    def __init__(self, level: float, trace: Trace, index: int):
        self.level, self.trace, self.index = level, trace, index

    @property
    def inner(self) -> Raw:
        return self.trace.values[self.index]

    @classmethod
    def interpret(cls, op: Op, level: float, operands: list[Raw], static: Static) -> Any:
        """Compute one level down, and append the equation."""
        trace = next(x.trace for x in operands if x.__class__ is cls and x.level == level)
        if op.promote != ():
            operands = _promote_complex(op, level, operands)
        inputs: list[Any] = []
        values = []
        for x in operands:
            if x.__class__ is cls and x.level == level:
                inputs.append(x.index)
                values.append(x.inner)
            else:
                scalar = x is None or type(x) in PYTHON_SCALARS
                inputs.append(Literal(x) if scalar else trace.constant(x))
                values.append(x)
        z = op.call(caller(op), values, static)
        zs = (z,) if op.outputs == 1 else z
        outputs = tuple([trace.enter(v) for v in zs])
        trace.equations.append(Equation(op, tuple(inputs), static, outputs, origin()))
        made = tuple([cls(level, trace, i) for i in outputs])
        return made[0] if op.outputs == 1 else made

    @classmethod
    def lift(cls, level: Level, value: Raw) -> "Symbol":
        trace = level.trace
        return cls(level.tag, trace, trace.constant(value))

    def beside(self, value: Raw) -> "Symbol":
        return Symbol(self.level, self.trace, self.trace.constant(value))

    def stop_gradient(self) -> Any:
        """The same value by an equation whose derivative is zero."""
        return Symbol.interpret(TABLE["detach"], self.level, [self], ())

    def text(self) -> str:
        return f"TracedTensor({self.inner!r})"

    def refuse(self, use: str) -> None:
        if use in GLANCES or not is_inexact(aval_of(self.inner).dtype) or self._is_stopped:
            return
        if use in NUMBERS:
            raise constant_error(use, "derivative")
        raise errors.InterchangeError(
            f"{use}: another library cannot take part in a trace, its computation would not be "
            "seen; compute with wf's functions, or use x.detach() if a constant is meant"
        )

    @property
    def _is_stopped(self) -> bool:
        """Whether the value carries no derivative: only detached values and constants are read."""
        behind = {self.index}
        for e in reversed(self.trace.equations):
            if behind.isdisjoint(e.outputs):
                continue
            behind.difference_update(e.outputs)
            if e.op is not TABLE["detach"] and e.op.rule is not None:
                behind.update([i for i in e.inputs if i.__class__ is not Literal])
        return behind.issubset(self.trace.constants)


def _promote_complex(op: Op, level: float, operands: list[Raw]) -> list[Raw]:
    """The operands, with real symbols beside a complex value cast to complex by an equation.

    Derivative rules multiply real by complex raw values without a cast. In a trace the cast is
    needed: its pull-back takes the real part of the cotangent.
    """
    picked = range(len(operands)) if op.promote is None else op.promote
    arrays = [i for i in picked if type(operands[i]) not in PYTHON_SCALARS]
    avals = {i: aval_of(operands[i]) for i in arrays if operands[i] is not None}
    kinds = {is_complex(a.dtype) for a in avals.values()}
    if len(kinds) < 2:
        return operands
    common = promote_all(a.dtype for a in avals.values())
    cast = TABLE["cast"]
    return [
        Symbol.interpret(cast, level, [x], (common,))
        if i in avals and isinstance(x, Symbol) and x.level == level and avals[i].dtype != common
        else x
        for i, x in enumerate(operands)
    ]
