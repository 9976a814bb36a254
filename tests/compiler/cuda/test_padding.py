"""Padded products: the values of the plain ones, in rows of whole accesses."""

import numpy as np
import pytest
from tests.compiler.cuda.emulated_gpu import emulated_target

import weft as wf
from weft.compiler import pipeline
from weft.compiler.cuda import padding
from weft.compiler.ir.schedule import GemmStep
from weft.compiler.raw.arrays import arrays_on

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """All products are long enough, on an emulated GPU."""
    monkeypatch.setattr(padding, "FLOPS", 0)
    monkeypatch.setenv("WEFT_CACHE_DIR", "")  # schedules there are made with other limits
    monkeypatch.setattr(padding, "LENGTH", 3)
    monkeypatch.setattr(arrays_on("torch"), "host_runtime", False)
    with pipeline.using(emulated_target()):
        yield


def products(compiled):
    run = compiled._last().executable
    return run.schedule, [s for s in run.schedule.steps if isinstance(s, GemmStep)]


@pytest.mark.parametrize("seed", range(24))
def test_products_of_any_sizes(seed):
    rng = np.random.default_rng(seed)
    m, k, n = rng.integers(1, 40, 3)
    dtype = (torch.bfloat16, torch.float16)[seed % 2]
    turned = rng.integers(0, 2, 2)

    def tensor(rows, columns, turn):
        raw = torch.tensor(rng.normal(size=(columns, rows) if turn else (rows, columns)))
        return wf.asarray(raw.to(dtype))

    def f(a, b):
        a, b = (wf.matrix_transpose(x) if t else x for x, t in zip((a, b), turned, strict=True))
        return a @ b, wf.tanh(a @ b)

    a, b = tensor(m, k, turned[0]), tensor(k, n, turned[1])
    compiled = wf.compile(f)
    for got, want in zip(compiled(a, b), f(a, b), strict=True):
        got, want = (x.astype("float64").to("cpu").numpy() for x in (got, want))
        np.testing.assert_allclose(got, want, rtol=2e-2, atol=2e-2 * np.abs(want).max())
    _, steps = products(compiled)
    for step in steps:
        assert step.n % padding.ACCESS == 0 or step.n < padding.LENGTH
        terms_along = not step.transpose_a or step.transpose_b
        assert step.k % padding.ACCESS == 0 or step.k < padding.LENGTH or not terms_along
        rows_along = step.transpose_a and step.m >= padding.LENGTH
        assert step.m % padding.ACCESS == 0 or not rows_along


@pytest.mark.parametrize("shape", [(16, 16), (2, 8, 16)])
def test_a_vocabulary_of_odd_length(shape):
    """Logits, their gradient and the weights are padded once each, whatever reads them."""
    w = wf.Parameter(wf.asarray(torch.randn(21, 16)))
    x, y = wf.asarray(torch.randn(shape)), wf.asarray(torch.arange(16))

    def step(x):
        w.grad = None
        with wf.amp.autocast("bfloat16"):
            logits = wf.nn.functional.linear(wf.tanh(x * w.sum()), w)
            loss = wf.nn.functional.cross_entropy(logits.reshape((16, 21)), y)
        loss.backward()
        return loss.detach()

    compiled = wf.compile(step)
    got = [compiled(x).to("cpu").numpy(), w.grad.to("cpu").numpy().copy()]
    want = [step(x).to("cpu").numpy(), w.grad.to("cpu").numpy()]
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-2, atol=2e-2)
    schedule, steps = products(compiled)
    assert {(s.m, s.k, s.n) for s in steps} == {(16, 16, 24), (16, 24, 16), (24, 16, 16)}
    padded = [b for b in schedule.buffers if b.base is None and 24 in b.shape]
    assert len(padded) <= 4  # weights, logits, their gradient, the gradient of the weights


def test_a_batch_of_rows():
    rng = np.random.default_rng(0)
    a, b = (wf.asarray(torch.tensor(rng.normal(size=s)).bfloat16()) for s in ((2, 5, 13), (21, 13)))
    compiled = wf.compile(lambda a, b: a @ wf.matrix_transpose(b))
    got, want = compiled(a, b), a @ wf.matrix_transpose(b)
    got, want = (x.astype("float64").to("cpu").numpy() for x in (got, want))
    np.testing.assert_allclose(got, want, rtol=2e-2, atol=2e-2)
    assert {(s.k, s.n) for s in products(compiled)[1]} == {(16, 24)}


def test_small_products_stay(monkeypatch):
    monkeypatch.setattr(padding, "FLOPS", 1 << 33)
    a, b = (wf.asarray(torch.randn(17, 17).bfloat16()) for _ in range(2))
    compiled = wf.compile(lambda a, b: a @ b)
    compiled(a, b)
    assert [(s.m, s.k, s.n) for s in products(compiled)[1]] == [(17, 17, 17)]
