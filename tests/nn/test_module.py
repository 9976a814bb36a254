"""Modules: what they hold, their state, hooks, and themselves as trees."""

import copy
import pickle

import numpy as np
import optree
import pytest
import torch

import weft as wf

nn = wf.nn


class Net(nn.Module):
    """Two layers that share their weight, with buffers of both kinds."""

    def __init__(self, width: int = 3):
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)
        self.second.weight = self.first.weight
        self.register_buffer("shift", wf.full((width,), 0.5))
        self.register_buffer("steps", wf.tensor(7), persistent=False)
        self.scale = wf.Parameter(wf.tensor(2.0))
        self.plain = wf.ones(2)

    def forward(self, x):
        return self.second(wf.tanh(self.first(x))) * self.scale + self.shift


def loss(model, x):
    return (model(x) ** 2).sum()


X = wf.tensor(np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32))


def test_what_is_assigned_is_registered():
    net = Net()
    assert [n for n, _ in net.named_parameters()] == [
        *("scale", "first.weight", "first.bias", "second.bias"),
    ]
    every = [n for n, _ in net.named_parameters(remove_duplicate=False)]
    assert every == ["scale", "first.weight", "first.bias", "second.weight", "second.bias"]
    assert list(net.parameters(recurse=False)) == [net.scale]
    assert [n for n, _ in net.named_buffers()] == ["shift", "steps"]
    assert [n for n, _ in net.named_children()] == ["first", "second"]
    assert [n for n, _ in net.named_modules()] == ["", "first", "second"]
    assert list(net.state_dict()) == ["scale", "shift", *every[1:]]
    assert "plain" not in dict(net.named_buffers()) and net.plain.shape == (2,)
    assert {"first", "shift", "scale"} <= set(dir(net))


def test_shared_modules_are_met_once():
    layer = nn.Linear(2, 2)
    model = nn.Sequential(layer, layer, nn.ModuleList([layer]))
    assert len(list(model.modules())) == 3 and len(list(model.parameters())) == 2
    assert len(list(model.named_modules(remove_duplicate=False))) == 5
    assert len(model.state_dict()) == 6


def test_assigning_again_moves_a_name_from_one_kind_to_another():
    net = Net()
    net.scale = None
    assert net.scale is None and "scale" not in net.state_dict()
    net.first = wf.Parameter(wf.ones(2))
    assert "first" in net._parameters and "first" not in net._modules
    net.shift = wf.zeros(3)
    assert net._buffers["shift"] is net.shift
    del net.shift, net.steps
    assert not list(net.buffers()) and not hasattr(net, "shift")
    net.plain = 3
    assert net.plain == 3


def test_names_lead_to_parts():
    net = nn.Sequential(Net(), nn.ReLU())
    assert net.get_submodule("0.first") is net[0].first
    assert net.get_submodule("") is net
    assert net.get_parameter("0.first.bias") is net[0].first.bias
    assert net.get_buffer("0.shift") is net[0].shift
    net.add_module("tail", nn.Linear(2, 2))
    assert net.tail is net[2]


def test_repr_is_torchs():
    def build(nn):
        return nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.Conv2d(3, 4, 2, bias=False)))

    assert repr(build(nn)) == repr(build(torch.nn))
    assert repr(nn.LSTM(3, 4, 2)) == repr(torch.nn.LSTM(3, 4, 2))


def test_training_is_said_to_all():
    model = nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.Dropout(0.5)))
    assert model.eval() is model and not any(m.training for m in model.modules())
    assert model(X) is not None and model(X).tolist() == X.tolist()
    model[1].train()
    assert not model.training and model[1][0].training


def test_apply_goes_from_the_inside_out():
    met = []
    net = Net()
    assert net.apply(met.append) is net
    assert met == [net.first, net.second, net]


# State


