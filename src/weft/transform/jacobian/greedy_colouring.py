"""Colours for the columns of a sparse matrix, by first fit in several orders.

Entries are of two kinds. An entry that is *read* is recovered from the sweep of its column's
colour, so no other seeded column with an entry in that row may have the colour. An entry that is
only *met* is recovered elsewhere, and constrains its column against the columns read in that row.
Without entries of the second kind this is the partial distance-2 colouring of the bipartite graph
(Gebremedhin, Manne, Pothen, SIAM Review 47, 2005).

A set of colours is a Python integer: joining two sets and finding the smallest missing colour
take one operation each, and a dense row costs n bits, where the column graph AᵀA would have n²
edges.
"""

from collections.abc import Callable
from functools import cached_property
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any

import numpy as np

from ...core.record import record

_LARGE = 2**19  # visits; a pass over as many entries takes about 50 ms
_ROUNDS = 256  # of peeling: a band gives up two columns a round
_PASSES = 3  # of recolouring; more did not help in experiments


@record
class SparseRows:
    """A structure, row by row: the columns of row i are `indices[indptr[i] : indptr[i + 1]]`."""

    indptr: np.ndarray
    indices: np.ndarray
    width: int

    @property
    def counts(self) -> np.ndarray[Any, Any]:
        return np.diff(self.indptr)

    @property
    def rows(self) -> np.ndarray[Any, Any]:
        return np.repeat(np.arange(self.indptr.size - 1), self.counts)

    def where(self, kept: np.ndarray) -> "SparseRows":
        """The entries where the mask `kept` is true."""
        before = np.concatenate([[0], np.cumsum(kept)])
        return SparseRows(before[self.indptr], self.indices[kept], self.width)

    def transpose(self) -> "SparseRows":
        columns = self.matrix.tocsc()
        return SparseRows(columns.indptr, columns.indices, self.indptr.size - 1)

    @cached_property
    def lists(self) -> list[list[int]]:
        flat = self.indices.tolist()
        return [flat[a:b] for a, b in pairwise(self.indptr.tolist())]

    @cached_property
    def matrix(self) -> Any:
        """The sparse matrix of ones: its product with weights sums them row by row."""
        from scipy.sparse import csr_array

        ones = np.ones(self.indices.size, np.intp)
        return csr_array((ones, self.indices, self.indptr), (self.indptr.size - 1, self.width))


@record
class Conflicts:
    """The entries that are read and those only met, by row and by column."""

    read: SparseRows
    met: SparseRows
    read_in: SparseRows
    met_in: SparseRows

    def degrees(self, alive: np.ndarray) -> np.ndarray[Any, Any]:
        """An upper bound on the number of columns that each conflicts with, counted row by row."""
        read, met = self.read.matrix @ alive, self.met.matrix @ alive
        return self.read_in.matrix @ (read + met - 1) + self.met_in.matrix @ read

    def visits(self) -> int:
        """The number of pairs of entries in one row that a colouring visits."""
        read, met = self.read.counts, self.met.counts
        return int(read @ (read + 2 * met))


def column_colours(read: SparseRows, met: SparseRows | None = None) -> np.ndarray[Any, Any]:
    """Colours 1, 2, … for the columns that are read, 0 for the others: the best of some orders."""
    bound = int(read.counts.max(initial=0))
    columns = np.flatnonzero(np.bincount(read.indices, minlength=read.width))
    if bound == columns.size:  # a full row
        colours = np.zeros(read.width, np.intp)
        colours[columns] = np.arange(1, bound + 1)
        return colours
    if met is None:
        met = read.where(np.zeros(read.indices.size, bool))
    conflicts = Conflicts(read, met, read.transpose(), met.transpose())
    best: np.ndarray | None = None
    for colours in _attempts(conflicts, columns):
        if best is None or colours.max() < best.max():
            best = colours
        if best.max() == bound:
            return best
    return _recolour(conflicts, columns, best, bound)  # type: ignore[arg-type]


