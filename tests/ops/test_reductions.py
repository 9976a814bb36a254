"""Reductions, running sums and order: against NumPy, finite differences and torch.autograd."""

from math import inf

import numpy as np
import pytest
import torch

import weft as wf
from weft.ops import cumulate, distinct, nans, order, quantiles, reduce

DEVICES = ("cpu", "torch")
RNG = np.random.default_rng(7)
X = RNG.standard_normal((3, 4, 2))


def leaf(a, device):
    return wf.tensor(a, requires_grad=True, device=device)


def host(t):
    """A tensor of any device as a NumPy array."""
    return t.detach().to("cpu").numpy()


def weighted(f, x):
    """Σ w·f(x) for fixed uneven weights w."""
    y = f(x)
    w = wf.asarray(np.cos(np.arange(y.size)).reshape(y.shape), device=y.device)
    return (y * w).sum()


def gradient(f, a, device):
    x = leaf(a, device)
    return host(weighted(f, x).backward()[x])


def curvature(f, a, p, device):
    """The Hessian of `weighted` times p."""
    x = leaf(a, device)
    g = weighted(f, x).backward(create_graph=True)[x]
    if not g.requires_grad:
        return np.zeros(a.shape)
    grads = (g * wf.asarray(p, device=device)).sum().backward()
    return np.zeros(a.shape) if grads.get(x) is None else host(grads[x])


def central(f, a, p, h=1e-6):
    return (f(a + h * p) - f(a - h * p)) / (2 * h)


def check(f, a, device):
    """First and second derivatives of f at a against central differences."""
    p = RNG.standard_normal(a.shape)

    def value(b):
        return host(weighted(f, wf.asarray(b, device=device)))

    np.testing.assert_allclose((gradient(f, a, device) * p).sum(), central(value, a, p), atol=1e-7)
    expected = central(lambda b: gradient(f, b, device), a, p)
    np.testing.assert_allclose(curvature(f, a, p, device), expected, atol=1e-6)


