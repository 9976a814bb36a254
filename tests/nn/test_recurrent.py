"""Recurrent networks beside PyTorch's."""

from itertools import product

import numpy as np
import pytest
import torch

import weft as wf
from weft import errors

from .alike import F, same

rng = np.random.default_rng(9)
DEVICES = ("cpu", "torch")
GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


def normal(*shape):
    return rng.normal(size=shape)


def parameters(kind: str, width: int, hidden: int, layers: int, directions: int, biases: bool):
    rows, found = GATES[kind] * hidden, []
    for k in range(layers * directions):
        wide = width if k < directions else hidden * directions
        found += [normal(rows, wide), normal(rows, hidden)]
        found += [normal(rows), normal(rows)] if biases else []
    return found


def states(kind: str, *shape):
    return (normal(*shape), normal(*shape)) if kind == "lstm" else normal(*shape)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize(
    ("layers", "both", "biases", "first"),
    [
        (1, False, True, False),
        (2, True, True, True),
        (2, False, False, False),
        (1, True, True, True),
    ],
)
def test_beside_torch(kind, layers, both, biases, first, device):
    directions = 2 if both else 1
    x = normal(2, 4, 3) if first else normal(4, 2, 3)
    same(
        lambda x, hx, ps: getattr(F, kind)(x, hx, ps, biases, layers, 0.0, False, both, first),
        lambda x, hx, ps: getattr(torch, kind)(x, hx, ps, biases, layers, 0.0, False, both, first),
        x,
        states(kind, layers * directions, 2, 3),
        parameters(kind, 3, 3, layers, directions, biases),
        device=device,
    )


def test_modules_weights_in_their_order():
    """The parameters of torch.nn.LSTM as they come, and an input without a batch."""
    layer = torch.nn.LSTM(3, 2, num_layers=2, bidirectional=True).double()
    params = [p.detach().numpy() for p in layer.parameters()]
    x, hx = normal(5, 3), (normal(4, 2), normal(4, 2))
    out, h, c = F.lstm(
        wf.tensor(x),
        [wf.tensor(s) for s in hx],
        [wf.tensor(p) for p in params],
        num_layers=2,
        bidirectional=True,
    )
    expected, (eh, ec) = layer(torch.tensor(x), tuple(torch.tensor(s) for s in hx))
    for a, b in ((out, expected), (h, eh), (c, ec)):
        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), atol=1e-13)


@pytest.mark.parametrize(("kind", "biases"), list(product(GATES, [True, False])))
def test_cells(kind, biases):
    name = f"{kind}_cell"
    params = parameters(kind, 3, 2, 1, 1, biases)
    same(getattr(F, name), getattr(torch, name), normal(4, 3), states(kind, 4, 2), *params)


def test_dropout_between_layers():
    params = [wf.tensor(p) for p in parameters("gru", 3, 3, 2, 1, True)]
    x, h = wf.tensor(normal(4, 2, 3)), wf.tensor(normal(2, 2, 3))
    how = {"num_layers": 2, "dropout": 0.5}
    plain = F.gru(x, h, params, num_layers=2)[0].numpy()
    np.testing.assert_array_equal(F.gru(x, h, params, train=False, **how)[0].numpy(), plain)
    wf.random.seed(0)
    dropped = F.gru(x, h, params, train=True, **how)[0].numpy()
    assert not np.allclose(dropped, plain)
    wf.random.seed(0)
    np.testing.assert_array_equal(F.gru(x, h, params, train=True, **how)[0].numpy(), dropped)


def test_twice():
    params = [wf.tensor(p) for p in parameters("lstm", 2, 1, 1, 1, True)]
    hx = (wf.tensor(normal(1, 1, 1)), wf.tensor(normal(1, 1, 1)))
    x = wf.tensor(normal(3, 1, 2))
    wf.check_grads(lambda x: F.lstm(x, hx, params)[0], (x,), order=2, modes=("fwd", "rev"))
    params = [wf.tensor(p) for p in parameters("gru", 2, 1, 1, 1, True)]
    wf.check_grads(lambda x: F.gru(x, hx[0], params)[0], (x,), order=2, modes=("fwd", "rev"))


def test_what_a_step_keeps():
    """Its opened gates, its state and no more."""
    from weft.ops.recur import lstm_cell

    z = wf.tensor(normal(10, 40), requires_grad=True)
    c = wf.tensor(normal(10, 10), requires_grad=True)
    before = wf.memory_stats().bytes
    out = lstm_cell(z, c)
    assert wf.memory_stats().bytes - before == (40 + 3 * 10) * 10 * 8  # gates, h, c, the new c
    del out


def test_long_sequences_are_differentiated_in_linear_time():
    """Each step's slice of the gates goes back into an array of few steps, not of all."""
    params = [wf.tensor(p, requires_grad=True) for p in parameters("rnn_tanh", 2, 2, 1, 1, True)]
    x = wf.tensor(normal(400, 1, 2), requires_grad=True)
    out, _ = F.rnn_tanh(x, wf.zeros((1, 1, 2), dtype="float64"), params)
    assert np.isfinite(out.sum().backward()[x].numpy()).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p, h: F.gru(wf.ones((4, 2)), h, p[:3]), "3 parameters, expected 4 for each of 1"),
        (lambda p, h: F.gru(wf.ones((0, 1, 3)), h, p), "expected (T, N, in) with T ≥ 1"),
        (lambda p, h: F.gru(wf.ones((4, 1, 3)), wf.ones((2, 1, 2)), p), "expected 1 of (1, 1, 2)"),
        (lambda p, h: F.gru(wf.ones((4, 1, 5)), h, p), "expected (3·hidden, 5)"),
        (lambda p, h: F.gru_cell(wf.ones((1, 5)), h[0], *p), "expected (3·hidden, 5)"),
        (lambda p, h: F.lstm(wf.ones((4, 1, 3)), (h,), p), "expected 2 of"),
    ],
)
def test_arguments_that_make_no_sense(call, message):
    params = [wf.tensor(p.astype(np.float32)) for p in parameters("gru", 3, 2, 1, 1, True)]
    with pytest.raises(errors.WeftError, match=message.replace("(", r"\(").replace(")", r"\)")):
        call(params, wf.ones((1, 1, 2)))
