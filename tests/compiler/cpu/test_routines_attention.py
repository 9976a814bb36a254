"""Attention in native code against PyTorch, eager mode and the formula, values and gradients."""

import numpy as np
import pytest
import torch

import weft as wf
from weft.compiler.cpu.runtime import thread_pool as threads
from weft.compiler.ir.schedule import KernelStep
from weft.ops.attend import attention

from ..routines import compared, routines_of, steps_of

F = wf.nn.functional
RNG = np.random.default_rng(3)
BOTH = ["Attention", "AttentionGradient"]


def problem(lead, heads, groups, queries, keys, width, depth, dtype=np.float32):
    shapes = (heads, queries, width), (groups, keys, width), (groups, keys, depth)
    shapes += ((heads, queries, depth),)
    return [RNG.standard_normal((*lead, *s)).astype(dtype) for s in shapes]


def attended(q, k, v, w, *mask, causal=False, gqa=False):
    """The result and the gradients of Σ w·result."""
    q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
    y = F.scaled_dot_product_attention(
        q, k, v, *mask, is_causal=causal, **({"enable_gqa": True} if gqa else {})
    )
    found = (y * w).sum().backward()
    return y, *(found[x] for x in (q, k, v))


def by_torch(arrays, mask=None, causal=False):
    q, k, v, w = (torch.tensor(a.astype(np.float64)) for a in arrays)
    q, k, v = (x.requires_grad_() for x in (q, k, v))
    times = q.shape[-3] // k.shape[-3]
    spread = [x.repeat_interleave(times, -3) for x in (k, v)]
    if mask is not None:
        mask = torch.tensor(mask if mask.dtype == bool else mask.astype(np.float64))
    y = torch.nn.functional.scaled_dot_product_attention(
        q, *spread, attn_mask=mask, is_causal=causal
    )
    (y * w).sum().backward()
    return [y.detach().numpy(), *(x.grad.numpy() for x in (q, k, v))]