COMPOSITES = {
    "norm1": (lambda x: reduce.norm(x, (0, 2), True, 1), None),
    "norm inf": (lambda x: reduce.norm(x, (1,), False, inf), None),
    "norm -inf": (lambda x: reduce.norm(x, (1,), False, -inf), None),
    "norm 3": (lambda x: reduce.norm(x, (0, 1, 2), False, 3), None),
    "median odd": (lambda x: quantiles.median(x, (0,)), lambda x: np.median(x, 0)),
    "median even": (
        lambda x: quantiles.median(x, (1, 2), True),
        lambda x: np.median(x, (1, 2), keepdims=True),
    ),
    "quantile": (
        lambda x: quantiles.quantile(x, 0.3, (0, 1)),
        lambda x: np.quantile(x, 0.3, (0, 1)),
    ),
    "quantiles": (
        lambda x: quantiles.quantile(x, (0.0, 0.25, 0.9, 1.0), (1,), True),
        lambda x: np.quantile(x, (0.0, 0.25, 0.9, 1.0), 1, keepdims=True),
    ),
    "quantile table": (
        lambda x: quantiles.quantile(x, [[0.1, 0.2], [0.3, 0.4]], (0, 1, 2)),
        lambda x: np.quantile(x, [[0.1, 0.2], [0.3, 0.4]]),
    ),
    "percentile": (
        lambda x: quantiles.percentile(x, 40, (2, 0)),
        lambda x: np.percentile(x, 40, (0, 2)),
    ),
    "diff": (lambda x: cumulate.diff(x, 1, 2), lambda x: np.diff(x, 2, 1)),
    "diff away": (lambda x: cumulate.diff(x, 0, 5), lambda x: np.diff(x, 5, 0)),
    "max_with_indices": (lambda x: order.max_with_indices(x, 1)[0], lambda x: x.max(1)),
    "min_with_indices": (lambda x: order.min_with_indices(x, 2, True)[0], None),
    "nansum": (lambda x: nans.nansum(x, (0,)), lambda x: np.nansum(x, 0)),
    "nanprod": (lambda x: nans.nanprod(x, (1,)), lambda x: np.nanprod(x, 1)),
    "nanmax": (lambda x: nans.nanmax(x, (1, 2)), lambda x: np.nanmax(x, (1, 2))),
    "nanmin": (lambda x: nans.nanmin(x, (1, 2)), lambda x: np.nanmin(x, (1, 2))),
    "nanmean": (lambda x: nans.nanmean(x, (0,)), lambda x: np.nanmean(x, 0)),
    "nanvar": (
        lambda x: nans.nanvar(x, (0, 1), False, 1),
        lambda x: np.nanvar(x, (0, 1), ddof=1),
    ),
    "nanstd": (lambda x: nans.nanstd(x, (1,), True), lambda x: np.nanstd(x, 1, keepdims=True)),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", COMPOSITES)
def test_composite(name, device):
    f, expected = COMPOSITES[name]
    if expected is not None:
        np.testing.assert_allclose(host(f(wf.asarray(X, device=device))), expected(X), rtol=1e-13)
    check(f, X, device)


METHODS = (*quantiles._PLOTTING, *quantiles._ROUNDING)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("method", METHODS)
def test_quantile_methods(method, device):
    x = wf.asarray(X.reshape(-1), device=device)
    for q in (0.0, 0.01, 0.3, 0.5, 0.77, 1.0):
        got = quantiles.quantile(x, q, (0,), False, method)
        np.testing.assert_allclose(host(got), np.quantile(X, q, method=method), rtol=1e-13)
    qs = np.array([[0.0, 0.11], [0.5, 1.0]])
    got = quantiles.quantile(
        wf.asarray(X, device=device), wf.asarray(qs, device=device), (0, 2), True, method
    )
    expected = np.quantile(X, qs, (0, 2), method=method, keepdims=True)
    np.testing.assert_allclose(host(got), expected, rtol=1e-13)


@pytest.mark.parametrize("device", DEVICES)
def test_quantile_in_q(device):
    a = X[:, :, 0]
    check(
        lambda q: quantiles.quantile(wf.asarray(a, device=device), q, (0, 1)),
        np.array([0.21, 0.68]),
        device,
    )


@pytest.mark.parametrize("device", DEVICES)
def test_nan_in_order_statistics(device):
    a = np.array([[1.0, np.nan, 2.0], [3.0, 5.0, 4.0]])
    x = wf.asarray(a, device=device)
    np.testing.assert_array_equal(host(quantiles.median(x, (1,))), [np.nan, 4.0])
    np.testing.assert_array_equal(host(quantiles.quantile(x, 0.5, (1,))), [np.nan, 4.0])
    np.testing.assert_array_equal(
        gradient(lambda x: nans.nanmean(x, (1,)), a, device)[0], [0.5, 0.0, 0.5]
    )
    lost = wf.asarray(np.full((2,), np.nan), device=device)
    for f in (nans.nanmax, nans.nanmin, nans.nanmean, nans.nanvar):
        assert np.isnan(host(f(lost, (0,))))


def test_median_of_infinities():
    assert quantiles.median(wf.asarray([inf, inf]), (0,)).item() == inf
    assert quantiles.quantile(wf.asarray([1.0, inf]), 0.0, (0,)).item() == 1.0


TABLE_X = np.array([-1.0, 0.2, 0.5, 2.0])
TABLE_F = np.array([0.3, -1.0, 2.0, 0.7])
AT = np.array([[-2.0, -0.4, 0.3], [1.1, 1.9, 5.0]])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("options", [{}, {"left": -7.0, "right": 9.0}, {"period": 3.7}])
def test_interp(options, device):
    def f(*arrays):
        whole = [wf.asarray(a, device=device) if isinstance(a, np.ndarray) else a for a in arrays]
        return quantiles.interp(*whole, **options)

    np.testing.assert_allclose(
        host(f(AT, TABLE_X, TABLE_F)), np.interp(AT, TABLE_X, TABLE_F, **options), rtol=1e-13
    )
    knots = f(TABLE_X, TABLE_X, TABLE_F)
    np.testing.assert_allclose(host(knots), np.interp(TABLE_X, TABLE_X, TABLE_F, **options))
    check(lambda x: f(x, TABLE_X, TABLE_F), AT, device)
    check(lambda xp: f(AT, xp, TABLE_F), TABLE_X, device)
    check(lambda fp: f(AT, TABLE_X, fp), TABLE_F, device)


def test_interp_at_the_ends():
    x = wf.asarray(np.array([0.0, 1.0, np.nan]))
    one = quantiles.interp(x, wf.asarray(np.array([0.5])), wf.asarray(np.array([3.0])))
    np.testing.assert_array_equal(one.numpy(), np.interp(x.numpy(), [0.5], [3.0]))
    twice = quantiles.interp(
        x, wf.asarray(np.array([0.0, 1.0, 1.0])), wf.asarray(np.array([3.0, 4.0, 5.0]))
    )
    assert twice.numpy()[:2].tolist() == [3.0, 5.0]
    with pytest.raises(wf.errors.ShapeError, match="interp"):
        quantiles.interp(x, x, wf.asarray(np.zeros(2)))


@pytest.mark.parametrize("device", DEVICES)
def test_counting(device):
    i = wf.asarray(np.array([0, 3, 1, 3]), device=device)
    assert distinct.bincount(i).tolist() == [1, 1, 0, 2]
    assert distinct.bincount(i, minlength=6).tolist() == [1, 1, 0, 2, 0, 0]
    np.testing.assert_array_equal(
        gradient(lambda w: distinct.bincount(i, w), np.ones(4), device),
        np.cos([0.0, 3.0, 1.0, 3.0]),
    )
    with pytest.raises(wf.errors.ArgumentError, match="negative"):
        distinct.bincount(wf.asarray(np.array([-1]), device=device))
    a, edges = X.reshape(-1), np.array([-1.0, -0.5, 0.1, X.max()])
    got = distinct.histogram(wf.asarray(a, device=device), wf.asarray(edges, device=device))
    assert got.tolist() == np.histogram(a, edges)[0].tolist()
    w = np.arange(a.size, dtype=float)
    got = distinct.histogram(*(wf.asarray(v, device=device) for v in (a, edges, w)))
    np.testing.assert_allclose(host(got), np.histogram(a, edges, weights=w)[0])


@pytest.mark.parametrize("device", DEVICES)
def test_unique(device):
    a = np.array([[2.0, 1.0], [2.0, 3.0]])
    x = wf.asarray(a, device=device)
    expected = np.unique(a, return_index=True, return_inverse=True, return_counts=True)
    for got, want in zip(distinct.unique_all(x), expected, strict=True):
        np.testing.assert_array_equal(host(got), want)
    assert distinct.unique_values(x).tolist() == [1.0, 2.0, 3.0]
    assert [t.tolist() for t in distinct.unique_counts(x)] == [[1.0, 2.0, 3.0], [1, 2, 1]]
    assert distinct.unique_inverse(x)[1].tolist() == [[1, 0], [1, 2]]
    t = leaf(a, device)
    for values in (distinct.unique_values(t), distinct.unique_counts(t)[0]):
        with pytest.raises(wf.NotDifferentiable, match="unique"):
            values.sum().backward()


@pytest.mark.parametrize("device", DEVICES)
def test_conventions(device):
    ties = np.array([2.0, 1.0, 2.0, 2.0])
    ones = wf.asarray(np.array(1.0), device=device)

    def grad(f, a):
        x = leaf(a, device)
        return host((f(x) * ones).sum().backward()[x]).tolist()

    third = 1 / 3
    assert grad(lambda x: reduce.amax(x, (0,), False), ties) == [third, 0, third, third]
    assert grad(lambda x: order.max_with_indices(x, 0)[0], ties) == [1, 0, 0, 0]
    assert grad(lambda x: order.cummax(x, 0)[0], ties) == [2, 0, 1, 1]
    assert reduce.norm(leaf(ties - 1, device), (0,), False, 0).item() == 3.0
    assert grad(lambda x: reduce.norm(x, (0,)), np.zeros(2)) == [0, 0]
    assert grad(lambda x: reduce.norm(x, (0,), False, 3), np.zeros(2)) == [0, 0]
    assert grad(lambda x: reduce.std(x, (0,), False, 0), np.full(4, 0.5)) == [0] * 4
    assert grad(lambda x: reduce.logsumexp(x, (0,), False), np.full(2, -inf)) == [0, 0]
    assert grad(lambda x: reduce.prod(x, (0,), False), np.array([0.0, 2, 3])) == [6, 0, 0]
    assert grad(lambda x: order.sort(x, 0, True)[0], ties) == [1, 0, 0, 0]


@pytest.mark.parametrize("device", DEVICES)
def test_prod_with_zeros_to_second_order(device):
    a = np.array([0.0, 0.0, 3.0, 5.0])
    x = leaf(a, device)
    g = reduce.prod(x, (0,), False).backward(create_graph=True)[x]
    hessian = np.zeros((4, 4))
    for i in range(4):
        grads = g[i].backward(retain_graph=True)
        hessian[i] = host(grads[x])
    expected = np.zeros((4, 4))
    expected[0, 1] = expected[1, 0] = 15.0
    np.testing.assert_array_equal(hessian, expected)


TORCH = {
    "prod": (lambda x: reduce.prod(x, (1,), False), lambda x: x.prod(1)),
    "amax": (lambda x: reduce.amax(x, (0, 2), False), lambda x: x.amax((0, 2))),
    "amin": (lambda x: reduce.amin(x, (0, 2), True), lambda x: x.amin((0, 2), keepdim=True)),
    "var": (lambda x: reduce.var(x, (1,), False, 1), lambda x: x.var(1)),
    "std": (lambda x: reduce.std(x, (0, 1), False, 1), lambda x: x.std((0, 1))),
    "norm": (lambda x: reduce.norm(x, (1,)), lambda x: x.norm(dim=1)),
    "norm 3": (lambda x: reduce.norm(x, (1,), False, 3), lambda x: x.norm(3, 1)),
    "norm 1.5": (
        lambda x: reduce.norm(x, (0, 1), False, 1.5),
        lambda x: torch.linalg.vector_norm(x, 1.5, (0, 1)),
    ),
    "logsumexp": (lambda x: reduce.logsumexp(x, (1, 2), False), lambda x: x.logsumexp((1, 2))),
    "softmax": (lambda x: reduce.softmax(x, 1), lambda x: x.softmax(1)),
    "log_softmax": (lambda x: reduce.log_softmax(x, 0), lambda x: x.log_softmax(0)),
    "cumsum": (lambda x: cumulate.cumsum(x, 1), lambda x: x.cumsum(1)),
    "cumprod": (lambda x: cumulate.cumprod(x, 1), lambda x: x.cumprod(1)),
    "logcumsumexp": (lambda x: cumulate.logcumsumexp(x, 1), lambda x: x.logcumsumexp(1)),
    "cummax": (lambda x: order.cummax(x, 1)[0], lambda x: x.cummax(1).values),
    "cummin": (lambda x: order.cummin(x, 1)[0], lambda x: x.cummin(1).values),
    "sort": (lambda x: order.sort(x, 1, True), lambda x: x.sort(1, descending=True).values),
    "topk": (lambda x: order.topk(x, 2, 1, True)[0], lambda x: x.topk(2, 1).values),
    "topk smallest": (
        lambda x: order.topk(x, 2, 1, False)[0],
        lambda x: x.topk(2, 1, largest=False).values,
    ),
    "quantile": (lambda x: quantiles.quantile(x, 0.3, (1,)), lambda x: x.quantile(0.3, 1)),
}
INPUTS = {
    "plain": X,
    "zeros": np.where(np.abs(X) < 0.6, 0.0, X),
    "ties": np.round(X),
    "large": 300 * X,
}


def _comparable(name, kind):
    """PyTorch has other conventions at the kinks of some functions."""
    kinked = name.startswith(("norm", "std", "sort", "topk", "quantile", "cummax", "cummin"))
    return kind in ("plain", "large") or not kinked


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("name", "kind"), [(n, k) for n in TORCH for k in INPUTS if _comparable(n, k)]
)
def test_as_torch_autograd(name, kind, device):
    """Values, gradients and Hessian products equal PyTorch's own."""
    f, theirs = TORCH[name]
    a, p = INPUTS[kind], RNG.standard_normal(X.shape)
    x = torch.tensor(a, requires_grad=True)
    y = theirs(x)
    np.testing.assert_allclose(host(f(wf.asarray(a, device=device))), y.detach(), rtol=1e-12)
    w = torch.tensor(np.cos(np.arange(y.numel())).reshape(y.shape))
    (g,) = torch.autograd.grad((y * w).sum(), x, create_graph=True)
    np.testing.assert_allclose(gradient(f, a, device), g.detach(), rtol=1e-10, atol=1e-12)
    if g.requires_grad and kind != "ties":
        (h,) = torch.autograd.grad((g * torch.tensor(p)).sum(), x)
        np.testing.assert_allclose(curvature(f, a, p, device), h, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [1, 3, 8, 20, 60])
