"""Gradient clipping: beside torch.nn.utils, in every container, and with what is not finite."""

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import weft as wf
from weft import errors
from weft.backend.torch import gradients
from weft.optim import clip_grad_adaptive, clip_grad_norm, clip_grad_value, norms


@pytest.fixture(params=["cpu", "torch"])
def device(request):
    return request.param


SHAPES = [(4, 3), (5,), (2, 3, 2), ()]


def values(scale=3.0, dtype=np.float64):
    rng = np.random.default_rng(0)
    return [np.asarray(scale * rng.standard_normal(s), dtype) for s in SHAPES]


def parameters(device, grads):
    params = [wf.Parameter(wf.ones(g.shape, dtype=str(g.dtype), device=device)) for g in grads]
    for p, g in zip(params, grads, strict=True):
        p.grad = wf.tensor(g, device=device)
    return params


def on_torch(grads):
    params = [torch.ones(g.shape, dtype=torch.float64, requires_grad=True) for g in grads]
    for p, g in zip(params, grads, strict=True):
        p.grad = torch.tensor(g)
    return params


@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3.0, float("inf")])
@pytest.mark.parametrize("max_norm", [0.5, 5.0, 1e3, 0.0])
def test_norm_beside_torch(device, norm_type, max_norm):
    params, theirs = parameters(device, values()), on_torch(values())
    total = clip_grad_norm(params, max_norm, norm_type)
    expected = torch.nn.utils.clip_grad_norm_(theirs, max_norm, norm_type)
    assert type(total) is float and total == pytest.approx(expected.item(), rel=1e-12)
    for p, q in zip(params, theirs, strict=True):
        # torch adds 1e-6 to the norm that it divides by.
        np.testing.assert_allclose(p.grad.tolist(), q.grad.numpy(), rtol=1e-5, atol=1e-12)


def test_value_beside_torch(device):
    params, theirs = parameters(device, values()), on_torch(values())
    assert clip_grad_value(params, 1.5) is None
    torch.nn.utils.clip_grad_value_(theirs, 1.5)
    for p, q in zip(params, theirs, strict=True):
        assert p.grad.tolist() == q.grad.tolist()


def test_every_container(device):
    def clipped(container, read):
        total = clip_grad_norm(container, 1.0)
        assert total == pytest.approx(np.sqrt(sum(np.sum(v**2) for v in values())))
        return [np.asarray(g.tolist()) for g in read()]

    params = parameters(device, values())
    expected = clipped(params, lambda: [p.grad for p in params])
    assert np.sqrt(sum(np.sum(v**2) for v in expected)) == pytest.approx(1.0)

    fresh = parameters(device, values())
    grads = wf.GradientMap({p.id: p.grad for p in fresh})
    found = {"map": clipped(grads, lambda: [grads[p] for p in fresh])}
    assert fresh[0].grad.tolist() == values()[0].tolist()
    listed = [p.grad for p in fresh]
    found["list"] = clipped(listed, lambda: listed)
    triples = [(p.id, p, p.grad) for p in fresh]
    found["triples"] = clipped(triples, lambda: [g for _, _, g in triples])
    assert all(a is b for (_, a, _), b in zip(triples, fresh, strict=True))
    couples = [(p, p.grad) for p in fresh]
    found["pairs"] = clipped(couples, lambda: [g for _, g in couples])
    found["generator"] = clipped((p for p in fresh), lambda: [p.grad for p in fresh])
    fresh = parameters(device, values())
    named = wf.ParameterDict({str(i): p for i, p in enumerate(fresh)})
    found["module"] = clipped(named, lambda: [p.grad for p in fresh])
    fresh = parameters(device, values())
    named = [(str(i), p) for i, p in enumerate(fresh)]
    found["named"] = clipped(named, lambda: [p.grad for p in fresh])
    for name, arrays in found.items():
        for a, b in zip(arrays, expected, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=name)


