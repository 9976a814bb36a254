"""Linear layers in 8 bits: how near, what is kept, and every way of differentiating them."""

import itertools

import numpy as np
import pytest

import weft as wf
from weft.nn.quantised import dequantise_rows, quantise_rows

nn = wf.nn
SHAPES = [(1, 1), (3, 128), (2, 129), (5, 300), (4, 64), (0, 5), (3, 0)]
RANDOM = np.random.default_rng(0)


def weights(shape):
    """Ordinary numbers, and nasty ones: tiny, huge, of one sign, with zeros and outliers."""
    x = RANDOM.standard_normal(shape)
    yield from (x, x * 1e-30, x * 1e30, np.abs(x) + 1, x * 0, x * 1e-42)
    yield x * np.where(RANDOM.random(shape) < 0.02, 1000.0, 1.0)
    yield np.sign(x) * 2.0 ** RANDOM.integers(-40, 40, shape)


@pytest.mark.parametrize("block", [1, 7, 128])
@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize("shape", SHAPES)
def test_numbers_are_as_near_as_is_said(shape, device, block):
    for x in weights(shape):
        weight = x.astype(np.float32)
        codes, scales = quantise_rows(wf.asarray(weight).to(device), block)
        assert codes.dtype == wf.int8 and scales.dtype == wf.bfloat16
        found = dequantise_rows(codes, scales, block, "float64").to("cpu").numpy()
        for start in range(0, shape[1], block):
            part = weight[:, start : start + block].astype(np.float64)
            largest = np.abs(part).max(axis=1, keepdims=True)
            error = np.abs(found[:, start : start + block] - part)
            assert (error <= np.maximum(largest / 254 * (1 + 2**-8) * (1 + 1e-6), 2.0**-126)).all()


def pair(dtype="float32", n=200, out=12, device="cpu", bias=True):
    wf.random.seed(0)
    layer = nn.Linear(n, out, bias, device, dtype)
    stored = nn.Linear8bit.from_linear(layer)
    plain = nn.Linear(n, out, bias, device, dtype)
    plain.set_weights(stored.dense_weight(dtype))
    if bias:
        plain.bias = layer.bias
    return stored, plain


@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("bias", [False, True])
def test_results_and_gradients_are_those_of_a_layer_with_that_weight(dtype, device, bias):
    stored, plain = pair(dtype, device=device, bias=bias)
    results = []
    for layer in (stored, plain):
        x = wf.asarray(np.random.default_rng(1).standard_normal((2, 3, 200))).to(device).to(dtype)
        x.requires_grad_()
        y = layer(x)
        assert y.dtype == x.dtype
        results.append((y.detach(), (y * y).sum().backward()[x]))
    eps = float(np.finfo(np.float64).eps if dtype == "float64" else wf.finfo(dtype).eps)
    for a, b in zip(*results, strict=True):
        a, b = (v.to("cpu").to("float64").numpy() for v in (a, b))
        assert np.abs(a - b).max() <= 8 * eps * np.abs(b).max()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize("bias", [None, "float32", "bfloat16"])
@pytest.mark.parametrize("half", ["float16", "bfloat16"])
@pytest.mark.parametrize("given", ["float16", "bfloat16", "float32", "float64"])
def test_autocast_treats_it_as_a_linear_layer(given, half, bias, device, compiled):
    results = []
    for layer in pair(device=device, bias=bias is not None):
        if bias is not None:
            layer.bias = wf.Parameter(layer.bias.detach().to(bias), requires_grad=False)

        def squares(x, layer=layer):
            with wf.amp.autocast(half):
                y = layer(x)
            return (y * y).sum(), y

        step = wf.grad(squares, has_aux=True)
        x = wf.asarray(np.random.default_rng(1).standard_normal((2, 3, 200))).to(device).to(given)
        results.append((wf.compile(step) if compiled else step)(x))
    for a, b in zip(*results, strict=True):
        assert a.dtype == b.dtype
        eps = float(wf.finfo(half if given != "float64" else "float32").eps)
        a, b = (v.detach().to("cpu").to("float64").numpy() for v in (a, b))
        assert np.abs(a - b).max() <= 8 * eps * np.abs(b).max()


def test_nothing_is_kept_for_the_backward_pass():
    stored, _ = pair()
    x = wf.ones((50, 200), requires_grad=True)
    y = stored(x)
    assert wf.memory_stats().bytes == 0
    assert y.sum().backward()[x].shape == (50, 200)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "autocast"])
