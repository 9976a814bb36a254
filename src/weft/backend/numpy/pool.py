"""NumPy kernels of the pooling rows: one tap of many windows at a time, in blocks for the cache.

Arrays are (..., *size), results (..., *counts). Taps are numbered in the order of memory.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ..shared import threads
from ..shared.window_sizes import first_taps, size_of, tap_dtype
from .types import Array, Padding, Sizes
from .windows import BLOCK_BYTES, Planes, WindowLayout, cells, cut, lay_runs, plan_of, wide


def _lines(x: Array, axes: int) -> np.ndarray:
    """(..., *size) as (lines, 1, *size)."""
    k = x.ndim - axes
    return x.reshape(prod(x.shape[:k]), 1, *x.shape[k:])


def _lead(x: Array, axes: int) -> tuple[int, ...]:
    if x.ndim < axes:
        raise ValueError("too few axes")  # the row's shape rule says so
    return x.shape[: x.ndim - axes]


def _share(
    plan: WindowLayout,
    lines: int,
    dtype: np.dtype,
    fill: float,
    do: Callable[[Planes, int, int], None],
) -> None:
    """Call do(sheets, first, last) for blocks of lines whose planes and runs fit the cache."""
    # Each tap is compared, chosen and written: some four passes.
    operations = 4 * threads.PASS * lines * plan.run * len(plan.taps)
    fit = BLOCK_BYTES // (dtype.itemsize * (len(plan.phases) * plan.area + 3 * plan.run))
    each = max(1, min(fit, -(-lines // threads.parts(operations))))

    def worker():
        sheets = Planes(plan, min(each, lines), 1, dtype, fill)
        return lambda block: do(sheets, *block)

    threads.share(cut(lines, each), worker, operations)


def max_pool(
    x: Array, kernel: Sizes, stride: Sizes, padding: Padding, dilation: Sizes
) -> tuple[Array, Array]:
    if x.dtype.kind == "c":
        raise TypeError("complex numbers have no order")  # the row's shape rule says so
    lead = _lead(x, len(kernel))
    plan = plan_of(x.shape[len(lead) :], kernel, stride, padding, dilation)
    values = np.empty((*lead, *plan.counts), x.dtype)
    numbers = np.empty(values.shape, tap_dtype(kernel))
    x, into, places = (_lines(a, len(kernel)) for a in (x, values, numbers))
    padded = any([a > 0 for a, _ in padding])
    first = first_taps(plan.counts, kernel, stride, padding, dilation) if padded else None

    def pool(sheets, i, j):
        sheets.lay(x[i:j])
        best, taps = _largest(sheets, j - i, numbers.dtype)
        if np.isnan(best.max()):
            taps = _last_nan(sheets, best, taps)
        into[i:j], places[i:j] = cells(best, plan), cells(taps, plan)
        if first is not None and np.fmin.reduce(best, axis=None) == -np.inf:
            np.copyto(places[i:j], first, where=into[i:j] == -np.inf)

    _share(plan, len(x), wide(x.dtype), -np.inf, pool)
    return values, numbers


def _largest(sheets: Planes, n: int, number: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """The largest elements and, of the taps that have them, the first ones: (n, 1, run)."""
    seen = sheets.taps(n)
    best = np.maximum(seen[0], seen[min(1, len(seen) - 1)])
    larger = np.greater(best, seen[0])
    taps = larger.astype(number)
    term = np.empty_like(taps)
    for k in range(2, len(seen)):
        np.greater(seen[k], best, out=larger)
        np.maximum(seen[k], best, out=best)
        # k grows: the largest number is that of the last tap that exceeded all before it.
        np.multiply(larger.view(np.uint8), number.type(k), out=term)
        np.maximum(taps, term, out=taps)
    return best, taps


def _last_nan(sheets: Planes, best: Array, taps: Array) -> np.ndarray:
    """The taps, replaced by that of the last NaN in windows that contain one."""
    for k, seen in enumerate(sheets.taps(len(best))):
        np.copyto(taps, taps.dtype.type(k), where=np.isnan(seen))
    return taps


def pool_pick(
    x: Array, taps: Array, kernel: Sizes, stride: Sizes, padding: Padding, dilation: Sizes
) -> Array:
    lead = _lead(x, len(kernel))
    plan = plan_of(x.shape[len(lead) :], kernel, stride, padding, dilation)
    if taps.shape != (*lead, *plan.counts):
        raise ValueError("taps do not fit")  # the row's shape rule says how
    values = np.empty(taps.shape, x.dtype)
    x, taps, into = (_lines(a, len(kernel)) for a in (x, taps, values))

    def pick(sheets, i, j):
        sheets.lay(x[i:j])
        for k, seen in enumerate(sheets.taps(j - i)):
            np.copyto(into[i:j], cells(seen, plan), where=taps[i:j] == k)

    _share(plan, len(x), x.dtype, 0, pick)
    return values


def pool_put(
    y: Array, taps: Array, kernel: Sizes, stride: Sizes, padding: Padding, dilation: Sizes
) -> Array:
    lead = _lead(y, len(kernel))
    size = size_of(y.shape[len(lead) :], kernel, stride, padding, dilation)
    plan = plan_of(size, kernel, stride, padding, dilation)
    if taps.shape != y.shape:
        raise ValueError("taps do not fit")  # the row's shape rule says how
    out = (np.empty if plan.complete else np.zeros)((*lead, *size), y.dtype)
    y, taps, into = (_lines(a, len(kernel)) for a in (y, taps, out))
    dtype = wide(y.dtype)

    def put(sheets, i, j):
        _route(sheets, lay_runs(y[i:j], dtype, plan), lay_runs(taps[i:j], taps.dtype, plan))
        sheets.collect(into[i:j])

    _share(plan, len(y), dtype, 0, put)
    return out


def _route(sheets: Planes, runs: Array, taps: Array) -> None:
    """Add each window's number at its tap."""
    plan = sheets.plan
    apart = plan.plane == plan.counts  # windows do not overlap
    if not apart:
        sheets.memory.fill(0)
    chosen, term = np.empty(runs.shape, bool), np.empty_like(runs)
    for k, place in enumerate(sheets.taps(len(runs))):
        np.equal(taps, taps.dtype.type(k), out=chosen)
        if apart:
            _mask(runs, chosen, place)
        else:
            _mask(runs, chosen, term)
            place += term


