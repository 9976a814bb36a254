"""Attention on a GPU: by positions where queries lie so, without copies; by heads otherwise."""

import numpy as np
import pytest

import weft as wf
from weft.compiler.ir.schedule import KernelStep, LibraryStep
from weft.nn import functional as F

N, T, HEADS, WIDTH = 2, 16, 4, 8


def by_positions(x):
    """Queries, keys and values as parts of one projection."""
    parts = x.reshape(N, T, 3, HEADS, WIDTH)
    return [parts[:, :, i].swapaxes(1, 2) for i in range(3)]


def by_heads(x):
    return [y * 1.5 for y in x.reshape(3, N, HEADS, T, WIDTH)]


def loss(take, x, mask=None):
    q, k, v = take(x)
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
    return (y.swapaxes(1, 2).reshape(N, T, HEADS * WIDTH) ** 2).sum()


def compared(f, x):
    compiled = wf.compile(wf.value_and_grad(f))
    for got, want in zip(compiled(x), wf.value_and_grad(f)(x), strict=True):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5, atol=1e-5)
    program = compiled._last()
    return program.executable.schedule.steps


@pytest.mark.parametrize(
    ("take", "turned"), [(by_positions, True), (by_heads, False)], ids=["positions", "heads"]
)
def test_results_lie_as_queries_do(take, turned, gpu):
    shape = (N, T, 3 * HEADS * WIDTH) if turned else (3, N, HEADS, T, WIDTH)
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    steps = compared(lambda x: loss(take, x), wf.tensor(x, device="torch"))
    calls = [s.op.name for s in steps if isinstance(s, LibraryStep)]
    assert len(calls) == 2 and all([c.endswith("by_positions") == turned for c in calls])
    copies = [s for s in steps if isinstance(s, KernelStep) and not s.kernel.steps]
    assert len(copies) <= 3  # the gradients of the three, to their places


SEEN = np.random.default_rng(1).random((N, 1, T, T)) < 0.6
SEEN[:, :, 3] = False  # a query that sees no key
MASKS = {
    "booleans": SEEN,
    "numbers": np.where(SEEN, 0.25, -np.inf).astype(np.float32),
    "keys": np.arange(T) < np.array([T, T // 2]).reshape(N, 1, 1, 1),
}


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("mask", [None, *MASKS])
def test_masks_and_groups_of_heads_lie_as_queries_do(mask, groups, gpu):
    """The results of all heads of a position are side by side, without copies of them."""
    shared = HEADS // groups
    mask = None if mask is None else wf.tensor(MASKS[mask], device="torch")

    def f(x):
        x = x.reshape(N, T, HEADS + 2 * shared, WIDTH)
        parts = (x[:, :, :HEADS], x[:, :, HEADS:-shared], x[:, :, -shared:])
        q, k, v = (y.swapaxes(1, 2) for y in parts)
        causal = mask is None
        y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, enable_gqa=True)
        return (y.swapaxes(1, 2).reshape(N, T, HEADS * WIDTH) ** 2).sum()

    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, T, (HEADS + 2 * shared) * WIDTH)).astype(np.float32)
    steps = compared(f, wf.tensor(x, device="torch"))
    calls = [s.op.name for s in steps if isinstance(s, LibraryStep)]
    assert len(calls) == 2 and all([c.endswith("by_positions") for c in calls])
    copies = [s for s in steps if isinstance(s, KernelStep) and not s.kernel.steps]
    assert len(copies) <= 3


def test_a_gradient_of_a_mask_is_as_in_eager_mode(gpu):
    x = np.random.default_rng(0).normal(size=(N, T, 3 * HEADS * WIDTH)).astype(np.float32)
    bias = np.random.default_rng(1).normal(size=(HEADS, T, T)).astype(np.float32)
    given = [wf.tensor(a, device="torch") for a in (x, bias)]

    def f(x, bias):
        return loss(by_positions, x, bias)

    compiled = wf.compile(wf.grad(f, argnums=(0, 1)))
    for got, want in zip(compiled(*given), wf.grad(f, argnums=(0, 1))(*given), strict=True):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5, atol=1e-5)


def test_dropout_leaves_the_row_as_it_is(gpu):
    x = np.random.default_rng(0).normal(size=(N, T, 3 * HEADS * WIDTH)).astype(np.float32)

    def f(x):
        q, k, v = by_positions(x)
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.5).sum()

    compiled = wf.compile(f)
    compiled(wf.tensor(x, device="torch"))
    steps = compiled._last().executable.schedule.steps
    calls = [s.op.name for s in steps if isinstance(s, LibraryStep)]
    assert "attention" in calls and not any([c.endswith("by_positions") for c in calls])
