"""Linear algebra: values by NumPy, gradients by torch.autograd, singular matrices, errors."""

import sys
from math import inf
from subprocess import run

import numpy as np
import pytest
import torch

import weft as wf
from weft.ops import linalg
from weft.ops.matrix_functions import sylvester

DEVICES = ("cpu", "torch")
RNG = np.random.default_rng(9)


def draw(*shape, complex_=False):
    x = RNG.standard_normal(shape)
    return x + 1j * RNG.standard_normal(shape) if complex_ else x


def regular(*shape, complex_=False):
    return draw(*shape, complex_=complex_) * 0.3 + np.eye(shape[-1])


def host(t):
    return t.detach().to("cpu").numpy()


def loss_of(ys, xp):
    total = 0.0
    for k, y in enumerate(ys):
        w = np.sin(np.arange(int(np.prod(y.shape))) + k + 1).reshape(tuple(y.shape))
        w = torch.tensor(w) if xp is torch else wf.asarray(w, device=y.device)
        size = y * xp.conj(y)
        total = total + ((xp.real(size) if "complex" in str(y.dtype) else size) * w).sum()
    return total


def check(ours, theirs, arrays, device, tolerance=1e-10):
    """Results and gradients, torch's of the same functions being the standard."""
    tensors = [wf.tensor(a, requires_grad=True, device=device) for a in arrays]
    leaves = [torch.tensor(a, requires_grad=True) for a in arrays]
    ys, zs = ours(*tensors), theirs(*leaves)
    for y, z in zip(ys, zs, strict=True):
        assert tuple(y.shape) == tuple(z.shape)
        expected = z.detach().resolve_conj().numpy()
        np.testing.assert_allclose(host(y), expected, tolerance, tolerance)
    grads = loss_of(ys, wf).backward()
    loss_of(zs, torch).backward()
    for t, leaf in zip(tensors, leaves, strict=True):
        expected = leaf.grad.resolve_conj().numpy()
        np.testing.assert_allclose(host(grads[t]), expected, tolerance, tolerance)


def hermitian(x):
    return (x + x.mH) / 2


A = {"real": regular(3, 3), "complex": regular(2, 3, 3, complex_=True)}
TALL = {"real": draw(2, 4, 3), "complex": draw(4, 3, complex_=True)}