_BITS: dict[int, np.dtype[Any]] = {4: np.dtype(np.int32), 8: np.dtype(np.int64)}


def _mask(x: Array, mask: Array, out: Array) -> None:
    """x where the mask is true, else zero, whatever x is: bit by bit, twice as fast as `where`."""
    if x.dtype.kind != "f":
        np.copyto(out, np.where(mask, x, x.dtype.type(0)))
        return
    bits = np.negative(mask.view(np.int8), dtype=_BITS[x.itemsize])
    np.bitwise_and(x.view(bits.dtype), bits, out=out.view(bits.dtype))


def sum_pool(x: Array, kernel: Sizes, stride: Sizes, padding: Padding) -> Array:
    lead, ones = _lead(x, len(kernel)), (1,) * len(kernel)
    plan = plan_of(x.shape[len(lead) :], kernel, stride, padding, ones)
    out = np.empty((*lead, *plan.counts), x.dtype)
    x, into = _lines(x, len(kernel)), _lines(out, len(kernel))

    def pool(sheets, i, j):
        sheets.lay(x[i:j])
        first, *others = sheets.taps(j - i)
        total = first.copy()
        for seen in others:
            total += seen
        into[i:j] = cells(total, plan)

    _share(plan, len(x), wide(x.dtype), 0, pool)
    return out


def spread_pool(y: Array, kernel: Sizes, stride: Sizes, padding: Padding) -> Array:
    lead, ones = _lead(y, len(kernel)), (1,) * len(kernel)
    size = size_of(y.shape[len(lead) :], kernel, stride, padding, ones)
    plan = plan_of(size, kernel, stride, padding, ones)
    out = (np.empty if plan.complete else np.zeros)((*lead, *size), y.dtype)
    y, into = _lines(y, len(kernel)), _lines(out, len(kernel))
    dtype = wide(y.dtype)

    def spread(sheets, i, j):
        runs = lay_runs(y[i:j], dtype, plan)
        sheets.memory.fill(0)
        for place in sheets.taps(j - i):
            place += runs
        sheets.collect(into[i:j])

    _share(plan, len(y), dtype, 0, spread)
    return out
