"""GradientTape: single use, persistence, nesting, threads."""

import gc
import threading

import numpy as np
import pytest
import torch

import weft as wf
from weft import errors


def test_one_target_or_many():
    tape = wf.GradientTape(persistent=True)
    x = tape.watch(wf.tensor([1.0, 2.0]))
    y = tape.variable(wf.tensor([3.0, 4.0]))
    z, s = x * y, (x + y).sum()
    assert tape.gradient(z, x).tolist() == [3.0, 4.0]
    gx, gy = tape.gradient([z, s], [x, y])
    assert gx.tolist() == [4.0, 5.0] and gy.tolist() == [2.0, 3.0]
    seeded = tape.gradient([z], [x], output_gradients=[wf.tensor([1.0, 0.0])])
    assert seeded[0].tolist() == [3.0, 0.0]


def test_single_use():
    with wf.GradientTape() as tape:
        x = tape.watch(wf.tensor(3.0))
        y = x * x
    assert tape.gradient(y, x).item() == 6.0
    with pytest.raises(errors.TapeConsumed, match=r"persistent=True.*test_gradient_tape.py"):
        tape.gradient(y, x)


def test_unconnected_sources():
    tape = wf.GradientTape(persistent=True)
    x, z = tape.watch(wf.tensor([1.0])), tape.watch(wf.tensor([1.0, 2.0]))
    y = x * 2
    assert tape.gradient(y, [x, z])[1] is None
    assert tape.gradient(y, [x, z], unconnected="zero")[1].tolist() == [0.0, 0.0]
    with pytest.raises(errors.ArgumentError, match="'zero'"):
        tape.gradient(y, x, unconnected="zeros")


def test_watching_afterwards_gives_none():
    x = wf.tensor([2.0])
    y = x * x
    tape = wf.GradientTape()
    tape.watch(x)
    assert tape.gradient(y, x) is None


def test_watch_ends_with_the_block():
    x = wf.tensor([2.0])
    with wf.GradientTape() as tape:
        assert tape.watch(x) is x
        y = x * x
        assert x.requires_grad
    assert not x.requires_grad and not (x * 3).requires_grad
    assert tape.gradient(y, x).tolist() == [4.0]


def test_a_dropped_tape_unwatches():
    x = wf.tensor([2.0])
    tape = wf.GradientTape()
    tape.watch(x)
    assert x.requires_grad
    del tape
    assert not x.requires_grad


def test_intermediate_sources():
    with wf.GradientTape() as tape:
        x = tape.watch(wf.tensor([2.0]))
        h = x * x
        y = wf.exp(h)
    gh, gx = tape.gradient(y, [h, x])
    np.testing.assert_allclose([gh.item(), gx.item()], [np.exp(4), 4 * np.exp(4)], rtol=1e-6)


def test_nested_tapes():
    x = wf.tensor(2.0, dtype="float64")
    with wf.GradientTape() as t3, wf.GradientTape() as t2, wf.GradientTape() as t1:
        for t in (t1, t2, t3):
            t.watch(x)
        y = x**4
        d1 = t1.gradient(y, x)
        d2 = t2.gradient(d1, x)
        d3 = t3.gradient(d2, x)
    assert [d.item() for d in (d1, d2, d3)] == [32.0, 48.0, 48.0]


def test_nested_tapes_without_blocks():
    outer, inner = wf.GradientTape(), wf.GradientTape()
    x = inner.watch(outer.watch(wf.tensor(2.0)))
    g = inner.gradient(x**3, x)
    assert outer.gradient(g, x).item() == 12.0


def test_nested_tapes_see_parameters():
    p = wf.Parameter(wf.tensor(2.0))
    with wf.GradientTape() as outer:
        with wf.GradientTape() as inner:
            y = p**3
        g = inner.gradient(y, p)
    assert outer.gradient(g, p).item() == 12.0 and p.grad is None


def test_a_persistent_tape_records_itself():
    tape = wf.GradientTape().persistent()
    x = tape.variable(wf.tensor(2.0))
    y = x**3
    first = tape.gradient(y, [x])[0]
    second = tape.gradient(first, [x])[0]
    third = tape.gradient(second, [x])[0]
    assert [first.item(), second.item(), third.item()] == [12.0, 12.0, 6.0]


def test_tape_and_backward_meet():
    w = wf.tensor([1.0, 2.0], requires_grad=True)
    with wf.GradientTape(persistent=True) as tape:
        x = tape.watch(wf.tensor([3.0, 4.0]))
        y = (w * x * x).sum()
        g = tape.gradient(y, x)
    assert (g * g).sum().backward()[w].tolist() == [2 * 4 * 9.0, 2 * 4 * 16.0 * 2]


def test_tensor_of_a_watched_one_is_detached():
    tape = wf.GradientTape()
    x = tape.watch(wf.tensor([1.0]))
    assert not x.tensor().requires_grad and isinstance(x, wf.TrackedTensor)


