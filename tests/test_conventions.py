"""docs/conventions.md, line by line, on both backends."""

import numpy as np
import pytest

import weft as wf

pytestmark = pytest.mark.parametrize("device", ["cpu", "torch"])


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def leaf(data, device, dtype="float64"):
    return wf.tensor(data, dtype=dtype, device=device, requires_grad=True)


def gradient(f, x):
    return f(x).sum().backward()[x].tolist()


def second(f, x):
    (g,) = [f(x).sum().backward(create_graph=True)[x]]
    return g.sum().backward()[x].tolist()


@pytest.mark.parametrize("name", ["abs", "sign", "relu"])
def test_kinks_at_zero(device, name):
    assert gradient(getattr(wf, name), leaf([0.0, -0.0], device)) == [0.0, 0.0]


def test_norms_at_zero(device):
    assert gradient(wf.norm, leaf([0.0, 0.0, 0.0], device)) == [0.0, 0.0, 0.0]
    assert gradient(lambda x: wf.hypot(x, x), leaf([0.0], device)) == [0.0]
    assert gradient(lambda z: wf.abs(z), leaf([0j], device, "complex128")) == [0j]
    assert gradient(lambda x: wf.std(x), leaf([2.0, 2.0], device)) == [0.0, 0.0]


def test_equal_arguments_share(device):
    x, y = leaf([1.0], device), leaf([1.0], device)
    for f in (wf.maximum, wf.minimum):
        grads = f(x, y).sum().backward()
        assert grads[x].tolist() == grads[y].tolist() == [0.5]


@pytest.mark.parametrize("name", ["max", "min", "amax", "amin"])
def test_ties_split_evenly(device, name):
    assert gradient(getattr(wf, name), leaf([3.0, 3.0, 3.0, 3.0], device)) == [0.25] * 4


def test_ordered_results_route_to_their_index(device):
    x = [2.0, 3.0, 3.0]
    assert gradient(lambda x: wf.max_with_indices(x, axis=0)[0], leaf(x, device)) == [0, 1, 0]
    where = wf.topk(leaf(x, device), 1).indices
    picked = gradient(lambda x: wf.topk(x, 1)[0], leaf(x, device))
    assert picked[int(where[0])] == 1.0 and sum(picked) == 1.0
    weights = wf.tensor([10.0, 20.0, 30.0], dtype="float64", device=device)
    assert gradient(lambda x: wf.sort(x) * weights, leaf(x, device)) == [10, 20, 30]


def test_clip_passes_at_a_bound(device):
    x = leaf([-1.0, 0.0, 0.5, 1.0, 2.0], device)
    assert gradient(lambda x: wf.clip(x, 0.0, 1.0), x) == [0, 1, 1, 1, 0]


@pytest.mark.parametrize("name", ["floor", "ceil", "round", "trunc", "sign"])
def test_piecewise_constant(device, name):
    assert gradient(getattr(wf, name), leaf([0.3, 2.0], device)) == [0.0, 0.0]


def test_powers_at_zero(device):
    zero = [0.0]
    assert gradient(lambda x: x**0, leaf(zero, device)) == [0.0]
    assert gradient(lambda x: wf.pow(x, wf.zeros_like(x)), leaf(zero, device)) == [0.0]
    assert gradient(lambda x: x**1, leaf(zero, device)) == [1.0]
    assert second(lambda x: x**2, leaf(zero, device)) == [2.0]
    assert second(lambda x: wf.pow(x, 2 * wf.ones_like(x)), leaf(zero, device)) == [2.0]
    assert second(wf.square, leaf(zero, device)) == [2.0]


def test_prod_with_zeros_is_exact(device):
    x = leaf([2.0, 0.0, 3.0], device)
    assert gradient(wf.prod, x) == [0.0, 6.0, 0.0]
    assert gradient(wf.prod, leaf([0.0, 0.0, 3.0], device)) == [0.0, 0.0, 0.0]
    # ∂²/∂x₀∂x₁ of x₀x₁x₂ is x₂, also where x₀ = x₁ = 0.
    x = leaf([0.0, 0.0, 3.0], device)
    g = wf.prod(x).backward(create_graph=True)[x]
    assert g[0].backward()[x].tolist() == [0.0, 3.0, 0.0]


