"""Random kernels beside NumPy: steps, broadcasting, strides, folds, sizes and dtypes."""

import os

import numpy as np
import pytest

from weft.compiler.ir.kernel import FoldStep, Kernel, Operand, Result, Step
from weft.core import dtypes
from weft.graph.graph import Literal

from ..kernels import run, strides

COUNT = 3000 if os.environ.get("WEFT_SOAK") else 120
FLOATS = (dtypes.float32, dtypes.float64)
UNARY = {
    "exp": np.exp,
    "sin": np.sin,
    "tanh": np.tanh,
    "square": np.square,
    "negative": np.negative,
    "abs": np.abs,
    "log1p": np.log1p,
    "floor": np.floor,
}
BINARY = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
FOLDS = {"sum": np.sum, "max": np.max, "min": np.min, "mean": np.mean, "prod": np.prod}


# Enough elements for several registers side by side.
LARGE = ((5003,), (4096,), (3, 1500), (40, 130), (130, 40), (7, 33, 29), (2, 2100))


def domain(rng) -> tuple[int, ...]:
    if rng.random() < 0.2:
        return LARGE[rng.integers(len(LARGE))]
    sizes = (0, 1, 1, 2, 3, 5, 8, 16, 17, 33, 64, 100)
    return tuple(int(n) for n in rng.choice(sizes, rng.integers(0, 4)))


def laid_out(rng, shape, dtype) -> np.ndarray:
    """Numbers in some memory layout: broadcast, transposed, backwards, far apart."""
    held = tuple(n if rng.random() < 0.75 else 1 for n in shape)
    order = rng.permutation(len(held))
    gaps = [int(rng.choice((1, 1, 1, 2, 3))) for _ in held]
    wide = rng.uniform(0.1, 1.5, [held[a] * gaps[a] for a in order]).astype(dtype)
    x = wide.transpose(np.argsort(order))
    flips = [-1 if rng.random() < 0.2 else 1 for _ in held]
    x = x[tuple(slice(None, None, g) for g in gaps)][tuple(slice(None, None, f) for f in flips)]
    return np.broadcast_to(x, shape)


class Program:
    """A kernel and NumPy's values of all that it computes, in float64."""

    def __init__(self, rng):
        self.rng, self.shape = rng, domain(rng)
        self.dtype = FLOATS[rng.integers(2)]
        n = len(self.shape)
        axes = [a for a in range(n) if rng.random() < 0.5 and self.shape[a]]
        self.folded = tuple(axes) if axes and rng.random() < 0.6 else ()
        self.arrays = [laid_out(rng, self.shape, self.dtype) for _ in range(rng.integers(1, 4))]
        self.values = [a.astype(np.float64) for a in self.arrays]
        self.steps: list = []
        for _ in range(rng.integers(1, 7)):
            self.extend()

    def pick(self) -> int:
        return int(self.rng.integers(len(self.values)))

    def extend(self) -> None:
        rng, kind = self.rng, self.rng.random()
        if self.folded and kind < 0.3:
            self.fold()
        elif kind < 0.65:
            name, i = rng.choice(list(UNARY)), self.pick()
            self.add(Step(str(name), (i,), self.dtype), UNARY[name](self.values[i]))
        elif kind < 0.9:
            name, i, j = rng.choice(list(BINARY)), self.pick(), self.pick()
            value = BINARY[name](self.values[i], self.values[j])
            self.add(Step(str(name), (i, j), self.dtype), value)
        else:
            i, number = self.pick(), float(np.float32(rng.uniform(-1, 1)))
            self.add(Step("multiply", (i, Literal(number)), self.dtype), self.values[i] * number)

    def add(self, step, value) -> None:
        # Numbers stay where rounding is not multiplied.
        if np.all(np.abs(value) < 20):
            self.steps.append(step)
            self.values.append(np.broadcast_to(value, value.shape))

    def fold(self) -> None:
        name, i = str(self.rng.choice(list(FOLDS))), self.pick()
        full = np.broadcast_to(self.values[i], self.shape)
        if full.size == 0:
            return
        if name in ("sum", "prod"):
            self.add(Step("multiply", (i, Literal(0.01)), self.dtype), full * 0.01)
            i, full = len(self.values) - 1, np.broadcast_to(self.values[-1], self.shape)
        self.add(FoldStep(name, i, self.dtype), FOLDS[name](full, axis=self.folded, keepdims=True))

    def kernel(self) -> tuple[Kernel, list[np.ndarray], list[np.ndarray]]:
        """The kernel, its arrays, and what its results should be."""
        operands = tuple(Operand(self.dtype, strides(a)) for a in self.arrays)
        bare = Kernel(self.shape, operands, tuple(self.steps), (), self.folded)
        chosen = {len(self.values) - 1, self.pick()}
        results, outs, wanted = [], [], []
        for i in sorted(chosen):
            fixed = bare.settled[i] % 2 == 1
            shape = [1 if fixed and a in self.folded else n for a, n in enumerate(self.shape)]
            out = np.full(shape, np.nan, self.dtype)
            steps = [0 if fixed and a in self.folded else s for a, s in enumerate(strides(out))]
            results.append(Result(i, tuple(steps)))
            outs.append(out)
            value = np.broadcast_to(self.values[i], self.shape)
            wanted.append(value[tuple(slice(0, n) for n in shape)])
        kernel = Kernel(self.shape, operands, tuple(self.steps), tuple(results), self.folded)
        return kernel, outs, wanted


@pytest.mark.parametrize("seed", range(COUNT))
def test_a_random_kernel_is_numpys(seed):
    with np.errstate(all="ignore"):
        program = Program(np.random.default_rng(seed))
    kernel, outs, wanted = program.kernel()
    run(kernel, *program.arrays, *outs)
    # Values are below 20 and each of at most 12 steps may lose two units of that.
    bound = 12 * 2 * 20 * float(np.finfo(program.dtype).eps)
    for out, want in zip(outs, wanted, strict=True):
        np.testing.assert_allclose(out, want, rtol=0, atol=bound)
