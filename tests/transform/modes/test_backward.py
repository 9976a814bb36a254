"""`backward()`: maps, accumulation, seeds, hooks, contexts and the errors they promise."""

import asyncio
import threading

import numpy as np
import pytest

import weft as wf
from weft import errors


def leaf(data=(1.0, 2.0, 3.0)):
    return wf.tensor(list(data), dtype="float64", requires_grad=True)


def test_map_and_running_sum():
    x = leaf()
    first = (x * x).sum().backward()
    second = (3 * x).sum().backward()
    assert first[x].tolist() == [2.0, 4.0, 6.0]
    assert second[x].tolist() == [3.0, 3.0, 3.0]
    assert x.grad.tolist() == [5.0, 7.0, 9.0]


def test_accumulation_equals_the_big_batch():
    w = wf.tensor(np.arange(3.0), requires_grad=True)
    data = np.random.default_rng(0).normal(size=(8, 3))
    whole = ((wf.asarray(data) @ w) ** 2).mean().backward()[w].numpy()
    total = wf.GradientMap()
    for part in np.split(data, 4):
        loss = ((wf.asarray(part) @ w) ** 2).mean() / 4
        for key, g in loss.backward().items():
            total.accumulate(key, g)
    np.testing.assert_allclose(total[w].numpy(), whole, rtol=1e-14)


def test_gradients_share_memory_until_one_is_written():
    x = leaf()
    grads = (x * x).sum().backward()
    assert np.shares_memory(grads[x].numpy(), x.grad.numpy())
    wf.mul(grads[x], 2.0, out=grads[x])
    assert grads[x].tolist() == [4.0, 8.0, 12.0]
    assert x.grad.tolist() == [2.0, 4.0, 6.0]


def test_gradients_never_alias():
    x, y = leaf(), leaf()
    grads = (x + y).sum().backward()
    wf.mul(grads[x], 0.0, out=grads[x])
    assert grads[y].tolist() == [1.0, 1.0, 1.0]
    seed = wf.ones(3, dtype="float64")
    grads = (x + y).backward(seed)
    wf.mul(grads[x], 0.0, out=grads[x])
    assert seed.tolist() == grads[y].tolist() == [1.0, 1.0, 1.0]


def test_map_interface():
    x, y, z = leaf(), leaf(), leaf()
    grads = (x * y).sum().backward()
    assert set(grads) == {x.id, y.id} and len(grads) == 2
    assert x in grads and z not in grads and grads.get(z) is None
    for key, g in grads.items():
        grads[key] = g / 2
    assert grads[x].tolist() == [0.5, 1.0, 1.5]
    grads.scale_(4.0)
    assert grads[y].tolist() == [2.0, 4.0, 6.0]
    grads.insert(z.id, wf.ones(3))
    grads.add_(grads)
    assert grads[z].tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda x: wf.tensor([1.0]), "requires_grad=True"),
        (lambda x: leaf(), "took no part"),
        (lambda x: x * 2, "retain_grad"),
    ],
    ids=["untracked", "unused", "intermediate"],
)
def test_a_missing_gradient_explains_itself(make, words):
    x = leaf()
    grads = (x * x).sum().backward()
    with pytest.raises(errors.MissingGradient, match=words):
        grads[make(x)]


def test_a_non_scalar_needs_a_seed():
    x = leaf()
    with pytest.raises(errors.NonScalarBackward, match=r"\(3,\).*grad="):
        (x * x).backward()
    seed = wf.tensor([1.0, 0.0, 2.0], dtype="float64")
    assert (x * x).backward(seed)[x].tolist() == [2.0, 0.0, 12.0]
    with pytest.raises(errors.ShapeError, match=r"\(2,\)"):
        (x * x).backward(wf.ones(2))


def test_a_second_pass_names_the_line_and_the_option():
    x = leaf()
    y = (x * x).sum()
    y.backward()
    with pytest.raises(errors.GraphFreed, match=r"test_backward.py:\d+.*retain_graph=True"):
        y.backward()
    y = (x * x).sum()
    assert y.backward(retain_graph=True)[x].tolist() == y.backward()[x].tolist()


def test_differentiating_a_severed_gradient_names_the_option():
    x = leaf()
    g = (x * x).sum().backward()[x]
    with pytest.raises(errors.GradientNotRecorded, match=r"test_backward.py:\d+.*create_graph"):
        (g * g).sum().backward()
    with pytest.raises(errors.GradientNotRecorded, match=r"create_graph.*detach"):
        (g * x).sum().backward()
    penalty = (g.detach() * x).sum()
    assert penalty.backward()[x].tolist() == [2.0, 4.0, 6.0]


