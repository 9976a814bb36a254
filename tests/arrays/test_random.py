"""Random tensors: equal numbers on every backend, and the distributions they promise."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy import stats

import weft as wf
from weft import errors
from weft.backend.device import namespace_for
from weft.backend.shared import variates
from weft.core import dtypes
from weft.core.counter import Generator, ReservedBlocks

OTHERS = ["torch", "cuda"] if torch.cuda.is_available() else ["torch"]
FLOATS = (*dtypes.REAL, *dtypes.COMPLEX)
INTEGERS = dtypes.SIGNED + dtypes.UNSIGNED
# The chunks of both backends begin and end inside these, the small draws included.
COUNTS = (0, 1, 7, 63, 64, 65, 193, 4 * 16384 + 5)


# A deviation from the mean of this many standard errors happens once in 10⁹ samples.
SIGMAS = 6.0
# The seeds are fixed, so a test that passes once passes always; a right generator fails the
# choice of seed with this probability.
P_VALUE = 1e-4


def target(device):
    return namespace_for(device).random_target(device)


def host(raw) -> np.ndarray:
    """A raw array of any backend as NumPy's, bfloat16 widened."""
    if isinstance(raw, torch.Tensor):
        raw = raw.cpu()
        return raw.float().numpy() if raw.dtype == torch.bfloat16 else raw.numpy()
    return raw.astype(np.float32) if raw.dtype == dtypes.bfloat16 else raw


def test_results_do_not_depend_on_the_chunks():
    cpu, draw = target("cpu"), ReservedBlocks(5, 7)
    for chunk in (1, 3, 64):
        other = variates.VariatesTarget(
            cpu.xp, cpu.device, cpu.cast, cpu.sqrt, cpu.order, chunk, few=2
        )
        for dtype in FLOATS:
            x = variates.normal(cpu, draw, (201,), dtype, 0.0, 1.0)
            assert x.tobytes() == variates.normal(other, draw, (201,), dtype, 0.0, 1.0).tobytes()


@pytest.mark.parametrize("device", OTHERS)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_uniforms_are_equal_on_all_backends(device, count, dtype):
    for low, high in ((0.0, 1.0), (-1.5, 3.25), (2.0, 2.0)):
        x, y = (
            wf.random.uniform(low, high, count, dtype, d, generator=Generator(3))
            for d in ("cpu", device)
        )
        assert x.dtype == y.dtype == dtype and x.shape == y.shape == (count,)
        np.testing.assert_array_equal(host(x._data), host(y._data))


@pytest.mark.parametrize("device", OTHERS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("mean,std", [(0.0, 1.0), (1.3, 2.7)])
def test_normals_are_equal_on_all_backends(device, dtype, mean, std):
    """The promise is 2 ulp; + - * / and sqrt alone make it 0."""
    for count in (*COUNTS, 1_000_000):
        x, y = (
            wf.randn(count, mean, std, dtype, d, generator=Generator(count))._data
            for d in ("cpu", device)
        )
        np.testing.assert_array_equal(host(x), host(y))


@pytest.mark.parametrize("device", OTHERS)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_are_equal_on_all_backends(device, dtype):
    least, greatest = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    for low, high in (
        (0, 1),
        (-3 if least else 3, 7),
        (least, greatest + 1),
        (least + 1, greatest),
    ):
        for count in COUNTS:
            x, y = (
                wf.randint(low, high, count, dtype, d, generator=Generator(3))
                for d in ("cpu", device)
            )
            assert x.dtype == y.dtype == dtype
            np.testing.assert_array_equal(host(x._data), host(y._data))


@pytest.mark.parametrize("device", OTHERS)
@pytest.mark.parametrize("count", COUNTS)
def test_permutations_and_coins_are_equal_on_all_backends(device, count):
    for f in (wf.permutation, lambda n, **k: wf.random.bernoulli(0.3, n, **k)):
        x, y = (f(count, device=d, generator=Generator(3)) for d in ("cpu", device))
        np.testing.assert_array_equal(host(x._data), host(y._data))
    assert sorted(wf.permutation(count).tolist()) == list(range(count))


def test_uniforms_are_the_top_bits_of_the_words():
    words = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]  # Random123's, of key and counter 0
    single = wf.rand(4, dtype="float32", generator=Generator(0)).tolist()
    assert single == [(w >> 8) / 2**24 for w in words]
    double = wf.rand(2, dtype="float64", generator=Generator(0)).tolist()
    assert double == [((b << 32 | a) >> 11) / 2**53 for a, b in (words[:2], words[2:])]


