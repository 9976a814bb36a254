"""Colourings are valid by definition, take as few sweeps as known, and give every entry back."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis.extra.numpy import array_shapes, arrays

from weft import errors
from weft.transform.jacobian import colouring as colourings
from weft.transform.jacobian.bicolouring import bicolouring
from weft.transform.jacobian.colouring import column_colouring, row_colouring
from weft.transform.jacobian.greedy_colouring import (
    Conflicts,
    SparseRows,
    first_fit,
    saturation,
    smallest_last,
)
from weft.transform.jacobian.star_colouring import star_colouring

JACOBIAN = (column_colouring, row_colouring, bicolouring)
examples = settings(max_examples=150, deadline=None, derandomize=True)
patterns = arrays(bool, array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=9))


def csr(dense) -> sp.csr_array:
    return sp.csr_array(np.asarray(dense, bool))


def numbered(pattern, seed: int = 0) -> sp.csr_array:
    """The pattern with random integers: sums of a few are exact, and no two sums agree by luck."""
    values = np.random.default_rng(seed).integers(1, 2**40, pattern.nnz)
    return sp.csr_array((values, pattern.indices, pattern.indptr), shape=pattern.shape)


def symmetric(matrix) -> sp.csr_array:
    upper = sp.triu(matrix)
    return sp.csr_array(upper + sp.triu(matrix, 1).T)


def swept(colouring, matrix):
    """What the sweeps return, in integers."""
    columns = colouring.column_seeds(np.int64) @ matrix.T.tocsr()
    return columns, colouring.row_seeds(np.int64) @ matrix


def recovers(colouring, matrix) -> bool:
    """Whether the entries come back; the planner's own check must find the same."""
    found = np.array_equal(colouring.recover(*swept(colouring, matrix)), matrix.data)
    assert colourings.recovers(colouring, matrix) == found
    return found


# By definition


def entries(pattern):
    return set(zip(*(axis.tolist() for axis in sp.coo_array(pattern).coords), strict=True))


def distance_two(pattern, colours) -> bool:
    """Columns with an entry have a colour, and those that share a row different ones."""
    found = entries(pattern)
    return all(colours[j] for _, j in found) and not any(
        a == b and i != j and colours[i] == colours[j] for a, i in found for b, j in found
    )


def star_forest(edges, colours) -> bool:
    """Neighbours differ, and so do the colours of a path on four vertices: at least three."""
    near: dict = {}
    for v, w in edges:
        near.setdefault(v, set()).add(w)
        near.setdefault(w, set()).add(v)
    proper = all(colours[v] != colours[w] for v in near for w in near[v])
    return proper and all(
        len({colours[x] for x in (u, v, w, z)}) >= 3
        for v in near
        for w in near[v]
        for u in near[v] - {w}
        for z in near[w] - {v, u}
    )


def star_bicolouring(pattern, columns, rows) -> bool:
    """An entry has a coloured end; around an end without colour all differ; paths use three."""
    edges = {(("row", i), ("column", j)) for i, j in entries(pattern)}
    colours = {("row", i): ("row", c) for i, c in enumerate(rows.tolist())}
    colours |= {("column", j): ("column", c) for j, c in enumerate(columns.tolist())}
    for v in (v for v, (_, c) in colours.items() if c == 0):
        around = [colours[w] for e in edges if v in e for w in e if w != v]
        if len(set(around)) < len(around) or any(c == 0 for _, c in around):
            return False
    coloured = [e for e in edges if all(colours[v][1] for v in e)]
    return star_forest(coloured, colours)


# Patterns


def band(n: int, below: int, above: int) -> sp.csr_array:
    offsets = range(-below, above + 1)
    return sp.csr_array(sp.diags_array([1.0] * len(offsets), offsets=offsets, shape=(n, n)))


def ring(n: int) -> sp.csr_array:
    return sp.csr_array(band(n, 1, 1) + band(n, n - 1, -(n - 1)) + band(n, -(n - 1), n - 1))


def grid(line: sp.csr_array) -> sp.csr_array:
    """The 5-point stencil on a square, whose side is coupled as in `line`."""
    one = sp.eye_array(line.shape[0])
    return sp.csr_array(sp.kron(line, one, "coo") + sp.kron(one, line, "coo"))


