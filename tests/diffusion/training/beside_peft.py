"""A plain training loop of PyTorch with diffusers' model and PEFT's adapters, and ours beside it.

Both read one file of weights, begin with the same A, and see the same batches: latents,
embeddings, noise and levels of noise. Ours is what a configuration makes.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from diffusers import FluxPipeline, FluxTransformer2DModel
from diffusers.training_utils import cast_training_params, compute_loss_weighting_for_sd3
from peft import LoraConfig
from tests.diffusion.beside_diffusers import ours, theirs

import weft as wf
from weft.diffusion.training import build
from weft.diffusion.training.config import TrainConfig, read_config
from weft.train.epochs import EpochLoader

from .tiny import write_config

STEPS, DIFFERENT = 50, 4  # steps, and how many batches there are
Array = np.ndarray
Batch = dict[str, Array]


class Followed(NamedTuple):
    """What a run did: loss and norm of each step, and the adapters at its end, in float64."""

    losses: Array
    norms: Array
    start: dict[str, Array]
    end: dict[str, Array]


def sizes(guided: bool) -> wf.diffusion.FluxConfig:
    return wf.diffusion.FluxConfig(
        in_channels=16,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=12,
        pooled_projection_dim=10,
        guidance_embeds=guided,
        axes_dims_rope=(4, 4, 8),
    )


def save_base(folder: Path, guided: bool, by_us: bool, dtype: str = "float32") -> None:
    """One base in a folder, written by diffusers or by us, whose numbers a dtype has."""
    model = theirs(sizes(guided), seed=3).to(getattr(torch, dtype)).float()
    if by_us:
        ours(model, sizes(guided)).save(folder)
    else:
        model.save_pretrained(folder)


def fixed_batches(masked: bool, weighted: bool) -> list[Batch]:
    """Batches of two samples, of two resolutions, one for each part of a step."""
    rng = np.random.default_rng(11)

    def normal(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    found = []
    for k in range(DIFFERENT):
        height, width = ((8, 4), (4, 6))[k % 2]
        batch = {
            "latents": normal(2, 4, height, width),
            "prompt_embeds": normal(2, 5, 12),
            "pooled": normal(2, 10),
            "noise": normal(2, 4, height, width),
            "sigma": rng.uniform(0.05, 1, 2).astype(np.float32),
            "weights": np.ones(2, np.float32),
        }
        if weighted:
            batch["weights"] = rng.uniform(0, 2, 2).astype(np.float32)
        if masked:
            batch["mask"] = rng.uniform(0, 1, (2, 1, height, width)).astype(np.float32)
            batch["mask"][:, :, : height // 2] = 0
        found.append(batch)
    return found


class Batches(EpochLoader):
    """Batches in their order, epoch after epoch."""

    def __init__(self, batches: list[Batch]):
        super().__init__(workers=0, prefetch=1)
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def _meaning(self) -> dict[str, Any]:
        return {}

    def _maker(self, epoch: int) -> Any:
        return lambda k, stopped: self.batches[k]

    def _check_length(self) -> None:
        pass


def read(folder: Path, **sections: str) -> TrainConfig:
    """The configuration of a run in a folder."""
    given = {
        "model": 'path = "base"\ndtype = "float32"',
        "train": f'steps = {STEPS}\nprecision = "float32"\nclip_norm = 0.5',
        "optimizer": 'name = "adamw"\nlr = 3e-3\nweight_decay = 0.1',
        "validation": "",
        "preview": "",
    }
    return read_config(write_config(folder, **given | sections))


def follow_ours(config: TrainConfig, batches: list[Batch]) -> Followed:
    """A run as a configuration says, on these batches."""
    wf.random.seed(0)
    model = build.load_model(config)
    build.add_adapters(model, config)
    start = adapters(model)
    history = build.make_trainer(config, model, STEPS).fit(Batches(batches), steps=STEPS)
    return Followed(
        np.array(history["loss"]), np.array(history["grad_norm"]), start, adapters(model)
    )


def adapters(model: Any) -> dict[str, Array]:
    return {
        n: np.array(p.detach().numpy(), np.float64)
        for n, p in model.named_parameters()
        if p.requires_grad
    }


def follow_theirs(
    config: TrainConfig,
    batches: list[Batch],
    start: dict[str, Array],
    dtype: torch.dtype = torch.float32,
) -> Followed:
    """The same run as a loop of PyTorch, on a base of a dtype; the adapters are in float32."""
    model = FluxTransformer2DModel.from_pretrained(config.model.path, torch_dtype=dtype)
    _add_adapters(model, config, list(start))
    cast_training_params(model, torch.float32)
    named = {
        n.replace(".default.weight", ""): p for n, p in model.named_parameters() if p.requires_grad
    }
    assert named.keys() == start.keys()
    with torch.no_grad():
        for name, p in named.items():
            if "magnitude" not in name:
                p.copy_(torch.tensor(start[name]))
    began = {n: np.array(p.detach().numpy(), np.float64) for n, p in named.items()}
    recipe, train = config.optimizer.config, config.train
    optimizer = torch.optim.AdamW(
        named.values(),
        recipe.lr,
        (recipe.beta1, recipe.beta2),
        recipe.eps,
        recipe.weight_decay,
    )
    losses, norms, at = [], [], 0
    block = (
        torch.autocast("cpu", torch.bfloat16) if train.precision == "bfloat16" else nullcontext()
    )
    for _ in range(STEPS):
        optimizer.zero_grad()
        total = 0.0
        for _ in range(train.accumulate):
            batch = {n: torch.tensor(x) for n, x in batches[at % len(batches)].items()}
            with block:
                loss = their_loss(model, batch, config, dtype) / train.accumulate
            loss.backward()
            total, at = total + loss.item(), at + 1
        losses.append(total)
        norms.append(torch.nn.utils.clip_grad_norm_(named.values(), train.clip_norm).item())
        optimizer.step()
    end = {n: np.array(p.detach().numpy(), np.float64) for n, p in named.items()}
    return Followed(np.array(losses), np.array(norms), began, end)


def _add_adapters(model: FluxTransformer2DModel, config: TrainConfig, names: list[str]) -> None:
    layers = list(dict.fromkeys(n.rpartition(".")[0] for n in names))
    section = config.adapter
    ruled = {n: rule for rule in section.rules for n in layers if rule.pattern == n}
    model.add_adapter(
        LoraConfig(
            r=section.rank,
            lora_alpha=section.rank if section.alpha is None else section.alpha,
            target_modules=layers,
            use_dora=section.kind == "dora",
            rank_pattern={n: rule.rank for n, rule in ruled.items()},
            alpha_pattern={n: rule.alpha for n, rule in ruled.items()},
        )
    )


def their_loss(model, batch, config: TrainConfig, dtype: torch.dtype) -> torch.Tensor:
    """The loss by the functions of diffusers' pipeline and training scripts."""
    latents, noise, sigma = batch["latents"], batch["noise"], batch["sigma"]
    n, channels, height, width = latents.shape
    level = sigma[:, None, None, None]
    noisy = (1 - level) * latents + level * noise

    def pack(x: torch.Tensor) -> torch.Tensor:
        return FluxPipeline._pack_latents(x, n, channels, height, width)

    guided = model.config.guidance_embeds
    predicted = model(
        hidden_states=pack(noisy).to(dtype),
        encoder_hidden_states=batch["prompt_embeds"].to(dtype),
        pooled_projections=batch["pooled"].to(dtype),
        timestep=sigma.to(dtype),
        img_ids=FluxPipeline._prepare_latent_image_ids(n, height // 2, width // 2, "cpu", dtype),
        txt_ids=torch.zeros(batch["prompt_embeds"].shape[1], 3, dtype=dtype),
        guidance=torch.full((n,), config.model.guidance, dtype=dtype) if guided else None,
        return_dict=False,
    )[0]
    predicted, target = predicted.float(), pack(noise - latents)
    if config.noise.loss == "huber":
        delta = config.noise.huber_delta
        error = torch.nn.functional.huber_loss(predicted, target, reduction="none", delta=delta)
    else:
        error = (predicted - target) ** 2
    if "mask" in batch:
        mask = pack(batch["mask"].expand(-1, channels, -1, -1))
        each = (error * mask).sum((1, 2)) / mask.sum((1, 2))
    else:
        each = error.mean((1, 2))
    by_level = compute_loss_weighting_for_sd3(config.noise.weighting, sigma)
    return (each * by_level * batch["weights"]).mean()


def distances(found: Followed, right: Followed) -> tuple[float, float]:
    """The largest difference of losses, and that of adapters relative to how far each moved."""
    moved = {n: np.linalg.norm(right.end[n] - right.start[n]) for n in right.end}
    apart = {n: np.linalg.norm(found.end[n] - right.end[n]) / moved[n] for n in moved}
    return float(np.abs(found.losses - right.losses).max()), float(max(apart.values()))
