"""Limiting gradients without changing them: functions that return new ones.

They are made of differentiable operations, so a gradient that was recorded stays recorded.
"""

from collections.abc import Callable
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, TypeVar

from .. import errors
from ..core import dtypes
from ..core.value import TENSORS
from ..ops.elementwise import maximum, where
from ..ops.logic import isfinite
from ..transform.modes.gradient_map import GradientMap
from .clip import check_limit

__all__ = ["clip_by_global_norm", "clip_by_value"]

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor

_Grads = TypeVar("_Grads", GradientMap, list["Tensor"], list["Tensor | None"])


def clip_by_global_norm(grads: _Grads, max_norm: float) -> _Grads:
    """Gradients scaled so that their common norm is at most `max_norm`.

    grads     a list (None stands for a gradient that is missing) or a `GradientMap`
    max_norm  the largest norm

    A norm that is not finite leaves the gradients as they are.

    >>> import weft as wf
    >>> (g,) = wf.gradient_clipping.clip_by_global_norm([wf.tensor([3.0, 4.0])], 1.0)
    >>> [round(x, 4) for x in g.tolist()]
    [0.6, 0.8]
    """
    check_limit("clip_by_global_norm", "max_norm", max_norm)
    listed = [g for g in _list_gradients("clip_by_global_norm", grads) if g.size]
    if not listed:
        return _map_gradients(grads, lambda g: g)
    # Relative to the largest element, so that squares do not overflow.
    peak = reduce(maximum, [abs(g.detach()).max() for g in listed])
    peak = where((peak > 0) & isfinite(peak), peak, 1.0)
    total = reduce(add, [_squares(g / peak) for g in listed]).sqrt() * peak
    scale = where((total > max_norm) & isfinite(total), max_norm / total, 1.0)
    return _map_gradients(grads, lambda g: (g * scale).to(g.dtype))


def clip_by_value(grads: _Grads, clip_value: float) -> _Grads:
    """Gradients with every element limited to [−clip_value, clip_value].

    grads       a list (None stands for a gradient that is missing) or a `GradientMap`
    clip_value  the largest size of an element

    >>> import weft as wf
    >>> (g,) = wf.gradient_clipping.clip_by_value([wf.tensor([3.0, -0.5])], 1.0)
    >>> g.tolist()
    [1.0, -0.5]
    """
    check_limit("clip_by_value", "clip_value", clip_value)
    _list_gradients("clip_by_value", grads)
    return _map_gradients(grads, lambda g: g.clip(-clip_value, clip_value))


def _squares(g):
    """Σ|g|²."""
    g = g.to(dtypes.accumulator(g.dtype))
    return (g * g.conj()).real.sum() if dtypes.is_complex(g.dtype) else (g * g).sum()


def _list_gradients(what: str, grads) -> list:
    """The gradients that are not missing."""
    if not isinstance(grads, list | tuple | GradientMap):
        raise errors.DTypeError(
            f"{what}: got a {type(grads).__name__}, expected a list of gradients or a GradientMap"
        )
    listed = [g for g in _values(grads) if g is not None]
    for g in listed:
        if type(g) not in TENSORS:
            raise errors.DTypeError(f"{what}: got a {type(g).__name__} in it, expected tensors")
    return listed


def _values(grads) -> list:
    return grads.values() if isinstance(grads, GradientMap) else list(grads)


def _map_gradients(grads: Any, f: "Callable[[Tensor], Tensor]") -> Any:
    """New gradients in a container like the old one; a tuple becomes a list."""
    if isinstance(grads, GradientMap):
        return GradientMap({key: f(g) for key, g in grads.items()})
    return [None if g is None else f(g) for g in grads]


def __dir__() -> list[str]:
    return list(__all__)
