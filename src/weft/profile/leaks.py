"""Leaks: arrays and graphs that lines of the program make again and again, and nothing frees."""

from bisect import bisect
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..core.backends import BACKENDS
from ..core.node import Node
from ..core.recording import is_pick
from ..transform.modes.inspect import arrays_in
from .census import Objects, is_array, live_objects, owner_of, persistent
from .holders import Holders
from .origins import Place, origin_of

# Survivors from fewer iterations are no leak; a list of the last few losses is none.
_LEAST = 5
# Values without a graph are a leak from so many bytes on: numbers may be kept on purpose.
_DETACHED = 1 << 20


@dataclass(frozen=True)
class Leak:
    """Values that one line of the program makes in every iteration, and that stay alive.

    place   the line that made them, and the operation
    count   how many are alive
    nbytes  what they hold: their own memory and their graphs'
    reason  who holds them, and what to do

    >>> import weft as wf
    >>> kept, x = [], wf.ones(3, requires_grad=True)
    >>> with wf.profile.GradientMemoryProfiler() as profiler:
    ...     for _ in range(20):
    ...         loss = (x * x).sum()
    ...         _ = loss.backward()
    ...         kept.append(loss)
    >>> leak = profiler.detect_leaks().leaks[0]
    >>> leak.place.op, leak.count
    ('sum', 20)
    >>> print(leak.reason)
    held by list `kept` ...
    """

    place: Place
    count: int
    nbytes: int
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.count} alive, {self.nbytes:,} bytes; {self.reason}"


@dataclass(frozen=True)
class LeakReport:
    """What `GradientMemoryProfiler.detect_leaks` has found, the largest first.

    leaks       one for each line of the program
    iterations  the backward passes and checkpoints that were compared

    >>> import weft as wf
    >>> with wf.profile.GradientMemoryProfiler() as profiler:
    ...     x = wf.ones(3)
    >>> print(profiler.detect_leaks())
    nothing to compare: 0 backward passes and checkpoints, 5 are needed
    """

    leaks: tuple[Leak, ...]
    iterations: int

    @property
    def num_suspicious(self) -> int:
        """How many lines of the program leak."""
        return len(self.leaks)

    def __str__(self) -> str:
        if self.iterations < _LEAST:
            return (
                f"nothing to compare: {self.iterations} backward passes and checkpoints, "
                f"{_LEAST} are needed"
            )
        if not self.leaks:
            return f"no leak in {self.iterations} backward passes and checkpoints"
        return "\n".join(map(str, self.leaks))


@dataclass(eq=False)
class _Group:
    """Live values that the same place has made, by the interval that each was made in."""

    place: Place
    nodes: list[Node] = field(default_factory=list)
    tensors: list[Any] = field(default_factory=list)
    intervals: set[int] = field(default_factory=set)  # of the nodes and tensors
    held: set[int] = field(default_factory=set)  # of those that tensors hold


def _grow(intervals: set[int], ticks: int) -> bool:
    """Whether values of these intervals stayed from the begin to the end, not the last ones."""
    return len(intervals) >= _LEAST and max(intervals) - min(intervals) >= ticks // 2


def find_leaks(ticks: list[int], start: int) -> LeakReport:
    """Look for places whose values stay alive from iteration to iteration.

    ticks  when iterations began or ended, ascending, on the clock of recorded operations
    start  when profiling began
    """
    suspects = _suspects(ticks, start) if len(ticks) >= _LEAST else []
    search = Holders({id(suspects), *map(id, suspects), *(id(s.tensors) for s in suspects)})
    leaks = []
    for s in suspects:
        holder = search.describe(s.tensors[0]) or "something outside of Python's containers"
        leaks.append(Leak(s.place, len(s.tensors), s.nbytes, f"held by {holder}; {s.advice}"))
    return LeakReport(tuple(sorted(leaks, key=lambda k: -k.nbytes)), len(ticks))


class _Suspect(NamedTuple):
    """What may leak: tensors that the same place has made; one whose graph grows is alone."""

    place: Place
    tensors: list[Any]
    nbytes: int
    advice: str


