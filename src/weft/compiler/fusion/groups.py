"""Groups: which equations of a graph fuse into one kernel.

A group has a domain; each axis of its values maps to an axis of the domain. All folds of a group
are over the same axes, so a softmax or a layer norm, which reduces lines to numbers and broadcasts
them back, is one group. Equations join the groups of their operands in program order; only cheap
rows of smaller arrays are ever computed twice.
"""

from collections.abc import Iterable
from copy import copy
from math import prod
from typing import Self

from ...core.record import record
from ...graph.graph import Equation, Graph, Literal
from ...graph.structured import communicates
from ..ir.gemm import ACCUMULATE
from ..ir.views import View
from ..target import Lowering
from .alignment import Alignment
from .classify import UnitKind, kind_of
from .domain import STILL, Axes, Fit, Group, agree, complete_pairs, map_axes, rename_axes
from .precedence import Precedence


@record(frozen=False)
class Unit:
    """What is computed together: a group, or a single equation."""

    kind: UnitKind
    equations: list[int]
    group: Group | None = None


class Grouping(Alignment):
    """The units of a graph, built by joining equations in program order."""

    order: Precedence

    def __init__(self, graph: Graph, views: dict[int, View], target: Lowering):
        super().__init__(graph, views)
        self._target, self._limits = target, target.limits
        self.units: dict[int, Unit] = {}
        self.unit_of: dict[int, int] = {}  # by values
        self.order = Precedence()
        self.reasons: dict[int, str] = {}
        self.sums: set[int] = set()  # values that products accumulate into
        self._joined: int | None = None  # the last unit so far that other processes take part in
        for k, e in enumerate(graph.equations):
            self._place(k, e)
        self._join_siblings()

    def copy(self) -> Self:
        """The same units, whose order may change by itself."""
        made = copy(self)
        made.order = self.order.copy()
        return made

    # -- placing equations ---------------------------------------------------------------------

    def _place(self, k: int, e: Equation) -> None:
        kind, reason = kind_of(self.graph, self.views, e, self._target)
        if kind is UnitKind.VIEW:
            return
        if reason:
            self.reasons[k] = reason
        if kind in (UnitKind.POINT, UnitKind.FOLD) and self._join(k, e, kind):
            return
        group = self._start_group(e, kind) if kind in (UnitKind.POINT, UnitKind.FOLD) else None
        self.units[k] = Unit(kind if group is None else UnitKind.POINT, [k], group)
        self.order.add(k)
        self._enter(k, k, e)
        if communicates(e):  # in program order, the same in all processes
            self.order.wait(k, set() if self._joined is None else {self._joined})
            self._joined = k

    def _enter(self, u: int, k: int, e: Equation) -> None:
        """Add equation k to unit u."""
        for i in e.outputs:
            self.unit_of[i] = u
        self.order.wait(u, self._producers(e) - {u})
        if e.op.name == ACCUMULATE:  # later readers of that memory read the sum
            self.unit_of[self.views[e.outputs[0]].root] = u
            self.sums.add(self.views[e.outputs[0]].root)

    def _producers(self, e: Equation) -> set[int]:
        """The units that an equation reads from, and those of the guards it depends on."""
        operands = self.uses.arrays(e)
        operands = [*operands, *[y for x in operands for y in self.uses.signals(x)]]
        found = {u for x in operands if (u := self._maker(x)) is not None}
        return found.union(*[self.uses.guards(x) for x in operands])

    def _maker(self, x: int) -> int | None:
        """The unit that computes the root of a value."""
        return self.unit_of.get(self.views[x].root)

    def _start_group(self, e: Equation, kind: UnitKind) -> Group:
        """Start a group with one equation."""
        x = e.outputs[0] if kind is UnitKind.POINT else e.inputs[0]
        group = Group([n for n in self.graph.avals[x].shape if n != 1])
        count = iter(range(len(group.domain)))
        axes = tuple(STILL if n == 1 else next(count) for n in self.graph.avals[x].shape)
        fit = Fit(axes) if kind is UnitKind.POINT else self._fold_fit(group, e, axes)
        assert fit is not None, "an equation fits a group of its own"
        self._put(group, e, fit)
        return group

    def _put(self, group: Group, e: Equation, fit: Fit) -> None:
        group.domain += fit.grown
        group.folded = group.folded if fit.folded is None else fit.folded
        group.values[e.outputs[0]] = fit.axes
        if group.folded:
            self._note(group, [e] if fit.folded is None else self._makers_of(group.values))
        for x in self.uses.arrays(e):
            if self.axes_in(group, x) is None:
                group.reads.setdefault(x, self.operand_axes(group, e, x))

    # -- joining -------------------------------------------------------------------------------

    def _join(self, k: int, e: Equation, kind: UnitKind) -> bool:
        """Add an equation to the group of an operand, then merge the others' groups into it."""
        owners = [u for u in self._producers(e) if self.units[u].group is not None]
        for u in sorted(owners, key=lambda u: (-self._volume(u), -u)):
            fit = self._fit(u, e, kind)
            if fit is not None and self._allows(u, k, e, fit):
                self._put(self._group(u), e, fit)
                self.units[u].equations.append(k)
                self._enter(u, k, e)
                for w in sorted(set(owners) - {u}, reverse=True):
                    self._merge_operand(u, w, e)
                return True
        return False

    def _group(self, u: int) -> Group:
        group = self.units[u].group
        assert group is not None
        return group

    def _volume(self, u: int) -> int:
        return prod(self._group(u).domain)

    def _fit(self, u: int, e: Equation, kind: UnitKind) -> Fit | None:
        group = self._group(u)
        if kind is UnitKind.FOLD:
            axes = self.axes_in(group, e.inputs[0])
            return None if axes is None else self._fold_fit(group, e, axes)
        return self._point_fit(group, e)

    def _fold_fit(self, group: Group, e: Equation, axes: Axes) -> Fit | None:
        """Fit a fold of a value over the whole domain; the group's folds share their axes."""
        over = frozenset(axes[a] for a in e.static[0] if axes[a] != STILL)
        whole = {a for a in axes if a != STILL}
        if whole != set(range(len(group.domain))) or not over:
            return None
        if group.folded not in (frozenset(), over):
            return None
        named = set(e.static[0])
        kept = [a for k, a in enumerate(axes) if k not in named]
        if len(e.static) > 1 and e.static[1]:
            kept = [STILL if k in named else a for k, a in enumerate(axes)]
        return Fit(tuple(kept), folded=over)

    def _point_fit(self, group: Group, e: Equation) -> Fit | None:
        """Fit an elementwise equation: its axes are those of its operands in the group."""
        shape = self.graph.avals[e.outputs[0]].shape
        axes = [STILL] * len(shape)
        known = [m for x in self.uses.arrays(e) if (m := self.axes_in(group, x)) is not None]
        hints = [m for x in self.uses.arrays(e) if (m := group.reads.get(x)) is not None]
        for found in known:
            if not agree(axes, found):
                return None
        for found in hints:  # already an operand: read along the same axes, if possible
            tried = list(axes)
            if agree(tried, found):
                axes = tried
        grown: list[int] = []
        for i, n in reversed([*enumerate(shape)]):  # axes of equal length keep their order
            if n != 1 and axes[i] == STILL:
                free = [a for a, m in enumerate(group.domain) if m == n and a not in axes]
                axes[i] = free[-1] if free else STILL
        for i, n in enumerate(shape):
            if n != 1 and axes[i] == STILL:
                axes[i] = len(group.domain) + len(grown)
                grown.append(n)
        return Fit(tuple(axes), tuple(grown)) if self._covers(group, axes, grown) else None

    def _covers(self, group: Group, axes: list[int], grown: list[int]) -> bool:
        """Whether the kernel computes each element of a value exactly once."""
        have = {a for a in axes if a != STILL}
        if grown:
            return not group.folded
        if not group.kept <= have:
            return False
        return group.folded <= have or not group.folded & have

    def stored_values(self, unit: Unit) -> list[int]:
        """The values of a group that are read outside of it."""
        assert unit.group is not None
        inside = set(unit.equations)
        return [x for x in sorted(unit.group.values) if not self.uses.only_in(x, inside)]

    def _most(self, group: Group) -> int:
        """The most equations of a group."""
        return self._limits.equations if group.domain else self._limits.number_equations

    # -- legality and profit -------------------------------------------------------------------

    def _allows(self, u: int, k: int, e: Equation, fit: Fit) -> bool:
        group = self._group(u)
        if len(self.units[u].equations) >= self._most(group):
            return False
        others = self._producers(e) - {u}
        if any(self.order.precedes(u, w) for w in others):
            return False  # it needs a result that comes after the group
        if any(self.axes_in(group, x) is None and self._maker(x) == u for x in self.uses.arrays(e)):
            return False  # it reads part of a value of the group, for example
        if fit.grown and not self._may_repeat(group, k):
            return False
        folded = group.folded if fit.folded is None else fit.folded
        if not folded:
            return True
        trial = Group(group.domain, folded, {**group.values, e.outputs[0]: fit.axes})
        trial.moving, trial.inner = {*group.moving}, {*group.inner}
        if not self._divides(trial, fit, e):
            return False
        # The rules still hold for the group's other values, unless its folds are new.
        fresh = [e] if folded == group.folded else self._makers_of(trial.values)
        self._note(trial, fresh)
        equations = {*self.units[u].equations, k}
        return self._walks_well(trial, equations) and self._moves(trial, equations, fresh)

    def _makers_of(self, values: Iterable[int]) -> list[Equation]:
        """The equations that compute values, in program order."""
        return [self.graph.equations[k] for k in sorted([self.uses.made_by[x] for x in values])]

    def _note(self, group: Group, equations: list[Equation]) -> None:
        """Record how equations of a group with folds vary along the folded axes."""
        for e in equations:
            x, operands = e.outputs[0], self.uses.arrays(e)
            if not e.op.folds and any([self._moving(group, e, y) for y in operands]):
                group.moving.add(x)
            last = group.innermost(group.values[x])
            if last is not None:
                group.inner.add(last)

    def _may_repeat(self, group: Group, k: int) -> bool:
        """Whether the group may be recomputed along a new axis: all light, and read only here."""
        made = {self.uses.made_by[x] for x in group.values}
        if not self._is_light(made):
            return False
        return all(self.uses.only_in(x, made | {k}) for x in group.values)

    def _divides(self, group: Group, fit: Fit, e: Equation) -> bool:
        """Whether there are enough lines to divide among threads, if they are swept over again."""
        lines = prod(group.domain[a] for a in group.kept)
        again = fit.folded is None and group.folded <= set(fit.axes)
        if not again or self._shares(group, lines):
            return True
        return self._limits.joins_beside and e.outputs[0] not in self._behind_folds(group)

    def _behind_folds(self, group: Group) -> set[int]:
        """The values of a group that depend on its folds: another sweep computes them."""
        found: set[int] = set()
        for e in self._makers_of(group.values):
            inside = [x for x in self.uses.arrays(e) if self.axes_in(group, x) is not None]
            if e.op.folds or any([self.member(group, x) in found for x in inside]):
                found.add(e.outputs[0])
        return found

    def _shares(self, group: Group, lines: int) -> bool:
        """Whether lines are enough to share, or so short that they need not be shared."""
        limits = self._limits
        return lines >= limits.few_lines or prod(group.domain) <= limits.few_lines_elements

    def _walks_well(self, group: Group, equations: set[int]) -> bool:
        """Whether no array is stored down long columns."""
        folded = group.folded
        if (
            group.inner <= folded
            or prod([group.domain[a] for a in folded]) <= self._limits.stored_columns
        ):
            return True
        whole = [x for x, axes in group.values.items() if folded <= {*axes}]
        return all(self.uses.only_in(x, equations) for x in whole)

    def _moves(self, group: Group, equations: set[int], fresh: list[Equation]) -> bool:
        """Whether every value of fresh equations stored along folded axes also varies along them.

        A kernel computes a value that is constant along the folded axes once per fold, and cannot
        store it more often.
        """
        for x in [e.outputs[0] for e in fresh]:
            still = x not in group.moving and not group.folded.isdisjoint(group.values[x])
            if still and not self.uses.only_in(x, equations):
                return False
        return True

    def _moving(self, group: Group, e: Equation, y: int) -> bool:
        if self.axes_in(group, y) is not None:
            return self.member(group, y) in group.moving
        pairs = zip(self.operand_axes(group, e, y), self.views[y].strides, strict=True)
        return any(a in group.folded and stride for a, stride in pairs)

    # -- merging groups ------------------------------------------------------------------------

    def _merge_operand(self, u: int, w: int, e: Equation) -> None:
        """Merge the group of another operand of an equation of group u, if legal."""
        target, other = self._group(u), self._group(w)
        pairs: dict[int, int] = {}
        out = target.values[e.outputs[0]]
        for x in e.inputs:
            axes = None if isinstance(x, Literal) else self.axes_in(other, x)
            if axes is None:
                continue
            for theirs, ours in zip(axes, out[len(out) - len(axes) :], strict=True):
                if theirs != STILL and pairs.setdefault(theirs, ours) != ours:
                    return
        axes = [a for a in out if a != STILL]
        again = prod([target.domain[a] for a in axes]) - prod(other.domain)
        few = again < self._limits.repeated_elements
        if few or axes[-1] not in pairs.values() or self._is_light(self.units[w].equations):
            self._merge(u, w, pairs)

    def _is_light(self, equations: Iterable[int]) -> bool:
        """Whether rows take an instruction or two, all but as many as may be repeated."""
        heavy = sum(self.graph.equations[k].op.cost != "light" for k in equations)
        return heavy <= self._limits.heavy_repeats

    def _merge(self, u: int, w: int, known: dict[int, int]) -> bool:
        """Merge group w into group u, pairing axes by `known` and by their lengths."""
        target, other = self._group(u), self._group(w)
        pairs = complete_pairs(target, other, known)
        if pairs is None or not self.order.joinable(u, w):
            return False
        equations = {*self.units[u].equations, *self.units[w].equations}
        moved = {x: rename_axes(a, pairs) for x, a in other.values.items()}
        trial = Group(target.domain, target.folded | map_axes(other.folded, pairs))
        trial.values = {**moved, **target.values}
        if len(equations) > self._most(trial) or not self._is_whole(trial, equations):
            return False
        trial.reads = {x: rename_axes(a, pairs) for x, a in other.reads.items()} | target.reads
        trial.reads = {x: a for x, a in trial.reads.items() if self.axes_in(trial, x) is None}
        if any(self._maker(x) in (u, w) for x in trial.reads) or self._is_wide(trial):
            return False
        same = {a: a for a in range(len(target.domain))}
        if not self._meets(trial, u, same) or not self._meets(trial, w, pairs):
            return False
        self.units[u].group = trial
        self._absorb(u, w)
        return True

    def _is_wide(self, trial: Group) -> bool:
        """Whether a group folds so many arrays that keeping all of them for it takes memory."""
        every = set(range(len(trial.domain)))
        whole = {self.views[x].root for x, axes in trial.reads.items() if every <= {*axes}}
        return bool(trial.folded) and len(whole) > self._limits.folded_arrays

    def _meets(self, trial: Group, u: int, pairs: dict[int, int]) -> bool:
        """Whether unit u reads the merged group's values along the axes of their computation."""
        group = self._group(u)
        for e in (self.graph.equations[k] for k in self.units[u].equations):
            for x in self.uses.arrays(e):
                found = self.axes_in(trial, x)
                if found is None or self.axes_in(group, x) is not None:
                    continue
                if found != rename_axes(self.operand_axes(group, e, x), pairs):
                    return False
        return True

    def _is_whole(self, group: Group, equations: set[int]) -> bool:
        """Whether a merged group can store its values, and walks memory well."""
        for x, axes in group.values.items():
            if not self._covers(group, list(axes), []) and not self.uses.only_in(x, equations):
                return False
        if not group.folded:
            return True
        if not self._shares(group, prod(group.domain[a] for a in group.kept)):
            if not self._limits.joins_beside or self._sweeps_again(group):
                return False
        fresh = self._makers_of(group.values)
        self._note(group, fresh)
        return self._walks_well(group, equations) and self._moves(group, equations, fresh)

    def _sweeps_again(self, group: Group) -> bool:
        """Whether values that depend on the group's folds vary along them."""
        return any([group.folded <= {*group.values[x]} for x in self._behind_folds(group)])

    def _absorb(self, u: int, w: int) -> None:
        """Make unit w part of unit u."""
        gone = self.units.pop(w).equations
        self.units[u].equations = sorted({*self.units[u].equations, *gone})
        for k in gone:
            self.unit_of.update(dict.fromkeys(self.graph.equations[k].outputs, u))
        self.order.join(u, w)

    def _join_siblings(self) -> None:
        """Merge groups that read all of a value over the same domain."""
        readers: dict[int, list[int]] = {}
        for u, unit in self.units.items():
            if unit.group is not None:
                for x, axes in unit.group.reads.items():
                    if set(axes) - {STILL} == set(range(len(unit.group.domain))):
                        readers.setdefault(x, []).append(u)
        for x in sorted(readers):
            self._join_readers(x, readers[x])

    def _join_readers(self, x: int, readers: list[int]) -> None:
        for at, u in enumerate(readers):
            for w in readers[at + 1 :]:
                if u in self.units and w in self.units and self._alike(u, w, x):
                    ours, theirs = self._group(u).reads[x], self._group(w).reads[x]
                    pairs = {b: a for a, b in zip(ours, theirs, strict=True) if STILL not in (a, b)}
                    self._merge(u, w, pairs)

    def _alike(self, u: int, w: int, x: int) -> bool:
        """Whether two groups that read x have the same domain, and neither depends on the other."""
        a, b = self._group(u), self._group(w)
        if x not in a.reads or x not in b.reads:
            return False
        apart = not (self.order.precedes(u, w) or self.order.precedes(w, u))
        return apart and sorted(a.domain) == sorted(b.domain)
