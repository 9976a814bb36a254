"""Estimates of runs beside the peaks of these runs; what is said where they do not fit."""

import gc
import json
import os
import re
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import weft as wf
from weft.backend.shared import threads
from weft.cli import main
from weft.diffusion.data.demo import draw_shapes
from weft.diffusion.training import build, estimate
from weft.diffusion.training.callbacks import AdapterFiles
from weft.diffusion.training.config import TrainConfig, read_config
from weft.diffusion.training.kinds import find_kinds
from weft.diffusion.training.run import prepare_data, train_on
from weft.diffusion.training.throwaway import BatchKind, BatchMaker
from weft.diffusion.training.validation import ValidationBatches
from weft.profile import Counter
from weft.train import compiled

from .tiny import SECTIONS, write_config

SOAK = bool(os.environ.get("WEFT_SOAK"))
MIB = 1 << 20
TOLERANCE = 0.05
# Blocks of both kinds, heads of 16, and the side of images in pixels.
MODELS = {"small": (1, 1, 8, 56), "wide": (1, 2, 16, 48), "long": (2, 2, 6, 80)}
WAYS = ("plain", "budget", "int8")


def write_run(folder: Path, size: str = "small", count: int = 4, **sections: str) -> Path:
    """A model, images and a configuration of a size."""
    double, single, heads, side = MODELS[size]
    config = wf.diffusion.FluxConfig(
        in_channels=48,
        num_layers=double,
        num_single_layers=single,
        attention_head_dim=16,
        num_attention_heads=heads,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        guidance_embeds=True,
        axes_dims_rope=(4, 4, 8),
    )
    wf.random.seed(5)
    wf.diffusion.Flux(config).save(folder / "model")
    draw_shapes(folder / "images", images=count, size=side)
    pictures = f"resolutions = [{side}]\nstep = 8\nshortest = 8\nlongest = 128"
    chosen = {"images": pictures, "validation": "", "preview": "", **sections}
    return write_config(folder, **chosen)


def measured_peak(config: TrainConfig) -> int:
    """The most bytes of NumPy's arrays while the run goes on, from its model to its last step."""
    data = prepare_data(config)
    gc.collect()
    with Counter() as counter:
        model = build.load_model(config)
        build.add_adapters(model, config)
        loader = build.make_loader(data.trained, config)
        output = config.output
        shutil.rmtree(output.directory, ignore_errors=True)
        options = [AdapterFiles(output)], output.directory, data.reserve
        trainer = build.make_trainer(config, model, 1, *options)
        gc.collect()
        counter.reset_peak()  # layers are quantised in float32, before there are steps
        validation = None
        if data.validation is not None:
            validation = ValidationBatches(data.validation, 1, 0)
        trainer.fit(loader, epochs=8, validation=validation)  # until all have occurred
        return counter.peak


def measured_peak_on_gpu(config: TrainConfig) -> int:
    """The most bytes that PyTorch's allocator gives while a run goes on."""
    import torch

    data = prepare_data(config)
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    model = build.load_model(config)
    build.add_adapters(model, config)
    trainer = build.make_trainer(config, model, 1)
    loader = build.make_loader(data.trained, config)
    gc.collect()
    torch.cuda.reset_peak_memory_stats()
    trainer.fit(loader, epochs=2)
    return torch.cuda.max_memory_allocated() - before


@pytest.fixture(autouse=True)
def alike(monkeypatch):
    """One thread, which is never late to its work."""
    monkeypatch.setattr(threads, "LIMIT", 1)


def settings(compiled: bool, way: str, more: str = "") -> dict[str, str]:
    lines = f'steps = 2\nbatch = 2\nprecision = "float32"\ncompile = {str(compiled).lower()}\n'
    quantised = '\nquantise = "int8"' if way == "int8" else ""
    return {"train": lines + more, "model": SECTIONS["model"] + quantised}


CASES = [*product(MODELS, (True, False), WAYS)]
QUICK = [
    *product(("small",), (True, False), WAYS),
    ("wide", True, "plain"),
    ("long", False, "int8"),
]


@pytest.mark.parametrize(("size", "compiled", "way"), CASES if SOAK else QUICK)
def test_the_peak_is_what_a_run_takes(tmp_path, size, compiled, way):
    config = read_config(write_run(tmp_path, size, **settings(compiled, way)))
    said = wf.diffusion.estimate(config)
    if way == "budget":
        # What eager mode keeps is decided while it runs, and more than the peak changes nothing.
        budget = (0.85 if compiled else 1.2) * said.peak / MIB
        config = replace(config, train=replace(config.train, memory_budget_mb=budget))
        said = wf.diffusion.estimate(config)
        assert said.refused == "" and said.peak <= budget * MIB + 1
    assert said.peak == sum(said.parts().values())
    measured = measured_peak(config)
    print(size, compiled, way, said.peak, measured, said.peak / measured - 1)
    assert said.peak == pytest.approx(measured, rel=TOLERANCE)


