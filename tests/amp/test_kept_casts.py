"""Casts of parameters that an autocast block keeps: fewer casts, the same bits."""

import numpy as np
import pytest

import weft as wf
from weft.core import autocast as casting
from weft.core.settings import current

torch = pytest.importorskip("torch")
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

F = wf.nn.functional


class Casts(TorchDispatchMode):
    """Counts casts to half types."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten._to_copy.default:
            self.count += (kwargs or {}).get("dtype") in (torch.bfloat16, torch.float16)
        return func(*args, **(kwargs or {}))


@pytest.fixture
def weight():
    values = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    return wf.Parameter(wf.tensor(values, device="torch"))


def rows(count=3):
    values = np.random.default_rng(1).standard_normal((count, 4)).astype(np.float32)
    return wf.tensor(values, device="torch")


def shared(w, x):
    """A function that uses its weight three times."""
    for _ in range(3):
        x = wf.tanh(F.linear(x, w)) + x
    return (x * x).sum()


PROGRAMS = {
    "plain": shared,
    "checkpoint": lambda w, x: wf.checkpoint(lambda v: shared(w, v))(x),
    "vmap": lambda w, x: wf.vmap(lambda v: shared(w, v))(x).sum(),
    "vmap over weights": lambda w, x: wf.vmap(lambda v: shared(v, x))(wf.stack([w, w])).sum(),
    "gradient inside": lambda w, x: (wf.grad(lambda v: shared(w, v))(x) ** 2).sum(),
    "tangent inside": lambda w, x: wf.jvp(lambda v: shared(w, v), (x,), (wf.ones_like(x),))[1],
    "no_grad, then grad": lambda w, x: _without(w, x) + shared(w, x),
}


def _without(w, x):
    with wf.no_grad():
        return shared(w, x)


def results(program, w, dtype):
    with wf.amp.autocast(dtype):
        y = program(w, rows())
    grads = y.backward()
    return y.item(), grads[w].numpy()


def without_kept(monkeypatch):
    monkeypatch.setattr(casting, "_is_parameter", lambda x: False)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_bits(name, dtype, weight, monkeypatch):
    value, gradient = results(PROGRAMS[name], weight, dtype)
    without_kept(monkeypatch)
    expected, reference = results(PROGRAMS[name], weight, dtype)
    assert value == expected and np.array_equal(gradient, reference)


def test_second_order_has_the_same_bits(weight, monkeypatch):
    def penalised():
        with wf.amp.autocast("bfloat16"):
            y = shared(weight, rows())
        g = y.backward(create_graph=True)[weight]
        return (g * g).sum().backward()[weight].numpy()

    found = penalised()
    without_kept(monkeypatch)
    assert np.array_equal(found, penalised())


def test_a_parameter_is_cast_once(weight):
    with Casts() as casts, wf.amp.autocast("bfloat16"):
        shared(weight, rows())
    first = casts.count
    with Casts() as casts, wf.amp.autocast("bfloat16"):
        shared(weight, rows())
        shared(weight, rows())
    assert casts.count == 2 * first - 1  # the input's casts, and the weight's one
    with Casts() as casts:
        for _ in range(2):
            with wf.amp.autocast("bfloat16"):
                shared(weight, rows())
    assert casts.count == 2 * first  # nothing is kept after a block


def test_frozen_parameters_are_cast_once(weight):
    weight.requires_grad = False
    with Casts() as casts, wf.amp.autocast("bfloat16"):
        x = rows().to("bfloat16")
        for _ in range(3):
            x = F.linear(x, weight)
    assert casts.count == 2


def double(w):
    w *= 2.0


CHANGES = {
    "copy_": lambda w: w.copy_(wf.ones((4, 4), device="torch")),
    "in place": double,
    "optimizer": lambda w: wf.optim.SGD([w], lr=0.5).step([wf.ones((4, 4), device="torch")]),
    "AdamW": lambda w: wf.optim.AdamW([w], lr=0.5).step([wf.ones((4, 4), device="torch")]),
    "new memory": lambda w: setattr(w, "_data", torch.ones(4, 4)),
    "the array itself": lambda w: w._data.fill_(3.0),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_inside_of_a_block_are_noticed(name, weight):
    with wf.amp.autocast("bfloat16"):
        F.linear(rows(), weight)
        with wf.no_grad():
            CHANGES[name](weight)
        found = F.linear(rows(), weight)
    with wf.amp.autocast("bfloat16"):
        expected = F.linear(rows(), weight)
    assert found.tolist() == expected.tolist()


def test_blocks_inside_of_others(weight):
    with wf.amp.autocast("bfloat16"):
        a = F.linear(rows(), weight)
        with wf.amp.autocast("float16"):
            assert F.linear(rows(), weight).dtype == wf.float16
        with wf.amp.autocast(enabled=False):
            assert F.linear(rows(), weight).dtype == wf.float32
        assert F.linear(rows(), weight).tolist() == a.tolist()


def test_a_block_holds_nothing_when_it_is_over(weight):
    with wf.amp.autocast("bfloat16"):
        kept = current.get().autocast.kept
        y = wf.checkpoint(lambda x: shared(weight, x))(rows())
        assert kept._made
    assert not kept._made
    assert y.backward()[weight].shape == (4, 4)  # replays the block's operations
    assert not kept._made


@pytest.mark.parametrize("use", ["function", "generator"])
def test_decorated_functions_keep_casts_for_a_call(use, weight):
    @wf.amp.autocast("bfloat16")
    def function():
        return [F.linear(rows(), weight), F.linear(rows(), weight)]

    @wf.amp.autocast("bfloat16")
    def generator():
        yield F.linear(rows(), weight)
        yield F.linear(rows(), weight)

    f = {"function": function, "generator": generator}[use]
    first = [y.tolist() for y in f()]
    with wf.no_grad():
        double(weight)
    assert [y.tolist() for y in f()] != first