def test_missing_gradients_are_skipped():
    p, q = wf.Parameter([1.0]), wf.Parameter([1.0])
    p.grad = wf.tensor([10.0])
    assert clip_grad_norm([p, q], 1.0) == 10.0 and q.grad is None
    grads = [wf.tensor([3.0]), None, wf.tensor([4.0])]
    assert clip_grad_norm(grads, 1.0) == 5.0 and grads[1] is None
    assert clip_grad_norm([], 1.0) == 0.0


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_reported_and_not_spread(device, bad):
    grads = values()
    grads[1][2] = bad
    params = parameters(device, grads)
    total = clip_grad_norm(params, 1.0)
    assert not np.isfinite(total) and np.isnan(total) == np.isnan(bad)
    for p, g in zip(params, grads, strict=True):
        np.testing.assert_array_equal(p.grad.tolist(), g)
    with pytest.raises(errors.AnomalyError, match=r"not finite: 1;.*test_clip.py"):
        clip_grad_norm(params, 1.0, error_if_nonfinite=True)
    listed = [p.grad for p in params]
    assert wf.gradient_clipping.clip_by_global_norm(listed, 1.0)[0].tolist() == grads[0].tolist()


def test_squares_that_overflow(device):
    grads = [wf.tensor([3e30, 4e30], device=device), wf.tensor([0.0], device=device)]
    assert clip_grad_norm(grads, 1.0) == pytest.approx(5e30, rel=1e-6)
    np.testing.assert_allclose(grads[0].numpy(), [0.6, 0.8], rtol=1e-6)
    (g,) = wf.gradient_clipping.clip_by_global_norm([wf.tensor([3e30, 4e30])], 1.0)
    np.testing.assert_allclose(g.numpy(), [0.6, 0.8], rtol=1e-6)


def test_large_norms_are_precise(device):
    g = np.full(3_000_000, 0.1, np.float32)
    expected = float(np.float32(0.1)) * np.sqrt(3_000_000)
    assert clip_grad_norm([wf.tensor(g, device=device)], 1e9) == pytest.approx(expected, rel=1e-6)


@pytest.fixture
def asynchronous(monkeypatch):
    """PyTorch's CPU counts as a GPU; returns what counts the reads of numbers."""
    monkeypatch.setattr(norms, "is_asynchronous", lambda device: device == "torch")
    return Reads


