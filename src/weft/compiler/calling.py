"""The calling convention that executables of every target have: what is bound, and what is raised.

At each call the inputs' arrays are bound, and arrays for the outputs that have memory of their own.
Inputs are laid out row by row; those that are not are copied, and the copies are counted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import errors
from ..core.aval import Shape
from ..core.backends import BACKENDS, KERNELS
from ..core.dispatch import beside_bfloat16
from ..core.explain import explain_error
from ..core.origin import line_of
from ..graph.guard import index_message
from .ir.schedule import GuardStep, LibraryStep, Schedule


@dataclass(frozen=True)
class Signature:
    """The arrays that are bound at each call: the inputs, then outputs with memory of their own.

    argument  by buffers, whose array it lies in; an output may take an input's memory
    written   the positions of inputs that are written, too
    """

    buffers: tuple[int, ...]
    inputs: int
    argument: Mapping[int, int]
    written: tuple[int, ...]

    @property
    def fresh(self) -> tuple[int, ...]:
        """The buffers whose memory is new at each call."""
        return self.buffers[self.inputs :]


def signature_of(schedule: Schedule) -> Signature:
    """What a schedule binds."""
    outputs = [i for i, b in enumerate(schedule.buffers) if b.role == "output" and b.base is None]
    takes = {i: t for i in outputs if (t := schedule.buffers[i].takes) is not None}
    buffers = (*schedule.inputs, *(i for i in outputs if i not in takes))
    argument = {b: i for i, b in enumerate(buffers)}
    argument |= {i: argument[t] for i, t in takes.items()}
    written = tuple(sorted({argument[t] for t in takes.values()}))
    return Signature(buffers, len(schedule.inputs), argument, written)


@dataclass
class Copies:
    """An input that had to be copied at calls: how often, and why."""

    reason: str
    count: int = 0


class Calling:
    """What executables of every target say about themselves, and do with arguments."""

    def __init__(self, schedule: Schedule):
        self.schedule = schedule
        self.signature: Signature = signature_of(schedule)
        self.copies: dict[int, Copies] = {}

    @property
    def fresh(self) -> list[tuple[tuple[int, ...], np.dtype]]:
        """The shapes and dtypes of outputs that have memory of their own, new at each call."""
        buffers = self.schedule.buffers
        return [(buffers[i].shape, buffers[i].dtype) for i in self.signature.fresh]

    @property
    def fresh_bytes(self) -> int:
        """Bytes of outputs that have memory of their own."""
        return sum(self.schedule.buffers[i].nbytes for i in self.signature.fresh)

    def is_bound(self, output: int) -> bool:
        """Whether a result is one of the arrays that are bound, as it is."""
        if output not in self.signature.argument:
            return False
        b = self.schedule.buffers[output]
        array = self.schedule.buffers[self.signature.buffers[self.signature.argument[output]]]
        return (b.shape, b.dtype) == (array.shape, array.dtype)

    def written_last(self, output: int) -> tuple[int, int] | None:
        """Which of `fresh` a result is, if nothing can fail once that is written; else None.

        Beside it the first task that writes it: a signal's handler may still end the call there.

        A library call may fail, and may run the user's code, so beside one there is none.
        """
        steps, storage = self.schedule.steps, self.schedule.storage
        i = self.schedule.outputs[output]
        n = self.signature.argument.get(i, -1) - self.signature.inputs
        if n < 0 or not self.is_bound(i) or any([isinstance(s, LibraryStep) for s in steps]):
            return None
        first = next(k for k, s in enumerate(steps) if i in map(storage, s.writes))
        failing = any([isinstance(s, GuardStep) for s in steps[first:]])
        return None if failing else (n, first)

    # -- arguments that cannot be bound as they are ----------------------------------------------

    def check_count(self, given: int) -> None:
        """Raise unless there are as many inputs as the program has."""
        if given != self.signature.inputs:
            raise errors.ArgumentError(
                f"compiled program: {given} inputs, expected {self.signature.inputs}"
            )

    def adapt(self, values: list[np.ndarray], i: int) -> None:
        """Copy an input that lies in another way; raise for one of other sizes or dtype."""
        b, value = self.schedule.buffers[self.signature.buffers[i]], values[i]
        if not isinstance(value, np.ndarray):
            raise errors.DTypeError(
                f"compiled program: input {i} is a {type(value).__name__}, expected an array"
            )
        if value.dtype != b.dtype:
            raise errors.DTypeError(
                f"compiled program: input {i} is {value.dtype}, expected {b.dtype}"
            )
        if value.shape != b.shape:
            raise errors.ShapeError(
                f"compiled program: input {i} has shape {value.shape}, expected {b.shape}"
            )
        values[i] = self._copied(i, value, _reason(value))

    def separate(self, values: list[np.ndarray], i: int) -> None:
        """Copy an input that shares memory with one that is written; raise if it is, too."""
        if i in self.signature.written:
            others = [j for j in self.signature.written if np.shares_memory(values[i], values[j])]
            raise errors.ArgumentError(
                f"compiled program: inputs {others} are written and share memory; copy one of them"
            )
        values[i] = self._copied(i, values[i], "it shares memory with an input that is written")

    def _copied(self, i: int, value: np.ndarray, reason: str) -> np.ndarray:
        b = self.schedule.buffers[self.signature.buffers[i]]
        made = np.empty(b.shape, b.dtype)
        np.copyto(made, value)
        copies = self.copies.setdefault(i, Copies(reason))
        copies.count, copies.reason = copies.count + 1, reason
        return made


def _reason(value: np.ndarray) -> str:
    """Why a program cannot use an array that has the right sizes."""
    if type(value) is not np.ndarray:
        return f"it is a {type(value).__name__}"
    if not value.flags.c_contiguous:
        return "it is not laid out row by row"
    if not value.flags.aligned:
        return "it is misaligned"
    return "its memory is read-only" if not value.flags.writeable else "its dtype is a copy"


# -- steps that every target runs in the same way ---------------------------------------------


def strided(base: np.ndarray, offset: int, shape: Shape, strides: Shape) -> np.ndarray:
    """A view of an array that is laid out row by row; offset and strides are in elements."""
    line = base.reshape(-1)
    start = line[min(offset, line.size) :]
    steps = tuple(s * base.itemsize for s in strides)
    return np.lib.stride_tricks.as_strided(start, shape, steps)


def library_results(step: LibraryStep, operands: list[Any]) -> tuple[Any, ...]:
    """What the backend's kernel gives; errors say the operation and the user's line."""
    op, operands = step.op, list(beside_bfloat16(step.op, operands))
    kernel = KERNELS[op][np.ndarray]
    try:
        with BACKENDS[np.ndarray].quiet():
            z = op.call(kernel, operands, step.static)
    except Exception as e:
        if op.foreign:
            raise
        raise _at(explain_error(op, operands, step.static, e), step.line) from None
    return (z,) if op.outputs == 1 else tuple(z)


def refusal(step: GuardStep, seen: np.ndarray | None) -> Exception:
    """The error of a guard whose flag was false; `seen` are the indices that it is about."""
    message = step.message
    if step.seen is not None:
        _, least, n = step.seen
        message = index_message(message, seen, least, n)
    return _at(step.error(message), line_of(*step.origin))


def _at(failure: Exception, line: str) -> Exception:
    """The error with the line where the operation was written, not where the program was called."""
    if isinstance(failure, errors.WeftError):
        failure.args = (f"{failure.message} (at {line})",)
    else:
        failure.add_note(f"at {line}")
    return failure
