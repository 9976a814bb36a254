"""Attention by PyTorch's kernels: masks, groups of heads, refusals, and which are chosen."""

from itertools import product
from math import inf, nan

import numpy as np
import pytest

import weft as wf
from weft.backend.shared import attention as tiles
from weft.nn import functional as F

torch = pytest.importorskip("torch")
from weft.backend.torch import attention, attention_kernels, attention_masks, neural  # noqa: E402

B, H, T, S, D = 2, 4, 5, 7, 8
EPS = {"float64": 2**-52, "float32": 2**-23, "bfloat16": 2**-8, "float16": 2**-11}
# Of masks: the axes that have their length; others have length 1.
SHAPES = [(T, S), (1, S), (T, 1), (H, T, S), (B, 1, 1, S), (1, 1, T, S), (B, 1, T, S), (B, H, T, S)]
LOWEST = {"float64": -1e300, "float32": -3e38, "bfloat16": -3e38, "float16": -65504.0}


def written_out(q, k, v, mask, groups: int):
    """Attention in float64 by PyTorch's autograd; masked rows are made harmless before softmax."""
    k, v = (x.repeat_interleave(groups, -3) for x in (k, v))
    s = q @ k.mT / q.shape[-1] ** 0.5
    s = s.masked_fill(~mask, -inf) if mask.dtype == torch.bool else s + mask.double()
    blind = (s == -inf).all(-1, keepdim=True)
    return torch.softmax(s.masked_fill(blind, 0.0), -1).masked_fill(blind, 0.0) @ v


def random_mask(rng, kind: str, shape, dtype: str) -> np.ndarray:
    """A mask with keys that are not seen, and a query that sees none."""
    seen = rng.random(shape) < 0.7
    if len(shape) > 1 and shape[-2] == T:
        seen[..., 1, :] = False
    if kind == "booleans":
        return seen
    hidden = -inf if kind == "infinite" else LOWEST[dtype]
    mask = np.where(seen, rng.normal(size=shape).round(1), hidden)
    if kind == "lowest":
        mask = np.where(seen.any(-1, keepdims=True), mask, 0.0)
    return mask


@pytest.fixture
def by_library(monkeypatch):
    """The tiles that all backends share are not there."""

    def refuse(*args):
        raise AssertionError("not by the library")

    monkeypatch.setattr(tiles, "attend", refuse)
    monkeypatch.setattr(tiles, "attend_gradient", refuse)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
