"""Sums of columns by rows: pieces of rows, stages, and kernels that they become a part of."""

import numpy as np
import pytest
import torch

import weft as wf
from weft.compiler.cpu.emit_kernel import native
from weft.compiler.cpu.runtime import thread_pool as threads
from weft.compiler.fusion.column_folds import by_rows
from weft.compiler.ir.kernel import FoldStep, Kernel, MalformedKernel, Operand, Result, Step, verify
from weft.compiler.ir.schedule import KernelStep
from weft.compiler.limits import LIMITS
from weft.core import dtypes

from ..passes.graphs import traced
from ..schedules import Machine, compare, compiled
from ..schedules import by_rows as by_table

F = wf.nn.functional
F32 = dtypes.float32
SHORT, LARGE = LIMITS.long_columns, LIMITS.column_elements


@pytest.fixture(autouse=True)
def pool():
    before = threads.width()
    yield
    threads.resize(before)


def kernels_of(function) -> list[Kernel]:
    """The kernels of a compiled function."""
    steps = function._last().executable.schedule.steps
    return [s.kernel for s in steps if isinstance(s, KernelStep)]


def centred(n: int, columns: int, piece: int, folded: bool) -> Kernel:
    """x·w, less its mean over the row if that is folded; all of it, and the sums of two columns."""
    steps = [Step("multiply", (0, 1), F32)]
    if folded:
        steps += [FoldStep("mean", 2, F32), Step("subtract", (2, 3), F32)]
    value, rows = 1 + len(steps), (columns, 1)
    return Kernel(
        (n, columns),
        (Operand(F32, rows), Operand(F32, (0, 1))),
        tuple(steps),
        (Result(value, rows), Result(value, rows, "sum"), Result(2, rows, "sum")),
        (1,) if folded else (),
        piece,
    )


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize(
    "n, columns, piece", [(200, 100, 64), (130, 33, 64), (64, 16, 64), (1, 7, 3), (9, 1, 2)]
)
def test_columns_are_added_up_in_pieces_of_rows(n, columns, piece, folded):
    kernel = centred(n, columns, piece, folded)
    rng, pieces = np.random.default_rng(n), -(-n // piece)
    x, w = rng.standard_normal((n, columns)), rng.standard_normal(columns)
    arrays = [a.astype(np.float32) for a in (x, w)]
    arrays += [np.empty((n, columns), np.float32)]
    arrays += [np.full((pieces, columns), np.nan, np.float32) for _ in range(2)]
    extents = tuple((0, a.size) for a in arrays)
    verify(kernel, extents)
    code = native(kernel, extents=extents)
    for begin in reversed(range(0, n, code.image.grain)):  # in any order
        code(arrays, begin, min(begin + code.image.grain, n))
    product = arrays[0].astype(np.float64) * arrays[1]
    want = product - product.mean(1, keepdims=True) if folded else product
    np.testing.assert_allclose(arrays[2], want, atol=1e-5)
    for got, value in zip(arrays[3:], (want, product), strict=True):
        sums = np.add.reduceat(value, range(0, n, piece), axis=0)
        np.testing.assert_allclose(got, sums, rtol=1e-5, atol=1e-4)


def test_what_the_verifier_refuses():
    fine = centred(8, 16, 4, True)
    verify(fine)
    bad = Kernel(fine.domain, fine.operands, fine.steps, fine.results, fine.folded)
    with pytest.raises(MalformedKernel, match="pieces of 0 rows"):
        verify(bad)
    still = Result(3, (16, 1), "sum")
    with pytest.raises(MalformedKernel, match="folds v3"):
        verify(Kernel(fine.domain, fine.operands, fine.steps, (still,), fine.folded, 4))
    apart = Result(2, (1, 8), "sum")
    with pytest.raises(MalformedKernel, match="folds v2"):
        verify(Kernel(fine.domain, fine.operands, fine.steps, (apart,), fine.folded, 4))
    with pytest.raises(MalformedKernel, match="array 4"):
        verify(fine, ((0, 128), (0, 16), (0, 128), (0, 32), (0, 31)))


SUMS = {
    "sum": lambda x, w: x.sum(axis=0),
    "mean of steps": lambda x, w: (wf.exp(x) * w).mean(axis=0) + w,
    "several, and all of it": lambda x, w: ((x * w).sum(axis=0), x.mean(axis=0) * w, x * w + 1),
    "of three axes": lambda x, w: x.reshape((2, -1, x.shape[1])).sum(axis=(0, 1)),
    "by numbers of rows": lambda x, w: (x * x[:, :1]).sum(axis=0),
    "extremes": lambda x, w: (x.max(axis=0) - w, (x * w).min(axis=0), (x > 2).any(axis=0), x + x),
    "no column of w": lambda x, w: (x + x).max(axis=0),
    "product": lambda x, w: (x > 2).sum(axis=0) * wf.where(x > 1, x * 0 - 1, 1).prod(axis=0),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32"])
@pytest.mark.parametrize("shape", [(4096, 16), (1030, 100), (100, 1000), (20000, 3)])
@pytest.mark.parametrize("name", SUMS)
def test_long_columns_are_summed_up_by_rows(name, shape, dtype):
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(-1, 3, n).astype(dtype) for n in (shape, shape[1:])]
    graph = traced(SUMS[name], *arrays)
    schedule = compiled(graph)
    pieces = [s.kernel.piece for s in schedule.steps if isinstance(s, KernelStep)]
    assert any(pieces) or shape[1] == 3, "no kernel goes by rows"
    want = by_table(graph, arrays)
    units = 64 if shape[0] < 5000 else 512  # NumPy adds one row after the other
    for by_native in (False, True):
        compare(Machine(schedule, arrays, by_native).run(), want, units)


def test_short_or_narrow_columns_are_not():
    def folded(rows: int, columns: int, kind: str = "sum", gap: int = 0) -> Kernel:
        operand, fold = Operand(F32, (1, columns + gap)), FoldStep(kind, 0, F32)
        return Kernel((columns, rows), (operand,), (fold,), (Result(1, (1, 0)),), (1,))

    def first(*given) -> tuple[int, ...] | None:
        stages = by_rows(folded(*given), LIMITS)
        return None if stages is None else stages.first.domain

    assert first(1 << 12, 64, "max") == (1 << 12, 64)
    assert first(SHORT, LARGE) is None
    assert first(SHORT + 1, 8) is None
    # Short rows are taken several at a time, where they follow each other.
    assert first(LARGE, 4) == (LARGE // 32, 128)
    assert first(30_000, 10) == (30_000 // 15, 150)
    assert first(LARGE, 4, "sum", 1) is None
    assert first(65_521, 3) is None and first(65_521, 10) == (65_521, 10)


def normed(x, w, b, classes):
    return F.cross_entropy(F.layer_norm(x, x.shape[1:], w, b), classes)


def test_a_layer_norm_and_the_sums_of_its_columns_are_one_kernel():
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(n).astype(np.float32) for n in ((515, 96), 96, 96))
    classes = rng.integers(0, 96, 515)
    gradient = wf.compile(wf.grad(normed, argnums=(0, 1, 2)))
    args = [wf.tensor(a) for a in (x, w, b, classes)]
    got = gradient(*args)
    kernels = kernels_of(gradient)
    large = [k for k in kernels if k.domain == (515, 96)]
    assert len(large) == 1 and [r.over_rows for r in large[0].results].count("") == 1
    leaves = [torch.from_numpy(a).double().requires_grad_() for a in (x, w, b)]
    y = torch.nn.functional.layer_norm(leaves[0], (96,), *leaves[1:])
    torch.nn.functional.cross_entropy(y, torch.from_numpy(classes)).backward()
    for a, t in zip(got, leaves, strict=True):
        np.testing.assert_allclose(np.asarray(a), t.grad.numpy(), rtol=2e-5, atol=1e-7)


def test_an_array_and_the_sums_of_its_columns_are_one_kernel():
    def loss(x, b):
        return (wf.tanh(x + b) ** 2).sum()

    x = np.random.default_rng(0).standard_normal((1000, 40)).astype(np.float32)
    b = np.linspace(-1, 1, 40, dtype=np.float32)
    graph = traced(wf.grad(loss, argnums=(0, 1)), x, b)
    schedule = compiled(graph)
    assert [s.kernel.domain for s in schedule.steps] == [(1000, 40), (40, 63)]
    for by_native in (False, True):
        compare(Machine(schedule, [x, b], by_native).run(), by_table(graph, [x, b]), units=64)


def _later(x, w):
    y = wf.exp(x - x.max(axis=1, keepdims=True))
    scale = (y.sum(axis=1) * w).sum()
    return (y * scale).sum(axis=0)


def _backwards(x, w):
    y = wf.exp(x - x.max(axis=1, keepdims=True))
    return (y * y[:, ::-1]).sum(axis=0), y


def _with_its_rows(x, w):
    y = wf.exp(x - x.max(axis=1, keepdims=True))
    s = y.sum(axis=1, keepdims=True)
    return (y * s * w[:, None]).sum(axis=0), s


@pytest.mark.parametrize(
    "f, joined", [(_later, False), (_backwards, False), (_with_its_rows, True)]
)
def test_a_sum_waits_for_what_else_it_reads(f, joined):
    x = np.random.default_rng(0).standard_normal((1000, 40)).astype(np.float32)
    w = np.linspace(-1, 1, 1000, dtype=np.float32)
    graph = traced(f, x, w)
    schedule = compiled(graph)
    assert any(s.kernel.piece and s.kernel.folded for s in schedule.steps) == joined
    compare(Machine(schedule, [x, w], True).run(), by_table(graph, [x, w]), units=64)


def test_the_same_bits_for_any_number_of_threads():
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(n).astype(np.float32) for n in ((1999, 130), 130, 130))
    args = [wf.tensor(a) for a in (x, w, b, rng.integers(0, 130, 1999))]

    def f(x, w, b, classes):
        value, found = wf.value_and_grad(normed, argnums=(0, 1, 2))(x, w, b, classes)
        return value, *found, x.sum(), x.sum(axis=0), wf.softmax(x, axis=1), (x * x).mean()

    call, seen = wf.compile(f), []
    for width in (1, 2, 3):
        threads.resize(width)
        seen.append([np.asarray(a).copy() for a in call(*args)])
    for other in seen[1:]:
        for a, c in zip(seen[0], other, strict=True):
            np.testing.assert_array_equal(a, c)


# -- shares of sums ----------------------------------------------------------------------------


def rows_of_all_kinds(dtype) -> np.ndarray:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((9, 50)).astype(dtype) * 5
    x[1, 3], x[2], x[3, 4], x[4, 5] = -np.inf, -np.inf, np.nan, np.inf
    x[5], x[6, :], x[7, 0] = 7.5, -1e30, 1e30
    return x


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("axis", [0, 1])
def test_softmax_beside_torch(axis, dtype):
    x = rows_of_all_kinds(dtype)
    call = wf.compile(lambda x: wf.softmax(x, axis=axis))
    got = np.asarray(call(wf.tensor(x)))
    (kernel,) = kernels_of(call)
    assert [s.row for s in kernel.steps if isinstance(s, Step)][-2:] == ["divide", "multiply"]
    want = torch.softmax(torch.from_numpy(x), axis).numpy()
    np.testing.assert_allclose(got, want, rtol=4 * np.finfo(dtype).eps, atol=np.finfo(dtype).tiny)


def test_the_shares_of_a_cross_entropy_take_one_exponential():
    x = np.random.default_rng(0).standard_normal((40, 50)).astype(np.float32)
    x[3, 4], x[5, :10] = 60.0, -np.inf
    classes = np.arange(40) % 50

    def loss(x, classes):
        return F.cross_entropy(x, classes)

    call = wf.compile(wf.grad(loss))
    got = np.asarray(call(wf.tensor(x), wf.tensor(classes)))
    kernels = kernels_of(call)
    rows = [s.row for k in kernels for s in k.steps if isinstance(s, Step)]
    assert rows.count("exp") == 1
    leaf = torch.from_numpy(x).double().requires_grad_()
    torch.nn.functional.cross_entropy(leaf, torch.from_numpy(classes)).backward()
    np.testing.assert_allclose(got, leaf.grad.numpy(), rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: wf.exp(x * 2 - wf.logsumexp(x, axis=1, keepdims=True)),
        lambda x: wf.exp(x) / wf.exp(x * 2).sum(axis=1, keepdims=True),
        lambda x: wf.exp(x) / (1 + wf.exp(x)).sum(axis=1, keepdims=True),
    ],
)
def test_what_only_looks_like_a_share_is_none(f):
    x = np.random.default_rng(0).standard_normal((20, 50)).astype(np.float32)
    got, want = (np.asarray(g(wf.tensor(x))) for g in (wf.compile(f), f))
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_other_quotients_stay():
    """x/max x has an exact 1 in every row."""
    x = np.random.default_rng(0).uniform(0.1, 9, (100, 33)).astype(np.float32)
    y = np.asarray(wf.compile(lambda x: x / x.max(axis=1, keepdims=True))(wf.tensor(x)))
    assert (y.max(axis=1) == 1).all()
    np.testing.assert_array_equal(y, x / x.max(axis=1, keepdims=True))