def random_settings(rng: np.random.Generator) -> dict[str, str]:
    """Sections of a small run: what is trained, on what, by what."""
    chosen = {name: rng.random() < 0.5 for name in ("compile", "ema", "int8", "half", "validate")}
    optimizer = ("adamw", "adafactor", "lion", "sgd", "adamw8bit")[rng.integers(5)]
    lines = [
        *(f"steps = 2\nbatch = {rng.integers(1, 4)}\naccumulate = {rng.integers(1, 4)}",),
        f'precision = "{("float32", "bfloat16")[rng.integers(2)]}"',
        f"compile = {str(bool(chosen['compile'])).lower()}",
        *(["ema = 0.9"] if chosen["ema"] else []),
        *(["clip_norm = 1.0"] if rng.random() < 0.5 else []),
    ]
    base = f'path = "model"\ndtype = "{"bfloat16" if chosen["half"] else "float32"}"'
    return {
        "train": "\n".join(lines),
        "model": base + ('\nquantise = "int8"' if chosen["int8"] else ""),
        "optimizer": f'name = "{optimizer}"\nlr = 1e-3',
        "adapter": f"rank = {rng.integers(1, 24)}",
        "validation": "share = 0.4\nlevels = 1" if chosen["validate"] else "",
    }


@pytest.mark.parametrize("seed", range(24 if SOAK else 3))
def test_random_runs(tmp_path, seed):
    """Ranks, batches, averages, optimizers, parts of steps, precisions and buckets."""
    rng = np.random.default_rng(seed)
    sections = random_settings(rng)
    if rng.random() < 0.5:
        sides = "resolutions = [40, 56]\nstep = 8\nshortest = 8\nlongest = 128\nupscale = true"
        sections["images"] = sides
    # Tables of programs are not predicted: half a MB each, of which small models notice.
    config = read_config(write_run(tmp_path, "wide", **sections, count=int(rng.integers(3, 7))))
    said, measured = wf.diffusion.estimate(config), measured_peak(config)
    print(seed, sections, said.peak, measured, said.peak / measured - 1)
    assert said.peak == pytest.approx(measured, rel=TOLERANCE)


def test_parts_of_a_step_take_the_memory_of_one(tmp_path):
    """Batches of a step run one after the other: what they compute is there once."""
    peaks, said = {}, {}
    for parts in (1, 2, 4):
        folder = tmp_path / str(parts)
        folder.mkdir()
        more = settings(True, "plain", f"accumulate = {parts}\n")
        more["train"] = more["train"].replace("batch = 2", "batch = 1")
        config = read_config(write_run(folder, "wide", count=5, **more))
        said[parts] = wf.diffusion.estimate(config)
        peaks[parts] = measured_peak(config)
        assert said[parts].peak == pytest.approx(peaks[parts], rel=TOLERANCE), parts
    print(peaks)
    gradients = said[1].parts()["trained parameters"]
    assert all(peaks[n] <= 1.1 * peaks[1] + gradients for n in peaks), peaks


@pytest.mark.parametrize("accumulate", [1, 3])
def test_the_result_does_not_depend_on_what_is_kept(tmp_path, monkeypatch, accumulate):
    """To the bit: programs that keep their memory, and programs that never do."""
    train, found = settings(True, "plain", f"accumulate = {accumulate}\n"), []
    sides = "resolutions = [40, 56]\nstep = 8\nshortest = 8\nlongest = 128\nupscale = true"
    for kept in (0, 1 << 40):
        monkeypatch.setattr(compiled, "KEPT", kept)
        folder = tmp_path / str(kept)
        folder.mkdir()
        config = read_config(write_run(folder, count=9, **train | {"images": sides}))
        data = prepare_data(config)
        wf.random.seed(1)
        model = build.load_model(config)
        build.add_adapters(model, config)
        trainer = build.make_trainer(config, model, 4)
        trainer.fit(build.make_loader(data.trained, config), epochs=2)
        weights = {n: p.detach().numpy() for n, p in model.named_parameters() if p.requires_grad}
        found.append((list(trainer.history["loss"]), weights))
    (losses, weights), (others, same) = found
    assert losses == others and len(losses) > 3
    assert all(np.array_equal(w, same[n]) for n, w in weights.items())


