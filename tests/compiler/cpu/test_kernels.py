"""Kernels: what the verifier refuses, how loops are nested, folds, pieces, checks, processors."""

import os
import subprocess
import sys
from dataclasses import replace
from threading import Thread

import numpy as np
import pytest
from scipy import special

from weft.compiler.cpu.emit_kernel import build, link, module_of, native
from weft.compiler.cpu.loop_nest import find_reused, nest_of
from weft.compiler.ir.kernel import FoldStep, Kernel, MalformedKernel, Operand, Result, Step, verify
from weft.compiler.native.machine import Processor, assembly, host
from weft.core import dtypes
from weft.graph.graph import Literal

from ..kernels import extent, run, strides

F32, F64 = dtypes.float32, dtypes.float64


def step(row, *inputs, dtype=F32) -> Step:
    return Step(row, inputs, dtype)


def line(n: int, *rows: str) -> Kernel:
    """Functions of one array, one after the other."""
    steps = tuple(step(row, i) for i, row in enumerate(rows))
    return Kernel((n,), (Operand(F32, (1,)),), steps, (Result(len(rows), (1,)),))


def softmax(m: int, n: int, dtype=F32) -> Kernel:
    steps = (
        FoldStep("max", 0, dtype),
        step("subtract", 0, 1, dtype=dtype),
        step("exp", 2, dtype=dtype),
        FoldStep("sum", 3, dtype),
        step("divide", 3, 4, dtype=dtype),
    )
    return Kernel((m, n), (Operand(dtype, (n, 1)),), steps, (Result(5, (n, 1)),), (1,))


def layer_norm(m: int, n: int) -> Kernel:
    """Mean and variance, the normalised rows, and both statistics as results too."""
    steps = (
        FoldStep("mean", 0, F32),
        step("subtract", 0, 3),
        step("square", 4),
        FoldStep("mean", 5, F32),
        step("add", 6, Literal(1e-5)),
        step("rsqrt", 7),
        step("multiply", 4, 8),
        step("scale_shift", 9, 1, 2),
    )
    operands = (Operand(F32, (n, 1)), Operand(F32, (0, 1)), Operand(F32, (0, 1)))
    results = (Result(10, (n, 1)), Result(3, (1, 0)), Result(8, (1, 0)))
    return Kernel((m, n), operands, steps, results, (1,))


MALFORMED = {
    "negative size": replace(line(4, "exp"), domain=(-1,)),
    "strides for another number of axes": replace(line(4, "exp"), domain=(2, 2)),
    "no such row": line(4, "expo"),
    "a value before it is known": Kernel(
        (4,), (Operand(F32, (1,)),), (step("exp", 1),), (Result(1, (1,)),)
    ),
    "too many inputs": Kernel(
        (4,), (Operand(F32, (1,)),), (step("exp", 0, 0),), (Result(1, (1,)),)
    ),
    "a literal that is no number": Kernel(
        (4,), (Operand(F32, (1,)),), (step("add", 0, Literal("1")),), (Result(1, (1,)),)
    ),
    "a result that is no value": replace(line(4, "exp"), results=(Result(2, (1,)),)),
    "one element written many times": replace(line(4, "exp"), results=(Result(1, (0,)),)),
    "an axis folded twice": replace(softmax(2, 3), folded=(1, 1)),
    "an axis that is not there": replace(softmax(2, 3), folded=(2,)),
    "a fold without axes": replace(softmax(2, 3), folded=()),
    "an unknown fold": Kernel(
        (4,), (Operand(F32, (1,)),), (FoldStep("median", 0, F32),), (Result(1, (0,)),), (0,)
    ),
    "the maximum of nothing": Kernel(
        (0,), (Operand(F32, (1,)),), (FoldStep("max", 0, F32),), (Result(1, (0,)),), (0,)
    ),
    "a folded value that moves": replace(softmax(2, 3), results=(Result(1, (3, 1)),)),
}


@pytest.mark.parametrize("kernel", MALFORMED.values(), ids=MALFORMED)
def test_malformed_kernels_are_refused(kernel):
    with pytest.raises(MalformedKernel):
        verify(kernel)


