"""Compressing a sparse Hessian into a few Hessian-vector products.

A star colouring gives neighbours different colours, and every path on four vertices at least
three: the vertices of any two colours induce stars. An entry (i, j) is then the only one of its
colour in row i, at colour(j), or in row j, at colour(i) (Coleman, Moré, 1984). The colours are
found as in Gebremedhin, Tarafdar, Manne, Pothen, New acyclic and star coloring algorithms with
application to computing Hessians, SIAM J. Sci. Comput. 29, 2007, with sets of colours in place of
the stars: it is enough to know which colours the hubs around a vertex have.
"""

from typing import Any

import numpy as np

from ... import errors
from .colouring import Colouring, Csr, structure
from .greedy_colouring import SparseRows, column_colours, smallest_last
from .readers import choose_readers, find_unmixed

_LARGE = 2**17  # entries; a colouring of as many takes about 0.1 s


def star_colouring(pattern: Csr) -> Colouring:
    """Groups of variables such that the products of a Hessian with them hold each entry unmixed.

    pattern  a scipy.sparse CSR array or matrix with a symmetric structure; the diagonal is
             recovered where it is stored

    >>> import numpy as np, scipy.sparse as sp
    >>> arrow = np.eye(6)
    >>> arrow[0], arrow[:, 0] = 2.0, 2.0
    >>> H = sp.csr_array(arrow)
    >>> colouring = star_colouring(H)
    >>> colouring.count
    2
    >>> data = colouring.recover(columns=colouring.column_seeds() @ H)
    >>> bool((data == H.data).all())
    True
    """
    lines = structure("star_colouring", pattern)
    _check_symmetric(lines, pattern.shape)
    rows, columns = lines.rows, lines.indices
    colours = _fewest(lines, rows != columns)
    one = np.where(find_unmixed(rows, colours[columns]), colours[columns], 0)
    other = np.where(find_unmixed(columns, colours[rows]), colours[rows], 0)
    renamed, first = choose_readers(one, other, int(colours.max(initial=0)))
    colours = renamed[colours]
    at_row = (colours[columns] - 1) * pattern.shape[0] + rows
    at_column = (colours[rows] - 1) * pattern.shape[0] + columns
    gather = np.where(first, at_row, at_column)
    return Colouring("star", pattern.shape, colours, np.zeros_like(colours), gather)


def _check_symmetric(lines: SparseRows, shape: tuple[int, int]) -> None:
    mirrored = lines.transpose() if shape[0] == shape[1] else None
    if mirrored is None or not (
        np.array_equal(mirrored.indptr, lines.indptr)
        and np.array_equal(mirrored.indices, lines.indices)
    ):
        raise errors.ArgumentError(
            f"star_colouring: the pattern, of shape {shape}, is not symmetric; use pattern + "
            f"pattern.T, or column_colouring for a Jacobian"
        )


def _fewest(lines: SparseRows, off_diagonal: np.ndarray) -> np.ndarray:
    """The colouring with the fewest colours of several orders; 0 where a row has no entry."""
    graph = lines.where(off_diagonal)
    occupied = np.flatnonzero(lines.counts)
    if graph.indices.size == occupied.size * (occupied.size - 1):  # complete
        colours = np.zeros(lines.width, np.intp)
        colours[occupied] = np.arange(1, occupied.size + 1)
        return colours
    best = min(_attempts(graph, occupied), key=np.max)
    # A distance-2 colouring is a star colouring; it cannot beat the longest row.
    if lines.counts.max() < best.max() and lines.indices.size <= _LARGE:
        best = min(best, column_colours(lines), key=np.max)
    return best


def _attempts(graph: SparseRows, vertices: np.ndarray):
    yield first_fit(graph, vertices)
    yield first_fit(graph, smallest_last(graph.matrix.dot, vertices, graph.width))
    if graph.indices.size <= _LARGE:
        yield first_fit(graph, vertices[np.argsort(-graph.counts[vertices], kind="stable")])


def first_fit(graph: SparseRows, order: np.ndarray) -> np.ndarray[Any, Any]:
    """Each vertex in turn gets the smallest colour that closes no path of two colours.

    For each vertex three sets are kept: the colours around it, those around it twice (it is the hub
    of a star with spokes of that colour), and the colours of the hubs that it is a spoke of.
    """
    neighbours = graph.lists
    colour_of, around, twice, hubs = ([0] * graph.width for _ in range(4))
    first = [{} for _ in neighbours]
    for v in order.tolist():
        repeated, taken = twice[v], around[v]
        for w in neighbours[v]:
            if colour := colour_of[w]:
                taken |= around[w] if repeated & colour else hubs[w]
        mine = colour_of[v] = ~taken & (taken + 1)
        for w in neighbours[v]:
            colour = colour_of[w]
            if repeated & colour:
                hubs[w] |= mine
            if not around[w] & mine:
                around[w] |= mine
                first[w][mine] = v
                continue
            hubs[v] |= colour
            if not twice[w] & mine:
                twice[w] |= mine
                hubs[first[w][mine]] |= colour
    return np.array([colour.bit_length() for colour in colour_of], np.intp)
