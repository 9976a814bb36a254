"""Levels of noise, their weights and the loss, beside diffusers and PyTorch."""

import numpy as np
import pytest
import torch
from diffusers.training_utils import (
    compute_density_for_timestep_sampling,
    compute_loss_weighting_for_sd3,
)

import weft as wf
from weft.diffusion import flow
from weft.diffusion.flow import NoiseConfig

SAMPLINGS = ("logit_normal", "sigmoid", "uniform", "mode")
WEIGHTINGS = ("none", "sigma_sqrt", "cosmap")


def quantiles(x) -> np.ndarray:
    return np.quantile(np.asarray(x), np.linspace(0.02, 0.98, 49))


@pytest.mark.parametrize("mean, std, scale", [(0.0, 1.0, 1.29), (-0.7, 0.5, 0.8), (1.2, 2.0, -0.5)])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_densities_are_those_of_diffusers(sampling, mean, std, scale):
    """Quantiles of 200 000 draws: their errors are about 0.002."""
    wf.random.seed(3)
    config = NoiseConfig(sampling, mean=mean, std=std, mode_scale=scale)
    ours = flow.draw_sigma(config, 200_000, 256).numpy()
    name, middle = ("logit_normal", 0.0) if sampling == "sigmoid" else (sampling, mean)
    generator = torch.Generator().manual_seed(1)
    theirs = compute_density_for_timestep_sampling(
        name, 200_000, middle, std, scale, generator=generator
    )
    assert ours.dtype == np.float32
    np.testing.assert_allclose(quantiles(ours), quantiles(theirs), atol=0.006)


def test_mode_is_the_formula_of_diffusers():
    u = np.linspace(0, 1, 101).astype("float32")
    theirs = 1 - u - 1.29 * (np.cos(np.pi * u / 2) ** 2 - 1 + u)
    np.testing.assert_allclose(flow.mode_density(wf.tensor(u), 1.29).numpy(), theirs, atol=1e-6)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_weights_are_those_of_diffusers(weighting):
    sigma = np.linspace(0.01, 1, 100).astype("float32")
    theirs = compute_loss_weighting_for_sd3(weighting, torch.from_numpy(sigma)).numpy()
    ours = flow.sigma_weights(NoiseConfig(weighting=weighting), wf.tensor(sigma))
    found = np.ones_like(sigma) if ours is None else ours.numpy()
    np.testing.assert_allclose(found, theirs, rtol=1e-6)


@pytest.mark.parametrize("tokens", [64, 256, 1024, 4096, 9000])
def test_shifts_by_resolution_are_those_of_the_sampler(tokens):
    """exp(μ)/(exp(μ) + 1/σ − 1), the scheduler's form, is s·σ/(1 + (s − 1)·σ) with s = exp(μ)."""
    s = flow.shift_factor(NoiseConfig(shift="resolution"), tokens)
    sigma = np.linspace(0.001, 1, 200)
    theirs = s / (s + (1 / sigma - 1))
    np.testing.assert_allclose(flow.shifted(wf.tensor(sigma), s).numpy(), theirs, rtol=1e-12)
    assert np.log(s) == pytest.approx(0.5 + (tokens - 256) * 0.65 / 3840, rel=1e-12)


def plain_loss(config, predicted, target, sigma, mask, weights) -> torch.Tensor:
    """The same by PyTorch's own losses."""
    if config.loss == "huber":
        error = torch.nn.functional.huber_loss(
            predicted, target, reduction="none", delta=config.huber_delta
        )
    else:
        error = torch.nn.functional.mse_loss(predicted, target, reduction="none")
    if mask is not None:
        error = error * mask / mask.mean(dim=(1, 2), keepdim=True)
    each = error.mean(dim=(1, 2)) * compute_loss_weighting_for_sd3(config.weighting, sigma)
    return (each if weights is None else each * weights).mean()


