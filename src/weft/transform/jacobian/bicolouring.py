"""Compressing a sparse Jacobian with dense rows among sparse ones into sweeps of both modes.

Every entry is given to a forward sweep, which reads it with its column, or to a reverse sweep,
which reads it with its row. A dense row read by itself no longer keeps the columns apart
(Coleman, Verma, The efficient computation of sparse Jacobian matrices using automatic
differentiation, SIAM J. Sci. Comput. 19, 1998). Such colours are a star bicolouring: on every path
of two rows and two columns there are three, or a vertex without one.
"""

import numpy as np

from .colouring import Colouring, Csr, column_colouring, row_colouring, structure
from .greedy_colouring import SparseRows, column_colours
from .readers import choose_readers, find_unmixed


def bicolouring(pattern: Csr) -> Colouring:
    """Groups of columns and groups of rows that together hold every entry unmixed.

    pattern  a scipy.sparse CSR array or matrix; its stored entries count, whatever their value

    The result is a colouring of columns alone, or of rows alone, where that takes no more sweeps.

    >>> import numpy as np, scipy.sparse as sp
    >>> arrow = np.eye(6)
    >>> arrow[0], arrow[:, 0] = 2.0, 3.0
    >>> J = sp.csr_array(arrow)
    >>> colouring = bicolouring(J)
    >>> colouring.forward, colouring.reverse
    (2, 1)
    >>> columns, rows = colouring.column_seeds() @ J.T, colouring.row_seeds() @ J
    >>> bool((colouring.recover(columns, rows) == J.data).all())
    True
    """
    lines = structure("bicolouring", pattern)
    best = min(column_colouring(pattern), row_colouring(pattern), key=_count)
    lengths = [count[count > 0] for count in (lines.counts, np.bincount(lines.indices))]
    enough = min(length.max(initial=0) for length in lengths)
    if min(length.min(initial=enough) for length in lengths) == enough:  # a full block, for one
        return best
    for first in (0, 1):
        forward = _divide_entries(lines, first, enough)
        if forward is not None:
            best = min(best, _colour(pattern.shape, lines, forward), key=_count)
    return best


def _count(colouring: Colouring) -> int:
    return colouring.count


def _colour(shape: tuple[int, int], lines: SparseRows, forward: np.ndarray) -> Colouring:
    """The colouring for a given division of the entries between the modes."""
    rows, columns = lines.rows, lines.indices
    by_column = np.argsort(columns, kind="stable")
    of_columns = _colours(lines, columns, forward)
    of_rows = _colours(lines.transpose(), rows[by_column], ~forward[by_column])
    count = int(of_columns.max(initial=0))
    of_rows = np.where(of_rows > 0, of_rows + count, 0)  # the colours of both sides in one list
    one = np.where(find_unmixed(rows, of_columns[columns]), of_columns[columns], 0)
    other = np.where(find_unmixed(columns, of_rows[rows]), of_rows[rows], 0)
    renamed, first = choose_readers(one, other, max(count, int(of_rows.max(initial=0))))
    count = int(renamed[: count + 1].max())
    of_columns, of_rows = renamed[of_columns], np.maximum(renamed[of_rows] - count, 0)
    at_row = (of_columns[columns] - 1) * shape[0] + rows
    at_column = count * shape[0] + (of_rows[rows] - 1) * shape[1] + columns
    gather = np.where(first, at_row, at_column)
    return Colouring("bicolouring", shape, of_columns, of_rows, gather)


def _colours(lines: SparseRows, columns: np.ndarray, read: np.ndarray) -> np.ndarray:
    """Colours for the columns of the entries that are read."""
    seeded = np.zeros(lines.width, bool)
    seeded[columns[read]] = True
    return column_colours(lines.where(read), lines.where(~read & seeded[columns]))


def _divide_entries(lines: SparseRows, first: int, enough: int) -> np.ndarray | None:
    """Which entries forward sweeps read; None if that takes `enough` sweeps or more.

    Rows with at most a entries left, and columns with at most b, are peeled off. The entries left
    in a peeled row are read with their columns, those in a peeled column with their rows: a + b
    sweeps or more, where one side alone takes as many as the longest row or column has entries. If
    nothing can be peeled, the limit that needs the smaller increase is raised; `first` is the side
    (0: rows) that wins a tie.
    """
    height = lines.indptr.size - 1
    across = SparseRows(lines.indptr, lines.indices + height, height + lines.width)
    neighbours = across.lists + lines.transpose().lists
    left = [len(near) for near in neighbours]
    gone = [0] * len(left)
    standing = [range(height), range(height, len(left))]
    limits = [0, 0]
    clock = 0
    while any(standing := [[v for v in side if not gone[v]] for side in standing]):
        lowest = [min((left[v] for v in side), default=len(left)) for side in standing]
        side = min((first, 1 - first), key=lambda s: lowest[s] - limits[s])
        limits[side] = max(limits[side], lowest[side])
        if sum(limits) >= enough:
            return None
        ready = [v for v in standing[side] if left[v] <= limits[side]]
        clock = _peel(ready, neighbours, left, gone, limits, clock, height)
    when = np.array(gone)
    return when[lines.rows] < when[height:][lines.indices]


def _peel(ready, neighbours, left, gone, limits, clock: int, height: int) -> int:
    """Peel the vertices in `ready`, and those that become ready; records the time of each."""
    for v in ready:  # it grows; in order of arrival, or a dense row would go with its last two
        if gone[v]:
            continue
        clock += 1
        gone[v] = clock
        limit = limits[v < height]  # of the other side
        for w in neighbours[v]:
            left[w] -= 1
            if left[w] == limit and not gone[w]:
                ready.append(w)
    return clock
