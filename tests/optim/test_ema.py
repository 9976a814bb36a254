"""Averages of parameters: their closed form, swapping, saving, and steps that average."""

import numpy as np
import pytest

import weft as wf
from weft import errors


@pytest.fixture(params=["cpu", "torch"])
def device(request):
    return request.param


def parameter(device, values=(1.0, 2.0), dtype="float64"):
    return wf.Parameter(wf.tensor(list(values), dtype=dtype, device=device))


def moved(p, by):
    p.apply_update(wf.tensor([-by] * p.size, dtype=p.dtype, device=p.device))


def test_closed_form(device):
    decay, p = 0.9, parameter(device)
    ema = wf.optim.EMA([p], decay)
    history = [np.asarray(p.tolist())]
    for k in range(20):
        moved(p, 0.5 * (k + 1))
        history.append(np.asarray(p.tolist()))
        ema.update()
    n = 20
    expected = decay**n * history[0]
    for k in range(1, n + 1):
        expected = expected + (1 - decay) * decay ** (n - k) * history[k]
    np.testing.assert_allclose(ema.average_of(p).tolist(), expected, rtol=1e-12)
    assert p.tolist() == history[-1].tolist() and ema.updates == 20


def test_the_decay_matters():
    found = []
    for decay in (0.0, 0.5, 1.0):
        p = parameter("cpu")
        ema = wf.optim.EMA([p], decay)
        moved(p, 1.0)
        ema.update()
        found.append(ema.average_of(p).tolist())
    assert found == [[2.0, 3.0], [1.5, 2.5], [1.0, 2.0]]


def test_some_of_the_parameters():
    p, q = parameter("cpu"), parameter("cpu")
    ema = wf.optim.EMA({"p": p, "q": q}, 0.5)
    moved(p, 1.0)
    moved(q, 1.0)
    ema.update(wf.ParameterDict({"any": p}))
    assert ema.average_of(p).tolist() == [1.5, 2.5] and ema.average_of(q).tolist() == [1.0, 2.0]


def test_swapping(device):
    p = parameter(device)
    ema = wf.optim.EMA([p], 0.5)
    moved(p, 1.0)
    ema.update()
    ema.swap()
    assert ema.is_swapped and p.tolist() == [1.5, 2.5]
    for call in (ema.update, lambda: ema.load_state_dict({}), lambda: ema.swapped().__enter__()):
        with pytest.raises(errors.ArgumentError, match="swap\\(\\) first"):
            call()
    ema.swap()
    assert not ema.is_swapped and p.tolist() == [2.0, 3.0]
    with pytest.raises(ZeroDivisionError), ema.swapped():
        assert p.tolist() == [1.5, 2.5] and p.requires_grad
        raise ZeroDivisionError
    assert p.tolist() == [2.0, 3.0]
    loss = (p * p).sum()
    with ema.swapped():
        pass
    with pytest.raises(errors.SavedValueOverwritten):
        loss.backward()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types_lose_nothing(device, dtype):
    p = wf.Parameter(wf.ones(3, dtype=dtype, device=device))
    ema = wf.optim.EMA([p], 0.999)
    moved(p, 1.0)
    for _ in range(10):
        ema.update()
    average = ema.average_of(p)
    assert average.dtype == wf.float32
    np.testing.assert_allclose(average.tolist(), 2 - 0.999**10, rtol=1e-6)
    before = p.tolist()
    ema.swap()
    assert p.dtype == wf.canonical_dtype(dtype) and p.tolist() != before
    ema.swap()
    assert p.tolist() == before


def test_state(device):
    p, q = parameter(device), parameter(device)
    one, other = wf.optim.EMA({"w": p}, 0.9), wf.optim.EMA({"w": q}, 0.5)
    moved(p, 1.0)
    one.update()
    saved = one.state_dict()
    other.load_state_dict(saved)
    assert other.decay == 0.9 and other.updates == 1
    assert other.average_of(q).tolist() == one.average_of(p).tolist()
    moved(p, 1.0)
    one.update()
    assert saved["averages"]["w"].tolist() == other.average_of(q).tolist()
    with pytest.raises(errors.StateMismatch, match="missing: v; unexpected: w"):
        wf.optim.EMA({"v": p}).load_state_dict(saved)
    with pytest.raises(errors.StateMismatch, match=r"expected \(3,\), found \(2,\)"):
        wf.optim.EMA({"w": parameter(device, (1, 2, 3))}).load_state_dict(saved)
    with pytest.raises(errors.StateMismatch, match="missing: averages"):
        one.load_state_dict({"decay": 0.5, "updates": 1})


