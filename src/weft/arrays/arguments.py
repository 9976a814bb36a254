"""Reading the arguments of public functions: axes, and tensors out of anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core import dtypes
from ..core.aval import axes_in, axis_in
from ..core.value import TENSORS
from .foreign import leaves
from .make import asarray

if TYPE_CHECKING:
    from .tensor import Tensor

_ALL = [tuple(range(n)) for n in range(65)]


def as_tensor(x: Any) -> Tensor:
    """x as a tensor."""
    return x if type(x) in TENSORS else asarray(x)


def boxed_beside(x: Any, y: Any) -> Tensor:
    """y as a tensor; numbers and lists, which have no device of their own, go where x is."""
    if type(y) in TENSORS or hasattr(y, "device"):
        return as_tensor(y)
    return asarray(y, device=x.device)


def integers_beside(x: Any, y: Any) -> Tensor:
    """`boxed_beside`, where Python's integers take the dtype of the integers x, if that holds them.

    So 0 goes beside uint64, which has no common dtype with int64.
    """
    whole = y.__class__ is int or (y.__class__ in (list, tuple) and _all_integers(y))
    if whole and dtypes.rank(x.dtype) == 1 and all([dtypes.holds(x.dtype, v) for v in leaves([y])]):
        return asarray(y, dtype=x.dtype, device=x.device)
    return boxed_beside(x, y)


def _all_integers(y) -> bool:
    return all([v.__class__ is int for v in leaves(y)])


def axes_of(name: str, x: Any, axis: Any) -> tuple[int, ...]:
    """None, an integer or a sequence of integers as nonnegative axes of x."""
    ndim = len(x._data.shape)
    if axis is None:
        return _ALL[ndim]
    if axis.__class__ is int and -ndim <= axis < ndim:
        return (axis % ndim,)
    return axes_in(name, tuple(axis) if isinstance(axis, list) else axis, ndim)


def axis_of(name: str, x: Any, axis: Any, extra: int = 0) -> int:
    """One axis of x, nonnegative; `extra` more are allowed for new axes."""
    ndim = len(x._data.shape) + extra
    if axis.__class__ is int and -ndim <= axis < ndim:
        return axis % ndim
    return axis_in(name, axis, ndim)


def flat_or_axis(name: str, x: Tensor, axis: Any) -> tuple[Tensor, Any]:
    """(x, axis); with axis None, x flattened and axis 0."""
    if axis is None:
        return x.reshape((-1,)), 0
    return x, axis_of(name, x, axis)
