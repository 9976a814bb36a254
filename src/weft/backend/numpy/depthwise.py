"""NumPy kernels of depthwise convolutions: tap by tap, for many channels at once.

A product of matrices would have one row; instead each tap is one multiplication of all windows.
"""

import numpy as np

from ..shared import threads
from .types import Array
from .windows import BLOCK_BYTES, Planes, WindowLayout, cells, cut, lay_runs, wide

# The least number of blocks of a large job, fixed, so that sums do not depend on the threads.
_PIECES = 8


def convolve(x: Array, w: Array, b: Array | None, out: Array, plan: WindowLayout) -> None:
    """Write into `out`; the weights are (channels, 1, *kernel), b is None or a column."""
    dtype = wide(out.dtype)
    taps = w.reshape(len(w), len(plan.taps), 1).astype(dtype, copy=False)

    def worker():
        sheets = _PlaneBlocks(plan, dtype)

        def do(block):
            images, channels = block
            seen = sheets.lay_taps(x[images, channels])
            total = _sum(seen, taps[channels])
            if b is not None:
                total += b[channels]
            out[images, channels] = cells(total, plan)

        return do

    work = threads.PASS * len(x) * plan.run * taps.size
    threads.share(_blocks(plan, x, dtype, work), worker, work)


def weigh(x: Array, y: Array, w: Array, plan: WindowLayout) -> None:
    """Write the cotangent of the weights for the cotangent y into w (channels, 1, *kernel)."""
    work = threads.PASS * len(x) * plan.run * w.size
    blocks = _blocks(plan, x, w.dtype, work)
    parts = [None] * len(blocks)

    def worker():
        sheets = _PlaneBlocks(plan, w.dtype)

        def do(k):
            seen, runs = sheets.lay_taps(x[blocks[k]]), lay_runs(y[blocks[k]], w.dtype, plan)
            parts[k] = _products(seen, runs)

        return do

    threads.share(range(len(blocks)), worker, work)
    total = w.reshape(len(w), len(plan.taps))
    for (_, channels), part in zip(blocks, parts, strict=True):
        total[channels] += part


def _blocks(plan: WindowLayout, x: Array, dtype: np.dtype, work: int) -> list[tuple[slice, slice]]:
    """The blocks of work: some images at a time, or some channels of one image."""
    # A plane, the sum and a term.
    fit = BLOCK_BYTES // (3 * dtype.itemsize * plan.run)
    pieces = _PIECES if work >= threads.ENOUGH else 1
    planes = max(1, min(fit, -(-max(len(x), 1) * x.shape[1] // pieces)))
    images = cut(len(x), max(1, planes // max(x.shape[1], 1)))
    channels = cut(x.shape[1], planes)
    return [(slice(*i), slice(*c)) for c in channels for i in images]


class _PlaneBlocks:
    """Planes for blocks of several shapes, in reused memory."""

    def __init__(self, plan: WindowLayout, dtype: np.dtype):
        self.plan, self.dtype = plan, dtype
        self.made: dict[tuple[int, int], Planes] = {}

    def lay_taps(self, x: np.ndarray) -> list[np.ndarray]:
        """The elements of a block under each tap."""
        size = x.shape[0], x.shape[1]
        if size not in self.made:
            self.made[size] = Planes(self.plan, *size, self.dtype)
        self.made[size].lay(x)
        return self.made[size].taps(len(x))


def _sum(seen: list[np.ndarray], taps: np.ndarray) -> np.ndarray:
    """Σ taps · windows, (n, channels, run), for taps (channels, kernel, 1)."""
    total = np.multiply(seen[0], taps[:, 0])
    term = np.empty_like(total)
    for k in range(1, len(seen)):
        np.multiply(seen[k], taps[:, k], out=term)
        total += term
    return total


def _products(seen: list[np.ndarray], runs: np.ndarray) -> np.ndarray:
    """Σ windows · runs, (channels, kernel), for runs (n, channels, run)."""
    total = np.empty((runs.shape[1], len(seen)), runs.dtype)
    for k, line in enumerate(seen):
        line = line.conj() if line.dtype.kind == "c" else line  # vecdot takes the conjugate
        total[:, k] = np.vecdot(line, runs).sum(0)
    return total
