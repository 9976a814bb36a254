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


def test_masks_leave_the_row_as_it_is(gpu):
    x = np.random.default_rng(0).normal(size=(N, T, 3 * HEADS * WIDTH)).astype(np.float32)
    mask = wf.tensor(np.tril(np.ones((T, T), bool)), device="torch")
    steps = compared(lambda x: loss(by_positions, x, mask), wf.tensor(x, device="torch"))
    calls = [s.op.name for s in steps if isinstance(s, LibraryStep)]
    assert {"attention", "attention_gradient"} <= set(calls)
