"""State: saved and brought back exactly, and refused with a list of what differs."""

import json

import numpy as np
import pytest

import weft as wf
from weft import errors
from weft.io.tree import Flattener, Restorer

ALL = """
    SGD Adam AdamW RMSprop Adagrad NAdam RAdam Lion LAMB Adafactor Muon Adam8bit AdamW8bit
""".split()
OPTIONS = {
    "SGD": {"momentum": 0.9},
    "RMSprop": {"centered": True, "momentum": 0.5},
    "AdamW": {"amsgrad": True},
    "Adafactor": {"beta1": 0.9},
}


@pytest.fixture(params=["cpu", "torch"])
def device(request):
    return request.param


def parameters(device, dtype="float32"):
    rng = np.random.default_rng(0)
    values = {"a.weight": rng.standard_normal((70, 60)), "b.weight": rng.standard_normal((4, 3))}
    return {k: wf.Parameter(wf.tensor(v, dtype=dtype, device=device)) for k, v in values.items()}


def gradients(params, step):
    rng = np.random.default_rng((9, step))
    values = [rng.standard_normal(p.shape) for p in params]
    pairs = zip(values, params, strict=True)
    return [wf.tensor(v, dtype=p.dtype, device=p.device) for v, p in pairs]


def made(name, params):
    return getattr(wf.optim, name)(params, lr=0.01, **OPTIONS.get(name, {}))


def through_json(saved):
    """What saving to a file and loading make of a state."""
    flattener = Flattener("state")
    skeleton = json.loads(json.dumps(flattener.skeleton(saved)))
    arrays = {k: np.array(wf.asarray(v).to("cpu").numpy()) for k, v in flattener.arrays.items()}
    return Restorer(arrays, "cpu", "memory").tree(skeleton)


@pytest.mark.parametrize("saving", [lambda s: s, through_json], ids=["memory", "file"])
@pytest.mark.parametrize("name", ALL)
def test_a_run_goes_on_bit_by_bit(name, device, saving):
    straight, broken = parameters(device), parameters(device)
    one = made(name, straight)
    for step in range(8):
        one.step(gradients(straight.values(), step))
    other = made(name, broken)
    for step in range(4):
        other.step(gradients(broken.values(), step))
    other.set_lr(0.01)
    saved = saving(other.state_dict())
    resumed = made(name, broken)
    resumed.set_lr(123.0)
    resumed.load_state_dict(saved)
    for step in range(4, 8):
        resumed.step(gradients(broken.values(), step))
    for key, p in straight.items():
        assert p.tolist() == broken[key].tolist()
    assert resumed.config == one.config
    _same(resumed.state_dict(), one.state_dict())


def _same(a, b):
    assert a.keys() == b.keys() and a["param_groups"] == b["param_groups"]
    assert a["config"] == b["config"]
    for key, own in a["state"].items():
        for name, value in own.items():
            other = b["state"][key][name]
            if isinstance(value, int | float):
                assert value == other
            else:
                assert value.dtype == other.dtype and value.tolist() == other.tolist()