@pytest.mark.parametrize("kind", [torch.tensor, np.asarray, wf.tensor], ids=["torch", "np", "wf"])
def test_a_state_is_copied_into_the_same_memory(kind):
    net, other = Net(), Net()
    state = {n: kind(x.numpy().astype(np.float64)) for n, x in other.state_dict().items()}
    before = net.first.weight
    held = before.detach()
    found = net.load_state_dict(state)
    assert found.missing_keys == [] and found.unexpected_keys == []
    assert net.first.weight is before and before.dtype == wf.float32 and before.requires_grad
    assert held.tolist() == other.first.weight.tolist()  # the memory itself was written
    assert net(X).tolist() == other(X).tolist()


def test_a_state_may_come_with_torchs_gradients_and_halves():
    layer = torch.nn.Linear(2, 3).bfloat16()
    mine = nn.Linear(2, 3)
    mine.load_state_dict(dict(layer.named_parameters()))
    assert mine.weight.tolist() == layer.weight.tolist()


def test_a_loaded_state_makes_the_backward_pass_raise():
    net = Net()
    y = loss(net, X)
    net.load_state_dict(Net().state_dict())
    with pytest.raises(wf.errors.SavedValueOverwritten):
        y.backward()


def test_what_is_not_strict_is_reported():
    net = nn.Linear(2, 2)
    found = net.load_state_dict({"weight": np.ones((2, 2)), "more": np.ones(1)}, strict=False)
    assert found == (["bias"], ["more"]) and net.weight.tolist() == [[1, 1], [1, 1]]


def test_state_names_can_have_a_prefix_and_keep_the_parameters():
    net = nn.Linear(2, 2)
    assert list(net.state_dict(prefix="a.")) == ["a.weight", "a.bias"]
    assert net.state_dict(keep_vars=True)["weight"] is net.weight
    assert not net.state_dict()["weight"].requires_grad


def test_to_casts_numbers_and_keeps_the_objects():
    net = Net()
    weight, shift = net.first.weight, net.shift
    loss(net, X).backward()
    values = weight.grad.tolist()
    assert net.to("float64") is net and net.first.weight is weight is net.second.weight
    assert weight.dtype == net.shift.dtype == weight.grad.dtype == wf.float64
    assert weight.grad.tolist() == values and net.steps.dtype == wf.int64
    assert shift.dtype == wf.float32  # somebody else's tensor is left alone
    grads = loss(net, X.to("float64")).backward()
    assert grads[weight].dtype == wf.float64
    for cast, dtype in ((net.half, wf.float16), (net.bfloat16, wf.bfloat16)):
        assert cast().first.weight.dtype == dtype
    assert net.float().scale.dtype == wf.float32 and net.double().scale.dtype == wf.float64


def test_to_moves_to_a_device_and_back():
    net = Net()
    expected = net(X).tolist()
    net.to("torch", "float64")
    assert {x.device for x in (*net.parameters(), *net.buffers())} == {"torch"}
    assert net.steps.dtype == wf.int64 and net.scale.dtype == wf.float64
    net.to(device="cpu", dtype=wf.float32)
    assert net(X).tolist() == expected


def test_gradients_are_forgotten():
    net = Net()
    loss(net, X).backward()
    assert all(p.grad is not None for p in net.parameters())
    net.zero_grad(set_to_none=False)
    assert not any(p.grad.numpy().any() for p in net.parameters())
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())


def test_freezing_by_name():
    net = Net()
    assert net.freeze("first.*") == ["first.weight", "first.bias"]
    grads = loss(net, X).backward()
    assert {n for n, p in net.named_parameters() if grads.get(p) is not None} == {
        *("scale", "second.bias"),
    }
    assert net.unfreeze("*.bias") == ["first.bias", "second.bias"]
    assert [n for n, p in net.named_parameters() if not p.requires_grad] == ["first.weight"]
    assert len(net.freeze()) == 5
    net.requires_grad_()
    assert all(p.requires_grad for p in net.parameters())


