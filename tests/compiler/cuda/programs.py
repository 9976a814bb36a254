"""Random kernels for grids: dtypes, layouts, lengths about limits of plans, pieces, in place."""

from dataclasses import dataclass, replace
from math import gcd

import numpy as np
from ml_dtypes import finfo

from weft.compiler.cuda.counted import Counted
from weft.compiler.ir.kernel import FoldStep, Kernel, Operand, Result, Step, verify
from weft.compiler.memory import in_place
from weft.core import dtypes
from weft.graph.graph import Literal

from ..cpu.test_random_kernels import BINARY, FOLDS, UNARY, laid_out
from ..kernels import extent, strides

# About the widths of accesses, warps, blocks, and what a thread keeps in registers.
LENGTHS = (1, 2, 3, 7, 8, 16, 31, 32, 33, 64, 100, 127, 128, 129, 256, 1000, 1023, 1024, 1025)
LONG = (4096, 5003, 2052, 9000)
KINDS = (
    *(dtypes.float32, dtypes.float32, dtypes.bfloat16, dtypes.float16, dtypes.float64),
    *(dtypes.int32, dtypes.int64, dtypes.int8),
)
INTEGER_UNARY = {"square": np.square, "negative": np.negative, "abs": np.abs}
# Elements of a kernel at most: emulated threads take some nanoseconds each.
MOST = 60_000


def domain(rng: np.random.Generator) -> tuple[int, ...]:
    shape: list[int] = []
    for _ in range(rng.choice((0, 1, 1, 2, 2, 2, 3, 3))):
        n = int(rng.choice(LONG if rng.random() < 0.1 else LENGTHS))
        n = 0 if rng.random() < 0.01 else n
        if np.prod([*shape, n]) <= MOST:
            shape.append(n)
    return tuple(shape)


