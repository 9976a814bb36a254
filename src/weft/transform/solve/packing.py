"""Trees of tensors as one real vector, and back."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from ... import errors
from ...arrays.make import asarray
from ...arrays.tensor import Tensor
from ...core import dtypes
from ...core.aval import Aval
from ...core.backends import PYTHON_SCALARS
from ...core.value import TENSORS, aval_of
from ...ops.complex_ import complex_, imag, real
from ...ops.structural import concat, narrow, reshape
from ..modes import trees

if TYPE_CHECKING:
    import numpy as np

    from ...arrays.types import DTypeLike


def pack(leaves: list[Tensor], dtype: DTypeLike) -> Tensor:
    """The elements of all leaves as one vector; complex ones as real and imaginary parts."""
    parts = []
    for x in leaves:
        for part in (real(x), imag(x)) if dtypes.is_complex(x.dtype) else (x,):
            part = part if part.ndim == 1 else reshape(part, (prod(part.shape),))
            parts.append(part if part.dtype == dtype else part.to(dtype))
    return parts[0] if len(parts) == 1 else concat(parts, 0)


def unpack(vector: Tensor, avals: list[Aval]) -> list[Tensor]:
    """Tensors of these shapes and dtypes from the elements of a vector."""
    leaves, at = [], 0
    for a in avals:
        parts = []
        for _ in range(1 + dtypes.is_complex(a.dtype)):
            part = narrow(vector, 0, at, at + prod(a.shape))
            part = part if a.ndim == 1 else reshape(part, a.shape)
            parts.append(part.to(dtypes.to_real(a.dtype)))
            at += prod(a.shape)
        leaves.append(parts[0] if len(parts) == 1 else complex_(*parts))
    return leaves


def numbers(a: Aval) -> int:
    """The number of real numbers in a tensor."""
    return prod(a.shape) * (1 + dtypes.is_complex(a.dtype))


class Packing:
    """The structure of a tree whose leaves can be differentiated: from a vector and back.

    A list of numbers is an array, as everywhere; a list of tensors is a tree.
    """

    start: list[Tensor]
    avals: list[Aval]
    dtype: np.dtype

    def __init__(self, what: str, tree: Any, beside: Any = ()):
        if tree.__class__ in (list, tuple) and _holds_numbers(tree):
            tree = asarray(tree, dtype=trees.precision(beside))
        leaves, self._rebuild = trees.differentiable_arguments(what, tree, beside)
        if not leaves:
            raise errors.ArgumentError(f"{what}: a start value without any tensor in it")
        self._what, self._tree = what, tree
        self.start = [x if dtypes.is_inexact(x.dtype) else _floating(x) for x in leaves]
        self.avals = [aval_of(x) for x in self.start]
        self.dtype = dtypes.promote_all([dtypes.to_real(a.dtype) for a in self.avals])

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of the vector's elements for each leaf."""
        return tuple([numbers(a) for a in self.avals])

    def vector(self, tree: Any, name: str) -> Tensor:
        """A tree of the same structure, shapes and kinds of numbers as one vector."""
        if tree.__class__ in (list, tuple) and self._tree.__class__ in TENSORS:
            tree = asarray(tree)
        leaves, _ = trees.flatten_result(self._what, tree)
        if tree.__class__ not in TENSORS or self._tree.__class__ not in TENSORS:
            trees.same_structure(f"{self._what}: {name}", self._tree, tree)
        for a, x in zip(self.avals, leaves, strict=True):
            if x.shape != a.shape:
                raise errors.ShapeError(
                    f"{self._what}: {name} has shape {x.shape} where the unknown has {a.shape}"
                )
            if dtypes.is_complex(x.dtype) and not dtypes.is_complex(a.dtype):
                raise errors.DTypeError(
                    f"{self._what}: {name} is complex where the unknown is real; start with a "
                    "complex value"
                )
        return pack([x.to(a.dtype) for a, x in zip(self.avals, leaves, strict=True)], self.dtype)

    def tree(self, vector: Tensor) -> Any:
        """The tree of a vector's elements."""
        return self._rebuild(unpack(vector, self.avals))

    def trajectory(self, vectors: Tensor) -> Any:
        """The tree of several vectors' elements: each leaf has one more axis in front."""
        steps = vectors.shape[0]
        leaves, at = [], 0
        for a, size in zip(self.avals, self.sizes, strict=True):
            rows = narrow(vectors, 1, at, at + size)
            at += size
            if dtypes.is_complex(a.dtype):
                half = size // 2
                rows = complex_(narrow(rows, 1, 0, half), narrow(rows, 1, half, size))
            leaves.append(reshape(rows, (steps, *a.shape)).to(a.dtype))
        return self._rebuild(leaves)


def _holds_numbers(tree) -> bool:
    """Whether nested lists and tuples hold Python numbers only, and at least one."""
    if tree.__class__ in (list, tuple):
        return bool(tree) and all([_holds_numbers(t) for t in tree])
    return tree.__class__ in PYTHON_SCALARS


def _floating(x: Tensor) -> Tensor:
    return x.to(dtypes.default_float())