def _suspects(ticks: list[int], start: int) -> list[_Suspect]:
    """The places whose values stay alive; holders are looked for once the rest is forgotten."""
    objects = live_objects()
    stays = {owner_of(raw) for raw, *_ in persistent(objects)}
    recorded = _recorded_groups(objects, ticks, start)
    direct = [g for g in recorded if _grow(g.held, len(ticks))]
    reached = _ancestors([t for g in direct for t in g.tensors])
    growing = [g for g in recorded if g not in direct and _grow(g.intervals, len(ticks))]
    chained = [g for g in growing if not reached.issuperset(g.nodes)]
    dropped = _unrecorded_groups(objects, ticks, start, stays)
    found = [(g.place, g.tensors, _KEPT) for g in direct]
    found += [(Place(t._node.line, t._node.name), [t], _CHAIN) for t in _roots(chained, objects)]
    found += [(g.place, g.tensors, _DROP) for g in dropped if _grow(g.intervals, len(ticks))]
    suspects = [_Suspect(place, held, _bytes(held, stays), how) for place, held, how in found]
    return [s for s in suspects if s.advice is not _DROP or s.nbytes >= _DETACHED]


_KEPT = "keep x.item() or x.detach() instead of what has a graph"
_CHAIN = (
    "its graph reaches back over all iterations: detach() what is carried from one to the next, "
    "or add numbers (x.item())"
)
_DROP = "drop what is not needed any more"


def _recorded_groups(objects: Objects, ticks: list[int], start: int) -> list[_Group]:
    """The live recorded operations since the start, by place."""
    groups: dict[tuple[Any, int], _Group] = {}
    of: dict[Node, _Group] = {}
    for node in objects.nodes:
        if -node.id > start and not is_pick(node.op):
            key = node.code, node.lasti
            if key not in groups:
                groups[key] = _Group(Place(node.line, node.name))
            of[node] = group = groups[key]
            group.nodes.append(node)
            group.intervals.add(bisect(ticks, -node.id))
    held: dict[Node, list[Any]] = {}
    for t in objects.tensors:
        if type(t._node) is Node and t._node in of:
            held.setdefault(t._node, []).append(t)
    for node, tensors in held.items():
        # Tensors with the same node are the results of calls of a compiled function.
        calls = range(len(tensors)) if len(tensors) > 1 else [bisect(ticks, -node.id)]
        of[node].tensors += tensors
        of[node].held.update(calls)
    return list(groups.values())


def _unrecorded_groups(
    objects: Objects, ticks: list[int], start: int, stays: set[int]
) -> list[_Group]:
    """The live tensors that were not recorded since the start, by the places that were noted."""
    groups: dict[Place, _Group] = {}
    for t in objects.tensors:
        recorded = type(t._node) is Node and -t._node.id > start
        origin = None if recorded else origin_of(t._data)
        if origin is not None and origin.time > start and owner_of(t._data) not in stays:
            group = groups.setdefault(origin.place, _Group(origin.place))
            group.tensors.append(t)
            group.intervals.add(bisect(ticks, origin.time))
    return list(groups.values())


def _roots(chained: list[_Group], objects: Objects) -> list[Any]:
    """The tensors in whose graphs the operations of these groups are."""
    left = [set(g.nodes) for g in chained]
    found = []
    tensors = [t for t in objects.tensors if type(t._node) is Node]
    for t in sorted(tensors, key=lambda t: t._node.id):
        if not left:
            break
        reached = _ancestors([t])
        rest = [nodes for nodes in left if len(nodes & reached) < _LEAST]
        if len(rest) < len(left):
            found.append(t)
            left = rest
    return found


def _ancestors(tensors: Iterable[Any]) -> set[Node]:
    """The recorded operations behind tensors."""
    seen: set[Node] = set()
    waiting = [t._node for t in tensors]
    while waiting:
        node = waiting.pop()
        if type(node) is Node and node not in seen:
            seen.add(node)
            waiting += node.parents or ()
    return seen


def _bytes(tensors: list[Any], stays: set[int]) -> int:
    """What tensors and their graphs hold, without what stays anyway."""
    found: dict[int, int] = {}
    saved = [raw for n in _ancestors(tensors) for raw in arrays_in(n.saved)]
    arrays = [t._data for t in tensors] + [raw for raw in saved if is_array(raw)]
    for raw in arrays:
        owner = owner_of(raw)
        if owner not in stays:
            whole = BACKENDS[type(raw)].owning(raw)
            found[owner] = BACKENDS[type(raw)].nbytes(raw if whole is None else whole)
    return sum(found.values())
