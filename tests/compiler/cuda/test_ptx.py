"""PTX of every row and of whole kernels: what is refused, what is assembled, its registers."""

import re

import numpy as np
import pytest

import weft as wf
from weft.compiler.cuda import ptx
from weft.compiler.cuda.computes import why_no_row
from weft.compiler.cuda.folds import plan_folds
from weft.compiler.cuda.kernels import GridKernel, build_kernel, plan_grid
from weft.compiler.cuda.ptx import FEATURES, NoPtx, ptx_of
from weft.compiler.emit.code import LLModule, lanes_of
from weft.compiler.emit.elementary import LIBRARY
from weft.compiler.emit.integers import BOOLEAN
from weft.compiler.emit.integers import EMITTERS as INTEGER
from weft.compiler.emit.reals import EMITTERS as REAL
from weft.compiler.emit.scalar import NotSupported, why_unsupported
from weft.compiler.ir.kernel import FoldStep, Kernel, Operand, Result, Step
from weft.core import dtypes
from weft.core.op import TABLE
from weft.graph.graph import Literal
from weft.ops.table import whole

from .assembler import assemble, needs_ptxas
from .test_programs import half, kernels_of, norm

whole()
STATIC = {"power_scalar": (2.5,), "clip": (-1.0, 1.0)}
STATIC_OF_INTEGERS = {"power_scalar": (3,), "clip": (-1, 1)}
KINDS = (
    *(dtypes.float32, dtypes.float64, dtypes.bfloat16, dtypes.float16),
    *(dtypes.int32, dtypes.int64, dtypes.uint8, dtypes.bool_),
)
# Rows without PTX, by dtype: SciPy's, and what needs the C library or a remainder.
REFUSED = {*LIBRARY, "sinc", "remainder", "floor_divide"}
REFUSED_WIDE = REFUSED | {"sin", "cos", "tan", "pow", "power_scalar"}


def rows_of(dtype: np.dtype) -> dict:
    table = REAL if dtype in dtypes.REAL else BOOLEAN if dtype == dtypes.bool_ else INTEGER
    return {row: _static(row, dtype) for row in table if _has_kernel(row, dtype)}


def _static(row: str, dtype: np.dtype) -> tuple:
    return (STATIC if dtype in dtypes.REAL else STATIC_OF_INTEGERS).get(row, ())


def _has_kernel(row: str, dtype: np.dtype) -> bool:
    return not why_unsupported(row, _static(row, dtype), dtype)


def kernel_of(row: str, static: tuple, dtype: np.dtype) -> Kernel:
    arity = TABLE[row].arity
    assert arity is not None
    truths = ("isnan", "isinf", "isfinite", "signbit")
    made = dtypes.bool_ if TABLE[row].compares or row in truths else dtype
    step = Step(row, tuple(range(arity)), made, static)
    return Kernel((1000,), (Operand(dtype, (1,)),) * arity, (step,), (Result(arity, (1,)),))


@pytest.mark.parametrize("dtype", KINDS, ids=str)
@needs_ptxas
def test_every_row_is_assembled_or_refused(dtype, tmp_path):
    refused = REFUSED_WIDE if dtype == dtypes.float64 else REFUSED if dtype in dtypes.REAL else ()
    built: list[GridKernel] = []
    for row, static in rows_of(dtype).items():
        kernel = kernel_of(row, static, dtype)
        assert bool(why_no_row(row, static, dtype)) == (row in refused), row
        if row in refused:
            with pytest.raises(NoPtx):
                build_kernel(kernel)
        else:
            built.append(build_kernel(kernel))
    figures = assemble(built, tmp_path)
    print(f"{dtype}: {len(figures)} rows, registers {[f.registers for f in figures.values()]}")


def test_what_no_gpu_has_is_refused():
    module = LLModule("", FEATURES)
    code = module.function("ptx_kernel void", [lanes_of("ptr")], "kernel")
    value = code.call("llvm.nvvm.no.such.thing", lanes_of("float"), [])
    code.store(value, code.parameters[0], 4)
    code.do("ret void")
    with pytest.raises(NoPtx, match="thing"):
        ptx_of(module, 90)
    with pytest.raises(NotSupported):
        step = Step("add", (0, 0), dtypes.complex64)
        build_kernel(Kernel((3,), (Operand(dtypes.complex64, (1,)),), (step,), (Result(1, (1,)),)))


