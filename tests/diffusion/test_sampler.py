"""The sampler beside diffusers' scheduler."""

import numpy as np
import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from diffusers.pipelines.flux.pipeline_flux import calculate_shift

import weft as wf
from weft.diffusion.sampler import euler_sample, sigma_schedule

SIZES = [(256, 256), (512, 512), (768, 512), (1024, 1024), (1536, 1024), (2048, 2048)]


def scheduler(shift: bool) -> FlowMatchEulerDiscreteScheduler:
    """With the settings of Flux's dev and schnell models."""
    return FlowMatchEulerDiscreteScheduler(
        num_train_timesteps=1000,
        shift=3.0 if shift else 1.0,
        use_dynamic_shifting=shift,
        base_shift=0.5,
        max_shift=1.15,
        base_image_seq_len=256,
        max_image_seq_len=4096,
    )


def begin(shift: bool, steps: int, tokens: int) -> FlowMatchEulerDiscreteScheduler:
    made = scheduler(shift)
    levels = np.linspace(1.0, 1 / steps, steps)
    made.set_timesteps(sigmas=levels, mu=calculate_shift(tokens) if shift else None)
    return made


@pytest.mark.parametrize("shift", [True, False])
@pytest.mark.parametrize("steps", [1, 4, 28, 50])
@pytest.mark.parametrize("height, width", SIZES)
def test_levels_are_those_of_diffusers(height, width, steps, shift):
    tokens = (height // 16) * (width // 16)
    theirs = begin(shift, steps, tokens).sigmas.numpy()
    np.testing.assert_allclose(sigma_schedule(steps, tokens, shift), theirs, atol=1e-6)


@pytest.mark.parametrize("shift", [True, False])
def test_steps_are_those_of_diffusers(shift):
    made, rng = begin(shift, 12, 1024), np.random.default_rng(0)
    noise, slope = rng.standard_normal((2, 6, 4)).astype("float32"), rng.standard_normal(4)
    x = torch.from_numpy(noise)
    for t in made.timesteps:
        v = torch.sin(x * torch.from_numpy(slope.astype("float32"))) + t / 1000
        x = made.step(v, t, x).prev_sample
    ours = euler_sample(
        lambda x, sigma: wf.sin(x * wf.tensor(slope, dtype="float32")) + sigma,
        wf.tensor(noise),
        sigma_schedule(12, 1024, shift),
    )
    np.testing.assert_allclose(ours.numpy(), x.numpy(), atol=2e-5)


def test_no_steps_are_refused():
    with pytest.raises(wf.errors.ArgumentError, match="steps=0"):
        sigma_schedule(0, 256)
