"""Low-rank adapters against the formula, and against PyTorch's autograd."""

import copy
import os
import pickle
import random

import numpy as np
import pytest
import torch

import weft as wf

nn = wf.nn


def adapter(dtype="float64", **options):
    wf.random.seed(0)
    layer = nn.LoRALinear(6, 4, rank=2, alpha=3.0, dtype=dtype, **options)
    nn.init.normal_(layer.lora_B)
    return layer


def test_values_and_gradients_are_those_of_the_formula():
    layer = adapter()
    x = np.random.default_rng(1).standard_normal((5, 6))
    given = {n: torch.tensor(p.tolist(), dtype=torch.float64) for n, p in layer.named_parameters()}
    a, b = (given[n].requires_grad_() for n in ("lora_A", "lora_B"))
    z = torch.tensor(x, requires_grad=True)
    expected = z @ given["weight"].T + given["bias"] + 3.0 / 2 * (z @ a.T @ b.T)
    seed = np.random.default_rng(2).standard_normal((5, 4))
    expected.backward(torch.tensor(seed))
    mine = wf.tensor(x, requires_grad=True)
    y = layer(mine)
    grads = y.backward(wf.tensor(seed))
    # The adapter computes in float32, its parameters' dtype.
    np.testing.assert_allclose(y.detach().numpy(), expected.detach().numpy(), rtol=1e-5)
    for ours, theirs in ((mine, z), (layer.lora_A, a), (layer.lora_B, b)):
        np.testing.assert_allclose(grads[ours].numpy(), theirs.grad.numpy(), rtol=1e-4, atol=1e-5)
    assert grads.get(layer.weight) is None and grads.get(layer.bias) is None


def test_it_is_its_base_at_first_and_keeps_its_dtype():
    base = nn.Linear(6, 4, dtype="bfloat16")
    x = wf.randn((3, 6), dtype="bfloat16")
    layer = nn.LoRALinear.from_linear(base, rank=2, alpha=3.0)
    assert layer.weight is base.weight and not base.weight.requires_grad
    assert layer(x).dtype == wf.bfloat16 and layer(x).tolist() == base(x).tolist()
    assert layer.lora_A.dtype == layer.lora_B.dtype == wf.float32
    assert list(layer.state_dict()) == ["weight", "bias", "lora_A", "lora_B"]
    assert layer.scaling == 1.5
    bound = 1 / np.sqrt(6)
    assert 0 < np.abs(layer.lora_A.tolist()).max() <= bound and not np.any(layer.lora_B.tolist())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_merging_and_back(dtype):
    layer = adapter(dtype)
    before = layer.weight.tolist()
    x = wf.randn((3, 6), dtype=dtype)
    apart = layer(x)
    assert not layer.merged
    layer.merge()
    assert layer.merged and layer.weight.tolist() != before
    update = 1.5 * np.array(layer.lora_B.tolist()) @ np.array(layer.lora_A.tolist())
    unit = {"float32": 2**-22, "bfloat16": 2**-7, "float64": 2**-22}[dtype]  # of B·A: float32
    scale = np.abs(np.array(before) + update).max()
    np.testing.assert_allclose(layer.weight.tolist(), np.array(before) + update, atol=unit * scale)
    together = layer(x)
    scale = np.abs(apart.tolist()).max()
    np.testing.assert_allclose(together.tolist(), apart.tolist(), atol=20 * unit * scale)
    layer.unmerge()
    assert layer.weight.tolist() == before and not layer.merged
    assert layer(x).tolist() == apart.tolist()


def test_dropout_is_of_the_adapter_in_training():
    layer = adapter("float32", dropout=1.0)
    x = wf.randn((3, 6))
    base = nn.functional.linear(x, layer.weight, layer.bias)
    assert layer(x).tolist() == base.tolist()
    assert layer.eval()(x).tolist() != base.tolist()


def test_adapters_in_a_model():
    wf.random.seed(3)
    block = nn.TransformerBlock(8, 2, 16, dropout=0.0, batch_first=True)
    model = nn.Sequential(block, nn.Linear(8, 3))
    x = wf.randn((2, 5, 8))
    before = model(x).tolist()
    names = nn.add_lora(model, ["*.linear?", "*.out_proj"], rank=2, alpha=4.0)
    assert names == ["0.self_attn.out_proj", "0.linear1", "0.linear2"]
    assert model(x).tolist() == before
    trained = [n for n, p in model.named_parameters() if p.requires_grad]
    assert trained == [n for n, _ in model.lora_parameters()]
    assert trained == [f"{n}.lora_{k}" for n in names for k in "AB"]
    assert type(model[1]) is nn.Linear and not model[1].weight.requires_grad
    frozen = {n: p.tolist() for n, p in model.named_parameters() if not p.requires_grad}
    optimizer = wf.optim.Adam(model.lora_parameters(), lr=1e-2)
    losses = []
    for _ in range(20):
        loss = ((model(x) - 1.0) ** 2).mean()
        losses.append(loss.item())
        optimizer.step(loss.backward())
    assert losses[-1] < 0.7 * losses[0]
    after = dict(model.named_parameters())
    assert all(after[n].tolist() == values for n, values in frozen.items())


