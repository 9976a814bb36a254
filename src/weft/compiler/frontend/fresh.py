"""The objects that a traced function has created and returns: they must be new at each call.

An object that existed before, or that the function has stored somewhere, has references from
elsewhere. So an object was created for the result alone if all its references come from the result;
Python's reference counts tell.
"""

import copy
import gc
from collections import Counter
from sys import getrefcount
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from ... import errors
from ...core.value import TENSORS
from .containers import CONSTANTS
from .inputs import Call

_MOST = 100_000  # objects that are visited; those beyond count as referenced from elsewhere
# Objects that are not copied, or from which everything can be reached.
_CLOSED = (type, ModuleType, CodeType, FrameType, FunctionType, BuiltinFunctionType)


class FreshObjects:
    """The objects that only the result (the element of `box`) refers to.

    noted   a dict whose references do not count
    fresh   the objects, by identity
    others  the other objects that the result reaches: they are referenced from elsewhere, too
    shared  the fresh objects that occur in the result more than once
    """

    fresh: dict[int, Any]
    others: dict[int, Any]
    shared: set[int]

    def __init__(self, box: list[Any], noted: dict[Any, Any]):
        nodes, edges, held, kept = _count_references(box, noted)
        if kept:  # perhaps by garbage that Python has yet to collect
            nodes.clear()  # it refers to them, too
            kept.clear()
            _collect()
            nodes, edges, held, kept = _count_references(box, noted)
        self.fresh = {id(x): x for x in nodes[2:]}
        self._leave_out([*kept, *[x for x in nodes[2:] if id(x) not in edges]], edges)
        self.others = {id(x): x for x in nodes[2:] if id(x) not in self.fresh}
        beside = Counter(edges[id(noted)])
        self.shared = {k for k in self.fresh if held[k] - beside[k] > 1}

    def _leave_out(self, lost: list[Any], edges: dict[int, list[int]]) -> None:
        """Remove these objects, and what they refer to, from `fresh`."""
        while lost:
            x = lost.pop()
            if self.fresh.pop(id(x), None) is not None:
                lost += [self.fresh[to] for to in edges.get(id(x), ()) if to in self.fresh]


def _count_references(box: list, noted: dict) -> tuple[list, dict, dict, list]:
    """The reachable objects, their edges, their reference counts; those with other references."""
    nodes, edges = _graph([box, noted])
    inside = Counter([to for targets in edges.values() for to in targets])
    held = _references(nodes)
    kept = [x for x in nodes[2:] if id(x) in edges and held[id(x)] != inside[id(x)]]
    return nodes, edges, held, kept


def _collect() -> None:
    """Collect the young generations; all when that is due, as this keeps Python from doing so."""
    gc.collect(2 if gc.get_count()[2] > gc.get_threshold()[2] else 1)


def _ends(x) -> bool:
    return x.__class__ in TENSORS


def _graph(roots: list) -> tuple[list, dict[int, list[int]]]:
    """The objects that are reachable from the roots, each once, and the edges between them."""
    nodes, known, edges = list(roots), set(map(id, roots)), {}
    for x in nodes:
        if _ends(x) or len(nodes) > _MOST:
            continue
        held = [v for v in gc.get_referents(x) if not _is_closed(v)]
        edges[id(x)] = [id(v) for v in held]
        for v in held:
            if id(v) not in known:
                known.add(id(v))
                nodes.append(v)
    return nodes, edges


def _is_closed(x) -> bool:
    return x.__class__ in CONSTANTS or isinstance(x, _CLOSED)


def _references(nodes: list) -> dict[int, int]:
    """The reference count of each object, without the references of the list itself."""
    counted = [*nodes, object()]
    nodes.clear()
    found = [getrefcount(x) for x in counted]
    nodes += counted[:-1]
    return {id(x): n - found[-1] for x, n in zip(nodes, found, strict=False)}


class Original:
    """The objects that a function has created for its result, copied for each call.

    objects  the parts of the result that are copied
    made     the objects in them that are new; any other stays the same object
    given    by identity, the copies of the caller's containers, with their positions
    """

    def __init__(self, name: str, objects: list[Any], made: FreshObjects, given: dict[int, int]):
        self._name, self._same = name, made.others
        self._given = {k: at for k, at in given.items() if k in self._same}
        self._objects = self._copy_objects(objects, self._same)

    def _copy_objects(self, objects: list[Any], same: dict[int, Any]) -> list[Any]:
        """Copies of the objects; what two objects share, their copies share."""
        try:
            return copy.deepcopy(objects, dict(same))
        except (TypeError, copy.Error) as e:
            kinds = ", ".join(dict.fromkeys(type(x).__name__ for x in objects))
            raise errors.StagingError(
                f"compile: {self._name} returns an object that it has made (of these: {kinds}), "
                f"which must be new at each call and cannot be copied: {e}. Return what it is made "
                "of, and make it outside"
            ) from e

    def take(self, call: Call, position: int) -> Any:
        """The copy of an object for this call; a call takes them in order of position."""
        if position == 0:
            given = {k: call.containers[at] for k, at in self._given.items()}
            self._call = self._copy_objects(self._objects, self._same | given)
        made, self._call[position] = self._call[position], None
        return made
