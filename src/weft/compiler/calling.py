"""The calling convention of executables on every target: the bound arrays, and the errors.

Each call binds the inputs' arrays, and arrays for the outputs that have memory of their own. Inputs
must be C-contiguous; others are copied, and the copies are counted. Arrays are NumPy's, or those of
another library (`raw/arrays.py`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import errors
from ..core.aval import Shape
from ..core.backends import BACKENDS, KERNELS
from ..core.communicator import Pending, connected
from ..core.dispatch import beside_bfloat16
from ..core.explain import explain_error
from ..core.origin import line_of
from ..core.record import record
from ..graph.guard import index_message
from .ir.schedule import GuardStep, LibraryStep, Schedule
from .raw.arrays import RawArrays
from .raw.numpy_arrays import NUMPY
from .target import Measure


@record
class Signature:
    """The arrays that are bound at each call: the inputs, then outputs with memory of their own.

    argument  from a buffer to the position of its array; an output may take an input's memory
    written   the positions of inputs that are also written
    """

    buffers: tuple[int, ...]
    inputs: int
    argument: Mapping[int, int]
    written: tuple[int, ...]

    @property
    def fresh(self) -> tuple[int, ...]:
        """The buffers with new memory at each call."""
        return self.buffers[self.inputs :]


def signature_of(schedule: Schedule) -> Signature:
    """The signature of a schedule."""
    outputs = [i for i, b in enumerate(schedule.buffers) if b.role == "output" and b.base is None]
    takes = {i: t for i in outputs if (t := schedule.buffers[i].takes) is not None}
    buffers = (*schedule.inputs, *(i for i in outputs if i not in takes))
    argument = {b: i for i, b in enumerate(buffers)}
    argument |= {i: argument[t] for i, t in takes.items()}
    written = tuple(sorted({argument[t] for t in takes.values()}))
    return Signature(buffers, len(schedule.inputs), argument, written)


@record(frozen=False)
class Copies:
    """The copies of an input at calls: how many, and why."""

    reason: str
    count: int = 0


def note_copy(copies: dict[int, Copies], i: int, reason: str) -> None:
    """Count a copy of an input."""
    found = copies.setdefault(i, Copies(reason))
    found.count, found.reason = found.count + 1, reason


class Calling:
    """The part of an executable that is the same on every target: signature and arguments."""

    def __init__(self, schedule: Schedule, arrays: RawArrays = NUMPY):
        self.schedule = schedule
        self.arrays = arrays
        self.signature: Signature = signature_of(schedule)
        self.copies: dict[int, Copies] = {}

    @property
    def fresh(self) -> list[tuple[tuple[int, ...], np.dtype]]:
        """The shapes and dtypes of the outputs with new memory at each call."""
        buffers = self.schedule.buffers
        return [(buffers[i].shape, buffers[i].dtype) for i in self.signature.fresh]

    @property
    def fresh_bytes(self) -> int:
        """The bytes of the outputs with new memory at each call."""
        return sum(self.schedule.buffers[i].nbytes for i in self.signature.fresh)

    def is_bound(self, output: int) -> bool:
        """Whether an output is exactly one of the bound arrays, not a view of it."""
        if output not in self.signature.argument:
            return False
        b = self.schedule.buffers[output]
        array = self.schedule.buffers[self.signature.buffers[self.signature.argument[output]]]
        return (b.shape, b.dtype) == (array.shape, array.dtype)

    def written_last(self, output: int) -> tuple[int, int] | None:
        """An output's position in `fresh`, and the first task that writes it; else None.

        Only if nothing can fail once it is written, except that a signal handler may end the call.
        A library call that may fail may run user code, too: a schedule with one has no such output.
        """
        steps, storage = self.schedule.steps, self.schedule.storage
        i = self.schedule.outputs[output]
        n = self.signature.argument.get(i, -1) - self.signature.inputs
        if (
            n < 0
            or not self.is_bound(i)
            or any([isinstance(s, LibraryStep) and s.fails for s in steps])
        ):
            return None
        first = next(k for k, s in enumerate(steps) if i in map(storage, s.writes))
        failing = any([isinstance(s, GuardStep) for s in steps[first:]])
        return None if failing else (n, first)

    def release(self) -> None:
        """Free the memory that is kept for the next call."""

    def measures(self) -> Sequence[Measure] | None:
        """What each step takes; None: steps are not timed."""
        return None

    # -- arguments that cannot be bound unchanged ------------------------------------------------

    def check_count(self, given: int) -> None:
        """Raise unless the number of inputs is right."""
        if given != self.signature.inputs:
            raise errors.ArgumentError(
                f"compiled program: {given} inputs, expected {self.signature.inputs}"
            )

    def adapt(self, values: list[Any], i: int) -> None:
        """Copy an input with another layout; raise for another shape or dtype."""
        b, value, arrays = self.schedule.buffers[self.signature.buffers[i]], values[i], self.arrays
        if not isinstance(value, arrays.kind):
            raise errors.DTypeError(
                f"compiled program: input {i} is a {type(value).__name__}, expected an array"
            )
        if arrays.dtype_of(value) != b.dtype:
            raise errors.DTypeError(
                f"compiled program: input {i} is {value.dtype}, expected {b.dtype}"
            )
        if value.shape != b.shape:
            raise errors.ShapeError(
                f"compiled program: input {i} has shape {tuple(value.shape)}, expected {b.shape}"
            )
        reason = arrays.obstacle(value, i in self.signature.written) or "its dtype is a copy"
        values[i] = self._copy(i, value, reason)

    def separate(self, values: list[Any], i: int) -> None:
        """Copy an input that shares memory with a written one; raise if both are written."""
        if i in self.signature.written:
            shared = self.arrays.shares_memory
            others = [j for j in self.signature.written if shared(values[i], values[j])]
            raise errors.ArgumentError(
                f"compiled program: inputs {others} are written and share memory; copy one of them"
            )
        values[i] = self._copy(i, values[i], "it shares memory with an input that is written")

    def _copy(self, i: int, value: Any, reason: str) -> Any:
        b = self.schedule.buffers[self.signature.buffers[i]]
        copy = self.arrays.empty(b.shape, b.dtype)
        self.arrays.overwrite(copy, value)
        note_copy(self.copies, i, reason)
        return copy


# -- steps that are the same on every target --------------------------------------------------


def strided(base: np.ndarray, offset: int, shape: Shape, strides: Shape) -> np.ndarray:
    """A view of a C-contiguous array; offset and strides are in elements."""
    line = base.reshape(-1)
    start = line[min(offset, line.size) :]
    steps = tuple(s * base.itemsize for s in strides)
    return np.lib.stride_tricks.as_strided(start, shape, steps)


def library_results(
    step: LibraryStep, operands: list[Any], kind: type = np.ndarray
) -> tuple[Any, ...]:
    """The results of the backend's kernel; errors name the operation and the user's line.

    kind  the class of the arrays
    """
    op, operands = step.op, list(beside_bfloat16(step.op, operands))
    kernel = KERNELS[op][kind]
    try:
        with BACKENDS[kind].quiet():
            z = op.call(kernel, operands, step.static)
    except Exception as e:
        if op.foreign:
            raise
        raise _at(explain_error(op, operands, step.static, e), step.line) from None
    return (z,) if op.outputs == 1 else tuple(z)


def begin_collective(step: LibraryStep, operands: list[Any]) -> Pending:
    """Start a sum over all processes in the background; the operand may be overwritten then."""
    (x,), (group, size) = operands, step.static
    own = BACKENDS[type(x)].copy(x)
    return connected(group, size).start("all_reduce", own, "sum", own)


def collective_result(step: LibraryStep, begun: Pending) -> Any:
    """What was started; errors name the user's line."""
    try:
        return begun.wait()
    except Exception as e:
        raise _at(e, step.line) from None


def refuse_own_operations(schedule: Schedule, device: str) -> None:
    """Refuse custom operations, which would get NumPy's arrays."""
    for step in schedule.steps:
        if isinstance(step, LibraryStep) and step.op.foreign:
            raise errors.StagingError(
                f"compile: {step.op.name} is a custom operation that runs at each call (at "
                f"{step.line}), which compiled functions have on 'cpu' only; the tensors are on "
                f"{device!r}: call it outside of the compiled function"
            )


def refusal(step: GuardStep, seen: np.ndarray | None) -> Exception:
    """The error of a guard whose flag was false; `seen` are the indices that it checked."""
    message = step.message
    if step.seen is not None:
        _, least, n = step.seen
        message = index_message(message, seen, least, n)
    return _at(step.error(message), line_of(*step.origin))


def _at(failure: Exception, line: str) -> Exception:
    """The error with the user's line of the operation, not that of the program's call."""
    if isinstance(failure, errors.WeftError):
        failure.args = (f"{failure.message} (at {line})",)
    else:
        failure.add_note(f"at {line}")
    return failure