def test_a_compiled_chain_of_layers_never_has_all_weights_in_floating_point(dtype):
    taken, half = [], wf.amp.autocast("bfloat16", enabled=dtype == "autocast")
    for n in (4, 12):
        parts = [(nn.Linear8bit.from_linear(nn.Linear(256, 256)), nn.GELU()) for _ in range(n)]
        model = nn.Sequential(*itertools.chain(*parts))

        def total(m, x):
            with half:
                return m(x).sum()

        step = wf.compile(lambda m, x: wf.grad(lambda x: total(m, x))(x))
        step(model, wf.ones((2, 256), dtype=dtype.replace("autocast", "float32")))
        taken.append(step.memory.arena)
    assert taken[1] <= taken[0] + 256 * 256


def test_both_modes_and_the_second_order_are_right():
    stored, _ = pair("float64", 20, 3)
    x = wf.randn((2, 20), dtype="float64")
    wf.check_grads(lambda x: wf.sin(stored(x)), (x,), order=2)


def test_it_is_mapped_checkpointed_and_compiled():
    stored, plain = pair(n=64)
    x = wf.randn((5, 64))
    right = plain(x).detach().numpy()
    ways = [
        wf.vmap(stored)(x),
        wf.compile(stored)(x),
        wf.compile(lambda m, x: m(x))(stored, x),
        wf.checkpoint(stored, x),
        wf.vmap(lambda r: wf.grad(lambda r: (stored(r) ** 2).sum() / 2)(r))(x),
    ]
    for found in ways[:-1]:
        assert np.allclose(found.detach().numpy(), right, rtol=1e-5, atol=1e-6)
    expected = right @ plain.weight.detach().numpy()
    assert np.allclose(ways[-1].numpy(), expected, rtol=1e-4, atol=1e-5)


def test_layers_are_mapped_over_their_weights():
    layers = [nn.Linear8bit.from_linear(nn.Linear(150, 4)) for _ in range(3)]
    states = {
        n: wf.stack([layer.state_dict()[n] for layer in layers]) for n in layers[0].state_dict()
    }
    x = wf.randn((3, 2, 150))

    def loss(state, x):
        return (nn.functional_call(layers[0], state, x) ** 2).sum()

    found = wf.vmap(lambda s, x: wf.grad(lambda x: loss(s, x))(x))(states, x)
    for k, layer in enumerate(layers):
        right = wf.grad(lambda x, f=layer: (f(x) ** 2).sum())(x[k])
        assert np.allclose(found[k].numpy(), right.numpy(), rtol=1e-4, atol=1e-5)
    gradient = wf.grad(lambda m: (m(x[0]) ** 2).sum())(layers[0])
    assert not gradient.scales.numpy().any() and gradient.bias.numpy().any()


def test_a_state_goes_round_and_the_layer_is_frozen():
    stored, _ = pair()
    other = nn.Linear8bit(200, 12)
    other.load_state_dict(stored.state_dict())
    x = wf.ones((2, 200))
    assert other(x).tolist() == stored(x).tolist()
    assert list(stored.state_dict()) == ["bias", "codes", "scales"]
    assert not any(p.requires_grad for p in stored.parameters())
    assert "in_features=200, out_features=12, bias=True, block=128" in repr(stored)


@pytest.mark.parametrize("way", list(itertools.permutations(["float32", "bfloat16", "float64"])))
def test_casts_change_no_weight(way):
    stored, _ = pair(bias=False)
    before = stored.dense_weight("float64").tolist()
    for dtype in way:
        stored.to(dtype)
    assert stored.dense_weight("float64").tolist() == before
    with pytest.raises(wf.errors.DTypeError, match="exactly"):
        stored.half()(wf.ones((1, 200), dtype="float16"))


def test_what_cannot_be_stored_is_refused():
    for bad in (float("nan"), float("inf")):
        layer = nn.Linear(4, 2)
        layer.set_weights(wf.full((2, 4), bad))
        with pytest.raises(wf.errors.ArgumentError, match="NaN or infinity"):
            nn.Linear8bit.from_linear(layer)
    with pytest.raises(wf.errors.ShapeError, match="200"):
        pair()[0](wf.ones((2, 100)))
    with pytest.raises(wf.errors.ArgumentError, match="block"):
        nn.Linear8bit(4, 2, block=0)