def test_create_graph_gives_every_order():
    x = leaf([0.5])
    y, expected = wf.sin(x), [np.cos(0.5), -np.sin(0.5), -np.cos(0.5), np.sin(0.5)]
    for value in expected:
        y = y.sum().backward(create_graph=True)[x]
        np.testing.assert_allclose(y.tolist(), [value], rtol=1e-14)


def test_gradient_penalty():
    x, w = leaf(), leaf([0.3, -0.2, 0.5])
    y = wf.tanh(x * w).sum()
    g = y.backward(create_graph=True)[x]
    penalty = ((g * g).sum() - 1) ** 2
    got = penalty.backward()[w].numpy()

    def value(v):
        d = v * (1 - np.tanh(x.detach().numpy() * v) ** 2)
        return ((d * d).sum() - 1) ** 2

    w0, h = w.detach().numpy(), 1e-6
    for i in range(3):
        e = np.eye(3)[i] * h
        np.testing.assert_allclose(got[i], (value(w0 + e) - value(w0 - e)) / (2 * h), rtol=1e-8)


def test_nothing_recorded_is_an_error_with_the_fix():
    with pytest.raises(errors.NoGraph, match="requires_grad=True"):
        (wf.ones(3) * 2).sum().backward()
    with pytest.raises(errors.NotDifferentiable, match="int64"):
        wf.tensor([1, 2]).sum().backward()


def test_no_grad_and_enable_grad():
    x = leaf()
    with wf.no_grad():
        assert not (x * 2).requires_grad
        with wf.enable_grad():
            assert (x * 2).requires_grad
    assert (x * 2).requires_grad

    @wf.no_grad()
    def f(x):
        return x * 2

    assert not f(x).requires_grad and not f(x).requires_grad

    @wf.no_grad()
    def steps(x):
        sent = yield x * 2
        yield x * sent

    generator = steps(x)
    assert not next(generator).requires_grad
    assert (x * 2).requires_grad  # the caller of a generator is not switched
    assert generator.send(3).tolist() == [3.0, 6.0, 9.0]

    @wf.no_grad()
    async def later(x):
        await asyncio.sleep(0)
        return x * 2

    assert not asyncio.run(later(x)).requires_grad


def test_no_grad_is_per_thread_and_per_task():
    x = leaf()
    seen = []
    with wf.no_grad():
        t = threading.Thread(target=lambda: seen.append((x * 2).requires_grad))
        t.start()
        t.join()
    assert seen == [True]

    async def quiet():
        with wf.no_grad():
            await asyncio.sleep(0.01)
            return (x * 2).requires_grad

    async def loud():
        await asyncio.sleep(0.005)
        return (x * 2).requires_grad

    async def both():
        return await asyncio.gather(quiet(), loud())

    assert asyncio.run(both()) == [False, True]


def test_hooks_change_and_watch_gradients():
    x = leaf()
    seen = []
    handle = x.register_hook(lambda g: seen.append(g.tolist()) or g * 10)
    y = x * 2
    y.register_hook(lambda g: g + 1)
    y.retain_grad()
    assert (y.sum()).backward()[x].tolist() == [40.0, 40.0, 40.0]
    assert seen == [[4.0, 4.0, 4.0]] and y.grad.tolist() == [2.0, 2.0, 2.0]
    handle.remove()
    assert (x * 2).sum().backward()[x].tolist() == [2.0, 2.0, 2.0]
    with pytest.raises(errors.ShapeError, match="hook"):
        x.register_hook(lambda g: g.sum())
        x.sum().backward()


def test_hooks_see_the_whole_gradient_once():
    x = leaf()
    calls = []
    x.register_hook(lambda g: calls.append(g.tolist()))
    (x + x * 3).sum().backward()
    assert calls == [[4.0, 4.0, 4.0]]


def test_saved_tensors_hooks():
    x = leaf()
    packed = []

    def pack(t):
        packed.append(t.shape)
        return t.to("float32")

    with wf.saved_tensors_hooks(pack, lambda t: t.to("float64")):
        y = wf.exp(x).sum()
    assert packed == [(3,)]
    np.testing.assert_allclose(y.backward()[x].numpy(), np.exp([1.0, 2.0, 3.0]), rtol=1e-6)