def test_copies_share_nothing_but_keep_ties():
    net = Net()
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert twin.first.weight is twin.second.weight is not net.first.weight
        assert twin(X).tolist() == net(X).tolist()
        twin.first.weight.apply_update(wf.ones((3, 3)))
        assert twin(X).tolist() != net(X).tolist()


# Hooks


def test_hooks_see_and_change_what_goes_in_and_out():
    layer, seen = nn.Identity(), []
    before = layer.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    after = layer.register_forward_hook(lambda m, args, out: seen.append((m, args[0], out)))
    double = layer.register_forward_hook(lambda m, args, out: out * 2)
    assert layer(wf.tensor(3.0)).item() == 8.0
    assert seen[0][0] is layer and seen[0][1].item() == seen[0][2].item() == 4.0
    before.remove()
    double.remove()
    assert layer(wf.tensor(3.0)).item() == 3.0 and len(seen) == 2
    after.remove()
    layer(wf.tensor(3.0))
    assert len(seen) == 2


def test_hooks_with_keywords():
    class Power(nn.Module):
        def forward(self, x, n=1):
            return x**n

    module = Power()
    module.register_forward_pre_hook(lambda m, args, kw: (args, {"n": 3}), with_kwargs=True)
    module.register_forward_hook(lambda m, args, kw, out: out + kw["n"], with_kwargs=True)
    assert module(wf.tensor(2.0), n=2).item() == 11.0


# Trees


def test_a_round_trip_is_another_module_with_the_same_parameters():
    net = Net()
    leaves, structure = optree.tree_flatten(net)
    again = optree.tree_unflatten(structure, leaves)
    assert len(leaves) == 5  # the shared weight once, the integers not at all
    assert type(again) is Net and again is not net and again.first is not net.first
    assert again.first.weight is net.first.weight is again.second.weight
    assert again.steps is net.steps and again.plain is net.plain
    again.first.bias = None
    assert net.first.bias is not None


def test_gradients_of_a_module_are_a_module():
    net = Net()
    grads = loss(net, X).backward()
    found = wf.grad(loss)(net, X)
    assert type(found) is Net and found.first.weight is found.second.weight
    for name, p in net.named_parameters():
        np.testing.assert_allclose(found.get_parameter(name).tolist(), grads[p].tolist(), rtol=1e-6)
    assert found.shift.shape == (3,)
    value, _ = wf.value_and_grad(loss)(net, X)
    assert value.item() == loss(net, X).item()
    assert net.first.weight.grad is not None  # of backward(), before


def test_derivatives_along_a_module():
    net = Net()
    direction = optree.tree_map(lambda x: wf.ones_like(x.detach()), net)
    y, dy = wf.jvp(lambda m: loss(m, X), (net,), (direction,))
    grads = wf.grad(loss)(net, X)
    expected = sum(g.sum().item() for g in optree.tree_leaves(grads))
    assert y.item() == pytest.approx(loss(net, X).item())
    assert dy.item() == pytest.approx(expected, rel=1e-5)


def test_a_batch_of_modules():
    nets = [Net() for _ in range(4)]
    stacked = optree.tree_map(lambda *ps: wf.stack([p.detach() for p in ps]), *nets)
    ys = wf.vmap(lambda m: m(X))(stacked)
    np.testing.assert_allclose(ys.tolist(), [net(X).tolist() for net in nets], rtol=1e-5)
    grads = wf.vmap(wf.grad(loss), in_axes=(0, None))(stacked, X)
    for k, net in enumerate(nets):
        expected = loss(net, X).backward()[net.first.weight]
        np.testing.assert_allclose(grads.first.weight[k].tolist(), expected.tolist(), rtol=1e-5)


def test_gradients_of_each_sample():
    net = Net()
    each = wf.vmap(lambda x: wf.grad(loss)(net, x[None]))(X)
    total = loss(net, X).backward()[net.first.weight]
    np.testing.assert_allclose(each.first.weight.sum(0).tolist(), total.tolist(), rtol=1e-4)


