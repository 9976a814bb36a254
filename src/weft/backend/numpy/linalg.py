"""NumPy's names and dtypes fixed for the linalg rows."""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError

from ...core.dtypes import HALF
from .products import QUIET, gradients, product
from .types import Array, Axes, Binary, Function, Shape, Unary

# Below this many products einsum's own loop is faster than setting up a BLAS call.
_SMALL = 4096
# Up to this many unknowns elimination solves a Sylvester equation faster than two Schur
# decompositions, which LAPACK computes one at a time.
_FEW_UNKNOWNS = 36

_Arrangement = tuple[Shape, Axes, Axes, Shape]  # arguments of `_arrange`
_Plan = tuple[_Arrangement, _Arrangement, bool, Shape, Axes]


def matmul(a: Array, b: Array) -> Array:
    if a.itemsize == 2 and a.dtype in HALF:
        return matmul(a.astype(np.float32), b.astype(np.float32)).astype(a.dtype)
    # `dot` reaches BLAS at a third of matmul's overhead, and copies what BLAS cannot read.
    if a.ndim == 2 == b.ndim:
        return a.dot(b) if a.size * b.shape[1] < QUIET else product(a, b)
    if 0 < b.ndim <= 2 < a.ndim and a.size and a.flags.c_contiguous:
        # One large product instead of one for each matrix of the batch.
        lines = a.reshape(-1, a.shape[-1])
        y = product(lines, b) if b.ndim == 2 else lines.dot(b)
        return y.reshape(*a.shape[:-1], *b.shape[1:])
    return np.matmul(a, b)


def linear(x: Array, w: Array, b: Array) -> Array:
    """x·wᵀ + b."""
    if x.itemsize == 2 and x.dtype in HALF:
        wide = [a.astype(np.float32) for a in (x, w, b)]
        return linear(*wide).astype(x.dtype)
    if x.ndim > 1 and x.size and x.flags.c_contiguous:
        return product(x.reshape(-1, x.shape[-1]), w.T, b).reshape(*x.shape[:-1], len(w))
    y = matmul(x, w.T)
    y += b
    return y


def linear_gradient(g: Array, x: Array, w: Array) -> tuple[Array, ...]:
    """g·w, gᵀ·x and Σg, over all lines."""
    if g.itemsize == 2 and g.dtype in HALF:
        found = linear_gradient(*[a.astype(np.float32) for a in (g, x, w)])
        return tuple(a.astype(g.dtype) for a in found)
    lines = g.reshape(math.prod(g.shape[:-1]), g.shape[-1])
    dx, dw, db = gradients(lines, x.reshape(len(lines), x.shape[-1]), w)
    return dx.reshape(x.shape), dw, db


def einsum(operands: Sequence[Array], subscripts: str) -> Array:
    dtype = operands[0].dtype
    if dtype in HALF:
        wide = [x.astype(np.float32) for x in operands]
        return np.asarray(einsum(wide, subscripts)).astype(dtype)
    if not all([x.size for x in operands]):
        return _empty_sums(operands, subscripts)
    if len(operands) != 2:
        return np.einsum(subscripts, *operands, optimize=len(operands) > 2)
    a, b = operands
    plan = _pair_plan(subscripts, a.shape, b.shape)
    if plan is None:
        return np.einsum(subscripts, a, b)
    a_how, b_how, inner, shape, order = plan
    a, b = _arrange(a, *a_how), _arrange(b, *b_how)
    y = matmul(a, b) if inner else a * b
    return y.reshape(shape).transpose(order)


def _empty_sums(operands: Sequence[Array], subscripts: str) -> Array:
    """Zeros: np.einsum multiplies its empty sums by whatever lies in an empty array's memory."""
    terms, out = subscripts.split("->")
    sizes: dict[str, int] = {}
    for term, x in zip(terms.split(","), operands, strict=True):
        for label, n in zip(term, x.shape, strict=True):
            sizes[label] = n if sizes.get(label, 1) == 1 else sizes[label]
    return np.zeros([sizes[label] for label in out], np.result_type(*operands))


