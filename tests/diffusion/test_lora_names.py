"""Adapters of Flux in files: diffusers' own loaders and converters read ours, and we theirs."""

import random
import warnings

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import weft as wf
from weft.diffusion.lora_names import FluxAdapterNames
from weft.diffusion.training.config import TARGETS

with warnings.catch_warnings():  # of libraries that they load
    warnings.simplefilter("ignore")
    import diffusers
    import peft
    from diffusers.loaders import FluxLoraLoaderMixin as Loader

nn = wf.nn
diffusers.utils.logging.set_verbosity_error()
pytestmark = [
    # PEFT's names also mean modules that end with them; the file says which.
    pytest.mark.filterwarnings("ignore:While injecting the PEFT adapters:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:The following .* keys did not match:RuntimeWarning"),
]
NARROW = pytest.mark.filterwarnings("ignore:(?s).*layout 'kohya'")  # diffusers reads 3072 only
IN_BLOCK = [
    *(f"transformer_blocks.0.attn.{n}" for n in "to_q to_k to_v add_q_proj add_k_proj".split()),
    *(f"transformer_blocks.0.{n}" for n in "attn.add_v_proj attn.to_out.0 ff.net.0.proj".split()),
    *(f"single_transformer_blocks.0.{n}" for n in "attn.to_q attn.to_k proj_mlp proj_out".split()),
]
STEM = ["x_embedder", "norm_out.linear", "proj_out", "time_text_embed.guidance_embedder.linear_1"]


def tiny():
    torch.manual_seed(0)
    made = diffusers.FluxTransformer2DModel(
        patch_size=1, in_channels=4, num_layers=1, num_single_layers=2, attention_head_dim=16,
        num_attention_heads=2, joint_attention_dim=32, pooled_projection_dim=32,
        axes_dims_rope=[4, 4, 8], guidance_embeds=True,
    )  # fmt: skip
    return made.requires_grad_(False)


class Tree(nn.Module):
    """Layers under the names of a Flux model."""

    def __init__(self, layers):
        super().__init__()
        for name, layer in layers.items():
            *path, last = name.split(".")
            here = self
            for part in path:
                if part not in here._modules:
                    here.add_module(part, nn.Module())
                here = here._modules[part]
            here.add_module(last, layer)

    def adapter_names(self):
        return FluxAdapterNames.of(self)


def linears(theirs):
    return {n: m for n, m in theirs.named_modules() if isinstance(m, torch.nn.Linear)}


def ours(theirs):
    layers = {}
    for name, m in linears(theirs).items():
        layers[name] = nn.Linear(m.in_features, m.out_features, m.bias is not None)
        layers[name].set_weights(m.weight.detach().numpy())
    return Tree(layers)


def stir(net):
    for name, p in net.lora_parameters():
        if "magnitude" in name:
            with wf.no_grad():
                p *= wf.tensor(np.linspace(0.7, 1.4, p.shape[0]), dtype=p.dtype)
        else:
            nn.init.normal_(p, std=0.2)


def adapted(seed, kind="lora", mixed=False, names=None):
    draw = random.Random(seed)
    wf.random.seed(seed)
    net = ours(tiny())
    names = names or draw.sample(IN_BLOCK + STEM, draw.randint(1, 9))
    fixed = {"rank": draw.choice([2, 4]), "alpha": draw.choice([1.0, 8.0])}
    drawn = {n: {"rank": draw.choice([1, 2, 3]), "alpha": draw.choice([1.0, 5.0])} for n in names}
    nn.add_lora(net, drawn if mixed else dict.fromkeys(names, fixed), kind=kind)
    stir(net)
    return net


def updated(net):
    return {n: m.effective_weight().numpy() for n, m in nn.lora.adapted_layers(net).items()}


def merged(theirs):
    """The weights of a model of diffusers with the updates of PEFT in them."""
    with torch.no_grad():
        for m in theirs.modules():
            if isinstance(m, peft.tuners.tuners_utils.BaseTunerLayer):
                m.merge()
    found = {n: m for n, m in theirs.named_modules() if hasattr(m, "base_layer")}
    return {n: m.base_layer.weight.detach().numpy() for n, m in found.items()}


