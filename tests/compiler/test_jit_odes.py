"""`odeint` in compiled functions: eager mode's solution and derivatives, in native loops."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import weft as wf

TIMES = wf.tensor(np.linspace(0.0, 5.0, 7))
MATRIX = wf.tensor([[-0.1, 2.0], [-2.0, -0.1]], dtype=wf.float64)
START = wf.tensor([2.0, 0.0], dtype=wf.float64)


def solution(y0, matrix, ts, **options):
    return wf.odeint(lambda y, t: (y**3) @ matrix + wf.sin(t), y0, ts, rtol=1e-8, **options)


def close(found, want, rtol=1e-8):
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=rtol, atol=rtol)


def test_a_solution_is_scipys():
    found = wf.compile(solution)(START, MATRIX, TIMES).numpy()
    slope = lambda t, y: (y**3) @ MATRIX.numpy() + np.sin(t)  # noqa: E731
    want = solve_ivp(slope, (0, 5), START.numpy(), "DOP853", TIMES.numpy(), rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(found, want.y.T, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("gradient", ["discrete", "adjoint"])
def test_gradients(gradient, target):
    def loss(y0, matrix, ts):
        return (solution(y0, matrix, ts, gradient=gradient) ** 2).sum()

    f = wf.grad(loss, argnums=(0, 1, 2))
    compiled = wf.compile(f)
    close(compiled(START, MATRIX, TIMES), f(START, MATRIX, TIMES))
    assert target is not None or "library call" not in compiled.explain()


def test_forward_mode_and_batches():
    push = lambda y: wf.jvp(lambda y: solution(y, MATRIX, TIMES), (y,), (wf.ones_like(y),))  # noqa: E731
    close(wf.compile(push)(START), push(START))
    starts = wf.stack([START, START / 2, START * 0.1])
    each = wf.vmap(lambda y: solution(y, MATRIX, TIMES))
    close([wf.compile(each)(starts)], [each(starts)], rtol=1e-5)  # with steps of their own


def test_backwards_in_time_and_times_that_are_the_same():
    same = wf.tensor([0.0, 0.0, 0.3, 0.3], dtype=wf.float64)
    for ts in (wf.flip(same), same, TIMES[:1]):
        close([wf.compile(solution)(START, MATRIX, ts)], [solution(START, MATRIX, ts)])


def test_trees_and_single_precision():
    def pendulum(angle, speed):
        def slope(state, t):
            return {"angle": state["speed"], "speed": -wf.sin(state["angle"])}

        return wf.odeint(slope, {"angle": angle, "speed": speed}, [0.0, 0.5, 2.0])

    args = wf.tensor(1.0), wf.tensor(0.0)
    found, want = wf.compile(pendulum)(*args), pendulum(*args)
    close(found.values(), want.values(), rtol=1e-5)
    assert found["angle"].dtype == wf.float32


def test_training_a_network_that_is_a_slope():
    def train(way):
        wf.random.seed(0)
        net = wf.nn.Sequential(wf.nn.Linear(2, 8), wf.nn.Tanh(), wf.nn.Linear(8, 2))
        optimizer = wf.optim.AdamW(net, lr=0.01)
        ts = wf.tensor([0.0, 0.5, 1.0])

        @way
        def step(y0):
            optimizer.zero_grad()
            ys = wf.odeint(lambda y, t: net(y), y0, ts, rtol=1e-5)
            loss = ((ys[1:] - 1.0) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        return [step(wf.tensor([0.3, -0.2])).item() for _ in range(5)]

    np.testing.assert_allclose(train(wf.compile), train(lambda f: f), rtol=1e-4)


def test_mistakes_are_named():
    pole = wf.compile(lambda y: wf.odeint(lambda y, t: y * y, y, [0.0, 2.0]))
    with pytest.raises(wf.errors.ConvergenceError, match=r"pole.*test_jit_odes\.py"):
        pole(wf.tensor(1.0))
    few = wf.compile(lambda y: wf.odeint(lambda y, t: -y, y, [0.0, 9.0], max_steps=3))
    with pytest.raises(wf.errors.ConvergenceError, match="3 steps"):
        few(wf.tensor(1.0))
    disorder = wf.compile(lambda y, ts: wf.odeint(lambda y, t: -y, y, ts))
    with pytest.raises(wf.errors.ArgumentError, match="increase or decrease"):
        disorder(wf.tensor(1.0), wf.tensor([0.0, 2.0, 1.0]))
    infinite = wf.compile(lambda y: wf.odeint(lambda y, t: 1 / y, y, [0.0, 1.0]))
    with pytest.raises(wf.errors.ConvergenceError, match="not finite at the start"):
        infinite(wf.tensor(0.0))
