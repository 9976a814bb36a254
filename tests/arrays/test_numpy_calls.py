"""NumPy's own functions on tensors: the same values as on arrays, and the gradient kept."""

import re

import numpy as np
import pytest

import weft as wf
from weft import errors

rng = np.random.default_rng(0)
V = rng.uniform(0.2, 0.8, size=4)
M = rng.uniform(0.2, 0.8, size=(3, 3)) + 3 * np.eye(3)
MASK = np.array([True, False, True, True])

# Each function is written once for arrays and tensors; x is V and m is M.
CALLS = """
np.sin(x) | np.arcsin(x) | np.arctan2(x, 2.0) | np.add(V, x) | V * x | x * V | V - x | V @ x
V ** x | x ** V | np.power(x, 3) | np.float_power(x, 2) | np.hypot(x, V) | np.logaddexp(x, V)
np.absolute(x - 0.5) | np.deg2rad(x) | np.degrees(x) | np.maximum(x, 0.5) | np.reciprocal(x)
np.true_divide(1.0, x) | np.matmul(m, m) | np.vecdot(x, V) | np.conjugate(x) | np.expm1(x)
np.sum(x) | np.sum(m, 0) | np.sum(m, axis=(0, 1), keepdims=True) | np.sum(x, dtype=np.float64)
np.mean(m, 1) | np.mean(x, dtype=np.float64) | np.max(m, axis=0) | np.amin(x) | np.prod(m, 0)
np.var(x) | np.var(m, 0, ddof=1) | np.std(m, axis=1, correction=1) | np.ptp(x) | np.median(m, 0)
np.average(x, weights=V) | np.average(m, 0) | np.quantile(x, 0.3) | np.percentile(m, [25, 50], 0)
np.cumsum(x) | np.cumsum(m, 0) | np.cumprod(m, axis=1) | np.cumulative_sum(x) | np.diff(x, 2)
np.nansum(m, 0) | np.nanmean(x) | np.nanmax(m, axis=1) | np.trapezoid(x, dx=0.5) | np.sinc(x)
np.trapezoid(m, V[:3], axis=0) | np.interp(x, [0.0, 0.5, 1.0], [1.0, 3.0, 2.0]) | np.i0(x)
np.concatenate([x, V]) | np.concatenate((m, m), 1) | np.concat([x, x]) | np.stack([x, V], 1)
np.vstack([x, V]) | np.hstack([m, m]) | np.dstack([x, x]) | np.column_stack([x, V])
np.append(x, V) | np.where(x > 0.5, x, 0.0) | np.where(MASK, x, V) | np.clip(x, 0.3, 0.6)
np.clip(x, None, 0.5) | np.clip(x, a_min=0.3, a_max=None) | np.clip(x, min=0.3, max=0.5)
np.dot(x, V) | np.dot(m, m) | np.vdot(x, x) | np.inner(x, V) | np.outer(V, x) | np.kron(x, x)
np.tensordot(m, m, 1) | np.einsum("ij,jk->ik", m, M) | np.einsum("i,i", x, x, optimize=True)
np.trace(m) | np.trace(m, 1) | np.cross(m, M) | np.linalg.solve(m, M) | np.linalg.inv(m)
np.linalg.det(m) | np.linalg.norm(x) | np.linalg.norm(m, None, 1) | np.linalg.norm(m, axis=0)
np.linalg.norm(m, 1) | np.linalg.cholesky(m @ m.T) | np.linalg.eigvalsh(m + m.T)
np.linalg.svd(m, compute_uv=False) | np.linalg.slogdet(m)[1] | np.linalg.pinv(m)
np.linalg.matrix_power(m, 3) | np.linalg.multi_dot([m, M, m]) | np.linalg.cond(m)
np.linalg.lstsq(m, x[:3])[0] | np.linalg.vector_norm(x) | np.linalg.matrix_norm(m)
abs(np.fft.rfft(x)) | abs(np.fft.fft(x, 6)) | abs(np.fft.fft(m, axis=0, norm="ortho"))
np.fft.irfft(x) | abs(np.fft.fft2(m)) | np.fft.fftshift(x) | abs(np.fft.ifft(x))
np.reshape(m, (9,)) | np.ravel(m) | np.transpose(m) | np.transpose(m, axes=(1, 0))
np.swapaxes(m, 0, 1) | np.moveaxis(m, 0, 1) | np.squeeze(m[None]) | np.expand_dims(x, 0)
np.broadcast_to(x, (2, 4)) | np.flip(m, 0) | np.fliplr(m) | np.flipud(m) | np.roll(x, 1)
np.roll(m, 1, 0) | np.tile(x, 2) | np.repeat(x, 2) | np.repeat(m, 2, 0) | np.split(x, 2)[1]
np.array_split(x, 3)[0] | np.pad(x, 1) | np.pad(x, (1, 2), mode="edge") | np.diag(x, k=1)
np.pad(x, 1, "constant", constant_values=2.0) | np.diag(m) | np.diagonal(m, 1) | np.tril(m, 1)
np.triu(m, k=-1) | np.meshgrid(x, V)[0] | np.atleast_2d(x) | np.copy(x) | np.sort(m, 0)
np.sort(x, kind="stable") | np.take(x, [0, 2]) | np.take(m, [0], axis=1) | np.unstack(m)[0]
np.take_along_axis(m, np.array([[0], [1], [2]]), 1) | np.real(x) | np.round(x, 1) | np.fix(x)
np.around(x, decimals=2) | np.bincount([0, 1, 1, 2], weights=x) | np.astype(x, np.float64)
np.add.reduce(m) | np.add.reduce(m, axis=None) | np.multiply.reduce(m, axis=1, keepdims=True)
np.maximum.reduce(m, axis=(0, 1)) | np.logaddexp.reduce(x) | np.add.accumulate(m)
np.multiply.accumulate(x) | np.maximum.accumulate(x) | np.add.outer(x, V) | np.multiply.outer(V, m)
np.sin(x, dtype=np.float64) | np.add(x, x, casting="same_kind") | np.full_like(x, 2.0) * x
np.convolve(x, x) | np.convolve(V, x[:2], "same") | np.convolve(x, V[:3], mode="valid")
np.polyval(x, 2.1) | np.polyval(V, x) | np.block([x, x]) | np.block([[m, m], [M, m]])
np.fmax(x, V) | np.select([x > 0.5, x > 0.3], [x, V * x], 3.0)
np.fmod(x, 0.3) | np.divmod(x, 0.3)[1] | np.fmin(x, V) | np.vander(x)
np.modf(x * 5)[0] | np.logaddexp2(x, V) | np.rot90(m) | np.rot90(m, -1) | np.rot90(m, 2)
np.hsplit(m, 3)[1] | np.vsplit(m, [1])[1] | np.heaviside(V - 0.5, x[0]) + x | np.vander(x, 3, True)
np.linspace(x[0], 2.0, 3) | np.linspace(0.0, x[1], 5, endpoint=False) | np.matrix_transpose(m)
"""
NAMED = {call.strip(): None for line in CALLS.strip().split("\n") for call in line.split("|")}


