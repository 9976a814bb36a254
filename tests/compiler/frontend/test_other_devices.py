"""Compiled functions of tensors on another device than the CPU: the host stays out of them."""

import numpy as np
import pytest

import weft as wf
from weft import errors

DEVICES = ("cpu", "torch")
NUMBERS = [np.float32(2), np.float64(3), np.int64(4), np.int32(-5), np.float16(0.5), np.bool_(True)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("number", NUMBERS, ids=lambda n: type(n).__name__)
@pytest.mark.parametrize("order", ["before", "after", "inside"])
def test_numbers_of_numpy_go_where_the_tensors_are(order, number, device):
    x = wf.tensor([1.0, 2.0], dtype="float32", device=device)
    if order == "inside":
        f = wf.compile(lambda x, given: x * given["scale"][0])
        args = (x, {"scale": [number]})
    else:
        f = wf.compile(lambda a, b: a * b)
        args = (number, x) if order == "before" else (x, number)
    for _ in range(3):
        got, want = f(*args), x * number
        assert (got.dtype, got.device) == (want.dtype, device)
        assert got.tolist() == want.tolist()


def test_numbers_of_numpy_change_between_calls():
    x = wf.ones(2, device="torch")
    f = wf.compile(lambda x, s: x * s)
    assert [f(x, np.float32(s)).tolist()[0] for s in range(5)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_hooks_of_parameters(dtype, device):
    p = wf.Parameter(wf.ones(3, dtype=dtype, device=device))
    p.register_hook(lambda g: g * 10)

    @wf.compile
    def step(x):
        (p * x).sum().backward()

    for count in (1, 2, 3):
        step(wf.ones(3, dtype=dtype, device=device))
        assert p.grad.tolist() == [10.0 * count] * 3
    wrong = wf.Parameter(wf.ones(3, dtype=dtype, device=device))
    wrong.register_hook(lambda g: g.to("float16"))
    with pytest.raises(errors.DTypeError, match=rf"returned float16 .* expected {dtype}"):
        wf.compile(lambda: (wrong * 2).sum().backward() and None)()


def solve_ode(k, device, **options):
    times = wf.tensor(np.linspace(0, 1, 5), device=device)
    start = wf.ones(3, dtype="float64", device=device)
    return wf.odeint(lambda y, t, k: -k * y * (1 + t), start, times, k, **options)


def fixed_point(k, device):
    return wf.implicit.fixed_point(lambda x, k: wf.cos(x) * k * 0.5, k * 0 + 0.5, k)


def root(k, device):
    return wf.implicit.root(lambda x, k: x**3 + x - k, k * 0 + 0.5, k)


def argmin(k, device):
    return wf.implicit.argmin(lambda x, k: ((x - k) ** 2 + 0.1 * x**4).sum(), k * 0 + 0.5, k)


def looped(k, device):
    return wf.while_loop(lambda s: s.sum() < 50.0, lambda s: s * (k + 1.0), k, max_steps=40)


def drawn(k, device):
    return k * wf.rand(3, dtype="float64", device=device)


def searched(k, device):
    return wf.searchsorted(wf.sort(k), k * 0.5) + wf.argsort(k) + wf.arange(3, device=device)


FEATURES = [solve_ode, fixed_point, root, argmin, looped, drawn, searched]


@pytest.mark.parametrize("f", FEATURES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("gradient", [False, True], ids=["value", "gradient"])
def test_features_compile_on_another_device_as_on_the_cpu(f, gradient):
    if gradient and f is searched:
        return
    found = {}
    for device in DEVICES:
        k = wf.tensor([1.0, 2.0, 0.5], dtype="float64", device=device)

        def run(k, device=device):
            return f(k, device)

        called = wf.grad(lambda k, run=run: run(k).sum()) if gradient else run
        for name, g in (("eager", called), ("compiled", wf.compile(called))):
            wf.random.seed(3)
            y = g(k)
            assert y.device == device
            found[device, name] = y.numpy()
    for y in found.values():
        np.testing.assert_allclose(y, found["cpu", "eager"], rtol=1e-6, atol=1e-9)


def test_estimates_on_another_device():
    model = wf.nn.Linear(64, 32).to("torch")
    optimizer = wf.optim.AdamW(model.parameters())

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    x = wf.ones((100, 64), device="torch")
    with pytest.raises(errors.DeviceError, match="make the model and the arguments there"):
        wf.profile.estimate(step, x)
    rows, turned = (
        wf.profile.estimate(step, v, compiled=True).peak
        for v in (x, wf.ones((64, 100), device="torch").T)
    )
    assert turned >= rows > 3 * 4 * (64 * 32 + 32)
