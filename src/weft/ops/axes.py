"""Shapes and dtypes of reductions over axes."""

from collections.abc import Callable
from math import prod

import numpy as np

from ..core import dtypes
from ..core.aval import Aval, Shape, axes_in, axis_in, reduced_shape
from ..core.types import Array
from ..errors import DTypeError, ShapeError
from .structural import reshape


def restore_axes(g: Array, shape: Shape, axes: tuple[int, ...], keepdims: bool) -> Array:
    """A reduction's result or cotangent, reshaped to broadcast to the operand."""
    if keepdims or len(axes) == len(shape):
        return g
    return reshape(g, reduced_shape(shape, axes, True))


def count(shape: Shape, axes: tuple[int, ...]) -> int:
    """How many elements a reduction over `axes` combines."""
    return prod([shape[a] for a in axes])


def same(dtype: np.dtype) -> np.dtype:
    return dtype


def floating(dtype: np.dtype) -> np.dtype:
    """The dtype of float-valued operations on `dtype`."""
    return dtype if dtypes.is_inexact(dtype) else dtypes.default_float()


def real_floating(dtype: np.dtype) -> np.dtype:
    """The dtype of real-valued operations on `dtype`."""
    return dtypes.to_real(floating(dtype))


def real_only(name: str, x: Aval) -> None:
    """Refuse complex numbers, which have no order."""
    if x.dtype in dtypes.COMPLEX:
        raise DTypeError(f"{name}: got {x.dtype}, which has no order; take abs() or real() first")


def reduction_shape(
    name: str, dtype: Callable[[np.dtype], np.dtype] = same, ordered: bool = False
) -> Callable[..., Aval]:
    """The shape rule of reductions; ordered ones refuse empty axes."""

    def shape(x: Aval, axes, keepdims: bool, *_options) -> Aval:
        axes_in(name, axes, x.ndim)
        if ordered:
            real_only(name, x)
            if not count(x.shape, axes):
                raise ShapeError(
                    f"{name}: shape {x.shape} has no element along axes {axes}; give it at "
                    "least one"
                )
        return x.like(reduced_shape(x.shape, axes, keepdims), dtype(x.dtype))

    return shape


def along_shape(
    name: str, dtype: Callable[[np.dtype], np.dtype] = same, ordered: bool = False
) -> Callable[..., Aval]:
    """The shape rule of operations along one axis that keep the shape."""

    def shape(x: Aval, axis: int, *_options) -> Aval:
        axis_in(name, axis, x.ndim)
        if ordered:
            real_only(name, x)
        return x.like(dtype=dtype(x.dtype))

    return shape