def test_detect_anomaly_stops_at_the_first():
    x = leaf([0.0])
    with wf.detect_anomaly(), np.errstate(all="ignore"):
        with pytest.raises(errors.AnomalyError, match=r"log .*forward.*test_backward.py:\d+"):
            wf.log(x) * 2
        y = wf.sqrt(x).sum()
        with pytest.raises(errors.AnomalyError, match=r"backward.*sqrt \(at test_backward.py:\d+"):
            y.backward()


def test_overwriting_a_saved_value_raises():
    x, buffer = leaf(), wf.ones(3, dtype="float64")
    y = (x * buffer).sum()
    wf.add(buffer, 1.0, out=buffer)
    with pytest.raises(errors.SavedValueOverwritten, match=r"multiply \(at test_backward.py"):
        y.backward()
    p = wf.Parameter(wf.ones(3))
    y = (p * p).sum()
    p.apply_update(wf.ones(3))
    with pytest.raises(errors.SavedValueOverwritten):
        y.backward()
    assert (p * p).sum().backward()[p].tolist() == [0.0, 0.0, 0.0]
    view = wf.Parameter(wf.ones((2, 3)))
    y = (view.T @ wf.ones((2, 2))).sum() + (wf.ones((3, 2)) @ view).exp().sum()
    y.backward(retain_graph=True)
    view.apply_update(wf.ones((2, 3)))


@pytest.mark.usefixtures("no_graphs")
def test_a_deep_chain_neither_recurses_nor_leaks():
    x = leaf([1.0])
    y = x
    for _ in range(50_000):
        y = y + 0.0
    assert y.sum().backward(retain_graph=True)[x].tolist() == [1.0]
    del y
    assert wf.memory_stats().tensors == 0


def test_explain_grad():
    x, w = leaf(), leaf()
    text = wf.explain_grad((wf.floor(x) * 2).sum(), x)
    assert "floor" in text and "piecewise constant" in text and "test_backward.py" in text
    text = wf.explain_grad((x.detach() * w).sum(), x)
    assert "multiply" in text and "argument 0" in text
    assert "no_grad" in wf.explain_grad(wf.ones(1).sum(), x)
    assert "requires_grad=True" in wf.explain_grad((w * 2).sum(), wf.ones(1))


def test_graph_of_lists_entries():
    x = leaf()
    entries = wf.graph_of((x * x).sum())
    assert [e.op for e in entries] == ["multiply", "sum"]
    assert entries[0].inputs == (x.id, x.id)
    assert entries[0].saved == ((3,), (3,)) and entries[1].saved == ()
    assert entries[0].line.startswith("test_backward.py:")


@pytest.mark.usefixtures("no_graphs")
def test_memory_stats_and_clear_tape():
    wf.clear_tape()
    x = wf.ones(1000, requires_grad=True)
    y = wf.exp(x)
    stats = wf.memory_stats()
    assert stats.bytes == 4000 and stats.by_op == {"exp": 4000} and stats.tensors == 1
    assert stats.saved_memory_mb == 4000 / 2**20
    assert all(line.startswith("test_backward.py:") for line in stats.by_line)
    wf.clear_tape()
    assert wf.memory_stats().bytes == 0
    with pytest.raises(errors.GraphFreed):
        y.sum().backward()


@pytest.mark.usefixtures("no_graphs")
@pytest.mark.parametrize(
    ("f", "kept"),
    [
        (lambda x: wf.relu(x), 1000),
        (lambda x: x.reshape((10, 100)), 0),
        (lambda x: x[::2], 0),
        (lambda x: x + x, 0),
        (lambda x: wf.sum(x), 0),
        (lambda x: wf.broadcast_to(x, (3, 1000)), 0),
        (lambda x: wf.tanh(x), 4000),
        (lambda x: wf.softmax(x), 4000),
        (lambda x: wf.concat([x, x]), 0),
    ],
    ids="relu reshape slice add sum broadcast tanh softmax concat".split(),
)
def test_little_is_saved(f, kept):
    wf.clear_tape()
    x = wf.ones(1000, requires_grad=True)
    y = f(x)
    assert wf.memory_stats().bytes == kept
    del y


@pytest.mark.usefixtures("no_graphs")
def test_engine_under_the_seeds_names():
    engine = wf.AutogradEngine("cpu")
    x = engine.tensor([3.0])
    assert engine.backward((x * x).sum())[x].tolist() == [6.0]
    with wf.AutogradContext.no_grad():
        assert not (x * 2).requires_grad
        with wf.AutogradContext():
            assert (x * 2).requires_grad
    wf.AutogradContext.clear()
    assert wf.AutogradContext.memory_stats().saved_memory_mb == 0