def test_a_shared_layer_gets_one_adapter():
    layer = nn.Linear(4, 4)
    model = nn.Sequential(layer, nn.ReLU(), layer)
    assert nn.add_lora(model, "*", rank=1) == ["0", "2"]
    assert model[0] is model[2] and len(list(model.lora_parameters())) == 2


def test_a_base_state_loads_into_the_adapter():
    base, layer = nn.Linear(6, 4), adapter("float32")
    found = layer.load_state_dict(base.state_dict(), strict=False)
    assert found.missing_keys == ["lora_A", "lora_B"]
    assert layer.weight.tolist() == base.weight.tolist()


BAD = [
    (lambda: nn.LoRALinear(4, 4, rank=0), "rank=0, expected an integer of 1"),
    (lambda: nn.LoRALinear(4, 4, dropout=1.5), "from 0 to 1"),
    (lambda: nn.LoRALinear(4, 3, base=nn.Linear(4, 4)), r"expected \(3, 4\)"),
    (lambda: adapter().unmerge(), "call merge"),
    (lambda: nn.add_lora(nn.Sequential(nn.Linear(2, 2)), "x"), "'x' matches no Linear .* are 0"),
    (lambda: nn.add_lora(nn.ReLU()), "there are none"),
]


@pytest.mark.parametrize("call, message", BAD, ids=[m for _, m in BAD])
def test_bad_arguments(call, message):
    with pytest.raises(wf.errors.WeftError, match=message):
        call()


def test_merging_twice_is_refused():
    layer = adapter()
    layer.merge()
    with pytest.raises(wf.errors.ArgumentError, match="already merged; call unmerge"):
        layer.merge()


ROUNDS = 60 if os.environ.get("WEFT_SOAK") else 8


def made(seed):
    """Adapters in layers of two kinds, one of them used twice."""
    wf.random.seed(seed)
    shared = nn.Linear(4, 4)
    model = nn.Sequential(
        nn.Linear(4, 4), nn.Sequential(shared, nn.ReLU(), shared), nn.Linear(4, 3)
    )
    nn.add_lora(model, "*", rank=2, alpha=3.0)
    for _, p in model.lora_parameters():
        nn.init.normal_(p)
    return model


def adapters(model):
    return [m for m in model.modules() if isinstance(m, nn.LoRALinear)]


def stir(model, draw):
    """Merge and unmerge at random, move and cast now and then."""
    for m in adapters(model):
        if draw.random() < 0.5:
            (m.unmerge if m.merged else m.merge)()
    if draw.random() < 0.3:
        model.to("torch").to("cpu")


@pytest.mark.parametrize("seed", range(ROUNDS))
@pytest.mark.parametrize("way", ["state", "file", "deepcopy", "pickle", "adapters only"])
def test_a_state_means_the_same_function_merged_or_not(way, seed, tmp_path):
    """The reference is the formula, of tensors that nobody merges."""
    draw = random.Random(seed)
    model, other = made(seed), made(seed + 1000)
    x = wf.randn((3, 4))
    expected, base = model(x).tolist(), other.state_dict()
    if way == "adapters only":
        base = {n: v.clone() for n, v in base.items() if "lora" not in n}
        given = {n: p.detach().clone() for n, p in model.lora_parameters()}
        plain = made(0)
        plain.load_state_dict(base | given, strict=False)
        expected = plain(x).tolist()
    stir(model, draw)
    stir(other, draw)
    if way == "state":
        other.load_state_dict(model.state_dict())
    elif way == "file":
        wf.save_checkpoint(tmp_path / "m", wf.Checkpoint(model.state_dict(), {}, 0, 0))
        other.load_state_dict(wf.load_checkpoint(tmp_path / "m").model_state)
    elif way == "adapters only":
        other.load_state_dict(given, strict=False)
    else:
        other = copy.deepcopy(model) if way == "deepcopy" else pickle.loads(pickle.dumps(model))
    for _ in range(3):
        np.testing.assert_allclose(other(x).tolist(), expected, rtol=1e-4, atol=1e-5)
        stir(other, draw)
    for m in adapters(other):
        if m.merged:
            m.unmerge()
    assert other(x).tolist() == expected


