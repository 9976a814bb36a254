"""Lineage: the nodes that a function's results come from, at all levels.

Values at a level may hold tensors from below, which have nodes of their own.
"""

from collections.abc import Iterator
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Any

from ...arrays.tensor import Tensor
from ...core.backends import BACKENDS, PYTHON_SCALARS
from ...core.box import BOXES, ground
from ...core.node import Leaf, Node, Severed
from ...core.types import Array
from ...core.value import TENSORS, wrap
from ..modes import trees
from ..modes.inspect import arrays_in


def nodes_in(value: Array) -> Iterator[Leaf | Node | Severed | None]:
    """The nodes of the tensors in a value."""
    if value.__class__ in TENSORS:
        yield value._node
        yield from nodes_in(value._data)
    elif value.__class__ in BOXES:
        for part in value.__slots__:
            yield from nodes_in(getattr(value, part))


def on_nodes(value: Array, nodes: Iterator[Leaf | Node | Severed | None]) -> Array:
    """The same value with its tensors on other nodes."""
    if value.__class__ in TENSORS:
        node = next(nodes)
        return wrap(on_nodes(value._data, nodes), node)
    if value.__class__ in BOXES:
        value = copy(value)
        for part in value.__slots__:
            setattr(value, part, on_nodes(getattr(value, part), nodes))
    return value


def is_recorded(x: Array) -> bool:
    """Whether a derivative can be taken of a value, at its own level or at one below."""
    return any([node.__class__ in (Leaf, Node) for node in nodes_in(x)])


def values_in(saved: tuple[Any, ...]) -> Iterator[Any]:
    """The values, or the places for them, in a node's `saved`."""
    for v in saved:
        if type(v) is tuple:
            yield from values_in(v)
        elif v is not None and type(v) not in PYTHON_SCALARS:
            yield v


def nodes_behind(out: Any, start: int) -> set[Leaf | Node]:
    """The nodes and leaves behind a function's results that were recorded after `start`."""
    seen: set[Leaf | Node] = set()
    stack = [node for x in _tensors(out) for node in nodes_in(x)]
    while stack:
        node = stack.pop()
        if isinstance(node, Leaf):
            seen.add(node)
        elif isinstance(node, Node) and node.id < start and node not in seen:
            seen.add(node)
            stack.extend(node.parents or ())
            for value in values_in(node.saved or ()):
                if value.__class__ in BOXES or value.__class__ in TENSORS:
                    stack.extend(nodes_in(value))
    return seen


def _tensors(out) -> Iterator[Tensor]:
    for leaf in trees.flatten(out)[0]:
        if leaf.__class__ in TENSORS:
            yield leaf
        elif is_dataclass(leaf) and not isinstance(leaf, type):
            yield from _tensors([getattr(leaf, f.name) for f in fields(leaf)])


def saving_nodes(out: Any, start: int) -> list[Node]:
    """The nodes behind a function's results since `start` that save values, oldest first."""
    nodes = [n for n in nodes_behind(out, start) if isinstance(n, Node)]
    return sorted((n for n in nodes if any(True for _ in values_in(n.saved or ()))), key=_age)


def _age(node: Node) -> int:
    return -node.id


def saved_since(out: Any, start: int) -> dict[Any, Any]:
    """The bytes saved behind a function's results after `start`, by piece of memory."""
    raws = [ground(a) for n in saving_nodes(out, start) for a in arrays_in(n.saved)]
    return {(xp := BACKENDS[type(raw)]).owner(raw): xp.nbytes(raw) for raw in raws}
