"""Distances, angles and lengths of vectors, under PyTorch's names."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from ...arrays.arguments import as_tensor, axes_of, axis_of
from ...core.autocast import SINGLE, computed_in
from ...core.aval import broadcast
from ...errors import ArgumentError
from ...ops.elementwise import clip
from ...ops.reduce import norm
from ...ops.structural import broadcast_to, reshape, sum_

if TYPE_CHECKING:
    from ...arrays.tensor import Tensor
    from ...arrays.types import ArrayLike, Axes


def _length(name: str, x, p: float, axes, keepdims: bool):
    if not p >= 0:
        raise ArgumentError(f"{name}: p={p}, expected the order of a norm, 0 or more")
    p = float(p)
    return norm(x, axes, keepdims, int(p) if p != inf and p == int(p) else p)


@computed_in(SINGLE)
def normalize(input: ArrayLike, p: float = 2.0, dim: Axes = 1, eps: float = 1e-12) -> Tensor:
    """x/max(‖x‖ₚ, eps) along an axis.

    input  an array
    p      the exponent of the norm
    dim    the axis or axes of the vectors; None: all
    eps    the least that the norm counts as

    >>> import weft as wf
    >>> [round(v, 4) for v in wf.nn.functional.normalize([[3.0, 4.0]])[0].tolist()]
    [0.6, 0.8]
    """
    x = as_tensor(input)
    return x / clip(
        _length("normalize", x, p, axes_of("normalize", x, dim), True), float(eps), None
    )


@computed_in(SINGLE)
def cosine_similarity(x1: ArrayLike, x2: ArrayLike, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """x₁·x₂/(max(‖x₁‖, eps)·max(‖x₂‖, eps)) along an axis; the others broadcast.

    x1, x2  arrays
    dim     the axis of the vectors
    eps     the least that a norm counts as

    >>> import weft as wf
    >>> round(wf.nn.functional.cosine_similarity([[1.0, 0.0]], [[3.0, 4.0]]).item(), 4)
    0.6
    """
    a, b = as_tensor(x1), as_tensor(x2)
    shape = broadcast("cosine_similarity", a.shape, b.shape)
    wide = a if a.ndim >= b.ndim else b
    axis = axis_of("cosine_similarity", wide, dim)
    length = shape[axis]
    product = _unit(a, axis - wide.ndim, length, eps) * _unit(b, axis - wide.ndim, length, eps)
    return sum_(product, (axis,), False)


def _unit(x, axis: int, length: int, eps: float):
    """x divided by its norm along an axis; x may still broadcast along it."""
    if -axis > x.ndim:
        x = reshape(x, (*(1,) * (-axis - x.ndim), *x.shape))
    k = x.ndim + axis
    x = broadcast_to(x, (*x.shape[:k], length, *x.shape[k + 1 :]))
    return x / clip(norm(x, (k,), True), float(eps), None)


@computed_in(SINGLE)
def pairwise_distance(
    x1: ArrayLike, x2: ArrayLike, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """‖x₁ − x₂ + eps‖ₚ along the last axis.

    x1, x2   arrays, which broadcast
    p        the exponent of the norm
    eps      what is added to the difference, so that its norm is differentiable
    keepdim  whether the last axis stays, with length 1

    >>> import weft as wf
    >>> wf.nn.functional.pairwise_distance([[0.0, 0.0]], [[3.0, 4.0]], eps=0.0).tolist()
    [5.0]
    """
    d = as_tensor(x1) - as_tensor(x2) + float(eps)
    return _length("pairwise_distance", d, p, (d.ndim - 1,), keepdim)
