"""Loop nests: a kernel's axes sorted, merged, and one of them vectorised."""

from functools import lru_cache
from math import prod

import numpy as np

from ...core.record import record
from ..ir.axes import Axis, axes_of, merge_axes
from ..ir.kernel import FoldStep, Kernel, Step, moving

# Bytes of a vector register; narrower machines use two or four for one.
REGISTER = 64
# Unrolling: an accumulator waits for its last addition, and a long chain of steps for its own
# beginning, while the steps of other registers can run. A chain longer than the processor's
# reorder window needs four.
ACCUMULATORS, PAIR, FOUR = 4, 2, 4
# Elements from which on unrolling is worth the longer code; for four, the least length of lines.
MANY, LONG = 1 << 12, 1 << 16
# This many rows that are not light are a long chain. Beyond CHAINS, unrolling by four takes LLVM
# longer than it gains: a millisecond and more for each row, for an eighth of the kernel's time.
CHAIN, CHAINS = 4, 12
# Instructions of a row that is not light, and of reducing the lanes of a fold.
_HEAVY, _ACROSS = 15, 15


@record
class Nest:
    """Loops from the outside in: `outer`, then the lanes if they are not folded, then `folds`.

    sweeps   the lanes of each sweep; all equal, unless the lanes are folded
    count    the units into which the work can be divided: along the outermost loop
    grain    the units of a piece are a multiple of this, or reach to the end
    """

    outer: tuple[Axis, ...]
    folds: tuple[Axis, ...]
    lane: Axis
    sweeps: tuple[int, ...]
    lane_folded: bool
    piece: int = 0

    @property
    def lanes(self) -> int:
        """The lanes of the first sweep."""
        return self.sweeps[0]

    @property
    def by_lanes(self) -> bool:
        """Whether the work is divided along the lanes."""
        return not self.outer and not self.lane_folded

    @property
    def count(self) -> int:
        if self.outer:
            return self.outer[0].size
        return 1 if self.lane_folded else self.lane.size

    def terms(self, sweep: int) -> int:
        """How many terms of a fold are accumulated in one lane."""
        along = -(-self.lane.size // self.sweeps[sweep]) if self.lane_folded else 1
        return along * prod(a.size for a in self.folds)

    @property
    def grain(self) -> int:
        return self.lanes if self.by_lanes else self.piece or 1


@lru_cache(maxsize=1024)
def nest_of(kernel: Kernel) -> Nest:
    """The loop nest of a kernel."""
    axes = axes_of(kernel)
    if kernel.piece:  # over rows, with columns folded
        kept, folds, lane, lane_folded = [axes[0]], [], axes[1], bool(kernel.folded)
    else:
        used = [(axis, a in kernel.folded) for a, axis in enumerate(axes) if axis.size != 1]
        kept = merge_axes([axis for axis, folded in used if not folded])
        folds = merge_axes([axis for axis, folded in used if folded])
        lane, lane_folded = _lane(kernel, kept, folds)
    kept = [a for a in kept if a is not lane]
    folds = [a for a in folds if a is not lane]
    width = _width(kernel)
    spreads = [_spread(kernel, k, lane) for k in range(kernel.sweeps)] or [1]
    if not lane_folded:
        spreads = [min(spreads)] * len(spreads)
    lanes = tuple([fit_lanes(width * n, lane.size) for n in spreads])
    return Nest(tuple(kept), tuple(folds), lane, lanes, lane_folded, kernel.piece)


def fit_lanes(lanes: int, size: int) -> int:
    """The lanes for a line: halved as long as they still hold all its elements."""
    while lanes > 1 and lanes // 2 >= size:
        lanes //= 2
    return lanes


def _lane(kernel: Kernel, kept: list[Axis], folds: list[Axis]) -> tuple[Axis, bool]:
    """The axis to vectorise, and whether it is folded."""
    axes = [(axis, False) for axis in kept] + [(axis, True) for axis in folds]
    if not axes:
        return Axis(1, (0,) * (len(kernel.operands) + len(kernel.results))), False
    if len(axes) == 1:
        return axes[0]
    width, base = _width(kernel), len(kernel.operands)
    swept = [moving(kernel, k) for k in range(kernel.sweeps)]
    often = [sum(i in values for values in swept) for i in range(base)] + [1] * len(kernel.results)
    rows = [kernel.steps[i - base] for values in swept for i in values if i >= base]
    work = sum(1 if isinstance(s, Step) and s.is_light else _HEAVY for s in rows)
    count = sum(isinstance(s, FoldStep) for s in kernel.steps)

    def cost(axis: Axis, folded: bool) -> float:
        """Approximate instructions for a register's elements."""
        lanes, size = fit_lanes(width, axis.size), max(axis.size, 1)
        registers = -(-size // lanes)
        moves = sum(n * _access(s, width) for n, s in zip(often, axis.strides, strict=True))
        across = count * _ACROSS / registers if folded else 0
        return (moves + work + across) * registers * lanes / size

    return min(axes, key=lambda axis: (cost(*axis), -axis[0].size))


def _access(stride: int, width: int) -> float:
    """The cost of loading or storing a register: contiguous, broadcast, or strided."""
    return 1.0 if abs(stride) == 1 else 0.25 if stride == 0 else 2.0 * width


def _width(kernel: Kernel) -> int:
    """The lanes that fill a register with numbers of the most frequent size."""
    sizes = [_itemsize(s.dtype) for s in kernel.steps if isinstance(s, Step)]
    if not sizes or set(sizes) == {1}:
        sizes = [_itemsize(d) for d in kernel.dtypes] or [4]
        return min(max(REGISTER // max(sizes), 8), REGISTER)
    wide = [n for n in sizes if n > 1]
    usual = max(wide, key=lambda n: (wide.count(n), n))
    return min(max(REGISTER // usual, 8), REGISTER)


def _itemsize(dtype: np.dtype) -> int:
    return 4 if dtype.itemsize == 2 and dtype.kind not in "iu" else dtype.itemsize


def _spread(kernel: Kernel, k: int, lane: Axis) -> int:
    """The unrolling of sweep k: for light folds, and for long chains of steps."""
    if prod(kernel.domain) < MANY:
        return 1
    base = len(kernel.operands)
    steps = [kernel.steps[i - base] for i in moving(kernel, k) if i >= base]
    light = [s.is_light for s in steps if isinstance(s, Step)]
    if len(light) > 8 or not all(light):
        chain = CHAIN <= light.count(False) <= CHAINS
        return FOUR if chain and lane.size >= LONG and not kernel.folded else PAIR
    return ACCUMULATORS if kernel.folded else 1


# Bytes of lines that are kept on the stack between sweeps: a part of the second-level cache.
LINES = 1 << 18


def find_reused(kernel: Kernel, nest: Nest) -> dict[int, int]:
    """Values that a later sweep reads again instead of recomputing, with their first sweep.

    Those that take more than an instruction or two, and only where a fold is over one line.
    """
    if not nest.lane_folded or nest.folds:
        return {}
    seen: dict[int, int] = {}
    again: dict[int, int] = {}
    for k in range(kernel.sweeps):
        for i in sorted(moving(kernel, k)):
            if i in seen and _is_heavy(kernel, i):
                again[i] = seen[i]
            seen.setdefault(i, k)
    size = nest.lane.size * sum(_itemsize(kernel.dtypes[i]) for i in again)
    return again if size <= LINES else {}


def _is_heavy(kernel: Kernel, i: int) -> bool:
    step = kernel.steps[i - len(kernel.operands)] if i >= len(kernel.operands) else None
    return isinstance(step, Step) and not step.is_light and step.dtype.kind != "b"
