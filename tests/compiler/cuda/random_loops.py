"""Random loops: bodies of elementwise rows, folds, products and branches."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import weft as wf

# About warps, blocks of threads, and tiles of products.
BATCHES = (1, 2, 3, 4, 6, 32, 33)
WIDTHS = (1, 2, 3, 4, 5, 8, 16, 17, 33, 64, 100)
LENGTHS = (1, 2, 3, 5)
UNARY: tuple[Callable, ...] = (
    wf.tanh,
    lambda x: wf.exp(-x * x),
    lambda x: x * 0.5 + 0.1,
    wf.sigmoid,
    lambda x: wf.maximum(x, 0.0),
    lambda x: x / (1 + x * x),
)
BINARY: tuple[Callable, ...] = (
    lambda x, y: wf.tanh(x + y),
    lambda x, y: wf.tanh(x) * wf.tanh(y),
    lambda x, y: wf.where(x > 0.0371, x, 0.5 * y),
    wf.minimum,
)


@dataclass
class LoopProgram:
    """A function of its arrays, and those; `numbers` are how many elements a result depends on."""

    seed: int

    def __post_init__(self) -> None:
        rng = self.rng = np.random.default_rng(self.seed)
        self.batch, self.width = int(rng.choice(BATCHES)), int(rng.choice(WIDTHS))
        self.length = int(rng.choice(LENGTHS))
        self.dtype = np.dtype(rng.choice(("f4", "f8")))
        self.reverse, self.way = (
            bool(rng.random() < 0.4),
            str(rng.choice(("scan",) * 4 + ("while",))),
        )
        self.gradient = self.way == "scan" and bool(rng.random() < 0.5)
        self.mixes = bool(rng.random() < 0.3)
        self.carries = [self._array(self._shape()) for _ in range(rng.integers(1, 4))]
        count = 0 if self.way == "while" else rng.integers(0, 3)
        self.xs = [self._array((self.length, *self._shape())) for _ in range(count)]
        self.matrices = [self._array((self.width, self.width)) for _ in range(2)]
        self.bias = self._array((self.width,))
        self.choices = rng.integers(0, 1 << 30, 64).tolist()

    def _shape(self) -> tuple[int, ...]:
        return (self.batch, self.width)

    def _array(self, shape: tuple[int, ...]) -> np.ndarray:
        scale = 1 / np.sqrt(max(shape[-1], 1))
        return (self.rng.standard_normal(shape) * scale).astype(self.dtype)

    @property
    def arrays(self) -> list[np.ndarray]:
        return [*self.carries, *self.xs, *self.matrices, self.bias]

    @property
    def bound(self) -> float:
        """Each step may lose some units in each of the terms of a product or fold."""
        terms = max(self.width, self.batch) + 16
        return float(np.finfo(self.dtype).eps) * 8 * self.length * terms

    # -- the function -----------------------------------------------------------------------------

    def __call__(self, *arrays):
        n, m = len(self.carries), len(self.carries) + len(self.xs)
        carries, xs, (*matrices, bias) = arrays[:n], arrays[n:m], arrays[m:]

        def step(carry, x):
            return self.step(list(carry), list(x or ()), matrices, bias)

        if self.way == "while":
            return self._while(carries, step)
        options = {"reverse": self.reverse}
        if not xs:
            options["length"] = self.length
        return wf.scan(step, tuple(carries), tuple(xs) if xs else None, **options)

    def _while(self, carries, step):
        def test(carry):
            return ((carry[0] * carry[0]).sum() < 3.0 * self.width) & (carry[-1] < self.length)

        def body(carry):
            new, _ = step(carry[:-1], ())
            return (*new, carry[-1] + 1)

        return wf.while_loop(test, body, (*carries, wf.tensor(0)))

    def step(self, carry, xs, matrices, bias):
        """One step, from the numbers of this program alone."""
        picks = iter(self.choices)
        values = [*carry, *xs]

        def pick():
            return values[next(picks) % len(values)]

        for _ in range(2 + next(picks) % 4):
            values.append(self._value(next(picks) % 10, pick, next(picks), matrices, bias))
        new = tuple(wf.tanh(values[-1 - next(picks) % 3]) + 0.1 * c for c in carry)
        ys = [pick(), values[-1].sum(-1)][: next(picks) % 3]
        return new, tuple(ys)

    def _value(self, kind: int, pick, number: int, matrices, bias):
        if kind < 2:
            return UNARY[number % len(UNARY)](pick())
        if kind < 4:
            return BINARY[number % len(BINARY)](pick(), pick())
        if kind < 6:
            w = matrices[number % 2]
            return pick() @ (w if number % 3 else w.T) + bias
        if kind == 6:
            x = pick()
            return x - x.mean(-1, keepdims=True)
        if kind == 7:
            return wf.softmax(pick(), -1)
        if kind == 8 and self.mixes:
            x, y = pick(), pick()
            return wf.tanh(x - y.sum(0)) if number % 2 else wf.tanh((x @ y.T) @ x)
        if kind == 9 and self.mixes:
            return self._branch_or_loop(pick(), pick(), number, matrices)
        return wf.exp(-(pick() ** 2))

    def _branch_or_loop(self, x, y, number: int, matrices):
        if number % 3 == 0:
            return wf.cond(y.sum() > 0.0371, lambda: wf.tanh(x * 2), lambda: x @ matrices[0])
        if number % 3 == 1 or self.gradient:
            return wf.scan(lambda c, _: (wf.tanh(c @ matrices[1] + y), None), x, length=3)[0]
        return wf.while_loop(lambda c: (c * c).sum() < 2.0371, lambda c: c * 1.5 + 0.1, wf.tanh(x))


def differentiated(program: LoopProgram):
    """The gradients of a number that all results give."""
    count = len(program.arrays)

    def total(*arrays):
        last, ys = program(*arrays)
        return sum((x * x).sum() for x in (*last, *ys))

    return wf.grad(total, tuple(range(count)))
