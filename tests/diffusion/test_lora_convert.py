"""Adapter files of models of any size, from each layout into the other."""

import random
import warnings

import numpy as np
import pytest
import torch

import weft as wf
from weft.diffusion.lora_convert import convert_adapter
from weft.diffusion.lora_sizes import sizes_of
from weft.nn.lora.inject import adapted_layers, linear_layers
from weft.nn.lora.reading import read_adapter

from .beside_diffusers import ours, random_config, random_inputs, theirs

with warnings.catch_warnings():  # of libraries that it loads
    warnings.simplefilter("ignore")
    import peft  # noqa: F401

pytestmark = [
    pytest.mark.filterwarnings("ignore:(?s).*layout 'kohya'"),  # diffusers reads 3072 only
    pytest.mark.filterwarnings("ignore:While injecting the PEFT adapters:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:The following .* keys did not match:RuntimeWarning"),
]


def drawn(seed: int, kind: str = "lora", **fixed):
    """Sizes, and a model with adapters of several ranks on any layers."""
    draw = random.Random(seed)
    config = random_config(seed, patch_size=1, **fixed)
    wf.random.seed(seed)
    model = wf.diffusion.Flux(config)
    names = [n for n, _ in linear_layers(model)]
    names = draw.sample(names, draw.randint(1, len(names)))
    if kind == "dora":  # all parts of a fused layer, or none of them
        names = [n for n in names if not n.endswith(("_q", "_k", "_v", "_proj", "proj_mlp"))]
        names = names or ["norm_out.linear"]
    ranks = {n: {"rank": draw.randint(1, 4), "alpha": draw.choice([1.0, 3.0])} for n in names}
    wf.nn.add_lora(model, ranks, kind=kind)
    for _, p in model.lora_parameters():
        wf.nn.init.normal_(p, std=0.3)
    return config, model


def updates(config, path) -> dict[str, np.ndarray]:
    """The update of each layer, by a model of these sizes that loads the file."""
    model = wf.diffusion.Flux(config)
    wf.nn.load_lora(model, path)
    return updates_of(model)


def updates_of(model) -> dict[str, np.ndarray]:
    found = {}
    for name, m in adapted_layers(model).items():
        found[name] = m.scaling * m.lora_B.detach().numpy() @ m.lora_A.detach().numpy()
        if m.kind == "dora":
            found[f"{name} magnitudes"] = m.lora_magnitude_vector.detach().numpy()
    return found