def _arrange(x: Array, squeezed: Shape, lonely: Axes, order: Axes, shape: Shape) -> Array:
    x = x.reshape(squeezed)
    if lonely:
        x = x.sum(axis=lonely)
    return x.transpose(order).reshape(shape)


@lru_cache(maxsize=4096)
def _pair_plan(subscripts: str, a_shape: Shape, b_shape: Shape) -> _Plan | None:
    """How a contraction of two arrays becomes one batched product; None: let einsum do it."""
    terms, out = subscripts.split("->")
    first, second = terms.split(",")
    a, b = dict(zip(first, a_shape, strict=True)), dict(zip(second, b_shape, strict=True))
    sizes = {c: max(a.get(c, 1), b.get(c, 1)) for c in a | b}
    if math.prod(sizes.values()) < _SMALL or 0 in (*a.values(), *b.values()):
        return None
    # A label of size one can be dropped from an array if the other one has it.
    a = {c: n for c, n in a.items() if not (c in b and n == 1)}
    b = {c: n for c, n in b.items() if not (c in a and n == 1)}
    batch = [c for c in a if c in b and c in out]
    inner = [c for c in a if c in b and c not in out]
    rows, columns = ([c for c in x if c in out and c not in batch] for x in (a, b))
    many = [math.prod(sizes[c] for c in group) for group in (batch, rows, inner, columns)]
    a_shape, b_shape = (many[0], many[1], many[2]), (many[0], many[2], many[3])
    if not batch:
        a_shape, b_shape = a_shape[1:], b_shape[1:]
    y = [*batch, *rows, *columns]
    return (
        _arrangement(a, [*batch, *rows, *inner], a_shape),
        _arrangement(b, [*batch, *inner, *columns], b_shape),
        bool(inner),
        tuple(sizes[c] for c in y),
        tuple(y.index(c) for c in out),
    )


def _arrangement(sizes: dict[str, int], wanted: list[str], shape: Shape) -> _Arrangement:
    """Arguments of `_arrange`: the axes to sum, whose labels occur once, and the others' order."""
    lonely = tuple(k for k, c in enumerate(sizes) if c not in wanted)
    left = [c for c in sizes if c in wanted]
    return tuple(sizes.values()), lonely, tuple(left.index(c) for c in wanted), shape


def cross(a: Array, b: Array) -> Array:
    return np.linalg.cross(a, b)


def identity_like(a: Array) -> Array:
    out = np.zeros_like(a)
    out[...] = np.eye(a.shape[-1], dtype=a.dtype)
    return out


def hermitian(a: Array) -> Array:
    return (a + a.conj().swapaxes(-1, -2)) * 0.5


def lapack(f: Function) -> Function:
    """f with errors that name the operation."""

    @wraps(f)
    def call(*args):
        try:
            return f(*args)
        except LinAlgError as e:
            raise LinAlgError(explain_lapack(f.__name__, str(e))) from None

    return call  # type: ignore[return-value]


def explain_lapack(name: str, reason: str) -> str:
    """LAPACK's message with the operation's name and, where known, a remedy."""
    if "ingular" in reason:
        return f"{name}: the matrix is singular (pinv and lstsq take such matrices)"
    if "ositive definite" in reason or "positive-definite" in reason:
        return f"{name}: the matrix is not positive definite (add a multiple of the identity?)"
    return f"{name}: {reason}"


det: Unary = lapack(np.linalg.det)
inv: Unary = lapack(np.linalg.inv)
solve: Binary = lapack(np.linalg.solve)
svdvals: Unary = lapack(np.linalg.svdvals)


@lapack
def slogdet(a: Array) -> tuple[Array, ...]:
    return tuple(np.linalg.slogdet(a))