def evaluate(call: str, x, m):
    return eval(call, {"np": np, "V": V, "M": M, "MASK": MASK, "x": x, "m": m})


@pytest.mark.parametrize("call", NAMED)
def test_values_and_gradients(call):
    x, m = wf.tensor(V, requires_grad=True), wf.tensor(M, requires_grad=True)
    y = evaluate(call, x, m)
    assert isinstance(y, wf.Tensor) and y.requires_grad
    expected = evaluate(call, V, M)
    np.testing.assert_allclose(y.detach().numpy(), expected, rtol=1e-12, atol=1e-12)
    assert y.shape == np.shape(expected)
    if any(word in call for word in ("round", "fix")):
        return  # piecewise constant: their gradient is 0, and differences see the jumps
    w = np.random.default_rng(1).normal(size=y.shape)
    (source, at), other = ((x, V), M) if re.search(r"\bx\b", call) else ((m, M), V)
    gradient = (y * w).sum().backward()[source].numpy()
    d = np.random.default_rng(2).normal(size=at.shape)

    def along(h):
        args = (at + h * d, other) if source is x else (other, at + h * d)
        return float((np.asarray(evaluate(call, *args)) * w).sum())

    h = 1e-3  # central differences of fourth order: the error is O(h⁴)
    slope = (8 * (along(h) - along(-h)) - (along(2 * h) - along(-2 * h))) / (12 * h)
    np.testing.assert_allclose((gradient * d).sum(), slope, rtol=1e-7, atol=1e-9)


INQUIRIES = """
np.shape(m) | np.ndim(m) | np.size(m) | np.size(m, 0) | np.argmax(x) | np.argsort(m, 0)
np.array_equal(x, V) | np.allclose(x, V, 1e-3) | np.isclose(x, V, 1e-3, 1e-3) | np.iscomplexobj(x)
np.nonzero(x > 0.5)[0] | np.where(x > 0.5)[0] | np.flatnonzero(x > 0.5) | np.count_nonzero(m, 0)
np.all(x > 0) | np.any(m < 0, 0) | np.searchsorted(V, x) | np.isfinite(x) | np.less(x, V)
np.logical_and.reduce(x > 0) | np.zeros_like(x) | np.ones_like(m) | np.result_type(x, np.float32)
np.iscomplex(x) | np.isreal(x) | np.isposinf(x) | np.isneginf(m)
np.digitize(x, [0.3, 0.5]) | np.isin(x, V) | np.signbit(x) | np.lexsort([x.detach()])
"""


@pytest.mark.parametrize(
    "call", [c.strip() for line in INQUIRIES.strip().split("\n") for c in line.split("|")]
)
def test_inquiries_have_no_gradient_to_lose(call):
    x, m = wf.tensor(V, requires_grad=True), wf.tensor(M, requires_grad=True)
    found = evaluate(call, x, m)
    expected = evaluate(call.replace(".detach()", ""), V, M)
    assert not getattr(found, "requires_grad", False)
    if isinstance(expected, tuple | np.dtype | bool | int):
        assert found == expected
    else:
        np.testing.assert_array_equal(np.asarray(found), expected)