def same(got: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> None:
    assert got.keys() == right.keys()
    for name, x in right.items():
        np.testing.assert_allclose(got[name], x, atol=1e-5 * np.abs(x).max(), err_msg=name)


@pytest.mark.parametrize("kind", ["lora", "dora"])
@pytest.mark.parametrize("seed", range(8))
def test_there_and_back(seed, kind, tmp_path):
    config, model = drawn(seed, kind)
    right = updates_of(model)
    for first, second in (("peft", "kohya"), ("kohya", "peft")):
        files = [tmp_path / f"{first}-{k}.safetensors" for k in range(3)]
        wf.nn.save_lora(model, files[0], first)
        convert_adapter(files[0], files[1], second)
        convert_adapter(files[1], files[2], first)
        for file in files:
            same(updates(config, file), right)
        stored = [wf.io.load_safetensors(files[k]) for k in (0, 2)]
        assert list(stored[0]) == list(stored[1])
        if first == "peft":  # which has one rank for layers whose names end alike
            assert all(stored[1][n].shape == x.shape for n, x in stored[0].items())


@pytest.mark.parametrize("seed", range(4))
def test_diffusers_loads_what_was_converted(seed, tmp_path):
    """From kohya's layout, which diffusers reads at one width only, to PEFT's."""
    config, model = drawn(seed, num_layers=2, num_single_layers=1)
    files = [tmp_path / "a.safetensors", tmp_path / "b.safetensors"]
    wf.nn.save_lora(model, files[0], "kohya")
    convert_adapter(*files, "peft")
    reference = theirs(config, seed)
    mine, inputs = ours(reference, config), random_inputs(config, seed)
    given = {n: torch.tensor(x) for n, x in inputs.items()}
    with torch.no_grad():
        plain = reference(**given, return_dict=False)[0].numpy()
        reference.load_lora_adapter(str(tmp_path), weight_name="b.safetensors")
        right = reference(**given, return_dict=False)[0].numpy()
    wf.nn.load_lora(mine, files[0])
    with wf.no_grad():
        found = mine(**{n: wf.asarray(x) for n, x in inputs.items()}).numpy()
    assert np.abs(right - plain).max() > 1e-3 * np.abs(plain).max()
    np.testing.assert_allclose(found, right, atol=1e-4 * np.abs(right).max())


@pytest.mark.parametrize("layout", ["peft", "kohya"])
@pytest.mark.parametrize("seed", range(2))
def test_sizes_are_those_of_the_model(seed, layout, tmp_path):
    """Each layer alone tells the width; all of them tell everything that a file can."""
    config = random_config(seed, patch_size=1, num_layers=2, num_single_layers=2)
    names = [n for n, _ in linear_layers(wf.diffusion.Flux(config, empty=True))]
    for chosen in [[n] for n in names] + [names]:
        model = wf.diffusion.Flux(config)
        wf.nn.add_lora(model, chosen, rank=1)
        for _, p in model.lora_parameters():
            wf.nn.init.ones_(p)
        wf.nn.save_lora(model, tmp_path / "a.safetensors", layout)
        found = sizes_of(read_adapter(tmp_path / "a.safetensors"))
        assert found.width == config.width
        ends = [int(n.split(".")[1]) + 1 for n in chosen if n.startswith("single_")]
        assert found.num_single_layers == max(ends, default=0)
    for name in ("num_layers", "in_channels", "joint_attention_dim", "pooled_projection_dim"):
        assert getattr(found, name) == getattr(config, name)
    assert found.result_width == config.result_width


def pair(module: str, rows: int, columns: int) -> dict:
    return {
        f"{module}.lora_A.weight": wf.ones((1, columns)),
        f"{module}.lora_B.weight": wf.ones((rows, 1)),
    }


Q, K = (f"transformer.transformer_blocks.0.attn.to_{k}" for k in "qk")
REFUSED = [
    (
        {**pair(Q, 8, 8), **pair(K, 16, 16)},
        r"would be 8 \(.*to_q\), 16 \(.*to_k\): layers of several",
    ),
    (pair("transformer.blocks.0.attn1.to_q", 8, 8), "no layer of a Flux transformer in it"),
    (pair(Q, 7, 7), "width 7, expected an even number"),
    (pair(Q.replace(".0.", ".100000000."), 8, 8), "a block beyond the 1000"),
    (
        pair("transformer.single_transformer_blocks.0.proj_out", 8, 32),
        "32 inputs, expected 5 widths",
    ),
    (pair(Q, 16, 8), r"an update of shape \(16, 8\), expected \(8, 8\)"),
    ({**pair(Q, 8, 8), **pair("text.layers.0.mlp.fc1", 4, 4)}, "unexpected modules: text.lay"),
    (pair("lora_te1_text_model_encoder_layers_0_mlp_fc1", 4, 4), "no layer of a Flux"),
    (
        {**pair(Q, 8, 8), f"{K}.lora_A.weight": wf.full((1, 8), float("nan"))}
        | {f"{K}.lora_B.weight": wf.ones((8, 1))},
        "an update that is NaN or infinite: transformer_blocks.*to_k",
    ),
    (pair("lora_unet_single_blocks_0_linear1", 48, 8), r"\(48, 8\), expected \(56, 8\)"),
]


@pytest.mark.parametrize(("tensors", "message"), REFUSED)
def test_what_is_ambiguous_is_refused(tensors, message, tmp_path):
    wf.io.save_safetensors(tmp_path / "a.safetensors", tensors)
    with pytest.raises(wf.errors.StateMismatch, match=message):
        convert_adapter(tmp_path / "a.safetensors", tmp_path / "b.safetensors", "kohya")
    assert not (tmp_path / "b.safetensors").exists()


TEXT = (
    "lora_te1_text_model_encoder_layers_0_mlp_fc1",
    "lora_te3_encoder_block_0_layer_0_SelfAttention_q",
    "lora_te_text_model_encoder_layers_1_self_attn_q_proj",
    "text_encoder.text_model.encoder.layers.0.mlp.fc1",
    "text_encoder_2.encoder.block.0.layer.0.SelfAttention.q",
)


@pytest.mark.parametrize("seed", range(6))
def test_layers_of_text_encoders_are_left_out_with_a_warning(tmp_path, seed):
    """A file of either layout with some of them is the file without them, and says which."""
    draw = random.Random(seed)
    plain = pair(("lora_unet_double_blocks_0_img_attn_proj", Q)[seed % 2], 8, 8)
    text = draw.sample(TEXT, draw.randint(1, 3))
    whole = {**plain, **{n: x for name in text for n, x in pair(name, 4, 6).items()}}
    paths = [tmp_path / f"{name}.safetensors" for name in ("plain", "whole", "a", "b")]
    for path, tensors in zip(paths, (plain, whole), strict=False):
        wf.io.save_safetensors(path, tensors)
    convert_adapter(paths[0], paths[2], "peft")
    said = rf"(?s)convert: .*{len(text)} layers of text encoders are not written.*" + text[0]
    with pytest.warns(wf.errors.AdapterWarning, match=said):
        convert_adapter(paths[1], paths[3], "peft")
    assert paths[2].read_bytes() == paths[3].read_bytes()
    model = wf.diffusion.Flux(sizes_of(read_adapter(paths[0])))
    with pytest.warns(wf.errors.AdapterWarning, match="text encoders are not loaded"):
        assert len(wf.nn.load_lora(model, paths[1])) == 1
    assert set(text) <= set(wf.nn.lora_summary(paths[1]).modules)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    wf.io.save_safetensors(tmp_path / "a.safetensors", pair(Q, 8, 8))
    with pytest.raises(wf.errors.CheckpointNotFound, match=r"no folder .*nodir; create it first"):
        convert_adapter(tmp_path / "a.safetensors", tmp_path / "nodir/b.safetensors", "kohya")
