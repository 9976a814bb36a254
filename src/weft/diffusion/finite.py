"""Whether the weights that are read hold NaN or infinity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.backends import BACKENDS

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor

_CHUNK = 1 << 18  # elements: what is made of them stays in a core's cache
# Bits of the absolute value of infinity: what is as large or larger is not finite.
_INFINITY = {"bfloat16": 0x7F80, "float16": 0x7C00}


def is_finite(x: Tensor) -> bool:
    """Whether all elements are finite; those of half types in NumPy are compared as integers.

    x  of a floating-point dtype

    >>> import weft as wf
    >>> from weft.diffusion.finite import is_finite
    >>> is_finite(wf.ones(3, dtype="bfloat16")), is_finite(wf.tensor([1.0, float("inf")]))
    (True, False)
    """
    raw: Any = x._data
    if not isinstance(raw, np.ndarray):
        return BACKENDS[type(raw)].all_finite(raw)
    flat, limit = raw.reshape(-1), _INFINITY.get(x.dtype.name)
    parts = (flat[i : i + _CHUNK] for i in range(0, flat.size, _CHUNK))
    if limit is None:
        return all(bool(np.isfinite(part).all()) for part in parts)
    return all(int((part.view(np.uint16) & 0x7FFF).max()) < limit for part in parts)