def det_and_inv(a: Array) -> tuple[Array, Array] | None:
    """Both from one factorisation; None if a pivot is 0."""
    sign, log = np.linalg.slogdet(a)
    return None if (sign == 0).any() else (sign * np.exp(log), np.linalg.inv(a))


@lapack
def cholesky(a: Array, upper: bool) -> Array:
    return np.linalg.cholesky(hermitian(a), upper=upper)


@lapack
def pinv(a: Array, rtol: float) -> Array:
    return np.linalg.pinv(a, rcond=rtol)


@lapack
def matrix_rank(a: Array, rtol: float) -> Array:
    return np.linalg.matrix_rank(a, rtol=rtol)


@lapack
def qr(a: Array, mode: Any) -> tuple[Array, ...]:
    return tuple(np.linalg.qr(a, mode))


@lapack
def lu(a: Array) -> tuple[Array, ...] | tuple[Array, Array, Array]:
    from scipy.linalg import lu

    if not a.size:
        m, n = a.shape[-2:]
        k = min(m, n)
        shapes = ((m, m), (m, k), (k, n))
        return tuple(
            np.zeros(a.shape[:-2], a.dtype)[..., None, None] + np.eye(*s, dtype=a.dtype)
            for s in shapes
        )
    found: Any = lu(a, check_finite=False)
    p, lower, upper = found
    return p.astype(a.dtype), lower, upper


_PREFIX = {"f": "s", "d": "d", "F": "c", "D": "z"}


@lapack
def triangular_solve(a: Array, b: Array, lower: bool, unit: bool) -> Array:
    from scipy.linalg import lapack as routines

    if not a.shape[-2] == a.shape[-1] == b.shape[-2]:
        raise ValueError("LAPACK would read beyond the arrays")  # the row's shape rule says why
    if math.prod(np.broadcast_shapes(a.shape[:-2], b.shape[:-2])) > a.shape[-1]:
        return _substitute(a, b, lower, unit)
    trtrs = getattr(routines, f"{_PREFIX[a.dtype.char]}trtrs")

    def one(a, b):
        # Fortran reads the transpose of what NumPy has written.
        x, info = trtrs(a.T, b, lower=not lower, trans=1, unitdiag=unit)
        if info:
            raise LinAlgError("singular")
        return x

    return _each(one, a, b, shape=b.shape[-2:])


def _substitute(a: Array, b: Array, lower: bool, unit: bool) -> Array:
    """Row after row, for all matrices of a batch at a time."""
    if not unit and (a.diagonal(0, -2, -1) == 0).any():
        raise LinAlgError("singular")
    n = a.shape[-1]
    x = np.zeros((*a.shape[:-2], 1, 1), a.dtype) + b
    for i in range(n) if lower else reversed(range(n)):
        known = slice(0, i) if lower else slice(i + 1, n)
        x[..., i, :] -= (a[..., i : i + 1, known] @ x[..., known, :])[..., 0, :]
        if not unit:
            x[..., i, :] /= a[..., i, i, None]
    return x


@lapack
def sylvester(a: Array, b: Array, q: Array) -> Array:
    from scipy.linalg import solve_sylvester

    if math.prod(q.shape[-2:]) <= _FEW_UNKNOWNS:
        return _as_linear_system(a, b, q)
    return _each(solve_sylvester, a, b, q, shape=q.shape[-2:])


def _as_linear_system(a: Array, b: Array, q: Array) -> Array:
    """(A ⊗ 1 + 1 ⊗ Bᵀ)·x = q for all matrices of a batch at a time."""
    m, n = q.shape[-2:]
    left = a[..., :, None, :, None] * np.eye(n, dtype=a.dtype)[:, None, :]
    right = np.eye(m, dtype=a.dtype)[:, None, :, None] * b.swapaxes(-1, -2)[..., None, :, None, :]
    k = left + right
    k = k.reshape(*k.shape[:-4], m * n, m * n)
    if k.ndim == 2:  # one matrix, and columns
        columns = q.reshape(math.prod(q.shape[:-2]), m * n).T
        return np.linalg.solve(k, columns).T.reshape(q.shape)
    y = np.linalg.solve(k, q.reshape(*q.shape[:-2], m * n, 1))
    return y.reshape(*y.shape[:-2], m, n)


