"""Abstract values: the shape, dtype and device an operation's result will have."""

from collections.abc import Iterable
from functools import lru_cache
from operator import index
from typing import Any

import numpy as np

from ..errors import AxisError, DTypeError, ShapeError, StagingError
from .record import record

Shape = tuple[int, ...]


@record
class Aval:
    """What is known of an array before it is computed."""

    shape: Shape
    dtype: np.dtype
    device: Any = "cpu"

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def like(self, shape: Iterable[int] | None = None, dtype: np.dtype | None = None) -> "Aval":
        """This aval with another shape or dtype."""
        return Aval(
            self.shape if shape is None else tuple(shape),
            self.dtype if dtype is None else dtype,
            self.device,
        )


def broadcast(op: str, *shapes: Shape) -> Shape:
    """The common shape of `shapes`, or an error that shows them."""
    if shapes and shapes.count(shapes[0]) == len(shapes):
        return tuple(shapes[0])
    ndim = max(map(len, shapes), default=0)
    out = []
    for k in range(-ndim, 0):
        sizes = {s[k] for s in shapes if len(s) >= -k} - {1}
        if len(sizes) > 1:
            shown = ", ".join(map(str, shapes))
            wrong = " ≠ ".join(map(str, sorted(sizes)))
            raise ShapeError(f"{op}: shapes {shown} do not broadcast: {wrong} on axis {k}")
        out.append(sizes.pop() if sizes else 1)
    return tuple(out)


def integer_in(op: str, what: str, value: Any) -> int:
    """`value` as an int, or an error that says which argument it is."""
    if value.__class__ is int:
        return value
    try:
        return index(value)
    except StagingError:  # a tensor whose value is not known yet says so
        raise
    except TypeError:
        raise DTypeError(f"{op}: {what} {value!r}, expected an integer") from None


@lru_cache(maxsize=1024)
def reduced_shape(shape, axes, keepdims: bool) -> tuple[int, ...]:
    """`shape` without `axes`, or with ones in their place."""
    if keepdims:
        return tuple(1 if i in axes else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in axes)


def axis_in(op: str, axis: int, ndim: int) -> int:
    """`axis` counted from the front, or an error that names the range."""
    if axis.__class__ is bool:
        raise DTypeError(
            f"{op}: axis {axis}, expected an integer; other arguments go by keyword, as in "
            "keepdims=True or correction=1"
        )
    axis = integer_in(op, "axis", axis)
    if not -ndim <= axis < ndim:
        raise AxisError(f"{op}: axis {axis} is out of range for {ndim} dimensions")
    return axis % ndim


def axes_in(op: str, axis: int | tuple[int, ...] | None, ndim: int) -> tuple[int, ...]:
    """All axes for None, else the named ones counted from the front."""
    if axis is None:
        return tuple(range(ndim))
    axes = tuple(axis_in(op, a, ndim) for a in (axis if isinstance(axis, tuple) else (axis,)))
    if len(set(axes)) != len(axes):
        raise AxisError(f"{op}: axis {axis} names a dimension twice")
    return axes