class Reads(TorchDispatchMode):
    """Counts the numbers that are read from arrays, each of which waits for a GPU."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3.0, float("inf")])
@pytest.mark.parametrize("max_norm", [0.5, 1e3])
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "complex128"])
def test_nothing_waits_for_a_norm_on_a_gpu(asynchronous, norm_type, max_norm, dtype):
    arrays = [wf.tensor(v).to(dtype) for v in values()]
    expected = list(arrays)
    norm = clip_grad_norm(expected, max_norm, norm_type)
    grads = [g.to("torch") for g in arrays]
    with asynchronous() as reads:
        total = clip_grad_norm(grads, max_norm, norm_type)
    assert reads.count == 0 and isinstance(total, wf.Tensor)
    precision = 1e-5 if dtype in ("float32", "bfloat16") else 1e-12
    assert float(total) == pytest.approx(norm, rel=precision)
    for g, e in zip(grads, expected, strict=True):
        assert g.dtype == e.dtype and g.device == "torch"
        a, b = (np.asarray(x.to("cpu").tolist()) for x in (g, e))
        np.testing.assert_allclose(a, b, rtol=2**-7 if dtype == "bfloat16" else precision)


@pytest.mark.parametrize("kind", [1.0, 2.0, float("inf")])
def test_norms_of_many_arrays_by_dtype(kind):
    """What runs on CUDA only: one kernel for all arrays of a dtype."""
    arrays = [torch.tensor(v).to(d) for v in values() for d in (torch.float64, torch.bfloat16)]
    found = gradients._combined(gradients._norms_by_dtype(arrays, kind), kind)
    assert found.item() == pytest.approx(gradients.joint_norm(arrays, kind).item(), rel=1e-12)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gpus_gradients_that_are_not_finite_stay(asynchronous, bad):
    arrays = values()
    arrays[1][2] = bad
    grads = [wf.tensor(v, device="torch") for v in arrays]
    total = clip_grad_norm(grads, 1.0)
    assert not np.isfinite(float(total))
    for g, v in zip(grads, arrays, strict=True):
        np.testing.assert_array_equal(g.to("cpu").numpy(), v)
    with pytest.raises(errors.AnomalyError, match="not finite: 1;"):
        clip_grad_norm(grads, 1.0, error_if_nonfinite=True)


def test_norms_over_two_devices(asynchronous):
    grads = [wf.tensor([3.0]), wf.tensor([4.0], device="torch")]
    assert clip_grad_norm(grads, 1.0) == pytest.approx(5.0)
    assert [round(g.item(), 6) for g in grads] == [0.6, 0.8]


def test_a_scaler_reads_no_number_in_a_step(asynchronous):
    p = wf.Parameter(wf.ones(3, device="torch"))
    optimizer, scaler = wf.optim.SGD([p], lr=0.5), wf.amp.GradScaler(4.0)
    with asynchronous() as reads:
        scaler.scale(p.sum()).backward()
        norm = scaler.unscale(optimizer)
        wf.optim.clip_grads_with_norm([p], 1.0, norm)
        scaler.step(optimizer)
        scaler.update()
    assert reads.count == 0
    np.testing.assert_allclose(p.detach().numpy(), 1 - 0.5 / np.sqrt(3), rtol=1e-6)
    scaler.scale((p * wf.tensor([1.0, float("inf"), 1.0], device="torch")).sum()).backward()
    scaler.step(optimizer)
    assert scaler.skipped


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64"])
def test_dtypes_are_kept(device, dtype):
    g = wf.ones((300, 300), dtype=dtype, device=device) * 200
    p = wf.Parameter(wf.ones((300, 300), dtype=dtype, device=device))
    p.grad = g
    total = clip_grad_norm([p], 3.0)
    assert total == pytest.approx(200 * 300, rel=1e-2)
    assert p.grad.dtype == g.dtype
    assert abs(p.grad[0, 0].item()) == pytest.approx(0.01, rel=1e-2)
    if dtype != "complex64":
        clip_grad_value([p], 0.005)
        assert p.grad.dtype == g.dtype
        assert p.grad[0, 0].item() == pytest.approx(0.005, rel=1e-2)
    else:
        with pytest.raises(errors.DTypeError, match="no order"):
            clip_grad_value([p], 0.005)
    (h,) = wf.gradient_clipping.clip_by_global_norm([g], 3.0)
    assert h.dtype == g.dtype and abs(h[0, 0].item()) == pytest.approx(0.01, rel=1e-2)


def test_adaptive(device):
    """Brock et al., equation 3, unit by unit."""
    rng = np.random.default_rng(1)
    weights = [rng.standard_normal(s) for s in SHAPES]
    weights[0][0] = 0.0  # counts as eps
    grads = values(scale=0.02)
    params = [wf.Parameter(wf.tensor(w, device=device)) for w in weights]
    for p, g in zip(params, grads, strict=True):
        p.grad = wf.tensor(g, device=device)
    maps = wf.GradientMap({p.id: p.grad for p in params})
    listed = [p.grad for p in params]
    clip_grad_adaptive(params, 0.01, 1e-3)
    clip_grad_adaptive(maps, 0.01, 1e-3, params=params)
    clip_grad_adaptive(listed, 0.01, 1e-3, params=params)
    clipped = 0
    for p, w, g, in_list in zip(params, weights, grads, listed, strict=True):
        units = [(w[i], g[i]) for i in range(len(w))] if w.ndim > 1 else [(w, g)]
        rows = []
        for unit, gradient in units:
            limit = 0.01 * max(np.linalg.norm(unit.ravel()), 1e-3)
            norm = np.linalg.norm(gradient.ravel())
            rows.append(gradient * min(1.0, limit / norm))
            clipped += norm > limit
        expected = np.stack(rows) if w.ndim > 1 else rows[0]
        np.testing.assert_allclose(p.grad.tolist(), expected, rtol=1e-12)
        assert p.grad.tolist() == maps[p].tolist() == in_list.tolist()
    assert 0 < clipped < 8
    g = wf.tensor(np.array([np.nan, 1.0]), device=device)
    q = wf.Parameter(wf.ones(2, dtype="float64", device=device))
    triples = [(q.id, q, g)]
    clip_grad_adaptive(triples)
    np.testing.assert_array_equal(triples[0][2].tolist(), [np.nan, 1.0])
    with pytest.raises(errors.ArgumentError, match="params="):
        clip_grad_adaptive([wf.ones(2)])


def test_clipper(device):
    clipper = wf.optim.GradientClipper(1.0)
    p = wf.Parameter(wf.tensor([3.0, 4.0], device=device))
    grads = (p * p).sum().backward()
    assert clipper.clip_grads(grads) is grads and clipper.total_norm == pytest.approx(10.0)
    np.testing.assert_allclose(grads[p].tolist(), [0.6, 0.8], rtol=1e-6)


def test_functional_forms(device):
    grads = [wf.tensor(v, device=device) for v in values()]
    kept = [g.tolist() for g in grads]
    clipped = wf.gradient_clipping.clip_by_global_norm([*grads, None], 1.0)
    assert clipped[-1] is None and [g.tolist() for g in grads] == kept
    in_place = list(grads)
    clip_grad_norm(in_place, 1.0)
    for a, b in zip(clipped[:-1], in_place, strict=True):
        np.testing.assert_allclose(a.tolist(), b.tolist(), rtol=1e-12)
    limited = wf.gradient_clipping.clip_by_value((grads[0],), 0.5)
    assert limited[0].tolist() == np.clip(values()[0], -0.5, 0.5).tolist()
    below = wf.gradient_clipping.clip_by_global_norm(grads, 1e6)
    assert [g.tolist() for g in below] == kept
    p = wf.Parameter(wf.ones(2, device=device))
    grads = (p * 3.0).sum().backward()
    found = wf.gradient_clipping.clip_by_global_norm(grads, 1.0)
    assert isinstance(found, wf.GradientMap) and grads[p].tolist() == [3.0, 3.0]
    np.testing.assert_allclose(found[p].tolist(), [0.5**0.5] * 2, rtol=1e-6)


def test_functional_forms_are_differentiable():
    def f(x):
        a, b = wf.gradient_clipping.clip_by_global_norm([x * x, wf.sin(x)], 0.5)
        (c,) = wf.gradient_clipping.clip_by_value([x * 3.0], 2.0)
        return (a * a * b).sum() + (c * c).sum()

    wf.check_grads(f, (np.array([0.3, 1.2, -2.0]),), order=1)
    from weft.gradient_clipping import clip_by_value

    assert clip_by_value is wf.gradient_clipping.clip_by_value


@pytest.mark.parametrize("given", [list, iter, tuple])
def test_frozen_parameters_are_no_gradients(given):
    """`model.parameters()` of a model that is trained in part, as in PyTorch."""
    model = wf.nn.Sequential(wf.nn.Linear(2, 3), wf.nn.Linear(3, 1))
    theirs = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
    theirs.load_state_dict({k: torch.tensor(v.numpy()) for k, v in model.state_dict().items()})
    model[0].requires_grad_(False)
    theirs[0].requires_grad_(False)
    model(wf.ones((4, 2))).sum().backward()
    theirs(torch.ones(4, 2)).sum().backward()
    norm = clip_grad_norm(given(model.parameters()), 2.0)
    expected = torch.nn.utils.clip_grad_norm_(theirs.parameters(), 2.0)
    assert norm == pytest.approx(expected.item(), rel=1e-6)
    np.testing.assert_allclose(
        model[1].weight.grad.numpy(), theirs[1].weight.grad.numpy(), rtol=1e-5
    )
    before = model[0].weight.tolist()
    clip_grad_value(given(model.parameters()), 0.1)
    assert np.abs(model[1].weight.grad.numpy()).max() == pytest.approx(0.1)
    assert model[0].weight.tolist() == before


BAD = {
    "negative norm": (errors.ArgumentError, lambda: clip_grad_norm([], -1.0)),
    "norm that is no number": (errors.ArgumentError, lambda: clip_grad_norm([], float("nan"))),
    "kind of norm": (errors.ArgumentError, lambda: clip_grad_norm([wf.ones(1)], 1.0, 0.0)),
    "text": (errors.DTypeError, lambda: clip_grad_norm([], "1")),
    "negative value": (errors.ArgumentError, lambda: clip_grad_value([], -1.0)),
    "a tensor": (errors.DTypeError, lambda: clip_grad_norm(wf.ones(2), 1.0)),
    "a tuple": (errors.DTypeError, lambda: clip_grad_norm((wf.ones(2),), 1.0)),
    "numbers": (errors.DTypeError, lambda: clip_grad_norm([1.0], 1.0)),
    "functional tensor": (
        errors.DTypeError,
        lambda: wf.gradient_clipping.clip_by_value(wf.ones(2), 1.0),
    ),
    "functional numbers": (
        errors.DTypeError,
        lambda: wf.gradient_clipping.clip_by_global_norm([1.0], 1.0),
    ),
    "clipper": (errors.ArgumentError, lambda: wf.optim.GradientClipper(-1.0)),
}


@pytest.mark.parametrize("name", BAD)
def test_mistakes(name):
    error, call = BAD[name]
    with pytest.raises(error, match=r"\(at test_clip.py:\d+\)"):
        call()
