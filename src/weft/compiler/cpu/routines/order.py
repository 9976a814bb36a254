"""Sorting short lines: by integers that encode an element's value and, below that, its index.

Such integers are all different, so that any sorting algorithm is stable. NaN comes last, or first
in descending order; zeros are equal whatever their signs.
"""

from math import prod

import numpy as np

from ....core import dtypes
from ....core.record import record
from ....graph.graph import Literal
from ...emit.code import LLValue, lanes_of
from ...emit.control import WORD, each, forever, when
from ...ir.routine import RoutineArray, array
from .gather import move
from .registry import native
from .routine import NativeRoutine, RoutineBody
from .scatter import element

# Longer lines go to the backend; so do values alone, which it sorts by vectors, unless they are
# so few that calling it takes longer.
LONGEST, FEW = 1024, 2048
# Up to this many of a line are selected one by one, without sorting all.
CHOSEN = 32
_RUN = 16
_STEP = 2.5  # nanoseconds


@record
class Order(NativeRoutine):
    """The first k of each line of n in order: the elements, their indices, or both."""

    dtype: np.dtype
    lines: int
    n: int
    k: int
    descending: bool
    values: bool
    places: bool

    @property
    def operands(self) -> tuple[RoutineArray, ...]:
        return (array(self.dtype, (self.lines, self.n)),)

    @property
    def results(self) -> tuple[RoutineArray, ...]:
        shape = (self.lines, self.k)
        made = [array(self.dtype, shape)] if self.values else []
        return (*made, array(dtypes.int64, shape)) if self.places else tuple(made)

    @property
    def count(self) -> int:
        return self.lines

    @property
    def chooses(self) -> bool:
        """Whether the best so far are kept during one pass over the line."""
        return self.k <= CHOSEN and 2 * self.k < self.n

    @property
    def cost(self) -> float:
        steps = 2 if self.chooses else self.n.bit_length() + 4
        return _STEP * self.lines * self.n * steps

    @property
    def bits(self) -> int:
        """The bits of a value, and of an index."""
        return 64 if self.dtype.itemsize == 8 else 32

    @property
    def number(self) -> str:
        """The LLVM type of both."""
        return f"i{2 * self.bits}"

    def body(self, b: RoutineBody) -> None:
        line = _LineEmitter(self, b)
        each(b.code, b.begin, b.end, line.write)