def same(got, want):
    assert got.keys() == want.keys()
    for n, x in want.items():
        np.testing.assert_allclose(got[n], x, rtol=1e-4, atol=2e-6, err_msg=n)


def into_diffusers(theirs, path, way):
    """Load a file as `FluxPipeline.load_lora_weights` does, or directly into the transformer."""
    if way == "direct":
        theirs.load_lora_adapter(str(path.parent), weight_name=path.name)
        return
    given = str(path.parent), dict(weight_name=path.name, return_alphas=True)
    state, alphas, meta = Loader.lora_state_dict(given[0], **given[1], return_lora_metadata=True)
    Loader.load_lora_into_transformer(state, alphas, theirs, metadata=meta)


def call(net):
    draw = torch.Generator().manual_seed(1)
    r = lambda *shape: torch.randn(*shape, generator=draw)  # noqa: E731
    return net(
        hidden_states=r(2, 16, 4), encoder_hidden_states=r(2, 6, 32), pooled_projections=r(2, 32),
        timestep=torch.tensor([0.3, 0.8]), img_ids=torch.zeros(16, 3), txt_ids=torch.zeros(6, 3),
        guidance=torch.ones(2), return_dict=False,
    )[0]  # fmt: skip


@pytest.mark.parametrize("way", ["pipeline", "direct"])
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("kind", ["lora", "dora"])
@pytest.mark.parametrize("seed", range(4))
def test_diffusers_reads_our_file(seed, kind, mixed, way, tmp_path):
    mine = adapted(seed, kind, mixed)
    path = tmp_path / "a.safetensors"
    nn.save_lora(mine, path)
    theirs, plain = tiny(), tiny()
    into_diffusers(theirs, path, way)
    with torch.no_grad():
        for n, w in updated(mine).items():
            linears(plain)[n].weight.copy_(torch.tensor(w))
        np.testing.assert_allclose(call(theirs), call(plain), rtol=1e-3, atol=1e-4)
    same(merged(theirs), updated(mine))


@pytest.mark.parametrize("seed", range(6))
def test_ranks_of_names_that_end_alike_do_not_mix(seed, tmp_path):
    """PEFT would take the alpha of `proj_out` for those of the blocks."""
    draw = random.Random(seed)
    names = [
        "proj_out",
        *(f"single_transformer_blocks.{i}.proj_out" for i in range(2)),
        IN_BLOCK[0],
    ]
    mine = ours(tiny())
    nn.add_lora(mine, {n: {"rank": draw.choice([1, 2, 4])} for n in names})
    stir(mine)
    path = tmp_path / "a.safetensors"
    nn.save_lora(mine, path)
    theirs = tiny()
    into_diffusers(theirs, path, "pipeline")
    same(merged(theirs), updated(mine))


@pytest.mark.parametrize("names", [IN_BLOCK[:4], list(TARGETS)], ids=["some", "all"])
def test_diffusers_reads_our_lokr(tmp_path, names):
    """Its transformer does, in the layout 'peft'; its pipelines take no LoKr, nor kohya's names."""
    mine = ours(tiny())
    nn.add_lora(mine, names, kind="lokr", rank=1, alpha=3.0)
    stir(mine)
    path = tmp_path / "a.safetensors"
    nn.save_lora(mine, path)
    theirs = tiny()
    into_diffusers(theirs, path, "direct")
    same(merged(theirs), updated(mine))
    assert not any("lora" in name for name in load_file(path))  # what pipelines look for
    with pytest.warns(wf.errors.AdapterWarning, match=r"layout='peft' and pipe\.transformer\.load"):
        nn.save_lora(mine, tmp_path / "k.safetensors", "kohya")
    theirs = tiny()
    into_diffusers(theirs, tmp_path / "k.safetensors", "direct")
    assert not [
        m for m in theirs.modules() if isinstance(m, peft.tuners.tuners_utils.BaseTunerLayer)
    ]


