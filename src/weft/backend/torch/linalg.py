"""PyTorch's names and dtypes fixed for the linalg rows."""

import math
from collections.abc import Callable, Sequence
from functools import wraps

import numpy as np
import torch
from numpy.linalg import LinAlgError
from torch import linalg

from ..numpy import linalg as numpy_linalg
from .types import Array, Axes, Function, Unary


def linear(x: Array, w: Array, b: Array) -> Array:
    """x·wᵀ + b."""
    if x.is_floating_point() or x.is_complex():
        return torch.nn.functional.linear(x, w, b)
    return torch.matmul(x, w.mT) + b


def linear_gradient(g: Array, x: Array, w: Array) -> tuple[Array, Array, Array]:
    """g·w, gᵀ·x and Σg, over all lines."""
    if g.ndim == 2:
        return torch.mm(g, w), torch.mm(g.t(), x), g.sum(0)
    count = math.prod(g.shape[:-1])
    lines = g.reshape(count, g.shape[-1])
    dw = torch.mm(lines.t(), x.reshape(count, x.shape[-1]))
    return torch.matmul(g, w), dw, lines.sum(0)


def einsum(operands: Sequence[Array], subscripts: str) -> Array:
    return torch.einsum(subscripts, *operands)


def cross(a: Array, b: Array) -> Array:
    return linalg.cross(*torch.broadcast_tensors(a, b))


def identity_like(a: Array) -> Array:
    return torch.eye(a.shape[-1], dtype=a.dtype, device=a.device).expand(a.shape)


def hermitian(a: Array) -> Array:
    return (a + a.mH) * 0.5


def lapack(f: Function) -> Function:
    """f with NumPy's kind of error, which names the operation."""

    @wraps(f)
    def call(*args):
        try:
            return f(*args)
        except linalg.LinAlgError as e:  # pyright: ignore[reportPrivateImportUsage]
            name = f.__name__.removeprefix("linalg_")
            raise LinAlgError(numpy_linalg.explain_lapack(name, str(e))) from None

    return call  # type: ignore[return-value]


det: Unary = lapack(linalg.det)
inv: Unary = lapack(linalg.inv)
svdvals: Unary = lapack(linalg.svdvals)
expm: Unary = lapack(linalg.matrix_exp)


@lapack
def solve(a: Array, b: Array) -> Array:
    # With fewer axes than a, b could be taken for a batch of vectors.
    return linalg.solve(a, b.expand(*(1,) * (a.ndim - b.ndim), *b.shape))


@lapack
def slogdet(a: Array) -> tuple[Array, ...]:
    return tuple(linalg.slogdet(a))


def det_and_inv(a: Array) -> tuple[Array, Array] | None:
    """Both from one factorisation; None if a pivot is 0."""
    n = a.shape[-1]
    factors, pivots, _ = linalg.lu_factor_ex(a)
    d = factors.diagonal(0, -2, -1)
    if (d == 0).any():
        return None
    odd = (pivots != torch.arange(1, n + 1, device=a.device)).sum(-1) % 2
    det = d.sgn().prod(-1) * d.abs().log().sum(-1).exp() * (1 - 2 * odd)
    return det, linalg.lu_solve(factors, pivots, torch.eye(n, dtype=a.dtype, device=a.device))


@lapack
def cholesky(a: Array, upper: bool) -> Array:
    return linalg.cholesky(hermitian(a), upper=upper)


@lapack
def pinv(a: Array, rtol: float) -> Array:
    return linalg.pinv(a, rtol=rtol)


def matrix_rank(a: Array, rtol: float) -> Array:
    return linalg.matrix_rank(a, rtol=rtol)


@lapack
def qr(a: Array, mode: str) -> tuple[Array, ...]:
    return tuple(linalg.qr(a, mode))


@lapack
def lu(a: Array) -> tuple[Array, ...]:
    return tuple(linalg.lu(a))


@lapack
def triangular_solve(a: Array, b: Array, lower: bool, unit: bool) -> Array:
    y = linalg.solve_triangular(a, b, upper=not lower, unitriangular=unit)
    if not unit and (a.diagonal(0, -2, -1) == 0).any():
        raise linalg.LinAlgError("singular")  # pyright: ignore[reportPrivateImportUsage]
    return y


@lapack
def eigh(a: Array) -> tuple[Array, ...]:
    return tuple(linalg.eigh(hermitian(a)))


@lapack
def eigvalsh(a: Array) -> Array:
    return linalg.eigvalsh(hermitian(a))


@lapack
def eig(a: Array) -> tuple[Array, ...]:
    # On CUDA torch 2.11 gives the eigenvectors of the transpose for a transposed matrix.
    return tuple(linalg.eig(a.contiguous()))


@lapack
def eigvals(a: Array) -> Array:
    return linalg.eigvals(a.contiguous())


@lapack
def svd(a: Array, full: bool) -> tuple[Array, ...]:
    return tuple(linalg.svd(a, full_matrices=full))


def coupling(h: Array, e: Array, tie: float) -> Array:
    w = h.diagonal(0, -2, -1)
    gap = w.unsqueeze(-2) - w.unsqueeze(-1)
    apart = gap.abs() > _largest(w)[..., None, None] * tie
    return torch.where(apart, e / torch.where(apart, gap, 1), 0)


def divided(z: Array, h: Array, tie: float) -> Array:
    w = h.diagonal(0, -2, -1).unsqueeze(-2)
    apart = w.abs() > _largest(w)[..., None] * tie
    return torch.where(apart, z / torch.where(apart, w, 1), 0)


def _largest(w: Array) -> Array:
    return w.abs().amax(-1) if w.shape[-1] else w.abs().sum(-1)


def binade(e: Array) -> Array:
    if not e.numel():
        return torch.ones((*e.shape[:-2], 1, 1), dtype=e.dtype, device=e.device)
    largest = e.abs().amax((-2, -1), keepdim=True)
    usable = (largest > 0) & largest.isfinite()
    return torch.where(usable, largest, 1).log2().floor().exp2().to(e.dtype)


def _on_host(f: Callable[..., np.ndarray]) -> Callable[..., Array]:
    """f of NumPy arrays: torch has no Schur decomposition, on no device."""

    @wraps(f)
    def call(*args):
        bare = [x.detach().cpu().resolve_conj().numpy() for x in args]
        return torch.from_numpy(np.ascontiguousarray(f(*bare))).to(args[0].device)

    return call


sqrtm: Unary = _on_host(numpy_linalg.sqrtm)
logm: Unary = _on_host(numpy_linalg.logm)
sylvester: Callable[[Array, Array, Array], Array] = _on_host(numpy_linalg.sylvester)


# torch transforms no empty array.


def fftn(x: Array, axes: Axes, norm: str) -> Array:
    return torch.fft.fftn(x, dim=axes, norm=norm) if x.numel() else x + 0j


def ifftn(x: Array, axes: Axes, norm: str) -> Array:
    return torch.fft.ifftn(x, dim=axes, norm=norm) if x.numel() else x + 0j


def rfft(x: Array, axis: int, norm: str) -> Array:
    if x.numel():
        return torch.fft.rfft(x, dim=axis, norm=norm)
    return x.narrow(axis, 0, x.shape[axis] // 2 + 1) + 0j


def irfft(x: Array, n: int, axis: int, norm: str) -> Array:
    if x.numel():
        return torch.fft.irfft(x, n, axis, norm)
    return torch.zeros(
        (*x.shape[:axis], n, *x.shape[axis + 1 :]), dtype=x.real.dtype, device=x.device
    )
