"""The kernels of whole programs in the emulator beside the CPU's: norms, softmax, sums, steps."""

import ml_dtypes
import numpy as np
import pytest

import weft as wf
from weft.compiler.cpu.emit_kernel import native
from weft.compiler.ir.kernel import Kernel, _walk_domain, reach
from weft.compiler.ir.schedule import KernelStep
from weft.core import dtypes

from .emulator import Emulated


def kernels_of(f, *arrays: np.ndarray) -> list[Kernel]:
    """The different kernels of a compiled function, the longest first."""
    compiled = wf.compile(f)
    compiled(*map(wf.tensor, arrays))
    steps = compiled._last().executable.schedule.steps
    kernels = dict.fromkeys(s.kernel for s in steps if isinstance(s, KernelStep))
    return sorted(kernels, key=lambda k: -len(k.steps))


def memory_of(kernel: Kernel, access, dtype: np.dtype, rng) -> np.ndarray:
    """Numbers for all that an access reaches."""
    low, high = reach(_walk_domain(kernel, access), access.strides)
    assert low == 0
    wide = rng.uniform(0.5, 1.5, high) if dtype in dtypes.REAL else rng.integers(0, 2, high)
    room = np.zeros(high * dtype.itemsize + 16, np.uint8)
    start = -room.ctypes.data % 16
    array = room[start : start + high * dtype.itemsize].view(dtype)
    array[...] = wide.astype(dtype)
    return array


def check(kernel: Kernel) -> None:
    rng = np.random.default_rng(0)
    operands = [memory_of(kernel, o, o.dtype, rng) for o in kernel.operands]
    kinds = [kernel.dtypes[r.value] for r in kernel.results]
    made = []
    for run in (native(kernel), Emulated(kernel).run, Emulated(kernel).run):
        outs = [memory_of(kernel, r, d, rng) for r, d in zip(kernel.results, kinds, strict=True)]
        for out in outs:
            out[...] = 7
        if len(made) == 0:
            run([*operands, *outs])
        else:
            run(*operands, *outs, down=len(made) == 2)
        made.append(outs)
    for dtype, want, up, down in zip(kinds, *made, strict=True):
        np.testing.assert_array_equal(up, down)
        close = 2e-5 if dtype == dtypes.float32 else 3e-2
        want, up = want.astype(np.float64), up.astype(np.float64)
        # Differences of sums are small beside their terms.
        np.testing.assert_allclose(up, want, rtol=close, atol=close * np.abs(want).max(initial=1))


def half(*shape: int) -> np.ndarray:
    return np.ones(shape, ml_dtypes.bfloat16)


def single(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def norm(x, w, b, g):
    x, w, b = (t.detach().requires_grad_() for t in (x, w, b))
    y = wf.nn.functional.layer_norm(x, x.shape[-1:], w, b)
    made = y.backward(g)
    return y, made[x], made[w], made[b]


def softmax(x, g):
    x = x.detach().requires_grad_()
    y = wf.softmax(x, -1)
    return y, y.backward(g)[x]


def cross_entropy(x, classes):
    x = x.detach().requires_grad_()
    loss = wf.nn.functional.cross_entropy(x, classes)
    return loss, loss.backward()[x]


def adamw(p, g, m, v):
    m = 0.9 * m + g
    v = 0.999 * v + g * g
    return p * 0.999 - m / (wf.sqrt(v) + 1e-8) * 1e-3, m, v


CASES = {
    "norm of 4096": (norm, half(96, 4096), half(4096), half(4096), half(96, 4096)),
    "norm of 768": (norm, half(200, 768), half(768), half(768), half(200, 768)),
    "norm of 50": (norm, single(300, 50), single(50), single(50), single(300, 50)),
    "softmax": (softmax, half(20, 1024), half(20, 1024)),
    "softmax of long lines": (softmax, single(5, 20000), single(5, 20000)),
    "cross entropy": (cross_entropy, single(17, 5000), np.zeros(17, np.int64)),
    "sum": (lambda x: (x * x).sum(), single(1 << 16)),
    "sums of columns": (lambda x: wf.tanh(x).sum(0), single(300, 500)),
    "step": (adamw, *[single(3001)] * 4),
    "transposed": (lambda x: wf.exp(x.T) + x, single(100, 100)),
    "transposed in tiles": (lambda x: wf.exp(x.T) + x, single(256, 256)),
    "half transposed": (lambda x: wf.exp(wf.swapaxes(x, 1, 2)) * 2, half(3, 16, 512)),
    "half transposed the other way": (lambda x: wf.exp(wf.swapaxes(x, 1, 2)), half(3, 512, 24)),
}


@pytest.mark.parametrize("name", CASES)
def test_kernels_of_programs_are_the_cpus(name):
    function, *arrays = CASES[name]
    kernels = kernels_of(function, *arrays)
    assert kernels
    for kernel in kernels:
        check(kernel)
