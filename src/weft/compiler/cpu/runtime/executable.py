"""Run a schedule: native segments, one call each, and the backend's kernels between them."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ....core.communicator import Pending
from ....graph.graph import Literal
from ...calling import (
    Calling,
    Signature,
    begin_collective,
    collective_result,
    library_results,
    refusal,
)
from ...ir.calls import Call, Part, cut
from ...ir.kernel import MalformedKernel
from ...ir.schedule import (
    GuardStep,
    KernelStep,
    LibraryStep,
    NativeStep,
    Schedule,
    ScheduleStep,
    TiledStep,
)
from ...ir.verify import verify
from ...memory import MemoryPlan, plan, verify_plan
from ...native.builtin import make_picker
from ...native.signals import WatchWords
from ...native.words import allocate_aligned
from ...target import Arrays, Ending
from ..blas import PRODUCT_DTYPES
from ..epilogues import verify_tiles
from ..functions import NativeFunctions, functions_of
from . import stack
from . import thread_pool as threads
from .frame import FrameMemory, shares
from .tasks import Task, kernels_of, task_of

_empty = np.empty
_AGAIN = 8  # how often handlers may interrupt what must be finished


def checks_bounds() -> bool:
    """Whether the environment enables kernels that check every access."""
    return os.environ.get("WEFT_CHECK_BOUNDS", "") not in ("", "0")


class NativeExecutable(Calling):
    """A schedule in native code: a function from the inputs' arrays to the outputs'.

    memory   the plan of scratch buffers; None: computed by `plan`
    checked  whether kernels check every access; None: as the environment says

    Several threads may call it at once. If a signal handler raises while it runs, the call ends
    with that exception, but not once it has begun to write into an input: an input is unchanged or
    completely written. Outputs are new arrays, or the input whose memory was donated; an input that
    native code cannot read in place is copied first. The caller may pass arrays like `fresh`, not
    referenced elsewhere, as room for the outputs; those with another size or dtype, or without
    memory of their own, are replaced.
    """

    schedule: Schedule
    checked: bool
    plan: MemoryPlan
    signature: Signature
    code: NativeFunctions
    segments: list[list[Task]]
    library: list[Call]
    run: Callable[..., list[np.ndarray]]

    def __init__(
        self,
        schedule: Schedule,
        memory: MemoryPlan | None = None,
        checked: bool | None = None,
    ):
        verify(schedule, PRODUCT_DTYPES)
        verify_tiles(schedule)
        super().__init__(schedule)
        self.checked = checks_bounds() if checked is None else checked
        self.plan = plan(schedule) if memory is None else memory
        verify_plan(schedule, self.plan)
        self.code = functions_of(kernels_of(schedule, self.checked))
        self.segments, self.library = self._segments()
        self._constants = {i: _constant(x) for i, x in schedule.constants.items()}
        self._idle: list[FrameMemory] = [self._memory()]
        self.run = self._runner()

    def __call__(self, arrays: Arrays, room: Arrays | None = None) -> list[np.ndarray]:
        return self.run(arrays, room)

    def release(self) -> None:
        self._idle.clear()

    def _runner(self) -> Callable[..., list[np.ndarray]]:
        """The function of a call; attributes are looked up once: a small program takes 50 ns."""
        shapes, dtypes = zip(*self.fresh, strict=True) if self.fresh else ((), ())
        take, give_back, make = self._idle.pop, self._idle.append, self._memory
        sharing, library, checked = any(map(shares, self.segments)), self.library, self.checked
        outputs, gather, inputs = self._outputs(), threads.resize, self.signature.inputs
        plain = self.schedule.outputs == self.signature.fresh
        deep, require = any(map(_is_deep, self.schedule.steps)), stack.require

        def run(arrays: Arrays, room: Arrays | None = None, ending: Ending | None = None) -> Any:
            values = [*arrays, *(map(_empty, shapes, dtypes) if room is None else room)]
            if deep:
                require()
            if sharing:
                gather()
            try:
                memory = take()
            except IndexError:  # all frames are in use by running calls
                memory = make()
            if ending is not None:
                memory.watch[: WatchWords.STOPPED + 1] = 0
            try:
                verdict = memory.first(*values)
                if verdict:
                    values = self._copy_and_retry(memory, values, verdict)
                if library:
                    self._go_on(memory, values)
                if checked:
                    self._report(memory)
                made = values[inputs:] if plain else outputs(memory, values)
                return made if ending is None else ending.finish(made)
            except BaseException:
                _end(ending, memory, outputs, values)
                raise
            finally:
                give_back(memory)

        return run

    def _outputs(self) -> Callable[[FrameMemory, list[np.ndarray]], list[np.ndarray]]:
        """How the results are taken from the bound arrays."""
        outputs = self.schedule.outputs
        if all(self.is_bound(i) for i in outputs):
            picks = [self.signature.argument[i] for i in outputs]
            if len(picks) < 2:
                return lambda memory, values: [values[i] for i in picks]
            pick = make_picker(picks)
            return lambda memory, values: pick(values)
        return lambda memory, values: [self._output(memory, i, values) for i in outputs]

    # -- construction ----------------------------------------------------------------------------

    def _segments(self) -> tuple[list[list[Task]], list[Call]]:
        """Native tasks, and the library calls between them: one segment more than calls."""
        segments, calls = cut(self.schedule)
        how = self.code, self.checked
        return [[task_of(self.schedule, s, *how) for s in steps] for steps in segments], calls

    def _memory(self) -> FrameMemory:
        schedule, constants = self.schedule, self._constants
        hold = (self.plan, constants, self.segments, self.code)
        return FrameMemory(schedule, self.signature, *hold, self._free())

    def _free(self) -> int:
        """The number of native tasks before the first one that writes into an input."""
        tasks = [s for s in self.schedule.steps if not isinstance(s, LibraryStep)]
        writes = [any(self._takes(i) for i in s.writes) for s in tasks]
        return writes.index(True) if True in writes else len(tasks)

    def _takes(self, buffer: int) -> bool:
        return self.schedule.buffers[self.schedule.storage(buffer)].takes is not None

    # -- calls -----------------------------------------------------------------------------------

    def _go_on(self, memory: FrameMemory, values: list[np.ndarray]) -> None:
        """Run the library calls, and the native segment after each."""
        segments = zip(self.library, memory.others, self.segments[1:], strict=True)
        begun: dict[int, Pending] = {}
        for call, go_on, tasks in segments:
            step = call.step
            if call.part is Part.END:
                results: tuple[Any, ...] = (collective_result(step, begun.pop(id(step))),)
            else:
                operands = [
                    i.value if isinstance(i, Literal) else memory.view(i, values)
                    for i in step.inputs
                ]
                if call.part is Part.BEGIN:
                    begun[id(step)] = begin_collective(step, operands)
                results = library_results(step, operands) if call.part is Part.WHOLE else ()
            for buffer, result in zip(step.outputs, results):  # noqa: B905  (none of one that begins)
                np.copyto(memory.view(buffer, values), result)
            verdict = go_on()
            if verdict:
                raise _guard_error(tasks[-2 - verdict], memory, values)

    def _output(self, memory: FrameMemory, buffer: int, values: list[np.ndarray]) -> np.ndarray:
        storage = self.schedule.storage(buffer)
        if storage in self._constants:
            return memory.view(buffer, values).copy()
        return memory.view(buffer, values)

    def _report(self, memory: FrameMemory) -> None:
        """Raise for the first kernel that was about to access memory outside of an array."""
        tasks = [t for segment in self.segments for t in segment]
        for task, verdict in zip(tasks, memory.verdicts.tolist(), strict=True):
            if verdict:
                what = f"array {verdict - 1}" if verdict > 0 else "the range of units"
                raise MalformedKernel(f"{what} was left by {task.step}")

    # -- arguments that failed native checks -----------------------------------------------------

    def _copy_and_retry(
        self, memory: FrameMemory, values: list[np.ndarray], verdict: int
    ) -> list[np.ndarray]:
        """Copy arguments that native code cannot read in place, until all checks pass, and run."""
        count = len(self.signature.buffers)
        if verdict == -1:
            self.check_count(len(values) - len(self.signature.fresh))
        while verdict:
            if verdict < 0:
                raise _guard_error(self.segments[0][-2 - verdict], memory, values)
            i = (verdict - 1) % count
            if i >= self.signature.inputs:  # room for an output that does not fit
                values[i] = _empty(*self.fresh[i - self.signature.inputs])
            elif verdict > count:
                self.separate(values, i)
            else:
                self.adapt(values, i)
            verdict = memory.first(*values)
        return values

    # -- reports ---------------------------------------------------------------------------------

    @property
    def from_disk(self) -> bool:
        """Whether its code came from the disk cache."""
        return self.code.from_disk

    def facts(self) -> Iterator[tuple[str, str]]:
        """How it runs, by titles."""
        shared = sum(t.count > t.chunk for tasks in self.segments if shares(tasks) for t in tasks)
        calls = "one native call" if not self.library else f"{len(self.segments)} native calls"
        yield "runs as", f"{calls}; {shared} steps are divided among threads"
        if self.checked:
            yield "checks", "every access of its kernels (WEFT_CHECK_BOUNDS)"

    @property
    def peak(self) -> int:
        """Bytes that a call allocates beside its inputs and constants."""
        return self.plan.size + self.fresh_bytes

    def explain(self) -> list[str]:
        """What runs, in lines: segments and library calls in order, memory, copies."""
        kernels = sum(isinstance(s, KernelStep | TiledStep) for s in self.schedule.steps)
        routines = sum(isinstance(s, NativeStep) for s in self.schedule.steps)
        different = len(self.code.addresses)
        source = "loaded from the cache" if self.code.from_disk else "compiled"
        lines = [
            f"{kernels} kernels and {routines} routines, {different} different, {source}",
            f"peak {self.peak} bytes: arena {self.plan.size} + outputs {self.fresh_bytes}",
        ]
        for i, tasks in enumerate(self.segments):
            shared = sum(t.count > t.chunk for t in tasks) if shares(tasks) else 0
            lines.append(f"native segment: {len(tasks)} steps, {shared} of them by threads")
            if i < len(self.library):
                step, part = self.library[i].step, self.library[i].part
                how = "" if part is Part.WHOLE else f" ({part.value})"
                lines.append(f"library call {step.op.name} at {step.line}: {step.reason}{how}")
        lines += [
            f"input {i} was copied at {c.count} calls: {c.reason}" for i, c in self.copies.items()
        ]
        return lines


def _end(
    ending: Ending | None, memory: FrameMemory, outputs: Callable, values: list[np.ndarray]
) -> None:
    """Clean up when a call ends with an exception.

    If its native code had finished, inputs have been overwritten, so the rest is completed as if
    nothing had happened: again if a handler's exception interrupts it, up to `_AGAIN` times. The
    first exception is the one that the call raises.
    """
    if ending is None:
        return
    if memory.watch[WatchWords.FINISHED]:
        for _ in range(_AGAIN):
            try:
                ending.finish(outputs(memory, values))
                return
            except BaseException:
                continue
    elif memory.watch[WatchWords.STOPPED]:
        ending.stop(int(memory.watch[WatchWords.STOPPED]) - 1)


def _is_deep(step: ScheduleStep) -> bool:
    """Whether a step may use much of the stack; kernels do so between sweeps."""
    if isinstance(step, KernelStep):
        return bool(step.kernel.folded)
    return not isinstance(step, GuardStep | LibraryStep)


def _constant(value) -> np.ndarray:
    """An aligned copy of a constant."""
    value = np.asarray(value)
    memory = allocate_aligned(value.nbytes).view(value.dtype).reshape(value.shape)
    np.copyto(memory, value)
    return memory


def _guard_error(task: Task, memory: FrameMemory, values: list[np.ndarray]) -> Exception:
    """The error of a guard whose flag was false."""
    step = task.step
    assert isinstance(step, GuardStep)
    return refusal(step, None if step.seen is None else memory.view(step.seen[0], values))
