"""Parameter groups by name pattern, and the seeds' multi-group optimizer."""

import numpy as np
import pytest
import torch

import weft as wf
from weft import errors


def parameters():
    shapes = {"encoder.w": (2, 2), "encoder.bias": (2,), "head.w": (2, 2), "head.bias": (2,)}
    return {name: wf.Parameter(np.ones(shape)) for name, shape in shapes.items()}


def test_patterns():
    params = parameters()
    groups = wf.optim.by_pattern(
        params, {"*.bias": {"weight_decay": 0.0}, "encoder.*": {"lr_scale": 0.1}}
    )
    names = [[name for name, _ in group["params"]] for group in groups]
    assert names == [["encoder.bias", "head.bias"], ["encoder.w"], ["head.w"]]
    optimizer = wf.optim.AdamW(groups, lr=0.1, weight_decay=0.5)
    assert [g["weight_decay"] for g in optimizer.param_groups] == [0.0, 0.5, 0.5]
    assert [g["lr_scale"] for g in optimizer.param_groups] == [1.0, 0.1, 1.0]
    assert [g["name"] for g in optimizer.param_groups] == ["*.bias", "encoder.*", None]
    optimizer.step(
        [wf.zeros(p.shape, dtype="float64") for some in names for p in map(params.get, some)]
    )
    assert params["head.bias"].tolist() == [1.0, 1.0]
    np.testing.assert_allclose(params["encoder.w"].tolist(), 1 - 0.1 * 0.1 * 0.5)
    np.testing.assert_allclose(params["head.w"].tolist(), 1 - 0.1 * 0.5)
    assert set(optimizer.state) == set(params)


def test_patterns_that_match_all():
    assert len(wf.optim.by_pattern(wf.ParameterDict(parameters()), {"*": {}})) == 1


def test_mistaken_patterns():
    with pytest.raises(errors.ArgumentError, match=r"'\*\.biass' matches none.*encoder.w"):
        wf.optim.by_pattern(parameters(), {"*.biass": {}})
    with pytest.raises(errors.ArgumentError, match=r"'head\.w' matches none of what is left"):
        wf.optim.by_pattern(parameters(), {"*.w": {}, "head.w": {}})
    with pytest.raises(errors.ArgumentError, match="without names"):
        wf.optim.by_pattern([wf.Parameter([1.0])], {"*": {}})
    with pytest.raises(TypeError):
        wf.optim.SGD(wf.optim.by_pattern(parameters(), {"*": {"decay": 0.0}}))
    with pytest.raises(TypeError):
        wf.optim.ParameterGroup([wf.Parameter([1.0])], scale=1.0)


def test_fields_of_a_group():
    for field, value in {"lr_scale": 0.5, "lr": 0.7, "weight_decay": 0.5}.items():
        p, q = wf.Parameter([1.0]), wf.Parameter([1.0])
        groups = [wf.optim.ParameterGroup([p]), wf.optim.ParameterGroup([q], **{field: value})]
        wf.optim.SGD(groups, lr=0.1).step([wf.ones(1), wf.ones(1)])
        assert p.tolist() != q.tolist(), field
    group = wf.optim.ParameterGroup([wf.Parameter([1.0])], name="head")
    assert wf.optim.SGD(group).param_groups[0]["name"] == "head"


@pytest.mark.parametrize("name", ["Adam", "SGD", "Lion", "Adafactor"])
def test_multi_group_optimizer(name):
    """Each group moves as if an optimizer of its own had the scaled learning rate."""
    p, q, alone = (wf.Parameter(np.ones((2, 2))) for _ in range(3))
    groups = [wf.optim.ParameterGroup([p], 1.0), wf.optim.ParameterGroup([q], lr_scale=0.25)]
    kind = getattr(wf.optim, name)
    optimizer = wf.optim.MultiGroupOptimizer(kind(lr=0.1), groups)
    single = kind([alone], lr=0.025)
    for step in range(5):
        g = wf.tensor(np.random.default_rng(step).standard_normal((2, 2)))
        grads = wf.GradientMap({p.id: g, q.id: g})
        optimizer.step(grads)
        single.step([g])
    np.testing.assert_allclose(q.tolist(), alone.tolist(), rtol=1e-12)
    assert p.tolist() != q.tolist() and optimizer.config.lr == 0.1
    saved = optimizer.state_dict()
    other = wf.optim.MultiGroupOptimizer(kind(lr=0.1), groups)
    other.load_state_dict(saved)
    assert other.state_dict()["state"]["1"]["step"] == 5
    optimizer.set_lr(0.4)
    assert optimizer.config.lr == optimizer.param_groups[1]["lr"] == 0.4
    p.grad = g
    optimizer.zero_grad()
    assert p.grad is None
    optimizer.reset()
    assert optimizer.state_dict()["state"] == {}


def test_a_base_with_parameters_is_refused():
    p = wf.Parameter([1.0])
    with pytest.raises(errors.ArgumentError, match="has parameters already"):
        wf.optim.MultiGroupOptimizer(wf.optim.SGD([p]), [wf.optim.ParameterGroup([p])])
    optimizer = wf.optim.MultiGroupOptimizer(wf.optim.SGD(), [wf.optim.ParameterGroup([p])])
    q = wf.Parameter([1.0])
    with pytest.raises(errors.ArgumentError, match="no parameter of this optimizer"):
        optimizer.step([(q.id, q, wf.ones(1))])


def test_a_group_at_rest_stays_at_rest():
    p, q = wf.Parameter([1.0]), wf.Parameter([1.0])
    optimizer = wf.optim.SGD([{"params": [p]}, {"params": [q], "lr": 0.0}], lr=0.1)
    optimizer.set_lr(0.5)
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.0]
    optimizer.step([wf.ones(1), wf.ones(1)])
    assert (p.tolist(), q.tolist()) == ([0.5], [1.0])


def test_settings_changed_on_the_way():
    """PyTorch's spelling is read; the moments go on as averages under the new rates."""
    start, rng = np.ones(3), np.random.default_rng(0)
    p, theirs = wf.Parameter(start), torch.tensor(start, requires_grad=True)
    ours, other = wf.optim.Adam([p], lr=0.1), torch.optim.Adam([theirs], lr=0.1)
    for step in range(6):
        if step == 3:
            for optimizer in (ours, other):
                optimizer.param_groups[0]["betas"] = (0.5, 0.6)
                optimizer.param_groups[0]["weight_decay"] = 0.2
        g = rng.standard_normal(3)
        ours.step([wf.tensor(g)])
        theirs.grad = torch.tensor(g)
        other.step()
    np.testing.assert_allclose(p.tolist(), theirs.tolist(), rtol=1e-12)
    assert ours.param_groups[0]["beta1"] == 0.5 and "betas" not in ours.param_groups[0]


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("beta1", 1.0, "beta1=1.0, expected a finite number in"),
        ("weight_decay", -1.0, "weight_decay=-1.0"),
        ("lr", float("nan"), "lr=nan"),
        ("eps", "small", "eps is 'small', expected a number"),
        ("weigth_decay", 0.1, "'weigth_decay' in a group of parameters.*weight_decay"),
    ],
)
def test_settings_that_make_no_sense_change_nothing(setting, value, message):
    p = wf.Parameter([1.0])
    optimizer = wf.optim.Adam([p], lr=0.1)
    optimizer.step([wf.ones(1)])
    before = p.tolist()
    optimizer.param_groups[0][setting] = value
    with pytest.raises(errors.WeftError, match=message):
        optimizer.step([wf.ones(1)])
    assert p.tolist() == before and optimizer.state["0"]["step"] == 1
