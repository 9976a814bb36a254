"""8-bit states: the tables, the rounding, the bytes, and that training does not suffer."""

import numpy as np
import pytest
import torch

import weft as wf
from weft.optim.optimizers import UNQUANTISED
from weft.optim.quantise import _nearest_by_bits, boundaries, dequantise, dynamic_table, quantise


@pytest.mark.parametrize("signed", [True, False])
def test_tables(signed):
    table = dynamic_table(signed)
    assert table.shape == (256,) and np.all(np.diff(table) > 0)
    assert table[-1] == 1.0 and 0.0 in table
    assert (table.min() < -0.99) if signed else (table.min() == 0.0)
    # Half of the entries of a sign lie in the largest decade, an eighth three decades below.
    positive = table[table > 0]
    assert np.sum(positive > 0.1) == (65 if signed else 129)
    assert np.sum((positive > 1e-3) & (positive < 1e-2)) == (16 if signed else 32)


@pytest.mark.parametrize("signed", [True, False])
def test_numbers_are_rounded_to_the_nearest_entry(signed):
    rng = np.random.default_rng(0)
    table, bounds = dynamic_table(signed).astype(np.float64), boundaries(signed)
    near = np.nextafter(bounds, np.float32(1)), np.nextafter(bounds, np.float32(-1))
    x = np.concatenate([rng.uniform(-1, 1, 4000), 10.0 ** rng.uniform(-9, 0, 4000), table])
    x = np.concatenate([x.astype(np.float32), bounds, *near])
    x = x if signed else np.abs(x)
    codes = _nearest_by_bits(x, signed)
    assert np.array_equal(codes, np.searchsorted(bounds, x))
    wide = x.astype(np.float64)
    best = np.min(np.abs(wide[:, None] - table), axis=1)
    error = np.abs(wide - table[codes])
    lost = (x > 0) & (x < table[1] / 2) if not signed else np.zeros(x.shape, bool)
    np.testing.assert_allclose(error[~lost], best[~lost], atol=1e-7)
    assert np.all(codes[lost] == 1)  # a second moment that is not zero stays so


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("n", [1, 255, 256, 257, 1000])
def test_there_and_back(signed, n):
    rng = np.random.default_rng(n)
    x = rng.standard_normal(n).astype(np.float32) * 10.0 ** rng.integers(-3, 3, n)
    x = (x if signed else np.abs(x)).astype(np.float32)
    codes, scale = quantise(x, signed, 256)
    assert codes.dtype == np.uint8 and codes.shape == (n,) and scale.shape == (-(-n // 256),)
    back = dequantise(codes, scale, signed, 256)
    largest = np.repeat(scale, 256)[:n]
    # Half the width of the widest step of the table.
    step = np.max(np.diff(dynamic_table(signed)))
    assert np.all(np.abs(back - x) <= step / 2 * largest * (1 + 1e-6))
    # The signed table ends at 1, but begins one step above −1.
    assert np.any(np.abs(back) >= (1 - step / 2 * (1 + 1e-6)) * largest)
    for kind in (torch.from_numpy, wf.tensor):
        other = quantise(kind(x), signed, 256)
        assert np.array_equal(other[0].numpy(), codes)
        assert np.array_equal(other[1].numpy(), scale)
        assert np.array_equal(dequantise(*other, signed, 256).numpy(), back)


def test_blocks_that_are_zero_or_not_finite():
    codes, scale = quantise(np.zeros(300, np.float32), True, 256)
    assert not scale.any() and not dequantise(codes, scale, True, 256).any()
    x = np.ones(512, np.float32)
    x[3] = np.nan
    with np.errstate(invalid="ignore"):
        back = dequantise(*quantise(x, True, 256), True, 256)
    assert np.isnan(back[:256]).all() and np.array_equal(back[256:], x[256:])


@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize("name", ["Adam8bit", "AdamW8bit"])
def test_bytes_of_state(name, device):
    p = wf.Parameter(wf.zeros((1000, 1003), device=device))
    small = wf.Parameter(wf.zeros((UNQUANTISED - 1,), device=device))
    optimizer = getattr(wf.optim, name)([p, small])
    optimizer.step([wf.ones((1000, 1003), device=device), wf.ones(UNQUANTISED - 1, device=device)])
    held = optimizer.state_dict()["state"]
    assert sum(t.nbytes for t in held["0"].values() if isinstance(t, wf.Tensor)) <= 2.1 * p.size
    assert held["1"]["exp_sum"].dtype == wf.float32
    assert sum(t.nbytes for t in held["1"].values() if isinstance(t, wf.Tensor)) == 8 * small.size


def test_small_parameters_are_exact():
    values, rng = np.ones(100), np.random.default_rng(0)
    pairs = [("Adam8bit", "Adam"), ("AdamW8bit", "AdamW")]
    for quantised_name, name in pairs:
        p, q = wf.Parameter(values), wf.Parameter(values)
        one, other = (
            getattr(wf.optim, n)([x], lr=0.1) for n, x in ((quantised_name, p), (name, q))
        )
        for _ in range(5):
            g = wf.tensor(rng.standard_normal(100))
            one.step([g])
            other.step([g])
        assert p.tolist() == q.tolist()


def trained(name, device="cpu"):
    """The loss of a small network after 150 steps."""
    rng = np.random.default_rng(0)
    x = wf.tensor(rng.standard_normal((64, 64)).astype(np.float32), device=device)
    y = wf.sin(x @ wf.tensor(rng.standard_normal((64, 4)).astype(np.float32), device=device))
    shapes = [(64, 128), (128, 128), (128, 4)]
    ps = [
        wf.Parameter(
            wf.tensor((rng.standard_normal(s) / np.sqrt(s[0])).astype(np.float32), device=device)
        )
        for s in shapes
    ]
    optimizer = getattr(wf.optim, name)(ps, lr=3e-3)
    for _ in range(150):
        h = wf.tanh(wf.tanh(x @ ps[0]) @ ps[1])
        loss = ((h @ ps[2] - y) ** 2).mean()
        optimizer.step(loss.backward())
    return loss.item(), optimizer


def test_training_converges_with_float32():
    ours, optimizer = trained("Adam8bit")
    theirs, _ = trained("Adam")
    assert "exp_sum_codes" in optimizer.state["0"] and "exp_sum_codes" in optimizer.state["1"]
    start = 0.5
    assert theirs < 0.2 * start and abs(ours - theirs) <= 0.05 * start


def test_backends_agree():
    rng = np.random.default_rng(0)
    values = rng.standard_normal(5000).astype(np.float32)
    found = []
    for device in ("cpu", "torch"):
        p = wf.Parameter(wf.tensor(values, device=device))
        optimizer = wf.optim.Adam8bit([p], lr=0.1)
        noise = np.random.default_rng(1)
        for _ in range(3):
            g = noise.standard_normal(5000).astype(np.float32)
            optimizer.step([wf.tensor(g, device=device)])
        found.append(p.detach().to("cpu").numpy())
    np.testing.assert_allclose(found[0], found[1], rtol=2e-3, atol=2e-3)


def test_a_moment_that_is_nearly_lost_makes_no_large_step():
    """A second moment far below its block's largest is kept above zero."""
    p = wf.Parameter(wf.zeros((64, 64)))
    optimizer = wf.optim.Adam8bit([p], lr=1e-3)
    g = np.ones((64, 64), np.float32)
    g[:, ::2] = 1e-5
    for _ in range(20):
        optimizer.step([wf.tensor(g)])
        g[:, ::2] = 0.0
    assert np.max(np.abs(p.detach().numpy())) <= 20 * 1e-3 * 1.1


@pytest.mark.parametrize("name", ["Adam8bit", "AdamW8bit"])
def test_compiled_steps_are_eager_ones(name):
    """A compiled step has a parameter in its own shape, and the moments as flat codes."""
    made = []
    for compiled in (False, True):
        wf.random.seed(0)
        p = wf.Parameter(wf.randn((512, 13)))
        optimizer = getattr(wf.optim, name)([p], lr=1e-2)
        x = wf.randn((4, 512))

        def step(x, p=p, optimizer=optimizer):
            optimizer.zero_grad()
            (x @ p).square().sum().backward()
            optimizer.step()

        run = wf.compile(step) if compiled else step
        for _ in range(3):
            run(x)
        made.append(p.detach().numpy())
    np.testing.assert_allclose(*made, rtol=1e-5, atol=1e-6)
