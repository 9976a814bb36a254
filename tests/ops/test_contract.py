"""Products over shared axes: values by NumPy, gradients by torch.autograd, errors."""

import numpy as np
import pytest
import torch

import weft as wf
from weft.ops import contract

DEVICES = ("cpu", "torch")
RNG = np.random.default_rng(5)


def draw(shape, complex_=False):
    x = RNG.standard_normal(shape)
    return x + 1j * RNG.standard_normal(shape) if complex_ else x


def host(t):
    return t.detach().to("cpu").numpy()


def check(ours, theirs, reference, arrays, device):
    """ours = reference in value; Σ w·|y|² has the gradients that torch gives for theirs."""
    tensors = [wf.tensor(a, requires_grad=True, device=device) for a in arrays]
    y = ours(*tensors)
    expected = reference(*arrays)
    np.testing.assert_allclose(host(y), expected, rtol=1e-12, atol=1e-12)
    w = np.cos(np.arange(expected.size)).reshape(expected.shape)
    loss = wf.sum(wf.real(y * wf.conj(y)) * wf.asarray(w, device=device))
    grads = loss.backward()
    leaves = [torch.tensor(a, requires_grad=True) for a in arrays]
    z = theirs(*leaves)
    ((z * z.conj()).real * torch.tensor(w)).sum().backward()
    for t, leaf in zip(tensors, leaves, strict=True):
        expected = leaf.grad.resolve_conj().numpy()
        np.testing.assert_allclose(host(grads[t]), expected, rtol=1e-11, atol=1e-11)


SUBSCRIPTS = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("ba,ca", (2, 3), (4, 3)),
    ("ii", (3, 3)),
    ("ii->i", (3, 3)),
    ("iij->j", (3, 3, 2)),
    ("iii->i", (2, 2, 2)),
    ("ijij->", (2, 3, 2, 3)),
    ("ijk->kj", (2, 3, 4)),
    ("...ij,...jk->...ik", (5, 2, 3), (3, 4)),
    ("...i,...i->...", (2, 1, 3), (4, 3)),
    ("i...,i...", (3, 2), (3, 2)),
    ("ij...->...", (2, 3, 4)),
    ("ij, jk, kl -> il", (2, 3), (3, 4), (4, 2)),
    ("ab,bc,cd,de,ef->af", (2, 3), (3, 2), (2, 4), (4, 2), (2, 3)),
    ("i,j,k->ijk", (2,), (3,), (4,)),
    ("ii,ij->j", (3, 3), (3, 2)),
    ("ij,k->k", (2, 3), (4,)),
    ("bhid,bhjd->bhij", (2, 2, 3, 4), (2, 2, 5, 4)),
    ("ab,cd,ef->abcdef", (2, 1), (1, 2), (2, 2)),
    (",->", (), ()),
    ("ij,jk->ik", (40, 30), (30, 20)),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("subscripts", "shapes"), [(s, shapes) for s, *shapes in SUBSCRIPTS])
def test_einsum(subscripts, shapes, device):
    arrays = [draw(s, complex_=k == 0) for k, s in enumerate(shapes)]
    arrays = [a.astype(complex) for a in arrays]
    check(
        lambda *x: wf.einsum(subscripts, *x),
        lambda *x: torch.einsum(subscripts, *x),
        lambda *x: np.asarray(np.einsum(subscripts, *x)),
        arrays,
        device,
    )


@pytest.mark.parametrize("device", DEVICES)
def test_tensordot(device):
    for axes, a, b in ((1, (2, 3), (3, 4)), (((0, 2), (1, 0)), (2, 3, 4), (4, 2)), (0, (2,), (3,))):
        check(
            lambda x, y, axes=axes: wf.tensordot(x, y, axes=axes),
            lambda x, y, axes=axes: torch.tensordot(x, y, dims=axes),
            lambda x, y, axes=axes: np.tensordot(x, y, axes),
            [draw(a), draw(b)],
            device,
        )