def plain(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Numbers in the order of rows, some of the axes broadcast."""
    held = tuple(n if rng.random() < 0.8 else 1 for n in shape)
    return np.broadcast_to(rng.uniform(0.1, 1.5, held).astype(dtype), shape)


@dataclass
class Case:
    """A kernel with arrays; `shared` says which operand's memory a result takes."""

    kernel: Kernel
    operands: list[np.ndarray]
    outs: list[np.ndarray]
    shared: dict[int, int]

    @property
    def aligned(self) -> int:
        return gcd(16, *(a.ctypes.data for a in (*self.operands, *self.outs)))

    @property
    def bound(self) -> float:
        """Values are below 20, and each of at most 12 steps may lose two units of that.

        Of half types only the last bit of some steps may differ, where sums in another order do.
        """
        exact = (*dtypes.SIGNED, *dtypes.UNSIGNED, dtypes.bool_)
        kinds = {d for d in self.kernel.dtypes if d not in exact}
        if kinds & set(dtypes.HALF):
            return 20 * max(float(finfo(d).eps) for d in kinds) if self.kernel.folded else 1e-4
        return 12 * 2 * 20 * max([float(finfo(d).eps) for d in kinds], default=0.0)


class GridProgram:
    """A random kernel; values are followed in float64, so that they stay small."""

    def __init__(self, seed: int):
        self.rng = rng = np.random.default_rng(seed)
        self.shape = self._domain()
        self.dtype = KINDS[rng.integers(len(KINDS))]
        self.whole = self.dtype in dtypes.SIGNED
        self.arrays = self._operands()
        self.values = [a.astype(np.float64) for a in self.arrays]
        self.steps: list = []
        self._pick_axes()
        for _ in range(rng.integers(1, 7)):
            self.extend()

    def _domain(self) -> tuple[int, ...]:
        return domain(self.rng)

    def _operands(self) -> list[np.ndarray]:
        rng = self.rng
        lay = laid_out if rng.random() < 0.4 else plain
        return [lay(rng, self.shape, self._kind()) for _ in range(rng.integers(1, 4))]

    def _kind(self) -> np.dtype:
        """The dtype of an operand: now and then float32 beside a half type."""
        mixed = self.dtype in dtypes.HALF and self.rng.random() < 0.3
        return dtypes.float32 if mixed else self.dtype

    def _pick_axes(self) -> None:
        rng, n = self.rng, len(self.shape)
        axes = [a for a in range(n) if rng.random() < 0.5 and self.shape[a]]
        self.folded = tuple(axes) if axes and rng.random() < 0.6 else ()
        self.piece = 0
        if n == 2 and 0 not in self.folded and 0 not in self.shape and rng.random() < 0.5:
            self.piece = int(rng.choice((1, 3, 8, 16, 64)))

    def pick(self) -> int:
        return int(self.rng.integers(len(self.values)))

    def extend(self) -> None:
        rng, kind = self.rng, self.rng.random()
        unary = INTEGER_UNARY if self.whole else UNARY
        if self.folded and kind < 0.3:
            self.fold()
        elif kind < 0.65:
            name, i = str(rng.choice(list(unary))), self.pick()
            self.add(Step(name, (i,), self.dtype), unary[name](self.values[i]))
        elif kind < 0.9 or self.whole:
            name, i, j = str(rng.choice(list(BINARY))), self.pick(), self.pick()
            value = BINARY[name](self.values[i], self.values[j])
            self.add(Step(name, (i, j), self.dtype), value)
        else:
            i, number = self.pick(), float(np.float32(rng.uniform(-1, 1)))
            self.add(Step("multiply", (i, Literal(number)), self.dtype), self.values[i] * number)

    def add(self, step, value) -> None:
        if np.all(np.abs(value) < 20):
            self.steps.append(step)
            self.values.append(np.broadcast_to(value, value.shape))

    def fold(self) -> None:
        name, i = str(self.rng.choice(list(FOLDS))), self.pick()
        full = np.broadcast_to(self.values[i], self.shape)
        if full.size == 0 or (self.whole and name == "mean"):
            return
        if name in ("sum", "prod") and not self.whole:
            self.add(Step("multiply", (i, Literal(0.01)), self.dtype), full * 0.01)
            i, full = len(self.values) - 1, np.broadcast_to(self.values[-1], self.shape)
        self.add(FoldStep(name, i, self.dtype), FOLDS[name](full, axis=self.folded, keepdims=True))

    def case(self) -> Case:
        """The kernel and its arrays."""
        operands = tuple(self._operand(i, a) for i, a in enumerate(self.arrays))
        bare = Kernel(self.shape, operands, tuple(self.steps), (), self.folded)
        results, outs = [], []
        for i in sorted({len(self.values) - 1, self.pick()}):
            fixed = bare.settled[i] % 2 == 1
            shape = [1 if fixed and a in self.folded else n for a, n in enumerate(self.shape)]
            out = self._out(shape, bare.dtypes[i])
            steps = [0 if fixed and a in self.folded else s for a, s in enumerate(strides(out))]
            results.append(Result(i, tuple(steps)))
            outs.append(out)
        self._add_columns(bare, results, outs)
        piece = self.piece if any(r.over_rows for r in results) else 0
        kernel = replace(bare, results=tuple(results), piece=piece)
        verify(kernel, tuple(map(extent, (*self.arrays, *outs))))
        return Case(kernel, self.arrays, outs, self._in_place(kernel))

    def _operand(self, i: int, a: np.ndarray) -> Operand:
        return Operand(a.dtype, strides(a))

    def _out(self, shape: list[int], dtype: np.dtype) -> np.ndarray:
        """Memory of a result, now and then with its axes in another order."""
        order = self.rng.permutation(len(shape)) if self.rng.random() < 0.3 else range(len(shape))
        wide = np.full([shape[a] for a in order], 77, dtype)
        return wide.transpose(np.argsort(order)) if len(shape) else wide

    def _add_columns(self, bare: Kernel, results: list[Result], outs: list[np.ndarray]) -> None:
        """Folds of columns: of a value that moves, in float32 at least."""
        wide = [dtypes.float32, dtypes.float64, *dtypes.SIGNED]
        moving = [i for i, d in enumerate(bare.settled) if d % 2 == 0 and bare.dtypes[i] in wide]
        if not self.piece or not moving:
            return
        i, kind = int(self.rng.choice(moving)), str(self.rng.choice(("sum", "max", "min")))
        rows, columns = self.shape
        out = np.full((-(-rows // self.piece), columns), 77, bare.dtypes[i])
        results.append(Result(i, strides(out), kind))
        outs.append(out)

    def _in_place(self, kernel: Kernel) -> dict[int, int]:
        """Results that take the memory of an operand."""
        taken: dict[int, int] = {}
        for r, out in enumerate(kernel.results):
            for o in range(len(kernel.operands)):
                free = o not in taken.values() and kernel.dtypes[out.value] == kernel.dtypes[o]
                if free and in_place(kernel, o, r) and self.rng.random() < 0.5 and r not in taken:
                    taken[r] = o
        return taken


def in_rows(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype, anywhere: bool
) -> np.ndarray:
    """Zeros in rows that begin at aligned addresses or not; what lies between them is not a number.

    Rows are padded to whole accesses; those that begin `anywhere`, by one element or not at all.
    """
    *lead, width = shape
    access = 16 // min(dtype.itemsize, 2)
    pads = (0, 1) if anywhere and rng.random() < 0.7 else (-width % access, access - width % access)
    first = int(rng.choice((0, 1, 3, 8))) if anywhere else 0
    row = width + int(rng.choice(pads))
    count = int(np.prod(lead))
    odd = np.nan if dtype.kind not in "iub" else 99
    memory = np.full(first + count * row + 8, odd, dtype)
    made = memory[first : first + count * row].reshape(*lead, row)[..., :width]
    made[...] = 0
    return made


class RowsProgram(GridProgram):
    """A random kernel over rows of any length, most of them padded; some masks among its arrays."""

    again = 0.6

    def __init__(self, seed: int):
        super().__init__(seed)
        folds = [k for k, s in enumerate(self.steps) if isinstance(s, FoldStep)]
        if folds and self.rng.random() < self.again:  # what was folded is read again
            last = len(self.arrays) + folds[-1]
            self.add(Step("subtract", (0, last), self.dtype), self.values[0] - self.values[last])

    def _domain(self) -> tuple[int, ...]:
        rng = self.rng
        width = int(rng.integers(1, 71) if rng.random() < 0.5 else 8 * rng.integers(9, 70) + 1)
        width += int(rng.integers(-2, 2)) if width > 70 else 0
        lead = (1, 2, 3, 5, 17, 40) if width < 70 else (1, 2, 3, 7)
        self.odd = rng.random() < 0.3  # whether some rows begin anywhere
        return (*(int(rng.choice(lead)) for _ in range(rng.choice((0, 1, 1, 1, 2)))), width)

    def _rows(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        return in_rows(self.rng, shape, dtype, self.odd and self.rng.random() < 0.5)

    def _operands(self) -> list[np.ndarray]:
        rng, made = self.rng, []
        for _ in range(rng.integers(1, 4)):
            dtype, shape = self._kind(), list(self.shape)
            if rng.random() < 0.25:  # one number of each row, or one row for all
                axis = len(shape) - 1 if rng.random() < 0.5 else 0
                shape[axis] = 1
            a = self._rows(tuple(shape), dtype)
            a[...] = rng.uniform(0.1, 1.5, a.shape).astype(dtype)
            made.append(np.broadcast_to(a, self.shape))
        if rng.random() < 0.3:
            mask = self._rows(self.shape, dtypes.bool_)
            mask[...] = rng.random(self.shape) < 0.5
            made.append(mask)
        self.counted: dict[int, int] = {}
        self.odds: list[int] = []  # values of another dtype
        if rng.random() < 0.5:
            self.counted[len(made)] = int(rng.integers(-3, 4))
            made.append(self._counts(self.counted[len(made)]))
        return made

    def _counts(self, first: int) -> np.ndarray:
        """Numbers that count in the order of memory: of one row, or of all."""
        rng, shape = self.rng, list(self.shape)
        if rng.random() < 0.6:
            shape[:-1] = [1] * (len(shape) - 1)
        made = self._rows(tuple(shape), dtypes.int32 if rng.random() < 0.7 else dtypes.int64)
        places = [np.arange(n) * s for n, s in zip(made.shape, strides(made), strict=True)]
        made[...] = first + sum(np.ix_(*places))
        return np.broadcast_to(made, self.shape)

    def _operand(self, i: int, a: np.ndarray) -> Operand:
        plain = super()._operand(i, a)
        counts = i in self.counted
        return Counted(plain.dtype, plain.strides, self.counted[i]) if counts else plain

    def _pick_axes(self) -> None:
        """Rows are folded, or nothing."""
        n = len(self.shape)
        self.folded = (n - 1,) if self.rng.random() < 0.6 else ()
        if self.folded and n > 1 and self.rng.random() < 0.15:
            self.folded = (0, n - 1)
        self.piece = 0

    def pick(self) -> int:
        """No mask, and nothing that counts."""
        others = {*self._masks(), *self.counted, *self.odds}
        return int(self.rng.choice([i for i in range(len(self.values)) if i not in others]))

    def _masks(self) -> list[int]:
        kinds = [a.dtype for a in self.arrays] + [s.dtype for s in self.steps]
        return [i for i, kind in enumerate(kinds) if kind == dtypes.bool_]

    def extend(self) -> None:
        """Now and then a comparison of an operand, and a choice by a mask."""
        rng, zero = self.rng, Literal(0) if self.whole else Literal(0.0)
        if self.folded and not any(isinstance(s, FoldStep) for s in self.steps):
            self.fold()
        if rng.random() > 0.2:
            super().extend()
            return
        if rng.random() < 0.5:
            bound, j = Literal(1 if self.whole else 0.75), 0
            if self.counted:
                (j,) = self.counted
                bound = Literal(int(rng.integers(0, self.shape[-1] + 1)))
                self._search(j)
            self.add(Step("greater", (j, bound), dtypes.bool_), self.values[j] > bound.value)
        if self._masks():
            j, i = int(rng.choice(self._masks())), self.pick()
            value = np.where(self.values[j], self.values[i], 0.0)
            self.add(Step("where", (j, i, zero), self.dtype), value)

    def _search(self, j: int) -> None:
        """Where an operand that counts equals a number, of each row if rows are folded."""
        places, kind = self.values[j], self.arrays[j].dtype
        if not self.folded:
            some = Literal(int(places.flat[-1]))
            self.add(Step("equal", (j, some), dtypes.bool_), places == some.value)
            return
        last = places.max(axis=self.folded, keepdims=True)
        self.steps.append(FoldStep("max", j, kind))
        self.values.append(last)
        number = len(self.values) - 1
        self.odds.append(number)
        pair = (number, j) if self.rng.random() < 0.5 else (j, number)
        self.add(Step("equal", pair, dtypes.bool_), places == last)

    def _out(self, shape: list[int], dtype: np.dtype) -> np.ndarray:
        """Memory of a result: rows, too."""
        out = self._rows(tuple(shape), dtype)
        out[...] = 77
        return out


class LongRowsProgram(RowsProgram):
    """A random kernel that folds a few long rows, and reads them again."""

    again = 1.0

    def _domain(self) -> tuple[int, ...]:
        self.odd = self.rng.random() < 0.2
        return int(self.rng.integers(2, 5)), int(self.rng.integers(257, 900))

    def _pick_axes(self) -> None:
        self.folded, self.piece = (1,), 0