def test_accesses_outside_of_an_array_are_refused():
    kernel = replace(line(8, "exp"), operands=(Operand(F32, (-1,)),))
    verify(kernel, ((7, 1), (0, 8)))
    for extents in (((6, 1), (0, 8)), ((7, 0), (0, 8)), ((7, 1), (0, 7)), ((7, 1),)):
        with pytest.raises(MalformedKernel):
            verify(kernel, extents)


def test_checked_kernels_stop_at_the_border():
    kernel = line(100, "exp")
    x, y = np.zeros(100, np.float32), np.zeros(100, np.float32)
    checked = native(kernel, extents=((0, 100), (0, 100)))
    checked([x, y])
    assert (y == 1).all()
    for extents, what in ((((0, 90), (0, 100)), "array 0"), (((0, 100), (0, 99)), "array 1")):
        with pytest.raises(MalformedKernel, match=what):
            native(kernel, extents=extents)([x, y])
    for begin, end in ((0, 101), (-16, 16), (3, 100), (0, 17)):
        with pytest.raises(MalformedKernel, match="the range of units"):
            checked([x, y], begin, end)


def test_axes_merge_and_lanes_lie_in_a_line():
    whole = Kernel((3, 4, 5), (Operand(F32, (20, 5, 1)),), (), (Result(0, (20, 5, 1)),))
    nest = nest_of(whole)
    assert (nest.outer, nest.lane.size, nest.lanes, nest.grain) == ((), 60, 16, 16)
    turned = Kernel((64, 64), (Operand(F32, (1, 64)),), (), (Result(0, (1, 64)),))
    assert nest_of(turned).lane.size == 4096
    rows = nest_of(softmax(7, 100))
    assert (rows.count, rows.grain, rows.lane_folded) == (7, 1, True)
    columns = Kernel(
        (50, 100), (Operand(F32, (100, 1)),), (FoldStep("sum", 0, F32),), (Result(1, (0, 1)),), (0,)
    )
    assert not nest_of(columns).lane_folded and nest_of(columns).lane.size == 100


def test_long_chains_have_four_registers_side_by_side():
    """In long lines; the bits are those of short ones."""
    rows, n, part = ("tanh", "exp", "sin", "log"), (1 << 16) + 37, 1000
    assert nest_of(line(n, *rows[:3])).lanes == 32
    short, long = line(part, *rows), line(n, *rows)
    assert (nest_of(short).lanes, nest_of(long).lanes) == (16, 64)
    x = np.random.default_rng(0).uniform(0.5, 1.5, n).astype(F32)
    whole, parts = np.full(n, np.nan, F32), np.full(n, np.nan, F32)
    run(long, x, whole)
    small = native(short)
    for start in (*range(0, n - part, part), n - part):
        small([x[start : start + part], parts[start : start + part]])
    np.testing.assert_array_equal(whole, parts)


def test_only_what_is_slow_is_kept_between_sweeps():
    kernel = softmax(4, 100)
    assert find_reused(kernel, nest_of(kernel)) == {3: 1}  # the exponential, not the difference
    long = softmax(4, 100_000)
    assert find_reused(long, nest_of(long)) == {}


@pytest.mark.parametrize("n", [1, 3, 16, 50, 129, 1000, 5000])
def test_softmax_and_layer_norm(n):
    rng = np.random.default_rng(n)
    x = rng.normal(size=(5, n)).astype(np.float32) * 5
    y = np.empty_like(x)
    run(softmax(5, n), x, y)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=4e-6)
    w, b = rng.normal(size=(2, n)).astype(np.float32)
    mean, scale = np.empty(5, np.float32), np.empty(5, np.float32)
    run(layer_norm(5, n), x, w, b, y, mean, scale)
    wide = x.astype(np.float64)
    r = 1 / np.sqrt(wide.var(1) + 1e-5)
    np.testing.assert_allclose(mean, wide.mean(1), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(scale, r, rtol=1e-5)
    want = (wide - wide.mean(1, keepdims=True)) * r[:, None] * w + b
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5 * (1 + r.max() * 1e-3))


