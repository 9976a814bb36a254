"""What all optimizers do alike: parameters, gradients in every form, groups, updates."""

import copy

import numpy as np
import pytest
import torch

import weft as wf
from weft import errors

ALL = """
    SGD Adam AdamW RMSprop Adagrad NAdam RAdam Lion LAMB Adafactor Muon Adam8bit AdamW8bit
""".split()


@pytest.fixture(params=["cpu", "torch"])
def device(request):
    return request.param


def matrix(seed=0, shape=(3, 2), dtype="float64", device="cpu"):
    values = np.random.default_rng(seed).standard_normal(shape)
    return wf.Parameter(wf.tensor(values, dtype=dtype, device=device))


def gradient_of(p, seed=5):
    values = np.random.default_rng(seed).standard_normal(p.shape)
    return wf.tensor(values, dtype=p.dtype, device=p.device)


# The forms of gradients


def forms(p, q):
    """The same step in every form."""
    g, h = gradient_of(p), gradient_of(q, 6)
    grads = wf.GradientMap()
    grads.insert(p, g)
    grads.insert(q.id, h)

    def accumulated(optimizer):
        p.grad, q.grad = g, h
        optimizer.step()

    def closure(optimizer):
        def evaluate():
            p.grad, q.grad = g, h
            return "the loss"

        assert optimizer.step(evaluate) == "the loss"

    return {
        "attribute": accumulated,
        "closure": closure,
        "map": lambda o: o.step(grads),
        "list": lambda o: o.step([g, h]),
        "tuple": lambda o: o.step((g, h)),
        "triples": lambda o: o.step([(p.id, p, g), (q.id, q, h)]),
        "names": lambda o: o.step([("p", p, g), ("q", q, h)]),
        "pairs": lambda o: o.apply_gradients([(p, g), (q, h)]),
        "lists": lambda o: o.apply_gradients([[p, g], [q, h]]),
        "arrays": lambda o: o.step([np.asarray(g.tolist()), np.asarray(h.tolist())]),
        "dict": lambda o: o.step({o.entries()[0].key: g, o.entries()[1].key: h}),
    }


@pytest.mark.parametrize("form", forms(matrix(), matrix(1)))
def test_gradients_in_every_form(form):
    found = {}
    for name in ("attribute", form):
        p, q = matrix(), matrix(1)
        forms(p, q)[name](wf.optim.Adam([p, q], lr=0.1))
        found[name] = p.tolist(), q.tolist()
    assert found[form] == found["attribute"]


def test_binding_at_the_first_step(device):
    p, q = matrix(device=device), matrix(1, device=device)
    bound, unbound = (copy.deepcopy([p, q]) for _ in range(2))
    one = wf.optim.AdamW(bound, lr=0.1)
    other = wf.optim.AdamW(wf.optim.AdamWConfig(lr=0.1))
    for step in range(3):
        grads = [gradient_of(x, step) for x in (p, q)]
        one.step(grads)
        other.step([(x.id, x, g) for x, g in zip(unbound, grads, strict=True)])
    for x, y in zip(bound, unbound, strict=True):
        assert x.tolist() == y.tolist()
    assert all(a is b for a, b in zip(other.param_groups[0]["params"], unbound, strict=True))
    assert other.step([]) is None


def test_a_real_loss_goes_down(device):
    rng = np.random.default_rng(0)
    x = wf.tensor(rng.standard_normal((32, 4)), device=device)
    y = wf.tensor(rng.standard_normal((32, 2)), device=device)
    for name in ALL:
        w = wf.Parameter(wf.zeros((4, 2), dtype="float64", device=device) + 0.1)
        optimizer = getattr(wf.optim, name)([w], lr=0.01)
        first = None
        for _ in range(30):
            loss = ((x @ w - y) ** 2).mean()
            first = first or loss.item()
            optimizer.step(loss.backward())
        assert loss.item() < first, name