@pytest.mark.parametrize("n", [1, 2, 1000, 2**31, 2**32 - 1, 2**32, 2**63 + 5, 2**64 - 1, 2**64])
def test_integers_are_the_scaled_words(n):
    words = variates.bits(target("cpu"), ReservedBlocks(9, 0), (400,)).tolist()
    per = 2 if n < 2**32 else 4
    xs = [sum(w << 32 * i for i, w in enumerate(words[j : j + per])) for j in range(0, 400, per)]
    expected = [x * n >> 32 * per for x in xs]
    assert wf.randint(0, n, len(xs), "uint64", generator=Generator(9)).tolist() == expected


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normals_are_box_and_mullers(dtype):
    """Against the formula in extended precision; the error allowed is a rounding per step."""
    n = 20_000
    words = (
        variates.bits(target("cpu"), ReservedBlocks(11, 0), (4 * n,))
        .astype(np.uint64)
        .reshape(-1, 2)
    )
    if dtype == "float32":
        k, a, radius, fraction = words[:, 0], words[:, 1] >> 9, 32, 23
        minus = words[:, 1] & 1
        k = (k.astype(np.float32) + np.float32(0.5)).astype(np.longdouble)
    else:
        k, a = (
            w[0::2] | w[1::2] << np.uint64(32) for w in (words[0::2].ravel(), words[1::2].ravel())
        )
        minus, radius, fraction = a & 1, 53, 52
        k, a = ((k >> 11).astype(np.float64) + 0.5).astype(np.longdouble), a >> 12
    pi = np.longdouble("3.14159265358979323846264338327950288")
    r = np.sqrt(-2 * np.log(k / np.longdouble(2) ** radius)) * (1 - 2 * minus.astype(np.longdouble))
    t = (2 * a.astype(np.longdouble) + 1) / np.longdouble(2) ** fraction - 1
    # cos(πt/2) as a sine: near its zeros the cosine of a rounded angle is not accurate.
    expected = np.stack([r * np.sin(pi / 2 * x) for x in (1 - abs(t), t)], -1).ravel()
    z = wf.randn(expected.size, dtype=dtype, generator=Generator(11))._data
    assert np.max(np.abs(z / expected - 1)) < 8 * np.finfo(dtype).eps


