"""Teach a diffusion model a new word: LoRA on a small Flux transformer, on the CPU in seconds.

A transformer of Flux's architecture, with 0.7 million parameters instead of 12 billion, first
learns to draw circles, squares and triangles in three colours. Its latents are the pixels
themselves and its text encoder hashes words, so that nothing has to be downloaded. Then
`weft train` teaches it stars, a word that it has never met, by 48 pictures with captions: only the
adapters in its layers are trained. At the end the adapter is read from its file into a fresh copy
of the base, and both draw the same prompts from the same noise.

Run: python examples/flux_lora.py [folder] [--base-steps 1800] [--steps 400]
     (needs pip install '.[train]'; docs/lora.md is about real models)
"""

import argparse
import sys
from pathlib import Path
from time import perf_counter

import numpy as np

import weft as wf
from weft import diffusion
from weft.cli import main as weft
from weft.diffusion.data import HashTextEncoder, PixelEncoder
from weft.diffusion.data.demo import COLOURS, SHAPES, draw_shape, draw_shapes
from weft.optim import AdamW, CosineScheduler
from weft.train import DataLoader, TensorDataset, Trainer

SIZE = 16  # pixels along a side; four of them, two by two, are a latent, and four latents a token
IMAGES, TEXTS = PixelEncoder(2), HashTextEncoder(length=4, width=32, pooled_width=32)
MODEL = diffusion.FluxConfig(
    in_channels=4 * IMAGES.channels,
    num_layers=1,
    num_single_layers=2,
    attention_head_dim=16,
    num_attention_heads=6,
    joint_attention_dim=32,
    pooled_projection_dim=32,
    axes_dims_rope=(4, 6, 6),
)
PROMPTS = [f"a {c} star" for c in COLOURS] + ["a red circle", "a green square", "a blue triangle"]
CONFIG = """\
[model]
path = "base"
dtype = "float32"

[[data]]                      # what is new
path = "stars"

[[data]]                      # what the model is to keep
path = "others"
regularisation = true

[images]
resolutions = [16]
step = 8
shortest = 16
longest = 16
flip = 0.5

[encoders]                    # of a real run: folders with the weights of VAE, CLIP and T5
vae = "pixels"
clip = "hash"
t5 = "hash"
tokens = 4

[adapter]
rank = 16

[train]
steps = {steps}
batch = 16
precision = "float32"
ema = 0.98

[optimizer]
name = "adamw"
lr = 5e-3

[schedule]
name = "cosine"
warmup_steps = 10

[output]
directory = "run"
name = "star"

[validation]
share = 0.2
every = {often}

[preview]
prompts = {prompts}
width = 16
height = 16
every = {half}
"""


