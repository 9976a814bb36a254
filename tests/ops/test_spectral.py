"""Where eigenvalues or singular values coincide or vanish: first and second derivatives."""

import numpy as np
import pytest

import weft as wf

RNG = np.random.default_rng(3)
DEVICES = ("cpu", "torch")


def draw(*shape, complex_=False):
    x = RNG.standard_normal(shape)
    return x + 1j * RNG.standard_normal(shape) if complex_ else x


def unitary(n, complex_):
    return np.linalg.qr(draw(n, n, complex_=complex_))[0]


def with_eigenvalues(values, complex_):
    q = unitary(len(values), complex_)
    return (q * np.array(values)) @ q.conj().T


def with_singular_values(m, n, values, complex_):
    k = len(values)
    return (unitary(m, complex_)[:, :k] * np.array(values)) @ unitary(n, complex_)[:k]


def host(t):
    return t.detach().to("cpu").numpy()


def weighted(f, x):
    """A scalar that depends on every element of every result, the parts of complex ones too."""
    total = 0.0
    for k, y in enumerate(f(x)):
        w = np.cos(np.arange(y.size) + k).reshape(y.shape)
        parts = (wf.real(y), wf.imag(y)) if y.dtype.kind == "c" else (y,)
        for j, part in enumerate(parts):
            total = total + (part * wf.asarray(w + j, device=y.device)).sum()
    return total + total * total / 5


def gradient(f, a, device):
    x = wf.tensor(a, requires_grad=True, device=device)
    return host(weighted(f, x).backward()[x])


def hessian_product(f, a, p, device):
    x = wf.tensor(a, requires_grad=True, device=device)
    g = weighted(f, x).backward(create_graph=True)[x]
    p = wf.asarray(p, device=device)
    inner = wf.real(wf.sum(g * wf.conj(p)))
    return host(inner.backward()[x])


def value(f, a):
    return float(host(weighted(f, wf.tensor(a))))


def check(f, a, device):
    """Both orders along random directions. Beside a tie, rounding grows as eps/step: steps of
    1e-4 keep it, and the truncation error, below 1e-7."""
    complex_ = np.iscomplexobj(a)
    g = gradient(f, a, device)
    for _ in range(3):
        p = draw(*a.shape, complex_=complex_)
        along = [value(f, a + t * p) for t in (-2e-4, -1e-4, 1e-4, 2e-4)]
        slope = (along[0] - 8 * along[1] + 8 * along[2] - along[3]) / 12e-4
        assert np.vdot(g, p).real == pytest.approx(slope, rel=1e-6, abs=1e-6)
        near = [gradient(f, a + t * p, device) for t in (-1e-4, 1e-4)]
        change = (near[1] - near[0]) / 2e-4
        np.testing.assert_allclose(hessian_product(f, a, p, device), change, 1e-5, 1e-5)


def projector(v):
    return v @ wf.conj(wf.matrix_transpose(v))


def clusters(values):
    """(start, stop, value) of each run of equal numbers."""
    values = list(values)
    out, start = [], 0
    while start < len(values):
        stop = start + values.count(values[start])
        out.append((start, stop, values[start]))
        start = stop
    return out


EIGENVALUES = [(1.0, 1.0, 2.0), (1.0, 2.0, 2.0), (0.0, 0.0, 3.0), (1.5, 1.5, 1.5), (0.0, 0.0, 0.0)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("values", EIGENVALUES)
def test_eigenspaces(values, complex_, device):
    def spaces(a):
        w, v = wf.linalg.eigh(a)
        sums = [w[i:j].sum() for i, j, _ in clusters(values)]
        return [*sums, *(projector(v[:, i:j]) for i, j, _ in clusters(values))]

    check(spaces, with_eigenvalues(values, complex_), device)


@pytest.mark.parametrize("device", DEVICES)
def test_simple_eigenvalues_beside_ties(device):
    """Hessians of what is simple are right although others coincide."""

    def largest(a):
        w, v = wf.linalg.eigh(a)
        return w[-1] ** 3, wf.linalg.eigvalsh(a)[-1] ** 2, projector(v[:, -1:])

    check(largest, with_eigenvalues((0.0, 0.0, 0.0, 2.0), False), device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("values", EIGENVALUES[:3])
def test_gradients_of_symmetric_functions(values, device):
    """Σ exp(λ) has the gradient exp(A), whatever the multiplicities."""
    a = with_eigenvalues(values, False)
    x = wf.tensor(a, requires_grad=True, device=device)
    g = wf.sum(wf.exp(wf.linalg.eigvalsh(x))).backward()[x]
    w, v = np.linalg.eigh(a)
    np.testing.assert_allclose(host(g), (v * np.exp(w)) @ v.T, atol=1e-13)


@pytest.mark.parametrize("device", DEVICES)
def test_eigenspaces_of_general_matrices(device):
    """A double eigenvalue that is not defective: its sum, and the projector along the rest."""
    s = np.eye(3) + 0.3 * draw(3, 3)
    a = s @ np.diag([1.0, 1.0, 2.0]) @ np.linalg.inv(s)

    def parts(a):
        w, v = wf.linalg.eig(a)
        # LAPACK gives no order: select by the value.
        far = wf.abs(w - 2.0) < 0.5
        projected = (v * far) @ wf.linalg.inv(v)
        return wf.sum(w * far), wf.sum(w * ~far), projected

    check(parts, a, device)


SINGULAR_VALUES = [
    (2, 2, (2.0, 2.0)),
    (3, 3, (2.0, 1.0, 1.0)),
    (3, 2, (1.5, 1.5)),
    (2, 3, (1.5, 1.5)),
    (3, 3, (2.0, 1.0, 0.0)),
    (3, 3, (2.0, 0.0, 0.0)),
    (3, 2, (2.0, 0.0)),
    (2, 3, (2.0, 0.0)),
    (4, 3, (2.0, 2.0, 0.0)),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(("m", "n", "values"), SINGULAR_VALUES)
def test_singular_spaces(m, n, values, full, complex_, device):
    def spaces(a):
        u, s, vh = wf.linalg.svd(a, full_matrices=full)
        out = []
        for i, j, value in clusters(values):
            if value:
                v = wf.conj(wf.matrix_transpose(vh[i:j]))
                out += [s[i:j].sum(), u[:, i:j] @ vh[i:j], projector(u[:, i:j]), projector(v)]
        if full:
            rank = sum(v > 0 for v in values)
            out.append(projector(u[:, rank:]))
        return out

    check(spaces, with_singular_values(m, n, values, complex_), device)


@pytest.mark.parametrize("device", DEVICES)
def test_polar_factor(device):
    """U·Vᴴ of an orthogonal matrix: every singular value is 1."""

    def polar(a):
        u, _, vh = wf.linalg.svd(a, full_matrices=False)
        return [u @ vh]

    check(polar, unitary(3, False), device)


@pytest.mark.parametrize("device", DEVICES)
def test_functions_of_the_matrix_itself(device):
    """Rows of their own, right to second order at any spectrum, defective ones too."""
    jordan = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0]])

    def functions(a):
        return wf.linalg.expm(a), wf.linalg.logm(a), wf.linalg.sqrtm(a)

    for a in (jordan, np.eye(3), np.diag([1.0, 1.0, 2.0])):
        check(functions, a, device)