def test_modules_of_other_structure_are_not_taken_for_equal():
    one, two = optree.tree_structure(Net()), optree.tree_structure(Net(4))
    assert one == two and hash(one) == hash(two)  # sizes are the leaves' affair
    untied = Net()
    untied.second.weight = wf.Parameter.zeros((3, 3))
    assert optree.tree_structure(untied) != one
    assert optree.tree_structure(nn.Linear(3, 3, bias=False)) != optree.tree_structure(
        nn.Linear(3, 3)
    )
    with pytest.raises(wf.errors.ArgumentError, match="structures differ"):
        wf.jvp(lambda m: m(X).sum(), (nn.Linear(3, 2),), ([wf.ones((2, 3)), wf.ones(2)],))


def test_statistics_are_followed_through_transformations():
    x = wf.randn((6, 3))

    def total(model):
        return (model(x) ** 3).sum()

    def followed(call) -> list:
        model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))
        call(model)
        assert model[0].num_batches_tracked.item() == 1
        return model[0].running_mean.tolist()

    def along(model):
        wf.jvp(total, (model,), (optree.tree_map(lambda p: wf.ones_like(p.detach()), model),))

    expected = followed(total)
    np.testing.assert_allclose(expected, (x.mean(0) * 0.1).tolist(), rtol=1e-5)
    assert followed(wf.grad(total)) == expected
    assert followed(along) == expected
    assert followed(lambda m: (wf.checkpoint(m, x) ** 3).sum().backward()) == expected
    assert followed(lambda m: wf.checkpoint(total, m).backward()) == expected


def test_a_call_with_other_tensors():
    net = Net()
    other = Net()
    state = dict(other.named_parameters()) | {"shift": wf.zeros(3)}
    y = nn.functional_call(net, state, X)
    other.shift = wf.zeros(3)
    assert y.tolist() == other(X).tolist() and net.shift.tolist() == [0.5] * 3
    tied = nn.functional_call(net, {"second.weight": wf.zeros((3, 3))}, X)
    net.first.weight.apply_update(net.first.weight.detach())
    assert tied.tolist() == net(X).tolist()
    slope = wf.grad(lambda s: nn.functional_call(net, {"scale": s}, X).sum())(wf.tensor(1.0))
    assert slope.item() == pytest.approx((net(X) - net.shift).sum().item() / 2, abs=1e-5)


# Containers


def test_sequences_can_be_indexed_cut_and_changed():
    layers = [nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 4), nn.Tanh()]
    model = nn.Sequential(*layers)
    assert model[0] is layers[0] and model[-1] is layers[3] and len(model) == 4
    assert list(model[1:3]) == layers[1:3] and list(model[1:3]._modules) == ["1", "2"]
    model[1] = nn.GELU()
    assert isinstance(model[1], nn.GELU)
    assert model.append(nn.Identity()) is model and len(model) == 5
    del model[1]
    assert [type(m).__name__ for m in model] == ["Linear", "Linear", "Tanh", "Identity"]
    assert list(model._modules) == ["0", "1", "2", "3"]
    assert model.pop() is not None and len(model) == 3
    model.insert(1, layers[1])
    assert model[1] is layers[1] and model[2] is layers[2]
    assert len(model + nn.Sequential(nn.ReLU())) == 5
    named = nn.Sequential({"a": nn.Linear(2, 2), "b": nn.ReLU()})
    assert list(named.state_dict()) == ["a.weight", "a.bias"] and named.b is named[1]


