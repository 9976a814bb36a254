"""Tasks: the steps of a schedule as native functions over units, and their records."""

from collections.abc import Sequence
from typing import NamedTuple

from ....core.record import record
from ...ir.kernel import Kernel
from ...ir.schedule import (
    Buffer,
    GemmStep,
    GuardStep,
    KernelStep,
    NativeStep,
    Schedule,
    TiledStep,
)
from ...native.driver import driver
from .. import blas
from ..costs import chunk_of, product_cost, work
from ..epilogues import parts, units_of
from ..functions import Checked, NativeFunctions
from ..loop_nest import nest_of
from ..loops import Extents
from ..routines.routine import as_native_routine

NativeTask = KernelStep | GemmStep | TiledStep | NativeStep | GuardStep


class Pointer(NamedTuple):
    """A word of a record: the address `offset` elements past a buffer's first."""

    word: int
    buffer: int
    offset: int = 0


@record
class Task:
    """A step's function, called as function(record, begin, end) for pieces of its units.

    A guard's function is 0: it reads its flag.

    record    words; those of `pointers` are addresses, which are filled in later
    hold      objects whose addresses are in the record
    chunk     the units of a piece
    verdicts  the words with the address where out-of-bounds accesses are reported
    watches   the words with the address of the call's watch
    """

    step: NativeTask
    function: int
    pointers: Sequence[Pointer]
    record: Sequence[int]
    count: int
    chunk: int
    cost: float
    verdicts: Sequence[int] = ()
    watches: Sequence[int] = ()
    hold: object = None

    @property
    def endless(self) -> bool:
        """Whether its running time depends on values, and may be unbounded."""
        return isinstance(self.step, NativeStep) and self.step.routine.endless


def _pointers(buffers: Sequence[int]) -> list[Pointer]:
    """The first words of a record."""
    return [Pointer(k, i) for k, i in enumerate(buffers)]


def extents_of(schedule: Schedule, step: KernelStep, shifts: Sequence[int] = ()) -> Extents:
    """The elements before and from each of a kernel's pointers on.

    shifts  their offsets in elements from the buffers' first
    """

    def extent(i: int, shift: int) -> tuple[int, int]:
        b: Buffer = schedule.buffers[i]
        at = b.offset + shift
        return at, schedule.buffers[schedule.storage(i)].size - at

    places = (*step.operands, *step.results)
    return tuple(map(extent, places, shifts or (0,) * len(places)))


def kernels_of(schedule: Schedule, checked: bool) -> list[Checked]:
    """The kernels and routines to be compiled."""
    found: list[Checked] = []
    for s in schedule.steps:
        if isinstance(s, KernelStep):
            found.append((s.kernel, extents_of(schedule, s) if checked else ()))
        elif isinstance(s, TiledStep):
            found += _parts(schedule, s, checked)
        elif isinstance(s, NativeStep):
            found.append((as_native_routine(s.routine), checked))
    return found


def _parts(schedule: Schedule, step: TiledStep, checked: bool) -> list[Checked]:
    """The kernels over a product's tiles, one for each column of them."""
    return [
        (p.kernel, extents_of(schedule, step.then, p.shifts) if checked else ())
        for p in parts(step)
    ]


def task_of(
    schedule: Schedule, step: NativeTask, functions: NativeFunctions, checked: bool
) -> Task:
    """A step as a task."""
    if isinstance(step, GuardStep):
        return Task(step, 0, _pointers((step.flag,)), (0,), 1, 1, 0.0)
    if isinstance(step, TiledStep):
        return _tiled_task(schedule, step, functions, checked)
    if isinstance(step, GemmStep):
        return _product(schedule, step)
    if isinstance(step, NativeStep):
        return _routine(step, functions, checked)
    key = (step.kernel, extents_of(schedule, step) if checked else ())
    places = (*step.operands, *step.results)
    nest, cost = nest_of(step.kernel), work(step.kernel)
    count = 0 if _idle(step.kernel) else nest.count
    chunk = chunk_of(count, nest.grain, cost)
    return Task(
        *(step, functions.addresses[key], *_record(places)),
        *(count, chunk, cost, (len(places),) if checked else ()),
    )


def _record(places: Sequence[int]) -> tuple[list[Pointer], tuple[int, ...]]:
    """The record of a kernel or a routine: its pointers, and where to report."""
    return _pointers(places), (0,) * (len(places) + 1)


def _routine(step: NativeStep, functions: NativeFunctions, checked: bool) -> Task:
    routine, places = as_native_routine(step.routine), (*step.operands, *step.results)
    chunk = chunk_of(routine.count, routine.grain, routine.cost)
    pointers, record = _record(places)
    return Task(
        *(step, functions.addresses[routine, checked], pointers, (*record, 0)),
        *(routine.count, chunk, routine.cost, (len(places),) if checked else ()),
        watches=(len(places) + 1,),
    )


def _idle(kernel: Kernel) -> bool:
    return any(n == 0 for a, n in enumerate(kernel.domain) if a not in kernel.folded)


def _product(schedule: Schedule, step: GemmStep) -> Task:
    dtype = schedule.buffers[step.c].dtype
    call = blas.call_of(step, dtype)
    cost = product_cost(step, dtype)
    chunk = chunk_of(call.count, 1, cost)
    return Task(
        *(step, call.function, _pointers(call.places), call.record),
        *(call.count, chunk, cost),
        hold=call.offsets,
    )


def _tiled_task(
    schedule: Schedule, step: TiledStep, functions: NativeFunctions, checked: bool
) -> Task:
    """A product's record, followed by the kernels' functions and records."""
    product, then = step.product, step.then
    call = blas.call_of(product, schedule.buffers[product.c].dtype, step.tile)
    places = (*then.operands, *then.results)
    record = [*call.record, *units_of(step), len(places) + 2]
    pointers, verdicts = _pointers(call.places), []
    for part, key in zip(parts(step), _parts(schedule, step, checked), strict=True):
        record.append(functions.addresses[key])
        numbered = enumerate(zip(places, part.shifts, strict=True), len(record))
        pointers += [Pointer(word, i, shift) for word, (i, shift) in numbered]
        record += [0] * (len(places) + 1)
        verdicts += [len(record) - 1] if checked else []
    cost = product_cost(product, schedule.buffers[product.c].dtype) + work(then.kernel)
    return Task(
        *(step, driver().addresses["weft_tiles"], pointers, record),
        *(call.count, chunk_of(call.count, 1, cost), cost, verdicts),
        hold=call.offsets,
    )
