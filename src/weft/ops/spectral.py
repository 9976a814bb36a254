"""Rows: eigenvalues, singular values and their vectors.

Where eigenvalues coincide, eigenvectors are any basis of their common space. The rules turn
such a space as a whole and not within itself: vectors of equal eigenvalues do not couple. What
this makes right, to any order, is every function of the spaces (a projector onto one) and of
the simple eigenvalues (spaces of a rectangular matrix that has singular values 0: to second
order); of coinciding eigenvalues every function that is symmetric in them to first order, and
their sums to any order. Not determined by the rows here are second derivatives of other
functions of coinciding eigenvalues (λ₁² + λ₂² where λ₁ = λ₂): write those as functions of the
matrix (tr A², expm, logm, sqrtm, det), which are right everywhere. A function that tells
coinciding eigenvalues or their vectors apart has no derivative there; it gets that of the basis
LAPACK has chosen.
"""

from math import sqrt

from ..core import dtypes
from ..core.aval import Aval
from ..core.op import Caller
from .arrange import diag_embed
from .batching import Stacked
from .complex_ import conj, real
from .contract import adjoint, matmul
from .matrix import (
    as_row,
    columns,
    complete_basis_tangent,
    diagonal_of,
    fit_cotangent,
    for_first,
    hermitian,
    lapack,
    matrices,
    rows,
    square,
    stacks,
    total,
)
from .rows import general
from .samples import spectra
from .structural import cast, concat, sum_
from .systems import solve_matrix

_EPS = {dtypes.float16: 2.0**-10, dtypes.bfloat16: 2.0**-7, dtypes.float32: 2.0**-23}
# LAPACK puts up to about 15 roundings of the largest eigenvalue between equal eigenvalues of a
# Hermitian matrix (measured, to n = 500); without symmetry the condition of the vectors comes in.
_HERMITIAN, _GENERAL = 8.0, 64.0


def _tie(xp, h, roundings: float) -> float:
    """The relative distance below which eigenvalues count as equal."""
    eps = _EPS.get(dtypes.to_real(xp.dtype_of(h)), 2.0**-52)
    return roundings * eps * sqrt(h.shape[-1])


def _beside_diagonal(name: str, h: Aval, e: Aval) -> Aval:
    """The shape rule for an h that is diagonal, and stacks that broadcast."""
    return e.like((*stacks(name, h, e), *e.shape[-2:]), dtypes.promote(h.dtype, e.dtype))


def _coupling_push(tangents, y, h, e, roundings):
    dh, de = tangents
    parts = [] if de is None else [de]
    if dh is not None:
        parts.append(matmul(dh, y) - matmul(y, dh))
    return coupling(h, total(parts), roundings)


def _coupling_pull(g, y, h, e, roundings):
    g = coupling(adjoint(h), g, roundings)
    x = adjoint(y)
    return fit_cotangent(matmul(g, x) - matmul(x, g), h), fit_cotangent(g, e)


# The X of XH − HX = E for an H that is diagonal up to blocks of equal elements, with zeros in
# those blocks: Eᵢⱼ/(hⱼ − hᵢ). H need be diagonal in value only. Its derivative is not, within a
# block, and that is what makes second derivatives of invariant spaces right.
coupling: Caller = general(
    "coupling",
    arity=2,
    compute=lambda xp, h, e, roundings: xp.coupling(h, e, _tie(xp, h, roundings)),
    promote=(0, 1),
    static=True,
    shape=lambda h, e, _: _beside_diagonal("coupling", h, e),
    push=_coupling_push,
    pull=_coupling_pull,
    reads="y h",
    batch=Stacked((2, 2)),
    sample=spectra("coupling"),
)


def _divided_push(tangents, y, z, h):
    dz, dh = tangents
    parts = [] if dz is None else [dz]
    if dh is not None:
        parts.append(-matmul(y, dh))
    return divided(total(parts), h)


def _divided_pull(g, y, z, h):
    g = divided(g, adjoint(h))
    return fit_cotangent(g, z), fit_cotangent(-matmul(adjoint(y), g), h)


# The X of XH = Z for such an H, with zeros in the columns of zero elements.
divided: Caller = general(
    "divided",
    arity=2,
    compute=lambda xp, z, h: xp.divided(z, h, _tie(xp, h, _HERMITIAN)),
    promote=(0, 1),
    shape=lambda z, h: _beside_diagonal("divided", h, z),
    push=_divided_push,
    pull=_divided_pull,
    reads="y h",
    batch=Stacked((2, 2)),
    sample=spectra("quotients"),
)


def _sandwich(v, a):
    return matmul(matmul(adjoint(v), a), v)


def _eigh_shape(a: Aval) -> tuple[Aval, Aval]:
    a = square("eigh", a)
    return a.like(a.shape[:-1], dtypes.to_real(a.dtype)), a


