"""Attention and rotary embeddings: beside PyTorch's, tile by tile, by bytes, without NaN."""

from itertools import product
from math import inf

import numpy as np
import pytest
import torch

import weft as wf
from weft import errors
from weft.backend.shared import attention as tiles
from weft.backend.shared import threads

from .alike import F, T, same, saved_bytes

rng = np.random.default_rng(7)
DEVICES = ("cpu", "torch")
ATTEND = F.scaled_dot_product_attention


def normal(*shape):
    return rng.normal(size=shape)


@pytest.fixture(params=["one tile", "small tiles"])
def tiling(request, monkeypatch):
    """Tiles that hold everything, and ones of a few queries and keys."""
    if request.param == "small tiles":
        monkeypatch.setattr(tiles, "TILE", dict.fromkeys(tiles.TILE, 6))
        monkeypatch.setattr(tiles, "KEYS", dict.fromkeys(tiles.KEYS, 2))


def compare(q, k, v, device="cpu", **options):
    same(
        ATTEND,
        lambda q, k, v, **o: T.scaled_dot_product_attention(q, k, v, **o),
        q,
        k,
        v,
        device=device,
        **options,
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("lengths", [(5, 5), (3, 7), (7, 3), (1, 4)])
@pytest.mark.parametrize("causal", [False, True])
def test_beside_torch(lengths, causal, device, tiling):
    t, s = lengths
    q, k, v = normal(2, 3, t, 4), normal(2, 3, s, 4), normal(2, 3, s, 4)
    compare(q, k, v, is_causal=causal, device=device)
    compare(q, k, v, is_causal=causal, scale=0.3, device=device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "shape", [(4, 5), (3, 4, 5), (1, 1, 4, 5), (2, 1, 4, 5), (1, 3, 1, 5), (2, 3, 4, 1)]
)
def test_masks(shape, device, tiling):
    q, k, v = normal(2, 3, 4, 4), normal(2, 3, 5, 4), normal(2, 3, 5, 2)
    compare(q, k, v, attn_mask=normal(*shape), device=device)
    seen = rng.random(shape) < 0.7
    seen[..., 0] = True
    compare(q, k, v, attn_mask=seen, device=device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("causal", [False, True])
def test_groups_of_heads(causal, device, tiling):
    q, k, v = normal(2, 6, 5, 4), normal(2, 2, 5, 4), normal(2, 2, 5, 4)
    compare(q, k, v, is_causal=causal, enable_gqa=True, device=device)
    compare(q, k, v, attn_mask=normal(6, 5, 5), enable_gqa=True, device=device)


@pytest.mark.parametrize(
    "shapes",
    [
        ((5, 4), (6, 4), (6, 3)),
        ((3, 5, 4), (3, 6, 4), (3, 6, 3)),
        ((2, 3, 2, 5, 4), (2, 3, 2, 6, 4), (2, 3, 2, 6, 3)),
        ((2, 3, 5, 4), (3, 6, 4), (1, 6, 3)),
    ],
)
def test_any_number_of_axes(shapes):
    compare(*(normal(*s) for s in shapes))


def test_a_query_that_sees_nothing_gets_zeros(tiling):
    q, k, v = (wf.tensor(normal(1, 1, 3, 2), requires_grad=True) for _ in range(3))
    seen = np.array([[True, True, False], [False] * 3, [True] * 3])
    for mask in (seen, np.where(seen, 0.0, -inf)):
        out = ATTEND(q, k, v, attn_mask=wf.tensor(mask))
        grads = (out * out).sum().backward()
        assert (out.detach().numpy()[0, 0, 1] == 0).all()
        assert (grads[q].numpy()[0, 0, 1] == 0).all()
        for x in (q, k, v):
            assert np.isfinite(grads[x].numpy()).all()
        expected = T.scaled_dot_product_attention(
            *(torch.tensor(x.detach().numpy()) for x in (q, k, v)), attn_mask=torch.tensor(mask)
        )
        np.testing.assert_allclose(out.detach().numpy(), expected.numpy(), atol=1e-15)


@pytest.mark.parametrize("device", DEVICES)
def test_scores_beyond_exp(device):
    q, k, v = (wf.tensor(normal(1, 2, 4, 2) * 1e4, device=device) for _ in range(3))
    out = ATTEND(q, k, v).to("cpu").numpy()
    np.testing.assert_array_less(np.abs(out), np.abs(v.to("cpu").numpy()).max() + 1)


def test_low_scores_beside_keys_that_are_not_seen(tiling):
    q, k, v = np.full((1, 1, 2, 2), 20.0), np.full((1, 1, 6, 2), -20.0), normal(1, 1, 6, 2)
    seen = np.array([[True, True, False, False, False, False], [False] * 4 + [True] * 2])
    compare(q, k, v, attn_mask=seen)


def test_a_later_key_that_is_infinite_does_not_matter(tiling):
    q, k, v = normal(1, 1, 5, 2), normal(1, 1, 5, 2), normal(1, 1, 5, 2)
    expected = ATTEND(*(wf.tensor(a[:, :, :4]) for a in (q, k, v)), is_causal=True).numpy()
    k[..., 4, :] = inf
    out = ATTEND(wf.tensor(q), wf.tensor(k), wf.tensor(v), is_causal=True).numpy()
    np.testing.assert_allclose(out[:, :, :4], expected, rtol=1e-12)


def written_out(q, k, v, scale, seeds, p):
    """Attention with all pairs, and dropout by the row that makes its bits."""
    from weft.ops.attend import attention_dropout

    w = wf.softmax(q @ wf.matrix_transpose(k) * scale, axis=-1)
    kept = attention_dropout(seeds, q.shape[-2], k.shape[-2], p)
    return (w * kept.to(q.dtype) / (1 - p)) @ v


@pytest.mark.parametrize("device", DEVICES)
def test_dropout_is_the_same_in_both_directions(device, tiling):
    q, k, v = (wf.tensor(normal(2, 3, 5, 4), True, device=device) for _ in range(3))
    wf.random.seed(3)
    out = ATTEND(q, k, v, dropout_p=0.4)
    wf.random.seed(3)
    seeds = wf.randint(0, 2**63 - 1, (2, 3), device=device)
    expected = written_out(q, k, v, 0.5, seeds, 0.4)
    np.testing.assert_allclose(out.detach().numpy(), expected.detach().numpy(), atol=1e-14)
    g = wf.tensor(normal(*out.shape), device=device)
    a, b = out.backward(g), expected.backward(g)
    for x in (q, k, v):
        np.testing.assert_allclose(a[x].numpy(), b[x].numpy(), atol=1e-13)


def test_dropout_keeps_its_share_and_the_mean():
    q = wf.zeros((1, 1, 300, 2))
    wf.random.seed(1)
    out = ATTEND(q, q, wf.ones((1, 1, 300, 1)), dropout_p=0.25).numpy()
    assert abs(out.mean() - 1) < 4 * np.sqrt(0.25 / 0.75 / 300 / 300) * 3
    assert out.std() > 0
    wf.random.seed(1)
    again = ATTEND(q, q, wf.ones((1, 1, 300, 1)), dropout_p=0.25).numpy()
    np.testing.assert_array_equal(out, again)


def test_dropout_under_checkpoint_and_vmap():
    q, k, v = (wf.tensor(normal(2, 2, 4, 3), requires_grad=True) for _ in range(3))

    def layer(q, k, v):
        return ATTEND(wf.tanh(q), k, v, dropout_p=0.5)

    wf.random.seed(2)
    plain = layer(q, k, v).sum().backward()
    wf.random.seed(2)
    again = wf.checkpoint(layer, q, k, v).sum().backward()
    for x in (q, k, v):
        np.testing.assert_array_equal(plain[x].numpy(), again[x].numpy())
    same_for_all = wf.ones((3, 1, 2, 8, 2), dtype="float64")
    rows = wf.vmap(lambda x: ATTEND(x, x, x, dropout_p=0.5))(same_for_all).numpy()
    assert not np.array_equal(rows[0], rows[1])


def test_what_is_kept_grows_with_the_length_and_not_with_its_square():
    def kept(length):
        q, k, v = (
            wf.tensor(normal(1, 2, length, 8).astype(np.float32), requires_grad=True)
            for _ in range(3)
        )
        return saved_bytes(lambda: ATTEND(q, k, v, is_causal=True))

    for length in (256, 1024):
        arrays = 4 * length * 2 * 8 * 4  # queries, keys, values and the result
        assert kept(length) == arrays + length * 2 * 4  # and one number a query


def test_no_array_of_all_pairs_is_made(monkeypatch):
    """By the largest piece that NumPy asks the system for, forwards and backwards."""
    import tracemalloc

    monkeypatch.setattr(tiles, "TILE", dict.fromkeys(tiles.TILE, 1 << 12))
    monkeypatch.setattr(tiles, "KEYS", dict.fromkeys(tiles.KEYS, 64))
    length = 2048
    q, k, v = (
        wf.tensor(normal(1, 1, length, 8).astype(np.float32), requires_grad=True) for _ in range(3)
    )
    tracemalloc.start()
    ATTEND(q, k, v).sum().backward()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < length * length * 4 / 8


@pytest.mark.parametrize("causal", [False, True])
def test_a_long_sequence_takes_a_fraction_of_all_pairs(causal):
    """With the tiles as they are, and by as many threads as there may be."""
    import tracemalloc

    length = 4096
    q, k, v = (
        wf.tensor(normal(1, 1, length, 16).astype(np.float32), requires_grad=True) for _ in range(3)
    )
    tracemalloc.start()
    ATTEND(q, k, v, is_causal=causal).sum().backward()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < length * length * 4 / 8


def test_gradients_repeat_bit_by_bit(monkeypatch):
    arrays = [normal(3, 4, 150, 8).astype(np.float32) for _ in range(3)]

    def gradients(cores):
        monkeypatch.setattr(threads, "ENOUGH", 1)
        monkeypatch.setattr(threads, "cores", lambda: cores)
        leaves = [wf.tensor(a, requires_grad=True) for a in arrays]
        out = ATTEND(*leaves, is_causal=True)
        grads = (out * out).sum().backward()
        return [out.detach().numpy(), *(grads[x].numpy() for x in leaves)]

    once = gradients(1)
    for cores in (2, 3, 8):
        assert all(map(np.array_equal, once, gradients(cores)))


@pytest.mark.parametrize("causal", [False, True])
def test_higher_orders(causal):
    q, k, v, mask = normal(1, 2, 3, 2), normal(1, 1, 3, 2), normal(1, 1, 3, 1), normal(2, 3, 3)
    args = tuple(wf.tensor(a) for a in (q, k, v))

    def f(q, k, v):
        return ATTEND(q, k, v, is_causal=causal, enable_gqa=True)

    wf.check_grads(f, args, order=2, modes=("fwd", "rev"))
    bias = wf.tensor(mask)
    wf.check_grads(lambda b: ATTEND(*args, attn_mask=b, enable_gqa=True), (bias,), order=2)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_narrow_dtypes(dtype, device):
    arrays = [wf.tensor(normal(1, 2, 8, 4), device=device) for _ in range(3)]
    wide = ATTEND(*arrays, is_causal=True)
    narrow = ATTEND(*(a.to(dtype) for a in arrays), is_causal=True)
    assert narrow.dtype == wf.canonical_dtype(dtype)
    unit = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23}[dtype]
    np.testing.assert_allclose(
        narrow.to("float64").numpy(), wide.numpy(), atol=16 * unit * np.abs(wide.numpy()).max()
    )


def test_batched_is_the_loop():
    q, k, v = (wf.tensor(normal(3, 2, 4, 2)) for _ in range(3))
    rows = wf.vmap(wf.grad(lambda q, k, v: (ATTEND(q, k, v) ** 2).sum(), (0, 1, 2)))(q, k, v)
    for n in range(3):
        one = wf.grad(lambda q, k, v: (ATTEND(q, k, v) ** 2).sum(), (0, 1, 2))(q[n], k[n], v[n])
        for a, b in zip(rows, one, strict=True):
            np.testing.assert_allclose(a.numpy()[n], b.numpy(), atol=1e-13)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda q: ATTEND(q, wf.ones((2, 4, 3)), q), "expected query and key of one width"),
        (lambda q: ATTEND(q, q, wf.ones((2, 3, 2))), "expected key and value of one length"),
        (lambda q: ATTEND(q, wf.ones((1, 2, 4, 2)), wf.ones((2, 3, 4, 2))), "enable_gqa=True"),
        (
            lambda q: ATTEND(wf.ones((3, 4, 2)), q, q, enable_gqa=True),
            "must divide the queries'",
        ),
        (lambda q: ATTEND(q, q, q, attn_mask=wf.ones((4, 4)), is_causal=True), "give one of them"),
        (lambda q: ATTEND(q, q, q, attn_mask=wf.ones((3, 4))), "do not broadcast"),
        (lambda q: ATTEND(q, q, q, attn_mask=wf.ones((5, 2, 4, 4))), "that broadcasts to"),
        (lambda q: ATTEND(q, q, q, attn_mask=wf.tensor([[1] * 4] * 4)), "expected booleans"),
        (lambda q: ATTEND(q, q, q, dropout_p=1.0), "expected 0 ≤ p < 1"),
        (lambda q: ATTEND(q[0, 0], q, q), "expected (…, length, width)"),
    ],
)
def test_arguments_that_make_no_sense(call, message):
    with pytest.raises(errors.WeftError, match=message.replace("(", r"\(").replace(")", r"\)")):
        call(wf.ones((2, 4, 2)))


