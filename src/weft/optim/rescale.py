"""Multiplying gradients by a factor, and their new norm from the same pass."""

from math import inf

import numpy as np

from ..core import dtypes
from ..core.backends import BACKENDS
from ..core.value import wrap
from .clip import PIECE, HeldGradient, array_norm, common_norm


def rescale(held: list[HeldGradient], factor: float) -> float:
    """Multiply gradients in place; returns their new norm.

    It is infinite or NaN exactly if one of the results is.
    """
    norms, elsewhere = [], {}
    for h in held:
        if h.grad.device == "cpu":
            scaled, norm = _scale(h.grad._data, factor)
            h.replace(wrap(scaled))
            norms.append(norm)
        else:
            elsewhere.setdefault(h.grad.device, []).append(h)
    for there in elsewhere.values():
        arrays, found = _scaled_together([h.grad._data for h in there], factor)
        for h, scaled in zip(there, arrays, strict=True):
            h.replace(wrap(scaled))
        norms += found
    return common_norm(norms, 2.0)


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


def _scaled_together(arrays: list, factor: float) -> tuple[list, list[float]]:
    """factor·x for PyTorch's arrays on one device, and their norms, which come in one transfer."""
    xp = BACKENDS[type(arrays[0])]
    scaled = [x * factor for x in arrays]
    parts = [xp.view_as_real(x) if x.is_complex() else x for x in scaled]
    wide = xp.raw_dtype(dtypes.float64)
    return scaled, xp.stack([xp.vector_norm(x, dtype=wide) for x in parts], 0).tolist()
