"""LoRA training on Flux transformers: steps of Weft's trainer and of PyTorch with diffusers, PEFT.

Run: python bench/lora.py [case …] [--device …] [--tiny] [--out …]
Weights are random and in bfloat16, adapters of rank 16 in float32 on all linear layers of the
blocks; a batch is one picture of 1024×1024 (4096 tokens) with a text of 512 tokens; gradients are
clipped, the optimizer is AdamW. Each contender runs in a process of its own. Times are medians of
wall-clock times of steps, peaks `torch.cuda.max_memory_allocated` with all weights. `estimate` is
what `wf.diffusion.estimate` says of the run before it. What was measured replaces the lines of the
same cases in RESULTS-LORA.json, and RESULTS-LORA.md is written anew.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]
STEPS = 6
PARTS = ["to_q", "to_k", "to_v", "to_out.0", "add_q_proj", "add_k_proj", "add_v_proj"]
PARTS += ["to_add_out", "net.0.proj", "net.2", "proj_mlp", "proj_out"]

# Case: (double blocks, single blocks, whether the base has 8 bits, budget in MiB, seconds at most).
SIZES: dict[str, tuple[int, int, bool, int | None, int]] = {
    "small": (1, 1, False, None, 60),
    "width": (2, 4, False, None, 150),
    "full": (19, 38, False, None, 300),
    "full-24": (19, 38, True, 24_000_000_000 >> 20, 400),
    "full-16": (19, 38, True, 16_000_000_000 >> 20, 400),
    "full-8": (19, 38, True, 8_000_000_000 >> 20, 400),
}
TITLES = {
    "small": "1 double + 1 single block",
    "width": "2 double + 4 single blocks",
    "full": "19 double + 38 single blocks",
    "full-24": "the same, base in 8 bits, budget 24 GB",
    "full-16": "the same, base in 8 bits, budget 16 GB",
    "full-8": "the same, base in 8 bits, budget 8 GB",
}
WAYS = {
    "small": ("weft",),
    "width": ("weft", "weft-eager", "torch", "torch-compile"),
    "full": ("weft", "torch"),
    "full-24": ("weft",),
    "full-16": ("weft",),
    "full-8": ("weft",),
}


def sizes_of(case: str, tiny: bool) -> dict[str, Any]:
    """The sizes of the model of a case, under the names of diffusers."""
    double, single, *_ = SIZES[case]
    sizes: dict[str, Any] = {"num_layers": double, "num_single_layers": single}
    sizes |= {"guidance_embeds": True}
    if tiny:
        sizes |= {"num_attention_heads": 2, "attention_head_dim": 16, "axes_dims_rope": (4, 4, 8)}
        sizes |= {"num_layers": min(double, 2), "num_single_layers": min(single, 3)}
        sizes |= {"joint_attention_dim": 32, "pooled_projection_dim": 16}
    return sizes


class Memory:
    """The most memory of a GPU since it was made."""

    def __init__(self, device: str):
        import torch

        self.torch = torch if device == "cuda" else None
        if self.torch:
            self.torch.cuda.reset_peak_memory_stats()

    def wait(self) -> None:
        if self.torch:
            self.torch.cuda.synchronize()

    @property
    def peak(self) -> int:
        return self.torch.cuda.max_memory_allocated() if self.torch else 0


# -- Weft ----------------------------------------------------------------------------------------


def weft_config(case: str, folder: Path, given: argparse.Namespace, compiled: bool) -> Any:
    """A configuration of the case, with one picture; of the base only the sizes are there."""
    from PIL import Image

    import weft as wf

    side = 128 if given.tiny else 1024
    (folder / "images").mkdir()
    Image.new("RGB", (side, side), (90, 60, 200)).save(folder / "images/a.png")
    (folder / "images/a.txt").write_text("a picture")
    (folder / "base").mkdir()
    kind = {"_class_name": "FluxTransformer2DModel", **sizes_of(case, given.tiny)}
    (folder / "base/config.json").write_text(json.dumps(kind))
    vae = {"_class_name": "AutoencoderKL", "latent_channels": 16, "scaling_factor": 0.3611}
    vae |= {"shift_factor": 0.1159, "block_out_channels": [1, 1, 1, 1]}
    (folder / "vae").mkdir()
    (folder / "vae/config.json").write_text(json.dumps(vae))
    wf.io.save_safetensors(folder / "vae/none.safetensors", {})  # no encoder runs
    _, _, eight, budget, _ = SIZES[case]
    lines = ['model.path = "base"\nmodel.dtype = "bfloat16"\noutput.directory = "run"']
    lines += ['model.quantise = "int8"'] if eight else []
    lines += [f"train.memory_budget_mb = {budget}"] if budget else []
    lines += [f'train.device = "{given.device}"\ntrain.steps = {STEPS}\nadapter.rank = 16']
    lines += [f"train.compile = {'true' if compiled else 'false'}"]
    lines += [f'encoders.vae = "vae"\nencoders.tokens = {64 if given.tiny else 512}']
    lines += [f"images.resolutions = [{side}]"]
    lines += ["images.shortest = 64"] if given.tiny else []
    (folder / "run.toml").write_text("\n".join([*lines, '[[data]]\npath = "images"', ""]))
    return wf.diffusion.read_config(folder / "run.toml")


def run_weft(case: str, given: argparse.Namespace, compiled: bool) -> dict[str, Any]:
    """Steps of the trainer that `weft train` makes, and what was said of them before."""
    import weft as wf
    from weft.diffusion.config import FluxConfig
    from weft.diffusion.training import build
    from weft.diffusion.training.rehearsal import Clock
    from weft.diffusion.training.throwaway import (
        BatchKind,
        BatchMaker,
        Repeated,
        fill_model,
        make_model,
    )

    with tempfile.TemporaryDirectory() as folder:
        config = weft_config(case, Path(folder), given, compiled)
        found: dict[str, Any] = {}
        if compiled or given.device == "cpu":  # eager mode on a GPU is not predicted
            began = perf_counter()
            said = wf.diffusion.estimate(config)
            if said.refused:
                return {"message": f"refused: {said.refused}"}
            found = {"estimate": said.peak, "estimated": perf_counter() - began}
            found["parts"] = said.parts()
            print(json.dumps({"estimate": said.peak}), file=sys.stderr, flush=True)
    sizes, side = FluxConfig(**sizes_of(case, given.tiny)), 128 if given.tiny else 1024
    model = make_model(config, sizes, given.device)
    fill_model(model)
    clock = Clock(given.device)
    trainer = build.make_trainer(config, model, STEPS, [clock])
    maker = BatchMaker(16, 8, config.encoders.tokens, sizes, False, "cpu")
    batch = maker.make(BatchKind(1, side, side))
    memory = Memory(given.device)
    trainer.fit(Repeated([batch] * STEPS), epochs=1)
    memory.wait()
    times = clock.seconds()
    found |= {"first": times[0], "milliseconds": 1000 * median(times[2:]), "peak": memory.peak}
    return found | {"losses": list(trainer.history["loss"])}


# -- PyTorch -------------------------------------------------------------------------------------


def run_torch(case: str, given: argparse.Namespace, compiled: bool) -> dict[str, Any]:
    """The same steps by diffusers' model, PEFT's adapters and PyTorch's fused AdamW."""
    import torch
    from diffusers.models.transformers.transformer_flux import FluxTransformer2DModel
    from diffusers.pipelines.flux.pipeline_flux import FluxPipeline
    from peft import LoraConfig

    device, tiny = given.device, given.tiny
    with torch.device(device):
        torch.set_default_dtype(torch.bfloat16)
        model: Any = FluxTransformer2DModel(**sizes_of(case, tiny))
        torch.set_default_dtype(torch.float32)
    model.requires_grad_(False)
    blocks = r"(single_)?transformer_blocks\.\d+\..*"
    layers = "|".join(name.replace(".", r"\.") for name in PARTS)
    wanted = rf"{blocks}({layers})"
    model.add_adapter(LoraConfig(r=16, lora_alpha=16, target_modules=wanted))
    adapters = [p for p in model.parameters() if p.requires_grad]
    for p in adapters:
        p.data = p.data.float()
    optimizer = torch.optim.AdamW(adapters, lr=1e-4, fused=device == "cuda")
    side, tokens = (16, 64) if tiny else (128, 512)
    latents = torch.randn(1, 16, side, side, device=device)
    embeds = torch.randn(1, tokens, model.config.joint_attention_dim, device=device)
    pooled = torch.randn(1, model.config.pooled_projection_dim, device=device)
    ids = FluxPipeline._prepare_latent_image_ids(1, side // 2, side // 2, device, torch.float32)
    pack = FluxPipeline._pack_latents
    called: Callable[..., Any] = torch.compile(model) if compiled else model
    text_ids = torch.zeros(tokens, 3, device=device)

    def step() -> None:
        optimizer.zero_grad()
        noise, sigma = torch.randn_like(latents), torch.randn(1, device=device).sigmoid()
        noisy = (1 - sigma) * latents + sigma * noise
        with torch.autocast(device, torch.bfloat16):
            velocity = called(
                hidden_states=pack(noisy, 1, 16, side, side).bfloat16(),
                encoder_hidden_states=embeds.bfloat16(),
                pooled_projections=pooled.bfloat16(),
                timestep=sigma,
                img_ids=ids,
                txt_ids=text_ids,
                guidance=torch.ones(1, device=device),
                return_dict=False,
            )[0]
        target = pack(noise - latents, 1, 16, side, side)
        torch.nn.functional.mse_loss(velocity.float(), target).backward()
        torch.nn.utils.clip_grad_norm_(adapters, 1.0)
        optimizer.step()

    memory, times = Memory(device), [perf_counter()]
    for _ in range(STEPS):
        step()
        memory.wait()
        times.append(perf_counter())
    taken = [b - a for a, b in pairwise(times)]
    found = {"first": taken[0], "milliseconds": 1000 * median(taken[2:]), "peak": memory.peak}
    return found | {"adapters": len(adapters)}


RUNS: dict[str, Callable[[str, argparse.Namespace], dict[str, Any]]] = {
    "weft": lambda case, given: run_weft(case, given, True),
    "weft-eager": lambda case, given: run_weft(case, given, False),
    "torch": lambda case, given: run_torch(case, given, False),
    "torch-compile": lambda case, given: run_torch(case, given, True),
}


# -- all -----------------------------------------------------------------------------------------


def run_worker(case: str, way: str, given: argparse.Namespace) -> dict[str, Any]:
    """A contender in a process of its own; why there are no figures, if there are none."""
    command = [sys.executable, __file__, case, "--worker", way, "--device", given.device]
    command += ["--tiny"] if given.tiny else []
    try:
        made = subprocess.run(command, capture_output=True, text=True, timeout=SIZES[case][-1])
    except subprocess.TimeoutExpired:
        return {"message": f"stopped after {SIZES[case][-1]} s"}
    for line in made.stdout.splitlines():
        if line.startswith('{"found"'):
            return json.loads(line)["found"]
    last = made.stderr.strip().splitlines()[-1:]
    return {"message": f"ended with {made.returncode}: {''.join(last)[:300]}"}


def written(cases: dict[str, Any], environment: str) -> str:
    """The table."""
    head = ["case", "contender", "step, ms", "peak, GiB", "estimated, GiB", "off", "first step, s"]
    rows = [head, ["---", "---", *["---:"] * (len(head) - 2)]]
    for case, ways in cases.items():
        for way, line in ways.items():
            rows.append([TITLES[case], way, *_cells(line)])
    said = [
        f"- {TITLES[c]}, {w}: {x['message']}"
        for c, ways in cases.items()
        for w, x in ways.items()
        if "message" in x
    ]
    text = [(__doc__ or "").partition("\n\n")[0].rstrip("."), "", environment, ""]
    text = ["# " + text[0], *text[1:], *[f"| {' | '.join(row)} |" for row in rows], ""]
    return "\n".join([*text, *said, ""])


def _cells(line: dict[str, Any]) -> list[str]:
    if "milliseconds" not in line:
        return ["–"] * 5
    peak, said = line["peak"], line.get("estimate")
    off = f"{100 * (said / peak - 1):+.1f} %" if said and peak else "–"
    estimate = f"{said / 2**30:.2f}" if said else "–"
    figures = [f"{line['milliseconds']:.1f}", f"{peak / 2**30:.2f}", estimate, off]
    return [*figures, f"{line['first']:.1f}"]


def describe(device: str) -> str:
    import torch

    name = torch.cuda.get_device_name() if device == "cuda" else device
    return f"{name}; Python {sys.version.split()[0]}, torch {torch.__version__}."


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cases", nargs="*", choices=[[], *SIZES], metavar="case")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small models; only prints")
    parser.add_argument("--worker", choices=list(RUNS), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=ROOT / "bench")
    given = parser.parse_args()
    if given.worker:
        print(json.dumps({"found": RUNS[given.worker](given.cases[0], given)}))
        return
    file = given.out / "RESULTS-LORA.json"
    kept = json.loads(file.read_text()) if file.exists() and not given.tiny else {}
    for case in given.cases or SIZES:
        kept[case] = {}
        for way in WAYS[case]:
            kept[case][way] = run_worker(case, way, given)
            print(case, way, json.dumps(kept[case][way]), flush=True)
    text = written({case: kept[case] for case in SIZES if case in kept}, describe(given.device))
    print(text)
    if not given.tiny:
        file.write_text(json.dumps(kept, indent=1) + "\n")
        (given.out / "RESULTS-LORA.md").write_text(text)


if __name__ == "__main__":
    main()
