"""Paths of a recorded graph: which nodes lead to the goals, and refusing paths that were lost."""

from collections.abc import Iterable
from typing import Any

from ... import errors
from ...core.node import Leaf, Node, Severed

# A vertex of a recorded graph: an operation's result, or a leaf, where paths end.
Vertex = Leaf | Node


def nodes_reaching(starts: Iterable[Any], goals: set[Vertex]) -> tuple[set[Vertex], set[Leaf]]:
    """The nodes on some path from `starts` to `goals`, and all leaves behind `starts`.

    Refuses a node that a severed gradient went into, if that depends on a goal.
    """
    found, seen, leaves = set(goals), set(), set()
    stack = [(n, False) for n in starts]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            if any(p in found for p in node.parents):
                found.add(node)
        elif node.__class__ is Leaf:
            leaves.add(node)
        elif node not in seen:
            seen.add(node)
            if node.parents is None:
                raise freed_error(node)
            if node.extra is not None:
                _refuse_severed(node, goals)
            stack.append((node, True))
            stack.extend((p, False) for p in node.parents if p is not None)
    return found, leaves


def nodes_between(
    starts: Iterable[Any], goals: set[Vertex], refuse: bool = True
) -> tuple[set[Vertex], bool]:
    """The nodes on some path from `starts` to `goals`, and whether other tracked values are read.

    With `refuse`, refuses a node that a severed gradient went into, if that depends on a goal.

    Nodes older than all goals cannot lead to them and are not walked: they are tracked outside. A
    newer leaf that is neither requested nor watched is left over from an inner derivative.
    """
    oldest = max((g.id for g in goals), default=0)  # ids decrease: the greater is the older
    found, seen, outside = set(goals), set(), False
    stack = [(n, False) for n in starts]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            if any(p in found for p in node.parents):
                found.add(node)
        elif node.id > oldest:
            outside = True
        elif node.__class__ is Leaf:
            outside = outside or (node not in goals and bool(node.requested or node.watchers))
        elif node not in seen:
            seen.add(node)
            if node.parents is None:
                raise freed_error(node)
            if refuse and node.extra is not None:
                _refuse_severed(node, goals)
            stack.append((node, True))
            stack.extend((p, False) for p in node.parents if p is not None)
    return found, outside


def _refuse_severed(node: Node, goals: set[Vertex]) -> None:
    """Refuse derivatives by goals that a severed gradient in the node's arguments depends on."""
    mark = node.extra.severed if node.extra is not None else None
    if mark is not None and any(map(mark.concerns, goals)):
        raise not_recorded_error(mark, node)


def not_recorded_error(mark: Severed, node: Node | None = None) -> errors.GradientNotRecorded:
    """The error for differentiating what was computed from a severed gradient."""
    what = "this value" if node is None else f"the argument of {node.name} (at {node.line})"
    return errors.GradientNotRecorded(
        f"{what} was computed from a gradient made at {mark.line} without its graph; "
        f"{mark.remedy}, or use .detach() on the gradient if it is meant as a constant"
    )


def freed_error(node: Node) -> errors.GraphFreed:
    return errors.GraphFreed(
        f"the graph through {node.name} (at {node.line}) was freed by an earlier backward pass; "
        "pass retain_graph=True to that pass (or make the tape persistent=True)"
    )