@pytest.mark.parametrize("kind", ["booleans", "infinite", "lowest"])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_masks_and_groups_beside_autograd(kind, groups, dtype, by_library):
    rng = np.random.default_rng(groups)
    for shape in SHAPES:
        heads = (H, H // groups, H // groups)
        made = [rng.normal(size=(B, h, n, D)) for h, n in zip(heads, (T, S, S), strict=True)]
        arrays = [torch.tensor(x).to(getattr(torch, dtype)) for x in made]
        mask = torch.tensor(random_mask(rng, kind, shape, dtype))
        mask = mask if kind == "booleans" else mask.to(arrays[0].dtype)
        g = torch.tensor(rng.normal(size=(B, H, T, D))).to(arrays[0].dtype)
        exact = [x.double().clone().requires_grad_() for x in arrays]
        want = written_out(*exact, mask, groups)
        want.backward(g.double())
        ours = [wf.asarray(x).requires_grad_() for x in arrays]
        out = F.scaled_dot_product_attention(*ours, attn_mask=wf.asarray(mask), enable_gqa=True)
        found = out.backward(wf.asarray(g))
        pairs = [(out.detach(), want.detach())]
        pairs += [(found[x], y.grad) for x, y in zip(ours, exact, strict=True)]
        for got, y in pairs:
            got, y = got.to("float64").numpy(), y.numpy()
            # A product of T or S terms, each rounded, of numbers up to the largest.
            bound = 8 * EPS[dtype] * max(1.0, np.abs(y).max())
            np.testing.assert_allclose(got, y, rtol=0, atol=bound, err_msg=str(shape))


def test_axes_before_the_heads_and_masks_along_some_of_them(by_library):
    rng = np.random.default_rng(3)
    q, k, v = (torch.tensor(rng.normal(size=(3, B, H, n, D))) for n in (T, S, S))
    for lead in [(), (1,), (B,), (1, B), (3, 1), (3, B)]:
        mask = torch.tensor(rng.normal(size=(*lead, 1, T, S)))
        want = written_out(q, k, v, mask, 1)
        out = F.scaled_dot_product_attention(
            *map(wf.asarray, (q, k, v)), attn_mask=wf.asarray(mask)
        )
        np.testing.assert_allclose(out.numpy(), want.numpy(), atol=1e-14)


def test_logarithms_and_the_gradient_of_a_mask():
    """The second result, and what is computed from it for masks of numbers."""
    rng = np.random.default_rng(4)
    q, k, v = (torch.tensor(rng.normal(size=(B, H, n, D))) for n in (T, S, S))
    for hidden in (-inf, -1e300):
        mask = torch.tensor(random_mask(rng, "infinite", (H, T, S), "float64"))
        mask = mask.masked_fill(mask == -inf, hidden)
        mask = mask if hidden == -inf else mask.masked_fill(mask.amax(-1, True) == hidden, 0.0)
        args = (q, k, v, mask, 0, False, D**-0.5, 0.0, np.dtype("float64"))
        scores = q @ k.mT * D**-0.5 + mask
        lse = neural.attention(*args)[1]
        np.testing.assert_allclose(lse, torch.logsumexp(scores, -1), rtol=1e-13)
        exact = mask.clone().requires_grad_()
        g = torch.tensor(rng.normal(size=q.shape))
        written_out(q, k, v, exact, 1).backward(g)
        ours = wf.asarray(mask).requires_grad_()
        out = F.scaled_dot_product_attention(*map(wf.asarray, (q, k, v)), attn_mask=ours)
        found = out.backward(wf.asarray(g))[ours].numpy()
        np.testing.assert_allclose(found, exact.grad.nan_to_num(0.0), atol=1e-13)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_kernels_get_finite_numbers_with_the_same_weights(dtype):
    """Whatever a mask holds: by softmax in float64 of the bias beside that of the mask."""
    rng = np.random.default_rng(5)
    kind = getattr(torch, dtype)
    special = [0.0, -inf, LOWEST[dtype], LOWEST[dtype] / 2, -3e4, 1.5, -20.0]
    for _ in range(50):
        mask = torch.tensor(rng.choice(special, size=(2, 1, T, S)), dtype=kind)
        made = attention_masks.converted(mask, torch.empty(0, dtype=kind), S, (2,))
        assert made.bias.isfinite().all() and made.bias.float().mul(1.5).isfinite().all()
        assert made.bias.stride(-1) == 1 and made.bias.stride(-2) % 16 == 0
        weights = [torch.softmax(x.double(), -1) for x in (made.bias, mask)]
        seen = made.top != -inf
        assert torch.equal(seen, (mask != -inf).any(-1))
        np.testing.assert_array_equal(weights[0][seen], weights[1][seen])


def test_nan_in_a_mask_stays():
    mask = torch.zeros(1, 1, T, S)
    mask[0, 0, 2, 3] = nan
    made = attention_masks.converted(mask, torch.empty(0), S, (1,))
    assert made.bias.isnan().sum() == 1 and made.top.isnan().sum() == 1
    q, k = torch.randn(1, 1, T, D), torch.randn(1, 1, S, D)
    out = F.scaled_dot_product_attention(*map(wf.asarray, (q, k, k)), attn_mask=wf.asarray(mask))
    assert np.isnan(out.numpy()).any(-1)[0, 0].tolist() == [False, False, True, False, False]


def test_masks_that_would_lose_digits_or_add_axes_are_left_to_the_tiles():
    q, k = torch.zeros(1, 1, T, D, dtype=torch.bfloat16), torch.zeros(1, 1, S, D)
    k = k.to(q.dtype)
    wide, more = torch.zeros(1, T, S), torch.zeros(3, 1, 1, T, S, dtype=q.dtype)
    for mask, causal in [(wide, False), (more, False), (wide.to(q.dtype), True)]:
        assert attention.attend(q, k, k, mask, causal, 1.0, 0.0) is None
    assert attention.attend(q, k, k, wide.to(q.dtype), False, 1.0, 0.0) is not None


# -- each library, on a GPU ----------------------------------------------------------------------


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *product(("FLASH", "CUDNN", "EFFICIENT"), ("bfloat16", "float16")),
        ("EFFICIENT", "float32"),
    ],
)
@pytest.mark.parametrize("lengths", [(128, 128), (129, 257), (65, 97)])
@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS, but there was no current CUDA")
def test_each_library_on_cuda(name, dtype, lengths, monkeypatch):
    """Alone, beside autograd in float64; what it refuses is done by the tiles."""
    kernels = getattr(attention_kernels, name)
    monkeypatch.setattr(attention, "_CHOSEN", {})
    rng, (t, s), kind = np.random.default_rng(7), lengths, getattr(torch, dtype)
    for groups, shape in product((1, 4), (None, (t, s), (B, 1, 1, s), (H, t, s), (B, H, t, s))):
        fits = name != "FLASH" or shape is None
        monkeypatch.setattr(attention, "_candidates", lambda s, fits=fits: (kernels,) * fits)
        heads = (H, H // groups, H // groups)
        made = [rng.normal(size=(B, h, n, 64)) for h, n in zip(heads, (t, s, s), strict=True)]
        arrays = [torch.tensor(x, device="cuda").to(kind) for x in made]
        seen = np.ones((t, s), bool) if shape is None else rng.random(shape) < 0.7
        if shape is not None and shape[-2] > 1:
            seen[..., 1, :] = False
        mask = torch.tensor(seen, device="cuda")
        g = torch.tensor(rng.normal(size=(B, H, t, 64)), device="cuda").to(kind)
        exact = [x.double().requires_grad_() for x in arrays]
        want = written_out(*exact, mask, groups)
        want.backward(g.double())
        ours = [wf.asarray(x).requires_grad_() for x in arrays]
        given = None if shape is None else wf.asarray(mask)
        out = F.scaled_dot_product_attention(*ours, attn_mask=given, enable_gqa=True)
        found = out.backward(wf.asarray(g))
        pairs = [(out.detach(), want.detach())]
        pairs += [(found[x], y.grad) for x, y in zip(ours, exact, strict=True)]
        for got, y in pairs:
            got, y = got.to("cpu").to("float64").numpy(), y.cpu().numpy()
            # Products of float32 may be of TF32, which has ten bits.
            bound = 8 * max(EPS[dtype], 2**-11) * max(1.0, np.abs(y).max())
            np.testing.assert_allclose(got, y, rtol=0, atol=bound, err_msg=str((groups, shape)))


# -- what cannot be run without a GPU ------------------------------------------------------------


def test_what_a_gpu_reads_by_sixteen_bytes():
    """Rows in one piece, from multiples of 16 bytes on, and no two at one place."""
    x = torch.zeros(2, 3, 5, 8)
    wide, shifted = torch.zeros(2, 3, 5, 9)[..., :8], torch.zeros(241)[1:].view(2, 3, 5, 8)
    for taken in (x, x.transpose(1, 2), x[:, ::2], x[..., :4], x[:1].expand(1, 3, 5, 8)):
        assert attention._is_loadable(taken)
    for refused in (wide, shifted, x[:1].expand(4, 3, 5, 8), x.half()[..., 4:]):
        assert not attention._is_loadable(refused)
    for way in (x.mT, x.expand(1, 2, 3, 5, 8)[0].flip(0)[..., ::2]):
        made = attention._laid_out(way)
        assert made.is_contiguous() and torch.equal(made, way)


@pytest.mark.parametrize("name", ["FLASH", "CUDNN", "EFFICIENT"])
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("masked", [False, True])
def test_calls_of_libraries_have_their_signatures(name, groups, masked):
    """By PyTorch's functions of shapes, which check the arguments."""
    kernels: attention_kernels.Kernels = getattr(attention_kernels, name)
    q = torch.empty(B, H, T, D, dtype=torch.bfloat16, device="meta")
    k = torch.empty(B, H // groups, S, D, dtype=torch.bfloat16, device="meta")
    bias = torch.empty(B, 1, 1, 16, dtype=q.dtype, device="meta")[..., :S] if masked else None
    scores = attention_kernels.Scores(q, k, k, bias, False, 0.5)
    out, lse = kernels.forward(scores)
    assert out.shape == q.shape and lse.shape == q.shape[:3]
    found = kernels.backward(scores, out, out, lse)
    assert [d.shape for d in found] == [q.shape, k.shape, k.shape]


class Fake:
    """Kernels with a time; None: they refuse all calls."""

    def __init__(self, name: str, time: float | None):
        self.name, self.time, self.calls = name, time, 0

    def call(self) -> None:
        self.calls += 1
        if self.time is None:
            raise RuntimeError("no kernel found to launch")


@pytest.mark.parametrize(
    ("times", "timed", "chosen", "calls"),
    [
        ((2.0, 1.0), True, 1, (1, 0)),
        ((1.0, 0.99), True, 0, (1, 0)),  # not clearly quicker
        ((2.0, 1.0), False, 0, (1, 0)),
        ((None, 1.0), True, 1, (1, 1)),
        ((None, 1.0), False, 1, (1, 1)),
        ((1.0, None), True, 0, (1, 0)),
        ((None, None), True, None, (1, 1)),
    ],
)
def test_the_quickest_that_takes_a_call_is_chosen(times, timed, chosen, calls, monkeypatch):
    fakes = tuple(Fake(f"kernels {k}", t) for k, t in enumerate(times))
    known = lambda call, kernels: inf if kernels.time is None else kernels.time  # noqa: E731
    monkeypatch.setattr(attention, "_time", known)
    best = attention._quickest(fakes, lambda x: x.call(), timed)  # type: ignore[arg-type]
    assert best is (None if chosen is None else fakes[chosen])
    assert tuple(f.calls for f in fakes) == calls


def test_a_lack_of_memory_is_no_refusal():
    def fail(kernels):
        raise torch.OutOfMemoryError("no memory")

    with pytest.raises(torch.OutOfMemoryError):
        attention._quickest((attention_kernels.FLASH,), fail, True)
