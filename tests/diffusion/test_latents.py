"""Latents beside the functions of diffusers' pipeline."""

import numpy as np
import pytest
import torch
from diffusers import FluxPipeline

import weft as wf

SIZES = [(1, 16, 2, 2), (2, 16, 8, 12), (3, 4, 6, 2), (1, 1, 4, 10)]


@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize("shape", SIZES)
def test_packing_is_that_of_diffusers_and_is_undone(shape, device):
    b, c, h, w = shape
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    packed = wf.diffusion.pack_latents(wf.asarray(x).to(device))
    expected = FluxPipeline._pack_latents(torch.tensor(x), b, c, h, w)
    assert np.array_equal(packed.to("cpu").numpy(), expected.numpy())
    back = wf.diffusion.unpack_latents(packed, h, w)
    assert np.array_equal(back.to("cpu").numpy(), x)
    assert np.array_equal(FluxPipeline._unpack_latents(expected, 8 * h, 8 * w, 8).numpy(), x)


@pytest.mark.parametrize("shape", SIZES)
def test_positions_are_those_of_diffusers(shape):
    b, _, h, w = shape
    expected = FluxPipeline._prepare_latent_image_ids(b, h // 2, w // 2, "cpu", torch.float32)
    assert np.array_equal(wf.diffusion.image_ids(h, w).numpy(), expected.numpy())
    second = wf.diffusion.image_ids(h, w, 1, dtype="int32").numpy()
    assert np.array_equal(second[:, 1:], expected.numpy()[:, 1:]) and (second[:, 0] == 1).all()
    assert not wf.diffusion.text_ids(h).numpy().any()


def test_the_scale_of_the_autoencoder_goes_back_and_forth():
    x = wf.randn((2, 16, 4, 4), dtype="float64")
    z = wf.diffusion.scale_latents(x)
    assert np.allclose(z.numpy(), (x.numpy() - 0.1159) * 0.3611, rtol=1e-14)
    assert np.allclose(wf.diffusion.unscale_latents(z).numpy(), x.numpy(), rtol=1e-13)
    # As diffusers' pipeline decodes: latents / scaling_factor + shift_factor.
    assert np.allclose(
        wf.diffusion.unscale_latents(z, shift=0.5, scale=2.0).numpy(), z.numpy() / 2.0 + 0.5
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda: wf.diffusion.pack_latents(wf.ones((1, 16, 3, 4))),
        lambda: wf.diffusion.pack_latents(wf.ones((16, 4, 4))),
        lambda: wf.diffusion.unpack_latents(wf.ones((1, 6, 64)), 4, 4),
        lambda: wf.diffusion.unpack_latents(wf.ones((1, 4, 6)), 4, 4),
        lambda: wf.diffusion.unpack_latents(wf.ones((1, 3, 4)), 3, 4),
        lambda: wf.diffusion.image_ids(3, 4),
    ],
)
def test_odd_sizes_are_refused(call):
    with pytest.raises(wf.errors.WeftError, match="expected"):
        call()