WITHOUT = """
np.unique(x) | np.correlate(x, x) | np.gradient(x) | np.cov(m) | np.histogram(x)
np.polyfit(x, x, 1) | np.nanstd(x) | np.apply_along_axis(np.sum, 0, m) | np.unwrap(x)
np.linalg.tensorinv(m, 1) | np.partition(x, 1) | np.frexp(x) | np.subtract.reduce(x)
np.add.reduceat(x, [0, 1]) | np.sum(x, where=MASK) | np.max(x, initial=9.0) | np.sin(x, where=MASK)
np.reshape(m, (9,), order="F") | np.linalg.eigh(m, UPLO="U") | np.put(x, [0], [1.0])
"""


@pytest.mark.parametrize(
    "call", [c.strip() for line in WITHOUT.strip().split("\n") for c in line.split("|")]
)
def test_without_a_counterpart(call):
    x, m = wf.tensor(V, requires_grad=True), wf.tensor(M, requires_grad=True)
    name = call.split("(")[0]
    words = rf"{name}.*would drop the gradient; use x.detach\(\).*\(at <string>:1\)"
    with pytest.raises(errors.InterchangeError, match=words):
        evaluate(call, x, m)
    if "np.put(" in call or "where=MASK" in call:
        return  # what NumPy leaves undefined, or writes into its argument
    expected = evaluate(call, V, M)
    got = evaluate(call, x.detach(), m.detach())
    with wf.no_grad():
        quiet = evaluate(call, x, m)
    pairs = zip(got, expected, strict=True) if isinstance(expected, tuple) else [(got, expected)]
    for found, wanted in pairs:
        np.testing.assert_array_equal(np.asarray(found), wanted)
    assert type(quiet) is type(got)


class TestOut:
    def test_into_an_array(self):
        x, a = wf.tensor(V), np.zeros(4)
        assert np.sin(x, out=a) is a and a.tolist() == np.sin(V).tolist()
        assert np.clip(x, 0.3, 0.5, out=a) is a and a.tolist() == np.clip(V, 0.3, 0.5).tolist()
        total = np.zeros(())
        assert np.sum(x, out=total) is total and total == V.sum()
        a += x
        assert a.tolist() == (np.clip(V, 0.3, 0.5) + V).tolist()
        fraction, whole = np.modf(x, out=(np.zeros(4), np.zeros(4)))
        assert fraction.tolist() == V.tolist() and not whole.any()

    def test_into_a_tensor(self):
        buffer = wf.zeros(4, dtype="float64")
        assert np.sin(V, out=buffer) is buffer and buffer.tolist() == np.sin(V).tolist()
        assert np.add(wf.tensor(V), 1.0, out=buffer).tolist() == (V + 1).tolist()
        assert np.cumsum(wf.tensor(V), out=buffer).tolist() == np.cumsum(V).tolist()
        assert np.matmul(wf.tensor(M), V[:3], out=buffer[:3]).tolist() == (M @ V[:3]).tolist()

    def test_a_tracked_value_is_refused(self):
        x, a, buffer = wf.tensor(V, requires_grad=True), np.zeros(4), wf.zeros(4, dtype="float64")
        for call in (lambda: np.sin(x, out=a), lambda: np.cumsum(x, out=a), lambda: a.__iadd__(x)):
            with pytest.raises(errors.InterchangeError, match=r"x.detach\(\)"):
                call()
        for call in (lambda: np.sin(x, out=buffer), lambda: np.sin(V, out=x)):
            with pytest.raises(errors.InPlaceOnTracked):
                call()
        assert not a.any() and not buffer.any() and x.tolist() == V.tolist()


WRITERS = {
    "np.add.at": lambda x: np.add.at(x, 0, 1.0),
    "np.put": lambda x: np.put(x, [0], [1.0]),
    "np.putmask": lambda x: np.putmask(x, MASK, 1.0),
    "np.place": lambda x: np.place(x, MASK, 1.0),
    "np.copyto": lambda x: np.copyto(x, V),
    "np.fill_diagonal": lambda x: np.fill_diagonal(x.reshape(2, 2), 1.0),
    "np.put_along_axis": lambda x: np.put_along_axis(x, np.array([0]), 1.0, 0),
}


@pytest.mark.parametrize("name", WRITERS)
def test_functions_that_write_into_their_argument_raise(name):
    x = wf.zeros(4, dtype="float64")
    with pytest.raises(errors.InterchangeError, match=rf"{name} writes.*x.at\[i\].set\(v\)"):
        WRITERS[name](x)
    assert not x.any()


def test_on_torch():
    x = wf.tensor(V, device="torch", requires_grad=True)
    for y in (np.sin(x), np.sum(x), np.concatenate([x, x]), np.multiply.outer(x, x)):
        assert y.device == "torch" and y.requires_grad
    assert np.sum(np.sin(x)).backward()[x].numpy().tolist() == pytest.approx(np.cos(V).tolist())


def test_nothing_is_recorded_under_no_grad():
    x = wf.tensor(V, requires_grad=True)
    with wf.no_grad():
        assert not np.sin(x).requires_grad
        assert np.unique(x).tolist() == np.unique(V).tolist()