def test_lists_and_dicts_of_modules():
    held = nn.ModuleList([nn.Linear(2, 2)]).append(nn.ReLU()).extend([nn.Tanh()])
    assert len(held) == 3 and [n for n, _ in held.named_parameters()] == ["0.weight", "0.bias"]
    assert isinstance(held[1:], nn.ModuleList) and len(held + held) == 6
    named = nn.ModuleDict({"a": nn.Linear(2, 2)})
    named["b"] = nn.ReLU()
    named.update([("c", nn.Tanh())])
    assert list(named) == list(named.keys()) == ["a", "b", "c"] and "b" in named
    assert isinstance(named.pop("b"), nn.ReLU) and len(named) == 2
    del named["c"]
    assert [n for n, _ in named.items()] == ["a"] and list(named.values()) == [named["a"]]


def test_lists_and_dicts_of_parameters():
    held = nn.ParameterList([wf.ones(2)]).append(wf.Parameter(wf.zeros(3)))
    held[0] = wf.full((4,), 2.0)
    assert [p.shape for p in held] == [(4,), (3,)] and len(held) == 2 and held[-1] is held[1]
    assert all(isinstance(p, wf.Parameter) for p in held)
    assert [n for n, _ in held.named_parameters()] == ["0", "1"] and len(held[:1]) == 1
    named = nn.ParameterDict({"a": wf.ones(2)})
    named.insert("b", wf.Parameter(wf.zeros(1)))
    assert list(named) == ["a", "b"] and "a" in named and named.get("c") is None
    model = nn.Module()
    model.inner = named
    assert [n for n, _ in model.named_parameters()] == ["inner.a", "inner.b"]
    del named["a"]
    assert list(named.keys()) == ["b"] and list(named.values()) == [p for _, p in named.items()]


def test_dense_is_linear_with_the_seeds_names():
    assert nn.Dense is nn.Linear
    layer = nn.Dense(3, 2)
    layer.set_weights(layer.weights().detach() * 0 + 1.5)
    assert layer.weights() is layer.weight and layer.weight.tolist() == [[1.5] * 3] * 2
    assert layer.weight.requires_grad


def test_optimizers_know_the_names():
    net = Net()
    optimizer = wf.optim.SGD(net, lr=0.1)
    before = net.scale.item()
    optimizer.step(loss(net, X).backward())
    assert net.scale.item() != before
    groups = wf.optim.by_pattern(net, {"*.bias": {"weight_decay": 0.0}})
    assert [n for n, _ in groups[0]["params"]] == ["first.bias", "second.bias"]


def test_importing_weft_does_not_import_modules():
    import subprocess
    import sys

    program = "import sys, weft; print('weft.nn' in sys.modules, 'optree' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert out.stdout.split() == ["False", "False"], out.stdout + out.stderr


FORGET = {
    "module": lambda m, opt, none: m.zero_grad(none),
    "optimizer": lambda m, opt, none: opt.zero_grad(none),
    "by hand": lambda m, opt, none: [setattr(p, "grad", None) for p in m.parameters()],
    "parameters": lambda m, opt, none: [p.zero_grad() for p in m.parameters()],
}


@pytest.mark.parametrize("way", FORGET)
@pytest.mark.parametrize("none", [True, False])
@pytest.mark.parametrize("frozen", [(), ("0.*",), ("*.bias",), ("*",), ("1.weight", "0.bias")])
@pytest.mark.parametrize("when", ["before", "after"])
def test_gradients_are_forgotten_whatever_is_frozen(way, none, frozen, when):
    model = wf.nn.Sequential(wf.nn.Linear(2, 3), wf.nn.Linear(3, 1))
    optimizer = wf.optim.SGD(model, lr=0.1)
    if when == "before":
        for pattern in frozen:
            model.freeze(pattern)
    if any(p.requires_grad for p in model.parameters()):
        model(wf.ones((2, 2))).sum().backward()
    for pattern in frozen:
        model.freeze(pattern)
    FORGET[way](model, optimizer, none)
    for p in model.parameters():
        assert p.grad is None or not np.any(p.grad.numpy())
    hidden = model[0](wf.ones((2, 2)))
    if hidden.requires_grad:
        hidden.retain_grad()
        hidden.sum().backward()
        hidden.grad = None
        assert hidden.grad is None
