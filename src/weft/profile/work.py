"""How much work a recorded span is: its floating-point operations, and the bytes that it moves."""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..compiler.ir.flops import kernel_flops
from ..compiler.ir.schedule import (
    GemmStep,
    GuardStep,
    KernelStep,
    NativeStep,
    Schedule,
    ScheduleStep,
    TiledStep,
)
from ..core.op import Op
from ..ops.flops import flops
from .tape import Described, Span


class Work(NamedTuple):
    """What a span computes and moves.

    name    of the operation
    sizes   its arguments, as text
    dtype   that it computes in; None: unknown
    flops   None: unknown
    nbytes  None: unknown
    """

    name: str
    sizes: str = ""
    dtype: Any = None
    flops: int | None = None
    nbytes: int | None = None


class _Shaped(NamedTuple):
    shape: tuple[int, ...]


def work_of(span: Span, known: dict[Any, Work]) -> Work:
    """The work of an operation, a pull-back or an update.

    known  a cache
    """
    if span.kind == "backward":
        return Work(f"{span.what.name} backward")
    operands, results = tuple(span.operands or ()), span.results and tuple(span.results)
    key = (span.what, operands, results, span.static)
    if key not in known:
        known[key] = _work(span, operands, results)
    return known[key]


def _work(span: Span, operands: Sequence[Described], results: Sequence[Described] | None) -> Work:
    arrays = [a for a in operands if a is not None]
    if span.kind == "update":
        moved = sum(map(_nbytes, [*arrays, *(results or ())]))
        return Work(span.what, _update_sizes(arrays), _dtype(arrays), None, moved)
    op = span.what
    sizes, dtype = ", ".join(map(_text, operands)), _dtype(arrays or results or ())
    if results is None:  # a view
        return Work(op.name, sizes, dtype, 0, 0)
    shaped = [None if a is None else _Shaped(a[0]) for a in operands]
    count = flops(op, [_Shaped(a[0]) for a in results if a], shaped, span.static)
    return Work(op.name, sizes, dtype, count, _moved(op, arrays, [a for a in results if a]))


def _moved(op: Op, operands: list[Any], results: list[Any]) -> int:
    """The bytes that a row reads and writes; one that picks elements reads only those."""
    written = sum(map(_nbytes, results))
    if op.moves == "indices" and operands:
        first, *others = map(_nbytes, operands)
        return min(first, written) + sum(others) + written
    return sum(map(_nbytes, operands)) + written


def _nbytes(a: Described) -> int:
    return 0 if a is None else prod(a[0]) * a[1].itemsize


def _dtype(arrays: Sequence[Described]) -> Any:
    return next((a[1] for a in arrays if a is not None), None)


def _text(a: Described) -> str:
    return "scalar" if a is None else "×".join(map(str, a[0])) or "()"


def _update_sizes(arrays: Sequence[Any]) -> str:
    return f"{sum(_nbytes(a) for a in arrays):,} bytes"


# -- steps of compiled programs --------------------------------------------------------------


def segment_of(schedule: Schedule, segment: int) -> list[ScheduleStep]:
    """The native steps of a segment: those between two library calls."""
    from ..compiler.ir.calls import cut  # loaded with programs

    return cut(schedule)[0][segment]


def step_work(schedule: Schedule, step: ScheduleStep) -> Work:
    """The work of a step of a compiled program."""
    from ..compiler.explain.report import kind_of, sizes_of, what_of  # loaded with programs

    kind, what = kind_of(step), what_of(step)
    name = f"{kind}: {what}" if what else kind
    dtype = next((schedule.buffers[i].dtype for i in step.writes), None)
    count = _step_flops(step)
    return Work(name, sizes_of(step), dtype, count, _step_bytes(schedule, step))


def _step_flops(step: ScheduleStep) -> int | None:
    if isinstance(step, GemmStep):
        return step.flops
    if isinstance(step, TiledStep):
        return step.product.flops + kernel_flops(step.then.kernel)
    if isinstance(step, KernelStep):
        return kernel_flops(step.kernel)
    if isinstance(step, NativeStep):
        return step.routine.flops
    return 0 if isinstance(step, GuardStep) else None


def _step_bytes(schedule: Schedule, step: ScheduleStep) -> int:
    if isinstance(step, GemmStep):
        each = schedule.buffers[step.c].dtype.itemsize * prod(step.batch)
        m, n, k = step.m, step.n, step.k
        bias = 0 if step.bias is None else schedule.buffers[step.bias].nbytes
        return each * (m * k + k * n + m * n * (2 if step.beta else 1)) + bias
    if isinstance(step, TiledStep):  # the tiles of the product are in the cache
        c = step.product.c
        others = [i for i in (*step.then.operands, *step.then.results) if i != c]
        return _step_bytes(schedule, step.product) + _buffer_bytes(schedule, others)
    return _buffer_bytes(schedule, _arrays(step))


def _arrays(step: ScheduleStep) -> Iterator[int]:
    yield from step.reads
    if isinstance(step, NativeStep):  # its scratch memory, after the results, stays in the cache
        yield from step.results[: len(step.routine.results)]
    else:
        yield from step.writes


def _buffer_bytes(schedule: Schedule, buffers: Sequence[int] | Iterator[int]) -> int:
    return sum(schedule.buffers[i].nbytes for i in buffers)


def dtype_name(dtype: Any) -> str:
    """`float32` for NumPy's and PyTorch's."""
    return str(np.dtype(dtype)) if isinstance(dtype, np.dtype) else str(dtype).split(".")[-1]