def _attempts(conflicts: Conflicts, columns: np.ndarray):
    """Colourings in several orders, the quickest first."""
    alive = np.ones(conflicts.read.width, np.intp)
    degrees = conflicts.degrees(alive)
    largest_first = columns[np.argsort(-degrees[columns], kind="stable")]
    yield first_fit(conflicts, columns)
    yield first_fit(conflicts, largest_first)
    entries = conflicts.read.indices.size + conflicts.met.indices.size
    if entries <= _LARGE:
        yield first_fit(conflicts, smallest_last(conflicts.degrees, columns, alive.size))
    # Stencils are never too large for this: it finds the five colours of the 5-point grid,
    # where every fixed order gives seven.
    if conflicts.visits() <= max(_LARGE, 8 * entries):
        yield saturation(conflicts, largest_first)


def first_fit(conflicts: Conflicts, order: np.ndarray) -> np.ndarray[Any, Any]:
    """Each column in turn gets the smallest colour that no column in conflict with it has."""
    read_in, met_in = conflicts.read_in.lists, conflicts.met_in.lists
    height = conflicts.read.indptr.size - 1
    reading, meeting = [0] * height, [0] * height
    colours = [0] * len(read_in)
    for j in order.tolist():
        taken = 0
        for i in read_in[j]:
            taken |= reading[i] | meeting[i]
        for i in met_in[j]:
            taken |= reading[i]
        colour = ~taken & (taken + 1)
        colours[j] = colour.bit_length()
        for i in read_in[j]:
            reading[i] |= colour
        for i in met_in[j]:
            meeting[i] |= colour
    return np.array(colours, np.intp)


def smallest_last(
    degrees_among: Callable[..., Any], columns: np.ndarray, width: int
) -> np.ndarray[Any, Any]:
    """The reverse of the peeling order: each round removes the columns of the smallest degree.

    degrees_among  (mask) -> the degrees of all columns in the subgraph of those in the mask
    """
    alive = np.zeros(width, np.intp)
    alive[columns] = 1
    peeled, level = [columns[:0]], 0
    while columns.size:
        degrees = degrees_among(alive)[columns]
        level = max(level, degrees.min())
        now = degrees <= level
        if len(peeled) > _ROUNDS:
            columns, now = columns[np.argsort(degrees, kind="stable")], np.ones(now.size, bool)
        peeled.append(columns[now])
        alive[columns[now]] = 0
        columns = columns[~now]
    return np.concatenate(peeled)[::-1]


def saturation(conflicts: Conflicts, order: np.ndarray) -> np.ndarray[Any, Any]:
    """First fit where the column with the most colours forbidden comes next (Brélaz, DSATUR).

    Columns with as many forbidden colours are taken in the order given.
    """
    near = _neighbours(conflicts)
    width = conflicts.read.width
    column, rank = order.tolist(), np.zeros(width, np.intp)
    rank[order] = np.arange(order.size)
    rank = rank.tolist()
    taken, colours = [0] * width, [0] * width
    heap = list(range(order.size))
    while heap:
        j = column[heappop(heap) % width]
        if colours[j]:
            continue
        colour = ~taken[j] & (taken[j] + 1)
        colours[j] = colour.bit_length()
        for row in near(j):
            for k in row:
                if not taken[k] & colour:
                    taken[k] |= colour
                    if not colours[k]:
                        heappush(heap, rank[k] - taken[k].bit_count() * width)
    return np.array(colours, np.intp)


def _neighbours(conflicts: Conflicts):
    """A function of a column: the columns in conflict with it, row by row."""
    read, met = conflicts.read.lists, conflicts.met.lists
    read_in, met_in = conflicts.read_in.lists, conflicts.met_in.lists
    both = [a + b if b else a for a, b in zip(read, met, strict=True)]

    def near(j: int) -> list[list[int]]:
        return [both[i] for i in read_in[j]] + [read[i] for i in met_in[j]]

    return near


def _recolour(conflicts: Conflicts, columns, colours: np.ndarray, bound: int) -> np.ndarray:
    """First fit again, whole colours at a time, the smallest first: never more colours.

    Culberson, Iterated greedy graph coloring and the difficulty landscape, 1992.
    """
    if conflicts.read.indices.size + conflicts.met.indices.size > _LARGE:
        return colours
    for _ in range(_PASSES):
        if colours.max() == bound:
            break
        sizes = np.bincount(colours)
        mine = colours[columns]
        colours = first_fit(conflicts, columns[np.lexsort((mine, sizes[mine]))])
    return colours
