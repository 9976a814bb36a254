"""Norms and multiples of many arrays, for which nothing waits: results stay on the device."""

from math import inf

import torch

from .types import Array

_aten = torch.ops.aten
_HALF = (torch.float16, torch.bfloat16)
# Elements that are cast to double precision at once.
_PIECE = 1 << 20
# The exponents for which ATen has a kernel of many arrays on CUDA.
_MANY = (1.0, 2.0, inf)


def joint_norm(arrays: list[Array], kind: float) -> Array:
    """The norm of all arrays as one vector, in double precision."""
    arrays = [_real(x, kind) for x in arrays if x.numel()]
    if not arrays:
        return torch.zeros((), dtype=torch.float64)
    if arrays[0].is_cuda and kind in _MANY:
        return _combined(_norms_by_dtype(arrays, kind), kind)
    parts = [piece for x in arrays for piece in x.reshape(-1).split(_PIECE)]
    norm = torch.linalg.vector_norm
    return _combined([norm(piece, kind, dtype=torch.float64) for piece in parts], kind)


def _real(x: Array, kind: float) -> Array:
    """Real numbers of the same norm."""
    if not x.is_complex():
        return x
    return torch.view_as_real(x.resolve_conj()) if kind == 2 else x.abs()


def _norms_by_dtype(arrays: list[Array], kind: float) -> list[Array]:
    groups: dict[torch.dtype, list[Array]] = {}
    for x in arrays:
        groups.setdefault(x.dtype, []).append(x)
    many = _aten._foreach_norm.Scalar
    return [n for group in groups.values() for n in many(group, kind, torch.float64)]


def _combined(norms: list[Array], kind: float) -> Array:
    """The norm of vectors of these norms, whose powers do not overflow."""
    stacked = torch.stack(norms)
    top = stacked.amax()
    if kind == inf:
        return top
    unit = torch.where((top > 0) & (top < inf), top, 1.0)
    return torch.linalg.vector_norm(stacked / unit, kind) * unit


def limiting_factor(total: Array, limit: float) -> Array:
    """What makes a norm the limit if it is above it and finite; else 1."""
    return torch.where((total > limit) & (total < inf), limit / total, 1.0)


def multiples(arrays: list[Array], factor: Array | float) -> list[Array]:
    """Each array times a number (a 0-d array or Python's), in its dtype; halves in float32."""
    if len({x.dtype for x in arrays}) != 1 or not arrays[0].is_floating_point():
        return [_product(x, factor) for x in arrays]
    if not isinstance(factor, torch.Tensor):
        return _aten._foreach_mul.Scalar(arrays, factor)
    if arrays[0].dtype in _HALF:  # the factor would be rounded to them
        return [_product(x, factor) for x in arrays]
    return _aten._foreach_mul.Tensor(arrays, factor.to(arrays[0].dtype))


def _product(x: Array, factor: Array | float) -> Array:
    if not isinstance(factor, torch.Tensor):
        return x * factor
    wide = x.float() if x.dtype in _HALF else x
    return (wide * factor).to(x.dtype)  # a 0-d x would be widened by a 0-d factor
