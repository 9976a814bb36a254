"""Parts of an array: where each of them lies in it, and which of them are computed there.

A concatenation copies its parts to views of the whole. A part that a kernel or a product computes
for it is written to its view at once, where all that read the part can read it there. The whole is
alive from the first part on then.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod

from ...graph.graph import Equation, Graph
from ..ir.gemm import readable, writable
from ..ir.uses import OUTPUT, arrays
from ..ir.views import LOOKS, View, as_view
from .classify import UnitKind
from .groups import Grouping, Unit

Entry = tuple[int, int, int]  # of a slice: the start, the count and the step
_FILLED = ("unslice", "pad")
# Steps that fill what is beside a part, at most: the fill of the whole and the copy are two.
_MOST_GAPS = 2


def parts_of(graph: Graph, e: Equation, whole: View) -> Iterator[tuple[int, View]]:
    """The parts of an array side by side, each with its view of the whole."""
    if e.op.name in _FILLED:
        yield e.inputs[0], _sliced(whole, _index(graph, e))
    elif e.op.name == "slice_set":
        yield e.inputs[0], whole
        yield e.inputs[1], _sliced(whole, e.static[0])
    elif e.op.name == "stack":
        for k, x in enumerate(e.inputs):
            yield x, _sliced(whole, _at(whole, e.static[0], k))
    else:
        axis, ends = e.static
        for x, start, end in zip(e.inputs, (0, *ends), ends, strict=False):
            yield x, _sliced(whole, _at(whole, axis, (start, end - start, 1)))


def fills(e: Equation) -> bool:
    """Whether an array is filled with one number beside its part."""
    return e.op.name in _FILLED


def gaps(graph: Graph, e: Equation, whole: View) -> list[View]:
    """What lies beside the part of an array that is filled, as views that do not overlap."""
    entries = [_entry(p) for p in _index(graph, e) if p is not None]
    full = [(0, n, 1) for n in whole.shape]
    found = []
    for a, (n, entry) in enumerate(zip(whole.shape, entries, strict=True)):
        for beside in _beside(entry, n):
            found.append(_sliced(whole, (*entries[:a], beside, *full[a + 1 :])))
    return found


def _index(graph: Graph, e: Equation) -> Sequence[int | Entry | None]:
    """The basic index of the part of an array that is filled."""
    if e.op.name == "unslice":
        return e.static[0]
    sizes = graph.avals[e.inputs[0]].shape
    return [(before, n, 1) for (before, _), n in zip(e.static[0], sizes, strict=True)]


def _entry(p: int | Entry) -> Entry:
    """An entry of a basic index as a slice with a step that is positive."""
    if isinstance(p, int):
        return p, 1, 1
    start, count, step = p
    if count <= 1:
        return start, count, 1
    return p if step > 0 else (start + (count - 1) * step, count, -step)


def _beside(entry: Entry, n: int) -> Iterator[Entry]:
    """What a slice leaves of an axis."""
    start, count, step = entry
    end = start + count * step
    starts = [(k, n) for k in range(step) if k != start % step]
    for first, stop in ((start % step, start), (end, n), *starts):
        left = len(range(first, stop, step))
        if left:
            yield first, left, step


def _sliced(whole: View, index: Sequence[int | Entry | None]) -> View:
    found = LOOKS["slice_"](whole, index)
    assert found is not None, "a slice is a view"
    return found


def _at(whole: View, axis: int, entry: int | Entry) -> tuple[int | Entry, ...]:
    """The basic index that takes `entry` on one axis and everything on the others."""
    full = [(0, n, 1) for n in whole.shape]
    return (*full[:axis], entry, *full[axis + 1 :])


class Placement:
    """Which roots are computed in their places in other arrays.

    memory  by values, their views in memory: of their roots, or of the wholes that those are in
    placed  (whole, number) of the parts that are computed in their places
    within  by wholes, the roots that are in them
    """

    def __init__(self, grouping: Grouping, aligned: int, fixed: Collection[int]):
        """Place all parts that can be.

        aligned  what the places of parts are multiples of, in bytes; 0: no part is placed
        fixed    roots that stay as they are: nothing is placed in them, and they in nothing
        """
        self._grouping, self._aligned = grouping, aligned
        self._fixed = {*fixed, *grouping.sums}
        self.memory: dict[int, View] = dict(grouping.views)
        self.placed: set[tuple[int, int]] = set()
        self.within: dict[int, list[int]] = {}
        units = [u for u, unit in grouping.units.items() if unit.kind is UnitKind.PARTS]
        if not aligned or not units:
            return
        self._values: dict[int, list[int]] = {}  # by roots, in the order of the program
        for x, v in grouping.views.items():
            self._values.setdefault(v.root, []).append(x)
        # The last first: a whole may be a part of another one.
        for u in sorted(units, reverse=True):
            self._place_parts(u)

    def roots(self, roots: Collection[int]) -> frozenset[int]:
        """Some roots, and all that are in them."""
        found, todo = {*roots}, [*roots]
        while todo:
            inside = self.within.get(todo.pop(), ())
            todo += inside
            found.update(inside)
        return frozenset(found)

    def _place_parts(self, u: int) -> None:
        graph = self._grouping.graph
        e = graph.equations[u]
        (whole,) = e.outputs
        if whole in self._fixed or e.op.name == "slice_set":
            return
        if fills(e) and len(gaps(graph, e, self.memory[whole])) > _MOST_GAPS:
            return
        for n, (x, target) in enumerate(parts_of(graph, e, self.memory[whole])):
            self._place(u, n, x, target)

    def _place(self, u: int, n: int, x: int, target: View) -> None:
        """Place the root of a part, if it can be."""
        grouping = self._grouping
        root, (whole,) = grouping.views[x].root, grouping.graph.equations[u].outputs
        if root in self._fixed or root not in grouping.unit_of or self.memory[root].root != root:
            return
        place = self._inverse(x, target)
        if place is None or not self._lies_well(u, root, place):
            return
        found = self._looks(root, place)
        if found is None or not self._is_read(found) or not self._is_written(root, place):
            return
        self.memory.update(found)
        self.placed.add((whole, n))
        self.within.setdefault(whole, []).append(root)

    def _inverse(self, x: int, target: View) -> View | None:
        """Where a root lies if x, which is all of it, lies at `target`; None if x is not."""
        grouping = self._grouping
        if target.shape != grouping.graph.avals[x].shape:
            return None
        while (e := grouping.uses.seen_through(x)) is not None:
            x = e.inputs[0]
            shape = grouping.graph.avals[x].shape
            if e.op.name == "permute":
                axes = e.static[0]
                back = LOOKS["permute"](target, [axes.index(a) for a in range(len(axes))])
            elif e.op.name in ("reshape", "alias", "detach"):
                back = LOOKS["reshape"](target, shape)
            else:
                return None
            if back is None:
                return None
            target = back
        return target if prod(target.shape) else None

    def _lies_well(self, u: int, root: int, place: View) -> bool:
        """Whether kernels access a place as well as memory of its own.

        Elements are side by side and aligned as others are, or nothing but the whole reads them.
        """
        steps = [abs(s) for n, s in zip(place.shape, place.strides, strict=True) if n != 1]
        if not steps or steps[-1] == 1:
            item = self._grouping.graph.avals[root].dtype.itemsize
            return not any(s * item % self._aligned for s in (*steps[:-1], place.offset))
        unit, uses = self._grouping.units[self._grouping.unit_of[root]], self._grouping.uses
        group = unit.group
        if group is not None and not group.folded.isdisjoint(group.values[root]):
            return False
        return steps[-1] == min(steps) and uses.only_in(root, {u})

    def _looks(self, root: int, place: View) -> dict[int, View] | None:
        """The views of all values that a root holds, at a place; None if one has no such view."""
        grouping = self._grouping
        found = {root: place}
        for x in self._values[root][1:]:
            view = as_view(found, grouping.graph.equations[grouping.uses.made_by[x]])
            if view is None:
                return None
            found[x] = view
        return found

    def _is_read(self, found: Mapping[int, View]) -> bool:
        """Whether all that read values can read them by these views."""
        uses = self._grouping.uses
        readers = {k for x in found for k in uses.readers.get(x, ())}
        return OUTPUT not in readers and all(self._reads(k, found) for k in readers)

    def _reads(self, k: int, found: Mapping[int, View]) -> bool:
        grouping = self._grouping
        e = grouping.graph.equations[k]
        u = grouping.unit_of.get(e.outputs[0])
        if u is None:  # a view
            return True
        kind = grouping.units[u].kind
        if kind is UnitKind.PRODUCT:
            *added, a, b = arrays(e)
            operands = enumerate((a, b))
            lies = all(found[x].contiguous for x in added if x in found)
            return lies and all(readable(found[x], side) for side, x in operands if x in found)
        return kind in (UnitKind.POINT, UnitKind.PARTS)

    def _is_written(self, root: int, place: View) -> bool:
        """Whether what computes a root can write it to a place."""
        unit: Unit = self._grouping.units[self._grouping.unit_of[root]]
        if unit.kind is UnitKind.PRODUCT:
            (k,) = unit.equations
            *added, a, b = arrays(self._grouping.graph.equations[k])
            # A bias is added by the product's own kernel only where the rows have no gaps.
            lies = place.contiguous or not added
            return lies and writable(place, [self._grouping.views[x] for x in (a, b)])
        return unit.kind in (UnitKind.POINT, UnitKind.PARTS)