# -- rotary embeddings -------------------------------------------------------------------------


def turned(x, positions, base, interleaved, dim):
    """By complex numbers, with PyTorch."""
    pace = base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angles = torch.as_tensor(positions).to(torch.float64)[..., None] * pace
    first, rest = x[..., :dim], x[..., dim:]
    if interleaved:
        z = torch.view_as_complex(first.reshape(*first.shape[:-1], dim // 2, 2))
    else:
        z = torch.complex(first[..., : dim // 2], first[..., dim // 2 :])
    z = z * torch.polar(torch.ones_like(angles), angles)
    parts = [z.real, z.imag]
    joined = torch.stack(parts, -1).flatten(-2) if interleaved else torch.cat(parts, -1)
    return torch.cat([joined, rest], -1)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("interleaved", "dim"), list(product([False, True], [None, 4])))
def test_rope(interleaved, dim, device):
    x = normal(2, 3, 5, 8)
    for positions in (None, np.array([7, 3, 100, 0, 4096]), normal(2, 1, 5) * 10):
        known = np.arange(5) if positions is None else positions
        same(
            lambda x, p=positions: F.rope(x, p, 100.0, interleaved, dim),
            lambda x, p=known: turned(x, p, 100.0, interleaved, dim or 8),
            x,
            device=device,
        )


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_a_query_that_sees_no_key_in_forward_over_reverse(moved):
    """Tangents of one argument only, beside PyTorch's."""
    arrays = [normal(1, 4, 3) for _ in range(3)]
    seen = np.ones((1, 4, 4), bool)
    seen[:, 1] = False
    tangents = [normal(1, 4, 3) if k == moved else np.zeros((1, 4, 3)) for k in range(3)]

    def loss(q, k, v):
        return (ATTEND(q, k, v, wf.tensor(seen)) ** 2).sum()

    def gradients(x):
        parts = [x if k == moved else wf.tensor(a) for k, a in enumerate(arrays)]
        return wf.grad(loss, argnums=(0, 1, 2))(*parts)

    x, t = wf.tensor(arrays[moved]), wf.tensor(tangents[moved])
    found = wf.jvp(gradients, (x,), (t,))[1]
    inputs = [torch.tensor(a, requires_grad=True) for a in arrays]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        y = T.scaled_dot_product_attention(*inputs, torch.tensor(seen))
    first = torch.autograd.grad((y**2).sum(), inputs, create_graph=True)
    along = sum((g * torch.tensor(s)).sum() for g, s in zip(first, tangents, strict=True))
    expected = torch.autograd.grad(along, inputs)  # the Hessian is symmetric
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-10, atol=1e-12)


def test_rope_is_relative():
    q, k = (wf.tensor(normal(8)) for _ in range(2))

    def score(i, j):
        table = F.rotary_table(np.array([i, j]), 8, dtype="float64")
        return (F.rotate(q, table[0]) * F.rotate(k, table[1])).sum().item()

    assert score(5, 2) == pytest.approx(score(105, 102), rel=1e-12)


def test_rotation_keeps_the_table_only():
    x = wf.tensor(normal(64, 16, 8).astype(np.float32), requires_grad=True)
    table = F.rotary_table(16, 8)
    assert saved_bytes(lambda: F.rotate(x, table)) == table.nbytes


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: F.rope(wf.ones(4)), "expected (…, T, D)"),
        (lambda: F.rope(wf.ones((2, 3))), "dim 3, expected an even number"),
        (lambda: F.rope(wf.ones((2, 4)), dim=6), "at most the input's"),
        (lambda: F.rope(wf.ones((2, 4)), np.arange(3)), "do not broadcast"),
        (lambda: F.rotate(wf.ones((2, 4)), wf.ones((3, 2, 4))), "does not broadcast to the input"),
    ],
)
def test_rotations_that_make_no_sense(call, message):
    with pytest.raises(errors.WeftError, match=message.replace("(", r"\(").replace(")", r"\)")):
        call()