def test_lbfgs_goes_on(device):
    def run(p, optimizer, steps):
        def closure():
            optimizer.zero_grad()
            loss = (100.0 * (p[1] - p[0] ** 2) ** 2 + (1.0 - p[0]) ** 2).sum()
            loss.backward()
            return loss

        for _ in range(steps):
            optimizer.step(closure)

    options = {"line_search_fn": "strong_wolfe", "max_iter": 3, "history_size": 3}
    start = wf.tensor([-1.2, 1.0], dtype="float64", device=device)
    p, q = wf.Parameter(start), wf.Parameter(start)
    one = wf.optim.LBFGS([p], **options)
    run(p, one, 6)
    other = wf.optim.LBFGS([q], **options)
    run(q, other, 3)
    saved = through_json(other.state_dict())
    resumed = wf.optim.LBFGS([q], **options)
    resumed.load_state_dict(saved)
    run(q, resumed, 3)
    assert p.tolist() == q.tolist() and one.memory["n_iter"] == resumed.memory["n_iter"]
    fresh = wf.optim.LBFGS([wf.Parameter(start)])
    again = wf.optim.LBFGS([wf.Parameter(start)])
    again.load_state_dict(fresh.state_dict())
    assert again.memory == fresh.memory
    with pytest.raises(errors.StateMismatch, match=r"moves \(expected \(3, 3\), found \(3, 2\)\)"):
        wf.optim.LBFGS([wf.Parameter(np.zeros(3))], **options).load_state_dict(saved)
    with pytest.raises(errors.ArgumentError, match="parameters first"):
        wf.optim.LBFGS().load_state_dict(saved)
    resumed.reset()
    assert resumed.memory["n_iter"] == 0 and resumed.memory["moves"] == []


def test_a_saved_state_does_not_change():
    params = parameters("cpu")
    optimizer = made("Adam", params)
    optimizer.step(gradients(params.values(), 0))
    saved = optimizer.state_dict()
    kept = saved["state"]["a.weight"]["exp_sum"].tolist()
    optimizer.step(gradients(params.values(), 1))
    assert saved["state"]["a.weight"]["exp_sum"].tolist() == kept
    other = made("Adam", parameters("cpu"))
    other.load_state_dict(saved)
    other.step(gradients(params.values(), 1))
    assert saved["state"]["a.weight"]["exp_sum"].tolist() == kept
    assert saved["state"]["a.weight"]["step"] == 1


def test_the_state_is_plain():
    params = parameters("cpu")
    optimizer = made("NAdam", params)
    optimizer.step(gradients(params.values(), 0))
    saved = optimizer.state_dict()
    assert saved["optimizer"] == "NAdam" and set(saved["state"]) == set(params)
    assert saved["param_groups"][0]["params"] == list(params)
    own = saved["state"]["b.weight"]
    assert own["step"] == 1 and type(own["mu_product"]) is float
    assert json.loads(json.dumps(saved["config"])) == saved["config"]
    assert json.loads(json.dumps(saved["param_groups"])) == saved["param_groups"]
    unnamed = made("Adam", list(params.values()))
    unnamed.step(gradients(params.values(), 0))
    assert set(unnamed.state_dict()["state"]) == {"0", "1"}


def test_state_before_parameters(device):
    params = list(parameters(device).values())
    one = wf.optim.Adam(wf.optim.AdamConfig(lr=0.1))
    for step in range(3):
        one.step([(p.id, p, g) for p, g in zip(params, gradients(params, step), strict=True)])
    saved = one.state_dict()
    other = wf.optim.Adam()
    other.load_state_dict(saved)
    assert other.config == one.config
    _same(other.state_dict() | {"param_groups": []}, saved | {"param_groups": []})
    copies = [wf.Parameter(p.detach()) for p in params]
    for optimizer, held in ((one, params), (other, copies)):
        grads = gradients(held, 3)
        optimizer.step([(p.id, p, g) for p, g in zip(held, grads, strict=True)])
    assert [p.tolist() for p in copies] == [p.tolist() for p in params]
    wrong = wf.optim.Adam()
    wrong.load_state_dict(saved)
    with pytest.raises(
        errors.StateMismatch, match=r"0.exp_sum \(expected \(2,\), found \(70, 60\)"
    ):
        wrong.step([(0, wf.Parameter([1.0, 2.0]), wf.ones(2))])


def test_groups_come_back():
    params = parameters("cpu")
    a, b = params.items()
    groups = [{"params": [a], "lr": 0.5}, {"params": [b], "weight_decay": 0.1}]
    one = wf.optim.AdamW(groups, lr=0.1)
    one.set_lr(0.2)
    other = wf.optim.AdamW(groups, lr=0.1)
    other.load_state_dict(one.state_dict())
    assert [g["lr"] for g in other.param_groups] == [1.0, 0.2]
    other.set_lr(0.1)
    assert [g["lr"] for g in other.param_groups] == [0.5, 0.1]


