"""Inputs for the rows of linear algebra and of Fourier transforms."""

import numpy as np

from ...core.aval import Shape
from .case import Case, Cases, Rng

_PRODUCTS = (
    ((2, 3), (3, 2)),
    ((3,), (3,)),
    ((3,), (3, 2)),
    ((2, 3), (3,)),
    ((2, 2, 3), (3, 2)),
    ((2, 3), (2, 3, 2)),
    ((2, 2, 3), (3,)),
    ((3,), (2, 3, 2)),
    ((2, 1, 2, 2), (3, 2, 1)),
    ((1, 2, 2), (2, 1)),
    ((0, 2), (2, 3)),
    ((2, 0), (0, 3)),
    ((0, 2, 2), (2, 2)),
    ((2, 2), (0, 2, 2)),
)


def draw(rng: Rng, shape: Shape, complex_: bool = False) -> np.ndarray:
    """Standard normal entries."""
    x = rng.standard_normal(shape)
    return x + 1j * rng.standard_normal(shape) if complex_ else x


def matmul(rng: Rng) -> Cases:
    for a, b in _PRODUCTS:
        yield Case((draw(rng, a), draw(rng, b)), label=f"{a}@{b}")
    for a, b in _PRODUCTS[:6]:
        yield Case((draw(rng, a, True), draw(rng, b, True)), label=f"complex {a}@{b}")


_AFFINE = (((2, 3), 2), ((3,), 2), ((2, 1, 3), 2), ((0, 2), 3), ((2, 0), 3), ((2, 2), 0))


def affine(rng: Rng) -> Cases:
    for x, out in _AFFINE:
        shapes = (x, (out, x[-1]), (out,))
        yield Case(tuple(draw(rng, s) for s in shapes), label=f"{x} to {out}")
        if out == 2:
            yield Case(tuple(draw(rng, s, True) for s in shapes), label=f"complex {x} to {out}")


def affine_gradient(rng: Rng) -> Cases:
    for x, out in _AFFINE:
        shapes = ((*x[:-1], out), x, (out, x[-1]))
        yield Case(tuple(draw(rng, s) for s in shapes), label=f"{x} to {out}")
        if out == 2:
            yield Case(tuple(draw(rng, s, True) for s in shapes), label=f"complex {x} to {out}")


_CONTRACTIONS = (
    ("ij,jk->ik", (2, 3), (3, 2)),
    ("ij,kj->ki", (2, 3), (2, 3)),
    ("i,j->ij", (2,), (3,)),
    ("bij,bjk->bki", (2, 2, 3), (2, 3, 1)),
    ("i,i->", (3,), (3,)),
    ("ij,ij->j", (3, 2), (3, 2)),
    ("ij,jk->k", (2, 3), (3, 2)),
    ("ij,jk->ik", (2, 1), (3, 2)),
    ("ij,jk->ik", (2, 3), (1, 2)),
    ("ai,bi->abi", (1, 3), (2, 1)),
    ("ij,jk,kl->il", (2, 2), (2, 3), (3, 1)),
    ("ij->ji", (2, 3)),
    ("ij->i", (2, 3)),
    ("ij,jk->ik", (2, 0), (0, 3)),
    ("ij,jk->ik", (0, 2), (2, 3)),
    (",i->i", (), (3,)),
)


def einsum(rng: Rng) -> Cases:
    for subscripts, *shapes in _CONTRACTIONS:
        args = tuple(draw(rng, s) for s in shapes)
        yield Case(args, (subscripts,), f"{subscripts} {shapes}")
    for subscripts, *shapes in _CONTRACTIONS[:5]:
        args = tuple(draw(rng, s, True) for s in shapes)
        yield Case(args, (subscripts,), f"complex {subscripts}")
    # Large enough for the way through BLAS.
    args = draw(rng, (16, 20)), draw(rng, (2, 20, 7))
    yield Case(args, ("ij,bjk->kbi",), "by BLAS")
    args = draw(rng, (1, 16, 5)), draw(rng, (5, 16, 13))
    yield Case(args, ("bij,jbk->ki",), "by BLAS, stretched")
    yield Case((draw(rng, (3, 30)), draw(rng, (3, 50))), ("bi,bj->jbi",), "large products")


def cross(rng: Rng) -> Cases:
    for a, b in (((3,), (3,)), ((2, 3), (3,)), ((2, 1, 3), (2, 3)), ((0, 3), (3,))):
        yield Case((draw(rng, a), draw(rng, b)), label=f"{a}×{b}")
    yield Case((draw(rng, (3,), True), draw(rng, (2, 3), True)), label="complex")