KINDS = ("sum", "prod", "max", "min", "any", "all", "mean")
TYPES = (*dtypes.REAL, dtypes.bool_, dtypes.int8, dtypes.uint8, dtypes.int64, dtypes.uint64)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_folds_of_every_dtype(kind, dtype):
    rng = np.random.default_rng(0)
    x = (rng.integers(0, 4, (7, 37)) + (dtype.kind != "b")).astype(dtype)
    if kind == "mean" and dtype not in dtypes.REAL:
        return
    out = dtypes.bool_ if kind in ("any", "all") else dtype
    if kind in ("sum", "prod"):
        out = dtypes.sum_dtype(dtype)
    for axis in (0, 1):
        y = np.empty(x.shape[1 - axis], out)
        moving = (0, 1) if axis == 0 else (1, 0)
        kernel = Kernel(
            x.shape,
            (Operand(dtype, (37, 1)),),
            (FoldStep(kind, 0, out),),
            (Result(1, moving),),
            (axis,),
        )
        run(kernel, x, y)
        wide = x.astype(np.float32) if dtype in dtypes.HALF else x
        with np.errstate(all="ignore"):
            want = getattr(np, kind)(wide, axis=axis).astype(out)
        np.testing.assert_array_equal(
            y, want
        ) if dtype.kind in "biu" else np.testing.assert_allclose(
            y.astype(np.float64), want.astype(np.float64), rtol=2e-6 if kind != "prod" else 2e-5
        )


def test_folds_of_nothing_and_nan():
    x = np.empty((3, 0), np.float32)
    y = np.full(3, np.nan, np.float32)
    one = Kernel(
        (3, 0), (Operand(F32, (0, 1)),), (FoldStep("sum", 0, F32),), (Result(1, (1, 0)),), (1,)
    )
    run(one, x, y)
    assert y.tolist() == [0, 0, 0]
    for kind in ("max", "min"):
        for spot in range(40):
            x = np.arange(40, dtype=np.float32)
            x[spot] = np.nan
            z = np.zeros((), np.float32)
            fold = (FoldStep(kind, 0, F32),)
            run(Kernel((40,), (Operand(F32, (1,)),), fold, (Result(1, (0,)),), (0,)), x, z)
            assert np.isnan(z)


@pytest.mark.parametrize("ends", [(1.0, np.inf), (np.inf, -np.inf), (3e38, 3e38)])
def test_long_sums_with_infinities(ends):
    x = np.ones(100_000, np.float32)
    x[0], x[-1] = ends
    y = np.zeros((), np.float32)
    run(
        Kernel(
            (x.size,), (Operand(F32, (1,)),), (FoldStep("sum", 0, F32),), (Result(1, (0,)),), (0,)
        ),
        x,
        y,
    )
    with np.errstate(all="ignore"):
        np.testing.assert_equal(y, x.sum())


def test_long_sums_are_as_exact_as_pairwise_ones():
    x = np.random.default_rng(0).uniform(size=1 << 20).astype(np.float32)
    y = np.zeros((), np.float32)
    run(
        Kernel(
            (x.size,), (Operand(F32, (1,)),), (FoldStep("sum", 0, F32),), (Result(1, (0,)),), (0,)
        ),
        x,
        y,
    )
    exact = x.astype(np.float64).sum()
    assert abs(y - exact) <= np.spacing(np.float32(exact))


def test_results_may_take_an_operands_memory():
    x = np.random.default_rng(0).normal(size=1003).astype(np.float32)
    want = np.exp(x.astype(np.float64))
    run(line(1003, "exp"), x, x)
    np.testing.assert_allclose(x, want, rtol=2e-7)


@pytest.mark.parametrize(
    "kernel", [line(1003, "exp", "sin"), softmax(37, 100)], ids=["line", "rows"]
)
def test_pieces_make_the_same_bits_in_any_order_on_any_thread(kernel):
    size = int(np.prod(kernel.domain))
    x = np.random.default_rng(0).normal(size=size).astype(np.float32)
    whole, parts = np.empty_like(x), np.empty_like(x)
    done = native(kernel)
    done([x, whole])
    count, grain = done.image.count, done.image.grain
    piece = max(grain * 3, grain)
    starts = list(range(0, count, piece))[::-1]
    threads = [Thread(target=done, args=([x, parts], b, min(b + piece, count))) for b in starts]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    np.testing.assert_array_equal(whole.view(np.int32), parts.view(np.int32))