def _eigh_push(tangents, y, a):
    v = y[1]
    e = _sandwich(v, hermitian(tangents[0]))
    return real(diagonal_of(e)), matmul(v, coupling(hermitian(_sandwich(v, a)), e, _HERMITIAN))


def _eigh_pull(g, y, a):
    (gw, gv), v = g, y[1]
    parts = [] if gw is None else [diag_embed(cast(gw, v.dtype))]
    if gv is not None:
        h = hermitian(_sandwich(v, a))
        parts.append(coupling(h, matmul(adjoint(v), gv), _HERMITIAN))
    return (hermitian(matmul(matmul(v, total(parts)), adjoint(v))),)


# Of a the Hermitian part is taken, so that every element of a has a derivative.
eigh: Caller = lapack(
    "eigh",
    shape=_eigh_shape,
    push=_eigh_push,
    pull=_eigh_pull,
    outputs=2,
    tracked=(0, 1),
    sample=spectra("eigh"),
)


def _eigvalsh_shape(a: Aval) -> Aval:
    a = square("eigvalsh", a)
    return a.like(a.shape[:-1], dtypes.to_real(a.dtype))


def _eigvalsh_pull(g, y, a):
    v = eigh(a)[1]
    return (matmul(v * cast(as_row(g), v.dtype), adjoint(v)),)


eigvalsh: Caller = lapack(
    "eigvalsh",
    shape=_eigvalsh_shape,
    push=lambda tangents, y, a: real(diagonal_of(_sandwich(eigh(a)[1], hermitian(tangents[0])))),
    pull=_eigvalsh_pull,
    reads="a",
    recast=True,
    sample=spectra("eigvalsh"),
)


def _eig_shape(a: Aval) -> tuple[Aval, Aval]:
    a = square("eig", a)
    a = a.like(dtype=dtypes.to_complex(a.dtype))
    return a.like(a.shape[:-1]), a


def _eig_push(tangents, y, a):
    """The vectors keep their norm; their phases are free, and do not turn."""
    v = y[1]
    da, a = cast(tangents[0], v.dtype), cast(a, v.dtype)
    e = solve_matrix(v, matmul(da, v))
    h = solve_matrix(v, matmul(a, v))
    dv = matmul(v, coupling(h, e, _GENERAL))
    along = real(sum_(conj(v) * dv, (len(v.shape) - 2,), True))
    return diagonal_of(e), dv - v * cast(along, v.dtype)


def _eig_pull(g, y, a):
    (gw, gv), v = g, y[1]
    parts = [] if gw is None else [diag_embed(gw)]
    if gv is not None:
        h = solve_matrix(v, matmul(cast(a, v.dtype), v))
        along = real(sum_(conj(v) * gv, (len(v.shape) - 2,), True))
        gv = gv - v * cast(along, v.dtype)
        parts.append(coupling(adjoint(h), matmul(adjoint(v), gv), _GENERAL))
    ga = matmul(solve_matrix(adjoint(v), total(parts)), adjoint(v))
    return (cast(ga, a.dtype),)


# A defective matrix has no basis of eigenvectors, and no derivative here.
eig: Caller = lapack(
    "eig",
    shape=_eig_shape,
    push=_eig_push,
    pull=_eig_pull,
    outputs=2,
    tracked=(0, 1),
    recast=True,
    sample=spectra("eig"),
)


def _eigvals_push(tangents, y, a):
    v = eig(a)[1]
    return diagonal_of(solve_matrix(v, matmul(cast(tangents[0], v.dtype), v)))


def _eigvals_shape(a: Aval) -> Aval:
    a = square("eigvals", a)
    return a.like(a.shape[:-1], dtypes.to_complex(a.dtype))


eigvals: Caller = lapack(
    "eigvals",
    shape=_eigvals_shape,
    push=_eigvals_push,
    reads="a",
    recast=True,
    sample=spectra("eigvals"),
)


def _svd_shape(a: Aval, full: bool) -> tuple[Aval, Aval, Aval]:
    a = matrices("svd", a)
    *batch, m, n = a.shape
    k = min(m, n)
    u, vh = (m, n) if full else (k, k)
    s = a.like((*batch, k), dtypes.to_real(a.dtype))
    return a.like((*batch, m, u)), s, a.like((*batch, vh, n))


def _dilate(m):
    """[[0, M], [Mᴴ, 0]] in the basis where it is diagonal if M is: ±σ."""
    p, q = hermitian(m), (adjoint(m) - m) * 0.5
    last = len(m.shape) - 1
    return concat([concat([p, q], last), concat([-q, -p], last)], last - 1)


def _svd_push(tangents, y, a, full):
    (da,), (u, s, vh) = tangents, y
    k, v = s.shape[-1], adjoint(vh)
    u1, v1 = columns(u, 0, k), columns(v, 0, k)
    if a.shape[-2] < a.shape[-1]:
        dv, du, ds = _tall_svd_push(v1, u1, adjoint(a), adjoint(da))
    else:
        du, dv, ds = _tall_svd_push(u1, v1, a, da)
    if full:
        du, dv = complete_basis_tangent(u, du), complete_basis_tangent(v, dv)
    return du, ds, adjoint(dv)


