"""NumPy kernels of the convolution rows: a product of matrices for each tile that fits the cache.

Arrays are x (n, c, *size), weights w (o, c / groups, *kernel) and results y (n, o, *counts). The
three rows are the partial derivatives of one form, Σ y · convolution(x, w), by y, x and w.
"""

from math import prod

import numpy as np

from .numpy_windows import TILE_BYTES, Plan, Sheets, cells, cut, laid, parts_of, plan_of, wide
from .threads import PASS, share
from .window_sizes import kernel_of, size_of

# With fewer positions in an image, products of matrices are worth joining over images.
_FEW = 64
# Weights are summed up in so many parts, whoever computes them, so that results repeat.
_CHUNKS = 8
# Up to here so many channels per group are multiplied tap by tap: BLAS has nothing to gain.
_THIN = 8


class _Tiles:
    """How the work is cut up: some images at a time, or some rows of windows of one image."""

    def __init__(self, plan: Plan, images: int, lines: int, itemsize: int):
        budget = max(1, TILE_BYTES // (itemsize * max(lines, 1)))
        at_once = max(1, budget // plan.run)
        rows = plan.counts[0] if plan.run <= budget else max(1, budget // plan.row)
        self.images, self.most = cut(images, at_once), min(at_once, images)
        self.rows = cut(plan.counts[0], rows)
        self.length = min(rows, plan.counts[0]) * plan.row


def _checked(x, w_channels: int, o: int, groups: int) -> None:
    if x.shape[1] != w_channels * groups or o % groups:
        raise ValueError("channels and groups do not fit")  # the row's shape rule says how


def convolution(x, w, stride, padding, dilation, groups):
    return convolution_biased(x, w, None, stride, padding, dilation, groups)


def convolution_biased(x, w, b, stride, padding, dilation, groups):
    _checked(x, w.shape[1], w.shape[0], groups)
    plan = plan_of(x.shape[2:], w.shape[2:], stride, padding, dilation)
    out = np.empty((x.shape[0], w.shape[0], *plan.counts), np.result_type(x, w))
    b = None if b is None else b.astype(wide(b.dtype), copy=False).reshape(w.shape[0], 1)
    _convolve(x, w, b, out, plan, stride, padding, groups)
    return out


def _convolve(x, w, b, out, plan: Plan, stride, padding, groups: int) -> None:
    """Write a convolution into `out`; b is None, or a column to be added."""
    if _is_thin(w, groups):
        _convolve_thin(x, w, b, out, plan, groups)
    elif _is_product(x, plan, padding):
        _multiply(_strided(x, plan, stride), w, b, out, groups)
    else:
        _convolve_tiles(x, w, b, out, plan, groups)


def _is_thin(w, groups: int) -> bool:
    """Whether groups have one channel on one side and few on the other: depthwise."""
    rows, columns = w.shape[0] // groups, w.shape[1]
    return groups > 1 and min(rows, columns) == 1 and max(rows, columns) <= _THIN


def _is_product(x, plan: Plan, padding) -> bool:
    """Whether windows are single elements, all of them inside, and enough for a product."""
    single = prod(plan.kernel) == 1 and not any([a or b > 0 for a, b in padding])
    return single and prod(plan.counts) >= _FEW and wide(x.dtype) == x.dtype


def _strided(x, plan: Plan, stride) -> np.ndarray:
    """The elements that windows of one element see."""
    ends = zip(plan.counts, stride, strict=True)
    return x[:, :, *[slice(0, (p - 1) * s + 1, s) for p, s in ends]]


def _matrices(w, groups: int, dtype) -> np.ndarray:
    """The weights as a matrix for each group."""
    return np.ascontiguousarray(w.reshape(groups, w.shape[0] // groups, prod(w.shape[1:])), dtype)


def _multiply(x, w, b, out, groups: int) -> None:
    """Windows of one element: a product of matrices for each image."""
    w2 = _matrices(w, groups, out.dtype)
    c, o = x.shape[1], w.shape[0]
    y = np.empty((groups, o // groups, prod(x.shape[2:])), out.dtype)
    whole = y.reshape(o, -1)
    for image, result in zip(x, out, strict=True):
        np.matmul(w2, image.reshape(groups, c // groups, -1), out=y)
        if b is not None:
            whole += b
        result[...] = whole.reshape(result.shape)


def _convolve_tiles(x, w, b, out, plan: Plan, groups: int) -> None:
    (n, c), o, dtype = x.shape[:2], w.shape[0], wide(out.dtype)
    lines = c * len(plan.offsets)
    tiles = _Tiles(plan, n, lines, dtype.itemsize)
    w2 = _matrices(w, groups, dtype)

    def worker():
        sheets = Sheets(plan, tiles.most, c, dtype)
        columns = np.empty(lines * tiles.most * tiles.length, dtype)
        results = np.empty(o * tiles.most * tiles.length, dtype)

        def convolve(images):
            i, j = images
            sheets.lay(x[i:j])
            for r, s in tiles.rows:
                start, length = r * plan.row, (s - r) * plan.row
                packed = sheets.packed(columns, j - i, start, length)
                y = results[: o * (j - i) * length].reshape(groups, o // groups, (j - i) * length)
                np.matmul(w2, packed.reshape(groups, lines // groups, (j - i) * length), out=y)
                y = y.reshape(o, (j - i) * length)
                if b is not None:
                    y += b
                out[i:j, :, r:s] = cells(y.reshape(o, j - i, length), plan).swapaxes(0, 1)

        return convolve

    share(tiles.images, worker, n * lines * o // groups * plan.run)


def _blocks(plan: Plan, images: int, groups: int, lines: int, itemsize: int) -> list:
    """How tap by tap work is cut up: some images at a time, or some groups of one image."""
    planes = max(1, TILE_BYTES // (itemsize * lines * plan.run))
    some = cut(images, max(1, planes // groups))
    return [(i, g) for g in cut(groups, min(planes, groups)) for i in some]


def _convolve_thin(x, w, b, out, plan: Plan, groups: int) -> None:
    """Groups of few channels: taps are multiplied and added for many groups at once."""
    n, dtype = x.shape[0], wide(out.dtype)
    columns, rows = w.shape[1], w.shape[0] // groups
    taps = w.reshape(groups, rows, columns, -1, 1).astype(dtype, copy=False)

    def convolve(block):
        (i, j), (first, last) = block
        made = slice(first * rows, last * rows)
        sheets = Sheets(plan, j - i, (last - first) * columns, dtype)
        sheets.lay(x[i:j, first * columns : last * columns])
        total = _tap_sums(sheets, taps[first:last], j - i).reshape(j - i, -1, plan.run)
        if b is not None:
            total += b[made]
        out[i:j, made] = cells(total, plan)

    blocks = _blocks(plan, n, groups, columns + 2 * rows, dtype.itemsize)
    share(blocks, lambda: convolve, PASS * n * plan.run * taps.size)


def _tap_sums(sheets: Sheets, taps, n: int) -> np.ndarray:
    """Σ taps · windows, (n, groups, rows, run), for taps (groups, rows, columns, kernel, 1)."""
    groups, rows, columns = taps.shape[:3]
    run = sheets.plan.run
    total = np.empty((n, groups, rows, run), taps.dtype)
    term = np.empty_like(total)
    first = True
    for k, offset in enumerate(sheets.plan.offsets):
        seen = sheets.tap(offset, n, 0, run)
        for c in range(columns):
            factors = seen[:, c::columns, None], taps[:, :, c, k]
            if first:
                np.multiply(*factors, out=total)
                first = False
            else:
                np.multiply(*factors, out=term)
                total += term
    return total


def convolution_transposed(y, w, stride, padding, dilation, groups):
    """Σ over windows of their result times the weights, where their elements are.

    The elements of one phase see the taps of that phase only: to them it is a convolution by
    steps of one, with these taps in the opposite order.
    """
    _checked(y, w.shape[0] // groups, w.shape[0], groups)
    geometry = tuple(y.shape[2:]), tuple(w.shape[2:]), stride, padding, dilation
    parts, complete = parts_of(*geometry)
    turned = _turned(w, groups)
    shape = y.shape[0], turned.shape[0], *size_of(*geometry)
    out = (np.empty if complete else np.zeros)(shape, np.result_type(y, w))
    ones = (1,) * len(stride)
    for part in parts:
        taps, place = turned[:, :, *part.taps], out[:, :, *part.source]
        plan = plan_of(geometry[0], taps.shape[2:], ones, part.padding, part.dilation)
        _convolve(y, taps, None, place, plan, ones, part.padding, groups)
    return out


def _turned(w, groups: int) -> np.ndarray:
    """The weights with their two kinds of channels exchanged in each group."""
    (o, c), kernel = w.shape[:2], w.shape[2:]
    apart = w.reshape(groups, o // groups, c, *kernel)
    return apart.swapaxes(1, 2).reshape(groups * c, o // groups, *kernel)


def convolution_weight(x, y, stride, padding, dilation, groups):
    _checked(x, x.shape[1] // groups, y.shape[1], groups)
    kernel = kernel_of(x.shape[2:], y.shape[2:], stride, padding, dilation)
    plan = plan_of(x.shape[2:], kernel, stride, padding, dilation)
    shape = y.shape[1], x.shape[1] // groups, *kernel
    if x.shape[0] != y.shape[0]:
        raise ValueError("images do not fit")  # the row's shape rule says how
    dtype = np.result_type(x, y)
    w = np.zeros(shape, wide(dtype))
    if _is_thin(w, groups):
        _weigh_thin(x, y, w, plan, groups)
    elif _is_product(x, plan, padding):
        _weigh_product(_strided(x, plan, stride), y, w, groups)
    else:
        _weigh_tiles(x, y, w, plan, groups)
    return w.astype(dtype, copy=False)


def _weigh_product(x, y, w, groups: int) -> None:
    (o, c), total = w.shape[:2], w.reshape(groups, -1, w.shape[1])
    for image, result in zip(x, y, strict=True):
        rows = result.reshape(groups, o // groups, -1)
        total += np.matmul(rows, image.reshape(groups, c, -1).swapaxes(1, 2))


def _weigh_tiles(x, y, w, plan: Plan, groups: int) -> None:
    (n, c), o, dtype = x.shape[:2], w.shape[0], w.dtype
    lines = c * len(plan.offsets)
    tiles = _Tiles(plan, n, lines, dtype.itemsize)
    chunks = [tiles.images[k::_CHUNKS] for k in range(min(_CHUNKS, len(tiles.images)))]
    totals = np.zeros((len(chunks), groups, lines // groups, o // groups), dtype)

    def worker():
        sheets = Sheets(plan, tiles.most, c, dtype)
        columns = np.empty(lines * tiles.most * tiles.length, dtype)
        results = np.zeros(o * tiles.most * tiles.length, dtype)
        term = np.empty(totals.shape[1:], dtype)

        def weigh(chunk):
            for i, j in chunks[chunk]:
                sheets.lay(x[i:j])
                for r, s in tiles.rows:
                    start, length = r * plan.row, (s - r) * plan.row
                    packed = sheets.packed(columns, j - i, start, length)
                    rows = results[: o * (j - i) * length].reshape(o, j - i, length)
                    cells(rows, plan)[...] = y[i:j, :, r:s].swapaxes(0, 1)
                    packed = packed.reshape(groups, lines // groups, (j - i) * length)
                    rows = rows.reshape(groups, o // groups, (j - i) * length)
                    np.matmul(packed, rows.swapaxes(1, 2), out=term)
                    np.add(totals[chunk], term, out=totals[chunk])

        return weigh

    share(range(len(chunks)), worker, n * lines * o // groups * plan.run)
    w[...] = totals.sum(0).swapaxes(1, 2).reshape(w.shape)


def _weigh_thin(x, y, w, plan: Plan, groups: int) -> None:
    """Groups of few channels: one scalar product of lines for each tap."""
    n, dtype = x.shape[0], w.dtype
    columns, rows = w.shape[1], w.shape[0] // groups
    blocks = _blocks(plan, n, groups, columns + 2 * rows, dtype.itemsize)
    parts = [None] * len(blocks)

    def weigh(k):
        (i, j), (first, last) = blocks[k]
        sheets = Sheets(plan, j - i, (last - first) * columns, dtype)
        sheets.lay(x[i:j, first * columns : last * columns])
        memory = np.zeros((j - i, (last - first) * rows, plan.run), dtype)
        runs = laid(y[i:j, first * rows : last * rows], memory, plan)
        parts[k] = _tap_products(sheets, runs.reshape(j - i, last - first, rows, plan.run), columns)

    share(range(len(blocks)), lambda: weigh, PASS * n * plan.run * w.size)
    total = w.reshape(groups, rows, columns, len(plan.offsets))
    for (_, (first, last)), part in zip(blocks, parts, strict=True):
        total[first:last] += part


def _tap_products(sheets: Sheets, runs, columns: int) -> np.ndarray:
    """Σ windows · runs, (groups, rows, columns, kernel), for runs (n, groups, rows, run)."""
    n, groups, rows, run = runs.shape
    total = np.empty((groups, rows, columns, len(sheets.plan.offsets)), runs.dtype)
    for k, offset in enumerate(sheets.plan.offsets):
        seen = sheets.tap(offset, n, 0, run)
        for c in range(columns):
            line = seen[:, c::columns, None]
            line = line.conj() if line.dtype.kind == "c" else line
            total[:, :, c, k] = np.vecdot(line, runs).sum(0)
    return total
