"""Frames: the memory of one running call of a program, and its native functions."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ...calling import Signature, strided
from ...ir.schedule import GemmStep, NativeStep, Schedule, TiledStep
from ...memory import MemoryPlan
from ...native.builtin import builtin
from ...native.entry import Binding, Frame
from ...native.signals import WatchWords
from ...native.words import WordArray, address, allocate_aligned, words
from ...timing import StepTimes, watch_frame
from .. import blas
from ..costs import SHARED
from ..routines.routine import as_native_routine
from . import thread_pool as threads
from .tasks import Task

# Flags of NumPy's arrays.
_BY_ROWS, _OWNED, _ALIGNED, _WRITEABLE = 0x1, 0x4, 0x100, 0x400
# Nanoseconds from which on the GIL is released, and the thread pool is used.
RELEASE, GATHER = 20_000.0, 60_000.0
# Nanoseconds from which on a segment polls for signals, and between two polls.
LOOKING, BETWEEN = 200_000.0, 50_000.0


def shares(tasks: Sequence[Task]) -> bool:
    """Whether a segment's work is worth using the thread pool."""
    return sum(t.cost if t.count > t.chunk else _shared_inside(t) for t in tasks) >= GATHER


def _shared_inside(task: Task) -> float:
    """The work that a loop divides among threads in its steps."""
    return as_native_routine(task.step.routine).shared if isinstance(task.step, NativeStep) else 0.0


def _looks(tasks: Sequence[Task]) -> list[bool]:
    """After which tasks signals are polled: none, if the segment is short."""
    if sum(t.cost for t in tasks) < LOOKING and not any(t.endless for t in tasks):
        return []
    looks, since = [], 0.0
    for t in tasks:
        since += t.cost
        looks.append(t.endless or t.cost >= SHARED or since >= BETWEEN)
        since = 0.0 if looks[-1] else since
    return looks


def _multiplies(task: Task) -> bool:
    """Whether a task calls BLAS."""
    step = task.step
    if isinstance(step, NativeStep):
        return as_native_routine(step.routine).multiplies
    return isinstance(step, GemmStep | TiledStep)


