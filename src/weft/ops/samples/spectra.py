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
    from ..linalg import columns

    part = columns(q, start, stop)
    return matmul(part, adjoint(part))


def _complement(k, q, r):
    """R, the first columns, and the projector onto the space of the others."""
    from ..linalg import columns

    return columns(q, 0, k), _projector(q, k, q.shape[-1]), r


def symmetric(rng, shape, complex_=False):
    """Matrices with eigenvalues near 1, 2, 3…"""
    a = draw(rng, shape, complex_) * 0.2 + np.diag(np.arange(1.0, shape[-1] + 1))
    return (a + a.conj().swapaxes(-1, -2)) / 2


def with_eigenvalues(rng, values, complex_=False):
    q = np.linalg.qr(draw(rng, (len(values),) * 2, complex_))[0]
    return (q * np.asarray(values)) @ q.conj().T


def eigvalsh(rng):
    for shape in SQUARES:
        yield Case((symmetric(rng, shape),), label=f"{shape}")
    yield Case((symmetric(rng, (3, 3), True),), label="complex")
    yield Case((symmetric(rng, (3, 3)) + np.triu(draw(rng, (3, 3)), 1),), label="not symmetric")
    for values in ((1.0, 1.0, 2.0), (1.5, 1.5, 1.5), (0.0, 0.0, 0.0)):
        for complex_ in (False, True):
            a = with_eigenvalues(rng, values, complex_)
            label = f"eigenvalues {values}, complex={complex_}"
            yield Case((a,), (), label, partial(_cluster_sums, values), smooth=False)


def _cluster_sums(values, w, v=None):
    """Sums over coinciding eigenvalues, and the projectors onto their spaces."""
    from ..slicing import narrow
    from ..structural import sum_

    out, start = [], 0
    for value in sorted(set(values)):
        stop = start + values.count(value)
        out.append(sum_(narrow(w, len(w.shape) - 1, start, stop), (len(w.shape) - 1,), False))
        if v is not None:
            out.append(_projector(v, start, stop))
        start = stop
    return tuple(out)


def _projectors(w, v):
    """All projectors v·vᴴ, and the eigenvalues."""
    return w, *(_projector(v, k, k + 1) for k in range(v.shape[-1]))


def eigh(rng):
    for case in eigvalsh(rng):
        yield replace(case, post=case.post or _projectors)


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


# Defective in no way: the double eigenvalue has two vectors.
_DOUBLE = np.array([[1.0, 0.0, 0.4], [0.0, 1.0, -0.3], [0.0, 0.0, 2.0]])


def eigvals(rng):
    yield from _general_matrices(rng)
    post = partial(_cluster_sums, (1.0, 1.0, 2.0))
    yield Case((_DOUBLE,), label="double", post=post, smooth=False)


def eig(rng):
    for case in _general_matrices(rng):
        yield replace(case, post=_projectors)
    yield Case((_DOUBLE,), label="double", post=_spectral_parts, smooth=False)


def _spectral_parts(w, v):
    """The sum of a double eigenvalue, the other one, and the projector along the first."""
    from ..contract import matmul
    from ..linalg import columns, inv, rows

    first, last = _cluster_sums((1.0, 1.0, 2.0), w)
    return first, last, matmul(columns(v, 0, 2), rows(inv(v), 0, 2))


def _of_singular_values(rng, m, n, values, complex_=False):
    u = np.linalg.qr(draw(rng, (m, m), complex_))[0][:, : len(values)]
    v = np.linalg.qr(draw(rng, (n, n), complex_))[0][:, : len(values)]
    return (u * np.asarray(values)) @ v.conj().T


_SPECTRA = (
    ((2.0, 2.0), 2, 2),
    ((2.0, 1.0, 1.0), 3, 3),
    ((1.5, 1.5), 3, 2),
    ((2.0, 1.0, 0.0), 3, 3),
    ((2.0, 0.0), 3, 2),
    ((2.0, 0.0), 2, 3),
    ((2.0, 0.0, 0.0), 3, 3),
)


def svd(rng):
    for m, n in ((1, 1), (2, 2), (3, 2), (2, 3)):
        for complex_ in (False, True):
            values = np.arange(1.0, min(m, n) + 1)[::-1]
            a = _of_singular_values(rng, m, n, values, complex_)
            post = partial(_singular_parts, tuple(values.tolist()))
            yield Case((a,), (False,), f"({m}, {n}), complex={complex_}", post)
            yield Case((a,), (True,), f"full ({m}, {n}), complex={complex_}", post)
    for shape in ((0, 2), (2, 0), (0, 2, 2)):
        yield Case((np.zeros(shape),), (False,), f"{shape}")
    yield Case((draw(rng, (2, 2, 2)),), (False,), "batch", partial(_singular_parts, (2.0, 1.0)))
    for values, m, n in _SPECTRA:
        for complex_ in (False, True):
            a = _of_singular_values(rng, m, n, values, complex_)
            post = partial(_singular_parts, values)
            label = f"{values} of ({m}, {n}), complex={complex_}"
            yield Case((a,), (False,), label, post, smooth=False)


def _singular_parts(values, u, s, vh):
    """For each singular value the sum of those equal to it and its part u·vᴴ; projectors."""
    from ..contract import adjoint, matmul
    from ..linalg import columns, rows
    from ..slicing import narrow
    from ..structural import sum_

    out, start, last = [], 0, len(s.shape) - 1
    for value in sorted(set(values), reverse=True):
        stop = start + values.count(value)
        if value:
            out.append(sum_(narrow(s, last, start, stop), (last,), False))
            out.append(matmul(columns(u, start, stop), rows(vh, start, stop)))
            out.append(_projector(u, start, stop))
            out.append(_projector(adjoint(vh), start, stop))
        start = stop
    if u.shape[-1] == u.shape[-2] > len(values):
        out.append(_projector(u, len(values), u.shape[-1]))
    return tuple(out)


def svdvals(rng):
    for shape in ((1, 1), (2, 2), (3, 2), (2, 3), (2, 2, 2), (0, 2), (0, 2, 2)):
        yield Case((draw(rng, shape),), label=f"{shape}")
    yield Case((draw(rng, (2, 3), True),), label="complex")
    for values, m, n in _SPECTRA[:3]:
        a = _of_singular_values(rng, m, n, values)
        post = partial(_singular_sums, values)
        yield Case((a,), (), f"{values} of ({m}, {n})", post, smooth=False)
    yield Case((np.zeros((2, 2)),), label="zero", smooth=False)


def _singular_sums(values, s):
    return _cluster_sums([-v for v in values], s)