def near_identity(rng: Rng, shape: Shape, complex_: bool = False) -> np.ndarray:
    """Well-conditioned square matrices."""
    n = shape[-1]
    return draw(rng, shape, complex_) * (0.5 / max(n, 1) ** 0.5) + np.eye(n)


SQUARES = ((1, 1), (2, 2), (3, 3), (2, 2, 2), (0, 0), (0, 2, 2))


def regular(rng: Rng) -> Cases:
    for shape in SQUARES:
        yield Case((near_identity(rng, shape),), label=f"{shape}")
    yield Case((near_identity(rng, (2, 2), True),), label="complex")


def of_rank(rng: Rng, n: int, r: int, complex_: bool = False) -> np.ndarray:
    return draw(rng, (n, r), complex_) @ draw(rng, (r, n), complex_)


def determinants(rng: Rng) -> Cases:
    yield from regular(rng)
    for n, r in ((2, 1), (3, 2)):
        yield Case((of_rank(rng, n, r),), label=f"rank {r} of {n}")
    exact = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]])
    yield Case((exact,), label="two rows proportional")
    # Where all first derivatives are 0, a regular matrix beside gives the scale of rounding.
    for n, r in ((2, 0), (3, 1), (3, 2), (4, 2)):
        pair = np.stack([of_rank(rng, n, r), near_identity(rng, (n, n))])
        yield Case((pair,), label=f"rank {r} of {n}, and a regular matrix")
    yield Case((of_rank(rng, 3, 2, True),), label="complex, rank 2 of 3")


def matrix_directions(rng: Rng) -> Cases:
    """A matrix and a direction."""
    for case in regular(rng):
        (a,) = case.args
        yield Case((a, draw(rng, a.shape, a.dtype.kind == "c")), label=case.label)
    yield Case((near_identity(rng, (2, 2)), draw(rng, (2, 2, 2))), label="several directions")


def slogdet(rng: Rng) -> Cases:
    yield from regular(rng)
    yield Case((-near_identity(rng, (3, 3)),), label="negative")


def systems(rng: Rng) -> Cases:
    shapes = (((2, 2), (2, 1)), ((3, 3), (3, 2)), ((2, 2, 2), (2, 2)), ((2, 2), (2, 2, 1)))
    for a, b in (*shapes, ((0, 0), (0, 2)), ((2, 2), (2, 0)), ((0, 2, 2), (2, 1))):
        yield Case((near_identity(rng, a), draw(rng, b)), label=f"{a}, {b}")
    for a, b in shapes[1:3]:
        yield Case((near_identity(rng, a, True), draw(rng, b, True)), label=f"complex {a}, {b}")


def triangles(rng: Rng) -> Cases:
    for case in systems(rng):
        for lower, unit in ((True, False), (False, False), (True, True)):
            label = f"{'lower' if lower else 'upper'}{', unit' * unit}, {case.label}"
            yield Case(case.args, (lower, unit), label)
    many = near_identity(rng, (3, 2, 2)), draw(rng, (2, 2))
    for lower in (True, False):
        yield Case(many, (lower, False), f"more matrices than rows, lower={lower}")


def positive(rng: Rng, shape: Shape, complex_: bool = False) -> np.ndarray:
    a = near_identity(rng, shape, complex_)
    return a @ a.conj().swapaxes(-1, -2)


def cholesky(rng: Rng) -> Cases:
    for shape in SQUARES:
        yield Case((positive(rng, shape),), (False,), f"{shape}")
    for upper in (False, True):
        yield Case((positive(rng, (2, 2), True),), (upper,), f"complex, upper={upper}")
    skewed = positive(rng, (3, 3)) + np.triu(draw(rng, (3, 3)), 1) * 0.1
    yield Case((skewed,), (True,), "not symmetric")


def rectangles(rng: Rng) -> Cases:
    for shape in ((1, 1), (2, 2), (3, 2), (2, 3), (2, 3, 2), (0, 2), (2, 0), (0, 2, 2)):
        yield Case((draw(rng, shape),), label=f"{shape}")
    for shape in ((2, 2), (3, 2), (2, 3)):
        yield Case((draw(rng, shape, True),), label=f"complex {shape}")