@pytest.mark.parametrize("metadata", [False, True])
@pytest.mark.parametrize("kind", ["lora", "dora"])
@pytest.mark.parametrize("seed", range(3))
def test_we_read_the_file_of_diffusers(seed, kind, metadata, tmp_path):
    draw = random.Random(seed)
    theirs = tiny()
    rank = draw.choice([2, 4])
    alpha = draw.choice([1, 7]) if metadata else rank
    names = draw.sample(IN_BLOCK + STEM, 5)
    config = peft.LoraConfig(
        r=rank, lora_alpha=alpha, target_modules=names, use_dora=kind == "dora"
    )
    theirs.add_adapter(config)
    torch.manual_seed(seed)
    with torch.no_grad():
        for n, p in theirs.named_parameters():
            if "lora_A" in n or "lora_B" in n:
                p.normal_(std=0.2)
    given = {"transformer_lora_adapter_metadata": config.to_dict()} if metadata else {}
    state = peft.get_peft_model_state_dict(theirs)
    diffusers.FluxPipeline.save_lora_weights(tmp_path, transformer_lora_layers=state, **given)
    mine = ours(tiny())
    nn.load_lora(mine, tmp_path)
    same(updated(mine), merged(theirs))


# kohya's layout


class Blank(nn.Module):
    """A layer of the widths of one, without a weight."""

    bias = None

    def __init__(self, in_features, out_features):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features

    def forward(self, input):
        return wf.zeros((*input.shape[:-1], self.out_features))


def wide():
    """A Flux of width 3072 with a block of each kind, of no weights."""
    with torch.device("meta"):
        made = diffusers.FluxTransformer2DModel(
            num_layers=1, num_single_layers=1, guidance_embeds=True
        )
    return Tree({n: Blank(m.in_features, m.out_features) for n, m in linears(made).items()})


def probe(b, a, scale=1.0):
    """b·a of a fixed vector: enough to compare products of large matrices."""
    x = np.cos(np.arange(a.shape[1], dtype=np.float32))
    return scale * (np.asarray(b) @ (np.asarray(a) @ x))


def probes(net):
    found = nn.lora.adapted_layers(net)
    return {
        n: probe(m.lora_B.numpy(), m.lora_A.numpy(), m.scaling)
        for n, m in ((n, m.requires_grad_(False)) for n, m in found.items())
    }


def converted(path):
    """By diffusers' converter; layers outside of blocks come without `transformer.`."""
    state = Loader.lora_state_dict(str(path.parent), weight_name=path.name)
    state = {n.removeprefix("transformer."): v for n, v in state.items()}
    modules = {n.rsplit(".lora_", 1)[0] for n in state}
    return {
        n: probe(state[f"{n}.lora_B.weight"], state[f"{n}.lora_A.weight"])
        for n in modules
        if state[f"{n}.lora_A.weight"].any()
    }


def same_probes(got, want):
    assert got.keys() == want.keys()
    for n, x in want.items():
        np.testing.assert_allclose(got[n], x, atol=1e-4 * np.abs(x).max(), err_msg=n)


@pytest.mark.parametrize("seed", range(3))
def test_diffusers_converts_our_kohya_file(seed, tmp_path):
    draw = random.Random(seed)
    mine = wide()
    layers = [n for n, _ in nn.lora.inject.linear_layers(mine)]
    names = layers if seed == 0 else draw.sample(layers, 8)
    nn.add_lora(
        mine, {n: {"rank": draw.choice([1, 2]), "alpha": draw.choice([1.0, 3.0])} for n in names}
    )
    stir(mine)
    path = tmp_path / "a.safetensors"
    stem = [n for n in layers if n in names and "blocks" not in n]
    if stem:
        with pytest.warns(wf.errors.AdapterWarning, match="passes over these layers") as told:
            nn.save_lora(mine, path, "kohya")
        (line,) = str(told[0].message).splitlines()[1:]
        assert line.endswith(": " + ", ".join(stem[:10]))
    else:
        nn.save_lora(mine, path, "kohya")
    want = probes(mine)
    same_probes(converted(path), want)
    other = wide()
    nn.load_lora(other, path)
    same_probes(probes(other), want)
    assert {n: m.rank for n, m in nn.lora.adapted_layers(other).items()} == {
        n: m.rank for n, m in nn.lora.adapted_layers(mine).items()
    }