def test_the_last_write_wins(device):
    x, v = leaf([1.0, 2.0], device), leaf([5.0, 6.0], device)
    y = x.at[wf.asarray([0, 0], device=device)].set(v)
    assert y.tolist() == [6.0, 2.0]
    grads = y.sum().backward()
    assert grads[x].tolist() == [0.0, 1.0]
    assert grads[v].tolist() == [0.0, 1.0]


def test_added_duplicates_add_up(device):
    x, v = leaf([1.0, 2.0], device), leaf([5.0, 6.0], device)
    y = x.at[wf.asarray([0, 0], device=device)].add(v)
    assert y.tolist() == [12.0, 2.0]
    grads = (y * y).sum().backward()
    assert grads[v].tolist() == [24.0, 24.0]


UNBOUNDED = {
    "log": (wf.log, [-1.0, 0.0, 2.0], [0.0, 0.0, 0.5]),
    "sqrt": (wf.sqrt, [-1.0, 0.0, 4.0], [0.0, 0.0, 0.25]),
    "divide": (lambda x: 1 / x, [-1.0, 0.0, 2.0], [0.0, 0.0, -0.25]),
    "rsqrt": (wf.rsqrt, [-1.0, 0.0, 4.0], [0.0, 0.0, -0.0625]),
    "log1p": (wf.log1p, [-3.0, -1.0, 1.0], [0.0, 0.0, 0.5]),
    "pow": (lambda x: x**0.5, [-1.0, 0.0, 4.0], [0.0, 0.0, 0.25]),
    "asin": (wf.asin, [-2.0, -1.0, 0.0], [0.0, 0.0, 1.0]),
    "cbrt": (wf.cbrt, [-1.0, 0.0, 8.0], [0.0, 0.0, 1 / 12]),
}


@pytest.mark.parametrize("name", UNBOUNDED)
def test_no_nan_out_of_a_masked_branch(device, name):
    f, x, expected = UNBOUNDED[name]
    x = leaf(x, device)
    keep = wf.asarray([False, False, True], device=device)
    y = wf.where(keep, f(x), 0.0)
    g = y.sum().backward(create_graph=True)[x]
    np.testing.assert_allclose(g.tolist(), expected, rtol=1e-14)
    assert np.isfinite(g.sum().backward()[x].tolist()).all()


def test_norm_in_a_masked_branch(device):
    x = leaf([[0.0, 0.0], [3.0, 4.0]], device)
    keep = wf.asarray([False, True], device=device)
    y = wf.where(keep, wf.norm(x, axis=1), 0.0)
    np.testing.assert_allclose(y.sum().backward()[x].tolist(), [[0, 0], [0.6, 0.8]])


def test_the_strong_product_is_differentiable(device):
    assert second(lambda x: wf.log(x) ** 2, leaf([1.0], device)) == [2.0]


def test_plain_products_follow_ieee(device):
    x = leaf([0.0], device)
    assert np.isnan(gradient(lambda x: x * float("inf") * 0.0, x)).all()


def test_complex_gradients_descend(device):
    z = leaf([3 + 4j], device, "complex128")
    np.testing.assert_allclose(gradient(lambda z: wf.abs(z) ** 2, z), [6 + 8j], rtol=1e-15)


def test_integer_results_are_not_tracked(device):
    x = leaf([1.0, 2.0], device)
    assert not wf.argmax(x).requires_grad
    assert not (x > 1).requires_grad
    assert not x.to("int64").requires_grad


def test_integers_cannot_require_a_gradient(device):
    with pytest.raises(wf.NotDifferentiable, match="int64"):
        wf.tensor([1, 2], device=device, requires_grad=True)


def test_names_follow_numpy(device):
    x = leaf([1.0, 2.0, 3.0, 10.0], device)
    assert wf.median(x).item() == 2.5
    assert wf.var(x).item() == np.var([1.0, 2.0, 3.0, 10.0])
    assert wf.max(x).shape == ()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_sums_accumulate_in_float32(device, dtype):
    x = wf.full(4096, 1.0, dtype=dtype, device=device)
    assert wf.sum(x).item() == 4096.0
    assert wf.mean(x).item() == 1.0
    assert wf.sum(x).dtype == wf.canonical_dtype(dtype)


def test_scalars_never_widen(device):
    x = wf.ones(3, device=device)
    for y in (x * 2.0, x + 1, 2.0 / x, x**2.0, wf.maximum(x, 1e-3)):
        assert y.dtype == wf.float32
    assert (x + wf.asarray(1, device=device)).dtype == wf.float32