def test_a_part_that_is_left_out_is_noticed(tmp_path, monkeypatch):
    """A planted mistake: the moments, the averages or the arena are forgotten."""
    sections = settings(True, "plain", "ema = 0.9\n") | {"adapter": "rank = 48"}
    config = read_config(write_run(tmp_path, **sections))
    measured = measured_peak(config)
    said = wf.diffusion.estimate(config)
    assert said.peak == pytest.approx(measured, rel=TOLERANCE)
    parts = said.parts()
    for name in ("optimizer", "averages", "base", "values of programs in between"):
        without = said.peak - parts[name]
        assert without != pytest.approx(measured, rel=TOLERANCE), name


def test_the_batches_are_those_of_a_run(tmp_path):
    """Kinds, counts, dtypes and steps are what the loader of the run gives."""
    images = "resolutions = [16, 24]\nstep = 8\nshortest = 8\nlongest = 32\nupscale = true"
    sections = {**settings(True, "plain"), "images": images, "validation": "share = 0.3"}
    config = read_config(write_run(tmp_path, count=9, **sections))
    sizes = wf.diffusion.FluxConfig(
        in_channels=48, joint_attention_dim=32, pooled_projection_dim=32, num_layers=1
    )
    data = prepare_data(config)
    loader = build.make_loader(data.trained, config)
    kinds = find_kinds(config, data.encoders)
    found: dict[BatchKind, int] = {}
    maker = BatchMaker(kinds.channels, kinds.factor, 4, sizes, kinds.masks[0], "cpu")
    for batch in loader:
        n, _, height, width = batch["latents"].shape
        kind = BatchKind(n, width * kinds.factor, height * kinds.factor)
        found[kind] = found.get(kind, 0) + 1
        made = maker.make(kind)
        assert {k: (x.shape, x.dtype) for k, x in made.items()} == {
            k: (x.shape, x.dtype) for k, x in batch.items()
        }
    assert found == kinds.trained and kinds.batches == len(loader)
    assert len(kinds.samples[1]) == len(data.validation.samples)


def test_nothing_is_allocated_or_written(tmp_path):
    """A model of 12 billion parameters is planned in a small part of its memory."""
    kind = {"_class_name": "FluxTransformer2DModel", "num_layers": 1, "num_single_layers": 1}
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text(json.dumps(kind | {"guidance_embeds": True}))
    draw_shapes(tmp_path / "images", images=1, size=128)
    sections = {"encoders": 'vae = "vae"\ntokens = 512', "validation": "", "preview": ""}
    sections["images"] = "resolutions = [128]\nshortest = 64"
    sections["model"] = 'path = "model"'
    sections["train"] = 'steps = 1\ndevice = "cuda"'
    (tmp_path / "vae").mkdir()
    vae = {"latent_channels": 16, "scaling_factor": 0.3611, "block_out_channels": [1, 1, 1, 1]}
    (tmp_path / "vae/config.json").write_text(json.dumps(vae | {"_class_name": "AutoencoderKL"}))
    wf.io.save_safetensors(tmp_path / "vae/empty.safetensors", {})
    config = read_config(write_config(tmp_path, **sections))
    before = sorted(tmp_path.rglob("*"))
    with Counter() as counter:
        said = wf.diffusion.estimate(config)
    assert said.parts()["base"] > 1 << 30 and counter.peak < 200 << 20
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("size", ["1", "2", "4"])
def test_the_peak_on_a_gpu_is_what_a_run_takes(tmp_path, size):
    """Predicted beside PyTorch's allocator, on models with heads of 128."""
    import torch

    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    sizes = wf.diffusion.FluxConfig(
        in_channels=48,
        num_layers=int(size),
        num_single_layers=int(size),
        num_attention_heads=12,
        joint_attention_dim=256,
        pooled_projection_dim=64,
        guidance_embeds=True,
    )
    wf.diffusion.Flux(sizes, dtype="bfloat16").save(tmp_path / "model")
    draw_shapes(tmp_path / "images", images=2, size=128)
    sections = {
        "images": "resolutions = [128]\nstep = 16\nshortest = 64\nlongest = 256",
        "model": 'path = "model"',
        "encoders": "tokens = 512",
        "train": 'steps = 3\ndevice = "cuda"',
        **{"validation": "", "preview": ""},
    }
    config = read_config(write_config(tmp_path, **sections))
    said, measured = wf.diffusion.estimate(config), measured_peak_on_gpu(config)
    print(size, said.peak, measured, said.peak / measured - 1, said.parts())
    assert said.peak == pytest.approx(measured, rel=TOLERANCE)