def test_bad_arguments():
    tape = wf.GradientTape()
    with pytest.raises(errors.DTypeError, match=r"wf\.tensor"):
        tape.watch([1.0])
    with pytest.raises(errors.NotDifferentiable, match="int64"):
        tape.watch(wf.tensor([1]))
    x = tape.watch(wf.tensor([1.0]))
    with pytest.raises(errors.ArgumentError, match="1 output_gradients for 2 targets"):
        tape.gradient([x, x], x, output_gradients=[x])
    with pytest.raises(errors.DTypeError, match="CheckpointConfig"):
        wf.GradientTape(checkpoint="full")


def test_many_tapes_in_many_threads_equal_the_serial_result():
    rng = np.random.default_rng(0)
    data = [rng.normal(size=(20, 20)) for _ in range(16)]
    shared = wf.tensor(rng.normal(size=(20, 20)), requires_grad=True)

    def work(a):
        with wf.GradientTape() as tape:
            x = tape.watch(wf.tensor(a))
            h = x
            for _ in range(10):
                h = wf.tanh(h @ shared) + x
            y = h.sum()
        return [g.numpy().tobytes() for g in tape.gradient(y, [x, shared])]

    serial = [work(a) for a in data]
    found = [None] * 16

    def run(i):
        for _ in range(5):
            found[i] = work(data[i])

    threads = [threading.Thread(target=run, args=(i,)) for i in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == serial


def test_memory_is_flat_without_the_garbage_collector():
    gc.collect()
    gc.disable()
    try:
        w = wf.Parameter(wf.ones((8, 8)))
        x = wf.ones((4, 8))

        def step():
            loss = (wf.tanh(x @ w) ** 2).sum()
            loss.backward()
            w.update(1e-3)
            w.zero_grad()
            with wf.GradientTape() as tape:
                v = tape.watch(wf.ones(3))
                y = (v * v).sum()
            tape.gradient(y, v)
            g = (w * w).sum().backward(create_graph=True)[w]
            (g * g).sum().backward()
            w.zero_grad()
            x2 = wf.tensor([2.0], requires_grad=True)  # its .grad has a graph that leads to it
            (x2**3).sum().backward(create_graph=True)

        for _ in range(100):
            step()
        before = len(gc.get_objects())
        for _ in range(10_000):
            step()
        assert len(gc.get_objects()) - before < 50
    finally:
        gc.enable()


def _random_values(rng, xs: list, multiply, add) -> list:
    """Leaves and what is computed from two of the values at a time."""
    values = list(xs)
    for _ in range(int(rng.integers(0, 6))):
        i, j = rng.integers(0, len(values), 2)
        values.append((multiply if rng.random() < 0.5 else add)(values[i], values[j]))
    return values


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("inside", [False, True], ids=["after the block", "in the block"])
@pytest.mark.parametrize("requested", [False, True], ids=["watched", "requires_grad"])
def test_any_value_may_be_target_and_source(persistent, inside, requested):
    for seed in range(60):
        start = np.random.default_rng(seed).normal(size=(3, 2))
        choice = np.random.default_rng(1000 + seed)

        def picked(values, count, choice=choice):
            return [values[i] for i in choice.integers(0, len(values), count)]

        theirs = [torch.tensor(v, requires_grad=True) for v in start]
        values = _random_values(np.random.default_rng(seed), theirs, torch.mul, torch.add)
        places = [picked(range(len(values)), count) for count in (2, 3)]
        targets, sources = ([values[i] for i in where] for where in places)
        unique = list({id(s): s for s in sources}.values())
        found = torch.autograd.grad(
            targets, unique, [torch.ones(2).double()] * 2, allow_unused=True, retain_graph=True
        )
        want = {id(s): g for s, g in zip(unique, found, strict=True)}

        tape = wf.GradientTape(persistent=persistent)
        with tape:
            mine = [tape.watch(wf.tensor(v, requires_grad=requested)) for v in start]
            own = _random_values(np.random.default_rng(seed), mine, wf.mul, wf.add)
            asked = [[own[i] for i in where] for where in places]
            got = tape.gradient(*asked) if inside else None
        got = got or tape.gradient(*asked)
        for s, g in zip(sources, got, strict=True):
            reference = want[id(s)]
            assert (g is None) == (reference is None)
            assert g is None or np.allclose(g.detach().numpy(), reference.numpy())


def test_a_jacobian_of_a_value_by_itself_is_the_identity():
    for persistent in (False, True):
        for make in (lambda x: x, lambda x: x * x):
            for form in ("jacobian", "forward_gradient"):
                with wf.GradientTape(persistent=persistent) as tape:
                    y = make(tape.watch(wf.tensor([1.0, 2.0])))
                assert getattr(tape, form)(y, y).tolist() == np.eye(2).tolist()