def test_accesses_are_of_sixteen_bytes():
    for dtype, lanes in ((dtypes.float32, 4), (dtypes.bfloat16, 8), (dtypes.float64, 2)):
        step = Step("add", (0, 1), dtype)
        operands = (Operand(dtype, (1,)), Operand(dtype, (0,)))
        kernel = Kernel((1 << 20,), operands, (step,), (Result(2, (1,)),))
        for aligned, width in ((16, lanes), (8, lanes // 2), (dtype.itemsize, 1)):
            assert plan_grid(kernel, aligned)[1].lanes == width
        ptx = build_kernel(kernel).ptx
        assert "ld.global.v" in ptx and "st.global.v" in ptx


def test_only_products_that_nothing_else_reads_are_contracted():
    """Else p − ⌊p⌋ of p = x·y could be negative."""
    product, floor = Step("multiply", (0, 1), dtypes.float32), Step("floor", (2,), dtypes.float32)
    operands = (Operand(dtypes.float32, (1,)),) * 2
    for steps, results, fused in (
        ((product, Step("subtract", (2, 0), dtypes.float32)), (3,), True),
        ((product, Step("subtract", (2, 0), dtypes.float32)), (3, 2), False),
        ((product, floor, Step("subtract", (2, 3), dtypes.float32)), (4,), False),
    ):
        kernel = Kernel((64,), operands, steps, tuple([Result(i, (1,)) for i in results]))
        assert ("fma.rn" in build_kernel(kernel).ptx) == fused


def test_transposed_arrays_are_read_in_tiles():
    step, tall = Step("add", (0, 1), dtypes.float32), (1, 512)
    operands = (Operand(dtypes.float32, (512, 1)), Operand(dtypes.float32, tall))
    plan = plan_grid(Kernel((512, 512), operands, (step,), (Result(2, (512, 1)),)), 16)[1]
    assert plan.tiled and plan.grid * plan.block * plan.lanes == 512 * 512


def test_an_empty_domain_has_no_blocks():
    kernel = Kernel((0, 3), (Operand(dtypes.float32, (3, 1)),), (), (Result(0, (3, 1)),))
    assert build_kernel(kernel).grid == 0


def test_names_differ_with_the_kernel():
    names = set()
    for number in (1.0, 2.0):
        step = Step("power_scalar", (0,), dtypes.float32, (number,))
        kernel = Kernel((8,), (Operand(dtypes.float32, (1,)),), (step,), (Result(1, (1,)),))
        names |= {build_kernel(kernel, aligned=a).name for a in (4, 16)}
    assert len(names) == 4


# -- whole programs --------------------------------------------------------------------------


def chain(x):
    x = x.detach().requires_grad_()
    z = x
    for _ in range(4):
        z = wf.tanh(z) * wf.exp(-z * z) + wf.sin(z)
    return z.sum().backward()[x]


@needs_ptxas
def test_the_chain_and_the_norm_spill_nothing(tmp_path):
    (gradient,) = kernels_of(chain, np.ones(1 << 16, np.float32))
    norms = kernels_of(norm, half(1024, 4096), half(4096), half(4096), half(1024, 4096))
    built = [build_kernel(k) for k in (gradient, *norms)]
    figures = assemble(built, tmp_path)
    for kernel, grid in zip((gradient, *norms), built, strict=True):
        found = figures[grid.name]
        print(kernel.domain, kernel.folded, len(kernel.steps), grid.grid, grid.block, found)
        assert not found.spilled
    assert figures[built[0].name].registers <= 64
    assert figures[built[1].name].registers <= 128


def test_stores_are_of_registers_of_their_size(tmp_path, monkeypatch):
    """NVIDIA's assembler converts a float to an integer where a store is narrower than it."""
    kernel = Kernel(
        (1024,),
        (Operand(np.dtype(np.float64), (1,)),),
        (FoldStep("sum", 0, np.dtype(np.float64)),),
        (Result(1, (0,)),),
        (0,),
    )
    narrow = re.compile(r"st\S*\.b32\s+\[[^]]+\], %rd")
    assert not narrow.search(build_kernel(kernel).ptx)
    monkeypatch.setattr(ptx, "_with_low_bits", lambda store: store[0])
    assert narrow.search(build_kernel(kernel).ptx)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("\tst.shared.b32 \t[%rd1+4], %rd2;", ["cvt.u32.u64 \t%low0, %rd2;", "[%rd1+4], %low0;"]),
        ("\t@%p1 st.global.b16 \t[%rd1], %r2;", ["cvt.u16.u32 \t%low0, %r2;", "[%rd1], %low0;"]),
        ("\tst.b8 \t[%rd1], %r2;", ["cvt.u16.u32 \t%low0, %r2;", "st.b8 \t[%rd1], %low0;"]),
        ("\tst.v2.b32 \t[%rd1], {%r2, %rd3};", ["cvt.u32.u64 \t%low1, %rd3;", "{%r2, %low1};"]),
        ("\tst.global.b32 \t[%rd1], %r2;", []),
        ("\tst.global.b8 \t[%rd1], %rs2;", []),
        ("\tst.global.v2.b64 \t[%rd1], {%rd2, %rd3};", []),
        ("\tst.global.b32 \t[%rd1], 7;", []),
    ],
)
def test_stores_take_the_low_bits(before, after):
    made = ptx._STORE.sub(ptx._with_low_bits, before)
    assert all(part in made for part in after)
    assert (made == before) == (not after)