def test_topk_by_every_route(k, largest):
    """Rounds, partition and sorting find the same elements, also among ties and infinities."""
    for a in (X.reshape(-1).repeat(4), np.tile([1.0, -inf, inf, np.nan, 0.0], 20)):
        for rows in (a, np.stack([a, a[::-1]])):
            values, index = order.topk(wf.asarray(rows), k, rows.ndim - 1, largest)
            ranked = np.sort(rows, axis=-1)
            ranked = ranked[..., ::-1] if largest else ranked
            np.testing.assert_array_equal(values.numpy(), ranked[..., :k])
            picked = np.take_along_axis(rows, index.numpy(), -1)
            np.testing.assert_array_equal(picked, values.numpy())
            assert all(len(set(i)) == k for i in index.numpy().reshape(-1, k).tolist())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(1000,), (257, 3), (2, 300, 2), (100, 40)])
def test_linear_recurrence(shape, device):
    """Blocks and single steps give what the definition says."""
    axis = int(np.argmax(shape))
    a, b = RNG.uniform(-1.2, 1.2, shape), RNG.standard_normal(shape)
    got = cumulate.linear_recurrence(*(wf.asarray(v, device=device) for v in (a, b)), axis)
    a, h = np.moveaxis(a, axis, 0), np.moveaxis(b, axis, 0).copy()
    for k in range(1, len(h)):
        h[k] += a[k] * h[k - 1]
    np.testing.assert_allclose(host(got), np.moveaxis(h, 0, axis), rtol=1e-10, atol=1e-12)


def test_half_types_accumulate_in_single():
    ones = np.ones(4096, np.float16)
    for dtype in ("float16", "bfloat16"):
        x = wf.asarray(ones).to(dtype)
        for device in DEVICES:
            t = x.to(device)
            assert reduce.mean(t, (0,), False).item() == 1.0
            assert reduce.p_norm(t, (0,), False, 2).item() == 64.0
            assert cumulate.cumsum(t, 0)[-1].item() == 4096.0
            assert reduce.mean(t * 60000, (0,), False).item() == (t[0] * 60000).item()
