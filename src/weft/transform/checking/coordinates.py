"""Lists of real and complex tensors as one real vector, and back.

A complex number is two coordinates, its real and its imaginary part. With conjugate gradients
the parts of a gradient are the derivatives by the parts, so that in these coordinates complex
functions are real ones.
"""

from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from ...arrays.make import asarray
from ...arrays.tensor import Tensor
from ...backend.device import as_numpy
from ...core import dtypes
from ...core.aval import Aval
from ...core.record import record
from ...core.value import aval_of


@record
class Coordinates:
    """The layout of tensors of these types in one real vector."""

    avals: tuple[Aval, ...]

    @staticmethod
    def of(tensors: Any) -> "Coordinates":
        return Coordinates(tuple(aval_of(t) for t in tensors))

    @cached_property
    def slices(self) -> list[slice]:
        """The slice of the vector for each tensor."""
        sizes = [prod(a.shape) * (2 if dtypes.is_complex(a.dtype) else 1) for a in self.avals]
        return [slice(a, b) for a, b in pairwise(np.cumsum([0, *sizes]).tolist())]

    @property
    def size(self) -> int:
        return self.slices[-1].stop if self.avals else 0

    def pack(self, tensors: Any) -> np.ndarray[Any, Any]:
        """The coordinates of tensors; None stands for zeros."""
        out = np.zeros(self.size)
        for t, part, a in zip(tensors, self.slices, self.avals, strict=True):
            if t is not None:
                flat: Any = np.reshape(as_numpy(t.detach()._data), -1)
                if dtypes.is_complex(a.dtype):
                    flat = np.stack([flat.real, flat.imag], axis=-1).reshape(-1)
                out[part] = flat
        return out

    def unpack(self, x: np.ndarray) -> list[Tensor]:
        """The tensors that have these coordinates."""
        out = []
        for part, a in zip(self.slices, self.avals, strict=True):
            flat = x[part]
            if dtypes.is_complex(a.dtype):
                flat = flat[0::2] + 1j * flat[1::2]
            out.append(asarray(flat.reshape(a.shape), dtype=a.dtype, device=a.device, copy=True))
        return out

    def place(self, i: int) -> tuple[int, tuple[int, ...], str]:
        """The tensor that coordinate i belongs to, the index in it, and which part it is."""
        k = next(k for k, part in enumerate(self.slices) if i < part.stop)
        a, i = self.avals[k], i - self.slices[k].start
        part = ""
        if dtypes.is_complex(a.dtype):
            i, part = i // 2, (".real", ".imag")[i % 2]
        return k, tuple(map(int, np.unravel_index(i, a.shape))), part

    def unflatten(self, x: np.ndarray) -> np.ndarray[Any, Any]:
        """Vectors of the only tensor's coordinates (last axis) as arrays of its shape."""
        (a,) = self.avals
        if dtypes.is_complex(a.dtype):
            x = x[..., 0::2] + 1j * x[..., 1::2]
        return x.reshape((*x.shape[:-1], *a.shape))