def softmax(rows: int, length: int, apart: int) -> Kernel:
    """A softmax of bfloat16 rows that begin so many elements apart."""
    f, h = dtypes.float32, dtypes.bfloat16
    steps = (
        Step("cast", (0,), f, (f,)),
        FoldStep("max", 1, f),
        Step("subtract", (1, 2), f),
        Step("exp", (3,), f),
        FoldStep("sum", 4, f),
        Step("divide", (Literal(1.0), 5), f),
        Step("multiply", (4, 6), f),
        Step("cast", (7,), h, (h,)),
    )
    strides = (apart, 1)
    return Kernel((rows, length), (Operand(h, strides),), steps, (Result(8, strides),), (1,))


@needs_ptxas
def test_a_padded_vocabulary_is_read_once_by_whole_accesses(tmp_path):
    kernel = softmax(8192, 50257, 50264)
    built = build_kernel(kernel)
    loads = re.findall(r"ld\.global\.(\S+)", built.ptx)
    assert set(loads) == {"v4.b32", "b16"}  # the latter for the elements after whole groups
    assert loads.count("b16") == 50257 % 8
    assert "v4.b32" in re.findall(r"st\.global\.(\S+)", built.ptx)
    # Two blocks fit a multiprocessor of 227 KiB and 64 Ki registers; and one any that there is.
    assert 50257 * 2 <= built.shared <= (99 << 10) - 512
    found = assemble([built], tmp_path)[built.name]
    assert not found.spilled
    assert 2 * built.block * found.registers <= 1 << 16


@pytest.mark.parametrize(
    ("length", "apart"), [(50257, 50257), (50257, 50260), (60000, 60000), (2048, 2048)]
)
def test_which_lines_are_held_and_how_they_are_read(length, apart):
    """One or a few elements at once at odd addresses; neither the longest nor short ones."""
    kernel = softmax(8192, length, apart)
    plan = plan_folds(kernel, 16)
    assert plan.lanes == {50257: 1, 50260: 4}.get(apart, 8)
    assert plan.held == (length == 50257)
    assert bool(build_kernel(kernel).shared) == plan.held


@pytest.mark.parametrize("kind", ["max", "min"])
def test_negations_that_the_assembler_would_lose(kind):
    """The larger of three negated integers is one instruction, in which one was not negated."""
    whole = Operand(np.dtype(np.int32), (100, 1))
    negative = Step("negative", (0,), np.dtype(np.int32), ())
    kernel = Kernel((129, 100), (whole,), (negative,), (Result(1, (100, 1), kind),), (), 3)
    text = build_kernel(kernel).ptx
    assert f"{kind}.s32" in text and "neg.s32" not in text and "not.b32" in text
    alone = Kernel((129, 100), (whole,), (negative,), (Result(1, (100, 1)),))
    assert "not.b32" not in build_kernel(alone).ptx


def test_negations_as_sums():
    made = ptx._NEGATED.sub(ptx._as_sum, "neg.s32 \t%r2, %r1;\n\tsub.s16 \t%rs2, 0, %rs1;")
    assert made.split() == (
        "not.b32 %r2, %r1; add.s32 %r2, %r2, 1; not.b16 %rs2, %rs1; add.s16 %rs2, %rs2, 1;".split()
    )
    assert not ptx._NEGATED.search("sub.s32 \t%r2, %r1, %r0;")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_choices_between_packed_registers_are_by_bits(dtype):
    """The assembler would overwrite elements that are compared with the extreme afterwards."""
    whole, places = Operand(np.dtype(dtype), (1,)), Operand(np.dtype(np.int32), (1,))
    steps = (
        FoldStep("max", 0, np.dtype(dtype)),
        Step("equal", (0, 2), np.dtype(bool), ()),
        Step("where", (3, 1, Literal(387)), np.dtype(np.int32), ()),
        FoldStep("min", 4, np.dtype(np.int32)),
    )
    kernel = Kernel((387,), (whole, places), steps, (Result(5, (0,)),), (0,))
    text = build_kernel(kernel).ptx
    assert ".reg .b32 %mask, %both;" in text or not ptx._PARTS.search(text)
    apart = {name for found in ptx._PARTS.findall(text) for name in found if name}
    for choice in ptx._CHOICE.finditer(text):
        assert apart.isdisjoint((choice["a"], choice["b"])), choice[0]


def test_choices_by_bits():
    lines = "prmt.b32 \t%r9, %r7, 0, 0x7770U;", "selp.b32 \t%r3, %r2, %r7, %p1;"
    made = ptx.with_choices_by_bits("\n".join((*lines, "selp.b32 \t%r4, %r2, %r3, %p1;")))
    assert made.count("xor.b32") == 2 and "selp.b32 \t%r4, %r2, %r3, %p1;" in made