def pinv(rng: Rng) -> Cases:
    for shape in ((2, 2), (3, 2), (2, 3), (2, 3, 2), (0, 2), (2, 0), (0, 2, 2)):
        yield Case((draw(rng, shape), 1e-9), label=f"{shape}")
    yield Case((draw(rng, (3, 2), True), 1e-6), label="complex (3, 2)")
    each = np.array([1e-3, 1e-6])
    yield Case((draw(rng, (2, 2, 3)), each), label="a tolerance for each")
    # Where the rank changes, so does the number of large singular values: no derivative.
    yield Case((of_rank(rng, 3, 1), 1e-6), label="rank 1 of 3", smooth=False)


def ranks(rng: Rng) -> Cases:
    for shape in ((3, 2), (2, 2, 2), (0, 2), (0, 2, 2)):
        yield Case((draw(rng, shape), 1e-9), label=f"{shape}")
    yield Case((of_rank(rng, 3, 1), 1e-4), label="rank 1 of 3")
    yield Case((np.stack([np.diag([1.0, 0.1])] * 2), np.array([0.5, 0.01])), label="for each")
    yield Case((np.zeros((2, 2)), 1e-9), label="zero")


JORDAN = np.array([[0.7, 1.0, 0.0], [0.0, 0.7, 1.0], [0.0, 0.0, 0.7]])


def exponents(rng: Rng) -> Cases:
    for shape in SQUARES:
        yield Case((draw(rng, shape),), label=f"{shape}")
    yield Case((draw(rng, (2, 2), True),), label="complex")
    yield Case((JORDAN,), label="defective")
    yield Case((np.zeros((2, 2)),), label="zero")
    yield Case((np.diag([1.0, 1.0, 2.0]),), label="degenerate")


def powers(rng: Rng) -> Cases:
    yield from regular(rng)
    yield Case((JORDAN,), label="defective")
    yield Case((np.diag([1.0, 1.0, 2.0]),), label="degenerate")
    yield Case((np.eye(2),), label="identity")
    turned = np.array([[0.6, -0.8], [0.8, 0.6]]) * 2
    yield Case((turned,), label="complex eigenvalues")


def sylvester(rng: Rng) -> Cases:
    for m, n in ((1, 1), (2, 2), (3, 2), (0, 2)):
        args = near_identity(rng, (m, m)), near_identity(rng, (n, n)), draw(rng, (m, n))
        yield Case(args, label=f"{m}, {n}")
    args = near_identity(rng, (2, 2, 2)), near_identity(rng, (2, 2, 2)), draw(rng, (2, 2, 2))
    yield Case(args, label="batch")
    args = near_identity(rng, (2, 2, 2)), near_identity(rng, (1, 1)), draw(rng, (2, 1))
    yield Case(args, label="broadcast")
    args = near_identity(rng, (2, 2), True), near_identity(rng, (1, 1), True)
    yield Case((*args, draw(rng, (2, 1), True)), label="complex")


def fftn(rng: Rng) -> Cases:
    for shape, axes, norm in (
        ((4,), (0,), "backward"),
        ((3,), (0,), "forward"),
        ((2, 3), (1,), "ortho"),
        ((2, 3), (0,), "backward"),
        ((2, 3), (0, 1), "backward"),
        ((2, 3), (1, 0), "forward"),
        ((2, 1, 2), (0, 2), "ortho"),
        ((0, 3), (1,), "backward"),
        ((3,), (), "backward"),
    ):
        yield Case((draw(rng, shape, True),), (axes, norm), f"{shape} {axes} {norm}")
        yield Case((draw(rng, shape),), (axes, norm), f"real {shape} {axes} {norm}")


_LINES = (((4,), 0), ((5,), 0), ((1,), 0), ((2,), 0), ((2, 3), 1), ((4, 2), 0), ((0, 3), 1))


def rfft(rng: Rng) -> Cases:
    for shape, axis in _LINES:
        for norm in ("backward", "ortho", "forward"):
            yield Case((draw(rng, shape),), (axis, norm), f"{shape} {axis} {norm}")


def irfft(rng: Rng) -> Cases:
    for shape, axis in _LINES:
        for n in (2 * shape[axis] - 2, 2 * shape[axis] - 1):
            for norm in ("backward", "ortho", "forward") if n else ():
                x = draw(rng, shape, True)
                yield Case((x,), (n, axis, norm), f"{shape} to {n} along {axis}, {norm}")


def frequency_pairs(rng: Rng) -> Cases:
    for shape, axis in _LINES:
        for n in (2 * shape[axis] - 2 or 1, 2 * shape[axis] - 1):
            yield Case((draw(rng, shape, True),), (n, axis, 0.5), f"{shape} of {n}")