def brusselator(line: sp.csr_array, interleaved: bool) -> sp.csr_array:
    """Two species on a grid, coupled at each point."""
    cells = line.shape[0] ** 2
    both = sp.csr_array(sp.kron(sp.eye_array(2), grid(line), "coo"))
    both = sp.csr_array(both + band(2 * cells, cells, -cells) + band(2 * cells, -cells, cells))
    order = np.arange(2 * cells).reshape(2, cells).T.ravel() if interleaved else slice(None)
    found = sp.csr_array(both[order][:, order])
    found.sort_indices()
    return found


def bordered(inner: sp.csr_array, rows: int, columns: int) -> sp.csr_array:
    """With so many full rows and columns, spread out."""
    dense = inner.toarray() != 0
    dense[np.linspace(0, len(dense) - 1, rows).astype(int)] = True
    dense[:, np.linspace(0, len(dense) - 1, columns).astype(int)] = True
    return csr(dense)


def scattered(n: int, in_row: int, seed: int = 0) -> sp.csr_array:
    rng = np.random.default_rng(seed)
    places = np.repeat(np.arange(n), in_row), rng.integers(0, n, n * in_row)
    return csr(sp.coo_array((np.ones(n * in_row), places), shape=(n, n)).toarray())


SHAPES = {
    "no entry": csr(np.zeros((3, 4))),
    "no row": csr(np.zeros((0, 4))),
    "no column": csr(np.zeros((4, 0))),
    "nothing": csr(np.zeros((0, 0))),
    "one": csr([[1]]),
    "full": csr(np.ones((7, 7))),
    "full, wide": csr(np.ones((2, 9))),
    "dense row": csr(np.arange(8)[:, None] == np.full(9, 3)),
    "blocks": csr(np.kron(np.eye(4), np.ones((3, 3)))),
    "empty lines": csr(np.kron(np.eye(4), [[0, 1, 1], [0, 0, 0], [0, 1, 0]])),
    "scattered": scattered(60, 3),
    "bordered": bordered(scattered(50, 2), 2, 3),
    "grid": grid(band(9, 1, 1)),
}


# Tests


