"""Schedule: a program as steps over buffers, with every size and offset known.

A buffer is a root, contiguous row by row, or a view: a root with an offset and a stride for each
axis, both in elements. Inputs are contiguous, too. An output may take the memory of a donated
input: nothing reads the input after the output is written.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from ...core.op import Op
from ...core.origin import Origin, line_of
from ...core.record import field, record
from ...graph.graph import Literal
from .kernel import FoldStep, Kernel
from .routine import Routine


@record
class Buffer:
    """A root, or a view of a root; a view has its root's role.

    `takes` is the input whose memory the output is written to; their sizes are equal.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    role: str
    strides: tuple[int, ...]
    base: int | None = None
    offset: int = 0
    takes: int | None = None

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return self.size * self.dtype.itemsize

    @property
    def contiguous(self) -> bool:
        """Whether its elements are contiguous, row by row."""
        return lies_in_rows(self.shape, self.strides)


@lru_cache(maxsize=1024)
def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a contiguous array, row by row."""
    return tuple(prod(shape[a + 1 :]) for a in range(len(shape)))


def lies_in_rows(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether elements are contiguous, row by row; the stride of an axis of length 1 is ignored."""
    pairs = zip(shape, strides, row_major(shape), strict=True)
    return 0 in shape or all(s == want for n, s, want in pairs if n != 1)


class _Arrays:
    """The buffers that a step with operands and results reads and writes."""

    operands: tuple[int, ...]
    results: tuple[int, ...]

    @property
    def reads(self) -> tuple[int, ...]:
        return self.operands

    @property
    def writes(self) -> tuple[int, ...]:
        return self.results


@record
class KernelStep(_Arrays):
    """A fused loop nest; the kernel's pointers are the first elements of these buffers.

    The strides are the kernel's own. `origins` are the lines of the user's program that it came
    from.
    """

    kernel: Kernel
    operands: tuple[int, ...]
    results: tuple[int, ...]
    origins: tuple[Origin, ...] = ()

    @property
    def rows(self) -> tuple[str, ...]:
        """The rows that it computes, folds included."""
        return tuple(s.kind if isinstance(s, FoldStep) else s.row for s in self.kernel.steps)


# The rows that a product with a bias may apply to its result.
ACTIVATIONS = ("gelu_tanh",)


@record
class GemmStep:
    """c ← f(α·op(a)·op(b) + β·c + bias) for every index of `batch`; matrices are stored by rows.

    a, b and c have one dtype, one of those that the target multiplies. Half types are multiplied
    and added up in float32, and rounded once.

    The bias, if there is one, has a contiguous number for each column; β is 0 then. Beside a bias,
    f may be one of `ACTIVATIONS`, computed before the result is rounded; it is the identity if the
    name is empty.

    op(a) is m×k; a is stored as k×m if `transpose_a`, and `lda` is the distance in elements between
    the starts of two stored rows. Index `i` of the batch starts at Σ i·strides in each buffer,
    relative to the buffer's own offset: as in a kernel, the pointer is the first element's.
    """

    a: int
    b: int
    c: int
    m: int
    n: int
    k: int
    lda: int
    ldb: int
    ldc: int
    transpose_a: bool = False
    transpose_b: bool = False
    batch: tuple[int, ...] = ()
    a_strides: tuple[int, ...] = ()
    b_strides: tuple[int, ...] = ()
    c_strides: tuple[int, ...] = ()
    alpha: float = 1.0
    beta: float = 0.0
    bias: int | None = None
    activation: str = ""
    origins: tuple[Origin, ...] = ()

    @property
    def reads(self) -> tuple[int, ...]:
        more = [self.c] if self.beta else []
        return (self.a, self.b, *more, *([] if self.bias is None else [self.bias]))

    @property
    def writes(self) -> tuple[int, ...]:
        return (self.c,)

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return 2 * prod(self.batch) * self.m * self.n * self.k

    def accesses(self) -> tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...]:
        """For a, b and c: the buffer, the sizes of batch and stored matrix, and their strides.

        The bias comes last, if there is one.
        """
        rows = (
            (
                self.a,
                self._stored_shape(self.m, self.k, self.transpose_a),
                self.lda,
                self.a_strides,
            ),
            (
                self.b,
                self._stored_shape(self.k, self.n, self.transpose_b),
                self.ldb,
                self.b_strides,
            ),
            (self.c, (self.m, self.n), self.ldc, self.c_strides),
        )
        made = [(i, (*self.batch, *size), (*s, ld, 1)) for i, size, ld, s in rows]
        return (*made, *([] if self.bias is None else [(self.bias, (self.n,), (1,))]))

    @staticmethod
    def _stored_shape(rows: int, columns: int, transposed: bool) -> tuple[int, int]:
        return (columns, rows) if transposed else (rows, columns)


@record
class TiledStep:
    """A product and its epilogue: `then` reads each tile of the result as soon as it is computed.

    The kernel is that of the whole result, and reads it as buffer c; `tile` is the number of rows
    and columns of a tile. Units of the kernel run tile by tile, so none may span two tiles.
    """

    product: GemmStep
    then: KernelStep
    tile: tuple[int, int]

    @property
    def reads(self) -> tuple[int, ...]:
        others = [i for i in self.then.operands if i != self.product.c]
        return (*self.product.reads, *others)

    @property
    def writes(self) -> tuple[int, ...]:
        return (self.product.c, *self.then.results)

    @property
    def origins(self) -> tuple[Origin, ...]:
        """The lines of the user's program that it came from."""
        return tuple(dict.fromkeys((*self.product.origins, *self.then.origins)))


