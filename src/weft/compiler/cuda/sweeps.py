"""The sweeps of a kernel over one line, or some lines side by side, by a team of threads."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from ...core.record import field, record
from ...graph.graph import Literal
from ..emit.code import LLValue
from ..emit.convert import cast
from ..emit.folds import Accumulator, accumulator_of, identity, join
from ..emit.lanes_in_memory import first, splat
from ..ir.kernel import Kernel, Result, Step, moving
from .arrays import GridArrays, Point
from .steps import emit_step, fold_of
from .teams import Partial


@record(frozen=False, eq=False)
class Turn:
    """Some neighbouring elements of a thread: where, whether they exist, and known values.

    words  the operands that are loaded, as words
    count  how many of them there are, if a line ends before the others; 0: all
    group  their place among the groups of a line
    """

    point: Point
    inside: LLValue | None = None
    count: int = 0
    group: LLValue | None = None
    known: dict[int, LLValue] = field(default_factory=dict)
    words: dict[int, LLValue] = field(default_factory=dict)


_NOTHING: Mapping[int, LLValue] = MappingProxyType({})
# Turns that are loaded together, one after the other.
Turns = Sequence[Turn]


class Held(Protocol):
    """What several sweeps of a line read, kept by the thread that loads it.

    first  the sweep that loads each of these operands
    """

    @property
    def first(self) -> Mapping[int, int]: ...

    def store(self, operand: int, group: LLValue, words: LLValue) -> None:
        """Keep a group."""
        ...

    def load(self, operand: int, group: LLValue) -> LLValue:
        """A group that was kept."""
        ...


class Walk(Protocol):
    """How a thread goes over its turns."""

    def each(self, point: Point, body: Callable[[Turns], None]) -> None:
        """Emit `body` for all turns of a site; turns that stay the same keep what they know."""
        ...


@record(frozen=False, eq=False)
class SweepEmitter:
    """Emits the sweeps at one site; holds the values known there.

    lanes        elements side by side: of one line if `lane_folded`, else of as many lines
    across       folds parts of all threads of the team
    first        whether this thread stores what the team has folded; None: it does
    """

    kernel: Kernel
    arrays: GridArrays
    walk: Walk
    lanes: int
    lane_folded: bool
    many: bool
    across: Callable[[Sequence[Partial]], list[LLValue]]
    first: LLValue | None
    store: Callable[[int, Turn, LLValue], None]
    held: Held | None = None

    def __post_init__(self) -> None:
        self.code = self.arrays.code
        self.base = len(self.kernel.operands)
        self.fixed: dict[int, LLValue] = {}
        self.spread: dict[int, LLValue] = {}
        self.depths = [_depth(self.kernel, r) for r in self.kernel.results]
        self.common = [i for i in range(self.base) if not changes(self.kernel, i)]

    def site(
        self, point: Point, inside: LLValue | None, fixed: Mapping[int, LLValue] = _NOTHING
    ) -> None:
        """Everything at a site; nothing is stored unless it is inside.

        fixed  operands of the whole line that are loaded already
        """
        kernel = self.kernel
        self.fixed, self.spread = dict(fixed), {}
        self._settle(-1, point)
        for k in range(kernel.sweeps):
            self._sweep(k, point, inside)
            self._settle(2 * k + 1, point)
        held = [r for r, depth in enumerate(self.depths) if depth % 2]
        if kernel.folded and held:
            if self.first is not None and not any(fold_of(kernel, i) for i in kernel.live):
                # The others may still read an operand whose memory a result takes.
                self.arrays.machine.barrier()
            self.arrays.when(both(inside, self.first), lambda: self._store_folds(held, point))

    def _store_folds(self, results: Sequence[int], point: Point) -> None:
        for r in results:
            self.arrays.write(self.base + r, point, self.fixed[self.kernel.results[r].value])

    def _settle(self, depth: int, point: Point) -> None:
        """Compute the values that are known once per fold from this depth on, the folds aside."""
        for i in sorted(self.kernel.live):
            if self.kernel.settled[i] != depth or i in self.fixed:
                continue
            if i < self.base:
                self.fixed[i] = self.arrays.read(i, point, 1 if self.lane_folded else self.lanes)
            else:
                self.fixed[i] = emit_step(self.code, self.kernel, i, self.fixed.__getitem__)

    def _sweep(self, k: int, point: Point, inside: LLValue | None) -> None:
        """One sweep: its stored values, and its folds."""
        kernel = self.kernel
        made = [
            accumulator_of(self.code, i, fold, self.lanes, self.many)
            for i in sorted(kernel.live)
            if (fold := fold_of(kernel, i)) and kernel.settled[i] == 2 * k + 1
        ]
        results = [r for r, depth in enumerate(self.depths) if depth == 2 * k]
        if not made and not results:
            return
        self.spread = {i: splat(v, self.lanes) for i, v in self.fixed.items()}
        self.walk.each(point, lambda turns: self._turns(k, turns, made, results, inside))
        parts = [Partial(a.fold.kind, a.partial(self.lane_folded), a.dtype) for a in made]
        for a, value in zip(made, self.across(parts) if parts else [], strict=True):
            self.fixed[a.number] = a.settle(value, kernel.terms)

    def _turns(
        self,
        k: int,
        turns: Turns,
        made: Sequence[Accumulator],
        results: Sequence[int],
        inside: LLValue | None,
    ) -> None:
        """The turns of a sweep: loads first, then the steps, then the stores."""
        needed = sorted(moving(self.kernel, k))
        operands = [i for i in needed if i < self.base]
        for turn in turns:
            self._load(k, turn, operands)
        for turn in turns:
            self._hold(k, turn, operands)
        for turn in turns:
            for i in sorted(turn.words.keys() - turn.known.keys()):
                turn.known[i] = self.arrays.unpack(i, turn.words[i], self.lanes)
            values = self.spread | turn.known
            for i in needed:
                if i not in values:
                    values[i] = turn.known[i] = self._step(i, turn, values)
            for a in made:
                self._add(a, turn, values[a.fold.value])
        if self.many:
            join(list(made))
        for turn in turns:
            self._store(turn, results, inside)

    def _step(self, i: int, turn: Turn, values: Mapping[int, LLValue]) -> LLValue:
        """Value i of a turn, of those that it is made of."""
        found = self._find(i, turn)
        if found is not None:
            return found
        return emit_step(self.code, self.kernel, i, values.__getitem__)

    def _find(self, i: int, turn: Turn) -> LLValue | None:
        """Value i, if it says which elements of an operand that counts equal one of the line."""
        step = self.kernel.steps[i - self.base]
        if not isinstance(step, Step) or step.row != "equal" or not self.lane_folded:
            return None
        for number, operand in (step.inputs, step.inputs[::-1]):
            if isinstance(number, Literal) or isinstance(operand, Literal):
                return None
            same = self.kernel.dtypes[number] == self.kernel.dtypes[operand]
            if same and number in self.fixed and self.arrays.counts(operand):
                return self.arrays.finds(self.fixed[number], operand, turn.point, self.lanes)
        return None

    def _load(self, k: int, turn: Turn, operands: Sequence[int]) -> None:
        """Load operands that are not loaded yet.

        Those of all lines are loaded in each sweep: the cache has them, and registers are few.
        """
        for i in self.common:
            turn.known.pop(i, None)
            turn.words.pop(i, None)
        for i in operands:
            if i in turn.words:
                continue
            if self.held is not None and self.held.first.get(i, k) < k:
                assert turn.group is not None
                turn.words[i] = self.held.load(i, turn.group)
            else:
                turn.words[i] = self.arrays.fetch_words(i, turn.point, self.lanes, turn.count)

    def _hold(self, k: int, turn: Turn, operands: Sequence[int]) -> None:
        """Keep what this sweep is the first to load."""
        held, group = self.held, turn.group
        kept = [i for i in operands if held is not None and held.first.get(i) == k]
        if held is None or group is None or not kept:
            return

        def put() -> None:
            for i in kept:
                held.store(i, group, turn.words[i])

        self.arrays.when(turn.inside, put)

    def _add(self, a: Accumulator, turn: Turn, value: LLValue) -> None:
        value = cast(value, self.kernel.dtypes[a.fold.value], a.dtype)
        none = identity(self.code, a.fold.kind, a.dtype, self.lanes)
        if turn.inside is not None:
            value = turn.inside.choose(value, none)
        if turn.count:
            value = first(self.code, self.lanes, turn.count).choose(value, none)
        a.add(value, self.lanes)

    def _store(self, turn: Turn, results: Sequence[int], inside: LLValue | None) -> None:
        if not results:
            return

        def put() -> None:
            for r in results:
                self.store(r, turn, (self.spread | turn.known)[self.kernel.results[r].value])

        self.arrays.when(both(inside, turn.inside), put)


def _depth(kernel: Kernel, result: Result) -> int:
    """The depth at which a result is stored: one that moves along folded axes, in a sweep."""
    depth = kernel.settled[result.value]
    moves = any(result.strides[a] for a in kernel.folded)
    return depth + 1 if depth % 2 and moves else depth


def changes(kernel: Kernel, operand: int) -> bool:
    """Whether an operand is another one in other lines."""
    strides = kernel.operands[operand].strides
    return any(s and a not in kernel.folded for a, s in enumerate(strides))


def both(a: LLValue | None, b: LLValue | None) -> LLValue | None:
    """Whether two conditions hold; None holds always."""
    return b if a is None else a if b is None else a & b


def retained(kernel: Kernel) -> int:
    """Registers for each element of what a later sweep needs of the ones before; the most."""
    known: set[int] = set()
    most = 0
    for k in range(kernel.sweeps - 1):
        known |= moving(kernel, k)
        later = {i for after in range(k + 1, kernel.sweeps) for i in _sources(kernel, after, known)}
        later = {i for i in later if i >= len(kernel.operands) or changes(kernel, i)}
        most = max(most, sum(max(kernel.dtypes[i].itemsize, 4) // 4 for i in later))
    return most


def _sources(kernel: Kernel, k: int, known: set[int]) -> set[int]:
    """The known values that sweep k uses, directly or through others."""
    base, settled = len(kernel.operands), kernel.settled
    todo = [r.value for r in kernel.results if settled[r.value] == 2 * k]
    folds = [(i, fold_of(kernel, i)) for i in kernel.live if settled[i] == 2 * k + 1]
    todo += [fold.value for _, fold in folds if fold is not None]
    found: set[int] = set()
    while todo:
        i = todo.pop()
        if i in known:
            found.add(i)
        elif i >= base and settled[i] % 2 == 0:
            step = kernel.steps[i - base]
            assert isinstance(step, Step)
            todo += [j for j in step.inputs if not isinstance(j, Literal)]
    return found
