"""The order of a kernel's loops: axes sorted, merged, and one of them chosen for the lanes."""

from dataclasses import dataclass
from math import prod

import numpy as np

from ..graph.graph import Literal
from .kernel import Fold, Kernel, Step

# Bytes of a vector register; narrower machines take two or four for one.
REGISTER = 64
# Rows that take an instruction or two: sums of them keep several accumulators busy.
LIGHT = frozenset(
    (
        *("add", "subtract", "multiply", "negative", "positive", "square", "abs", "relu", "cast"),
        *("maximum", "minimum", "where", "gate", "clip", "alias", "detach", "copy", "scale_shift"),
        *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
        *("logical_and", "logical_or", "logical_not", "strong_product"),
    )
)
ACCUMULATORS = 4


@dataclass(frozen=True)
class Axis:
    """A loop: how long it is, and how far it moves each array."""

    size: int
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Nest:
    """Loops from the outside in: `outer`, then the lanes if they are kept, then `folds`.

    count    how many units the work can be divided into: along the outermost loop
    grain    the units of one piece are a multiple of this, or reach to the end
    """

    outer: tuple[Axis, ...]
    folds: tuple[Axis, ...]
    lane: Axis
    lanes: int
    lane_folded: bool

    @property
    def by_lanes(self) -> bool:
        """Whether the work is divided along the lanes."""
        return not self.outer and not self.lane_folded

    @property
    def count(self) -> int:
        if self.outer:
            return self.outer[0].size
        return 1 if self.lane_folded else self.lane.size

    @property
    def terms(self) -> int:
        """How many terms of a fold meet in one lane."""
        along = -(-self.lane.size // self.lanes) if self.lane_folded else 1
        return along * prod(a.size for a in self.folds)

    @property
    def grain(self) -> int:
        return self.lanes if self.by_lanes else 1


def nest_of(kernel: Kernel) -> Nest:
    """How the loops of a kernel are nested."""
    accesses = (*kernel.operands, *kernel.results)
    kept, folds = [], []
    for a, size in enumerate(kernel.domain):
        if size != 1:
            axis = Axis(size, tuple(x.strides[a] for x in accesses))
            (folds if a in kernel.folded else kept).append(axis)
    kept, folds = _merged(kept), _merged(folds)
    lane, lane_folded = _lane(kept, folds, len(accesses))
    kept = [a for a in kept if a is not lane]
    folds = [a for a in folds if a is not lane]
    width = _width(kernel)
    if lane_folded or folds:
        width *= _spread(kernel)
    lanes = width
    while lanes > 1 and lanes // 2 >= lane.size:
        lanes //= 2
    return Nest(tuple(kept), tuple(folds), lane, lanes, lane_folded)


def _merged(axes: list[Axis]) -> list[Axis]:
    """Axes from the widest steps to the narrowest, neighbours that are one line merged."""
    axes = sorted(axes, key=lambda a: -sum(map(abs, a.strides)))
    made: list[Axis] = []
    for axis in axes:
        last = made[-1] if made else None
        if last and all(
            s == t * axis.size for s, t in zip(last.strides, axis.strides, strict=True)
        ):
            made[-1] = Axis(last.size * axis.size, axis.strides)
        else:
            made.append(axis)
    return made


def _lane(kept: list[Axis], folds: list[Axis], arrays: int) -> tuple[Axis, bool]:
    """The axis along which most arrays lie in a line, the longer one of equals."""

    def score(axis: Axis) -> int:
        lines = sum(2 * (abs(s) == 1) + (s == 0) for s in axis.strides)
        return lines * min(axis.size, REGISTER)

    best = max([*kept, *folds], key=score, default=None)
    if best is None:
        return Axis(1, (0,) * arrays), False
    return best, any(best is f for f in folds)


def _width(kernel: Kernel) -> int:
    """Lanes that fill a register with the widest of the kernel's numbers."""
    widest = max((_itemsize(d) for d in kernel.dtypes), default=4)
    return min(max(REGISTER // widest, 8), REGISTER)


def _itemsize(dtype: np.dtype) -> int:
    return 4 if dtype.itemsize == 2 and dtype.kind not in "iu" else dtype.itemsize


def _spread(kernel: Kernel) -> int:
    """Registers of one accumulator: several where little else is done."""
    steps = [s for s in kernel.steps if isinstance(s, Step)]
    light = len(steps) <= 8 and all(s.row in LIGHT for s in steps)
    folds = sum(isinstance(s, Fold) for s in kernel.steps)
    return ACCUMULATORS if light and folds <= 2 else 1


# Lines up to so many bytes are kept on the stack between sweeps.
LINE = 1 << 15


def reused(kernel: Kernel, nest: Nest) -> dict[int, int]:
    """The values that a later sweep reads again instead of computing them, and their first sweep.

    Those that take more than an instruction or two, and only where a fold is over one line.
    """
    if not nest.lane_folded or nest.folds or nest.lane.size * 8 > LINE:
        return {}
    seen: dict[int, int] = {}
    again: dict[int, int] = {}
    for k in range(kernel.sweeps):
        for i in sorted(_moving(kernel, k)):
            if i in seen and _is_heavy(kernel, i):
                again[i] = seen[i]
            seen.setdefault(i, k)
    return again


def _is_heavy(kernel: Kernel, i: int) -> bool:
    step = kernel.steps[i - len(kernel.operands)] if i >= len(kernel.operands) else None
    return isinstance(step, Step) and step.row not in LIGHT and step.dtype.kind != "b"


def _moving(kernel: Kernel, k: int) -> set[int]:
    """The values that sweep k computes for each element."""
    base, settled = len(kernel.operands), kernel.settled
    todo = [r.value for r in kernel.results if settled[r.value] == 2 * k]
    for i, step in enumerate(kernel.steps, base):
        if isinstance(step, Fold) and settled[i] == 2 * k + 1:
            todo.append(step.value)
    found: set[int] = set()
    while todo:
        i = todo.pop()
        if i in found or settled[i] % 2:
            continue
        found.add(i)
        step = kernel.steps[i - base] if i >= base else None
        if isinstance(step, Step):
            todo += [j for j in step.inputs if not isinstance(j, Literal)]
    return found