def _tall_svd_push(u, v, a, da):
    """The tangents of u, v and σ for square v."""
    k = v.shape[-1]
    av, dav = matmul(a, v), matmul(da, v)
    h, e = matmul(adjoint(u), av), matmul(adjoint(u), dav)
    inner, beside, out = e, None, None
    if u.shape[-2] > k:
        # What leads out of the space of u. Of a itself nothing does, but its derivative may
        # where singular values are 0: `beside` is zero in value only.
        beside, out = av - matmul(u, h), dav - matmul(u, e)
        inner = e + matmul(adjoint(divided(out, h)), beside)
    x = rows(coupling(_dilate(h), _dilate(inner), _HERMITIAN), 0, k)
    same, opposite = columns(x, 0, k), columns(x, k, 2 * k)
    du, turn = matmul(u, same + opposite), same - opposite
    if beside is not None:
        du = du + divided(out + matmul(beside, turn), h)
    return du, matmul(v, turn), real(diagonal_of(e))


def _svd_pull(g, y, a, full):
    (gu, gs, gvh), (u, s, vh) = g, y
    k, v = s.shape[-1], adjoint(vh)
    u1, v1 = columns(u, 0, k), columns(v, 0, k)
    gu = None if gu is None else for_first(u, gu, k)
    gv = None if gvh is None else for_first(v, adjoint(gvh), k)
    if a.shape[-2] < a.shape[-1]:
        return (adjoint(_tall_svd_pull(v1, u1, adjoint(a), gv, gs, gu)),)
    return (_tall_svd_pull(u1, v1, a, gu, gs, gv),)


def _tall_svd_pull(u, v, a, gu, gs, gv):
    """The transpose of `_tall_svd_push`, line by line from its end."""
    k = v.shape[-1]
    ge, g_dav = [] if gs is None else [diag_embed(cast(gs, u.dtype))], []
    if gu is not None or gv is not None:
        av = matmul(a, v)
        h = matmul(adjoint(u), av)
        g_left = [] if gu is None else [matmul(adjoint(u), gu)]
        g_turn = [] if gv is None else [matmul(adjoint(v), gv)]
        beside = None
        if u.shape[-2] > k:
            beside = av - matmul(u, h)
            if gu is not None:
                g_dav.append(divided(gu, adjoint(h)))
                g_turn.append(matmul(adjoint(beside), g_dav[0]))
        g_inner = _coupled_pull(h, g_left, g_turn)
        ge.append(g_inner)
        if beside is not None:
            g_dav.append(divided(matmul(beside, adjoint(g_inner)), adjoint(h)))
    inside = matmul(u, total(ge))
    if g_dav:
        out = total(g_dav)
        inside = inside + out - matmul(u, matmul(adjoint(u), out))
    return matmul(inside, adjoint(v))


def _coupled_pull(h, g_left, g_turn):
    """From the cotangents of `same + opposite` and `same - opposite` to that of `inner`."""
    k, last = h.shape[-1], len(h.shape) - 1
    top = concat([total([*g_left, *g_turn]), total([*g_left, *(-x for x in g_turn)])], last)
    x = coupling(_dilate(h), concat([top, top * 0.0], last - 1), _HERMITIAN)
    # The lower half is zero in value only, where singular values are 0.
    above, below = rows(x, 0, k), rows(x, k, 2 * k)
    p = columns(above, 0, k) - columns(below, k, 2 * k)
    q = columns(above, k, 2 * k) - columns(below, 0, k)
    return hermitian(p) + (adjoint(q) - q) * 0.5


# Vectors of a singular value 0, and those that full matrices add, span spaces only.
svd: Caller = lapack(
    "svd",
    shape=_svd_shape,
    push=_svd_push,
    pull=_svd_pull,
    outputs=3,
    tracked=(0, 1, 2),
    static=True,
    sample=spectra("svd"),
)


def _svdvals_shape(a: Aval) -> Aval:
    a = matrices("svdvals", a)
    return a.like((*a.shape[:-2], min(a.shape[-2:])), dtypes.to_real(a.dtype))


def _svdvals_push(tangents, y, a):
    u, _, vh = svd(a, False)
    along = conj(u) * matmul(tangents[0], adjoint(vh))
    return real(sum_(along, (len(u.shape) - 2,), False))


def _svdvals_pull(g, y, a):
    u, _, vh = svd(a, False)
    return (matmul(u * cast(as_row(g), u.dtype), vh),)


svdvals: Caller = lapack(
    "svdvals",
    shape=_svdvals_shape,
    push=_svdvals_push,
    pull=_svdvals_pull,
    reads="a",
    recast=True,
    sample=spectra("svdvals"),
)
