"""Walking through arguments and results: lists, tuples, dicts and slices of values."""

from collections.abc import Callable, Iterator
from typing import Any


def map_tree(f: Callable[[Any], Any], tree: Any) -> Any:
    """The tree with f applied to every leaf."""
    if isinstance(tree, dict):
        return {key: map_tree(f, value) for key, value in tree.items()}
    if isinstance(tree, slice):
        return slice(map_tree(f, tree.start), map_tree(f, tree.stop), map_tree(f, tree.step))
    if isinstance(tree, tuple):
        parts = [map_tree(f, x) for x in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    if isinstance(tree, list):
        return [map_tree(f, x) for x in tree]
    return f(tree)


def leaves(tree: Any) -> Iterator[Any]:
    """The leaves of a tree, in order."""
    if isinstance(tree, dict):
        for value in tree.values():
            yield from leaves(value)
    elif isinstance(tree, slice):
        yield from leaves((tree.start, tree.stop, tree.step))
    elif isinstance(tree, tuple | list):
        for x in tree:
            yield from leaves(x)
    else:
        yield tree
