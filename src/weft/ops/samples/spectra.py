"""Inputs for the rows that decompose matrices, with the functions of the factors that are smooth.

Factors are defined up to signs, phases, or the choice of a basis where eigenvalues coincide;
`post` of a case maps them to what is not.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ...core.aval import Shape
from .case import Case, Cases, Rng
from .linalg import SQUARES, draw, rectangles


def qr(rng: Rng) -> Cases:
    for case in rectangles(rng):
        yield replace(case, static=("reduced",), label=f"reduced {case.label}")
    for shape, complex_ in (((3, 1), False), ((3, 2), True), ((2, 3), False), ((2, 0), False)):
        post = partial(_complement, min(shape))
        yield Case((draw(rng, shape, complex_),), ("complete",), f"complete {shape}", post)


def _projector(q, start, stop):
    from ..contract import adjoint, matmul
    from ..matrix import columns

    part = columns(q, start, stop)
    return matmul(part, adjoint(part))


def _complement(k, q, r):
    """R, the first columns, and the projector onto the space of the others."""
    from ..matrix import columns

    return columns(q, 0, k), _projector(q, k, q.shape[-1]), r


def symmetric(rng: Rng, shape: Shape, complex_: bool = False) -> np.ndarray:
    """Matrices with eigenvalues near 1, 2, 3…"""
    a = draw(rng, shape, complex_) * 0.2 + np.diag(np.arange(1.0, shape[-1] + 1))
    return (a + a.conj().swapaxes(-1, -2)) / 2


def with_eigenvalues(rng: Rng, values: Any, complex_: bool = False) -> np.ndarray:
    q = np.linalg.qr(draw(rng, (len(values),) * 2, complex_))[0]
    return (q * np.asarray(values)) @ q.conj().T


def _hermitian(rng):
    for shape in SQUARES:
        yield Case((symmetric(rng, shape),), label=f"{shape}")
    yield Case((symmetric(rng, (3, 3), True),), label="complex")
    yield Case((symmetric(rng, (3, 3)) + np.triu(draw(rng, (3, 3)), 1),), label="not symmetric")


_EIGENVALUES = ((1.0, 1.0, 2.0), (1.5, 1.5, 1.5), (0.0, 0.0, 3.0), (0.0, 0.0, 0.0))


def _degenerate(rng):
    for values in _EIGENVALUES:
        for complex_ in (False, True):
            a = with_eigenvalues(rng, values, complex_)
            yield values, Case((a,), label=f"eigenvalues {values}, complex={complex_}")


def eigvalsh(rng: Rng) -> Cases:
    yield from _hermitian(rng)
    for values, case in _degenerate(rng):
        yield replace(case, post=partial(_cluster_sums, values))


def eigh(rng: Rng) -> Cases:
    for case in _hermitian(rng):
        yield replace(case, post=_projectors)
    for values, case in _degenerate(rng):
        yield replace(case, post=partial(_eigenspaces, values))


def _runs(values):
    """Where equal numbers that follow each other begin and end, with the number."""
    start = 0
    while start < len(values):
        stop = start + values.count(values[start])
        yield start, stop, values[start]
        start = stop


def _part_sum(w, start, stop):
    from ..slicing import narrow
    from ..structural import sum_

    last = len(w.shape) - 1
    return sum_(narrow(w, last, start, stop), (last,), False)


def _cluster_sums(values, w):
    """Sums over coinciding eigenvalues."""
    return tuple(_part_sum(w, i, j) for i, j, _ in _runs(values))


def _eigenspaces(values, w, v):
    """Those sums, and the projectors onto the spaces that belong to them."""
    return *_cluster_sums(values, w), *(_projector(v, i, j) for i, j, _ in _runs(values))


def _projectors(w, v):
    """All projectors v·vᴴ, and the eigenvalues."""
    return w, *(_projector(v, k, k + 1) for k in range(v.shape[-1]))


def coupling(rng: Rng) -> Cases:
    """Diagonal matrices: a step off the diagonal is one that the value does not see."""
    for shape in SQUARES:
        h = np.eye(shape[-1]) * np.arange(1.0, shape[-1] + 1) + np.zeros(shape)
        yield Case((h, draw(rng, shape)), (8.0,), f"{shape}", smooth=False)
    h = np.diag([1.0, 1.0, 3.0]) + 0j
    yield Case((h, draw(rng, (3, 3), True)), (64.0,), "complex, a tie", smooth=False)
    h = np.diag([1.0, 2.0])
    yield Case((h, draw(rng, (2, 2, 2))), (8.0,), "broadcast", smooth=False)


def quotients(rng: Rng) -> Cases:
    for case in coupling(rng):
        h = case.args[0] - np.eye(case.args[0].shape[-1])
        z = draw(rng, (*h.shape[:-2], 2, h.shape[-1]), h.dtype.kind == "c")
        yield replace(case, args=(z, h), static=())


def _general_matrices(rng):
    for shape in SQUARES:
        n = shape[-1]
        yield Case((draw(rng, shape) * 0.2 + np.diag(np.arange(1.0, n + 1)),), label=f"{shape}")
    yield Case((draw(rng, (2, 2), True) * 0.2 + np.diag([1.0, 2.0]),), label="complex")
    turned = np.array([[0.3, -1.0], [1.0, 0.2]])
    yield Case((turned,), label="complex eigenvalues of a real matrix")


def eigvals(rng: Rng) -> Cases:
    yield from _general_matrices(rng)


def eig(rng: Rng) -> Cases:
    for case in _general_matrices(rng):
        yield replace(case, post=_projectors)


def _of_singular_values(rng, m, n, values, complex_=False):
    u = np.linalg.qr(draw(rng, (m, m), complex_))[0][:, : len(values)]
    v = np.linalg.qr(draw(rng, (n, n), complex_))[0][:, : len(values)]
    return (u * np.asarray(values)) @ v.conj().T


_SINGULAR_VALUES = (
    ((2.0, 2.0), 2, 2),
    ((2.0, 1.0, 1.0), 3, 3),
    ((1.5, 1.5), 3, 2),
    ((2.0, 1.0, 0.0), 3, 3),
    ((2.0, 0.0, 0.0), 3, 3),
    ((2.0, 0.0), 3, 2),
    ((2.0, 0.0), 2, 3),
)


def svd(rng: Rng) -> Cases:
    for m, n in ((1, 1), (2, 2), (3, 2), (2, 3)):
        values = tuple(range(min(m, n), 0, -1))
        for complex_ in (False, True):
            a = _of_singular_values(rng, m, n, values, complex_)
            for full in (False, True):
                label = f"({m}, {n}), full={full}, complex={complex_}"
                yield Case((a,), (full,), label, partial(_singular_spaces, values))
    for shape in ((0, 2), (2, 0), (0, 2, 2)):
        yield Case((np.zeros(shape),), (False,), f"{shape}")
    yield Case((draw(rng, (2, 2, 2)),), (False,), "batch", partial(_singular_spaces, (2, 1)))
    for values, m, n in _SINGULAR_VALUES:
        for complex_ in (False, True):
            a = _of_singular_values(rng, m, n, values, complex_)
            label = f"{values} of ({m}, {n}), complex={complex_}"
            yield Case((a,), (False,), label, partial(_singular_spaces, values))


def _singular_spaces(values, u, s, vh):
    """Sums of equal singular values (but not of zeros), their parts u·vᴴ, and projectors."""
    from ..contract import adjoint, matmul
    from ..matrix import columns, rows

    v, out = adjoint(vh), []
    for i, j, value in _runs(values):
        if value:
            out += [_part_sum(s, i, j), matmul(columns(u, i, j), rows(vh, i, j))]
            out += [_projector(u, i, j), _projector(v, i, j)]
    k = len(values)
    return *out, *(_projector(q, k, q.shape[-1]) for q in (u, v) if q.shape[-1] > k)


def svdvals(rng: Rng) -> Cases:
    for shape in ((1, 1), (2, 2), (3, 2), (2, 3), (2, 2, 2), (0, 2), (0, 2, 2)):
        yield Case((draw(rng, shape),), label=f"{shape}")
    yield Case((draw(rng, (2, 3), True),), label="complex")
    for values, m, n in _SINGULAR_VALUES[:3]:
        a = _of_singular_values(rng, m, n, values)
        yield Case((a,), (), f"{values} of ({m}, {n})", partial(_cluster_sums, values))
    yield Case((np.zeros((2, 2)),), label="zero", smooth=False)