def test_a_merged_adapter_refuses_other_tensors_for_its_own():
    layer = adapter()
    x = wf.randn((2, 6), dtype="float64")
    expected = nn.functional_call(layer, dict(layer.state_dict()), x).tolist()
    assert expected == layer(x).tolist()
    layer.merge()
    with pytest.raises(wf.errors.ArgumentError, match="unmerge"):
        nn.functional_call(layer, layer.state_dict(), x)


def _by_optimizer(layer, name):
    p = getattr(layer, name)
    p.requires_grad_(True)
    p.grad = wf.ones_like(p.detach())
    wf.optim.SGD([p], lr=0.5).step()


def _by_compiled_step(layer, name):
    p = getattr(layer, name)
    with wf.no_grad():
        wf.compile(lambda: p.copy_(p * 1.5 + 1.0))()


def _by_operator(layer, name):
    with wf.no_grad():
        p = getattr(layer, name)
        p += 1.0


def _by_assignment(layer, name):
    with wf.no_grad():
        getattr(layer, name)[0, 0] = 7.0


CHANGES = {
    "an optimizer": _by_optimizer,
    "a compiled function": _by_compiled_step,
    "an operator": _by_operator,
    "assignment": _by_assignment,
    "copy_": wf.no_grad()(lambda layer, name: getattr(layer, name).copy_(wf.ones(()))),
    "init": lambda layer, name: nn.init.normal_(getattr(layer, name)),
    "a new parameter": lambda layer, name: setattr(
        layer, name, wf.Parameter(getattr(layer, name).detach() + 1.0)
    ),
    "alpha": lambda layer, name: setattr(layer, "alpha", layer.alpha * 2),
    "load_state_dict": lambda layer, name: layer.load_state_dict(
        {name: getattr(layer, name).detach() + 1.0}, strict=False
    ),
    "nothing": lambda layer, name: None,
    "to": lambda layer, name: layer.to("torch").to("cpu"),
}


def _formula(layer, x):
    base = layer.state_dict()["weight"]
    update = layer.lora_B.detach() @ layer.lora_A.detach() * (layer.alpha / layer.rank)
    return x @ (base + update).T + layer.bias


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", ["lora_A", "lora_B", "weight"])
@pytest.mark.parametrize("change", CHANGES)
def test_what_is_changed_while_merged_is_used_or_refused(change, name, compiled):
    """Against the formula of what A, B and the base are, before and after `unmerge()`."""
    if change == "alpha" and name == "weight":
        return
    wf.random.seed(3)
    layer = nn.LoRALinear(4, 3, rank=2, alpha=3.0)
    nn.init.normal_(layer.lora_B)
    forward = wf.compile(lambda x: layer(x)) if compiled else layer
    x = wf.randn((5, 4))
    forward(x)
    layer.merge()
    merged = forward(x)
    np.testing.assert_allclose(merged.numpy(), _formula(layer, x).numpy(), rtol=1e-4, atol=1e-5)
    CHANGES[change](layer, name)
    harmless = change in ("nothing", "to", "load_state_dict")
    if name == "weight" and not harmless:
        with pytest.raises(wf.errors.ArgumentError, match="would be lost"):
            layer.unmerge()
        return
    try:
        found = forward(x)
    except wf.errors.ArgumentError as e:
        assert "call unmerge" in str(e) and not harmless
    else:
        assert harmless
        np.testing.assert_allclose(found.numpy(), _formula(layer, x).numpy(), rtol=1e-4, atol=1e-5)
    layer.unmerge()
    after = forward(x).detach().numpy()
    np.testing.assert_allclose(after, _formula(layer, x).detach().numpy(), rtol=1e-4, atol=1e-5)
    layer.merge()
    np.testing.assert_allclose(forward(x).detach().numpy(), after, rtol=1e-4, atol=1e-5)


def test_each_of_several_merged_adapters_is_looked_at():
    model = made(0)
    forward = wf.compile(lambda x: model(x))
    for m in adapters(model):
        m.merge()
    forward(wf.ones((2, 4)))
    for m in adapters(model):
        before = m.lora_A.detach().clone()
        with wf.no_grad():
            m.lora_A += 1.0
        with pytest.raises(wf.errors.ArgumentError, match="unmerge"):
            forward(wf.ones((2, 4)))
        with wf.no_grad():
            m.lora_A.copy_(before)
        forward(wf.ones((2, 4)))
