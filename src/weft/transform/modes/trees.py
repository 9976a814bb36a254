"""Trees (nested containers) of tensors: flattening to leaves and rebuilding."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ... import errors
from ...arrays.make import asarray
from ...arrays.tensor import Tensor
from ...core import dtypes
from ...core.value import TENSORS, as_seen_by_trace

Rebuild = Callable[[list[Any]], Any]  # leaves to a tree


def flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], Rebuild]:
    """The leaves of a tree, and the function that rebuilds a tree of that structure from leaves.

    is_leaf  which further objects are leaves
    """
    if tree.__class__ in TENSORS:
        return [tree], lambda leaves: leaves[0]
    import optree  # imported at first use: `import weft` stays quick

    leaves, structure = optree.tree_flatten(tree, is_leaf=is_leaf)
    return leaves, lambda leaves: optree.tree_unflatten(structure, leaves)


def tensors(what: str, tree: Any, fix: str = "") -> tuple[list[Tensor], Rebuild]:
    """The leaves as tensors (numbers and arrays are converted), and the rebuild function."""
    leaves, rebuild = flatten(tree)
    return [tensor(what, leaf, fix) for leaf in leaves], rebuild


def differentiable_arguments(
    what: str, tree: Any, beside: Any = ()
) -> tuple[list[Tensor], Rebuild]:
    """Like `tensors`, for arguments to differentiate with respect to.

    Python floats become float64 if any leaf of `tree` or `beside` is float64.
    """
    leaves, rebuild = flatten(tree)
    numbers = [leaf.__class__ is float or hasattr(leaf, "staging") for leaf in leaves]
    dtype = precision(leaves, beside) if any(numbers) else None
    made = [
        tensor(what, leaf) if dtype is None or not number else _number(leaf, dtype)
        for leaf, number in zip(leaves, numbers, strict=True)
    ]
    return made, rebuild


def _number(leaf: Any, dtype: np.dtype) -> Tensor:
    """A float, or a host scalar of a function that is being compiled, as a tensor."""
    if leaf.__class__ is float:
        return asarray(leaf, dtype=dtype)
    return leaf.staging.number(leaf, dtype)


def precision(*several: Any) -> np.dtype | None:
    """The dtype of Python floats beside trees of arrays; None: the default float."""
    for leaf in flatten(list(several))[0]:
        if str(getattr(leaf, "dtype", "")).removeprefix("torch.") in ("float64", "complex128"):
            return dtypes.float64
    return None


def tensor(what: str, leaf: Any, fix: str = "") -> Tensor:
    """A leaf as a tensor."""
    if leaf.__class__ in TENSORS:
        return as_seen_by_trace(leaf)
    if hasattr(leaf, "staging"):  # a host scalar of a function that is being compiled
        return leaf.staging.lift_arguments([leaf])[0]
    try:
        return asarray(leaf)
    except (errors.WeftError, TypeError):
        raise errors.DTypeError(
            f"{what}: got {type(leaf).__name__}, expected tensors or numbers, alone or in nested "
            f"lists, tuples and dicts{fix}"
        ) from None


def flatten_result(what: str, tree: Any) -> tuple[list[Tensor], Rebuild]:
    """The leaves of a function's result, which must be tensors or numbers."""
    refuse_none(what, tree)
    return tensors(what, tree, "; return others beside the result, with has_aux=True")


def refuse_none(what: str, result: Any) -> None:
    """Refuse a function that returned nothing."""
    if result is None:
        raise errors.DTypeError(
            f"{what}: the function returned None, expected tensors; does it end in `return`?"
        )


def differentiable(what: str, leaves: Iterable[Tensor]) -> None:
    """Refuse leaves that one cannot differentiate with respect to."""
    for x in leaves:
        if not dtypes.is_inexact(x.dtype):
            raise errors.NotDifferentiable(
                f"{what}: an argument of dtype {x.dtype} has no derivative; make it a float "
                "(x.to('float32')), or leave it out by argnums"
            )


def same_structure(what: str, tree: Any, other: Any) -> None:
    """Refuse two trees of different structure."""
    import optree

    one, two = optree.tree_structure(tree), optree.tree_structure(other)
    if one != two:
        raise errors.ArgumentError(f"{what}: structures differ, {one} and {two}; make them equal")


def map_prefix(f: Callable[..., Any], prefix: Any, tree: Any) -> Any:
    """f(p, leaf) over the leaves of a tree, p from a prefix of it (an int or None for all)."""
    if prefix is None or isinstance(prefix, int):
        leaves, rebuild = flatten(tree)
        return rebuild([f(prefix, leaf) for leaf in leaves])
    if isinstance(prefix, dict) and isinstance(tree, dict) and prefix.keys() == tree.keys():
        return {k: map_prefix(f, prefix[k], tree[k]) for k in tree}
    if isinstance(prefix, list | tuple) and isinstance(tree, list | tuple):
        if len(prefix) == len(tree):
            parts = [map_prefix(f, p, t) for p, t in zip(prefix, tree, strict=True)]
            return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    raise errors.ArgumentError(
        f"vmap: axes {prefix!r} do not match a {type(tree).__name__}: give an int or None for all "
        "of it, or the same structure"
    )