SIZES = {
    "small": ((2,), 4, 4, 20, 40, 8, 8),
    "odd": ((1,), 2, 2, 7, 13, 5, 3),
    "long": ((), 2, 2, 70, 530, 16, 24),
    "square": ((2, 1), 2, 2, 130, 130, 32, 32),
    "one key": ((3,), 1, 1, 5, 1, 4, 4),
    "groups": ((2,), 6, 2, 33, 65, 8, 16),
    "wide": ((1,), 1, 1, 40, 40, 200, 136),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", SIZES)
def test_against_torch(name, causal, dtype):
    sizes = SIZES[name]
    arrays = problem(*sizes, dtype=dtype)
    grouped = sizes[1] != sizes[2]
    f = wf.compile(lambda *args: attended(*args, causal=causal, gqa=grouped))
    got = [x.detach().numpy() for x in f(*map(wf.tensor, arrays))]
    assert routines_of(f) == BOTH
    for a, b in zip(got, by_torch(arrays, causal=causal), strict=True):
        assert a.dtype == dtype
        scale = np.abs(b).max(initial=1.0)
        np.testing.assert_allclose(a, b, rtol=0, atol=64 * np.finfo(dtype).eps * scale)


MASKS = {
    "truth of pairs": RNG.random((1, 1, 20, 40)) < 0.5,
    "truth of keys": RNG.random((2, 1, 1, 40)) < 0.5,
    "truth by heads": RNG.random((4, 20, 40)) < 0.5,
    "bias": RNG.standard_normal((2, 4, 20, 40)).astype(np.float32),
    "bias of keys": RNG.standard_normal((1, 4, 1, 40)).astype(np.float32),
    "bias of queries": RNG.standard_normal((1, 1, 20, 1)).astype(np.float32),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks(name):
    arrays = problem(*SIZES["small"])
    f = wf.compile(attended)
    mask = MASKS[name]
    got = [x.detach().numpy() for x in f(*map(wf.tensor, (*arrays, mask)))]
    assert routines_of(f) == BOTH
    for a, b in zip(got, by_torch(arrays, mask), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)
    compared(attended, *arrays, mask, units=64)


def test_queries_that_see_no_key_give_zeros():
    arrays = problem((), 1, 1, 6, 5, 4, 4)
    mask = np.ones((1, 6, 5), bool)
    mask[0, 2] = False
    g = compared(attended, *arrays, mask, routines=BOTH, units=64)
    out, dq, *_ = (x.detach().numpy() for x in g(*map(wf.tensor, (*arrays, mask))))
    assert not out[0, 2].any() and not dq[0, 2].any() and out[0, 3].any()


def test_infinities_and_nan():
    q, k, v, _ = problem((), 1, 1, 4, 40, 4, 4)
    k[0, 1, 0] = np.nan
    out = wf.compile(F.scaled_dot_product_attention)(*map(wf.tensor, (q, k, v))).numpy()
    assert np.isnan(out).all()
    q, k, v, _ = problem((), 1, 1, 4, 40, 4, 4)
    compared(lambda q, k, v: F.scaled_dot_product_attention(q * 1e4, k, v), q, k, v, units=1e4)


def test_half_types_are_computed_in_float32():
    arrays = [a.astype(np.float16) for a in problem(*SIZES["small"])]
    compared(lambda *args: attended(*args, causal=True), *arrays, routines=BOTH, units=4)


def test_logarithms_have_a_gradient():
    q, k, v, w = problem((2,), 2, 2, 9, 11, 4, 4)

    def f(q, k, v, w):
        q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
        y, lse = attention(q, k, v, True, 0, False, 0.5, 0.0, np.dtype(np.float32))
        found = ((y * w).sum() + (lse * lse).sum()).backward()
        return y, lse, *(found[x] for x in (q, k, v))

    compared(f, q, k, v, w, routines=BOTH, units=256)


def test_parts_of_one_projection_are_read_and_written_where_they_lie():
    """No copies between a projection, attention, and the gradient of the projection."""
    x = RNG.standard_normal((2, 40, 16)).astype(np.float32)
    weight = RNG.standard_normal((48, 16)).astype(np.float32)

    def f(x, weight):
        weight = weight.detach().requires_grad_()
        qkv = (x @ weight.T).reshape(2, 40, 3, 2, 8)
        q, k, v = (qkv[:, :, i].swapaxes(1, 2) for i in range(3))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.swapaxes(1, 2).reshape(2, 40, 16)
        return (y * x).sum().backward()[weight]

    g = compared(f, x, weight, routines=BOTH, units=64)
    assert not [s for s in steps_of(g) if isinstance(s, KernelStep) and not s.kernel.steps]


@pytest.mark.parametrize("causal", [False, True])
def test_any_number_of_threads_gives_the_same_bits(causal, monkeypatch):
    arrays = problem((2,), 4, 2, 300, 300, 32, 32)
    f = wf.compile(lambda *args: attended(*args, causal=causal, gqa=True))
    tensors = [wf.tensor(a) for a in arrays]
    results = []
    for n in (1, 2, 4):
        monkeypatch.setattr(threads.blas, "available", lambda n=n: n)
        results.append([x.detach().numpy() for x in f(*tensors)])
        assert threads.width() == n
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ["small", "long", "groups", "odd"])
def test_dropout_takes_the_weights_that_eager_mode_takes(name, causal):
    arrays = problem(*SIZES[name])
    grouped = SIZES[name][1] != SIZES[name][2]

    def f(q, k, v, w):
        q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
        more = {"enable_gqa": True} if grouped else {}
        y = F.scaled_dot_product_attention(q, k, v, None, 0.3, causal, **more)
        found = (y * w).sum().backward()
        return y, *(found[x] for x in (q, k, v))

    compared(f, *arrays, routines=["Draw", *BOTH], units=128, calls=2)