def test_parameters_without_a_gradient_are_left_alone():
    p, q = matrix(), matrix(1)
    before = q.tolist()
    optimizer = wf.optim.Adam([p, q], lr=0.1, weight_decay=0.5)
    optimizer.step([gradient_of(p), None])
    assert q.tolist() == before and list(optimizer.state) == ["0"]
    optimizer.step([gradient_of(p), gradient_of(q)])
    assert optimizer.state["0"]["step"] == 2 and optimizer.state["1"]["step"] == 1
    frozen = wf.Parameter([1.0], requires_grad=False)
    wf.optim.SGD([frozen], lr=1.0).step()
    assert frozen.tolist() == [1.0]


# What a step does to memory and to graphs


def test_a_step_records_nothing(device):
    p = matrix(device=device)
    grads = (p * p).sum().backward(create_graph=True)
    assert grads[p].requires_grad
    optimizer = wf.optim.AdamW([p], lr=0.1)
    optimizer.step(grads)
    assert p.is_leaf and p.requires_grad and type(p) is wf.Parameter
    assert not optimizer.state_dict()["state"]["0"]["exp_sum"].requires_grad


def test_a_step_before_backward_is_noticed(device):
    p = matrix(device=device)
    loss = (p * p).sum()
    wf.optim.SGD([p], lr=0.1).step([gradient_of(p)])
    with pytest.raises(errors.SavedValueOverwritten, match="optimizer step"):
        loss.backward()


def test_gradients_are_not_changed(device):
    for name in ALL:
        p = matrix(device=device)
        g = gradient_of(p).to("float32")
        kept = g.tolist()
        getattr(wf.optim, name)([p], lr=0.1, weight_decay=0.1).step([g])
        assert g.tolist() == kept, name


def test_shared_memory_is_copied_before_it_is_written():
    p = matrix()
    view = p.detach()
    copied = wf.asarray(p.detach().numpy())
    p._data.flags.writeable = False
    wf.optim.SGD([p], lr=1.0).step([gradient_of(p)])
    assert copied.tolist() == view.tolist() != p.tolist()


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types_are_updated_in_float32(device, name, dtype):
    values = np.random.default_rng(0).standard_normal((70, 60))
    half = wf.Parameter(wf.tensor(values, dtype=dtype, device=device))
    single = wf.Parameter(half.detach().to("float32"))
    g = wf.tensor(
        np.random.default_rng(1).standard_normal((70, 60)), dtype="float32", device=device
    )
    for p in (half, single):
        getattr(wf.optim, name)([p], lr=0.1).step([g])
    assert half.dtype == wf.canonical_dtype(dtype)
    expected = single.detach().to(dtype).to("float32")
    assert half.detach().to("float32").tolist() == expected.tolist()


@pytest.mark.parametrize("name", ALL)
def test_memory_that_is_not_contiguous(device, name):
    p = matrix(shape=(80, 60), device=device)
    raw = p._data
    strided = (
        torch.zeros(60, 160, dtype=torch.float64) if device == "torch" else np.zeros((60, 160))
    )
    strided = strided.T[::2]
    strided[:] = raw
    q = matrix(shape=(80, 60), device=device)
    q._data = strided
    g = gradient_of(p)
    turned = wf.tensor(np.asfortranarray(g.tolist()), device=device)
    for _ in range(3):
        getattr(wf.optim, name)([p], lr=0.1).step([g])
        getattr(wf.optim, name)([q], lr=0.1).step([turned])
    np.testing.assert_allclose(q.tolist(), p.tolist(), rtol=1e-12)


def test_sizes_of_zero_and_no_axes(device):
    empty, point = matrix(shape=(0, 3), device=device), matrix(shape=(), device=device)
    before = point.item()
    for name in ALL:
        if name != "Muon":
            optimizer = getattr(wf.optim, name)([empty, point], lr=0.1)
            optimizer.step([gradient_of(empty), gradient_of(point)])
    assert empty.shape == (0, 3) and point.item() != before


