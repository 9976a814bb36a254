"""The rules of every schedule, checked before it runs and, in tests, after each change."""

from collections.abc import Collection

import numpy as np

from ...core import dtypes
from ...core.aval import Aval, Shape
from ...core.value import aval_of
from ...graph.graph import Literal
from .kernel import Strides, reach
from .kernel import verify as verify_kernel
from .schedule import (
    ACTIVATIONS,
    GemmStep,
    GuardStep,
    KernelStep,
    LibraryStep,
    NativeStep,
    Schedule,
    ScheduleStep,
    TiledStep,
    kernel_text,
    step_text,
)
from .tiles import TileKernel, parts

ROLES = ("input", "constant", "output", "scratch")


class MalformedSchedule(AssertionError):
    """A schedule that breaks a rule: always a bug of the compiler, never of the user."""


def verify(schedule: Schedule, product_dtypes: Collection[np.dtype] = dtypes.REAL) -> None:
    """Raise `MalformedSchedule` (or `MalformedKernel`) unless every rule holds.

    Views lie inside their roots; every buffer is written before it is read; only scratch and
    outputs are written, each part once; steps agree with their buffers in dtype and size; no input
    is overwritten before a step that may fail or never end.

    product_dtypes  those that the target multiplies
    """
    for i in range(len(schedule.buffers)):
        _check_buffer(schedule, i)
    if len(set(schedule.inputs)) != len(schedule.inputs):
        raise MalformedSchedule(f"inputs {schedule.inputs} name a buffer twice")
    known = {*schedule.inputs, *schedule.constants}
    for step in schedule.steps:
        read = {schedule.storage(i) for i in step.reads}
        written = {schedule.storage(i) for i in step.writes}
        unknown = sorted(read - known)
        if unknown:
            raise MalformedSchedule(f"{step_text(step)} reads {unknown}, which are not there")
        known |= written
        _check_written(schedule, step, written)
        known -= {t for i in written if (t := schedule.buffers[i].takes) is not None}
        _check_step(schedule, step)
        _check_product(schedule, step, product_dtypes)
    _check_order(schedule)
    missing = sorted({schedule.storage(i) for i in schedule.outputs} - known)
    if missing:
        raise MalformedSchedule(f"outputs {missing} are never written, or written over")


def _check_order(schedule: Schedule) -> None:
    """A call that fails or is interrupted leaves all inputs unchanged."""
    wrote = None
    for step in schedule.steps:
        if wrote and may_fail(step):
            raise MalformedSchedule(f"{step_text(step)} comes after an input is written: {wrote}")
        if any(schedule.buffers[schedule.storage(i)].takes is not None for i in step.writes):
            wrote = step_text(step)


def may_fail(step: ScheduleStep) -> bool:
    """Whether a call may end with an error at a step, or never end."""
    if isinstance(step, LibraryStep):
        return step.fails
    return isinstance(step, GuardStep) or (isinstance(step, NativeStep) and step.routine.endless)


def _check_buffer(schedule: Schedule, i: int) -> None:
    b = schedule.buffers[i]
    if b.role not in ROLES or len(b.strides) != len(b.shape):
        raise MalformedSchedule(f"b{i} is {b}")
    if b.base is None:
        donor = None if b.takes is None else schedule.buffers[b.takes]
        if donor and (donor.role, donor.nbytes, b.role) != ("input", b.nbytes, "output"):
            raise MalformedSchedule(f"b{i}, {b}, takes the memory of {donor}")
        if b.offset or not b.contiguous:
            raise MalformedSchedule(f"b{i} is no view, and has offset {b.offset}, {b.strides}")
        if (b.role == "input") != (i in schedule.inputs):
            raise MalformedSchedule(f"b{i} is {b.role}, inputs are {schedule.inputs}")
        if (b.role == "constant") != (i in schedule.constants):
            raise MalformedSchedule(f"b{i} is {b.role}, constants are {[*schedule.constants]}")
        if b.role == "constant" and aval_of(schedule.constants[i]) != Aval(b.shape, b.dtype):
            raise MalformedSchedule(f"b{i} is {b}, the constant {aval_of(schedule.constants[i])}")
        return
    base = schedule.buffers[b.base]
    if base.base is not None or base.role != b.role or base.dtype != b.dtype:
        raise MalformedSchedule(f"b{i} is a view of b{b.base}, which is {base}")
    _check_reach(schedule, i, b.shape, b.strides)


def _check_reach(schedule: Schedule, i: int, sizes: Shape, strides: Strides) -> None:
    """Check that an access to buffer i stays inside its memory."""
    b, room = schedule.buffers[i], schedule.buffers[schedule.storage(i)].size
    low, high = (0, 0) if 0 in sizes else reach(sizes, strides)
    if b.offset + low < 0 or b.offset + high > room:
        raise MalformedSchedule(
            f"b{i} is accessed from {b.offset + low} to {b.offset + high} of {room} elements"
        )


def _check_written(schedule: Schedule, step: ScheduleStep, written: set[int]) -> None:
    for i in written:
        if schedule.buffers[i].role not in ("scratch", "output"):
            raise MalformedSchedule(
                f"{step_text(step)} writes b{i}, which is {schedule.buffers[i].role}"
            )


