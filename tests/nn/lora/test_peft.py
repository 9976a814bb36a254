"""Adapters against PEFT: values, gradients, and files in both directions."""

import random
import warnings

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import weft as wf

from .twins import (
    NAMES,
    adapted,
    array,
    config,
    deltas,
    model,
    options,
    peft,
    same_deltas,
    stir,
    twin,
)

nn = wf.nn

SEEDS = range(8)
# PEFT's names in `target_modules` also mean modules that end with them; the file says which.
pytestmark = [
    pytest.mark.filterwarnings("ignore:While injecting the PEFT adapters:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:The following .* keys did not match:RuntimeWarning"),
]


def into_peft(net, path):
    """A PEFT model of PyTorch's twin with the file of ours in it."""
    state = {n: v for n, v in load_file(path).items() if not n.endswith(".alpha")}
    state = {n.removeprefix("transformer."): v for n, v in state.items()}
    peft.inject_adapter_in_model(config(state), net, state_dict=state)
    found = peft.set_peft_model_state_dict(net, state)
    assert not found.unexpected_keys
    assert not [k for k in found.missing_keys if "lora" in k]
    return net


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("kind", ["lora", "dora"])
@pytest.mark.parametrize("seed", SEEDS)
def test_peft_computes_the_same_from_our_file(kind, mixed, seed, tmp_path):
    mine = adapted(seed, kind, mixed)
    path = tmp_path / "a.safetensors"
    nn.save_lora(mine, path)
    net = into_peft(twin(mine), path)
    x = np.random.default_rng(seed).standard_normal((5, 6)).astype(np.float32)
    given, z = wf.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    y, expected = mine(given), net(z)
    np.testing.assert_allclose(array(y), expected.detach(), rtol=1e-4, atol=1e-5)
    # B of the file has the strength in it: its gradient is that of ours over the strength.
    grads = (y * y).sum().backward()
    (expected * expected).sum().backward()
    theirs = dict(net.named_parameters())
    np.testing.assert_allclose(grads[given].numpy(), z.grad, rtol=1e-3, atol=1e-4)
    for name, m in nn.lora.adapted_layers(mine).items():
        for n in m.adapters:
            key = f"{name}.{n}.default.weight"
            scale = m.scaling if n == "lora_B" else 1.0
            want, got = theirs[key].grad.numpy() * scale, grads[getattr(m, n)].numpy()
            want = (
                want[: m.rank] if n == "lora_A" else want[..., : m.rank] if n == "lora_B" else want
            )
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=2e-5 * np.abs(want).max())