def test_what_differs_is_listed():
    params = parameters("cpu")
    optimizer = made("AdamW", params)
    optimizer.step(gradients(params.values(), 0))
    saved = optimizer.state_dict()

    def refused(match, **changes):
        other = made("AdamW", params)
        other.step(gradients(params.values(), 1))
        kept = other.state_dict()
        with pytest.raises((errors.StateMismatch, errors.ArgumentError), match=match):
            other.load_state_dict(saved | changes)
        _same(other.state_dict(), kept)

    narrow = {**saved["state"]["b.weight"], "exp_sum": wf.ones((3, 3))}
    refused(
        r"mismatched: b.weight.exp_sum \(expected \(4, 3\), found \(3, 3\)\)",
        state={**saved["state"], "b.weight": narrow},
    )
    less = {k: v for k, v in saved["state"]["b.weight"].items() if k != "exp_sum_sq"}
    refused("missing: b.weight.exp_sum_sq", state={**saved["state"], "b.weight": less})
    more = {**saved["state"]["b.weight"], "sum": wf.ones(1)}
    refused("unexpected: b.weight.sum", state={**saved["state"], "b.weight": more})
    refused("unexpected: c", state={**saved["state"], "c": less})
    refused("is of 'Adam', expected 'AdamW'", optimizer="Adam")
    refused("missing: lr", config={k: v for k, v in saved["config"].items() if k != "lr"})
    refused("unexpected: group 1", param_groups=saved["param_groups"] * 2)
    group = {**saved["param_groups"][0], "params": ["a.weight"]}
    refused("group 0.*missing: b.weight", param_groups=[group])
    group = {**saved["param_groups"][0], "momentum": 0.5}
    refused("unexpected: momentum", param_groups=[group])
    with pytest.raises(errors.ArgumentError, match="expected what state_dict"):
        optimizer.load_state_dict({})


def test_half_states_are_single_precision(device):
    p = wf.Parameter(wf.ones((3, 3), dtype="bfloat16", device=device))
    optimizer = wf.optim.Adam([p], lr=0.1)
    optimizer.step([wf.ones((3, 3), dtype="bfloat16", device=device)])
    assert optimizer.state_dict()["state"]["0"]["exp_sum"].dtype == wf.float32


def test_files(tmp_path):
    params = parameters("cpu")
    optimizer = made("AdamW8bit", params)
    optimizer.step(gradients(params.values(), 0))
    wf.save_optimizer(tmp_path / "state.safetensors", optimizer)
    loaded = wf.load_optimizer(tmp_path / "state.safetensors", made("AdamW8bit", params))
    _same(loaded.state_dict(), optimizer.state_dict())
    unbound = wf.load_optimizer(tmp_path / "state.safetensors", wf.optim.AdamW8bit)
    assert unbound.config == optimizer.config


@pytest.mark.parametrize("name", ["Adam", "Adam8bit", "Adafactor"])
def test_the_state_follows_its_parameter(name):
    """A module that was moved or cast after the first step goes on with the moments it had."""
    here, there = parameters("cpu"), parameters("cpu")
    one, other = made(name, here), made(name, there)
    for step in range(4):
        if step == 2:
            for p in there.values():
                p._data = p.detach().to("torch")._data
        one.step(gradients(here.values(), step))
        other.step(gradients(there.values(), step))
    for key, p in there.items():
        assert p.device == "torch"
        np.testing.assert_allclose(p.tolist(), here[key].tolist(), rtol=1e-5, atol=1e-6)
    for own in other.state_dict()["state"].values():
        assert {t.device for t in own.values() if isinstance(t, wf.Tensor)} == {"torch"}
