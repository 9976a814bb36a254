"""Files of transformers: both layouts, diffusers' own files and converter, and bad ones."""

import json
import random
import shutil
import tracemalloc

import numpy as np
import pytest
import torch
from diffusers import FluxTransformer2DModel
from diffusers.loaders.single_file_utils import convert_flux_transformer_checkpoint_to_diffusers
from safetensors.torch import save_file

import weft as wf
from weft.diffusion import layout as layouts
from weft.diffusion.layout import stored_rows, stored_shapes, to_original
from weft.diffusion.making import shapes
from weft.diffusion.weights import infer_config, model_sizes

from .beside_diffusers import random_config, random_inputs, replaced, theirs

Flux = wf.diffusion.Flux
SIXTEEN = {"attention_head_dim": 16, "axes_dims_rope": (4, 4, 8), "patch_size": 1}
SIXTEEN |= {"num_layers": 1, "num_single_layers": 1}


def write_config(folder, config) -> None:
    (folder / "config.json").write_text(json.dumps(config.to_dict()))


def state(model) -> dict[str, np.ndarray]:
    return {n: x.to("cpu").to("float32").numpy() for n, x in model.state_dict().items()}


def assert_same(model, reference) -> None:
    expected = {n: x.float().numpy() for n, x in reference.state_dict().items()}
    found = state(model)
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[n], expected[n]) for n in expected)


@pytest.mark.parametrize("seed", range(6))
def test_a_folder_of_diffusers_whole_or_in_shards(tmp_path, seed):
    config = random_config(seed)
    reference = theirs(config, seed)
    reference.save_pretrained(tmp_path / "a", max_shard_size="10KB" if seed % 2 else "10GB")
    device, folder = ("cpu", "torch")[seed % 2], tmp_path / "a"
    if seed % 3 == 0:  # as a pipeline has it
        (tmp_path / "pipeline").mkdir()
        folder = (tmp_path / "a").rename(tmp_path / "pipeline" / "transformer").parent
    before = wf.random.get_state()
    model = Flux.load(folder, device=device)
    assert wf.random.get_state() == before
    assert (
        model.config == config and model.proj_out.weight.device == wf.ones(1, device=device).device
    )
    assert_same(model, reference)