# -- masks of low numbers ------------------------------------------------------------------------


def exact_gradients(arrays, mask):
    """By PyTorch in float64, where nothing of the scores is lost beside a mask of −1e9."""
    leaves = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in arrays]
    q, k, v = leaves
    bias = torch.tensor(mask, dtype=torch.float64)
    bias = bias - bias.amax(-1, keepdim=True)  # which changes no weight
    weights = torch.softmax(q @ k.mT / q.shape[-1] ** 0.5 + bias, -1)
    ((weights @ v) ** 2).sum().backward()
    return [x.grad.numpy() for x in leaves]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize("low", [float(np.finfo("float32").min), -1e30, -1e9, -1e4, -300.0, -5.0])
def test_queries_all_of_whose_keys_have_a_low_mask(low, device, compiled):
    """The sum of their weights is 1, as that of others."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((2, 2, 5, 8)).astype("float32") for _ in range(3)]
    mask = np.zeros((2, 1, 5, 5), "float32")
    mask[:, :, 1] = low
    mask[:, :, 2, 2:] = low
    mask[0, :, 3] = low
    mask[0, :, 3, 1] = low / 2
    placed = wf.tensor(mask, device=device)

    def loss(q, k, v):
        return (wf.nn.functional.scaled_dot_product_attention(q, k, v, placed) ** 2).sum()

    function = wf.compile(loss) if compiled else loss
    found = wf.grad(function, argnums=(0, 1, 2))(*[wf.tensor(x, device=device) for x in arrays])
    for x, y in zip(found, exact_gradients(arrays, mask), strict=True):
        np.testing.assert_allclose(x.to("cpu").numpy(), y, atol=2e-5)
