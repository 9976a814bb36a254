"""Linear layers, embeddings, class indicators and dropout."""

import numpy as np
import pytest

import weft as wf
from weft import errors

from .alike import F, agree, saved_bytes

rng = np.random.default_rng(10)
DEVICES = ("cpu", "torch")


def normal(*shape):
    return rng.normal(size=shape)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 4, 3)])
def test_linear(shape, device):
    agree("linear", normal(*shape), normal(5, 3), device=device)
    agree("linear", normal(*shape), normal(5, 3), normal(5), device=device)
    agree("linear", normal(*shape), normal(3), device=device)


def test_linear_keeps_what_somebody_needs():
    x = wf.tensor(normal(100, 3), requires_grad=True)
    w = wf.tensor(normal(5, 3))
    assert saved_bytes(lambda: F.linear(x, w)) == w.nbytes  # a frozen weight: x is not kept


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("padding", [None, 1, -1])
def test_embedding(padding, device):
    i = np.array([[0, 3, 3], [1, 4, 0]])
    agree("embedding", i, normal(5, 2), padding_idx=padding, device=device)


def test_one_hot():
    i = np.array([[0, 2], [1, 0]])
    for n in (-1, 3, 5):
        import torch

        expected = torch.nn.functional.one_hot(torch.tensor(i), n)
        found = F.one_hot(wf.tensor(i), n)
        assert found.dtype == wf.int64
        np.testing.assert_array_equal(found.numpy(), expected.numpy())


@pytest.mark.parametrize("device", DEVICES)
def test_dropout(device):
    x = wf.tensor(np.ones(20_000), requires_grad=True, device=device)
    wf.random.seed(4)
    y = F.dropout(x, 0.3)
    kept = y.detach().numpy() != 0
    assert abs(kept.mean() - 0.7) < 4 * np.sqrt(0.21 / 20_000)
    np.testing.assert_allclose(y.detach().numpy()[kept], 1 / 0.7, rtol=1e-15)
    np.testing.assert_array_equal(y.sum().backward()[x].numpy(), y.detach().numpy())
    wf.random.seed(4)
    np.testing.assert_array_equal(F.dropout(x, 0.3).detach().numpy(), y.detach().numpy())
    assert F.dropout(x, 0.3, training=False) is x
    assert F.dropout(x, 0.0) is x
    assert (F.dropout(x, 1.0).detach().numpy() == 0).all()


def test_dropout_is_the_same_on_both_backends():
    x = normal(6, 7)
    found = []
    for device in DEVICES:
        wf.random.seed(5)
        found.append(F.dropout(wf.tensor(x, device=device), 0.5).numpy())
    np.testing.assert_array_equal(*found)


def test_dropout_from_a_generator_of_its_own():
    x = wf.ones(100)
    a, b = (F.dropout(x, 0.5, generator=wf.random.Generator(1)).numpy() for _ in range(2))
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, F.dropout(x, 0.5, generator=wf.random.Generator(2)).numpy())


def test_dropout_keeps_a_byte_an_element():
    x = wf.tensor(normal(1000), requires_grad=True)
    assert saved_bytes(lambda: F.dropout(x, 0.5)) == 1000
    images = wf.tensor(normal(4, 5, 8, 8), requires_grad=True)
    assert saved_bytes(lambda: F.dropout2d(images, 0.5)) == 4 * 5


def test_dropout_under_vmap_and_checkpoint():
    rows = wf.vmap(lambda x: F.dropout(x, 0.5))(wf.ones((4, 50))).numpy()
    assert not np.array_equal(rows[0], rows[1])
    x = wf.tensor(normal(50), requires_grad=True)

    def layer(x):
        return F.dropout(wf.sin(x), 0.5)

    wf.random.seed(6)
    plain = layer(x).sum().backward()[x].numpy()
    wf.random.seed(6)
    np.testing.assert_array_equal(wf.checkpoint(layer, x).sum().backward()[x].numpy(), plain)


@pytest.mark.parametrize(("name", "axes"), [("dropout1d", 1), ("dropout2d", 2), ("dropout3d", 3)])
def test_channels_go_together(name, axes):
    for lead in ((40, 6), (40,)):
        x = wf.ones((*lead, *(2,) * axes))
        y = getattr(F, name)(x, 0.5).numpy().reshape(*lead, -1)
        assert {tuple(np.unique(c)) for c in y.reshape(-1, y.shape[-1])} == {(0.0,), (2.0,)}


@pytest.mark.parametrize("name", ["alpha_dropout", "feature_alpha_dropout"])
def test_alpha_dropout_keeps_mean_and_variance(name):
    x = wf.tensor(normal(400, 50, 2))
    wf.random.seed(7)
    y = getattr(F, name)(x, 0.3, training=True).numpy()
    assert abs(y.mean()) < 0.03 and abs(y.std() - 1) < 0.03
    assert getattr(F, name)(x, 0.3) is x
    assert (getattr(F, name)(x, 1.0, training=True).numpy() == 0).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: F.linear(wf.ones((2, 3)), wf.ones((5, 4))), "expected (…, in) and (out, in)"),
        (lambda: F.embedding(wf.ones(2), wf.ones((3, 2))), "expected integers; cast with"),
        (lambda: F.embedding(wf.tensor([3]), wf.ones((3, 2))), "from 3 to 3 are out of range"),
        (lambda: F.embedding(wf.tensor([1, -1]), wf.ones((3, 2))), "indices from -1 to 1 are out"),
        (lambda: F.embedding(wf.tensor([0]), wf.ones(3)), "expected (classes, width)"),
        (lambda: F.embedding(wf.tensor([0]), wf.ones((3, 2)), 3), "expected -3 to 2"),
        (lambda: F.one_hot(wf.ones(2)), "expected integer classes"),
        (lambda: F.dropout(wf.ones(3), 1.5), "p=1.5, expected a probability"),
        (lambda: F.dropout2d(wf.ones((3, 3))), "expected 3 axes, 4 with a batch"),
    ],
)
def test_arguments_that_make_no_sense(call, message):
    with pytest.raises(errors.WeftError, match=message.replace("(", r"\(").replace(")", r"\)")):
        call()


@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_dropout_of_half_types_rounds_once(dtype, device):
    """The scale is not rounded to the half type first."""
    x = wf.tensor(np.linspace(0.5, 3.0, 200), device=device).to(dtype)
    wide = x.to("float64")
    for f in (lambda x: F.dropout(x, 0.1), wf.compile(lambda x: F.dropout(x, 0.1))):
        y = f(x)
        once = (wide / 0.9).to(dtype).to("float64").numpy()
        kept = y.to("float64").numpy()
        apart = np.abs(kept - once)[kept != 0]
        assert apart.size and (apart == 0).mean() > 0.95  # 1/0.9 itself is a float32
