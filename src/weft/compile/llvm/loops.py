"""From a kernel to a function `void(ptr *arrays, i64 begin, i64 end)`: loops around emitters.

Loops go over lanes, as many as fill a register; the lanes that are left over at the end of a line
are computed under a constant mask. The order in which folds add up depends on the kernel alone,
never on how its units are divided.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ...graph.graph import Literal
from ..kernel import Fold, Kernel, Step
from ..nest import Axis, Nest, nest_of, reused
from .code import Code, Module, Value, lanes_of
from .convert import cast, held, stored
from .folds import Accumulator, accumulator_of, join
from .memory import read, splat, write
from .scalar import Number, check_dtypes, emit

INDEX = lanes_of("i64")
# So many terms are added one after the other; then their sum joins the others'.
RUN = 128


@dataclass(frozen=True)
class Place:
    """A point of the loops: the offset of each array (None: 0), and how many lanes count.

    `index` is how far along folded lanes it is.
    """

    offsets: tuple[Value | None, ...]
    count: int = 1
    index: Value | None = None


Extents = tuple[tuple[int, int], ...]


def lower(kernel: Kernel, module: Module, name: str, extents: Extents = ()) -> Nest:
    """Write the function of a kernel into a module.

    With `extents`, as `verify` takes them, every access is checked when it happens, and so are
    the units: the last of the pointers is then to an integer, which becomes the number of the first
    array that is left, counted from 1, or −1 for the units, and the function returns.
    """
    check_dtypes(kernel.dtypes)
    nest = nest_of(kernel)
    code = module.function("void", [lanes_of("ptr"), INDEX, INDEX], name)
    if all(n for a, n in enumerate(kernel.domain) if a not in kernel.folded):
        _Writer(code, kernel, nest, extents).write()
    code.do("ret void")
    return nest


class _Writer:
    """A function that is being written, and what is known at the place where it is."""

    def __init__(self, code: Code, kernel: Kernel, nest: Nest, extents: Extents):
        self.code, self.kernel, self.nest, self.extents = code, kernel, nest, extents
        arrays, self.begin, self.end = code.parameters
        self.pointers: list[Value] = []
        for i in range(len(kernel.operands) + len(kernel.results)):
            place = code.address(arrays, i, "ptr")
            self.pointers.append(code.load(lanes_of("ptr"), place, 8))
        self.verdict = code.address(arrays, len(self.pointers), "ptr")
        self.first_step = len(kernel.operands)
        self.hoisted: dict[int, Value] = {}  # repeated along the lanes: loaded before them
        self.fixed: dict[int, Value] = {}  # known once for each fold
        self.spread: dict[int, Value] = {}  # the same, in all lanes
        self.current = 0
        self.kept = {i: (k, self._scratch(i)) for i, k in reused(kernel, nest).items()}

    # -- loops --------------------------------------------------------------------------------

    def loop(self, start, stop, step: int, body: Callable[[Value], None]) -> None:
        """body(index) for start, start + step, … below stop; no loop around a single turn."""
        code = self.code
        if isinstance(start, int) and isinstance(stop, int) and stop - start <= step:
            if stop > start:
                body(code.constant(INDEX, start))
            return
        start, stop = (code.constant(INDEX, v) if isinstance(v, int) else v for v in (start, stop))
        inside, after, before = code.label(), code.label(), code.block
        code.go_if(start < stop, inside, after)
        code.start(inside)
        i = code.phi(INDEX)
        i.add(start, before)
        body(i.value)
        following = code.emit(INDEX, f"add nsw i64 {i.value}, {step}")
        i.add(following, code.block)
        code.go_if(following < stop, inside, after)
        code.start(after)

    def moved(self, place: Place, axis: Axis, index: Value) -> Place:
        """The place so many steps along an axis."""
        made = []
        for offset, stride in zip(place.offsets, axis.strides, strict=True):
            if stride and index.name != "0":
                by = index if stride == 1 else self._indexed("mul", index, stride)
                offset = by if offset is None else self._indexed("add", offset, by)
            made.append(offset)
        return replace(place, offsets=tuple(made))

    def _indexed(self, verb: str, a: Value, b: Value | int) -> Value:
        return self.code.emit(INDEX, f"{verb} nsw i64 {a}, {b}")

    def write(self) -> None:
        if self.extents:
            grain, count = self.nest.grain, self.nest.count
            whole = (self.end.modulo(grain, True) | self.begin.modulo(grain, True)).equals(0)
            last = self.begin.modulo(grain, True).equals(0) & self.end.equals(count)
            self._require((whole | last) & (self.begin >= 0) & (self.end <= count), -1)
        start = Place((None,) * len(self.pointers))
        if self.nest.outer or self.nest.by_lanes:
            self._outer(0, start)
        else:  # one unit in all: it is done if it is asked for
            self.loop(self.begin, self.end, 1, lambda _: self.site(start))

    def _outer(self, depth: int, place: Place) -> None:
        nest = self.nest
        if depth < len(nest.outer):
            axis = nest.outer[depth]
            ends = (self.begin, self.end) if depth == 0 else (0, axis.size)
            self.loop(*ends, 1, lambda i: self._outer(depth + 1, self.moved(place, axis, i)))
        elif nest.lane_folded:
            self.site(place)
        else:
            self._along_lanes(place)

    def _along_lanes(self, place: Place) -> None:
        """A site for each register of a line that is kept, and one for what is left over."""
        nest, lane = self.nest, self.nest.lane
        rest = lane.size % nest.lanes
        whole = lane.size - rest
        self.hoisted = {i: self.operand(i, place, nest.lanes) for i in self._repeated()}

        def vector(i: Value) -> None:
            self.site(replace(self.moved(place, lane, i), count=nest.lanes))

        def last(_: Value) -> None:
            i = self.code.constant(INDEX, whole)
            self.site(replace(self.moved(place, lane, i), count=rest))

        if not nest.by_lanes:
            self.loop(0, whole, nest.lanes, vector)
            if rest:
                last(self.code.constant(INDEX, whole))
            return
        if whole:
            limit = self.code.constant(INDEX, whole)
            stop = (self.end < limit).choose(self.end, limit) if rest else self.end
            self.loop(self.begin, stop, nest.lanes, vector)
        if rest:  # at most one turn, when the last unit is asked for
            self.loop(self.code.constant(INDEX, whole), self.end, lane.size, last)

    def _repeated(self) -> list[int]:
        """The operands that move neither along the lanes nor along folded axes."""
        axes = (self.nest.lane, *self.nest.folds)
        return [
            i
            for i in range(self.first_step)
            if i in self.kernel.live and not any(a.strides[i] for a in axes)
        ]

    def _require(self, condition: Value, number: int) -> None:
        """Give up unless a condition holds."""
        code = self.code
        bad, good = code.label(), code.label()
        code.go_if(condition ^ True, bad, good, rarely=True)
        code.start(bad)
        cell = code.load(lanes_of("ptr"), self.verdict, 8)
        code.store(code.constant(INDEX, number), cell, 8)
        code.do("ret void")
        code.start(good)

    # -- one site: all sweeps over the folded axes at one place of the others -----------------

    def site(self, place: Place) -> None:
        kernel = self.kernel
        self.fixed = dict(self.hoisted)
        self._settle(-1, place)
        for k in range(kernel.sweeps):
            self._sweep(k, place)
            self._settle(2 * k + 1, place)
        if kernel.folded:
            for r in range(len(kernel.results)):
                if kernel.settled[kernel.results[r].value] % 2:
                    self.store(r, place, self.fixed[kernel.results[r].value])

    def _settle(self, depth: int, place: Place) -> None:
        """What is known from here on, once for each fold; the folds themselves are there."""
        lanes = 1 if self.nest.lane_folded else self.nest.lanes
        for i in sorted(self.kernel.live):
            if self.kernel.settled[i] == depth and i not in self.fixed:
                if i < self.first_step:
                    self.fixed[i] = self.operand(i, place, lanes)
                else:
                    self.fixed[i] = self.step(i, lambda j: self.fixed[j])

    def _sweep(self, k: int, place: Place) -> None:
        """Pass over the folded axes: what is stored in this sweep, and its folds."""
        settled = self.kernel.settled
        made = [self._accumulator(i) for i in sorted(self.kernel.live) if self._folds_in(i, k)]
        results = [r for r, x in enumerate(self.kernel.results) if settled[x.value] == 2 * k]
        self.current = k
        if made or results:
            self.spread = {i: splat(v, self.nest.lanes) for i, v in self.fixed.items()}
            self._passes(0, place, made, results)
        for a in made:
            self.fixed[a.number] = a.finished(self.nest.lane_folded, self.kernel.terms)

    def _accumulator(self, i: int) -> Accumulator:
        fold = self.kernel.steps[i - self.first_step]
        assert isinstance(fold, Fold)
        return accumulator_of(self.code, i, fold, self.nest.lanes, self.nest.terms > 2 * RUN)

    def _folds_in(self, i: int, k: int) -> bool:
        step = self.kernel.steps[i - self.first_step] if i >= self.first_step else None
        return isinstance(step, Fold) and self.kernel.settled[i] == 2 * k + 1

    def _passes(self, depth: int, place: Place, made: list, results: list[int]) -> None:
        """The loops over folded axes; the innermost one in runs."""
        nest = self.nest
        inner = depth == len(nest.folds) - (not nest.lane_folded)
        if not inner and depth < len(nest.folds):
            axis = nest.folds[depth]
            self.loop(
                *(0, axis.size, 1),
                lambda i: self._passes(depth + 1, self.moved(place, axis, i), made, results),
            )
        elif nest.lane_folded:
            self._line(place, made, results)
        elif nest.folds:
            axis = nest.folds[depth]
            turn = lambda i: self.body(self.moved(place, axis, i), made, results)  # noqa: E731
            self._runs(axis.size, 1, made, turn)
        else:
            self.body(place, made, results)

    def _line(self, place: Place, made: list, results: list[int]) -> None:
        """A pass along folded lanes."""
        lane, lanes = self.nest.lane, self.nest.lanes
        rest = lane.size % lanes
        whole = lane.size - rest

        def vector(i: Value) -> None:
            at = replace(self.moved(place, lane, i), count=lanes, index=i)
            self.body(at, made, results)

        self._runs(whole, lanes, made, vector)
        if rest:
            i = self.code.constant(INDEX, whole)
            at = replace(self.moved(place, lane, i), count=rest, index=i)
            self.body(at, made, results)
            join(made)

    def _runs(self, stop: int, step: int, made: list, turn: Callable[[Value], None]) -> None:
        """A loop in runs, after each of which the accumulators join the totals."""
        run = RUN * step
        if stop <= 2 * run or all(a.total is None for a in made):
            self.loop(0, stop, step, turn)
            join(made)
            return

        def one(i: Value) -> None:
            end = self._indexed("add", i, run)
            self.loop(i, (end < stop).choose(end, end.same(stop)), step, turn)
            join(made)

        self.loop(0, stop, run, one)

    # -- the steps at one place ---------------------------------------------------------------

    def body(self, place: Place, made: list[Accumulator], results: list[int]) -> None:
        """Everything that this sweep computes for one register of elements."""
        known: dict[int, Value] = {}

        def get(i: int) -> Value:
            if i not in known:
                known[i] = self._moving(i, place, get)
            return known[i]

        values = [get(self.kernel.results[r].value) for r in results]
        for a in made:
            value = cast(get(a.fold.value), self.kernel.dtypes[a.fold.value], a.dtype)
            a.add(value, place.count if self.nest.lane_folded else self.nest.lanes)
        for r, value in zip(results, values, strict=True):
            self.store(r, place, value)

    def _moving(self, i: int, place: Place, get: Callable[[int], Value]) -> Value:
        if i in self.spread:
            return self.spread[i]
        if i < self.first_step:
            return self.operand(i, place, self.nest.lanes)
        if i not in self.kept:
            return self.step(i, get)
        sweep, scratch = self.kept[i]
        kind = held(self.kernel.dtypes[i], self.nest.lanes)
        assert place.index is not None
        at = self.code.address(scratch, place.index, kind.element)
        if self.current > sweep:
            return self.code.load(kind, at, 64)
        value = self.step(i, get)
        self.code.store(value, at, 64)
        return value

    def _scratch(self, i: int) -> Value:
        """Memory for a line of values that a later sweep needs again."""
        lanes = self.nest.lanes
        return self.code.local(held(self.kernel.dtypes[i], lanes), -(-self.nest.lane.size // lanes))

    def step(self, i: int, get: Callable[[int], Value]) -> Value:
        """A step, of values that `get` gives."""
        step = self.kernel.steps[i - self.first_step]
        assert isinstance(step, Step)
        known = self.kernel.dtypes
        operands = [
            j.value if isinstance(j, Literal) else Number(get(j), known[j]) for j in step.inputs
        ]
        return emit(self.code, step.row, operands, step.static, step.dtype)

    def operand(self, i: int, place: Place, lanes: int) -> Value:
        """An operand's elements at a place."""
        dtype = self.kernel.operands[i].dtype
        stride = self.nest.lane.strides[i] if lanes > 1 else 0
        count = min(place.count, lanes)
        pointer = self._pointer(i, place, dtype, (count - 1) * stride)
        return read(self.code, pointer, dtype, lanes, stride, count)

    def store(self, r: int, place: Place, value: Value) -> None:
        """Elements of a result at a place."""
        i = self.first_step + r
        dtype = self.kernel.dtypes[self.kernel.results[r].value]
        stride = self.nest.lane.strides[i]
        pointer = self._pointer(i, place, dtype, (place.count - 1) * stride)
        write(self.code, value, pointer, dtype, stride, place.count)

    def _pointer(self, i: int, place: Place, dtype: np.dtype, span: int) -> Value:
        """Where array i is at a place; its lanes reach as far as `span`."""
        offset = place.offsets[i]
        if self.extents:
            at = self.code.constant(INDEX, 0) if offset is None else offset
            before, behind = self.extents[i]
            self._require((at + min(span, 0) >= -before) & (at + max(span, 0) < behind), i + 1)
        if offset is None:
            return self.pointers[i]
        return self.code.address(self.pointers[i], offset, stored(dtype).element)