@pytest.mark.parametrize("device", ["cpu", *OTHERS])
@pytest.mark.parametrize("word", [0, 2**32 - 1], ids=["zeros", "ones"])
def test_the_extreme_words(monkeypatch, device, word):
    def words(at, draw, start, blocks):
        return [at.xp.full((blocks,), word, dtype=at.xp.int64, device=at.device)] * 4

    monkeypatch.setattr(variates, "words", words)
    for dtype in FLOATS:
        for low, high in ((0.0, 1.0), (-3.0, 0.1), (1.0, 1.0 + 2.0**-7)):
            x = host(wf.random.uniform(low, high, 8, dtype, device)._data)
            high = float(dtypes.to_real(dtype).type(high))
            assert (low <= x.real).all() and (x.real < high).all()
        z = host(wf.randn(8, dtype=dtype, device=device)._data)
        assert np.isfinite(z).all() and (abs(z) < 9).all()
    for dtype in INTEGERS:
        x = host(wf.randint(1, 100, 8, dtype, device)._data)
        assert (x == (99 if word else 1)).all()
    assert wf.random.bernoulli(1.0, 8, device=device).tolist() == [True] * 8
    assert wf.random.bernoulli(0.0, 8, device=device).tolist() == [False] * 8


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_uniform_stays_below_its_end(dtype):
    x = host(wf.random.uniform(0.5, 0.6, 100_000, dtype, generator=Generator(0))._data)
    real = dtypes.to_real(dtype)
    assert x.real.min() >= float(real.type(0.5)) and x.real.max() < float(real.type(0.6))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normal_moments_and_shape(dtype):
    n = 1_000_000
    z = wf.randn(n, dtype=dtype, generator=Generator(1))._data.astype(np.float64)
    assert abs(z.mean()) < SIGMAS / math.sqrt(n)
    assert abs(z.var() - 1) < SIGMAS * math.sqrt(2 / n)
    assert abs((z**3).mean()) < SIGMAS * math.sqrt(15 / n)
    assert abs((z**4).mean() - 3) < SIGMAS * math.sqrt(96 / n)
    assert abs((z[::2] * z[1::2]).mean()) < SIGMAS / math.sqrt(n / 2)
    assert abs((z[1:] * z[:-1]).mean()) < SIGMAS / math.sqrt(n)
    assert stats.kstest(z, "norm").pvalue > P_VALUE
    beyond = n * 2 * stats.norm.sf(4)
    assert abs((abs(z) > 4).sum() - beyond) < SIGMAS * math.sqrt(beyond)


def test_normal_mean_and_std():
    n = 100_000
    z = wf.randn(n, 3.0, 0.5, "float64", generator=Generator(1))._data
    assert stats.kstest(z, "norm", args=(3.0, 0.5)).pvalue > P_VALUE
    assert wf.random.normal(3.0, 0.5, 5, generator=Generator(1)).tolist() == pytest.approx(
        wf.randn(5, 3.0, 0.5, generator=Generator(1)).tolist(), abs=0
    )
    assert wf.randn(3, 2.0, 0.0).tolist() == [2.0] * 3


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_normals(dtype):
    n = 200_000
    mean = 1 - 2j
    z = wf.randn(n, mean, 2.0, dtype, generator=Generator(1))._data - mean
    for part in (z.real, z.imag):
        assert stats.kstest(part, "norm", args=(0, math.sqrt(2))).pvalue > P_VALUE
    assert abs((abs(z) ** 2).mean() - 4) < SIGMAS * 4 / math.sqrt(n)
    assert abs((z**2).mean()) < SIGMAS * math.sqrt(2) * 4 / math.sqrt(n)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_uniform_distribution(dtype):
    n = 100_000
    x = host(wf.rand(n, dtype, generator=Generator(1))._data)
    for part in (x.real, x.imag) if dtype in dtypes.COMPLEX else (x,):
        part = part.astype(np.float64)
        if dtype in dtypes.HALF:
            # Rounded values are counted between midpoints of the coarser format, 2⁻⁸ apart.
            edges = np.linspace(2.0**-9, 1 - 2.0**-9, 16)
            counts = np.histogram(part, edges)[0]
            assert stats.chisquare(counts).pvalue > P_VALUE
        else:
            assert stats.kstest(part, "uniform").pvalue > P_VALUE


@pytest.mark.parametrize("low,high", [(0, 7), (-100, 100), (0, 1000)])
def test_integer_distribution(low, high):
    x = wf.randint(low, high, 200_000, generator=Generator(1))._data
    assert stats.chisquare(np.bincount(x - low, minlength=high - low)).pvalue > P_VALUE


