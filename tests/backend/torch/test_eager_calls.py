"""How many kernels of ATen eager mode calls: no more than PyTorch's own autograd."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import weft as wf
from weft.backend.torch import namespace as xp

F, T = wf.nn.functional, torch.nn.functional
# What launches nothing: views, and memory without values.
VIEWS = {"view", "t", "permute", "transpose", "expand", "detach", "alias", "empty", "new_empty"}


class Calls(TorchDispatchMode):
    """Counts the calls of ATen's operations by name."""

    def __init__(self):
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.counts[func.__name__.partition(".")[0]] += 1
        return func(*args, **(kwargs or {}))

    @property
    def kernels(self) -> Counter[str]:
        return Counter({k: n for k, n in self.counts.items() if k not in VIEWS})


def step(loss, leaves) -> Counter[str]:
    """The kernels of a forward and a backward pass."""
    for x in leaves:
        x.grad = None
    with Calls() as calls:
        loss(*leaves).backward()
    return calls.kernels


def both(ours, theirs, *shapes) -> tuple[Counter[str], Counter[str]]:
    rng = np.random.default_rng(0)
    values = [torch.from_numpy(rng.normal(size=s)).float() for s in shapes]
    mine = [wf.Parameter(wf.asarray(v.clone())) for v in values]
    yours: list[Any] = [v.clone().requires_grad_() for v in values]
    step(ours, mine), step(theirs, yours)  # the first ones may prepare something
    counts = step(ours, mine), step(theirs, yours)
    for a, b in zip(mine, yours, strict=True):
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-4, atol=1e-5)
    return counts


@pytest.mark.parametrize(
    "how", [{}, {"padding": 1}, {"stride": 2, "padding": (1, 0)}, {"groups": 2}, {"dilation": 2}]
)
def test_a_convolution_has_one_call_forth_and_one_back(how):
    ours, theirs = both(
        lambda x, w: F.conv2d(x, w, **how).sum(),
        lambda x, w: T.conv2d(x, w, **how).sum(),
        *((2, 4, 6, 7), (4, 4 // how.get("groups", 1), 3, 3)),
    )
    assert ours["convolution"] == ours["convolution_backward"] == 1
    assert ours["convolution"] == theirs["convolution"]
    assert ours.total() <= theirs.total()


def test_a_convolution_with_a_bias_has_one_call_back():
    ours, _ = both(
        lambda x, w, b: F.conv2d(x, w, b, padding=1).sum(),
        lambda x, w, b: T.conv2d(x, w, b, padding=1).sum(),
        *((2, 3, 5, 5), (4, 3, 3, 3), (4,)),
    )
    assert ours["convolution"] == ours["convolution_backward"] == 1


@pytest.mark.parametrize("shape", [(5, 3), (3, 4, 5), (2, 3, 4, 5)])
def test_a_batch_norm_has_one_call_forth_and_one_back(shape):
    weights = (shape[1],)
    ours, theirs = both(
        lambda x, w, b: (F.batch_norm(x, None, None, w, b, True) * x).sum(),
        lambda x, w, b: (T.batch_norm(x, None, None, w, b, True) * x).sum(),
        *(shape, weights, weights),
    )
    assert ours["native_batch_norm"] == ours["native_batch_norm_backward"] == 1
    assert ours["reshape"] == ours["_unsafe_view"] == 0
    assert ours.total() <= theirs.total()


def test_a_layer_norm_and_a_linear_layer_have_no_more_calls_than_torchs():
    ours, theirs = both(
        lambda x, w, b, m: F.linear(F.layer_norm(x, (6,), w, b), m, b).sum(),
        lambda x, w, b, m: T.linear(T.layer_norm(x, (6,), w, b), m, b).sum(),
        *((5, 6), (6,), (6,), (6, 6)),
    )
    assert ours["native_layer_norm"] == ours["native_layer_norm_backward"] == 1
    assert ours.total() <= theirs.total()


SPECIAL = [0.0, -0.0, 1.0, -2.0, 1e-45, 1e-38, np.inf, -np.inf, np.nan]


PLACES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_zeros_where_zero_at_all_pairs_of_special_values(dtype, place):
    """The kernel that a GPU has for it must not take NaN for zero, as the CPU's does."""
    c, g = (np.tile(v.ravel(), 3) for v in np.meshgrid(SPECIAL, SPECIAL))
    c, g = (torch.tensor(v, device=place).to(dtype) for v in (c, g))
    expected = torch.where(g == 0, torch.zeros_like(c), c)
    assert torch.equal(xp.zero_where_zero(c, g).nan_to_num(7.0), expected.nan_to_num(7.0))
    shaped = xp.zero_where_zero(c, g[:, None])  # another shape takes the general way
    expected = torch.where(g[:, None] == 0, torch.zeros_like(c), c)
    assert shaped.dtype is dtype and torch.equal(shaped.nan_to_num(7.0), expected.nan_to_num(7.0))


@pytest.mark.parametrize("seed", range(6))
def test_cotangents_of_convolutions_of_random_geometry(seed):
    """By the row that gives both at once, beside PyTorch's autograd in float64."""
    from weft.backend.shared.window_sizes import counts_of
    from weft.ops.convolve import convolution_gradient

    rng = np.random.default_rng(seed)
    axes = int(rng.integers(1, 4))
    size, kernel = rng.integers(4, 7, axes), rng.integers(1, 4, axes)
    stride, groups = tuple(map(int, rng.integers(1, 3, axes))), int(rng.integers(1, 3))
    padding = tuple((int(a), int(b)) for a, b in rng.integers(0, 3, (axes, 2)))
    how = stride, padding, (1,) * axes, groups
    x = torch.from_numpy(rng.normal(size=(2, 4, *size))).requires_grad_()
    w = torch.from_numpy(rng.normal(size=(2, 4 // groups, *kernel))).requires_grad_()
    fits = [
        (n + a + b - k) % s == 0
        for n, (a, b), k, s in zip(size, padding, kernel, stride, strict=True)
    ]
    padding = tuple(
        p if ok else (p[0], p[1] - _rest(n, p, k, s))
        for p, ok, n, k, s in zip(padding, fits, size, kernel, stride, strict=True)
    )
    how = stride, padding, (1,) * axes, groups
    flat = [int(v) for pair in reversed(padding) for v in pair]
    y = getattr(T, f"conv{axes}d")(T.pad(x, flat), w, None, stride, 0, 1, groups)
    assert y.shape[2:] == counts_of(tuple(map(int, size)), tuple(map(int, kernel)), *how[:3])
    g = torch.from_numpy(rng.normal(size=y.shape))
    expected = torch.autograd.grad(y, (x, w), g)
    for dtype, near in ((torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 3e-2)):
        given = [wf.asarray(v.detach().to(dtype)) for v in (g, x, w)]
        for found, e in zip(convolution_gradient(*given, *how), expected, strict=True):
            error = (found.torch().double() - e).abs().max()
            assert error <= near * (1 + e.abs().max()), (dtype, how)


def _rest(n, pair, k, s) -> int:
    """What no whole window reaches at the end."""
    return int((n + sum(pair) - k) % s)
