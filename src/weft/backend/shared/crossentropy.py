"""Cross-entropy a chunk of lines at a time, in the operations that all backends share."""

from collections.abc import Callable
from math import prod
from types import ModuleType

import numpy as np

from ...core import dtypes
from ...core.aval import broadcast
from ...core.backends import PYTHON_SCALARS
from . import threads
from .types import Raw, Shape

# Logits of a chunk: their copy should stay in the cache.
CHUNK = {"numpy": 1 << 16, "torch": 1 << 19, "cuda": 1 << 25}


def _shape_of(x: Raw) -> tuple[int, ...]:
    return () if type(x) in PYTHON_SCALARS else tuple(x.shape)


class LogitLines:
    """The logits as lines, cut into chunks that are copied in the accumulator's dtype."""

    xp: ModuleType
    n: int
    own: np.dtype
    wide: np.dtype
    device: str
    lead: Shape
    count: int
    x: Raw

    def __init__(self, xp: ModuleType, x: Raw, *lines: Raw):
        self.xp, self.n = xp, x.shape[-1]
        self.own, self.device = xp.dtype_of(x), xp.device_of(x)
        self.wide = dtypes.accumulator(self.own)
        self.lead = broadcast("cross_entropy", x.shape[:-1], *map(_shape_of, lines))
        self.count = prod(self.lead)
        self.x = self.table(x)

    def table(self, x: Raw) -> Raw:
        """(…, classes) as (lines, classes)."""
        if tuple(x.shape[:-1]) != self.lead:
            x = self.xp.broadcast_to(x, (*self.lead, x.shape[-1]))
        return x.reshape((self.count, x.shape[-1]))

    def line(self, x: Raw) -> Raw:
        """A number for each line."""
        if type(x) in PYTHON_SCALARS:
            return x
        if tuple(x.shape) != self.lead:
            x = self.xp.broadcast_to(x, self.lead)
        return x.reshape((self.count,))

    def wide_line(self, x: Raw) -> Raw:
        return x if type(x) in PYTHON_SCALARS else self.widen(self.line(x))

    def widen(self, x: Raw) -> Raw:
        return x if self.xp.dtype_of(x) == self.wide else self.xp.cast(x, self.wide)

    def each(self, do: Callable[[slice], None], passes: int) -> None:
        """Run every chunk; with NumPy, by the thread pool."""
        if self.xp.name == "numpy":
            threads.share(self.chunks(), lambda: do, self.count * self.n * passes * threads.PASS)
        else:
            for chunk in self.chunks():
                do(chunk)

    def chunks(self) -> list[slice]:
        """The lines of each chunk."""
        kind = "cuda" if self.device.startswith("cuda") else self.xp.name
        step = max(1, CHUNK[kind] // self.n)
        return [slice(k, min(k + step, self.count)) for k in range(0, self.count, step)]

    def shift(self, rows: slice, by: Raw) -> Raw:
        """A copy of a chunk of logits, less a number for each line."""
        return self.widen(self.x[rows]) - by[rows, None]

    def empty(self) -> Raw:
        return self.xp.empty((self.count,), self.wide, self.device)

    def reshape(self, x: Raw, *last: int, dtype: np.dtype | None = None) -> Raw:
        x, dtype = x.reshape((*self.lead, *last)), self.own if dtype is None else dtype
        return x if self.xp.dtype_of(x) == dtype else self.xp.cast(x, dtype)


def cross_entropy(
    xp: ModuleType, x: Raw, classes: Raw, smoothing: float, dtype: np.dtype
) -> tuple[Raw, Raw, Raw]:
    """lse - (1 - s)·x[class] - s·mean(x) for each line, lse and its rest."""
    it = LogitLines(xp, x, classes)
    classes = xp.checked_classes(it.line(classes), it.n)
    loss, lse, rest = it.empty(), it.empty(), it.empty()

    def do(rows: slice) -> None:
        part = it.widen(it.x[rows])
        top, log = xp.log_denominators(part)
        chosen = (xp.pick_classes(part, classes[rows]) - top) * (1 - smoothing)
        if smoothing:
            chosen += xp.sum(part - top[:, None], (1,), False) * (smoothing / it.n)
        loss[rows] = log - chosen
        lse[rows], rest[rows] = _round_with_rest(top, log)

    it.each(do, 4)
    return it.reshape(loss), it.reshape(lse, dtype=dtype), it.reshape(rest, dtype=dtype)


def _round_with_rest(top: Raw, log: Raw) -> tuple[Raw, Raw]:
    """top + log rounded, and the rounding error."""
    lse = top + log
    return lse, log - (lse - top)


def _shares(it: LogitLines, rows: slice, lse: Raw, rest: Raw, weight: Raw) -> Raw:
    """weight·softmax of a chunk, exact zeros where the weight is zero."""
    part = it.shift(rows, lse)
    it.xp.exp_into(part)
    part *= (weight[rows] * it.xp.exp(-rest[rows]))[:, None]
    it.xp.clear_lines(part, weight[rows] == 0)
    return part


def cross_entropy_gradient(
    xp: ModuleType, g: Raw, h: Raw, lse: Raw, rest: Raw, x: Raw, classes: Raw, smoothing: float
) -> Raw:
    """(g + h)·softmax(x) - g·((1 - s)·one_hot(class) + s/n)."""
    it = LogitLines(xp, x, g, h, lse, rest, classes)
    classes = xp.checked_classes(it.line(classes), it.n)
    g, h, lse, rest = map(it.wide_line, (g, h, lse, rest))
    weight = g + h
    out = xp.empty((it.count, it.n), it.own, it.device)

    def do(rows: slice) -> None:
        part = _shares(it, rows, lse, rest, weight)
        if smoothing:
            part -= g[rows, None] * (smoothing / it.n)
        xp.add_picked(part, classes[rows], g[rows] * (smoothing - 1))
        out[rows] = part

    it.each(do, 5)
    return it.reshape(out, it.n)


def soft_cross_entropy(xp: ModuleType, x: Raw, q: Raw, dtype: np.dtype) -> tuple[Raw, Raw, Raw]:
    """Σ q·(lse - x) for each line, lse and its rest; terms with q = 0 add exactly 0."""
    it = LogitLines(xp, x, q[..., 0])
    q = it.table(q)
    loss, lse, rest = it.empty(), it.empty(), it.empty()

    def do(rows: slice) -> None:
        top, log = xp.log_denominators(it.widen(it.x[rows]))
        lse[rows], rest[rows] = _round_with_rest(top, log)
        part, weights = it.shift(rows, lse), it.widen(q[rows])
        part -= rest[rows, None]
        part *= weights
        loss[rows] = -xp.sum(xp.zero_where_zero(part, weights), (1,), False)

    it.each(do, 8)
    return it.reshape(loss), it.reshape(lse, dtype=dtype), it.reshape(rest, dtype=dtype)


def soft_cross_entropy_gradient(
    xp: ModuleType, g: Raw, h: Raw, lse: Raw, rest: Raw, x: Raw, q: Raw
) -> Raw:
    """(g·Σq + h)·softmax(x) - g·q."""
    it = LogitLines(xp, x, q[..., 0], g, h, lse, rest)
    q = it.table(q)
    g, h, lse, rest = map(it.wide_line, (g, h, lse, rest))
    weight = g * xp.sum(it.widen(q), (1,), False) + h
    out = xp.empty((it.count, it.n), it.own, it.device)

    def do(rows: slice) -> None:
        part = _shares(it, rows, lse, rest, weight)
        part -= g[rows, None] * it.widen(q[rows])
        out[rows] = part

    it.each(do, 6)
    return it.reshape(out, it.n)