def test_many_threads_compile_at_once():
    x = np.linspace(0.1, 1, 40).astype(np.float32)
    outs = [np.empty_like(x) for _ in range(6)]
    names = ["exp", "log", "sin", "cos", "tanh", "sqrt"]
    threads = [
        Thread(target=run, args=(line(40, n), x, y)) for n, y in zip(names, outs, strict=True)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for name, y in zip(names, outs, strict=True):
        np.testing.assert_allclose(y, getattr(np, name)(x), rtol=1e-6)


def test_images_can_be_kept_and_linked_again():
    x = np.linspace(0, 1, 20).astype(np.float32)
    image = build(Kernel((20,), (Operand(F32, (1,)),), (step("gammaln", 0),), (Result(1, (1,)),)))
    a, b = np.empty_like(x), np.empty_like(x)
    link(image)([x, a])
    link(image)([x, b])
    np.testing.assert_array_equal(a, b)


def narrower() -> Processor:
    """This machine without its widest registers."""
    features = ",".join(
        f"-{f[1:]}" if f.startswith(("+avx512", "+avx10")) else f
        for f in host().features.split(",")
    )
    return Processor("x86-64-v3", features)


def by_both(row: str, x: np.ndarray) -> list[np.ndarray]:
    """A row of all lengths of registers, by wide registers and by narrow ones."""
    inputs, n = (0, 0) if row == "pow" else (0,), len(x)
    kernel = Kernel((n,), (Operand(F32, (1,)),), (step(row, *inputs),), (Result(1, (1,)),))
    module, _ = module_of(kernel, narrower())
    assert "zmm" not in assembly(module, narrower())
    made = [np.empty_like(x) for _ in range(2)]
    native(kernel)([x, made[0]])
    native(kernel, narrower())([x, made[1]])
    return made


EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-40, 1.1754944e-38, 3.4028235e38, 1.5]


@pytest.mark.skipif(not host().has("avx512f"), reason="the narrower code is this machine's own")
@pytest.mark.parametrize("row", ["exp", "sin", "log", "pow", "exp2", "log2", "log1p", "expm1"])
@pytest.mark.parametrize("n", [97, 98, 101, 5000])
def test_code_without_wide_registers_gives_the_same_bits(row, n):
    rng = np.random.default_rng(0)
    x = np.concatenate([EDGES, rng.uniform(-100, 100, 20), rng.uniform(0.1, 30, n)])
    a, b = by_both(row, x.astype(np.float32))
    np.testing.assert_array_equal(a, b)


@pytest.mark.skipif(not host().has("avx512f"), reason="the narrower code is this machine's own")
@pytest.mark.parametrize("row, exact", [("tanh", np.tanh), ("expit", special.expit)])
def test_quotients_with_and_without_wide_registers(row, exact):
    x = np.random.default_rng(0).uniform(-12, 12, 20_000).astype(np.float32)
    x = np.concatenate([x, [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40]]).astype(np.float32)
    want = exact(x.astype(np.float64))
    for y in by_both(row, x):
        np.testing.assert_array_equal(np.isnan(y), np.isnan(x))
        units = np.abs(y - want)[~np.isnan(x)] / np.spacing(np.abs(want[~np.isnan(x)]).astype("f"))
        assert units.max() <= 2
        assert (np.signbit(y) == np.signbit(want))[~np.isnan(x)].all()


@pytest.mark.skipif(not host().has("avx512f"), reason="the names of wide registers are x86's")
def test_loops_use_whole_registers():
    module, _ = module_of(line(1000, "exp"))
    text = assembly(module)
    assert "zmm" in text and "call" not in text


def test_importing_weft_does_not_load_the_compiler():
    program = "import sys, weft; print([m for m in sys.modules if 'llvm' in m])"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert out.stdout == "[]\n", out.stderr


def test_strides_of_test_arrays():
    a = np.zeros((4, 6), np.float32)[::-1, ::2]
    assert strides(a) == (-6, 2) and extent(a) == (18, 5)


def test_a_load_of_a_single_lane_ends():
    """LLVM's code generator goes round in circles on some that it knows to have one lane."""
    program = (
        "import numpy as np, weft as wf\n"
        "for n in (65, 4097, 4225):\n"
        "    x = wf.tensor(np.arange(n, dtype=np.float64))\n"
        "    assert wf.compile(wf.count_nonzero)(x).item() == n - 1\n"
    )
    environment = {**os.environ, "WEFT_CACHE_DIR": ""}
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120, env=environment)