class _LineEmitter:
    """Emits the code for one line."""

    def __init__(self, routine: Order, b: RoutineBody):
        self.routine, self.b, self.code = routine, b, b.code
        self.kind, self.align = lanes_of(routine.number), routine.bits // 4
        # One more than there are: merging reads the one past the end, and ignores it.
        room = routine.k + 1 if routine.chooses else routine.n + 1
        self.numbers, self.spare = (b.code.local(self.kind, room) for _ in range(2))
        self.left, self.right = b.code.local(WORD), b.code.local(WORD)

    def at(self, base: LLValue, i: LLValue) -> LLValue:
        return self.code.address(base, i, self.kind.element)

    def load(self, base: LLValue, i: LLValue) -> LLValue:
        return self.code.load(self.kind, self.at(base, i), self.align)

    def store(self, x: LLValue, base: LLValue, i: LLValue) -> None:
        self.code.store(x, self.at(base, i), self.align)

    def write(self, u: LLValue) -> None:
        r, code = self.routine, self.code
        source = code.address(self.b.arrays[0], u * r.n, element(r.dtype))
        if r.chooses:
            self._choose(source)
            each(code, 0, r.k, lambda t: self._put(u, t, source, self.numbers))
            return
        each(code, 0, r.n, lambda t: self.store(self._number(source, t), self.numbers, t))
        each(code, 0, r.n, self._sort_run, _RUN)
        here, there, width = self.numbers, self.spare, _RUN
        while width < r.n:
            self._merge_all(here, there, width)
            here, there, width = there, here, 2 * width
        each(code, 0, r.k, lambda t: self._put(u, t, source, here))

    def _number(self, source: LLValue, t: LLValue) -> LLValue:
        """The integer of element t."""
        r, code = self.routine, self.code
        name = element(r.dtype)
        x = code.load(lanes_of(name), code.address(source, t, name), r.dtype.itemsize)
        key = _key(x, r.dtype)
        key = ~key if r.descending else key
        low = t if r.bits == 64 else t.cast("trunc", "i32")
        high = key.cast("zext", f"i{r.bits}").cast("zext", r.number)
        return (high << r.bits) | low.cast("zext", r.number)

    def _sort_run(self, start: LLValue) -> None:
        """Insertion sort of a run."""
        code, r = self.code, self.routine
        end = start + _RUN
        end = (end < r.n).choose(end, end.same(r.n))
        each(
            *(code, start + 1, end),
            lambda i: self._insert(self.load(self.numbers, i), start, i),
        )

    def _choose(self, source: LLValue) -> None:
        """The first k in order; other elements enter if they precede the last of these."""
        code, k = self.code, self.routine.k
        none, last = code.constant(WORD, 0), code.constant(WORD, k - 1)
        each(code, 0, k, lambda t: self._insert(self._number(source, t), none, t))

        def look(t: LLValue) -> None:
            x = self._number(source, t)
            better = x.compare("lt", self.load(self.numbers, last), signed=False)
            when(better, lambda: self._insert(x, none, last))

        each(code, k, self.routine.n, look)

    def _insert(self, x: LLValue, start: LLValue, end: LLValue) -> None:
        """Insert a number into the sorted range from start to end; the one at end is dropped."""
        code = self.code
        code.store(end, self.left, 8)

        def shift(out: str) -> None:
            j = code.load(WORD, self.left, 8)
            when(j <= start, lambda: code.go(out))
            before = self.load(self.numbers, j - 1)
            when(before.compare("lt", x, signed=False), lambda: code.go(out))
            self.store(before, self.numbers, j)
            code.store(j - 1, self.left, 8)

        forever(code, shift)
        self.store(x, self.numbers, code.load(WORD, self.left, 8))

    def _merge_all(self, here: LLValue, there: LLValue, width: int) -> None:
        """Merge pairs of sorted neighbours of a width."""
        code, n = self.code, self.routine.n

        def pair(start: LLValue) -> None:
            middle, end = (
                ((start + far) < n).choose(start + far, start.same(n)) for far in (width, 2 * width)
            )
            code.store(start, self.left, 8)
            code.store(middle, self.right, 8)

            def one(o: LLValue) -> None:
                i, j = code.load(WORD, self.left, 8), code.load(WORD, self.right, 8)
                x, y = self.load(here, i), self.load(here, j)
                first = (i < middle) & ((j >= end) | x.compare("lt", y, signed=False))
                self.store(first.choose(x, y), there, o)
                step = first.cast("zext", "i64")
                code.store(i + step, self.left, 8)
                code.store(j + (1 - step), self.right, 8)

            each(code, start, end, one)

        each(code, 0, n, pair, 2 * width)

    def _put(self, u: LLValue, t: LLValue, source: LLValue, here: LLValue) -> None:
        r, code = self.routine, self.code
        low = self.load(here, t).cast("trunc", f"i{r.bits}")
        place = low if r.bits == 64 else low.cast("zext", "i64")
        at, item = u * r.k + t, r.dtype.itemsize
        if r.values:
            name = element(r.dtype)
            target = code.address(self.b.arrays[1], at, name)
            move(code, target, code.address(source, place, name), item)
        if r.places:
            code.store(place, code.address(self.b.arrays[-1], at, "i64"), 8)


def _key(x: LLValue, dtype: np.dtype) -> LLValue:
    """An unsigned integer in the order of the values."""
    if dtype not in dtypes.REAL:
        return x ^ -(1 << (8 * dtype.itemsize - 1)) if dtype in dtypes.SIGNED else x
    bits = (x + 0.0).bits
    sign = -(1 << (8 * dtype.itemsize - 1))
    ordered = bits ^ ((bits >> (8 * dtype.itemsize - 1)) | sign)
    return x.is_nan().choose(ordered.same(-1), ordered)


@native("prepared_sort", "prepared_argsort", "prepared_topk")
def _order(graph, views, e) -> NativeRoutine | str:
    (x,) = e.inputs
    if isinstance(x, Literal) or 0 in graph.avals[e.outputs[0]].shape:
        return "there is nothing to sort"
    a, row = graph.avals[x], e.op.name.removeprefix("prepared_")
    if row == "sort" and prod(a.shape) > FEW:
        return "the backend sorts values by vectors"
    k, descending = (e.static[0], e.static[2]) if row == "topk" else (a.shape[-1], e.static[1])
    sizes = prod(a.shape[:-1]), a.shape[-1], k
    routine = Order(a.dtype, *sizes, bool(descending), row != "argsort", row != "sort")
    if a.shape[-1] > LONGEST and not routine.chooses:
        return f"lines of more than {LONGEST} elements are sorted by the backend"
    return routine
