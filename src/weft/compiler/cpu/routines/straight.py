"""Scalar programs as native code: no loops, and no memory between loads and stores.

Functions that take many instructions (sin, exp, …) are computed for several numbers at once: those
of the same depth are packed into the lanes of a vector.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ....core.op import TABLE
from ....core.record import record
from ....graph.graph import Equation, Graph, Literal
from ...emit.arithmetic import fma
from ...emit.code import Code, LLValue, lanes_of
from ...emit.convert import is_float, memory_type, register_type, round_to_half
from ...emit.lanes_in_memory import read, write
from ...emit.scalar import TypedValue, emit
from ...ir.kernel import Step
from ...ir.routine import RoutineArray, array
from ...ir.scalar_program import FMA, Constant, Load, ScalarProgram
from ...ir.views import View
from .registry import native
from .routine import NativeRoutine, RoutineBody

# Nanoseconds of one number: a light row, another one, a load or store.
_STEP, _HEAVY, _MOVED = 0.4, 4.0, 0.3
# Rows of a few instructions beside the light ones: not worth packing into lanes.
_SHORT = frozenset(("divide", "sqrt", "reciprocal", "strong_quotient", "power_scalar", FMA))
_LANES = 8


@record
class Straight(NativeRoutine):
    """A scalar program, and the layout of its operands in memory."""

    line: ScalarProgram
    strides: tuple[tuple[int, ...], ...]

    @property
    def operands(self) -> tuple[RoutineArray, ...]:
        pairs = zip(self.line.operands, self.strides, strict=True)
        return tuple(RoutineArray(dtype, shape, strides) for (shape, dtype), strides in pairs)

    @property
    def results(self) -> tuple[RoutineArray, ...]:
        return tuple(array(dtype, shape) for (shape, dtype), _ in self.line.results)

    @property
    def count(self) -> int:
        return 1

    @property
    def cost(self) -> float:
        steps = [v for v in self.line.values if isinstance(v, Step)]
        stored = sum(len(names) for _, names in self.line.results)
        moved = len(self.line.values) - len(steps) + stored
        heavy = sum(is_heavy(s.row) for s in steps)
        return _MOVED * moved + _STEP * (len(steps) - heavy) + _HEAVY * heavy

    def body(self, b: RoutineBody) -> None:
        writing = _ScalarEmitter(b, self)
        for batch in _batches(self.line):
            writing.compute(batch)
        writing.store()


def is_heavy(row: str) -> bool:
    """Whether a row takes many instructions."""
    return row not in _SHORT and TABLE[row].cost == "heavy"


def _batches(line: ScalarProgram) -> Iterator[list[int]]:
    """The values in a valid order, grouped into batches that are computed together.

    Heavy steps of one depth (the heavy steps on the longest path to them) are grouped by row.
    """
    depth: list[int] = []  # heavy steps on the longest path to each value
    for v in line.values:
        before = [depth[i] for i in v.inputs if isinstance(i, int)] if isinstance(v, Step) else []
        heavy = isinstance(v, Step) and is_heavy(v.row)
        depth.append(max(before, default=0) + heavy)
    at: dict[tuple, list[int]] = {}  # heavy ones before the others of their depth
    for k, v in enumerate(line.values):
        heavy = isinstance(v, Step) and is_heavy(v.row)
        at.setdefault((depth[k], not heavy), []).append(k)
    for (_, light), values in sorted(at.items()):
        if light:
            yield from ([k] for k in values)
        else:
            yield from _side_by_side(line, values)


def _side_by_side(line: ScalarProgram, values: list[int]) -> Iterator[list[int]]:
    """Steps of one row with operands of the same dtypes, up to a vector of them."""
    alike: dict[tuple, list[int]] = {}
    for k in values:
        s = line.values[k]
        assert isinstance(s, Step)
        kinds = [i if isinstance(i, Literal) else line.values[i].dtype for i in s.inputs]
        alike.setdefault((s.row, *kinds, s.dtype, repr(s.static)), []).append(k)
    for same in alike.values():
        for first in range(0, len(same), _LANES):
            yield same[first : first + _LANES]


class _ScalarEmitter:
    """Emits the function of a scalar program; holds the numbers computed so far."""

    def __init__(self, b: RoutineBody, routine: Straight):
        self.body, self.code = b, b.code
        self.line, self.operands = routine.line, routine.operands
        self.known: dict[int, LLValue] = {}

    def compute(self, batch: Sequence[int]) -> None:
        """Values that are computed by the same instructions."""
        v = self.line.values[batch[0]]
        if len(batch) > 1:
            self._compute_packed(batch)
        elif isinstance(v, Load):
            self.known[batch[0]] = self._load(v)
        elif isinstance(v, Constant):
            self.known[batch[0]] = self.code.constant(register_type(v.dtype), v.value)
        else:
            operands = [i if isinstance(i, Literal) else self.known[i] for i in v.inputs]
            self.known[batch[0]] = self._step(v, operands)

    def _load(self, v: Load) -> LLValue:
        array, index, offset = self.operands[v.operand], v.index, 0
        for n, stride in zip(reversed(array.shape), reversed(array.strides), strict=True):
            index, along = divmod(index, n)
            offset += along * stride
        element = memory_element(v.dtype)
        pointer = self.code.address(self.body.arrays[v.operand], offset, element)
        return read(self.code, pointer, v.dtype, 1, 0, 1)

    def _step(self, s: Step, operands: Sequence["LLValue | Literal"]) -> LLValue:
        numbers: list[Any] = [
            x.value if isinstance(x, Literal) else TypedValue(x, self._dtype(i))
            for i, x in zip(s.inputs, operands, strict=True)
        ]
        if s.row != FMA:
            return emit(self.code, s.row, numbers, s.static, s.dtype)
        x, y, z = (n.value for n in numbers)
        return round_to_half(fma(x, y, z), s.dtype) if is_float(s.dtype) else x * y + z

    def _dtype(self, x: "int | Literal") -> np.dtype:
        assert isinstance(x, int)
        return self.line.values[x].dtype

    def _compute_packed(self, batch: Sequence[int]) -> None:
        """A step's operands packed into vectors, and the lanes of its result."""
        first = self.line.values[batch[0]]
        assert isinstance(first, Step)
        lanes = 1 << (len(batch) - 1).bit_length()
        operands: list[LLValue | Literal] = []
        for place, x in enumerate(first.inputs):
            if isinstance(x, Literal):
                operands.append(x)
                continue
            own: Any = [self.line.values[k].inputs[place] for k in batch]  # type: ignore[union-attr]
            operands.append(pack_lanes(self.code, [self.known[i] for i in own], lanes))
        made = self._step(first, operands)
        for lane, k in enumerate(batch):
            self.known[k] = extract_lane(made, lane)

    def store(self) -> None:
        """Every result, element by element."""
        first = len(self.line.operands)
        for n, ((_, dtype), names) in enumerate(self.line.results):
            for k, name in enumerate(names):
                element = memory_element(dtype)
                pointer = self.code.address(self.body.arrays[first + n], k, element)
                write(self.code, self.known[name], pointer, dtype, 1, 1)


def memory_element(dtype: np.dtype) -> str:
    """LLVM's type of a dtype's elements in memory."""
    return memory_type(dtype).element


def pack_lanes(code: Code, values: Sequence[LLValue], lanes: int) -> LLValue:
    """Pack numbers into lanes; the last one is repeated in unused lanes."""
    kind = lanes_of(values[0].type.element, lanes)
    made = LLValue(code, kind, "poison")
    for lane in range(lanes):
        x = values[min(lane, len(values) - 1)]
        text = f"insertelement {kind.text} {made.name}, {x.type.text} {x.name}, i32 {lane}"
        made = code.emit(kind, text)
    return made


def extract_lane(value: LLValue, lane: int) -> LLValue:
    """The number in a lane."""
    kind = lanes_of(value.type.element)
    return value.code.emit(kind, f"extractelement {value.type.text} {value.name}, i32 {lane}")


@native("line", strided=lambda e, position, view: True)
def _straight(graph: Graph, views: Mapping[int, View], e: Equation) -> Straight:
    return Straight(e.static[0], tuple(views[i].strides for i in e.inputs))