# compute_update


@pytest.mark.parametrize("name", ALL)
def test_compute_update_is_what_a_step_subtracts(name):
    p, q = matrix(), matrix()
    mine, yours = (getattr(wf.optim, name)([x], lr=0.1) for x in (p, q))
    for step in range(3):
        update = mine.compute_update(gradient_of(p, step))
        p.apply_update(update)
        yours.step([gradient_of(q, step)])
        np.testing.assert_allclose(p.tolist(), q.tolist(), rtol=1e-14, atol=1e-15)


def test_compute_update_without_a_parameter():
    optimizer = wf.optim.SGD(wf.optim.SGDConfig(lr=0.5, momentum=0.5))
    g = wf.tensor([2.0, 4.0])
    assert optimizer.compute_update(g).tolist() == [1.0, 2.0]
    assert optimizer.compute_update(g).tolist() == [1.5, 3.0]
    with pytest.raises(errors.ShapeError):
        optimizer.compute_update(wf.tensor([1.0]))
    p, q = matrix(), matrix(1)
    several = wf.optim.SGD([p, q], lr=0.5)
    with pytest.raises(errors.ArgumentError, match="which of the 2 parameters"):
        several.compute_update(gradient_of(p))
    assert several.compute_update(gradient_of(q), q).shape == q.shape


# Learning rates and groups


def test_set_lr_and_config():
    p, q, r = (matrix(i) for i in range(3))
    groups = [
        {"params": [p]},
        {"params": [q], "lr": 0.2, "weight_decay": 0.5},
        wf.optim.ParameterGroup([r], lr_scale=0.5, name="slow"),
    ]
    optimizer = wf.optim.SGD(groups, lr=0.1)
    assert [g["lr"] for g in optimizer.param_groups] == [0.1, 0.2, 0.1]
    assert [g["lr_scale"] for g in optimizer.param_groups] == [1.0, 1.0, 0.5]
    assert [g["weight_decay"] for g in optimizer.param_groups] == [0.0, 0.5, 0.0]
    optimizer.set_lr(0.0)
    optimizer.set_lr(1.0)
    assert optimizer.config.lr == 1.0
    assert [g["lr"] for g in optimizer.param_groups] == [1.0, 2.0, 1.0]
    before = [np.asarray(x.tolist()) for x in (p, q, r)]
    ones = [wf.ones((3, 2), dtype="float64")] * 3
    optimizer.step(ones)
    changes = [b - np.asarray(x.tolist()) for b, x in zip(before, (p, q, r), strict=True)]
    np.testing.assert_allclose(changes[0], 1.0)
    np.testing.assert_allclose(changes[1], 2.0 * (1.0 + 0.5 * before[1]))
    np.testing.assert_allclose(changes[2], 0.5)
    optimizer.param_groups[0]["lr"] = 3.0
    kept = np.asarray(p.tolist())
    optimizer.step(ones)
    np.testing.assert_allclose(kept - np.asarray(p.tolist()), 3.0)
    for bad in (-1.0, float("nan")):
        with pytest.raises(errors.ArgumentError, match=r"lr=.*expected a finite number"):
            optimizer.set_lr(bad)
        optimizer.param_groups[0]["lr"] = bad
        with pytest.raises(errors.ArgumentError, match=r"lr=.*expected a finite number"):
            optimizer.step(ones)
        optimizer.param_groups[0]["lr"] = 1.0


def test_adding_a_group():
    p, q = matrix(), matrix(1)
    optimizer = wf.optim.Adam([("p", p)], lr=0.1)
    optimizer.add_param_group({"params": [("q", q)], "betas": (0.5, 0.6)})
    assert [e.key for e in optimizer.entries()] == ["p", "q"]
    assert optimizer.param_groups[1]["beta1"] == 0.5
    optimizer.step([gradient_of(p), gradient_of(q)])
    assert set(optimizer.state) == {"p", "q"}
    with pytest.raises(errors.ArgumentError, match="'p' was given twice"):
        optimizer.add_param_group([("p", matrix(2))])
    assert len(optimizer.param_groups) == 2


