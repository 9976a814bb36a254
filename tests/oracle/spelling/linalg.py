"""Torch's linear algebra in Weft's spelling."""

import math

import weft as wf

from .reductions import _axis

DIRECT = {
    "__rmatmul__": "Tensor.__rmatmul__",
    "bmm": "matmul",
    "bmm/triton_optimized": "matmul",
    "dot": "dot",
    "inner": "inner",
    "kron": "kron",
    "linalg.det": "linalg.det",
    "linalg.eig": "linalg.eig",
    "linalg.eigvals": "linalg.eigvals",
    "linalg.inv": "linalg.inv",
    "linalg.matrix_power": "linalg.matrix_power",
    "linalg.multi_dot": "linalg.multi_dot",
    "linalg.slogdet": "linalg.slogdet",
    "linalg.svdvals": "linalg.svdvals",
    "matmul": "matmul",
    "matrix_exp": "linalg.expm",
    "mm": "matmul",
    "mv": "matmul",
    "outer": "outer",
    "trace": "trace",
    "vdot": "vdot",
}


def adjoint(x):
    return wf.conj(wf.matrix_transpose(x))


def hermitian(f):
    """Torch differentiates these at x + xᴴ, so that every change of x stays in the domain."""

    def of_sum(x, *args, **kwargs):
        return f(x + adjoint(x), *args, **kwargs)

    return of_sum


def addmm(x, a, b, *, beta=1, alpha=1):
    return beta * x + alpha * (a @ b)


def addbmm(x, a, b, *, beta=1, alpha=1):
    return beta * x + alpha * wf.sum(a @ b, axis=0)


def addr(x, a, b, *, beta=1, alpha=1):
    return beta * x + alpha * wf.outer(a, b)


def einsum(operands, equation):
    return wf.einsum(equation, *operands)


def tensordot(a, b, *, dims):
    return wf.tensordot(a, b, axes=dims)


def vecdot(a, b, *, dim=-1):
    return wf.vecdot(a, b, axis=dim)


def cross(a, b, *, dim=-1):
    return wf.cross(a, b, axis=dim)


def cross_over_first(a, b, dim=None):
    """Without an axis, torch.cross takes the first of length 3."""
    return wf.cross(a, b, axis=a.shape.index(3) if dim is None else dim)


def cholesky(x, *, upper=False):
    return wf.linalg.cholesky(x, upper=upper)


def cholesky_ex(x, *, upper=False, check_errors=False):
    return wf.linalg.cholesky(x, upper=upper), wf.zeros(x.shape[:-2], dtype="int32")


def _triangle(x, upper):
    return wf.triu(x) if upper else wf.tril(x)


def cholesky_solve(b, factor, *, upper=False):
    """Torch differentiates this at the factor's triangle."""
    c = _triangle(factor, upper)
    a, c2 = (adjoint(c), c) if upper else (c, adjoint(c))
    half = wf.linalg.solve_triangular(a, b, lower=True)
    return wf.linalg.solve_triangular(c2, half, lower=False)


def triangular_solve(b, a, *, upper=False, transpose=False, unitriangular=False):
    """Torch differentiates this at the triangle, and returns it too."""
    a = _triangle(a, upper)
    return wf.linalg.solve_triangular(a, b, lower=not upper), a


def solve(a, b):
    """Torch reads b of shape (…, n) beside a of shape (…, n, n) as vectors."""
    if b.ndim > 1 and b.shape == a.shape[:-1]:
        return wf.squeeze(wf.linalg.solve(a, wf.expand_dims(b, axis=-1)), axis=-1)
    return wf.linalg.solve(a, b)


def solve_ex(a, b):
    return solve(a, b), wf.zeros(a.shape[:-2], dtype="int32")


def inv_ex(a, *, check_errors=False):
    return wf.linalg.inv(a), wf.zeros(a.shape[:-2], dtype="int32")


def solve_triangular(a, b, *, upper, left=True, unitriangular=False):
    """From the right: x·a = b is aᵀ·xᵀ = bᵀ."""
    t = wf.matrix_transpose
    if left:
        return wf.linalg.solve_triangular(a, b, lower=not upper, unit_diagonal=unitriangular)
    return t(wf.linalg.solve_triangular(t(a), t(b), lower=upper, unit_diagonal=unitriangular))


def eigh(x, UPLO="L"):
    return wf.linalg.eigh(x)


def eigvalsh(x, UPLO="L"):
    return wf.linalg.eigvalsh(x)


def svd(x, *, full_matrices=True):
    return wf.linalg.svd(x, full_matrices=full_matrices)


def qr(x, *, mode="reduced"):
    return wf.linalg.qr(x, mode=mode)


def qr_old(x, some=True):
    return wf.linalg.qr(x, mode="reduced" if some else "complete")


def lu(x, *, pivot=True):
    return wf.linalg.lu(x)