@pytest.mark.parametrize("seed", range(24))
def test_losses_and_gradients(seed):
    rng = np.random.default_rng(seed)
    config = NoiseConfig(
        weighting=WEIGHTINGS[seed % 3],
        loss=("mse", "huber")[seed // 3 % 2],
        huber_delta=float(rng.uniform(0.1, 2)),
    )
    n, tokens, channels = rng.integers(1, 5, 3)
    arrays = [rng.standard_normal((n, tokens, channels)).astype("float32") for _ in range(2)]
    sigma = rng.uniform(0.1, 1, n).astype("float32")
    masks = rng.uniform(0.1, 1, (n, tokens, 1)).astype("float32") if seed % 2 else None
    weights = rng.uniform(0, 2, n).astype("float32") if seed % 5 else None
    x = wf.tensor(arrays[0], requires_grad=True)
    rest = [None if a is None else wf.tensor(a) for a in (arrays[1], sigma, masks, weights)]
    loss = flow.velocity_loss(config, x, *rest)
    loss.backward()
    theirs = torch.tensor(arrays[0], requires_grad=True)
    rest = [None if a is None else torch.tensor(a) for a in (arrays[1], sigma, masks, weights)]
    expected = plain_loss(config, theirs, *rest)
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    np.testing.assert_allclose(x.grad.numpy(), theirs.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_a_sample_without_anything_to_look_at_counts_nothing():
    x = wf.ones((2, 2, 1), requires_grad=True)
    mask = wf.tensor([[[0.0], [0.0]], [[1.0], [0.0]]])
    loss = flow.velocity_loss(NoiseConfig(), x, wf.zeros((2, 2, 1)), wf.ones(2), mask)
    loss.backward()
    assert loss.item() == 0.5 and x.grad.numpy().ravel().tolist() == [0, 0, 1, 0]


def test_mixing_is_in_float32():
    """In bfloat16, 0.999·latent + 0.001·noise would lose what it is to tell apart."""
    latents = wf.full((1, 4), 1.0, dtype="bfloat16")
    mixed = flow.mix(latents, wf.full((1, 4), 2.0), wf.tensor([0.001]))
    assert mixed.dtype == wf.float32
    np.testing.assert_allclose(mixed.numpy(), 1.001, rtol=1e-6)


@pytest.mark.parametrize(
    "given, message",
    [
        ({"sampling": "cosine"}, "sampling='cosine'"),
        ({"weighting": "min_snr"}, "weighting='min_snr'"),
        ({"std": 0.0}, "std=0.0"),
        ({"shift": -1.0}, "shift=-1.0"),
        ({"shift": "flux"}, "shift='flux'"),
        ({"loss": "l1"}, "loss='l1'"),
    ],
)
def test_bad_settings(given, message):
    with pytest.raises(wf.errors.ArgumentError, match=message):
        NoiseConfig(**given)


# All settings at the ends of their ranges and inside of them, and draws that are as rare as any.
RARE = {
    "rand": np.array([0.0, 2.0**-24, 1e-6, 0.25, 0.5, 0.75, 1 - 2.0**-23, 1 - 2.0**-24]),
    "randn": np.array([-8.0, -6.0, -1.0, -1e-7, 0.0, 1.0, 6.0, 8.0]),
}
ENDS = {
    "mean": (-10.0, -1.0, 10.0),
    "std": (1e-3, 1.0, 10.0),
    "mode_scale": (-1.0, -0.999, 0.0, 1.29, 2 / (np.pi - 2)),
    "shift": (1e-3, 1.0, 3.0, 1e3, "resolution"),
    "huber_delta": (1e-6, 0.1, 1e6),
}


def draw_settings(rng):
    chosen = {name: values[rng.integers(len(values))] for name, values in ENDS.items()}
    chosen |= {"sampling": SAMPLINGS[rng.integers(4)], "weighting": WEIGHTINGS[rng.integers(3)]}
    return NoiseConfig(**chosen, loss=("mse", "huber")[rng.integers(2)])


@pytest.mark.parametrize("seed", range(150))
def test_levels_stay_where_their_weights_are_finite(seed, monkeypatch):
    config = draw_settings(np.random.default_rng(seed))
    tokens = [1, 256, 16384, 4096**2][seed % 4]
    if seed % 2:
        rare = RARE["randn"].astype("float32") * config.std
        mean = config.mean if config.sampling == "logit_normal" else 0.0
        monkeypatch.setattr(wf, "rand", lambda *a, **k: wf.tensor(RARE["rand"], dtype="float32"))
        monkeypatch.setattr(wf, "randn", lambda *a, **k: wf.tensor(rare + np.float32(mean)))
    sigma = flow.draw_sigma(config, 500, tokens)
    values = sigma.numpy()
    assert np.isfinite(values).all() and values.min() > 0 and values.max() <= 1, config
    weights = flow.sigma_weights(config, sigma)
    assert weights is None or np.isfinite(weights.numpy()).all(), config
    x = wf.zeros((values.size, 3), dtype="float32")
    assert np.isfinite(flow.velocity_loss(config, x, x + 2, sigma).item()), config


@pytest.mark.parametrize("scale", ENDS["mode_scale"])
def test_modes_fall_with_what_is_drawn(scale):
    """From 1 to 0, and no further: the range of the scale is where that is so."""
    u = np.linspace(0, 1, 10_001)
    found = flow.mode_density(wf.tensor(u), scale).numpy()
    assert found[0] == 1 and abs(found[-1]) < 1e-12 and np.diff(found).max() < 1e-12


@pytest.mark.parametrize("scale", [-1.01, 1.76, 3.0, 10.0, float("nan"), float("inf")])
def test_modes_that_turn_back_are_refused(scale):
    if np.isfinite(scale):
        u = np.linspace(0, 1, 10_001)
        assert np.diff(flow.mode_density(wf.tensor(u), scale).numpy()).max() > 0
    with pytest.raises(wf.errors.ArgumentError, match="mode_scale"):
        NoiseConfig(sampling="mode", mode_scale=scale)


@pytest.mark.parametrize("name", [n for n in ENDS if n != "mode_scale"])
@pytest.mark.parametrize("value", [0.0, -1e9, 1e9, float("nan"), float("inf")])
def test_settings_out_of_range_are_refused(name, value):
    if name == "mean" and value == 0:
        return
    with pytest.raises(wf.errors.ArgumentError, match=f"{name}="):
        NoiseConfig(**{name: value})
