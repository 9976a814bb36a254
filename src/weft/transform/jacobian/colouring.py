"""Compressing a sparse Jacobian into a few sweeps, by columns or by rows.

A forward sweep returns J·s for a seed s. When the columns that s selects have no row in common,
J·s holds every entry of those columns unmixed (Curtis, Powell, Reid, 1974).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ... import errors
from ...core.record import record
from .greedy_colouring import SparseRows, column_colours

if TYPE_CHECKING:
    from ...arrays.types import DTypeLike


Csr: TypeAlias = Any  # a CSR array or matrix of SciPy's, which is imported at first use


@record(eq=False)
class Colouring:
    """Which columns and rows are seeded together, with the place of every entry in the sweeps.

    kind            "column", "row", "star" or "bicolouring"
    shape           of the matrix, (m, n)
    column_colours  the forward sweep, from 1, that each column is seeded in; 0: in none
    row_colours     the reverse sweep, from 1, that each row is seeded in; 0: in none
    gather          for each entry, in CSR order: its place in the sweeps laid end to end, the
                    forward ones (m numbers each) before the reverse ones (n numbers each)

    >>> import numpy as np, scipy.sparse as sp
    >>> J = sp.csr_array(np.diag([1.0, 2.0, 3.0, 4.0]) + np.diag([5.0, 6.0, 7.0], 1))
    >>> colouring = column_colouring(J)
    >>> colouring.forward, colouring.reverse
    (2, 0)
    >>> colouring.recover(columns=colouring.column_seeds() @ J.T)
    array([1., 5., 2., 6., 3., 7., 4.])
    """

    kind: str
    shape: tuple[int, int]
    column_colours: np.ndarray
    row_colours: np.ndarray
    gather: np.ndarray

    @property
    def forward(self) -> int:
        """How many forward sweeps it takes."""
        return int(self.column_colours.max(initial=0))

    @property
    def reverse(self) -> int:
        """How many reverse sweeps it takes."""
        return int(self.row_colours.max(initial=0))

    @property
    def count(self) -> int:
        """How many sweeps it takes."""
        return self.forward + self.reverse

    def column_seeds(self, dtype: DTypeLike = np.float64) -> np.ndarray[Any, Any]:
        """The tangents of the forward sweeps, one a row: (forward, n)."""
        return _seeds(self.column_colours, self.forward, dtype)

    def row_seeds(self, dtype: DTypeLike = np.float64) -> np.ndarray[Any, Any]:
        """The cotangents of the reverse sweeps, one a row: (reverse, m)."""
        return _seeds(self.row_colours, self.reverse, dtype)

    def recover(
        self, columns: Any = None, rows: Any = None, *, axis: int = 0
    ) -> np.ndarray[Any, Any]:
        """The entries of the matrix, in the CSR order of the pattern.

        columns  what the forward sweeps returned, (forward, m)
        rows     what the reverse sweeps returned, (reverse, n)
        axis     the axis of the sweeps in both; 1 takes J·S as it is, (m, forward)
        """
        forward = _sweeps("columns", columns, (self.forward, self.shape[0]), axis)
        reverse = _sweeps("rows", rows, (self.reverse, self.shape[1]), axis)
        if not reverse.size:
            return forward[self.gather]
        if not forward.size:
            return reverse[self.gather]
        return np.concatenate([forward, reverse])[self.gather]


def recovers(colouring: Colouring, pattern: Csr) -> bool:
    """Whether every entry of a CSR pattern is read where a sweep holds it, and nothing beside it.

    A star colouring reads an entry, or its mirror image.
    """
    m, n = pattern.shape
    rows = np.repeat(np.arange(m), np.diff(pattern.indptr))
    columns = pattern.indices.astype(np.intp)
    own, across, mirrored = (
        colouring.column_colours[columns],
        colouring.row_colours[rows],
        colouring.column_colours[rows] if colouring.kind == "star" else _none(rows.size),
    )
    places = (
        np.where(own > 0, (own - 1) * m + rows, -1),
        np.where(across > 0, (colouring.forward * m) + (across - 1) * n + columns, -1),
        np.where(mirrored > 0, (mirrored - 1) * m + columns, -1),
    )
    held = np.bincount(np.concatenate([p[p >= 0] for p in places[:2]]))
    found = np.logical_or.reduce([p == colouring.gather for p in places])
    return bool(found.all() and (held[colouring.gather] == 1).all())


def column_colouring(pattern: Csr) -> Colouring:
    """Groups of columns without a common row: J from forward sweeps alone.

    pattern  a scipy.sparse CSR array or matrix; its stored entries count, whatever their value
    """
    lines = structure("column_colouring", pattern)
    colours = column_colours(lines)
    gather = (colours[lines.indices] - 1) * pattern.shape[0] + lines.rows
    return Colouring("column", pattern.shape, colours, _none(pattern.shape[0]), gather)


def row_colouring(pattern: Csr) -> Colouring:
    """Groups of rows without a common column: J from reverse sweeps alone.

    pattern  a scipy.sparse CSR array or matrix; its stored entries count, whatever their value
    """
    lines = structure("row_colouring", pattern)
    colours = column_colours(lines.transpose())
    gather = (colours[lines.rows] - 1) * pattern.shape[1] + lines.indices
    return Colouring("row", pattern.shape, _none(pattern.shape[1]), colours, gather)


def structure(name: str, pattern: Csr) -> SparseRows:
    """The structure of a CSR pattern in which no entry is stored twice."""
    if getattr(pattern, "format", None) != "csr":
        raise errors.ArgumentError(
            f"{name}: the pattern is {getattr(pattern, 'format', type(pattern).__name__)!r}, not a "
            f"scipy.sparse CSR array; convert it with scipy.sparse.csr_array(pattern)"
        )
    if not pattern.has_canonical_format:
        raise errors.ArgumentError(
            f"{name}: the pattern stores entries twice or out of order; call "
            f"pattern.sum_duplicates() first"
        )
    return SparseRows(pattern.indptr, pattern.indices, pattern.shape[1])


def _none(size: int) -> np.ndarray:
    return np.zeros(size, np.intp)


def _seeds(colours: np.ndarray, count: int, dtype) -> np.ndarray:
    seeds = np.zeros((count, colours.size), dtype)
    seeded = np.flatnonzero(colours)
    seeds[colours[seeded] - 1, seeded] = 1
    return seeds


def _sweeps(name: str, given, shape: tuple[int, int], axis: int) -> np.ndarray:
    """The sweeps laid end to end."""
    if given is None and not shape[0]:
        return np.zeros(0)
    expected = shape if axis == 0 else shape[::-1]
    found = None if given is None else np.shape(given)
    if found != expected:
        raise errors.ShapeError(
            f"recover: {name} of shape {found}, expected {expected}: one sweep for each of the "
            f"{shape[0]} seeds, along axis {axis}"
        )
    swept = np.asarray(given)
    return (swept if axis == 0 else swept.T).ravel()
