"""A small model, a few images and a configuration, for runs that take seconds."""

from pathlib import Path

import weft as wf
from weft.diffusion.data.demo import draw_shapes

SIZES = wf.diffusion.FluxConfig(
    in_channels=48,
    num_layers=1,
    num_single_layers=1,
    attention_head_dim=16,
    num_attention_heads=2,
    joint_attention_dim=32,
    pooled_projection_dim=32,
    guidance_embeds=True,
    axes_dims_rope=(4, 4, 8),
)
SECTIONS = {
    "model": 'path = "model"\ndtype = "float32"',
    "images": "resolutions = [16]\nstep = 8\nshortest = 8\nlongest = 32\ncaption_dropout = 0.2\n"
    "flip = 0.5",
    "encoders": "tokens = 4",
    "train": 'steps = 6\nbatch = 2\nprecision = "float32"\nema = 0.9',
    "output": 'directory = "run"\nsave_every = 3',
    "optimizer": 'name = "adamw"\nlr = 1e-2',
    "validation": "share = 0.3\nevery = 3\nlevels = 2",
    "preview": 'prompts = ["a red circle"]\nevery = 3\nsteps = 2\nwidth = 16\nheight = 16',
}


def make_files(folder: Path) -> None:
    """A model and images in a folder."""
    wf.random.seed(5)
    wf.diffusion.Flux(SIZES).save(folder / "model")
    draw_shapes(folder / "images", images=8, size=16)


def write_config(folder: Path, name: str = "config.toml", **sections: str) -> Path:
    """A configuration with some sections of one's own; an empty one is left out."""
    text = '[[data]]\npath = "images"\n'
    for section, lines in (SECTIONS | sections).items():
        text += f"[{section}]\n{lines}\n" if lines else ""
    path = folder / name
    path.write_text(text)
    return path