@pytest.mark.parametrize("dense", [True, False])
def test_we_convert_a_kohya_file_as_diffusers_does(dense, tmp_path):
    """Fused layers with a dense B, or a block-diagonal one, as sd-scripts trains them."""
    mine, draw = wide(), np.random.default_rng(0)
    groups = FluxAdapterNames.of(mine).groups
    widths = {n: (m.in_features, m.out_features) for n, m in nn.lora.inject.linear_layers(mine)}
    state = {}
    for g in groups:
        rank, rows = 2 * len(g.parts), [widths[p][1] for p in g.parts]
        down = draw.standard_normal((rank, widths[g.parts[0]][0])).astype(np.float32)
        up = draw.standard_normal((sum(rows), rank)).astype(np.float32)
        if not dense and len(rows) > 1:
            which = np.repeat(np.arange(len(rows)), rows)
            up *= which[:, None] == np.repeat(np.arange(len(rows)), 2)
        key = f"lora_unet_{g.file.replace('.', '_')}"
        state[f"{key}.lora_down.weight"] = torch.tensor(down)
        state[f"{key}.lora_up.weight"] = torch.tensor(up)
        # diffusers passes over alphas of the final layer.
        state[f"{key}.alpha"] = torch.tensor(float(rank if "final" in key else 3))
    save_file(state, tmp_path / "a.safetensors")
    nn.load_lora(mine, tmp_path / "a.safetensors")
    assert len(nn.lora.adapted_layers(mine)) == len(widths)
    same_probes(probes(mine), converted(tmp_path / "a.safetensors"))
    ranks = {m.rank for n, m in nn.lora.adapted_layers(mine).items() if n.endswith("to_q")}
    assert ranks == ({6, 8} if dense else {2})


ROWS = {
    "double_blocks_0_img_attn_qkv": [f"transformer_blocks.0.attn.to_{k}" for k in "qkv"],
    "double_blocks_0_txt_attn_qkv": [f"transformer_blocks.0.attn.add_{k}_proj" for k in "qkv"],
    "single_blocks_1_linear1": [
        *(f"single_transformer_blocks.1.attn.to_{k}" for k in "qkv"),
        "single_transformer_blocks.1.proj_mlp",
    ],
}


@NARROW
@pytest.mark.parametrize("kind", ["lora", "dora"])
@pytest.mark.parametrize("seed", range(6))
def test_fused_layers_are_the_rows_of_their_parts(seed, kind, tmp_path):
    """The fused update from the file's own tensors, row by row."""
    draw = random.Random(seed)
    names = [n for parts in ROWS.values() for n in parts if kind == "dora" or draw.random() < 0.6]
    mine = adapted(seed, kind, mixed=True, names=[*names, "norm_out.linear"])
    nn.save_lora(mine, tmp_path / "a", "kohya")
    state = {n: v.numpy() for n, v in load_file(tmp_path / "a").items()}
    found = nn.lora.adapted_layers(mine)
    base = linears(tiny())
    for file, parts in {**ROWS, "final_layer_adaLN_modulation_1": ["norm_out.linear"]}.items():
        if not set(parts) & set(found):
            assert not any(file in n for n in state)
            continue
        down, up, alpha = (
            state[f"lora_unet_{file}.{n}"] for n in ("lora_down.weight", "lora_up.weight", "alpha")
        )
        whole = np.concatenate([base[p].weight.numpy() for p in parts])
        halves = -1 if "final" in file else 1  # shift and scale are exchanged there
        whole = np.concatenate(np.split(whole, 2)[::halves])
        total = whole + alpha / down.shape[0] * up @ down
        if kind == "dora":
            norms = np.linalg.norm(total, axis=1, keepdims=True)
            total = state[f"lora_unet_{file}.dora_scale"] / norms * total
        want = [
            found[p].effective_weight().numpy() if p in found else base[p].weight.numpy()
            for p in parts
        ]
        total = np.concatenate(np.split(total, 2)[::halves])
        np.testing.assert_allclose(total, np.concatenate(want), rtol=1e-4, atol=1e-5)
    other = ours(tiny())
    nn.load_lora(other, tmp_path / "a")
    same(updated(other), updated(mine))