def test_reset_and_zero_grad():
    p = matrix()
    optimizer = wf.optim.Adam([p], lr=0.1)
    p.grad = gradient_of(p)
    first = np.asarray(p.tolist())
    optimizer.step()
    moved = first - np.asarray(p.tolist())
    optimizer.step()
    optimizer.reset()
    assert optimizer.state == {}
    before = np.asarray(p.tolist())
    optimizer.step()
    np.testing.assert_allclose(before - np.asarray(p.tolist()), moved, rtol=1e-12)
    optimizer.zero_grad(set_to_none=False)
    assert p.grad.tolist() == np.zeros(p.shape).tolist()
    optimizer.zero_grad()
    assert p.grad is None
    optimizer.zero_grad(set_to_none=False)
    assert p.grad is None


class Holder:
    """What a module looks like to an optimizer."""

    def __init__(self):
        self.w, self.b = matrix(), matrix(1, (2,))

    def named_parameters(self):
        yield "w", self.w
        yield "b", self.b


def test_where_parameters_come_from():
    holder = Holder()
    keys = {
        "module": (wf.optim.SGD(holder), ["w", "b"]),
        "pairs": (wf.optim.SGD(holder.named_parameters()), ["w", "b"]),
        "dict": (wf.optim.SGD({"w": holder.w}), ["w"]),
        "ParameterDict": (wf.optim.SGD(wf.ParameterDict({"w": holder.w})), ["w"]),
        "generator": (wf.optim.SGD(p for p in [holder.w, holder.b]), ["0", "1"]),
        "group": (wf.optim.SGD({"params": [holder.w]}), ["0"]),
        "leaf": (wf.optim.SGD([wf.tensor([1.0], requires_grad=True)]), ["0"]),
    }
    for name, (optimizer, expected) in keys.items():
        assert [e.key for e in optimizer.entries()] == expected, name
    assert "SGD(2 parameters, 8 elements" in repr(keys["module"][0])


def test_a_bad_gradient_stops_the_step_before_it_begins():
    p, q = matrix(), matrix(1)
    optimizer = wf.optim.Adam([p, q], lr=0.1)
    before = p.tolist()
    with pytest.raises(errors.ShapeError):
        optimizer.step([gradient_of(p), wf.ones(3)])
    assert p.tolist() == before and optimizer.state == {}


def test_optimizers_are_copied_with_their_parameters():
    p = matrix()
    optimizer = wf.optim.Adam([("p", p)], lr=0.1)
    optimizer.step([gradient_of(p)])
    q, other = copy.deepcopy((p, optimizer))
    for x, o in ((p, optimizer), (q, other)):
        o.step([(x.id, x, gradient_of(x, 9))])
    assert q is not p and q.tolist() == p.tolist()


@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize("name", ["SGD", "AdamW", "RMSprop", "Adagrad", "Lion"])
def test_a_state_of_another_shape_is_refused(name, device):
    """Kernels would write beyond it."""
    p = wf.Parameter(wf.ones((64, 64), device=device))
    options = {"momentum": 0.9} if name == "SGD" else {}
    optimizer = getattr(wf.optim, name)([p], lr=0.1, **options)
    g = wf.ones((64, 64), device=device)
    optimizer.step([g])
    (key,) = optimizer.state
    own = optimizer.state[key]
    for slot in [n for n, v in own.items() if getattr(v, "ndim", 0)]:
        held, before, count = own[slot], p.detach().numpy().copy(), own["step"]
        own[slot] = held[:2]
        with pytest.raises(wf.errors.ShapeError, match=rf"{slot} .*\(2, 64\), expected \(64, 64\)"):
            optimizer.step([g])
        assert own["step"] == count
        np.testing.assert_array_equal(p.detach().numpy(), before)
        own[slot] = held
    optimizer.step([g])