def test_wide_integers_are_not_biased():
    """3·2⁶² values: taking 64 bits modulo n would make some of them twice as likely."""
    n = 3 << 62
    x = wf.randint(0, n, 60_000, "uint64", generator=Generator(1))._data
    assert stats.chisquare(np.bincount(x // np.uint64(1 << 62), minlength=3)).pvalue > P_VALUE
    assert stats.kstest(x / float(n), "uniform").pvalue > P_VALUE


def test_permutation_distribution():
    g = Generator(1)
    seen = [tuple(wf.permutation(4, generator=g).tolist()) for _ in range(2400)]
    counts = np.unique(seen, axis=0, return_counts=True)[1]
    assert len(counts) == 24 and stats.chisquare(counts).pvalue > P_VALUE


@pytest.mark.parametrize("p", [0.0, 1e-3, 0.1, 0.5, 1.0])
def test_bernoulli(p):
    n = 500_000
    x = wf.random.bernoulli(p, n, generator=Generator(1))
    assert x.dtype == wf.bool and abs(x._data.sum() - n * p) <= SIGMAS * math.sqrt(n * p * (1 - p))
    each = wf.random.bernoulli(wf.full(n, p, dtype="float64"), generator=Generator(1))
    np.testing.assert_array_equal(each._data, x._data)


@pytest.mark.parametrize("device", ["cpu", *OTHERS])
def test_bernoulli_of_a_tensor(device):
    p = wf.asarray([0.0, 1.0, 0.25], dtype="float32", device=device)
    x = wf.random.bernoulli(p, (40_000, 3), "float32", generator=Generator(1))
    assert x.device == p.device and x.dtype == wf.float32
    sums = host(x._data).sum(0)
    assert sums[0] == 0 and sums[1] == 40_000
    assert abs(sums[2] - 10_000) < SIGMAS * math.sqrt(7_500)


def test_permutation_of_a_tensor():
    x = wf.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], requires_grad=True)
    y = wf.permutation(x, generator=Generator(1))
    order = wf.permutation(3, generator=Generator(1))._data
    assert y.tolist() == [[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]][i] for i in order]
    weights = wf.asarray([[1.0], [2.0], [3.0]])
    grads = (y * weights).sum().backward()
    assert grads[x].tolist() == [[float(np.argsort(order)[i] + 1)] * 2 for i in range(3)]


@pytest.mark.parametrize(
    "draw,blocks",
    [
        (lambda g: wf.rand(9, generator=g), 3),
        (lambda g: wf.rand(9, "float16", generator=g), 3),
        (lambda g: wf.randn((3, 3), dtype="float64", generator=g), 5),
        (lambda g: wf.randn(9, dtype="complex64", generator=g), 5),
        (lambda g: wf.randn(9, dtype="complex128", generator=g), 9),
        (lambda g: wf.randint(0, 2**32 - 1, 9, generator=g), 5),
        (lambda g: wf.randint(0, 2**32, 9, generator=g), 9),
        (lambda g: wf.permutation(9, generator=g), 5),
        (lambda g: wf.random.bernoulli(0.5, 9, generator=g), 3),
        (lambda g: wf.rand((0, 3), generator=g), 0),
        (lambda g: g.split(3), 1),
        (lambda g: g.fork("x"), 0),
    ],
)
def test_the_position_moves_by_whole_blocks(draw, blocks):
    g = Generator(2**100 + 1)
    draw(g)
    assert g.state_dict() == {"key": 1, "nonce": 2**36, "position": blocks}


def test_the_default_generator_is_seeded():
    wf.random.seed(12)
    x = wf.randn(5).tolist()
    assert x == wf.randn(5, generator=Generator(12)).tolist()
    assert wf.randn(5).tolist() != x
    wf.random.seed(np.int64(12))
    assert wf.randn(5).tolist() == x


def test_unseeded_processes_differ():
    assert Generator().state_dict() != Generator().state_dict()
    program = "import weft as wf; print(wf.random.default_generator)"
    runs = [subprocess.check_output([sys.executable, "-c", program]) for _ in range(2)]
    assert runs[0] != runs[1]


