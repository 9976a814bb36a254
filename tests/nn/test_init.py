"""Initial values: distributions of PyTorch's initialisers and layers, and exact properties."""

import numpy as np
import pytest
import torch
from scipy import stats

import weft as wf

nn, init = wf.nn, wf.nn.init
MATRIX, KERNEL = (200, 150), (40, 30, 3, 3)

CASES = [
    ("uniform_", {"a": -0.3, "b": 1.2}, MATRIX),
    ("normal_", {"mean": 0.5, "std": 2.0}, MATRIX),
    ("trunc_normal_", {"mean": 0.2, "std": 0.7, "a": -0.5, "b": 1.5}, MATRIX),
    ("trunc_normal_", {}, KERNEL),
    ("xavier_uniform_", {"gain": 1.7}, KERNEL),
    ("xavier_normal_", {"gain": 0.4}, MATRIX),
    ("kaiming_uniform_", {"a": 0.3}, MATRIX),
    ("kaiming_uniform_", {"mode": "fan_out", "nonlinearity": "relu"}, KERNEL),
    ("kaiming_normal_", {"nonlinearity": "tanh"}, KERNEL),
    ("kaiming_normal_", {"mode": "fan_out", "a": 1.0}, MATRIX),
]


def alike(ours: np.ndarray, theirs: np.ndarray) -> None:
    """Two samples of one distribution, at a level that one seed in ten thousand fails."""
    assert stats.ks_2samp(ours.ravel(), theirs.ravel()).pvalue > 1e-4


@pytest.mark.parametrize("name, options, shape", CASES)
def test_distributions_are_torchs(name, options, shape):
    wf.random.seed(0)
    torch.manual_seed(0)
    p = wf.Parameter(wf.zeros(shape, dtype="float64"))
    assert getattr(init, name)(p, **options) is p and p.requires_grad
    q = getattr(torch.nn.init, name)(torch.zeros(shape, dtype=torch.float64), **options).numpy()
    ours = p.detach().numpy()
    alike(ours, q)
    assert ours.std() == pytest.approx(q.std(), rel=0.03)
    assert ours.mean() == pytest.approx(q.mean(), abs=0.03 * q.std())
    if "normal" not in name or "trunc" in name:  # bounded: the ends are the same
        span = np.ptp(q)
        assert abs(ours.min() - q.min()) < 0.01 * span and abs(ours.max() - q.max()) < 0.01 * span


LAYERS = [
    ("Linear", (60, 80), {}),
    ("Bilinear", (20, 15, 10), {}),
    ("Conv2d", (12, 16, 5), {"groups": 2}),
    ("ConvTranspose1d", (30, 20, 7), {"groups": 2}),
    ("Embedding", (60, 50), {"padding_idx": 3}),
    ("LSTM", (30, 20), {"num_layers": 2}),
    ("GRUCell", (30, 20), {}),
    ("MultiheadAttention", (48, 4), {"add_bias_kv": True}),
    ("MultiheadAttention", (48, 4), {"kdim": 30, "vdim": 20}),
    ("TransformerEncoderLayer", (32, 4, 64), {}),
    ("BatchNorm2d", (7,), {}),
    ("LayerNorm", (7,), {}),
    ("PReLU", (5, 0.3), {}),
]


@pytest.mark.parametrize("name, args, options", LAYERS, ids=lambda v: str(v))
def test_layers_begin_like_torchs(name, args, options):
    wf.random.seed(1)
    torch.manual_seed(1)
    mine, theirs = getattr(nn, name)(*args, **options), getattr(torch.nn, name)(*args, **options)
    for (n, p), (m, q) in zip(mine.named_parameters(), theirs.named_parameters(), strict=True):
        ours, other = p.detach().numpy(), q.detach().numpy()
        assert n == m and ours.shape == other.shape and ours.dtype == other.dtype
        if len(set(other.ravel().tolist())) <= 1:
            np.testing.assert_array_equal(ours, other)
        else:
            alike(ours, other)
            if other.size > 500:
                assert np.abs(ours).max() == pytest.approx(np.abs(other).max(), rel=0.35)
    for b, c in zip(mine.buffers(), theirs.buffers(), strict=True):
        np.testing.assert_array_equal(b.numpy(), c.numpy())


def test_a_generator_makes_values_repeatable():
    def drawn(name, *args, **options):
        generator = wf.random.Generator(7)
        first = getattr(init, name)(wf.zeros((6, 5)), *args, generator=generator, **options)
        second = getattr(init, name)(wf.zeros((6, 5)), *args, generator=generator, **options)
        assert first.tolist() != second.tolist()
        return first.tolist()

    for name in ("uniform_", "normal_", "trunc_normal_", "xavier_uniform_", "xavier_normal_"):
        assert drawn(name) == drawn(name)
    for name in ("kaiming_uniform_", "kaiming_normal_", "orthogonal_"):
        assert drawn(name) == drawn(name)
    assert drawn("sparse_", 0.5) == drawn("sparse_", 0.5)


