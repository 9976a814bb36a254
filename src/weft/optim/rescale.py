"""Multiplying gradients by a factor, and their new norm from the same pass."""

from math import inf
from typing import Any

import numpy as np

from ..core import dtypes
from ..core.backends import BACKENDS
from ..core.value import wrap
from .clip import HeldGradient, multiply
from .norms import PIECE, array_norm, common_norm, joint_norm


def rescale(held: list[HeldGradient], factor: Any) -> Any:
    """Multiply gradients in place; returns their new norm, on a GPU as a tensor.

    factor  a number; if all gradients are on one GPU, maybe a raw array of its

    It is infinite or NaN exactly if one of the results is.
    """
    norms, elsewhere = [], []
    for h in held:
        if h.grad.device == "cpu":
            scaled, norm = _scale(h.grad._data, factor)
            h.replace(wrap(scaled))
            norms.append(norm)
        else:
            elsewhere.append(h)
    there = joint_norm(multiply(elsewhere, factor), 2.0)
    return common_norm([*norms, float(there)], 2.0) if norms else there


def _scale(x, factor: float) -> tuple[np.ndarray, float]:
    """factor·x and its norm, block by block, so that squares read from the cache."""
    out = np.empty(x.shape, x.dtype)
    source, target = np.ascontiguousarray(x).reshape(-1), out.reshape(-1)
    half, wide = x.dtype in dtypes.HALF, dtypes.accumulator(x.dtype)
    total = 0.0
    with BACKENDS[np.ndarray].quiet():
        for start in range(0, source.size, PIECE):
            piece = slice(start, start + PIECE)
            part = np.multiply(
                source[piece], factor, out=None if half else target[piece], dtype=wide
            )
            if half:
                target[piece] = part
            size = abs(part) if part.dtype.kind == "c" else part
            total += float((size * size).sum())
    # Squares overflow before x does: then a second pass decides.
    return out, array_norm(out, 2.0) if total == inf else total**0.5