def _each(f: Callable[..., Array], *args: Array, shape: Shape) -> Array:
    """f of every matrix of a batch."""
    batch = np.broadcast_shapes(*(x.shape[:-2] for x in args))
    out = np.zeros((*batch, *shape), args[0].dtype)
    if not out.size:
        return out
    spread = [np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in args]
    for k in np.ndindex(batch):
        out[k] = f(*(x[k] for x in spread))
    return out


@lapack
def eigh(a: Array) -> tuple[Array, ...]:
    return tuple(np.linalg.eigh(hermitian(a)))


@lapack
def eigvalsh(a: Array) -> Array:
    return np.linalg.eigvalsh(hermitian(a))


def _complex(x: Array) -> Array:
    return x.astype(np.result_type(x.dtype, np.complex64), copy=False)


@lapack
def eig(a: Array) -> tuple[Array, ...]:
    return tuple(map(_complex, np.linalg.eig(a)))


@lapack
def eigvals(a: Array) -> Array:
    return _complex(np.linalg.eigvals(a))


@lapack
def svd(a: Array, full: bool) -> tuple[Array, ...]:
    return tuple(np.linalg.svd(a, full_matrices=full))


def coupling(h: Array, e: Array, tie: float) -> Array:
    w = h.diagonal(0, -2, -1)
    gap = w[..., None, :] - w[..., :, None]
    apart = np.abs(gap) > _largest(w)[..., None, None] * tie
    return np.where(apart, e / np.where(apart, gap, 1), 0)


def divided(z: Array, h: Array, tie: float) -> Array:
    w = h.diagonal(0, -2, -1)
    apart = np.abs(w) > _largest(w)[..., None] * tie
    return np.where(apart[..., None, :], z / np.where(apart, w, 1)[..., None, :], 0)


def _largest(w: Array) -> Array:
    return np.abs(w).max(-1, initial=0)


def binade(e: Array) -> Array:
    largest = np.abs(e).max((-2, -1), keepdims=True, initial=0)
    usable = (largest > 0) & np.isfinite(largest)
    return np.exp2(np.floor(np.log2(np.where(usable, largest, 1)))).astype(e.dtype)


@lapack
def expm(a: Array) -> Array:
    from scipy.linalg import expm

    return expm(a)


@lapack
def sqrtm(a: Array) -> Array:
    from scipy.linalg import sqrtm

    return _of_same_kind("sqrtm", sqrtm(a), a)  # pyright: ignore[reportArgumentType] (no pair)


@lapack
def logm(a: Array) -> Array:
    from scipy.linalg import logm

    wide = a.astype(np.result_type(a.dtype, np.float64))
    out = np.empty_like(a)
    for k in np.ndindex(a.shape[:-2]):
        if a.shape[-1]:
            out[k] = _of_same_kind("logm", logm(wide[k]), a)  # pyright: ignore[reportArgumentType]
    return out


def _of_same_kind(name: str, y: Array, a: Array) -> Array:
    if np.iscomplexobj(y) and not np.iscomplexobj(a):
        raise LinAlgError(
            f"{name}: a real matrix with an eigenvalue on the negative axis has a complex "
            "result; cast it to a complex dtype first"
        )
    return y


def fftn(x: Array, axes: Axes, norm: Any) -> Array:
    return np.fft.fftn(x, axes=axes, norm=norm)


def ifftn(x: Array, axes: Axes, norm: Any) -> Array:
    return np.fft.ifftn(x, axes=axes, norm=norm)


def rfft(x: Array, axis: int, norm: Any) -> Array:
    return np.fft.rfft(x, axis=axis, norm=norm)


def irfft(x: Array, n: int, axis: int, norm: Any) -> Array:
    return np.fft.irfft(x, n, axis, norm)
