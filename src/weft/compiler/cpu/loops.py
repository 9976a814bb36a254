"""Lower a kernel to a function `void(ptr *arrays, i64 begin, i64 end)`: loops around emitters.

Loops advance by lanes, as many as fill a register; the remainder of a line is computed under a
constant mask. The order in which folds accumulate depends on the kernel alone, never on how its
units are divided.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ...graph.graph import Literal
from ..emit.code import Code, LLModule, LLValue, lanes_of
from ..emit.convert import cast, register_type
from ..emit.folds import Accumulator, accumulator_of, identity, join
from ..emit.lanes_in_memory import splat
from ..emit.scalar import TypedValue, check_dtypes, emit
from ..ir.kernel import FoldStep, Kernel, Step
from .loop_nest import Nest, find_reused, fit_lanes, nest_of
from .walk import INDEX, ArrayWalk, Extents, LoopPoint

# Terms that are added one after the other, before their sum joins the total.
RUN = 128


def lower(kernel: Kernel, module: LLModule, name: str, extents: Extents = ()) -> Nest:
    """Emit the function of a kernel into a module.

    With `extents`, as `verify` takes them, every access is checked when it happens, and so are the
    units: the last pointer is then to an integer, which becomes the number of the first array that
    an access leaves, counted from 1, or −1 for the units, and the function returns.
    """
    check_dtypes(kernel.dtypes)
    nest = nest_of(kernel)
    code = module.function("void", [lanes_of("ptr"), INDEX, INDEX], name)
    record, begin, end = code.parameters
    count = len(kernel.operands) + len(kernel.results)
    words = [code.address(record, i, "ptr") for i in range(count + 1)]
    pointers = [code.load(lanes_of("ptr"), w, 8) for w in words[:count]]
    if _has_sites(kernel):
        _LoopEmitter(code, kernel, nest, extents, pointers, words[count], begin, end).write()
    code.do("ret void")
    return nest


def emit_inline(
    kernel: Kernel, code: Code, pointers: Sequence[LLValue], verdict: LLValue, extents: Extents = ()
) -> None:
    """Emit all units of a kernel inside a function that returns nothing.

    `verdict` points to the address that `lower` has in its last pointer.
    """
    check_dtypes(kernel.dtypes)
    nest = nest_of(kernel)
    if _has_sites(kernel):
        ends = (code.constant(INDEX, 0), code.constant(INDEX, nest.count))
        _LoopEmitter(code, kernel, nest, extents, pointers, verdict, *ends).write()


def _has_sites(kernel: Kernel) -> bool:
    return all(n for a, n in enumerate(kernel.domain) if a not in kernel.folded)


class _LoopEmitter(ArrayWalk):
    """Emits the function of a kernel; holds the values known at the current point."""

    def __init__(self, *given: Any):
        super().__init__(*given)
        self.hoisted: dict[int, LLValue] = {}  # constant along the lanes: loaded before them
        self.fixed: dict[int, LLValue] = {}  # known once for each fold
        self.spread: dict[int, LLValue] = {}  # the same, broadcast to all lanes
        self.current, self.lanes = 0, self.nest.lanes  # the sweep that is emitted, and its lanes
        again = find_reused(self.kernel, self.nest)
        self.kept = {i: (k, self._scratch(i)) for i, k in again.items()}

    # -- loops --------------------------------------------------------------------------------

    def write(self) -> None:
        if self.extents:
            grain, count = self.nest.grain, self.nest.count
            whole = (self.end.modulo(grain, True) | self.begin.modulo(grain, True)).equals(0)
            last = self.begin.modulo(grain, True).equals(0) & self.end.equals(count)
            self.require((whole | last) & (self.begin >= 0) & (self.end <= count), -1)
        start = LoopPoint((None,) * len(self.pointers))
        if self.nest.outer or self.nest.by_lanes:
            self._outer(0, start)
        else:  # a single unit: runs if it is in the range
            self.loop(self.begin, self.end, 1, lambda _: self.site(start))

    def _outer(self, depth: int, place: LoopPoint) -> None:
        nest = self.nest
        if depth < len(nest.outer):
            axis = nest.outer[depth]
            ends = (self.begin, self.end) if depth == 0 else (0, axis.size)

            def turn(i: LLValue) -> None:
                if depth == 0 and self.kernel.piece:
                    self._open(place, i)
                self._outer(depth + 1, self.advance(place, axis, i))

            start, end = ends
            self.loop(start, end, 1, turn)
        elif nest.lane_folded:
            self.site(place)
        else:
            self._along_lanes(place)

    def _open(self, place: LoopPoint, row: LLValue) -> None:
        """Initialise the folds of columns if `row` is the first of a piece."""
        code, nest = self.code, self.nest
        self.piece = row.divide(self.kernel.piece, False)
        first, after = code.label(), code.label()
        code.go_if(row.modulo(self.kernel.piece, False).equals(0), first, after, rarely=True)
        code.start(first)
        at, lanes, size = self.advance(place, nest.outer[0], row), nest.lanes, nest.lane.size

        def clear(i: LLValue, count: int) -> None:
            for r, x in enumerate(self.kernel.results):
                if not x.over_rows:
                    continue
                none = identity(code, x.over_rows, self.kernel.dtypes[x.value], lanes)
                self.store(
                    r, replace(self.advance(at, nest.lane, i), count=count), none, afresh=True
                )

        self.loop(0, size - size % lanes, lanes, lambda i: clear(i, lanes))
        if size % lanes:
            clear(code.constant(INDEX, size - size % lanes), size % lanes)
        code.go(after)
        code.start(after)

    def _along_lanes(self, place: LoopPoint) -> None:
        """A site for each register of an unfolded line, and one for the remainder."""
        nest, lane = self.nest, self.nest.lane
        rest = lane.size % nest.lanes
        whole = lane.size - rest
        self._hoist(place, nest.lanes)

        def vector(i: LLValue) -> None:
            self.site(replace(self.advance(place, lane, i), count=nest.lanes))

        def last(_: LLValue) -> None:
            i = self.code.constant(INDEX, whole)
            self._hoist(place, fit_lanes(nest.lanes, rest))
            self.site(replace(self.advance(place, lane, i), count=rest))

        if not nest.by_lanes:
            self.loop(0, whole, nest.lanes, vector)
            if rest:
                last(self.code.constant(INDEX, whole))
            return
        if whole:
            limit = self.code.constant(INDEX, whole)
            stop = (self.end < limit).choose(self.end, limit) if rest else self.end
            self.loop(self.begin, stop, nest.lanes, vector)
        if rest:  # at most one iteration, when the last unit is in the range
            self.loop(self.code.constant(INDEX, whole), self.end, lane.size, last)

    def _hoist(self, place: LoopPoint, lanes: int) -> None:
        """Load the operands that are constant along the lanes and the folded axes, into `lanes`."""
        self.lanes = lanes
        axes = (self.nest.lane, *self.nest.folds)
        self.hoisted = {
            i: self.operand(i, place, lanes)
            for i in range(self.first_step)
            if i in self.kernel.live and not any(a.strides[i] for a in axes)
        }

    # -- one site: all sweeps over the folded axes at one point of the others -----------------

    def site(self, place: LoopPoint) -> None:
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

    def _settle(self, depth: int, place: LoopPoint) -> None:
        """Compute the values that are known once per fold from this depth on, the folds aside."""
        lanes = 1 if self.nest.lane_folded else self.lanes
        for i in sorted(self.kernel.live):
            if self.kernel.settled[i] == depth and i not in self.fixed:
                if i < self.first_step:
                    self.fixed[i] = self.operand(i, place, lanes)
                else:
                    self.fixed[i] = self.step(i, lambda j: self.fixed[j])

    def _sweep(self, k: int, place: LoopPoint) -> None:
        """One sweep over the folded axes: its stored values, and its folds."""
        settled = self.kernel.settled
        self.current = k
        if self.nest.lane_folded:
            self.lanes = self.nest.sweeps[k]
        made = [self._accumulator(i) for i in sorted(self.kernel.live) if self._folds_in(i, k)]
        results = [r for r, x in enumerate(self.kernel.results) if settled[x.value] == 2 * k]
        if made or results:
            self.spread = {i: splat(v, self.lanes) for i, v in self.fixed.items()}
            self._passes(0, place, made, results)
        for a in made:
            self.fixed[a.number] = a.finish(self.nest.lane_folded, self.kernel.terms)

    def _accumulator(self, i: int) -> Accumulator:
        fold = self.kernel.steps[i - self.first_step]
        assert isinstance(fold, FoldStep)
        many = self.nest.terms(self.current) > 2 * RUN
        return accumulator_of(self.code, i, fold, self.lanes, many)

    def _folds_in(self, i: int, k: int) -> bool:
        step = self.kernel.steps[i - self.first_step] if i >= self.first_step else None
        return isinstance(step, FoldStep) and self.kernel.settled[i] == 2 * k + 1

    def _passes(self, depth: int, place: LoopPoint, made: list, results: list[int]) -> None:
        """The loops over folded axes; the innermost one in runs."""
        nest = self.nest
        inner = depth == len(nest.folds) - (not nest.lane_folded)
        if not inner and depth < len(nest.folds):
            axis = nest.folds[depth]
            self.loop(
                *(0, axis.size, 1),
                lambda i: self._passes(depth + 1, self.advance(place, axis, i), made, results),
            )
        elif nest.lane_folded:
            self._line(place, made, results)
        elif nest.folds:
            axis = nest.folds[depth]
            turn = lambda i: self.body(self.advance(place, axis, i), made, results)  # noqa: E731
            self._runs(axis.size, 1, made, turn)
        else:
            self.body(place, made, results)

    def _line(self, place: LoopPoint, made: list, results: list[int]) -> None:
        """A loop along folded lanes."""
        lane, lanes = self.nest.lane, self.lanes
        rest = lane.size % lanes
        whole = lane.size - rest

        def vector(i: LLValue) -> None:
            at = replace(self.advance(place, lane, i), count=lanes, index=i)
            self.body(at, made, results)

        self._runs(whole, lanes, made, vector)
        if rest:
            i = self.code.constant(INDEX, whole)
            at = replace(self.advance(place, lane, i), count=rest, index=i)
            self.body(at, made, results)
            join(made)

    def _runs(self, stop: int, step: int, made: list, turn: Callable[[LLValue], None]) -> None:
        """A loop in runs; after each, the accumulators join the totals."""
        run = RUN * step
        if stop <= 2 * run or all(a.total is None for a in made):
            self.loop(0, stop, step, turn)
            join(made)
            return

        def one(i: LLValue) -> None:
            end = self.index_arithmetic("add", i, run)
            self.loop(i, (end < stop).choose(end, end.same(stop)), step, turn)
            join(made)

        self.loop(0, stop, run, one)

    # -- the steps at one point ---------------------------------------------------------------

    def body(self, place: LoopPoint, made: list[Accumulator], results: list[int]) -> None:
        """Everything that this sweep computes for one register of elements."""
        known: dict[int, LLValue] = {}

        def get(i: int) -> LLValue:
            if i not in known:
                known[i] = self._moving(i, place, get)
            return known[i]

        values = [get(self.kernel.results[r].value) for r in results]
        for a in made:
            value = cast(get(a.fold.value), self.kernel.dtypes[a.fold.value], a.dtype)
            a.add(value, place.count if self.nest.lane_folded else self.lanes)
        for r, value in zip(results, values, strict=True):
            self.store(r, place, value)

    def _moving(self, i: int, place: LoopPoint, get: Callable[[int], LLValue]) -> LLValue:
        if i in self.spread:
            return self.spread[i]
        if i < self.first_step:
            return self.operand(i, place, self.lanes)
        if i not in self.kept:
            return self.step(i, get)
        sweep, scratch = self.kept[i]
        kind = register_type(self.kernel.dtypes[i], self.lanes)
        assert place.index is not None
        at = self.code.address(scratch, place.index, kind.element)
        align = min(64, kind.lanes * kind.width // 8)
        if self.current > sweep:
            return self.code.load(kind, at, align)
        value = self.step(i, get)
        self.code.store(value, at, align)
        return value

    def _scratch(self, i: int) -> LLValue:
        """Scratch memory for a line of values that a later sweep reads again."""
        lanes = max(self.nest.sweeps)
        return self.code.local(
            register_type(self.kernel.dtypes[i], lanes), -(-self.nest.lane.size // lanes)
        )

    def step(self, i: int, get: Callable[[int], LLValue]) -> LLValue:
        """Emit a step, of values that `get` returns."""
        step = self.kernel.steps[i - self.first_step]
        assert isinstance(step, Step)
        known = self.kernel.dtypes
        operands = [
            j.value if isinstance(j, Literal) else TypedValue(get(j), known[j]) for j in step.inputs
        ]
        return emit(self.code, step.row, operands, step.static, step.dtype)