class FixedDropout(torch.nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        return x * torch.tensor(mask(x.shape, self.p))


def mask(shape, p):
    return (np.arange(shape[-1]) % 3 != 0).astype(np.float32) / np.float32(1 - p)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("dropout", [0.0, 0.25])
@pytest.mark.parametrize("kind", ["lora", "dora"])
def test_gradients_are_those_of_peft_with_dropout_too(kind, dropout, dtype, bias, monkeypatch):
    monkeypatch.setattr(
        nn.functional,
        "dropout",
        lambda x, p, training=True: x * wf.tensor(mask(x.shape, p), dtype=x.dtype) if p else x,
    )
    wf.random.seed(3)
    base = nn.Linear(9, 5, bias, dtype=dtype)
    mine = nn.Sequential(base)
    nn.add_lora(mine, "0", rank=2, alpha=3.0, dropout=dropout, kind=kind)
    stir(mine)
    theirs = torch.nn.Sequential(torch.nn.Linear(9, 5, bias)).to(getattr(torch, dtype))
    theirs[0].weight.data = torch.tensor(array(base.weight)).to(theirs[0].weight.dtype)
    if bias:
        theirs[0].bias.data = torch.tensor(array(base.bias)).to(theirs[0].weight.dtype)
    given = peft.LoraConfig(
        r=2, lora_alpha=3, lora_dropout=dropout, target_modules=["0"], use_dora=kind == "dora"
    )
    peft.inject_adapter_in_model(given, theirs)
    layer = theirs[0].float() if dtype == "float32" else theirs[0]
    if dropout:
        layer.lora_dropout["default"] = FixedDropout(dropout)
    with torch.no_grad():
        for n, p in mine[0].lora_parameters():
            getattr(layer, n)["default"].weight.data = torch.tensor(array(p))
    x = np.random.default_rng(1).standard_normal((4, 9)).astype(np.float32)
    z = torch.tensor(x).to(layer.base_layer.weight.dtype).requires_grad_()
    a = wf.tensor(x, dtype=dtype, requires_grad=True)
    y, expected = mine(a), theirs(z)
    seed = np.random.default_rng(2).standard_normal((4, 5)).astype(np.float32)
    expected.backward(torch.tensor(seed).to(expected.dtype))
    grads = y.backward(wf.tensor(seed, dtype=dtype))
    # In bfloat16 the base's product and the sum with it are rounded, here and there.
    unit = {"float32": 2e-6, "bfloat16": 2**-6}[dtype]
    pairs = [(array(y), expected), (array(grads[a]), z.grad)]
    for n in mine[0].adapters:
        want = getattr(layer, n)["default"].weight.grad
        pairs.append((array(grads[getattr(mine[0], n)]), want))
    for got, want in pairs:
        want = want.detach().float().numpy()
        np.testing.assert_allclose(got, want, rtol=0, atol=unit * np.abs(want).max())


def peft_model(seed, kind, **more):
    """A model of PEFT with trained-looking adapters, and ours without any."""
    draw = random.Random(seed)
    mine = model(seed)
    names = draw.sample(NAMES, draw.randint(1, 4))
    if kind == "lokr":
        made = peft.LoKrConfig(
            r=draw.choice([1, 2]), alpha=draw.choice([1, 5]), target_modules=names,
            decompose_factor=draw.choice([-1, 2]), decompose_both=draw.random() < 0.5,
        )  # fmt: skip
    else:
        made = peft.LoraConfig(
            r=draw.choice([1, 2, 3]), lora_alpha=draw.choice([1, 5, 16]), target_modules=names,
            use_dora=kind == "dora", **more,
        )  # fmt: skip
    net = peft.get_peft_model(twin(mine), made)
    torch.manual_seed(seed)
    with torch.no_grad():
        for n, p in net.named_parameters():
            if "lora_magnitude" in n:
                p.mul_(torch.linspace(0.6, 1.3, p.numel()))
            elif "lora" in n or "lokr" in n:
                p.normal_(std=0.4)
    return net, mine


PATTERNS = {
    "plain": {},
    "rslora": {"use_rslora": True},
    "patterns": {"rank_pattern": {"2.0": 4, "3": 1}, "alpha_pattern": {"^0": 7, "2": 9}},
}


@pytest.mark.parametrize("how", ["folder", "raw names", "without prefix"])
@pytest.mark.parametrize("patterns", PATTERNS)
@pytest.mark.parametrize("kind", ["lora", "dora", "lokr"])
@pytest.mark.parametrize("seed", range(3))
def test_a_file_of_peft_computes_the_same_here(kind, patterns, how, seed, tmp_path):
    if kind == "lokr" and patterns != "plain":
        return
    net, mine = peft_model(seed, kind, **(PATTERNS[patterns] if kind != "lokr" else {}))
    net.save_pretrained(tmp_path)
    file = tmp_path / "adapter_model.safetensors"
    if how == "raw names":
        state = {n: v for n, v in net.state_dict().items() if "lora_" in n or "lokr_" in n}
        save_file({n: v.contiguous() for n, v in state.items()}, file)
    elif how == "without prefix":
        state = {n.removeprefix("base_model.model."): v for n, v in load_file(file).items()}
        save_file(state, file)
    nn.load_lora(mine, tmp_path if how == "folder" else file)
    x = np.random.default_rng(seed).standard_normal((5, 6)).astype(np.float32)
    expected = net.eval()(torch.tensor(x)).detach()
    np.testing.assert_allclose(array(mine.eval()(x)), expected, rtol=1e-4, atol=1e-5)
    trained = [n for n, p in mine.named_parameters() if p.requires_grad]
    assert trained == [n for n, _ in mine.lora_parameters()]


@pytest.mark.parametrize("seed", range(6))
def test_peft_reads_our_lokr(seed, tmp_path):
    draw = random.Random(seed)
    mine = model(seed)
    names = draw.sample(NAMES, 2)
    nn.add_lora(mine, names, **options(draw, "lokr") | {"factor": draw.choice([-1, 2])})
    stir(mine)
    path = tmp_path / "a.safetensors"
    nn.save_lora(mine, path)
    state = {n.removeprefix("transformer."): v for n, v in load_file(path).items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from diffusers.utils.peft_utils import _create_lokr_config
    net = twin(mine)
    peft.inject_adapter_in_model(_create_lokr_config(state, None), net, state_dict=state)
    found = peft.set_peft_model_state_dict(net, state)
    assert not found.unexpected_keys and not [k for k in found.missing_keys if "lokr" in k]
    x = np.random.default_rng(seed).standard_normal((5, 6)).astype(np.float32)
    want = net(torch.tensor(x)).detach()
    np.testing.assert_allclose(array(mine(x)), want, rtol=1e-4, atol=1e-5)


def test_what_came_from_peft_goes_back_the_same(tmp_path):
    net, mine = peft_model(5, "dora")
    net.save_pretrained(tmp_path)
    nn.load_lora(mine, tmp_path)
    nn.save_lora(mine, tmp_path / "b.safetensors")
    other = model(5)
    nn.load_lora(other, tmp_path / "b.safetensors")
    same_deltas(deltas(mine), deltas(other))
