"""Pictures of prompts: sampling with a model, and PNG grids with what made them beside."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from math import ceil, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import weft as wf
from weft.io.durable import make_directories, write_file

from ..latents import pack_latents, unpack_latents
from ..sampler import euler_sample, sigma_schedule
from .objective import velocity

if TYPE_CHECKING:
    from weft.arrays.tensor import Tensor

    from ..data.encoders import ImageEncoder
    from ..flux import Flux
    from .config import PreviewSection

_GAP = 2  # pixels between the pictures of a grid


@dataclass(frozen=True)
class Sampling:
    """How a picture is sampled.

    steps          of the sampler
    guidance       what models with a guidance embedding are told
    seed           of the noise
    width, height  of the latents
    """

    steps: int
    guidance: float
    seed: int
    width: int
    height: int

    def schedule(self, model: Flux) -> np.ndarray:
        """The levels of noise; models without a guidance embedding have no shift."""
        tokens = (self.width // 2) * (self.height // 2)
        return sigma_schedule(self.steps, tokens, shift=model.config.guidance_embeds)


def sample_latents(
    model: Flux, prompt_embeds: np.ndarray, pooled: np.ndarray, how: Sampling, channels: int
) -> np.ndarray:
    """Latents (C, H, W) of a prompt, by the model's own device; random streams stay as they are.

    model          a Flux model
    prompt_embeds  (length, width)
    pooled         (width,)
    how            steps, guidance, noise and size
    channels       of the latents
    """
    device = model.x_embedder.weight.device
    text, pool = (wf.tensor(x[None], device=device) for x in (prompt_embeds, pooled))
    noise = wf.randn(
        (1, channels, how.height, how.width),
        dtype=wf.float32,
        device=device,
        generator=wf.random.Generator(how.seed),
    )
    return denoise(model, text, pool, noise, how).numpy()[0]


def denoise(model: Flux, text: Tensor, pool: Tensor, noise: Tensor, how: Sampling) -> Tensor:
    """Latents (1, C, H, W) that a model makes of noise.

    model       a Flux model
    text, pool  the embeddings, as batches of one
    noise       (1, C, H, W)
    how         steps and guidance
    """

    def step(tokens: Tensor, sigma: float) -> Any:
        latents = unpack_latents(tokens, how.height, how.width)
        level = wf.full((1,), sigma, dtype=wf.float32, device=noise.device)
        return velocity(model, latents, text, pool, level, how.guidance)

    tokens = euler_sample(step, pack_latents(noise), how.schedule(model))
    return unpack_latents(tokens, how.height, how.width)


class Prompt:
    """A prompt and its embeddings."""

    def __init__(self, text: str, prompt_embeds: np.ndarray, pooled: np.ndarray):
        self.text, self.prompt_embeds, self.pooled = text, prompt_embeds, pooled


def sampling_of(section: PreviewSection, image: ImageEncoder) -> Sampling:
    """How pictures are sampled, as a configuration says.

    section  [preview]
    image    the encoder whose latents the model makes
    """
    unit = 2 * image.factor
    for name, side in (("width", section.width), ("height", section.height)):
        if side % unit:
            raise wf.errors.ConfigError(
                f"preview.{name} = {side}, expected a multiple of {unit}: a latent is "
                f"{image.factor} pixels wide, and a token two latents; {side - side % unit or unit}"
                f" or {side + unit - side % unit} will do"
            )
    width, height = section.width // image.factor, section.height // image.factor
    return Sampling(section.steps, section.guidance, section.seed, width, height)


def draw(
    model: Any, prompts: Sequence[Prompt], how: Sampling, encoder: ImageEncoder
) -> list[np.ndarray]:
    """A picture (H, W, 3) of each prompt, bytes.

    model    a Flux model, which is in evaluation mode meanwhile
    prompts  with their embeddings
    how      steps, guidance, noise and size
    encoder  of images, which decodes latents
    """
    training = model.training
    model.eval()
    try:
        with wf.no_grad():
            latents = [
                sample_latents(model, p.prompt_embeds, p.pooled, how, encoder.channels)
                for p in prompts
            ]
    finally:
        model.train(training)
    shift, scale = np.float32(encoder.shift), np.float32(encoder.scale)
    pictures = [to_bytes(encoder.decode(x[None] / scale + shift)[0]) for x in latents]
    encoder.release()
    return pictures


def to_bytes(pixels: np.ndarray) -> np.ndarray:
    """Pixels (3, H, W) from −1 to 1 as bytes (H, W, 3)."""
    scaled = np.clip((pixels.astype(np.float64) + 1) * 127.5, 0, 255)
    return np.rint(scaled).astype(np.uint8).transpose(1, 2, 0)


def grid(pictures: Sequence[np.ndarray]) -> np.ndarray:
    """Pictures (H, W, 3) of one size as one, row after row, on white."""
    columns = ceil(sqrt(len(pictures)))
    rows = ceil(len(pictures) / columns)
    height, width, _ = pictures[0].shape
    shape = rows * (height + _GAP) - _GAP, columns * (width + _GAP) - _GAP, 3
    whole = np.full(shape, 255, np.uint8)
    for k, picture in enumerate(pictures):
        y, x = (k // columns) * (height + _GAP), (k % columns) * (width + _GAP)
        whole[y : y + height, x : x + width] = picture
    return whole


def write_grid(path: Path, pictures: Sequence[np.ndarray], facts: dict[str, Any]) -> None:
    """A PNG of pictures, and a JSON file of what made them.

    path      of the PNG; the facts have the same name with .json
    pictures  (H, W, 3), bytes
    facts     plain values by name
    """
    from PIL import Image

    picture = BytesIO()
    Image.fromarray(grid(pictures)).save(picture, format="PNG")
    text = json.dumps(facts, indent=2) + "\n"
    make_directories(path.parent)
    write_file(path.with_suffix(".json"), [text.encode("utf-8")])
    write_file(path, [picture.getvalue()])


def facts_of(model: Flux, how: Sampling, prompts: Sequence[str], factor: int) -> dict[str, Any]:
    """What is written beside a grid; width and height are those of a picture, in pixels.

    factor  pixels along a side of a latent
    """
    return {
        **asdict(how),
        "width": how.width * factor,
        "height": how.height * factor,
        "sigmas": [float(s) for s in how.schedule(model)],
        "prompts": list(prompts),
    }