PAIRS = {
    "outer": [((3,), (4,))],
    "inner": [((3,), (3,)), ((2, 3), (4, 3))],
    "kron": [((2, 3), (2, 2)), ((2,), (2, 3))],
    "dot": [((3,), (3,))],
    "vdot": [((3,), (3,))],
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", PAIRS)
def test_products(name, device):
    for shapes in PAIRS[name]:
        arrays = [draw(s, complex_=True) for s in shapes]
        f = getattr(contract, name)
        check(f, getattr(torch, name), lambda *x: np.asarray(getattr(np, name)(*x)), arrays, device)


def test_dot_follows_numpy():
    for a, b in (((2, 3), (3, 4)), ((2, 3), (4, 3, 5)), ((2, 3), (3,)), ((), (3,)), ((), ())):
        x, y = draw(a), draw(b)
        z = contract.dot(wf.tensor(x), wf.tensor(y))
        np.testing.assert_allclose(host(z), np.dot(x, y), rtol=1e-13)


@pytest.mark.parametrize("device", DEVICES)
def test_vecdot_conjugates_its_first_argument(device):
    for a, b, axis in (((2, 3), (3,), -1), ((3, 2), (3, 2), -2), ((4, 1, 3), (2, 3), -1)):
        check(
            lambda x, y, axis=axis: wf.vecdot(x, y, axis=axis),
            lambda x, y, axis=axis: torch.linalg.vecdot(x, y, dim=axis),
            lambda x, y, axis=axis: np.vecdot(x, y, axis=axis),
            [draw(a, True), draw(b, True)],
            device,
        )


@pytest.mark.parametrize("device", DEVICES)
def test_cross(device):
    for a, b, axis in (((2, 3), (2, 3), -1), ((3, 4), (3, 4), -2), ((2, 1, 3), (5, 3), -1)):
        check(
            lambda x, y, axis=axis: wf.linalg.cross(x, y, axis=axis),
            lambda x, y, axis=axis: torch.linalg.cross(*torch.broadcast_tensors(x, y), dim=axis),
            lambda x, y, axis=axis: np.linalg.cross(x, y, axis=axis),
            [draw(a), draw(b)],
            device,
        )


def test_half_types_accumulate_in_float32():
    """2049 = 2048 + 1 is no float16: sums that round at each step stay at 2048."""
    for dtype in (wf.float16, wf.bfloat16):
        ones = wf.ones((1, 4096), dtype=dtype)
        for y in (ones @ ones.T, wf.einsum("ij,ij->", ones, ones)):
            assert y.dtype == dtype
            assert float(y.to(wf.float32).reshape(()).item()) == 4096.0


MISTAKES = [
    (lambda: wf.ones((3, 4)) @ wf.ones((5, 6)), r"matmul: \(3, 4\) @ \(5, 6\): 4 ≠ 5"),
    (lambda: wf.ones(3) @ wf.ones(4), r"matmul: \(3,\) @ \(4,\): 3 ≠ 4"),
    (lambda: wf.ones((2, 3, 4)) @ wf.ones((5, 4, 2)), "do not broadcast"),
    (lambda: wf.matmul(wf.ones(()), wf.ones((2, 2))), "no axes"),
    (lambda: wf.einsum("ij,jk->ik", wf.ones((2, 3)), wf.ones((4, 2))), "label j: 3 ≠ 4"),
    (lambda: wf.einsum("ij->i", wf.ones(3)), "'ij' for 1 dimensions"),
    (lambda: wf.einsum("ij,jk->ik", wf.ones((2, 3))), "has 2 terms, not 1"),
    (lambda: wf.einsum("...i->i", wf.ones((2, 3))), "belongs in the result too"),
    (lambda: wf.einsum("ii->i", wf.ones((2, 3))), "label i: 2 ≠ 3"),
    (lambda: wf.linalg.cross(wf.ones((2, 2)), wf.ones((2, 2))), "3 elements"),
    (lambda: wf.vecdot(wf.ones(3), wf.ones(2)), "vecdot"),
    (lambda: wf.tensordot(wf.ones((2, 3)), wf.ones((2, 3)), axes=1), "tensordot"),
]


@pytest.mark.parametrize(("call", "message"), MISTAKES)
def test_mistakes_are_explained(call, message):
    with pytest.raises(wf.errors.WeftError, match=message):
        call()