def test_large_parameters_and_complex_ones():
    rng = np.random.default_rng(0)
    for values in (rng.standard_normal(300_000), rng.standard_normal(9) * (1 + 2j)):
        p = wf.Parameter(values)
        ema = wf.optim.EMA([p], 0.75)
        p.apply_update(wf.tensor(-values))
        ema.update()
        np.testing.assert_allclose(ema.average_of(p).numpy(), 1.25 * values, rtol=1e-12)
        with ema.swapped():
            np.testing.assert_allclose(p.detach().numpy(), 1.25 * values, rtol=1e-12)


def test_mistakes():
    p = parameter("cpu")
    for bad in (-0.1, 1.5, float("nan"), "0.9", True):
        with pytest.raises(errors.ArgumentError, match="decay="):
            wf.optim.EMA([p], bad)
    with pytest.raises(errors.ArgumentError, match="given twice"):
        wf.optim.EMA([p, p])
    with pytest.raises(errors.DTypeError):
        wf.optim.EMA([1.0])
    for method in (wf.optim.EMA([p]).average_of, lambda q: wf.optim.EMA([p]).update([q])):
        with pytest.raises(errors.MissingParameter, match="track"):
            method(parameter("cpu"))


def test_optimizer_steps_average(device):
    """The document's loop: the average begins with the value after the first step."""
    p, q = parameter(device), parameter(device)
    optimizer = wf.optim.EMAOptimizer(wf.optim.Adam(wf.optim.AdamConfig(lr=0.1)), 0.75)
    plain = wf.optim.Adam([q], lr=0.1)
    average = None
    for k in range(5):
        g = wf.tensor([1.0 + k, -2.0], dtype="float64", device=device)
        optimizer.step([(p.id, p, g)])
        plain.step([g])
        now = np.asarray(q.tolist())
        average = now if average is None else 0.75 * average + 0.25 * now
    assert p.tolist() == q.tolist()
    optimizer.swap_to_ema()
    np.testing.assert_allclose(p.tolist(), average, rtol=1e-12)
    for call in (optimizer.step, optimizer.swap_to_ema):
        with pytest.raises(errors.ArgumentError, match="swap"):
            call()
    optimizer.swap_back()
    assert p.tolist() == q.tolist()
    with pytest.raises(errors.ArgumentError, match="in their place"):
        optimizer.swap_back()
    with optimizer.swapped():
        np.testing.assert_allclose(p.tolist(), average, rtol=1e-12)
    optimizer.set_lr(0.5)
    assert optimizer.config.lr == 0.5 and optimizer.decay == 0.75
    p.grad = wf.tensor([1.0, 1.0], dtype="float64", device=device)
    optimizer.zero_grad()
    assert p.grad is None and len(optimizer.param_groups) == 1


def test_parameters_that_were_not_stepped_keep_their_average():
    p, q = parameter("cpu"), parameter("cpu")
    optimizer = wf.optim.EMAOptimizer(wf.optim.SGD([p, q], lr=1.0), 0.5)
    one = wf.ones(2, dtype="float64")
    optimizer.step([one, one])
    optimizer.step([one, None])
    assert optimizer.ema.average_of(p).tolist() == [-0.5, 0.5]
    assert optimizer.ema.average_of(q).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("bound", [True, False])
def test_optimizer_state(bound):
    def fresh(p):
        base = wf.optim.Adam([p], lr=0.1) if bound else wf.optim.Adam(wf.optim.AdamConfig(lr=0.1))
        return wf.optim.EMAOptimizer(base, 0.75)

    def run(optimizer, p, steps):
        for k in steps:
            optimizer.step([(p.id, p, wf.tensor([1.0 + k, -2.0], dtype="float64"))])

    p, q = parameter("cpu"), parameter("cpu")
    one, half = fresh(p), fresh(q)
    run(one, p, range(6))
    run(half, q, range(3))
    other = fresh(q)
    other.load_state_dict(half.state_dict())
    other.load_state_dict(other.state_dict())
    run(other, q, range(3, 6))
    assert p.tolist() == q.tolist()
    assert one.ema.average_of(p).tolist() == other.ema.average_of(q).tolist()
    with pytest.raises(errors.StateMismatch, match="missing: ema"):
        other.load_state_dict({"optimizer": {}})
