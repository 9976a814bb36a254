"""The examples' training steps, compiled: the losses and the state of eager mode."""

import numpy as np
import pytest
from examples import curve_fit, gpt, inverse_heat, neural_ode, pinn

import weft as wf

nn, F = wf.nn, wf.nn.functional
STEPS = 6


def run(compiled: bool, model, optimizer, loss, batches, rates=None):
    """The losses of some steps."""

    def step(*batch):
        optimizer.zero_grad()
        value = loss(model, batch)
        value.backward()
        optimizer.step()
        return value

    once = wf.compile(step) if compiled else step
    losses = []
    for k, batch in enumerate(batches):
        if rates is not None:
            optimizer.set_lr(rates.get_lr(k))
        losses.append(once(*batch).item())
    if compiled:
        assert once.recompilations == []
    return losses


def both(make, roundings: float, whole: bool = True):
    """Eager and compiled from the same start: losses and parameters agree to so much."""
    found = []
    for compiled in (False, True):
        wf.random.seed(3)
        model, *rest = make()
        wf.random.seed(4)
        losses = run(compiled, model, *rest)
        found.append((losses, [p.detach().numpy() for p in model.parameters()]))
    (losses, parameters), (got, others) = found
    assert losses[0] != losses[-1]
    np.testing.assert_allclose(got, losses, rtol=roundings)
    for a, b in zip(parameters, others, strict=True) if whole else ():
        np.testing.assert_allclose(b, a, rtol=0, atol=roundings * max(1, np.abs(a).max()))


def batches(arrays, size):
    return [[wf.tensor(a[k * size : (k + 1) * size]) for a in arrays] for k in range(STEPS)]


def test_digits():
    digits = pytest.importorskip("examples.digits")
    found = digits.load_digits()
    images = (found.images[:, None] / 16).astype(np.float32)

    def make():
        model = digits.network()
        optimizer = wf.optim.AdamW(model, lr=2e-3, weight_decay=0.05)
        rates = wf.optim.CosineScheduler(2e-3, 1e-5, 2, STEPS)

        def loss(model, batch):
            return F.cross_entropy(model(batch[0]), batch[1])

        return model, optimizer, loss, batches((images, found.target), 32), rates

    both(make, 1e-4)


def test_vae():
    vae = pytest.importorskip("examples.vae")
    images = (vae.load_digits().data > 7).astype(np.float32)

    def make():
        model = vae.VAE(32)
        optimizer = wf.optim.Adam(model, lr=2e-3)

        def loss(model, batch):
            return vae.negative_elbo(model, batch)[0]

        return model, optimizer, loss, batches((images,), 32)

    both(make, 1e-4)


@pytest.mark.parametrize("name", ["adam", "lion"])
def test_gpt(name):
    text = gpt.TEXT.read_text()
    characters = gpt.Characters(text)
    windows = gpt.Windows(characters.encode(text), 32)

    def make():
        model = gpt.GPT(len(characters.alphabet), 32, width=32, layers=2)
        optimizer = gpt.OPTIMIZERS[name](model, lr=1e-3)
        data = [windows.gather_batch(np.arange(4) * 37 + k) for k in range(STEPS)]
        return model, optimizer, gpt.loss, data

    # Lion takes signs, also of gradients that are roundings of zero: the biases of the keys.
    both(make, 2e-4, whole=name != "lion")


def test_pinn():
    """The loss and its gradient with second derivatives in it; L-BFGS stays outside."""
    wf.random.seed(0)
    u = pinn.Wave(8)
    x = wf.random.uniform(-1.0, 1.0, 64, dtype="float64")
    t = wf.rand(64, dtype="float64")

    def closure():
        for p in u.parameters():
            p.grad = None
        loss = wf.mean(pinn.residual(u, x, t) ** 2)
        loss.backward()
        return loss

    compiled = wf.compile(closure)
    found = []
    for f in (closure, compiled, compiled):
        found.append((f().item(), [p.grad.numpy().copy() for p in u.parameters()]))
    for loss, gradients in found[1:]:
        assert loss == pytest.approx(found[0][0], rel=1e-12)
        for a, b in zip(found[0][1], gradients, strict=True):
            np.testing.assert_allclose(b, a, rtol=0, atol=1e-12 * np.abs(a).max())

    def trained(function):
        wf.random.seed(0)
        optimizer = wf.optim.LBFGS(u.parameters(), max_iter=5)
        start = [p.detach().clone() for p in u.parameters()]
        loss = optimizer.step(function).item(), function().item()
        with wf.no_grad():
            for p, s in zip(u.parameters(), start, strict=True):
                p.copy_(s)
        return loss

    assert trained(compiled) == pytest.approx(trained(closure), rel=1e-8)


@pytest.mark.parametrize("gradient", ["discrete", "adjoint"])
def test_neural_ode(gradient):
    """The network in a solver that looks at values to choose its steps."""
    logs = wf.log(wf.tensor(neural_ode.true_counts()[:12].astype(np.float32)))

    class Compiled(neural_ode.Flow):
        forward = wf.compile(neural_ode.Flow.forward)

    losses = []
    for kind in (neural_ode.Flow, Compiled):
        wf.random.seed(0)
        flow = kind(8)
        optimizer = wf.optim.Adam(flow.parameters(), lr=1e-2)
        found = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = neural_ode.windows_loss(flow, logs, gradient)
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        losses.append(found)
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)


def test_inverse_heat():
    """A linear system that LAPACK solves between native segments."""
    x = (np.arange(inverse_heat.CELLS) + 0.5) * inverse_heat.STEP
    log_k = wf.tensor(np.log(inverse_heat.true_conductivity(x)) * 0.9)
    where, measured = np.arange(0, 59, 2), wf.full((30,), 0.05, dtype="float64")

    def loss(log_k):
        return inverse_heat.misfit(log_k, where, measured, 0.01, 10.0)

    want, got = wf.value_and_grad(loss)(log_k), wf.compile(wf.value_and_grad(loss))(log_k)
    assert got[0].item() == pytest.approx(want[0].item(), rel=1e-10)
    np.testing.assert_allclose(got[1].numpy(), want[1].numpy(), rtol=1e-8)


def test_curve_fit():
    """The Jacobian of the model and the curve's deviation."""
    x, _ = curve_fit.data()
    best = wf.tensor([v for v, _ in curve_fit.CERTIFIED.values()], dtype="float64")
    covariance = wf.eye(7, dtype="float64") * 0.1

    def band(best, covariance):
        return curve_fit.curve_with_deviation(x, best, covariance)

    for a, b in zip(band(best, covariance), wf.compile(band)(best, covariance), strict=True):
        np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=1e-11)
