"""Run a schedule on a GPU: launches and library calls in order, or captured as one graph."""

from collections.abc import Callable, Iterator, Sequence
from threading import RLock, local
from typing import Any

import numpy as np

from ....core.late import TELLERS
from ...calling import Calling, refusal, refuse_own_operations
from ...ir.schedule import GuardStep, Schedule
from ...ir.verify import verify
from ...memory import MemoryPlan, lifetimes, verify_plan
from ...native.builtin import make_picker
from ...native.shielded import shielded
from ...target import Ending, Measure
from ..captures import refuse_uncaptured
from ..computes import PRODUCT_DTYPES
from ..gpu import Gpu
from ..guards import NUMBER, STATUS
from .actions import Actions
from .arguments import Arguments
from .captured import Captured, uncaptured
from .frame import Frame

# Up to so many launches are made one by one at each call: a graph is not faster.
_FEW = 8


class CudaExecutable(Calling):
    """A schedule on a GPU: a function from the inputs' tensors to the outputs'.

    The first call of a thread launches step by step. From the second on, the steps are one captured
    graph. An array that was at the same address at both calls is read and written in place; another
    one has a place of its own in the graph, to and from which it is copied.

    capture  False: every call launches step by step. Else what no graph can capture is refused
    """

    def __init__(self, schedule: Schedule, placed: MemoryPlan, gpu: Gpu, capture: bool = True):
        verify(schedule, PRODUCT_DTYPES)
        verify_plan(schedule, placed)
        refuse_own_operations(schedule, gpu.name)
        super().__init__(schedule, gpu.arrays)
        self.plan, self.gpu = placed, gpu
        self._status = gpu.arrays.zeros((STATUS,), np.dtype(np.int64))
        self._frame = Frame(schedule, placed, gpu, gpu.arrays.address(self._status))
        actions = Actions(schedule, placed, self._frame, self._status)
        self._frame.fix()
        self._actions, self._guards = actions.functions, actions.guards
        self.from_disk = actions.from_disk
        self._told = gpu.pinned((STATUS,), np.dtype(np.int64)) if self._guards else None
        self._tells = None if self._told is None else self._told.numpy()
        if self._guards:
            TELLERS.add(self)
        self._last = _last_uses(schedule, placed)
        bound = [self.is_bound(i) for i in schedule.outputs]
        # From the bound arrays to the outputs, if each of these is one of them.
        self._pick: Callable[[list[Any]], list[Any]] | None = None
        if all(bound):
            self._pick = make_picker([self.signature.argument[i] for i in schedule.outputs])
        self._pick_written = make_picker(self.signature.written)
        self._launches = sum([not isinstance(s, GuardStep) for s in schedule.steps])
        self._wanted, self._captures = capture, capture and self._launches > _FEW
        if self._captures:
            refuse_uncaptured(schedule)
        self._arguments = Arguments(self, gpu)
        self._graph: Captured | None = None
        self._failed = -1  # the step that was done when a call failed
        self._seen: list[int] | None = None  # the addresses of the call before
        self._moving: set[int] = set()  # positions whose addresses have changed
        self._recaptured = 0
        self._stream: Any = None
        self._lock = RLock()  # of two threads, one binds and launches at a time
        self._thread = local()  # whether it has launched: libraries begin in each thread apart
        self._measures: Sequence[Measure] | None = None

    # -- steps -----------------------------------------------------------------------------------

    def _go(self) -> None:
        """All steps, one after the other."""
        done = -1
        try:
            for done, action in enumerate(self._actions):
                action()
                self._drop_after(done)
            if self._told is not None:
                self._told.copy_(self._status, non_blocking=True)
        except BaseException:
            self._failed = done
            raise

    def _drop_after(self, step: int) -> None:
        """Free what PyTorch allocated and no later step uses."""
        for storage in self._last.get(step, ()):
            self._frame.drop(storage)

    def _go_within(self) -> None:
        """The same in a thread that no signal interrupts: all inputs are written, or none."""
        with self.gpu.within(self._stream):
            self._go()

    # -- guards ----------------------------------------------------------------------------------

    def raise_late(self) -> None:
        """Raise the error of a guard that has failed at a call before."""
        if self._tells is None or not self._tells[NUMBER]:
            return
        self.gpu.wait()  # for calls since, which tell of it again
        number, first, least, most = self._tells.tolist()
        self._status.zero_()
        self._tells[:] = 0
        step = self._guards[number - 1]
        seen = None if step.seen is None else np.array([first, least, most])
        error = refusal(step, seen)
        error.add_note("at an earlier call: a GPU tells of it when it is done")
        raise error

    # -- calls -----------------------------------------------------------------------------------

    def run(
        self,
        arrays: Sequence[Any],
        room: Sequence[Any] | None = None,
        ending: Ending | None = None,
    ) -> Any:
        """The outputs of these inputs, or what `ending` makes of them."""
        tells = self._tells
        if tells is not None and tells[NUMBER]:
            self.raise_late()
        gpu = self.gpu
        with self._lock, gpu.current():
            own = {} if self._graph is None else self._graph.own
            values = self._arguments.bind(list(arrays), room, own)
            stream, before = gpu.stream(), self._stream
            if stream != before:
                if before is not None:
                    gpu.follow(before)
                self._stream = stream
            try:
                self._run(values)
            except BaseException:
                if ending is not None:
                    ending.stop(self._failed)
                raise
            if self._pick is not None:
                outputs = self._pick(values)
            else:
                outputs = [self._output(i, values) for i in self.schedule.outputs]
        return outputs if ending is None else ending.finish(outputs)

    def _run(self, values: list[Any]) -> None:
        bound, graph = self._arguments, self._graph
        written, seen = self.signature.written, bound.addresses
        if graph is not None and (not bound.shifted or graph.serves(seen, bound.shifted)):
            bound.shifted.clear()
            self._note_writes(values)
            graph.replay(values)
            return
        self._frame.lay()
        before, self._seen = self._seen, seen.copy()
        if not self._captures or before is None or not hasattr(self._thread, "launched"):
            self._thread.launched = True
            self._note_writes(values)
            self._place(values)
            shielded(self._go_within)() if written else self._go()
            self._unplace()
            return
        if graph is None:
            self._moving = {k for k, (a, b) in enumerate(zip(before, seen, strict=True)) if a != b}
        else:
            self._moving |= graph.moved(seen)
            self._graph = graph = None  # its memory is for the next one
        self._recaptured += 1
        self._graph = self._capture(values)
        bound.shifted.clear()
        self._note_writes(values)
        self._graph.replay(values)

    def _note_writes(self, values: list[Any]) -> None:
        """Tell PyTorch of the inputs that are written."""
        if self.signature.written:
            self.arrays.note_write(self._pick_written(values))

    def _place(self, values: list[Any]) -> None:
        for buffer, position in self.signature.argument.items():
            self._frame.place(buffer, values[position])

    def _unplace(self) -> None:
        for buffer in self.signature.argument:
            self._frame.drop(buffer)

    def _output(self, i: int, values: list[Any]) -> Any:
        if self.is_bound(i):
            return values[self.signature.argument[i]]  # also if others are not
        storage = self.schedule.storage(i)
        if storage in self.signature.argument:
            self._frame.place(storage, values[self.signature.argument[storage]])
            made = self._frame.tensor(i)
            self._frame.drop(storage)
            return made
        return self.arrays.copy(self._frame.tensor(i))

    # -- capture ---------------------------------------------------------------------------------

    def _capture(self, values: list[Any]) -> Captured:
        """The steps as one graph, on the memory of this call where it does not move."""
        arrays, inputs = self.arrays, self.signature.inputs
        own = {i: arrays.empty(*self._arguments.like(i)) for i in sorted(self._moving)}
        held = [own.get(i, x) for i, x in enumerate(values)]
        self._place(held)
        self._failed = -1
        try:
            replay = self.gpu.capture(self._go)
        except BaseException as e:
            at, self._failed = self._failed, -1  # nothing has run
            for storage in {i for found in self._last.values() for i in found}:
                self._frame.drop(storage)
            if isinstance(e, Exception):  # it has run without a graph at the call before
                raise uncaptured(None if at < 0 else self.schedule.steps[at], e) from e
            raise
        finally:
            self._unplace()
        fixed = [(i, a) for i, a in enumerate(self._arguments.addresses) if i not in own]
        into = [i for i in own if i < inputs]
        return Captured(replay, own, dict(fixed), into, self.signature.written, inputs)

    # -- reports ---------------------------------------------------------------------------------

    def written_last(self, output: int) -> tuple[int, int] | None:
        steps, storage = self.schedule.steps, self.schedule.storage
        i = self.schedule.outputs[output]
        n = self.signature.argument.get(i, -1) - self.signature.inputs
        if n < 0 or not self.is_bound(i):
            return None
        return n, next(k for k, s in enumerate(steps) if i in map(storage, s.writes))

    def measures(self) -> Sequence[Measure] | None:
        """What each step takes, measured once: on the arrays of the last call that still exist.

        What steps write is copied first, and zeros stand for other arrays.
        """
        if self._measures is None:
            with self.gpu.current():
                self._frame.lay()
                self._place([*map(self._arguments.stand_in, range(len(self.signature.buffers)))])
                self._measures = self.gpu.measure(self.schedule, self._actions, self._drop_after)
                self._unplace()
                self._status.zero_()
        return self._measures

    def release(self) -> None:
        with self._lock:
            self._graph, self._seen = None, None
            self._frame.free()

    def facts(self) -> Iterator[tuple[str, str]]:
        """How it runs, by titles."""
        if not self._captures:
            how = "" if self._wanted else ", step by step (capture=False)"
            yield "runs as", f"{self._launches} launches{how}"
            return
        captured = "one graph from the second call on"
        if self._graph is not None:
            copied = len(self._graph.own)
            captured = f"one captured graph, to or from which {copied} arrays are copied"
            if self._recaptured > 1:
                captured += f"; captured {self._recaptured} times, as arrays had moved"
        yield "runs as", captured


def _last_uses(schedule: Schedule, placed: MemoryPlan) -> dict[int, list[int]]:
    """By step, the scratch storages that it uses last and that are in no arena."""
    found: dict[int, list[int]] = {}
    for storage, (_, last) in lifetimes(schedule).items():
        if storage not in placed.offsets:
            found.setdefault(last, []).append(storage)
    return found
