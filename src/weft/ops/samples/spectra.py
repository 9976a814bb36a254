"""Inputs for the rows that decompose matrices, with the functions of the factors that are smooth.

Factors are defined up to signs, phases, or the choice of a basis where eigenvalues coincide;
`post` of a case maps them to what is not.
"""

from dataclasses import replace
from functools import partial

import numpy as np

from .case import Case
from .linalg import SQUARES, draw, rectangles


def qr(rng):
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


def symmetric(rng, shape, complex_=False):
    """Matrices with eigenvalues near 1, 2, 3…"""
    a = draw(rng, shape, complex_) * 0.2 + np.diag(np.arange(1.0, shape[-1] + 1))
    return (a + a.conj().swapaxes(-1, -2)) / 2


def with_eigenvalues(rng, values, complex_=False):
    q = np.linalg.qr(draw(rng, (len(values),) * 2, complex_))[0]
    return (q * np.asarray(values)) @ q.conj().T


def _hermitian(rng):
    for shape in SQUARES:
        yield Case((symmetric(rng, shape),), label=f"{shape}")
    yield Case((symmetric(rng, (3, 3), True),), label="complex")
    yield Case((symmetric(rng, (3, 3)) + np.triu(draw(rng, (3, 3)), 1),), label="not symmetric")


def eigvalsh(rng):
    yield from _hermitian(rng)
    for values in ((1.0, 1.0, 2.0), (1.5, 1.5, 1.5), (0.0, 0.0, 0.0)):
        for complex_ in (False, True):
            a = with_eigenvalues(rng, values, complex_)
            label = f"eigenvalues {values}, complex={complex_}"
            yield Case((a,), (), label, partial(_cluster_sums, values))


def _cluster_sums(values, w):
    """Sums over coinciding eigenvalues."""
    from ..slicing import narrow
    from ..structural import sum_

    out, start = [], 0
    for value in sorted(set(values)):
        stop = start + values.count(value)
        out.append(sum_(narrow(w, len(w.shape) - 1, start, stop), (len(w.shape) - 1,), False))
        start = stop
    return tuple(out)


def _projectors(w, v):
    """All projectors v·vᴴ, and the eigenvalues."""
    return w, *(_projector(v, k, k + 1) for k in range(v.shape[-1]))


def eigh(rng):
    for case in _hermitian(rng):
        yield replace(case, post=_projectors)


def coupling(rng):
    """Diagonal matrices: a step off the diagonal is one that the value does not see."""
    for shape in SQUARES:
        h = np.eye(shape[-1]) * np.arange(1.0, shape[-1] + 1) + np.zeros(shape)
        yield Case((h, draw(rng, shape)), label=f"{shape}", smooth=False)
    h = np.diag([1.0, 1.0, 3.0]) + 0j
    yield Case((h, draw(rng, (3, 3), True)), label="complex, a tie", smooth=False)


def divided(rng):
    for case in coupling(rng):
        h = case.args[0] - np.eye(case.args[0].shape[-1])
        z = draw(rng, (*h.shape[:-2], 2, h.shape[-1]), h.dtype.kind == "c")
        yield replace(case, args=(z, h))


def _general_matrices(rng):
    for shape in SQUARES:
        n = shape[-1]
        yield Case((draw(rng, shape) * 0.2 + np.diag(np.arange(1.0, n + 1)),), label=f"{shape}")
    yield Case((draw(rng, (2, 2), True) * 0.2 + np.diag([1.0, 2.0]),), label="complex")
    turned = np.array([[0.3, -1.0], [1.0, 0.2]])
    yield Case((turned,), label="complex eigenvalues of a real matrix")


def eigvals(rng):
    yield from _general_matrices(rng)


def eig(rng):
    for case in _general_matrices(rng):
        yield replace(case, post=_projectors)


def _of_singular_values(rng, m, n, values, complex_=False):
    u = np.linalg.qr(draw(rng, (m, m), complex_))[0][:, : len(values)]
    v = np.linalg.qr(draw(rng, (n, n), complex_))[0][:, : len(values)]
    return (u * np.asarray(values)) @ v.conj().T


def svd(rng):
    for m, n in ((1, 1), (2, 2), (3, 2), (2, 3)):
        for complex_ in (False, True):
            a = _of_singular_values(rng, m, n, np.arange(min(m, n), 0.0, -1.0), complex_)
            for full in (False, True):
                label = f"({m}, {n}), full={full}, complex={complex_}"
                yield Case((a,), (full,), label, _singular_parts)
    for shape in ((0, 2), (2, 0), (0, 2, 2)):
        yield Case((np.zeros(shape),), (False,), f"{shape}")
    yield Case((draw(rng, (2, 2, 2)),), (False,), "batch", _singular_parts)


def _singular_parts(u, s, vh):
    """The singular values, the parts u·vᴴ of each, and the projectors of all vectors."""
    from ..contract import adjoint, matmul
    from ..matrix import columns, rows

    k, v = s.shape[-1], adjoint(vh)
    out = [s]
    for j in range(k):
        out.append(matmul(columns(u, j, j + 1), rows(vh, j, j + 1)))
        out += [_projector(u, j, j + 1), _projector(v, j, j + 1)]
    out += [_projector(q, k, q.shape[-1]) for q in (u, v) if q.shape[-1] > k]
    return tuple(out)


def svdvals(rng):
    for shape in ((1, 1), (2, 2), (3, 2), (2, 3), (2, 2, 2), (0, 2), (0, 2, 2)):
        yield Case((draw(rng, shape),), label=f"{shape}")
    yield Case((draw(rng, (2, 3), True),), label="complex")
    for values, m, n in (((2.0, 2.0), 2, 2), ((2.0, 1.0, 1.0), 3, 3), ((1.5, 1.5), 3, 2)):
        a = _of_singular_values(rng, m, n, values)
        yield Case((a,), (), f"{values} of ({m}, {n})", partial(_singular_sums, values))
    yield Case((np.zeros((2, 2)),), label="zero", smooth=False)


def _singular_sums(values, s):
    return _cluster_sums([-v for v in values], s)