@record
class NativeStep(_Arrays):
    """A call of a routine; its pointers are the first elements of these buffers.

    The routine's own strides say how far it reaches. Its scratch memory is among the results.
    """

    routine: Routine
    operands: tuple[int, ...]
    results: tuple[int, ...]
    origins: tuple[Origin, ...] = ()


@record
class LibraryStep:
    """A row computed by the backend's own kernel, its results copied into the output buffers.

    fails  whether the call may raise an error or never end: then no input is written before it
    """

    op: Op
    inputs: tuple["int | Literal", ...]
    static: tuple[Any, ...]
    outputs: tuple[int, ...]
    origin: Origin
    reason: str = ""
    fails: bool = True

    @property
    def reads(self) -> tuple[int, ...]:
        return tuple(i for i in self.inputs if not isinstance(i, Literal))

    @property
    def writes(self) -> tuple[int, ...]:
        return self.outputs

    @property
    def line(self) -> str:
        """The user's file and line of the call."""
        return line_of(*self.origin)


@record
class GuardStep:
    """Continues if the flag (one bool) is true; else raises `error(message)` for the user's line.

    seen  (buffer, low, high) of the indices that are checked, if any: they are read only on
          failure, so that the error can name an index out of range
    """

    flag: int
    error: type[Exception]
    message: str
    origin: Origin
    seen: tuple[int, int, int] | None = None

    @property
    def reads(self) -> tuple[int, ...]:
        return (self.flag,) if self.seen is None else (self.flag, self.seen[0])

    @property
    def writes(self) -> tuple[int, ...]:
        return ()


ScheduleStep = KernelStep | GemmStep | TiledStep | NativeStep | LibraryStep | GuardStep


@record
class Schedule:
    """A program over buffers; inputs and outputs are in the graph's order."""

    buffers: tuple[Buffer, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    steps: tuple[ScheduleStep, ...]
    constants: Mapping[int, Any] = field(default_factory=dict)

    def storage(self, i: int) -> int:
        """The root buffer that holds the memory of buffer i."""
        base = self.buffers[i].base
        return i if base is None else base

    @property
    def donated(self) -> tuple[int, ...]:
        """The inputs whose memory outputs take."""
        return tuple(b.takes for b in self.buffers if b.takes is not None)

    def __str__(self) -> str:
        return text(self)


# -- as text ---------------------------------------------------------------------------------


def text(schedule: Schedule) -> str:
    """The program in readable lines."""
    return "\n".join(_lines(schedule))


def _lines(schedule: Schedule) -> Iterator[str]:
    yield f"inputs  {' '.join(f'b{i}' for i in schedule.inputs)}"
    for i, b in enumerate(schedule.buffers):
        typed = f"b{i}:{b.dtype}[{','.join(map(str, b.shape))}]"
        place = b.role if b.base is None else f"view of b{b.base} at {b.offset} by {b.strides}"
        place += "" if b.takes is None else f" in b{b.takes}"
        yield f"buffer  {typed} {place}"
    for step in schedule.steps:
        yield step_text(step)
    yield f"outputs {' '.join(f'b{i}' for i in schedule.outputs)}"


def step_text(step: ScheduleStep) -> str:
    """A step in one line."""
    if isinstance(step, KernelStep):
        return kernel_text(step)
    if isinstance(step, GemmStep):
        a = f"b{step.a}{'ᵀ' if step.transpose_a else ''}"
        b = f"b{step.b}{'ᵀ' if step.transpose_b else ''}"
        more = f" + {step.beta:g}·b{step.c}" if step.beta else ""
        more += "" if step.bias is None else f" + b{step.bias}"
        scale = f"{step.alpha:g}·" if step.alpha != 1 else ""
        sizes = "×".join(map(str, (*step.batch, step.m, step.n, step.k)))
        product = f"{scale}{a}·{b}{more}"
        product = f"{step.activation}({product})" if step.activation else product
        return f"gemm    b{step.c} = {product} {sizes}"
    if isinstance(step, TiledStep):
        sizes = "×".join(map(str, step.tile))
        return f"{step_text(step.product)} by tiles of {sizes}, each then {kernel_text(step.then)}"
    if isinstance(step, NativeStep):
        made = ", ".join(f"b{i}" for i in step.results)
        return f"native  {made} = {step.routine} of {', '.join(f'b{i}' for i in step.operands)}"
    if isinstance(step, GuardStep):
        return f"guard   b{step.flag} or {step.error.__name__}: {step.message}"
    operands = ", ".join(
        [repr(i.value) if isinstance(i, Literal) else f"b{i}" for i in step.inputs]
        + [repr(s) for s in step.static]
    )
    return f"library {', '.join(f'b{i}' for i in step.outputs)} = {step.op.name}({operands})"


def kernel_text(step: KernelStep) -> str:
    """A kernel in one line: its domain, and its results as steps of its operands."""
    kernel, names = step.kernel, [f"b{i}" for i in step.operands]
    made = []
    for s in kernel.steps:
        names.append(f"t{len(names) - len(step.operands)}")
        if isinstance(s, FoldStep):
            made.append(f"{names[-1]} = fold {s.kind}({names[s.value]})")
            continue
        inputs = [repr(i.value) if isinstance(i, Literal) else names[i] for i in s.inputs]
        made.append(f"{names[-1]} = {s.row}({', '.join([*inputs, *map(repr, s.static)])})")
    pairs = zip(step.results, kernel.results, strict=True)
    stored = [f"b{i} = {names[r.value]}" for i, r in pairs]
    folded = f" folding {kernel.folded}" if kernel.folded else ""
    return f"kernel  {kernel.domain}{folded}: {'; '.join([*made, *stored])}"