def test_options_of_a_new_tensor():
    x = wf.randn((2, 3), requires_grad=True, dtype="float64", device="torch")
    assert x.requires_grad and x.dtype == wf.float64 and x.device == "torch" and x.shape == (2, 3)
    assert wf.rand([4]).shape == (4,) and wf.rand().shape == () and wf.rand(0).shape == (0,)
    assert wf.rand(3).dtype == wf.float32 and not wf.rand(3).requires_grad
    assert wf.rand(2, requires_grad=True).requires_grad


BAD = {
    "negative size": (lambda: wf.rand((2, -1)), errors.ShapeError, "nonnegative"),
    "float size": (lambda: wf.randn(2.5), errors.ShapeError, "tuple"),
    "integer dtype": (lambda: wf.rand(3, dtype="int32"), errors.DTypeError, "wf.randint"),
    "no dtype": (lambda: wf.rand(3, dtype="float12"), errors.DTypeError, "float12"),
    "no device": (lambda: wf.rand(3, device="tpu"), errors.DeviceError, "expected"),
    "negative std": (lambda: wf.randn(3, std=-1.0), errors.ArgumentError, "std"),
    "nan std": (lambda: wf.randn(3, std=math.nan), errors.ArgumentError, "std"),
    "tensor std": (lambda: wf.randn(3, std=wf.ones(3)), errors.ArgumentError, "combine"),
    "complex mean": (lambda: wf.randn(3, mean=1j), errors.ArgumentError, "real number"),
    "reversed ends": (lambda: wf.random.uniform(2, 1, 3), errors.ArgumentError, "low ≤ high"),
    "infinite end": (lambda: wf.random.uniform(0, math.inf, 3), errors.ArgumentError, "finite"),
    "too wide": (lambda: wf.random.uniform(-3e38, 3e38, 3), errors.ArgumentError, "finite"),
    "empty range": (lambda: wf.randint(3, 3, 5), errors.ArgumentError, "low < high"),
    "range of dtype": (lambda: wf.randint(0, 300, 5, "uint8"), errors.ArgumentError, "256"),
    "float range": (lambda: wf.randint(0, 2.5, 5), errors.ArgumentError, "integer"),
    "float randint": (lambda: wf.randint(0, 2, 5, "float32"), errors.DTypeError, r"\.to\(\)"),
    "probability": (lambda: wf.random.bernoulli(1.5, 3), errors.ArgumentError, "p ≤ 1"),
    "probabilities": (
        lambda: wf.random.bernoulli(wf.ones(3), (2, 4)),
        errors.ShapeError,
        "broadcast",
    ),
    "small shape": (lambda: wf.random.bernoulli(wf.ones(3), 1), errors.ShapeError, "holds"),
    "integer p": (lambda: wf.random.bernoulli(wf.asarray([1])), errors.DTypeError, "float32"),
    "scalar order": (lambda: wf.permutation(wf.ones(())), errors.ShapeError, "dimension"),
    "negative order": (lambda: wf.permutation(-1), errors.ShapeError, "nonnegative"),
    "torch generator": (
        lambda: wf.rand(3, generator=torch.Generator()),
        errors.ArgumentError,
        "wf.random.Generator",
    ),
    "negative seed": (lambda: wf.random.seed(-1), errors.ArgumentError, r"2\*\*128"),
    "float seed": (lambda: Generator(1.5), errors.ArgumentError, "integer"),
    "name": (lambda: Generator(1).fork(1.5), errors.ArgumentError, "string or an integer"),
    "state keys": (lambda: Generator().load_state_dict({"key": 1}), errors.ArgumentError, "nonce"),
    "state value": (
        lambda: Generator().load_state_dict({"key": 1, "nonce": 0, "position": -1}),
        errors.ArgumentError,
        "position",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_say_the_fix_and_the_line(case):
    call, error, message = BAD[case]
    before = wf.random.default_generator.state_dict()
    with pytest.raises(error, match=message) as caught:
        call()
    assert str(caught.value).count("(at test_random.py:") == 1
    assert wf.random.default_generator.state_dict() == before