def _check_step(schedule: Schedule, step: ScheduleStep) -> None:
    if isinstance(step, KernelStep):
        _check_kernel(schedule, step)
    elif isinstance(step, GemmStep):
        _check_gemm(schedule, step)
    elif isinstance(step, TiledStep):
        _check_tiled(schedule, step)
    elif isinstance(step, NativeStep):
        _check_native(schedule, step)
    elif isinstance(step, GuardStep):
        flag = schedule.buffers[step.flag]
        if (flag.shape, flag.dtype.kind) != ((), "b"):
            raise MalformedSchedule(f"{step_text(step)}: the flag is {flag}")
    else:
        _check_library(schedule, step)


def _check_kernel(schedule: Schedule, step: KernelStep, part: TileKernel | None = None) -> None:
    """Check a kernel against its buffers; for an epilogue, over one column of tiles."""
    kernel = step.kernel if part is None else part.kernel
    places = (*step.operands, *step.results)
    shifts = (0,) * len(places) if part is None else part.shifts
    if (len(step.operands), len(step.results)) != (len(kernel.operands), len(kernel.results)):
        raise MalformedSchedule(
            f"{len(step.operands)} and {len(step.results)} buffers for {kernel}"
        )
    dtypes = [
        *kernel.dtypes[: len(kernel.operands)],
        *(kernel.dtypes[r.value] for r in kernel.results),
    ]
    extents = []
    for i, dtype, shift in zip(places, dtypes, shifts, strict=True):
        b = schedule.buffers[i]
        if b.dtype != dtype:
            raise MalformedSchedule(f"{kernel_text(step)}: b{i} is {b.dtype}, expected {dtype}")
        at = b.offset + shift
        extents.append((at, schedule.buffers[schedule.storage(i)].size - at))
    verify_kernel(kernel, tuple(extents))


def _check_product(
    schedule: Schedule, step: ScheduleStep, product_dtypes: Collection[np.dtype]
) -> None:
    product = step.product if isinstance(step, TiledStep) else step
    if isinstance(product, GemmStep):
        found = {schedule.buffers[i].dtype for i, _, _ in product.accesses()}
        if len(found) != 1 or not found <= {*product_dtypes}:
            raise MalformedSchedule(
                f"{step_text(step)}: a product of {dtypes.names(sorted(found, key=str))}; all of "
                f"it must be of one of {dtypes.names(product_dtypes)}"
            )


def _check_gemm(schedule: Schedule, step: GemmStep) -> None:
    if {len(s) for s in (step.a_strides, step.b_strides, step.c_strides)} != {len(step.batch)}:
        raise MalformedSchedule(f"{step_text(step)}: strides do not match batch {step.batch}")
    if step.bias is not None and step.beta:
        raise MalformedSchedule(f"{step_text(step)}: a bias is added to a sum")
    if step.activation and (step.bias is None or step.activation not in ACTIVATIONS):
        raise MalformedSchedule(
            f"{step_text(step)}: {step.activation} of a product; expected one of "
            f"{', '.join(ACTIVATIONS)}, of a product with a bias"
        )
    for i, sizes, strides in step.accesses():
        if len(sizes) > 1 and sizes[-2] > 1 and strides[-2] < sizes[-1]:
            raise MalformedSchedule(f"{step_text(step)}: rows of b{i} overlap")
        _check_reach(schedule, i, sizes, strides)


def _check_tiled(schedule: Schedule, step: TiledStep) -> None:
    _check_gemm(schedule, step.product)
    for part in parts(step):
        _check_kernel(schedule, step.then, part)
    again = {i for i in step.then.operands if schedule.storage(i) == step.product.c}
    if again != {step.product.c}:
        raise MalformedSchedule(f"{step_text(step)}: the kernel reads the product in other ways")
    taken = {schedule.buffers[i].takes for i in step.then.results} - {None}
    if taken & {schedule.storage(i) for i in step.product.reads}:
        raise MalformedSchedule(f"{step_text(step)} writes over what other tiles are made of")


def _check_native(schedule: Schedule, step: NativeStep) -> None:
    routine = step.routine
    places = (*step.operands, *step.results)
    arrays = (*routine.operands, *routine.results, *routine.scratch)
    if len(step.operands) != len(routine.operands) or len(places) != len(arrays):
        raise MalformedSchedule(f"{step_text(step)}: expected {len(arrays)} buffers")
    for i, a in zip(places, arrays, strict=True):
        if schedule.buffers[i].dtype != a.dtype:
            raise MalformedSchedule(
                f"{step_text(step)}: b{i} is {schedule.buffers[i].dtype}, expected {a.dtype}"
            )
        _check_reach(schedule, i, a.shape, a.strides)


def _check_library(schedule: Schedule, step: LibraryStep) -> None:
    avals = []
    for i in step.inputs:
        if isinstance(i, Literal):
            avals.append(aval_of(i.value))
        else:
            avals.append(Aval(schedule.buffers[i].shape, schedule.buffers[i].dtype))
    op = step.op
    made = op.call(op.shape, avals, step.static)
    made = made if isinstance(made, tuple) else (made,)
    for i, aval in zip(step.outputs, made, strict=True):
        b = schedule.buffers[i]
        if (aval.shape, aval.dtype) != (b.shape, b.dtype):
            raise MalformedSchedule(f"{op.name}: b{i} is {b}, inferred {aval}")
