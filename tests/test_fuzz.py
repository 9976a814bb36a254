"""Random programs, differentiated once and twice, beside PyTorch.

`make test` runs a few hundred of them, `make soak` many more.
"""

import os

import numpy as np
import pytest
import torch

import weft as wf

SOAK = os.environ.get("WEFT_SOAK") == "1"
BATCHES, PROGRAMS = (400, 50) if SOAK else (8, 40)

# (Weft, PyTorch): the same smooth function of one or two arrays that broadcast.
UNARY = [
    (wf.tanh, torch.tanh),
    (wf.sin, torch.sin),
    (lambda x: wf.exp(-x * x), lambda x: torch.exp(-x * x)),
    (lambda x: wf.log(1 + x**2), lambda x: torch.log(1 + x**2)),
    (lambda x: wf.sqrt(x * x + 0.5), lambda x: torch.sqrt(x * x + 0.5)),
    (lambda x: 0.5 * x - 1, lambda x: 0.5 * x - 1),
    (lambda x: 1 / (2 + x * x), lambda x: 1 / (2 + x * x)),
    (lambda x: wf.softmax(x, -1) if x.ndim else x, lambda x: torch.softmax(x, -1) if x.ndim else x),
    (lambda x: wf.cumsum(x, x.ndim - 1) if x.ndim else x, lambda x: x.cumsum(-1) if x.ndim else x),
    (lambda x: x.T if x.ndim == 2 else -x, lambda x: x.T if x.ndim == 2 else -x),
    (lambda x: x[..., ::2] if x.ndim else x, lambda x: x[..., ::2] if x.ndim else x),
    (lambda x: wf.flip(x) if x.ndim else x, lambda x: x.flip(tuple(range(x.ndim)))),
    (lambda x: x.sum(-1, True) if x.ndim else x, lambda x: x.sum(-1, True) if x.ndim else x),
    (lambda x: x.mean(0) if x.ndim else x, lambda x: x.mean(0) if x.ndim else x),
    (lambda x: wf.logsumexp(x), lambda x: torch.logsumexp(x.reshape(-1), 0)),
    (lambda x: wf.roll(x, 1), lambda x: torch.roll(x, 1)),
    (lambda x: wf.sort(x) if x.ndim else x, lambda x: torch.sort(x)[0] if x.ndim else x),
    (lambda x: x.reshape((-1,)), lambda x: x.reshape(-1)),
    (
        lambda x: x.at[0].set(x[-1] * 2) if x.ndim else x,
        lambda x: torch.cat([x[-1:] * 2, x[1:]]) if x.ndim else x,
    ),
]
BINARY = [
    (lambda x, y: x * y, lambda x, y: x * y),
    (lambda x, y: x + y, lambda x, y: x + y),
    (lambda x, y: x - y, lambda x, y: x - y),
    (lambda x, y: x / (1 + y * y), lambda x, y: x / (1 + y * y)),
    (lambda x, y: wf.atan2(x, 1 + y * y), lambda x, y: torch.atan2(x, 1 + y * y)),
    (wf.logaddexp, torch.logaddexp),
    (lambda x, y: wf.where(x > y, x * y, y), lambda x, y: torch.where(x > y, x * y, y)),
    (wf.maximum, torch.maximum),
]


def broadcasts(x, y) -> bool:
    try:
        np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        return False
    return True


def program(rng):
    """A list of steps: which function, and which of the values made so far it takes."""
    steps = []
    for _ in range(rng.integers(3, 12)):
        if rng.random() < 0.5:
            steps.append(("unary", int(rng.integers(len(UNARY))), rng.random(2)))
        else:
            steps.append(("binary", int(rng.integers(len(BINARY))), rng.random(2)))
    return steps


def run(steps, leaves, which: int):
    """The program in Weft (0) or PyTorch (1): the sum over everything it made."""
    values = list(leaves)
    for kind, k, picks in steps:
        x, y = (values[int(p * len(values))] for p in picks)
        if kind == "unary":
            values.append(UNARY[k][which](x))
        elif broadcasts(x, y):
            values.append(BINARY[k][which](x, y))
    total = values[0].sum() * 0
    for v in values:
        total = total + (v * v).mean()
    return total


def gradients(loss, leaves, which: int):
    """First-order gradients, and those of the sum of their squares."""
    if which == 0:
        maps = loss.backward(create_graph=True)
        first = [maps[x] for x in leaves]
        second = sum((g * g).sum() for g in first).backward()
        return [g.detach().numpy() for g in first], [second[x].numpy() for x in leaves]
    first = torch.autograd.grad(loss, leaves, create_graph=True, materialize_grads=True)
    second = torch.autograd.grad(sum((g * g).sum() for g in first), leaves, materialize_grads=True)
    return [g.detach().numpy() for g in first], [g.numpy() for g in second]


@pytest.mark.parametrize("batch", range(BATCHES))
def test_random_programs(batch):
    rng = np.random.default_rng(batch)
    for _ in range(PROGRAMS):
        steps = program(rng)
        arrays = [rng.normal(size=s) for s in ((3, 4), (4,), (), (3, 1))]
        ours = [wf.tensor(a, requires_grad=True) for a in arrays]
        theirs = [torch.tensor(a, requires_grad=True) for a in arrays]
        a, b = run(steps, ours, 0), run(steps, theirs, 1)
        np.testing.assert_allclose(a.item(), b.item(), rtol=1e-12)
        for got, expected in zip(gradients(a, ours, 0), gradients(b, theirs, 1), strict=True):
            scale = max(1.0, *(np.abs(e).max() for e in expected))
            for g, e in zip(got, expected, strict=True):
                # A few hundred roundings, amplified by at most the largest entry.
                np.testing.assert_allclose(g, e, rtol=1e-9, atol=1e-11 * scale)
