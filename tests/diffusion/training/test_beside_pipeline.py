"""Pictures are those of diffusers' whole pipeline: levels, guidance, steps and decoding."""

import numpy as np
import pytest
import torch
from diffusers import AutoencoderKL, FluxPipeline

import weft as wf
from weft.diffusion.data import DiffusersVAE
from weft.diffusion.training.pictures import Prompt, Sampling, draw, sample_latents

from ..beside_diffusers import ours, random_config, theirs
from ..data.small_models import save_models
from ..test_sampler import scheduler


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("model")
    save_models(root)
    return root


@pytest.mark.parametrize(("width", "height", "steps"), [(64, 32, 4), (48, 80, 9)])
@pytest.mark.parametrize("dev", [True, False])
def test_pictures_are_those_of_the_pipeline(folder, dev, width, height, steps):
    sizes = {"patch_size": 1, "in_channels": 64, "out_channels": None, "guidance_embeds": dev}
    config = random_config(3, num_layers=2, num_single_layers=1, **sizes)
    reference = theirs(config, 3)
    parts = {"text_encoder": None, "tokenizer": None, "text_encoder_2": None, "tokenizer_2": None}
    vae = AutoencoderKL.from_pretrained(folder / "vae")
    pipe = FluxPipeline(scheduler=scheduler(dev), vae=vae, transformer=reference, **parts)
    pipe.set_progress_bar_config(disable=True)
    rng = np.random.default_rng(0)
    embeds = rng.standard_normal((5, config.joint_attention_dim)).astype("f")
    pooled = rng.standard_normal(config.pooled_projection_dim).astype("f")

    how = Sampling(steps, 2.5, 11, width // 8, height // 8)
    shape = (1, 16, how.height, how.width)
    noise = wf.randn(shape, dtype=wf.float32, generator=wf.random.Generator(how.seed))
    given = {
        "prompt_embeds": torch.tensor(embeds[None]),
        "pooled_prompt_embeds": torch.tensor(pooled[None]),
        "latents": torch.tensor(wf.diffusion.pack_latents(noise).numpy()),
        "num_inference_steps": steps,
        "guidance_scale": how.guidance,
        "width": width,
        "height": height,
    }
    model = ours(reference, config)
    mine = sample_latents(model, embeds, pooled, how, 16)
    right = pipe(**given, output_type="latent").images
    right = wf.diffusion.unpack_latents(wf.asarray(right.numpy()), how.height, how.width)
    np.testing.assert_allclose(mine, right.numpy()[0], atol=1e-4 * np.abs(mine).max())

    (picture,) = draw(model, [Prompt("", embeds, pooled)], how, DiffusersVAE(folder / "vae"))
    shown = pipe(**given, output_type="np").images[0] * 255
    assert picture.shape == (height, width, 3) and np.ptp(picture) > 5
    np.testing.assert_allclose(picture, shown, atol=0.51)