@pytest.mark.parametrize("pattern", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("colour", JACOBIAN)
def test_jacobians_come_back(colour, pattern):
    assert recovers(colour(pattern), numbered(pattern))


@pytest.mark.parametrize("pattern", SHAPES.values(), ids=SHAPES)
def test_hessians_come_back(pattern):
    size = max(pattern.shape)
    square = sp.csr_array((pattern.data, pattern.indices, pattern.indptr), pattern.shape)
    square.resize((size, size))
    hessian = symmetric(numbered(sp.csr_array(square + square.T)))
    assert recovers(star_colouring(hessian), hessian)


@examples
@given(patterns)
def test_one_sided_colourings_by_definition(dense):
    pattern = csr(dense)
    columns, rows = column_colouring(pattern), row_colouring(pattern)
    assert distance_two(pattern, columns.column_colours) and not columns.reverse
    assert distance_two(csr(dense.T), rows.row_colours) and not rows.forward
    assert recovers(columns, numbered(pattern)) and recovers(rows, numbered(pattern))


@examples
@given(patterns)
def test_bicolourings_by_definition(dense):
    pattern = csr(dense)
    found = bicolouring(pattern)
    assert star_bicolouring(pattern, found.column_colours, found.row_colours)
    assert recovers(found, numbered(pattern))
    assert found.count <= min(column_colouring(pattern).count, row_colouring(pattern).count)


@examples
@given(patterns)
def test_star_colourings_by_definition(dense):
    side = min(dense.shape)
    full = dense[:side, :side] | dense[:side, :side].T | np.eye(side, dtype=bool)
    hessian = symmetric(numbered(csr(full)))
    found = star_colouring(hessian)
    edges = {(i, j) for i, j in entries(hessian) if i != j}
    assert star_forest(edges, found.column_colours)
    assert found.column_colours.all() and recovers(found, hessian)


@examples
@given(patterns)
def test_hessians_without_some_of_the_diagonal(dense):
    side = min(dense.shape)
    hessian = symmetric(numbered(csr(dense[:side, :side] | dense[:side, :side].T)))
    assert recovers(star_colouring(hessian), hessian)


@pytest.mark.parametrize("seed", range(60))
def test_columns_that_are_only_met(seed):
    """The entries that are read are unmixed among all seeded columns, in every order."""
    rng = np.random.default_rng(seed)
    dense = rng.random(rng.integers(1, 12, 2)) < 0.4
    read = dense & (rng.random(dense.shape) < 0.5)
    met = dense & ~read & read.any(axis=0)
    sides = [SparseRows(a.indptr, a.indices, a.shape[1]) for a in map(csr, (read, met))]
    conflicts = Conflicts(*sides, *(side.transpose() for side in sides))
    columns = np.flatnonzero(read.any(axis=0))
    peeled = smallest_last(conflicts.degrees, columns, dense.shape[1])
    assert sorted(peeled) == columns.tolist()
    ways = [first_fit(conflicts, columns), first_fit(conflicts, peeled)]
    for colours in [*ways, saturation(conflicts, columns)]:
        assert np.array_equal(np.flatnonzero(colours), columns)
        for i, j in entries(csr(read)):
            assert (colours[dense[i]] == colours[j]).sum() == 1


KNOWN = {
    "diagonal": (column_colouring, band(300, 0, 0), 1, 0),
    "bidiagonal": (column_colouring, band(300, 0, 1), 2, 0),
    "tridiagonal": (column_colouring, band(2000, 1, 1), 3, 0),
    "tridiagonal, rows": (row_colouring, band(2000, 1, 1), 0, 3),
    "band of 11": (column_colouring, band(500, 5, 5), 11, 0),
    "one-sided band": (column_colouring, band(500, 0, 6), 7, 0),
    "5-point grid": (column_colouring, grid(band(50, 1, 1)), 5, 0),
    "9-point grid": (
        column_colouring,
        sp.csr_array(sp.kron(band(50, 1, 1), band(50, 1, 1), "coo")),
        9,
        0,
    ),
    "full row": (column_colouring, bordered(band(400, 0, 0), 1, 0), 400, 0),
    "full row, rows": (row_colouring, bordered(band(400, 0, 0), 1, 0), 0, 2),
    "tall": (column_colouring, csr(np.kron(np.ones((50, 1)), np.eye(3))), 1, 0),
    "arrowhead": (bicolouring, bordered(band(2000, 0, 0), 1, 1), 2, 1),
    "three-headed": (bicolouring, bordered(band(300, 0, 0), 3, 3), 4, 3),
    "tridiagonal, bordered": (bicolouring, bordered(band(300, 1, 1), 2, 1), 4, 2),
    "5-point grid, bordered": (bicolouring, bordered(grid(band(20, 1, 1)), 1, 1), 6, 1),
    "star of a diagonal": (star_colouring, band(300, 0, 0), 1, 0),
    "star of a path": (star_colouring, band(2000, 1, 1), 3, 0),
    "star of an arrowhead": (star_colouring, bordered(band(500, 0, 0), 1, 1), 2, 0),
    "star of a band": (star_colouring, band(300, 3, 3), 7, 0),
    "star of a 5-point grid": (star_colouring, grid(band(50, 1, 1)), 5, 0),
    "star of a full block": (star_colouring, csr(np.ones((40, 40))), 40, 0),
    "star without a diagonal": (
        star_colouring,
        csr(bordered(band(50, 0, 0), 1, 1).toarray() & ~np.eye(50, dtype=bool)),
        1,
        0,
    ),
}


@pytest.mark.parametrize("colour, pattern, forward, reverse", KNOWN.values(), ids=KNOWN)
def test_known_counts(colour, pattern, forward, reverse):
    found = colour(pattern)
    assert (found.forward, found.reverse, found.count) == (forward, reverse, forward + reverse)
    matrix = numbered(pattern)
    assert recovers(found, symmetric(matrix) if colour is star_colouring else matrix)


@pytest.mark.parametrize(
    "line, interleaved, columns, star",
    [
        (band(64, 1, 1), True, 7, 7),
        (band(64, 1, 1), False, 9, 8),
        (ring(64), True, 8, 8),
        (ring(64), False, 10, 9),
    ],
    ids=["interleaved", "blocks", "periodic, interleaved", "periodic, blocks"],
)
def test_brusselator(line, interleaved, columns, star):
    """No more than measured; the longest row has 6 entries."""
    pattern = brusselator(line, interleaved)
    assert pattern.shape == (8192, 8192) and np.diff(pattern.indptr).max() == 6
    found = column_colouring(pattern)
    assert 6 <= found.count <= columns and recovers(found, numbered(pattern))
    found, hessian = star_colouring(pattern), symmetric(numbered(pattern))
    assert found.count <= star and recovers(found, hessian)


def merged(colours: np.ndarray, pair: tuple[int, int]) -> np.ndarray:
    return np.where(colours == pair[1], pair[0], colours)


@pytest.mark.parametrize("pair", [(1, 2), (1, 3), (2, 3)])
def test_two_colours_merged_are_noticed(pair):
    pattern = band(40, 1, 1)
    matrix = symmetric(numbered(pattern))
    for colour in (column_colouring, star_colouring):
        found = colour(pattern)
        columns = swept(found, matrix)[0]
        columns[[pair[0] - 1, pair[1] - 1]] = sum(columns[c - 1] for c in pair)
        assert not np.array_equal(found.recover(columns), matrix.data)
        wrong = merged(found.column_colours, pair)
        assert not colourings.recovers(replace(found, column_colours=wrong), pattern)
        edges = {(i, j) for i, j in entries(pattern) if i != j}
        valid = star_forest if colour is star_colouring else distance_two
        assert not valid(edges if colour is star_colouring else pattern, wrong)


def test_two_colours_merged_in_a_bicolouring_are_noticed():
    pattern = bordered(band(12, 0, 0), 1, 1)
    found = bicolouring(pattern)
    columns, rows = found.column_colours, found.row_colours
    assert star_bicolouring(pattern, columns, rows)
    assert not star_bicolouring(pattern, merged(columns, (1, 2)), rows)
    assert not star_bicolouring(pattern, columns, np.zeros_like(rows))
    assert not recovers(replace(found, column_colours=columns[::-1]), numbered(pattern))


def test_stored_zeros_count():
    pattern = band(9, 1, 1)
    pattern.data[:] = 0
    assert column_colouring(pattern).count == 3 and len(column_colouring(pattern).gather) == 25


def test_seeds_and_both_layouts_of_the_sweeps():
    matrix = numbered(bordered(band(9, 1, 1), 1, 1))
    found = bicolouring(matrix)
    seeds = found.column_seeds(np.int64)
    assert found.column_seeds().dtype == np.float64 and seeds.dtype == np.int64
    assert found.kind == "bicolouring" and found.row_seeds().shape == (found.reverse, 9)
    assert np.array_equal(seeds.sum(axis=0), found.column_colours > 0)
    columns, rows = swept(found, matrix)
    assert np.array_equal(found.recover(columns.T, rows.T, axis=1), matrix.data)
    assert found.recover(columns.astype(complex), rows).dtype == complex


def test_a_dense_row_takes_no_quadratic_memory():
    """The column graph of such a row has four million edges."""
    dense = np.eye(2000, dtype=bool)
    dense[0, :-1] = True
    pattern = csr(dense)
    tracemalloc.start()
    found = column_colouring(pattern)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.count == 1999 and peak < 8e6


@pytest.mark.parametrize("colour", [*JACOBIAN, star_colouring])
def test_patterns_that_are_refused(colour):
    with pytest.raises(errors.ArgumentError, match="csr_array"):
        colour(sp.csc_array(np.eye(3)))
    with pytest.raises(errors.ArgumentError, match="ndarray"):
        colour(np.eye(3))
    twice = sp.csr_array((np.ones(2), np.array([1, 1]), np.array([0, 2, 2])), shape=(2, 2))
    with pytest.raises(errors.ArgumentError, match="sum_duplicates"):
        colour(twice)


@pytest.mark.parametrize("dense", [np.ones((2, 3)), [[1, 1], [0, 1]]])
def test_star_colouring_wants_symmetry(dense):
    with pytest.raises(errors.ArgumentError, match="not symmetric"):
        star_colouring(csr(dense))


def test_sweeps_that_do_not_fit():
    found = column_colouring(band(9, 1, 1))
    with pytest.raises(errors.ShapeError, match=r"None, expected \(3, 9\)"):
        found.recover()
    with pytest.raises(errors.ShapeError, match=r"\(9, 3\), expected \(3, 9\)"):
        found.recover(np.zeros((9, 3)))
    with pytest.raises(errors.ShapeError, match="rows"):
        found.recover(np.zeros((3, 9)), np.zeros((1, 9)))
