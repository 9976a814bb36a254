"""The autoencoder's bound is better than independent pixels, and its codes hold the images."""

import numpy as np
import torch
from examples import vae

import weft as wf


def test_bound_and_reconstruction_beat_their_baselines(tmp_path, drawn, capsys):
    path = tmp_path / "vae.png"
    loss, baseline = vae.main(str(path), epochs=15)
    assert loss < 0.9 * baseline, (loss, baseline)
    assert f"independent pixels: {-baseline:.2f} nats" in capsys.readouterr().out
    drawn(path)


def test_independent_pixels_by_hand():
    training, test = vae.data(0)
    x, y = vae.everything(training).numpy(), vae.everything(test).numpy()
    p = (x.astype(float).sum(0) + 1) / (len(x) + 2)
    expected = -(y * np.log(p) + (1 - y) * np.log(1 - p)).sum(1).mean()
    found = vae.independent_pixels(training, test).item()
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_codes_hold_the_images():
    trainer, training, test = vae.train(epochs=15, progress=False)
    x = vae.everything(test)
    trainer.model.eval()
    error = wf.mean((vae.reconstruct(trainer.model, x) - x) ** 2).item()
    mean_image = vae.everything(training).mean(axis=0)
    assert error < 0.6 * wf.mean((mean_image - x) ** 2).item()


def test_the_bound_is_that_of_torchs_distributions():
    wf.random.seed(0)
    model = vae.VAE()
    x = wf.random.bernoulli(0.5, (7, 64)).to("float32")
    state = wf.random.get_state()
    loss, parts = vae.negative_elbo(model, (x,))
    wf.random.set_state(state)
    logits, mean, log_variance = (torch.tensor(t.detach().numpy()) for t in model(x))
    given = torch.distributions.Bernoulli(logits=logits)
    code = torch.distributions.Normal(mean, torch.exp(0.5 * log_variance))
    prior = torch.distributions.Normal(0.0, 1.0)
    pixels = -given.log_prob(torch.tensor(x.numpy())).sum(1).mean().item()
    cost = torch.distributions.kl_divergence(code, prior).sum(1).mean().item()
    np.testing.assert_allclose(parts["pixels"].item(), pixels, rtol=1e-5)
    np.testing.assert_allclose(parts["code"].item(), cost, rtol=1e-4)
    np.testing.assert_allclose(loss.item(), pixels + cost, rtol=1e-5)