@pytest.mark.parametrize("seed", range(4))
def test_diffusers_loads_what_we_save(tmp_path, seed):
    config = random_config(seed)
    model = Flux(config, dtype=("float32", "bfloat16")[seed % 2])
    model.save(tmp_path / "a", shard_bytes=(10**10, 20_000)[seed // 2])
    dtype = (torch.float32, torch.bfloat16)[seed % 2]
    reference, told = FluxTransformer2DModel.from_pretrained(
        tmp_path / "a", torch_dtype=dtype, output_loading_info=True
    )
    assert not told["missing_keys"] and not told["unexpected_keys"]
    assert_same(model, reference)
    with pytest.raises(wf.errors.ArgumentError, match="already"):
        model.save(tmp_path / "a")


PREFIXES = ["", "model.diffusion_model.", "diffusion_model.", "transformer."]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("layout", ["diffusers", "original"])
@pytest.mark.parametrize("guided", [False, True])
def test_one_file_in_either_layout(tmp_path, layout, prefix, guided):
    config = random_config(len(prefix), **SIXTEEN, guidance_embeds=guided)
    reference = theirs(config)
    given = {n: wf.asarray(x) for n, x in reference.state_dict().items()}
    stored = to_original(given) if layout == "original" else given
    stored = {f"{prefix}{n}": x for n, x in stored.items()}
    if prefix == PREFIXES[1]:
        stored["vae.decoder.conv_in.bias"] = wf.ones(3)
    wf.io.save_safetensors(tmp_path / "a.safetensors", {n: x.to("cpu") for n, x in stored.items()})
    model = Flux.load(tmp_path / "a.safetensors", config=config)
    assert_same(model, reference)
    inputs = {n: torch.tensor(x) for n, x in random_inputs(config, 1).items()}
    with torch.no_grad():
        expected = reference(**inputs, return_dict=False)[0].numpy()
    found = model(**{n: wf.asarray(x.numpy()) for n, x in inputs.items()}).detach().numpy()
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


FAULTS = {
    "halves": ("SWAPPED", "none"),
    "order of keys and values": (
        "SINGLE",
        layouts.SINGLE | {"linear1": ("attn.to_q", "attn.to_v", "attn.to_k", "proj_mlp")},
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_of_the_layout_is_found(fault):
    name, value = FAULTS[fault]
    places = tuple(
        (a, b, value if c is getattr(layouts, name) else c) for a, b, c in layouts._PLACES
    )
    with replaced(layouts, name, value), replaced(layouts, "_PLACES", places):
        with pytest.raises(AssertionError):
            test_the_original_layout_is_what_the_converter_of_diffusers_takes(True)


@pytest.mark.parametrize("guided", [False, True])
def test_the_original_layout_is_what_the_converter_of_diffusers_takes(guided):
    config = wf.diffusion.FluxConfig(num_layers=2, num_single_layers=2, guidance_embeds=guided)
    # The converter splits rows of the full width only, and looks at no column.
    rows = {n: (s[0], *(1,) * (len(s) - 1)) for n, s in shapes(Flux(config, empty=True)).items()}
    weights = {n: wf.randn(s) for n, s in rows.items()}
    stored = to_original(weights)
    assert {n: x.shape for n, x in stored.items()} == stored_shapes(rows, "original")
    given = {n: torch.tensor(x.numpy()) for n, x in stored.items()}
    converted = convert_flux_transformer_checkpoint_to_diffusers(given)
    assert converted.keys() == weights.keys() and not given
    assert all(np.array_equal(converted[n].numpy(), weights[n].numpy()) for n in weights)
    # And what is read: the rows of each weight, one after the other.
    for name, parts in stored_rows(rows, "original").items():
        found = np.concatenate([stored[p.source].numpy()[p.begin : p.end] for p in parts])
        assert np.array_equal(found, converted[name].numpy())


def test_the_original_layout_is_saved_and_loaded(tmp_path):
    config = random_config(5, **SIXTEEN)
    model = Flux(config)
    model.save(tmp_path / "a.safetensors", layout="original")
    write_config(tmp_path, config)
    names = wf.io.read_header(tmp_path / "a.safetensors").entries
    assert "single_blocks.0.linear1.weight" in names and "final_layer.linear.bias" in names
    found, expected = state(Flux.load(tmp_path / "a.safetensors")), state(model)
    assert all(np.array_equal(found[n], expected[n]) for n in expected)


def test_weights_are_cast_and_a_mixture_is_not_guessed(tmp_path):
    config = random_config(2, **SIXTEEN)
    reference = theirs(config).to(torch.bfloat16)
    mixed = reference.state_dict() | {"x_embedder.bias": torch.zeros(config.width)}
    save_file(reference.state_dict(), tmp_path / "a")
    save_file(mixed, tmp_path / "b")
    write_config(tmp_path, config)
    assert Flux.load(tmp_path / "a").x_embedder.weight.dtype == wf.bfloat16
    wide = Flux.load(tmp_path / "a", dtype="float32")
    assert_same(wide, reference)
    assert {p.dtype for p in wide.parameters()} == {wf.float32}
    with pytest.raises(wf.errors.ArgumentError, match="bfloat16, float32"):
        Flux.load(tmp_path / "b")
    assert {p.dtype for p in Flux.load(tmp_path / "b", "bfloat16").parameters()} == {wf.bfloat16}


@pytest.mark.parametrize("quantise", [None, "int8"])
@pytest.mark.parametrize("layout", ["diffusers", "original"])
def test_weights_are_read_one_at_a_time(tmp_path, layout, quantise):
    config = random_config(1, **SIXTEEN | {"num_attention_heads": 8, "num_single_layers": 6})
    wf.random.seed(0)
    Flux(config).save(tmp_path / "a", layout=layout)
    if layout == "original":
        write_config(tmp_path, config)
    model = Flux.load(tmp_path / "a", quantise=quantise)  # what Python loads is loaded
    largest = 4 * 8 * 16 * 5 * 8 * 16
    kept = sum(x.size * x.dtype.itemsize for x in model.state_dict().values())
    del model
    tracemalloc.start()
    model = Flux.load(tmp_path / "a", quantise=quantise)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert model.config == config
    assert kept > (20 if quantise is None else 5) * largest
    # Quantising takes a weight and three arrays of its size; the rest are Python's objects.
    assert peak <= kept + (1.5 if quantise is None else 4) * largest + 600_000


FORMS = ("folder", "pipeline", "shards", "file", "original", "bare file", "bare original")


def write_form(form: str, config, folder):
    """A random model under a path of this form; what is loaded must be it, or refused."""
    model = Flux(config)
    for p in model.parameters():
        wf.nn.init.normal_(p, 0.0, 0.3)
    path = folder / ("pipeline/transformer" if form == "pipeline" else "a")
    if "original" in form:
        path.mkdir(parents=True)
        model.save(path / "m.safetensors", layout="original")
        write_config(path, config)
    else:
        model.save(path, shard_bytes=2000 if form == "shards" else 10**10)
    if form.startswith("bare"):
        (path / "config.json").unlink()
    single = "file" in form or "original" in form
    path = next(path.glob("*.safetensors")) if single else path
    return model, path.parent if form == "pipeline" else path


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_path_gives_the_model_that_was_saved(tmp_path, form, seed):
    """Heads of 16 and 128 with any axes, too: a file's shapes do not tell them."""
    axes = ({}, {"axes_dims_rope": (4, 6, 6)}, {"axes_dims_rope": (32, 48, 48)})[seed]
    axes |= {"attention_head_dim": sum(axes["axes_dims_rope"])} if axes else {}
    config = random_config(seed, num_layers=1, num_single_layers=1, patch_size=1, **axes)
    model, path = write_form(form, config, tmp_path)
    if form.startswith("bare"):
        for read in (Flux.load, model_sizes):
            with pytest.raises(wf.errors.ArgumentError, match=r"config\.json beside the file"):
                read(path)
        found = Flux.load(path, config=config)
    else:
        assert model_sizes(path) == config
        found = Flux.load(path)
    inputs = {n: wf.asarray(x) for n, x in random_inputs(config, seed).items()}
    assert found.config == config
    assert np.array_equal(found(**inputs).detach().numpy(), model(**inputs).detach().numpy())


@pytest.mark.parametrize("layout", ["diffusers", "original"])
@pytest.mark.parametrize(
    "fields",
    [{}, {"guidance_embeds": True}, {"in_channels": 384, "out_channels": 64}, {"num_layers": 8}],
)
def test_published_models_need_no_config(layout, fields):
    config = wf.diffusion.FluxConfig(**fields)
    found = stored_shapes(shapes(Flux(config, empty=True)), layout)
    assert infer_config(found, layout, "x") == config


def test_a_config_beside_a_file_is_that_of_the_file(tmp_path):
    config = random_config(1, **SIXTEEN)
    Flux(config).save(tmp_path / "m")
    place, file = tmp_path / "m/config.json", next((tmp_path / "m").glob("*.safetensors"))
    edit(place, lambda x: x.update(num_attention_heads=config.num_attention_heads + 1))
    with pytest.raises(wf.errors.StateMismatch, match="wrong shape"):
        Flux.load(file)
    edit(place, lambda x: x.update(heads=1))
    with pytest.raises(wf.errors.ArgumentError, match=r"config\.json: .*no field 'heads'"):
        Flux.load(file)
    for values in ({"_class_name": "AutoencoderKL"}, {"model_type": "t5", "num_layers": 4}):
        place.write_text(json.dumps(values))
        with pytest.raises(wf.errors.ArgumentError, match=r"config\.json beside the file"):
            Flux.load(file)
    with pytest.raises(wf.errors.CheckpointError, match="one of 3 shards; give their folder"):
        Flux.load(tmp_path / "m-00001-of-00003.safetensors")


@pytest.mark.parametrize("quantise", [None, "int8"])
@pytest.mark.parametrize(
    ("dtype", "value"), [("bfloat16", "nan"), ("float32", "-inf"), (None, 1e6)]
)
def test_weights_that_are_not_finite_are_named(tmp_path, quantise, dtype, value):
    """One that is too large for float16 as well; nothing is kept of them."""
    config = random_config(1, **SIXTEEN)
    model = Flux(config, dtype=dtype)
    names = ["x_embedder.bias", "single_transformer_blocks.0.attn.to_k.weight"]
    for name in names:
        where, _, last = name.rpartition(".")
        p = getattr(model.get_submodule(where), last)
        bad = wf.Parameter(wf.full(p.shape, float(value), dtype=p.dtype))
        setattr(model.get_submodule(where), last, bad)
    model.save(tmp_path / "m")
    cache = {} if quantise is None else {"cache_dir": tmp_path / "kept"}
    with pytest.raises(wf.errors.CheckpointError, match="NaN or infinite") as raised:
        Flux.load(tmp_path / "m", dtype or "float16", quantise=quantise, **cache)
    assert all(name in str(raised.value) for name in names)
    assert "to_q" not in str(raised.value) and not list(tmp_path.glob("kept/*.safetensors"))


# Bad files


@pytest.fixture
def folder(tmp_path):
    config = random_config(1, **SIXTEEN)
    Flux(config).save(tmp_path / "m", shard_bytes=20_000)
    return tmp_path / "m"


def whole(folder):
    """The same model in one file, of which weights can be changed."""
    found = {}
    shutil.copy(folder / "config.json", folder.parent)
    for shard in sorted(folder.glob("*.safetensors")):
        found |= wf.io.load_safetensors(shard)
    return found


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("layout", ["diffusers", "original"])
def test_all_weights_that_do_not_fit_are_in_one_error(folder, seed, layout):
    r = random.Random(seed)
    weights = whole(folder)
    weights = to_original(weights) if layout == "original" else weights
    # Those whose shapes tell the sizes stay.
    names = sorted(n for n in weights if "block" in n and "norm" not in n)
    lost, reshaped = (set(r.sample(names, r.randint(1, 5))) for _ in range(2))
    reshaped -= lost
    extra = {f"more.{k}.weight": wf.ones((k + 1, 2)) for k in range(r.randint(0, 3))}
    bad = {n: w[:, None] if n in reshaped else w for n, w in weights.items() if n not in lost}
    wf.io.save_safetensors(folder.parent / "bad", bad | extra)
    with pytest.raises(wf.errors.StateMismatch) as caught:
        Flux.load(folder.parent / "bad")
    said = str(caught.value).splitlines()
    for word, expected in (("missing", lost), ("wrong shape", reshaped), ("unexpected", extra)):
        lines = [line for line in said if line.strip().startswith(f"{word}: ")]
        assert {line.split(": ")[1].split(" ")[0] for line in lines} == set(expected)
        assert all("(" in line for line in lines)


def test_a_file_cut_anywhere_is_refused(folder):
    wf.io.save_safetensors(folder.parent / "a", whole(folder))
    data = (folder.parent / "a").read_bytes()
    for at in [*range(0, 20), *random.Random(0).sample(range(len(data)), 20), len(data) - 1]:
        (folder.parent / "b").write_bytes(data[:at])
        with pytest.raises(wf.errors.CheckpointError):
            Flux.load(folder.parent / "b")


def edit(path, change):
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))


INDEX = "diffusion_pytorch_model.safetensors.index.json"
TRICKS = ["../m/x", "/etc/passwd", "..", ".", "", "a/b", "a\\b", 3, None, "a\0b"]


@pytest.mark.parametrize("name", TRICKS)
def test_shards_stay_in_their_folder(folder, name):
    edit(folder / INDEX, lambda x: x["weight_map"].update({"proj_out.bias": name}))
    with pytest.raises(wf.errors.CheckpointError, match="in the same folder"):
        Flux.load(folder)


def test_what_is_wrong_with_a_folder_is_said(folder):
    def says(words, error=wf.errors.CheckpointError):
        with pytest.raises(error, match=words):
            Flux.load(folder)

    kept = (folder / INDEX).read_text()
    (folder / INDEX).write_text("[]")
    says("expected a JSON object")
    (folder / INDEX).write_text('{"weight_map": {}}')
    says("weight_map")
    (folder / INDEX).write_text(kept)
    shard = sorted(folder.glob("*.safetensors"))[0]
    shard.rename(folder / "hidden")
    says("cannot be read")
    (folder / "hidden").rename(shard)
    shutil.copy(shard, folder / "copy")
    edit(folder / INDEX, lambda x: x["weight_map"].update({"more": "copy"}))
    says("a second weight")
    (folder / INDEX).write_text(kept)
    edit(folder / "config.json", lambda x: x.update(num_layers=10**12))
    says("blocks", wf.errors.StateMismatch)
    edit(folder / "config.json", lambda x: x.update(num_layers=1, num_attention_heads=10**12))
    says("wrong shape", wf.errors.StateMismatch)
    edit(folder / "config.json", lambda x: x.update(attention_heads=3))
    says("did you mean 'num_attention_heads'", wf.errors.ArgumentError)
    (folder / "config.json").unlink()
    says("config.json")


def test_what_is_no_transformer_is_refused(tmp_path):
    wf.io.save_safetensors(tmp_path / "a", {"down_blocks.0.weight": wf.ones(2)})
    with pytest.raises(wf.errors.StateMismatch, match="down_blocks"):
        Flux.load(tmp_path / "a")
    wf.io.save_safetensors(tmp_path / "b", {"img_in.weight": wf.ones(2)})
    with pytest.raises(wf.errors.StateMismatch, match="pass config="):
        Flux.load(tmp_path / "b")
    with pytest.raises(wf.errors.CheckpointError, match="cannot be read"):
        Flux.load(tmp_path / "absent")
    with pytest.raises(wf.errors.ArgumentError, match="int8"):
        Flux.load(tmp_path / "a", quantise="int4")
    with pytest.raises(wf.errors.ArgumentError, match="quantise="):
        Flux.load(tmp_path / "a", cache_dir=tmp_path)


def test_a_header_that_lies_is_refused_before_memory_is_taken(tmp_path):
    head = {"img_in.weight": {"dtype": "F32", "shape": [2**40, 2**20], "data_offsets": [0, 2**62]}}
    text = json.dumps(head).encode()
    (tmp_path / "a").write_bytes(len(text).to_bytes(8, "little") + text)
    with pytest.raises(wf.errors.CheckpointError, match="bytes"):
        Flux.load(tmp_path / "a")
