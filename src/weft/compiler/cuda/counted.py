"""Operands that count: constants whose elements are known by their places, so nobody reads them."""

from dataclasses import replace

import numpy as np

from ...core import dtypes
from ...core.record import record
from ..ir.kernel import Kernel, Operand
from ..ir.schedule import KernelStep, Schedule


@record
class Counted(Operand):
    """An operand whose element at offset n, from its pointer, is first + n."""

    first: int


def count_operands(schedule: Schedule, step: KernelStep) -> Kernel:
    """The kernel of a step, with constants that count as such operands."""
    operands = []
    for operand, buffer in zip(step.kernel.operands, step.operands, strict=True):
        first = _first(schedule, buffer, operand.dtype)
        if first is not None:
            operand = Counted(operand.dtype, operand.strides, first)
        operands.append(operand)
    return replace(step.kernel, operands=tuple(operands))


def _first(schedule: Schedule, buffer: int, dtype: np.dtype) -> int | None:
    """What a buffer's elements count from, in the order of memory; None if they do not."""
    constant = schedule.constants.get(schedule.storage(buffer))
    if constant is None or dtype not in (dtypes.int32, dtypes.int64) or constant.dtype != dtype:
        return None
    flat = np.ascontiguousarray(constant).reshape(-1)
    if flat.size < 2 or int(flat[-1]) - int(flat[0]) != flat.size - 1:
        return None
    first = int(flat[0])
    if not np.array_equal(flat, np.arange(first, first + flat.size, dtype=dtype)):
        return None
    return first + schedule.buffers[buffer].offset