class FrameMemory:
    """One frame: an arena for scratch buffers, and a function for each segment of tasks.

    `first` takes the arrays of the signature, and binds them for all segments; the others take
    none. `code` keeps the tasks' functions alive. The first `free` tasks may be interrupted by a
    signal: those after them write in place.
    """

    schedule: Schedule
    constants: Mapping[int, np.ndarray]
    plan: MemoryPlan
    arena: np.ndarray
    verdicts: WordArray
    watch: WordArray
    first: Callable[..., int]
    others: list[Callable[..., int]]

    def __init__(
        self,
        schedule: Schedule,
        signature: Signature,
        plan: MemoryPlan,
        constants: Mapping[int, np.ndarray],
        segments: Sequence[Sequence[Task]],
        code: object,
        free: int,
    ):
        self.schedule, self.constants, self.plan = schedule, constants, plan
        self.arena = allocate_aligned(plan.size)
        self._starts = {i: address(c) for i, c in constants.items()}
        at = address(self.arena)
        self._starts |= {i: at + offset for i, offset in plan.offsets.items()}
        self.verdicts = words(sum(len(s) for s in segments))
        self._argument = signature.argument
        self._bindings: list[int] = []  # (place, argument, offset) in turn
        self._tasks, self._free = 0, free
        self.watch = words(WatchWords.SIZE)
        self.watch[WatchWords.MAIN] = threads.main()
        # Everything whose address is stored.
        self._hold: list[object] = [
            schedule,
            constants,
            segments,
            code,
            self.arena,
            self.verdicts,
            self.watch,
        ]
        parts = [self._segment(tasks) for tasks in segments]
        parts[-1][Frame.FINISHED] = address(self.watch) + 8 * WatchWords.FINISHED
        self._bind(parts[0], signature)
        self._parts, self._native = parts, [builtin(part) for part in parts]
        self._times: list[WordArray] = []
        self.first, *self.others = self._native
        watch_frame(self)

    def report_times(self, to: StepTimes | None) -> None:
        """Call to(schedule, segment, times) after each segment that ran to its end; None: not.

        times  nanoseconds of a monotonic clock when its tasks began, and when each ended
        """
        if not self._times:  # they stay: native code may be writing there
            self._times = [words(int(part[Frame.STEPS]) + 1) for part in self._parts]
        functions = self._native
        for part, times in zip(self._parts, self._times, strict=True):
            part[Frame.TIMES] = 0 if to is None else address(times)
        if to is not None:
            functions = [self._reporting(to, k, run) for k, run in enumerate(self._native)]
        self.first, *self.others = functions

    def _reporting(self, to: StepTimes, k: int, run: Callable[..., int]) -> Callable[..., int]:
        times = self._times[k]

        def report(*values: np.ndarray) -> int:
            times[:] = 0
            verdict = run(*values)
            if not verdict and times[0]:
                to(self.schedule, k, times.tolist())
            return verdict

        return report

    # -- addresses -------------------------------------------------------------------------------

    def _at(self, buffer: int) -> int | None:
        """The address of a buffer's first element; None for one that each call binds."""
        b, storage = self.schedule.buffers[buffer], self.schedule.storage(buffer)
        if storage in self._argument:
            return None
        return self._starts[storage] + b.offset * b.dtype.itemsize

    def view(self, buffer: int, arguments: Sequence[np.ndarray]) -> np.ndarray:
        """A buffer as an array."""
        b, storage = self.schedule.buffers[buffer], self.schedule.storage(buffer)
        whole = self.schedule.buffers[storage]
        if storage in self._argument:
            base = arguments[self._argument[storage]]
        elif storage in self.constants:
            base = self.constants[storage]
        else:
            at = self.plan.offsets[storage]
            base = self.arena[at : at + whole.nbytes].view(whole.dtype).reshape(whole.shape)
        if whole.takes is not None:  # the memory of an input, which may have another shape
            base = base.view(whole.dtype).reshape(whole.shape)
        return base if b.base is None else strided(base, b.offset, b.shape, b.strides)

    # -- tables ----------------------------------------------------------------------------------

    def _store_words(self, values: Sequence[int]) -> int:
        """The address of words, which the frame keeps alive."""
        memory = words(len(values))
        memory[:] = values
        self._hold.append(memory)
        return address(memory)

    def _segment(self, tasks: Sequence[Task]) -> WordArray:
        records, table = words(sum(len(t.record) for t in tasks)), []
        start, together, flat = address(records), shares(tasks), []
        free = max(self._free - self._tasks, 0)
        looks = _looks(tasks[:free])
        watches = [address(self.watch)] * len(looks) + [0] * (len(tasks) - len(looks))
        looks += [False] * (len(tasks) - len(looks))
        for task, watch, look in zip(tasks, watches, looks, strict=True):
            at = start + 8 * len(flat)
            flat += self._record(task, at, watch)
            chunk = task.chunk if together else task.count
            table += [task.function, at, task.count, chunk, watch, look]
        records[:] = flat
        self._hold.append(records)
        part = words(Frame.SIZE, self._hold)
        part[Frame.POOL], part[Frame.TYPE] = threads.address(), id(np.ndarray)
        part[Frame.STEPS], part[Frame.CODE] = len(tasks), self._store_words(table)
        part[Frame.RELEASE] = sum(t.cost for t in tasks) >= RELEASE or any(t.endless for t in tasks)
        part[Frame.WATCH], part[Frame.LOOKS] = address(self.watch), any(looks)
        part[Frame.FINISHED] = address(self.watch) + 8 * WatchWords.PASSED
        products = any(_multiplies(t) for t in tasks)
        quiet = blas.quiet() if products else None  # SciPy is loaded only if needed
        if quiet is not None:
            part[Frame.QUIET] = address(quiet)
        return part

    def _record(self, task: Task, start: int, watch: int) -> list[int]:
        """The words at `start` that a task reads, with the addresses that are known."""
        record = list(task.record)
        for word, buffer, offset in task.pointers:
            b, at = self.schedule.buffers[buffer], self._at(buffer)
            if at is None:
                argument = self._argument[self.schedule.storage(buffer)]
                nbytes = (b.offset + offset) * b.dtype.itemsize
                self._bindings += [start + 8 * word, argument, nbytes]
            else:
                record[word] = at + offset * b.dtype.itemsize
        for word in task.watches:
            record[word] = watch
        for word in task.verdicts:
            record[word] = address(self.verdicts) + 8 * self._tasks
        self._tasks += 1
        return record

    def _bind(self, part: WordArray, signature: Signature) -> None:
        """Store what the first segment checks and binds."""
        buffers = [self.schedule.buffers[i] for i in signature.buffers]
        sizes = self._store_words([n for b in buffers for n in b.shape])
        checks: list[int] = []
        for i, b in enumerate(buffers):
            writes = i >= signature.inputs or i in signature.written
            flags = _BY_ROWS | _ALIGNED | (_WRITEABLE if writes else 0)
            flags |= _OWNED if i >= signature.inputs else 0
            checks += [id(b.dtype), len(b.shape), sizes, flags, b.nbytes]
            sizes += 8 * len(b.shape)
        part[Frame.ARGUMENTS], part[Frame.CHECKS] = len(buffers), self._store_words(checks)
        part[Frame.WRITTEN] = len(signature.written)
        part[Frame.WRITES] = self._store_words(signature.written)
        compared = signature.inputs if signature.written else 0  # fresh arrays overlap nothing
        part[Frame.COMPARED], part[Frame.APART] = compared, self._store_words([0] * compared)
        part[Frame.BINDINGS] = len(self._bindings) // Binding.SIZE
        part[Frame.PLACES] = self._store_words(self._bindings)