@NARROW
@pytest.mark.parametrize("prefix", ["", "diffusion_model.", "model.diffusion_model."])
def test_original_names_with_dots_are_read_too(prefix, tmp_path):
    """As ComfyUI and ai-toolkit write them."""
    mine = adapted(1, names=[*ROWS["single_blocks_1_linear1"], "norm_out.linear", "x_embedder"])
    nn.save_lora(mine, tmp_path / "a", "kohya")
    dotted = {g.file.replace(".", "_"): g.file for g in mine.adapter_names().groups}
    state = {}
    for n, x in load_file(tmp_path / "a").items():
        module, _, role = n.removeprefix("lora_unet_").partition(".")
        role = role.replace("lora_down", "lora_A").replace("lora_up", "lora_B")
        state[f"{prefix}{dotted[module]}.{role}"] = x
    save_file(state, tmp_path / "b")
    other = ours(tiny())
    nn.load_lora(other, tmp_path / "b")
    same(updated(other), updated(mine))


@NARROW
def test_magnitudes_of_a_part_of_a_fused_layer_are_refused(tmp_path):
    mine = adapted(0, "dora", names=IN_BLOCK[:2])
    with pytest.raises(wf.errors.ArgumentError, match=r"img_attn.qkv is one layer .*to_v: none"):
        nn.save_lora(mine, tmp_path / "a", "kohya")
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    "kind, names, message",
    [
        ("dora", STEM[1:2], "drops the magnitudes of DoRA .*: norm_out.linear"),
        ("lokr", IN_BLOCK[:1], "does not read LoKr .*: transformer_blocks.0.attn.to_q"),
        ("lora", IN_BLOCK[8:9], "width 3072 only .*: single_transformer_blocks.0.attn.to_q"),
    ],
)
def test_what_diffusers_does_not_read_is_named(kind, names, message, tmp_path):
    mine = adapted(0, kind, names=names)
    with pytest.warns(wf.errors.AdapterWarning, match=message):
        nn.save_lora(mine, tmp_path / "a", "kohya")


@NARROW
def test_lokr_keeps_the_models_names_in_kohyas_layout(tmp_path):
    mine = adapted(0, "lokr", names=IN_BLOCK[:3])
    nn.save_lora(mine, tmp_path / "a", "kohya")
    keys = [n for n in load_file(tmp_path / "a") if n.endswith("lokr_w1")]
    assert keys == [f"lycoris_transformer_blocks_0_attn_to_{k}.lokr_w1" for k in "qkv"]
    other = ours(tiny())
    nn.load_lora(other, tmp_path / "a")
    same(updated(other), updated(mine))


def test_a_fused_lokr_is_split_where_its_rows_allow_and_refused_elsewhere(tmp_path):
    draw = np.random.default_rng(0)
    for rows, fits in (((3, 32), True), ((6, 16), True), ((4, 24), False)):
        w1, w2 = (
            draw.standard_normal((n, k)).astype("f") for n, k in zip(rows, (4, 8), strict=True)
        )
        state = {"lokr_w1": w1, "lokr_w2": w2, "alpha": np.ones((), "f")}
        save_file(
            {
                f"lora_unet_double_blocks_0_img_attn_qkv.{n}": torch.tensor(x)
                for n, x in state.items()
            },
            tmp_path / "a",
        )
        mine = ours(tiny())
        if not fits:
            with pytest.raises(wf.errors.StateMismatch, match="are no Kronecker products"):
                nn.load_lora(mine, tmp_path / "a")
            continue
        nn.load_lora(mine, tmp_path / "a")
        base = linears(tiny())
        want = np.split(np.kron(w1, w2), 3)
        for k, part in zip("qkv", want, strict=True):
            n = f"transformer_blocks.0.attn.to_{k}"
            got = updated(mine)[n] - base[n].weight.numpy()
            np.testing.assert_allclose(got, part, rtol=1e-4, atol=1e-5)
