"""Compiled kernels on one thread, beside NumPy and PyTorch.

Run: python bench/kernels.py
"""

import time
from ctypes import addressof, c_void_p

import numpy as np
import torch

from weft.compiler.cpu.emit_kernel import LoadedKernel, native
from weft.compiler.ir.kernel import FoldStep, Kernel, Operand, Result, Step
from weft.core import dtypes
from weft.graph.graph import Literal

F32 = dtypes.float32
N = 1_000_000
ROWS = ("exp", "log", "sin", "tanh", "erf", "expit", "gelu", "log1p", "atan", "pow")
TORCH = {"expit": torch.sigmoid, "gelu": torch.nn.functional.gelu}


def seconds(call) -> float:
    """The best of some rounds, in time on the processor: others may share it."""
    best = 9.0
    for _ in range(9):
        start = time.thread_time()
        call()
        best = min(best, time.thread_time() - start)
    return best


def bound(kernel: Kernel, *arrays: np.ndarray) -> tuple[LoadedKernel, object, float]:
    """A kernel, a call of it on these arrays, and the seconds that it took to compile."""
    start = time.thread_time()
    done = native(kernel)
    taken = time.thread_time() - start
    pointers = (c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))

    keep, place = (pointers, arrays), addressof(pointers)

    def call():
        done.call(place, 0, done.image.count)
        return keep

    return done, call, taken


def line(label: str, ours: float, compiled: float, *others: tuple[str, float]) -> None:
    shown = "   ".join(f"{name} {1e3 * s:8.3f}" for name, s in others)
    print(f"{label:34} weft {1e3 * ours:8.3f} ms   {shown}   (compiled in {1e3 * compiled:.1f} ms)")


def step(row: str, *inputs) -> Step:
    return Step(row, inputs, F32)


def one(row: str, dtype) -> Kernel:
    inputs = (0, 0) if row == "pow" else (0,)
    operands = (Operand(dtype, (1,)),)
    return Kernel((N,), operands, (Step(row, inputs, dtype),), (Result(1, (1,)),))


def functions() -> None:
    for row in ROWS:
        for dtype in (F32, dtypes.float64):
            x = np.random.default_rng(0).uniform(0.1, 4, N).astype(dtype)
            y, t = np.empty_like(x), torch.from_numpy(x)
            _, call, compiled = bound(one(row, dtype), x, y)
            other = TORCH.get(row) or getattr(torch, row)
            torchs = seconds(lambda: other(t, t) if row == "pow" else other(t))  # noqa: B023
            line(f"{row} {dtype}, 10⁶", seconds(call), compiled, ("torch", torchs))


def gauss() -> None:
    x = np.random.default_rng(0).normal(size=N).astype(np.float32)
    y = np.empty_like(x)
    steps = (
        *(step("square", 0), step("negative", 1), step("exp", 2), step("cos", 0), step("sin", 0)),
        *(step("multiply", 0, 5), step("multiply", 6, Literal(2.0)), step("subtract", 4, 7)),
        step("multiply", 3, 8),
    )
    kernel = Kernel((N,), (Operand(F32, (1,)),), steps, (Result(9, (1,)),))
    _, call, compiled = bound(kernel, x, y)
    numpys = seconds(lambda: np.exp(-x * x) * (np.cos(x) - 2 * x * np.sin(x)))
    t = torch.from_numpy(x)
    torchs = seconds(lambda: torch.exp(-t * t) * (torch.cos(t) - 2 * t * torch.sin(t)))
    line(
        "exp(−x²)(cos x − 2x sin x)", seconds(call), compiled, ("numpy", numpys), ("torch", torchs)
    )


def rows() -> None:
    m, n = 4096, 1024
    x = np.random.default_rng(0).normal(size=(m, n)).astype(np.float32)
    y, t = np.empty_like(x), torch.from_numpy(x)
    operand = Operand(F32, (n, 1))
    steps = (
        FoldStep("max", 0, F32),
        step("subtract", 0, 1),
        step("exp", 2),
        FoldStep("sum", 3, F32),
    )
    steps += (step("divide", 3, 4),)
    kernel = Kernel((m, n), (operand,), steps, (Result(5, (n, 1)),), (1,))
    _, call, compiled = bound(kernel, x, y)
    copy = ("copy", seconds(lambda: np.copyto(y, x)))
    torchs = seconds(lambda: torch.softmax(t, 1))
    line("softmax 4096×1024", seconds(call), compiled, ("torch", torchs), copy)
    steps = (
        FoldStep("mean", 0, F32),
        step("subtract", 0, 1),
        step("square", 2),
        FoldStep("mean", 3, F32),
    )
    steps += (step("add", 4, Literal(1e-5)), step("rsqrt", 5), step("multiply", 2, 6))
    kernel = Kernel((m, n), (operand,), steps, (Result(7, (n, 1)),), (1,))
    _, call, compiled = bound(kernel, x, y)
    torchs = seconds(lambda: torch.nn.functional.layer_norm(t, (n,)))
    line("layer norm 4096×1024", seconds(call), compiled, ("torch", torchs), copy)
    for axis, strides in ((0, (0, 1)), (1, (1, 0))):
        z = np.empty((n, m)[axis], np.float32)
        fold = (FoldStep("sum", 0, F32),)
        kernel = Kernel((m, n), (operand,), fold, (Result(1, strides),), (axis,))
        _, call, compiled = bound(kernel, x, z)
        torchs = seconds(lambda: t.sum(axis))  # noqa: B023
        line(f"sum over axis {axis}", seconds(call), compiled, ("torch", torchs))


def calls() -> None:
    x, y = np.zeros(16, np.float32), np.empty(16, np.float32)
    kernel = Kernel((16,), (Operand(F32, (1,)),), (step("exp", 0),), (Result(1, (1,)),))
    done, _, _ = bound(kernel, x, y)
    pointers = (c_void_p * 2)(x.ctypes.data, y.ctypes.data)
    place, call, count = addressof(pointers), done.call, done.image.count
    taken = seconds(lambda: [call(place, 0, count) for _ in range(1000)])
    print(f"{'one call, 16 exponentials':34} weft {1e3 * taken:8.3f} µs")


if __name__ == "__main__":
    torch.set_num_threads(1)
    functions()
    gauss()
    rows()
    calls()