def shapes(count):
    """Latents and text embeddings of so many pictures of the shapes that the base learns."""
    rng = np.random.default_rng(0)
    kinds = [(list(COLOURS)[k % 3], SHAPES[k // 3 % 3]) for k in range(count)]
    bytes_ = np.stack([draw_shape(shape, colour, SIZE, rng) for colour, shape in kinds])
    pixels = bytes_.transpose(0, 3, 1, 2).astype(np.float32) / 127.5 - 1
    return IMAGES.encode(pixels), *TEXTS.encode([f"a {colour} {shape}" for colour, shape in kinds])


def velocity(model, noisy, texts, sigma):
    """What the model makes of noisy latents: the direction from the picture to the noise."""
    _, _, height, width = noisy.shape
    places = diffusion.image_ids(height, width), diffusion.text_ids(TEXTS.length)
    return model(diffusion.pack_latents(noisy), *texts, sigma, *places)


def flow_matching(model, batch):
    """The loss: noise is mixed into latents, and the model is to tell noise − latents."""
    latents, *texts = batch
    noise, sigma = wf.randn(latents.shape), wf.sigmoid(wf.randn(len(latents)))
    level = sigma.reshape(-1, 1, 1, 1)
    found = velocity(model, (1 - level) * latents + level * noise, texts, sigma)
    return wf.mean((found - diffusion.pack_latents(noise - latents)) ** 2)


def train_base(folder, steps, progress=True):
    """A model that draws the shapes, trained from random weights; saved as diffusers saves one."""
    wf.random.seed(0)
    model = diffusion.Flux(MODEL)
    loader = DataLoader(TensorDataset(*shapes(1800)), batch_size=16, shuffle=True, seed=0)
    trainer = Trainer(
        model,
        AdamW(model, lr=5e-3),
        flow_matching,
        schedule=CosineScheduler(5e-3, 1e-4, min(50, steps // 2), steps),
        clip_norm=1.0,
        compile=True,
        ema=0.99,
        log_every=200,
        progress=progress,
    )
    losses = trainer.fit(loader, steps=steps)["loss"]
    with trainer.averaged():
        model.save(folder)
    return losses


def draw(model):
    """The model's pictures of the prompts, all from one noise: bytes (prompts, SIZE, SIZE, 3)."""
    n, side = len(PROMPTS), SIZE // IMAGES.factor
    texts = [wf.tensor(x) for x in TEXTS.encode(PROMPTS)]
    noise = wf.randn((1, IMAGES.channels, side, side), generator=wf.random.Generator(0))
    start = diffusion.pack_latents(wf.tile(noise, (n, 1, 1, 1)))

    def step(tokens, sigma):
        noisy = diffusion.unpack_latents(tokens, side, side)
        return velocity(model, noisy, texts, wf.full((n,), sigma))

    schedule = diffusion.sigma_schedule(20, start.shape[1], shift=False)
    latents = diffusion.unpack_latents(diffusion.euler_sample(step, start, schedule), side, side)
    pixels = np.clip((IMAGES.decode(latents.numpy()) + 1) * 127.5, 0, 255)
    return np.rint(pixels).astype(np.uint8).transpose(0, 2, 3, 1)


def show(path, rows):
    """Rows of pictures with their names, as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    size = 1.3 * len(PROMPTS), 1.4 * len(rows) + 0.2
    figure, panels = plt.subplots(len(rows), len(PROMPTS), figsize=size, layout="constrained")
    for line, (name, pictures) in zip(panels, rows.items(), strict=True):
        line[0].set_ylabel(name)
        for panel, picture in zip(line, pictures, strict=True):
            panel.imshow(picture, interpolation="nearest")
            panel.set(xticks=[], yticks=[])
    for panel, prompt in zip(panels[0], PROMPTS, strict=True):
        panel.set_title(prompt, fontsize=9)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def main(folder="flux_lora", base_steps=1800, steps=400):
    root = Path(folder)
    if root.exists() and any(root.iterdir()):
        sys.exit(f"{root} holds a run already: remove it, or name another folder")
    begun = perf_counter()
    print(f"1. The base learns circles, squares and triangles: {base_steps} steps")
    losses = train_base(root / "base", base_steps)
    print(f"   loss {losses[0]:.2f} → {np.mean(losses[-100:]):.3f}, {perf_counter() - begun:.0f} s")

    print(f"2. It is taught stars: weft train {root}/config.toml")
    draw_shapes(root / "stars", 48, SIZE, shapes=("star",))
    draw_shapes(root / "others", 48, SIZE, seed=1)
    often, half = (max(steps // n, 1) for n in (8, 2))
    config = CONFIG.format(steps=steps, often=often, half=half, prompts=PROMPTS)
    (root / "config.toml").write_text(config, encoding="utf-8")
    if status := weft(["train", str(root / "config.toml")]):
        sys.exit(status)

    print("3. The adapter is read back, and draws")
    file = root / "run" / "adapters" / "star.safetensors"
    found = wf.nn.lora_summary(file)
    model = diffusion.Flux.load(root / "base")
    before = draw(model)
    wf.nn.load_lora(model, file)
    after = draw(model)
    show(root / "before_after.png", {"before": before, "after": after})
    norms = [m.norm for m in found.modules.values()]
    print(f"   {len(norms)} adapters, ‖B·A‖ from {min(norms):.2g} to {max(norms):.2g}: {file}")
    print(f"   pictures: {root}/before_after.png, {root}/run/curves.png, {root}/run/previews")
    print(f"all in all {perf_counter() - begun:.0f} s")
    return losses, before, after


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", default="flux_lora")
    parser.add_argument("--base-steps", type=int, default=1800)
    parser.add_argument("--steps", type=int, default=400)
    main(**vars(parser.parse_args()))