def test_the_command_says_what_fits(tmp_path, capsys, monkeypatch):
    """A table, or JSON; where it does not fit, ways that were planned."""
    path = write_run(tmp_path, **settings(True, "plain"))
    assert main(["estimate", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["fits"] and found["peak"] == sum(found["parts"].values())
    assert found["seconds"] == pytest.approx(2 * found["seconds_per_step"]) and found["seconds"] > 0
    free = int(0.8 * found["peak"])
    monkeypatch.setattr(estimate, "free_bytes", lambda device: free)
    assert main(["estimate", str(path), "--no-time"]) == 0
    table = capsys.readouterr().out
    assert "does not fit" in table and "at the peak" in table
    said = wf.diffusion.estimate(path)
    assert said.fits is False and said.remedies
    budget = next(r for r in said.remedies if r.startswith("train.memory_budget_mb = "))
    config = read_config(path)
    limit = float(budget.rpartition("= ")[2])
    limited = replace(config, train=replace(config.train, memory_budget_mb=limit))
    assert wf.diffusion.estimate(limited).fits
    tight = replace(config, train=replace(config.train, memory_budget_mb=limit - 0.1))
    assert wf.diffusion.estimate(tight).refused


def test_eager_mode_on_a_gpu_is_refused(tmp_path):
    sections = settings(False, "plain", 'device = "cuda"\n')
    with pytest.raises(wf.errors.ConfigError, match="estimate them with compile = true"):
        wf.diffusion.estimate(write_run(tmp_path, **sections))


def budgeted(folder, budget, width, **sections):
    preview = f'prompts = ["a", "b"]\nwidth = {width}\nheight = {width}\nevery = 2\nsteps = 2'
    more = f"ema = 0.9\nmemory_budget_mb = {budget}\n"
    chosen = {**settings(True, "plain", more), "preview": preview, **sections}
    return write_config(folder, **chosen)


@pytest.mark.parametrize("width", [32, 192])
def test_a_budget_is_kept_with_previews_validation_and_saves(tmp_path, width):
    """A refusal names one budget; that is accepted, and the whole run keeps it."""
    sections = {"validation": "share = 0.3\nevery = 2\nlevels = 1"}
    write_run(tmp_path, "wide", count=6)
    config = read_config(budgeted(tmp_path, 1, width, **sections))
    with pytest.raises(wf.errors.BudgetExceeded) as e:
        prepare_data(config)
    named = {float(n) for n in re.findall(r"\d+\.\d+", e.value.message.partition("refused")[2])}
    assert len(named) == 1 and ("previews take" in e.value.message or width < 192)
    (least,) = named
    said = wf.diffusion.estimate(config)
    assert f"give {least:g}" in said.refused and said.fits is False
    assert said.smallest_budget is not None and said.smallest_budget <= least * MIB
    config = read_config(budgeted(tmp_path, least, width, **sections))
    said = wf.diffusion.estimate(config)
    assert said.refused == "" and said.peak <= least * MIB and said.budget == int(least * MIB)
    data = prepare_data(config)
    gc.collect()
    with Counter() as counter:
        train_on(config, data)
    assert counter.peak <= (least + 0.05) * MIB
    assert counter.peak == pytest.approx(said.peak, rel=TOLERANCE)


def test_the_peak_with_previews(tmp_path):
    """Without a budget, programs keep their memory while previews are drawn."""
    preview = 'prompts = ["a", "b"]\nwidth = 128\nheight = 128\nevery = 1\nsteps = 2'
    sections = {**settings(True, "plain"), "preview": preview}
    config = read_config(write_run(tmp_path, "wide", count=4, **sections))
    said, data = wf.diffusion.estimate(config), prepare_data(config)
    gc.collect()
    with Counter() as counter:
        train_on(config, data)
    assert "previews" in said.parts()
    assert counter.peak == pytest.approx(said.peak, rel=TOLERANCE)


@pytest.mark.parametrize(("steps", "every", "keep"), [(2, 250, 3), (4, 1, 2), (5, 2, 9)])
def test_the_disk_is_that_of_the_checkpoints_there_are(tmp_path, steps, every, keep):
    lines = f'steps = {steps}\nbatch = 2\nprecision = "float32"\ncompile = false'
    output = f'directory = "run"\nsave_every = {every}\nkeep = {keep}'
    path = write_run(tmp_path, train=lines, output=output)
    said = wf.diffusion.estimate(path).disk
    wf.diffusion.train(path)
    adapters = [p.stat().st_size for p in (tmp_path / "run" / "adapters").iterdir()]
    saves = len(list((tmp_path / "run").glob("step-*")))
    one = said["checkpoints"] // min(keep + 1, -(-steps // every))
    assert saves <= said["checkpoints"] // one <= saves + 1
    whole = said["adapter files"] / sum(adapters)
    assert 0.8 < whole < (len(adapters) + 1) / len(adapters) + 0.2
