"""Random Flux transformers of diffusers, ours with the same weights, and inputs for both."""

import contextlib
import copy
import random

import diffusers
import numpy as np
import torch
from diffusers import FluxTransformer2DModel

import weft as wf

diffusers.utils.logging.set_verbosity_error()
# Gradients of what multiplies sinusoids, and of their angles up to 5000, whose last digit in
# float32 is 5e-4: they are compared with float64 (`exact_run`), not with each other.
BESIDE_SINUSOIDS = [
    name.format(which)
    for name in ("time_text_embed.{}_embedder.linear_1.weight", "input {}")
    for which in ("timestep", "guidance")
]
FLOATS = ("hidden_states", "encoder_hidden_states", "pooled_projections", "timestep", "guidance")


def random_config(seed: int, **fixed) -> wf.diffusion.FluxConfig:
    """Any small sizes: heads, axes, depths, widths, with and without guidance."""
    r = random.Random(seed)
    axes = tuple(2 * r.randint(1, 4) for _ in range(3))
    double = r.randint(0, 2)
    drawn = {
        "patch_size": r.choice((1, 1, 2)),
        "in_channels": r.choice((4, 6, 16)),
        "out_channels": r.choice((None, None, 5)),
        "num_layers": double,
        "num_single_layers": r.randint(0 if double else 1, 2),
        "attention_head_dim": sum(axes),
        "num_attention_heads": r.randint(1, 3),
        "joint_attention_dim": r.choice((8, 12)),
        "pooled_projection_dim": r.choice((6, 10)),
        "guidance_embeds": r.random() < 0.5,
        "axes_dims_rope": axes,
    }
    return wf.diffusion.FluxConfig(**drawn | fixed)


def theirs(config: wf.diffusion.FluxConfig, seed: int = 0) -> FluxTransformer2DModel:
    """A transformer of diffusers with random weights, norms' and biases' too."""
    fields = {k: v for k, v in config.to_dict().items() if not k.startswith("_")}
    torch.manual_seed(seed)
    model = FluxTransformer2DModel(**fields)
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 1:
                p.add_(0.3 * torch.randn_like(p))
    return model


def ours(model: FluxTransformer2DModel, config, **options) -> wf.diffusion.Flux:
    made = wf.diffusion.Flux(config, **options)
    made.load_state_dict({n: x.detach() for n, x in model.state_dict().items()})
    return made


def random_inputs(config, seed: int, batch=None) -> dict[str, np.ndarray]:
    """Inputs of any batch, resolution and length of text, in float32, and their positions."""
    r, n = random.Random(seed), np.random.default_rng(seed)
    batch = batch or r.randint(1, 3)
    height, width, length = 2 * r.randint(1, 4), 2 * r.randint(1, 4), r.randint(1, 7)

    def normal(*shape):
        return n.standard_normal(shape).astype(np.float32)

    made = {
        "hidden_states": normal(batch, height * width // 4, config.in_channels),
        "encoder_hidden_states": normal(batch, length, config.joint_attention_dim),
        "pooled_projections": normal(batch, config.pooled_projection_dim),
        "timestep": n.uniform(0, 1, batch).astype(np.float32),
        "img_ids": wf.diffusion.image_ids(height, width).numpy(),
        "txt_ids": wf.diffusion.text_ids(length).numpy(),
    }
    if config.guidance_embeds:
        made["guidance"] = n.uniform(1, 5, batch).astype(np.float32)
    return made


def run_theirs(model, inputs, dtype=torch.float32) -> dict[str, np.ndarray]:
    """The result, and the gradients of a random sum of it by inputs and weights."""
    given = {n: torch.tensor(x) for n, x in inputs.items()}
    for name in FLOATS:
        if name in given:
            given[name] = given[name].to(dtype).requires_grad_()
    model = model.to(dtype)
    model.zero_grad()
    weights = dict(model.named_parameters())
    out = model(**given, return_dict=False)[0]
    out.backward(torch.tensor(seed_of(out.shape)).to(dtype))
    # Without single blocks nothing reads what the last double block makes of the text.
    found = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in weights.items()}
    found["result"] = out
    found |= {f"input {n}": given[n].grad for n in FLOATS if n in given}
    wide = torch.promote_types(dtype, torch.float32)
    return {n: x.detach().to(wide).numpy() for n, x in found.items()}


def run_ours(model, inputs, dtype="float32", device="cpu") -> dict[str, np.ndarray]:
    given = {n: wf.asarray(x).to(device) for n, x in inputs.items()}
    for name in FLOATS:
        if name in given:
            given[name] = given[name].to(dtype).requires_grad_()
    out = model(**given)
    grads = out.backward(wf.asarray(seed_of(out.shape)).to(device).to(dtype))
    found = {n: grads.get(p, wf.zeros_like(p)) for n, p in model.named_parameters()}
    found["result"] = out
    found |= {f"input {n}": grads[given[n]] for n in FLOATS if n in given}
    return {n: x.detach().to("cpu").to("float32").numpy() for n, x in found.items()}


def seed_of(shape) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(tuple(shape)).astype(np.float32)


class _ExactSinusoids(torch.nn.Module):
    def forward(self, times: torch.Tensor) -> torch.Tensor:
        pace = 10_000.0 ** (-torch.arange(128, dtype=torch.float64) / 128)
        angles = times.double()[:, None] * pace
        return torch.cat([angles.cos(), angles.sin()], 1)


def exact_run(model, inputs) -> dict[str, np.ndarray]:
    """What `run_theirs` gives, but by a model that computes in float64 throughout."""
    wide = copy.deepcopy(model)
    wide.time_text_embed.time_proj = _ExactSinusoids()
    return run_theirs(wide, inputs, torch.float64)


def errors(found: dict[str, np.ndarray], exact: dict[str, np.ndarray]) -> dict[str, float]:
    """The largest error of each array beside sinusoids, relative to its largest element."""
    here = [n for n in BESIDE_SINUSOIDS if n in exact]
    return {n: float(np.abs(found[n] - exact[n]).max() / np.abs(exact[n]).max()) for n in here}


def distance(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> tuple[float, str]:
    """The largest difference of any of the arrays, relative to its largest element in b."""
    assert a.keys() == b.keys()
    return max(
        (float(np.abs(a[n] - b[n]).max() / (np.abs(b[n]).max() + 1e-30)), n)
        for n in b
        if n not in BESIDE_SINUSOIDS
    )


@contextlib.contextmanager
def replaced(owner, name, value):
    """A fault that is planted for a moment."""
    kept = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, kept)