def logdet(x):
    sign, size = wf.linalg.slogdet(x)
    return size if sign.dtype.kind == "f" else size + wf.log(sign)


def pinv(x, *, rtol=None, hermitian=False):
    return wf.linalg.pinv(x, rtol=rtol)


def pinv_of_product(a, b):
    return wf.linalg.pinv(a @ wf.matrix_transpose(b))


def matrix_rank(x, *, atol=None, rtol=None, hermitian=False):
    return wf.linalg.matrix_rank(x, rtol=rtol)


def lstsq(a, b, *, driver):
    """Torch leaves empty what a driver does not find, and residuals unless a is tall."""
    found = wf.linalg.lstsq(a, b)
    nothing = found.residuals[..., :0].reshape((0,))
    tall = a.shape[-2] > a.shape[-1] and driver != "gelsy"
    residuals = found.residuals if tall else nothing
    rank = wf.zeros((0,), dtype="int64") if driver == "gels" else found.rank
    values = found.singular_values if driver in ("gelsd", "gelss") else nothing
    return found.solution, residuals, rank, values


def lstsq_differentiable(a, b, driver):
    return lstsq(a, b, driver=driver)[:2]


def vector_norm(x, ord=2, dim=None, keepdim=False):
    return wf.linalg.vector_norm(x, ord=ord, axis=_axis(dim), keepdims=keepdim)


def matrix_norm(x, ord="fro", dim=(-2, -1), keepdim=False):
    y = wf.linalg.matrix_norm(wf.moveaxis(x, dim, (-2, -1)), ord=ord, keepdims=keepdim)
    return wf.moveaxis(y, (-2, -1), dim) if keepdim else y


def norm(x, ord=None, dim=None, keepdim=False):
    return wf.linalg.norm(x, ord, axis=dim, keepdims=keepdim)


def norm_old(x, p="fro", dim=None, keepdim=False):
    """torch.norm: matrix norms by name only, any number else is a vector norm."""
    if p == "nuc":
        return wf.linalg.matrix_norm(x, ord="nuc")
    return vector_norm(x, 2 if p == "fro" else p, _listed(dim), keepdim)


def _listed(dim):
    return tuple(dim) if isinstance(dim, list) else dim


def dist(x, y, p=2):
    return wf.linalg.vector_norm(x - y, ord=p)


def cond(x, p=None):
    s = wf.linalg.svdvals(x)
    return s[..., 0] / s[..., -1]


def vander(x, *, N=None):
    x = wf.reshape(x, (1,)) if x.ndim == 0 else x
    powers = range(x.shape[-1] if N is None else N)
    return wf.stack([x**k for k in powers], axis=-1)


def tensorinv(x, *, ind=2):
    rows, columns = x.shape[:ind], x.shape[ind:]
    n = math.prod(rows)
    return wf.reshape(wf.linalg.inv(wf.reshape(x, (n, n))), (*columns, *rows))


SPELLINGS = {
    **DIRECT,
    "addbmm": addbmm,
    "addmm": addmm,
    "addmm/decomposed": addmm,
    "addmv": addmm,
    "addr": addr,
    "baddbmm": addmm,
    "cholesky": hermitian(cholesky),
    "cholesky_solve": cholesky_solve,
    "cross": cross_over_first,
    "dist": dist,
    "einsum": einsum,
    "linalg.cholesky": hermitian(cholesky),
    "linalg.cholesky_ex": hermitian(cholesky_ex),
    "linalg.cond": cond,
    "linalg.cross": cross,
    "linalg.eigh": hermitian(eigh),
    "linalg.eigvalsh": hermitian(eigvalsh),
    "linalg.inv_ex": inv_ex,
    "linalg.lstsq": lstsq,
    "linalg.lstsq/grad_oriented": lstsq_differentiable,
    "linalg.lu": lu,
    "linalg.matrix_norm": matrix_norm,
    "linalg.matrix_rank": matrix_rank,
    "linalg.matrix_rank/hermitian": matrix_rank,
    "linalg.norm": norm,
    "linalg.norm/subgradients_at_zero": norm,
    "linalg.pinv": pinv,
    "linalg.pinv/hermitian": hermitian(pinv),
    "linalg.pinv/singular": pinv_of_product,
    "linalg.qr": qr,
    "linalg.solve": solve,
    "linalg.solve_ex": solve_ex,
    "linalg.solve_triangular": solve_triangular,
    "linalg.svd": svd,
    "linalg.tensorinv": tensorinv,
    "linalg.vander": vander,
    "linalg.vecdot": vecdot,
    "linalg.vector_norm": vector_norm,
    "logdet": logdet,
    "norm": norm_old,
    "norm/fro": norm_old,
    "norm/inf": norm_old,
    "norm/nuc": norm_old,
    "pinverse": pinv,
    "qr": qr_old,
    "tensordot": tensordot,
    "triangular_solve": triangular_solve,
}