def test_constants():
    x = wf.zeros((2, 3))
    assert init.constant_(x, 2.5) is x and x.tolist() == [[2.5] * 3] * 2
    assert init.ones_(x).tolist() == [[1.0] * 3] * 2 and init.zeros_(x).tolist() == [[0.0] * 3] * 2
    np.testing.assert_array_equal(init.eye_(x).numpy(), np.eye(2, 3))


@pytest.mark.parametrize("shape, groups", [((4, 3, 5), 1), ((6, 2, 3, 4), 3), ((2, 2, 3, 3, 3), 2)])
def test_dirac_is_torchs(shape, groups):
    expected = torch.nn.init.dirac_(torch.empty(shape), groups).numpy()
    np.testing.assert_array_equal(init.dirac_(wf.ones(shape), groups).numpy(), expected)


@pytest.mark.parametrize("shape", [(5, 5), (7, 4), (4, 7), (3, 4, 5)])
def test_orthogonal(shape):
    q = init.orthogonal_(wf.zeros(shape, dtype="float64"), gain=1.5).numpy().reshape(shape[0], -1)
    gram = q @ q.T if q.shape[0] <= q.shape[1] else q.T @ q
    np.testing.assert_allclose(gram, 1.5**2 * np.eye(len(gram)), atol=1e-12)


def test_orthogonal_matrices_are_equally_likely():
    wf.random.seed(2)
    angles = [init.orthogonal_(wf.zeros((2, 2)))[0, 0].item() for _ in range(2000)]
    uniform = np.cos(np.random.default_rng(0).uniform(0, 2 * np.pi, 2000))
    alike(np.array(angles), uniform)


def test_sparse():
    x = init.sparse_(wf.zeros((50, 20), dtype="float64"), 0.3, std=2.0).numpy()
    assert ((x == 0).sum(0) == 15).all()
    alike(x[x != 0], np.random.default_rng(0).normal(0, 2, 700))
    rows = np.concatenate([np.flatnonzero(x[:, j] == 0) for j in range(20)])
    assert len(set(rows.tolist())) > 45  # the zeros are not in the same rows


def test_half_precision_is_filled_in_its_own_dtype():
    x = init.orthogonal_(wf.zeros((4, 4), dtype="bfloat16"))
    assert x.dtype == wf.bfloat16
    assert init.trunc_normal_(wf.zeros(100, dtype="float16"), a=-1, b=1).abs().max().item() <= 1


@pytest.mark.parametrize("name", ["linear", "conv_transpose2d", "sigmoid", "tanh", "relu", "selu"])
def test_gains_are_torchs(name):
    assert init.calculate_gain(name) == torch.nn.init.calculate_gain(name)
    for slope in (None, 0.2):
        expected = torch.nn.init.calculate_gain("leaky_relu", slope)
        assert init.calculate_gain("leaky_relu", slope) == expected


BAD = [
    (lambda: init.xavier_uniform_(wf.zeros(3)), "counted along two axes"),
    (lambda: init.kaiming_normal_(wf.zeros((3, 3)), mode="fan"), "'fan', expected 'fan_in'"),
    (lambda: init.kaiming_normal_(wf.zeros((3, 3)), nonlinearity="sine"), "'sine', expected"),
    (lambda: init.uniform_([1.0]), "got a list, expected a tensor"),
    (lambda: init.uniform_(wf.zeros(3), 2.0, 1.0), "expected low ≤ high"),
    (lambda: init.normal_(wf.zeros(3), std=-1.0), "expected 0 ≤ std"),
    (lambda: init.trunc_normal_(wf.zeros(3), a=1.0, b=1.0), "expected a < b"),
    (lambda: init.trunc_normal_(wf.zeros(3), a=50.0, b=60.0), "never there"),
    (lambda: init.eye_(wf.zeros(3)), "expected a matrix"),
    (lambda: init.dirac_(wf.zeros((3, 3))), "3, 4 or 5 axes"),
    (lambda: init.dirac_(wf.zeros((3, 3, 3)), groups=2), "groups must divide"),
    (lambda: init.orthogonal_(wf.zeros(3)), "expected two axes"),
    (lambda: init.sparse_(wf.zeros((3, 3)), 1.5), "expected 0 to 1"),
    (lambda: init.normal_(wf.zeros(3, dtype="int64")), "floating dtype"),
    (lambda: init.ones_(wf.ones(3, requires_grad=True) * 2), "being differentiated"),
]


@pytest.mark.parametrize("call, message", BAD, ids=[m for _, m in BAD])
def test_bad_arguments(call, message):
    with pytest.raises(wf.errors.WeftError, match=message):
        call()
