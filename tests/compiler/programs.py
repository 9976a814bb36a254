"""Schedules for tests, put together buffer by buffer."""

from math import prod

import numpy as np

from weft.compiler.ir.kernel import Kernel, Operand, Result, Step
from weft.compiler.ir.schedule import Buffer, GemmStep, KernelStep, Schedule, row_major
from weft.core import dtypes
from weft.graph.graph import Literal

F32, F64 = dtypes.float32, dtypes.float64


class Program:
    """Buffers and steps that are being collected."""

    def __init__(self):
        self.buffers, self.inputs, self.steps, self.constants = [], [], [], {}

    def buffer(self, role: str, *shape: int, dtype=F32, takes=None) -> int:
        self.buffers.append(Buffer(shape, np.dtype(dtype), role, row_major(shape), takes=takes))
        if role == "input":
            self.inputs.append(len(self.buffers) - 1)
        return len(self.buffers) - 1

    def view(self, base: int, shape, strides, offset: int = 0) -> int:
        b = self.buffers[base]
        self.buffers.append(Buffer(tuple(shape), b.dtype, b.role, tuple(strides), base, offset))
        return len(self.buffers) - 1

    def constant(self, value: np.ndarray) -> int:
        i = self.buffer("constant", *value.shape, dtype=value.dtype)
        self.constants[i] = value
        return i

    def row(self, row: str, operands, result: int, static=()) -> None:
        """An elementwise row over whole buffers of one shape; numbers are literals."""
        n = prod(self.buffers[result].shape)
        read = [i for i in operands if isinstance(i, int)]
        numbers = iter(range(len(read)))
        inputs = tuple(next(numbers) if isinstance(i, int) else Literal(i) for i in operands)
        accessed = tuple(Operand(self.buffers[i].dtype, (1,)) for i in read)
        step = Step(row, inputs, self.buffers[result].dtype, static)
        kernel = Kernel((n,), accessed, (step,), (Result(len(read), (1,)),))
        self.steps.append(KernelStep(kernel, tuple(read), (result,)))

    def product(self, a: int, b: int, c: int, **more) -> None:
        """A plain product of two matrices."""
        (m, k), (_, n) = self.buffers[a].shape, self.buffers[b].shape
        self.steps.append(GemmStep(a, b, c, m, n, k, k, n, n, **more))

    def schedule(self, *outputs: int) -> Schedule:
        buffers, steps = tuple(self.buffers), tuple(self.steps)
        return Schedule(buffers, tuple(self.inputs), outputs, steps, self.constants)


def chain(n: int, *rows: str, dtype=F32) -> Schedule:
    """Rows of one argument, one kernel each, one after the other."""
    p = Program()
    last = p.buffer("input", n, dtype=dtype)
    for i, row in enumerate(rows):
        role = "output" if i == len(rows) - 1 else "scratch"
        made = p.buffer(role, n, dtype=dtype)
        p.row(row, (last,), made)
        last = made
    return p.schedule(last)