SQUARE = {
    "inv": (wf.linalg.inv, torch.linalg.inv),
    "det": (wf.linalg.det, torch.linalg.det),
    "slogdet": (lambda x: wf.linalg.slogdet(x)[1], lambda x: torch.linalg.slogdet(x)[1]),
    "expm": (wf.linalg.expm, torch.linalg.matrix_exp),
    "matrix_power 5": (
        lambda x: wf.linalg.matrix_power(x, 5),
        lambda x: torch.linalg.matrix_power(x, 5),
    ),
    "matrix_power -2": (
        lambda x: wf.linalg.matrix_power(x, -2),
        lambda x: torch.linalg.matrix_power(x, -2),
    ),
    "cholesky": (
        lambda x: wf.linalg.cholesky(x @ wf.conj(wf.matrix_transpose(x))),
        lambda x: torch.linalg.cholesky(x @ x.mH),
    ),
    "eigvalsh": (wf.linalg.eigvalsh, lambda x: torch.linalg.eigvalsh(hermitian(x))),
    "svdvals": (wf.linalg.svdvals, torch.linalg.svdvals),
    "trace": (
        lambda x: wf.linalg.trace(x, offset=1),
        lambda x: x.diagonal(1, -2, -1).sum(-1),
    ),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", A)
@pytest.mark.parametrize("name", SQUARE)
def test_square(name, kind, device):
    ours, theirs = SQUARE[name]
    check(lambda x: [ours(x)], lambda x: [theirs(x)], [A[kind]], device)


RECTANGULAR = {
    "pinv": (lambda x: [wf.linalg.pinv(x)], lambda x: [torch.linalg.pinv(x)]),
    "qr": (
        lambda x: [*wf.linalg.qr(x)],
        lambda x: [*torch.linalg.qr(x)],
    ),
    "lu": (lambda x: [*wf.linalg.lu(x)][1:], lambda x: [*torch.linalg.lu(x)][1:]),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", TALL)
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("name", RECTANGULAR)
def test_rectangular(name, wide, kind, device):
    a = TALL[kind].swapaxes(-1, -2).copy() if wide else TALL[kind]
    check(*RECTANGULAR[name], [a], device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("ord", ["fro", "nuc", 1, -1, 2, -2, inf, -inf])
def test_matrix_norm(ord, device):
    for a in TALL.values():
        for keepdims in (False, True):
            check(
                lambda x, k=keepdims: [wf.linalg.matrix_norm(x, ord=ord, keepdims=k)],
                lambda x, k=keepdims: [torch.linalg.matrix_norm(x, ord, keepdim=k)],
                [a],
                device,
            )


@pytest.mark.parametrize("ord", ["fro", "nuc", 1, 2, inf])
def test_matrix_norm_at_zero_has_a_zero_gradient(ord):
    x = wf.tensor(np.zeros((2, 3)), requires_grad=True)
    assert not host(wf.linalg.matrix_norm(x, ord=ord).backward()[x]).any()


@pytest.mark.parametrize("p", [None, 2, -2, 1, inf, "fro", "nuc"])
def test_cond(p):
    # torch.linalg.cond itself fails backwards (an inverse modified in place).
    norm = torch.linalg.matrix_norm
    q = 2 if p is None else p

    def theirs(x):
        return [norm(x, q) * norm(torch.linalg.inv(x), q)]

    check(lambda x: [linalg.cond(x, p)], theirs, [A["real"]], "cpu")


@pytest.mark.parametrize("device", DEVICES)
def test_solve(device):
    for a, b in (((3, 3), (3, 2)), ((3, 3), (3,)), ((2, 3, 3), (2, 3, 1)), ((4, 2, 2), (1, 2, 2))):
        for complex_ in (False, True):
            check(
                lambda x, y: [wf.linalg.solve(x, y)],
                lambda x, y: [torch.linalg.solve(x, y)],
                [regular(*a, complex_=complex_), draw(*b, complex_=complex_)],
                device,
            )


@pytest.mark.parametrize("device", DEVICES)
def test_right_sides_are_matrices_unless_they_are_one_vector(device):
    """As in the Array API; torch itself would take (2, 2) beside (2, 2, 2) for two vectors."""
    a, b = regular(2, 2, 2), draw(2, 2)
    x = wf.linalg.solve(wf.tensor(a, device=device), wf.tensor(b, device=device))
    np.testing.assert_allclose(host(x), np.linalg.solve(a, b), 1e-12)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("unit", [False, True])
def test_triangular_solve(lower, unit, device):
    check(
        lambda x, y: [wf.linalg.triangular_solve(x, y, lower=lower, unit_diagonal=unit)],
        lambda x, y: [
            torch.linalg.solve_triangular(
                (x.tril() if lower else x.triu()), y, upper=not lower, unitriangular=unit
            )
        ],
        [regular(2, 3, 3), draw(3, 2)],
        device,
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4)])
def test_lstsq(shape, device):
    a, b = draw(*shape), draw(shape[0], 2)
    check(
        lambda x, y: [wf.linalg.lstsq(x, y).solution],
        lambda x, y: [torch.linalg.pinv(x) @ y],
        [a, b],
        device,
    )
    for right in (b, b[:, 0]):
        ours, theirs = wf.linalg.lstsq(wf.tensor(a), wf.tensor(right)), np.linalg.lstsq(a, right)
        for y, z in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(host(y), z, 1e-10, 1e-10)


def cofactors(a):
    """The gradient of det by minors: exact for integers."""
    n = len(a)
    out = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            minor = np.delete(np.delete(a, i, 0), j, 1)
            out[i, j] = (-1) ** (i + j) * (np.linalg.det(minor) if n > 1 else 1.0)
    return out


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rank", [0, 1, 2, 3, 4])
def test_gradient_of_det_at_any_rank(rank, device):
    a = RNG.integers(-3, 4, (4, rank)).astype(float) @ RNG.integers(-3, 4, (rank, 4))
    x = wf.tensor(a, requires_grad=True, device=device)
    g = wf.linalg.det(x).backward()[x]
    np.testing.assert_allclose(host(g), cofactors(a), 1e-10, 1e-10)


def test_third_derivative_of_det_refuses_singular_matrices():
    x = wf.tensor(np.diag([1.0, 2.0, 0.0]), requires_grad=True)
    first = wf.linalg.det(x).backward(create_graph=True)[x]
    second = wf.sum(first * first).backward(create_graph=True)[x]
    with pytest.raises(np.linalg.LinAlgError, match="third derivative"):
        wf.sum(second * second).backward()


MISTAKES = [
    (lambda: wf.linalg.inv(wf.ones((2, 3))), r"inv: \(2, 3\) is not square: 2 ≠ 3"),
    (lambda: wf.linalg.det(wf.ones(3)), r"det: \(3,\) is no matrix"),
    (lambda: wf.linalg.solve(wf.eye(3), wf.ones((2, 2))), "solve: .*3 ≠ 2"),
    (lambda: wf.linalg.eigh(wf.ones((2, 3))), "eigh: .* is not square"),
    (lambda: wf.linalg.matrix_power(wf.ones((2, 3)), 2), "matrix_power"),
    (lambda: wf.linalg.matrix_norm(wf.eye(2), ord=3), "matrix_norm: ord 3"),
    (lambda: wf.linalg.svd(wf.ones(3)), "svd: .* is no matrix"),
]


@pytest.mark.parametrize(("call", "message"), MISTAKES)
def test_mistakes_are_explained(call, message):
    with pytest.raises(wf.errors.WeftError, match=message):
        call()


@pytest.mark.parametrize("device", DEVICES)
def test_singular_matrices_raise_the_same_error_on_every_backend(device):
    zero = wf.zeros((2, 2), device=device)
    for f, message in (
        (wf.linalg.inv, "inv: the matrix is singular"),
        (lambda x: wf.linalg.solve(x, x), "solve: the matrix is singular"),
        (lambda x: wf.linalg.triangular_solve(x, x), "triangular_solve: the matrix is singular"),
        (wf.linalg.cholesky, "cholesky: the matrix is not positive definite"),
        (lambda x: wf.linalg.logm(x - wf.eye(2, device=device)), "logm: .* complex dtype"),
        (lambda x: wf.linalg.sqrtm(x - wf.eye(2, device=device)), "sqrtm: .* complex dtype"),
    ):
        with pytest.raises(np.linalg.LinAlgError, match=message):
            f(zero)


def test_integers_become_floats():
    assert wf.linalg.det(wf.asarray([[1, 2], [3, 4]])).item() == pytest.approx(-2.0)


def test_linalg_imports_neither_scipy_nor_torch():
    code = "import sys, weft as wf; wf.linalg.det(wf.eye(2)); print('scipy' in sys.modules)"
    out = run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


@pytest.mark.parametrize("device", DEVICES)
def test_a_tolerance_for_each_matrix(device):
    a = np.stack([np.diag([1.0, 0.1]), np.diag([1.0, 0.1])])
    x, rtol = wf.tensor(a, device=device), wf.tensor([0.5, 0.01], device=device).to(wf.float64)
    assert host(wf.linalg.matrix_rank(x, rtol=rtol)).tolist() == [1, 2]
    inverse = host(wf.linalg.pinv(x, rtol=rtol))
    np.testing.assert_allclose(inverse, [np.diag([1.0, 0.0]), np.diag([1.0, 10.0])], 1e-12)


@pytest.mark.parametrize("device", DEVICES)
def test_a_tolerance_for_each_element_of_a_batch(device):
    a, rtol = wf.tensor(np.diag([1.0, 0.1]), device=device), [0.5, 0.01]
    rtol = wf.tensor(np.array(rtol), device=device)
    ranks = wf.vmap(lambda t: wf.linalg.matrix_rank(a, rtol=t))(rtol)
    assert host(ranks).tolist() == [1, 2]
    inverse = host(wf.vmap(lambda t: wf.linalg.pinv(a, rtol=t))(rtol))
    np.testing.assert_allclose(inverse, [np.diag([1.0, 0.0]), np.diag([1.0, 10.0])], 1e-12)


def test_a_tolerance_for_each_matrix_and_no_more():
    with pytest.raises(wf.errors.ShapeError, match="one for each matrix"):
        wf.linalg.pinv(wf.eye(2), rtol=wf.tensor([0.5, 0.01]))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("count", [1, 5])
def test_one_triangle_or_many(device, count):
    a, b = regular(count, 3, 3), draw(count, 3, 2)
    x, y = wf.tensor(a, device=device), wf.tensor(b, device=device)
    for lower, part in ((True, np.tril), (False, np.triu)):
        for unit in (False, True):
            t = part(a, -1 if lower else 1) + np.eye(3) if unit else part(a)
            got = wf.linalg.triangular_solve(x, y, lower=lower, unit_diagonal=unit)
            np.testing.assert_allclose(host(got), np.linalg.solve(t, b), 1e-12, 1e-12)
    a[-1, 1, 1] = 0.0
    with pytest.raises(wf.errors.LinAlgError, match="singular"):
        wf.linalg.triangular_solve(wf.tensor(a, device=device), y)


@pytest.mark.parametrize("m, n", [(2, 3), (7, 6)])  # by elimination, and by Schur decompositions
@pytest.mark.parametrize("stack", [(), (3,)])
@pytest.mark.parametrize("complex_", [False, True])
def test_sylvester(m, n, stack, complex_):
    a, b = regular(m, m, complex_=complex_), regular(*stack, n, n, complex_=complex_)
    q = draw(*stack, m, n, complex_=complex_)
    x = sylvester(a, b, q)
    np.testing.assert_allclose(a @ x + x @ b, q, 1e-11, 1e-11)
