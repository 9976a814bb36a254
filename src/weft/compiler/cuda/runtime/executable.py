"""Run a schedule on a GPU: launches and library calls in order, or captured as one graph."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from operator import is_
from typing import Any
from weakref import ref

import numpy as np

from ....core.late import TELLERS
from ....core.origin import line_of
from ....graph.graph import Literal
from ...calling import Calling, library_results, note_copy, refusal, refuse_own_operations
from ...ir.routine import RoutineArray, array
from ...ir.schedule import (
    GemmStep,
    GuardStep,
    KernelStep,
    LibraryStep,
    NativeStep,
    Schedule,
    ScheduleStep,
)
from ...ir.verify import MalformedSchedule, verify
from ...memory import MemoryPlan, lifetimes, verify_plan
from ...native.builtin import make_picker
from ...native.shielded import shielded
from ...target import Ending, Measure
from ..captures import refusal_of, refuse_uncaptured
from ..computes import PRODUCT_DTYPES
from ..counted import count_operands
from ..gpu import Gpu, GridFunctions, GridWork, Launch, Replay
from ..guards import NUMBER, STATUS, GuardStage
from ..products import multiply
from ..routines.routine import GridRoutine
from .bodies import Bodies, is_structured
from .cells import Cells
from .frame import Frame

# Up to so many launches are made one by one at each call: a graph is not faster.
_FEW = 8


class CudaExecutable(Calling):
    """A schedule on a GPU: a function from the inputs' tensors to the outputs'.

    The first call launches step by step. From the second on, the steps are one captured graph. An
    array that was at the same address at both calls is read and written in place; another one has a
    place of its own in the graph, to and from which it is copied.

    capture  False: every call launches step by step. Else what no graph can capture is refused
    """

    def __init__(self, schedule: Schedule, placed: MemoryPlan, gpu: Gpu, capture: bool = True):
        verify(schedule, PRODUCT_DTYPES)
        verify_plan(schedule, placed)
        refuse_own_operations(schedule, gpu.name)
        super().__init__(schedule, gpu.arrays)
        self.plan, self.gpu, self._bodies = placed, gpu, Bodies(gpu.arrays)
        self._guards = [s for s in schedule.steps if isinstance(s, GuardStep)]
        self._status = gpu.arrays.zeros((STATUS,), np.dtype(np.int64))
        self._told = gpu.pinned((STATUS,), np.dtype(np.int64)) if self._guards else None
        self._tells = None if self._told is None else self._told.numpy()
        if self._guards:
            TELLERS.add(self)
        self._frame = Frame(schedule, placed, gpu, gpu.arrays.address(self._status))
        self._actions, self.from_disk = self._act()
        self._frame.fix()
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
        self._graph: _Captured | None = None
        self._serves = False  # whether the graph does at the addresses that were checked last
        self._failed = -1  # the step that was done when a call failed
        self._seen: list[int] | None = None  # the addresses of the call before
        self._moving: set[int] = set()  # positions whose addresses have changed
        self._recaptured = 0
        self._stream: Any = None
        self._measures: Sequence[Measure] | None = None
        self._cells: Cells | None = None
        self._fresh = self.fresh
        self._no_room = [None] * len(self._fresh)
        # What was checked last: the arrays are the caller's, and freed as he likes.
        self._checked: list[Callable[[], Any]] = [_nothing] * len(self.signature.buffers)
        self._addresses: list[int] = [0] * len(self.signature.buffers)
        self._nbytes = [schedule.buffers[i].nbytes for i in self.signature.buffers]
        # Where inputs are written: (address, end, position) of each, in order.
        self._written: list[tuple[int, int, int]] = []

    # -- construction ----------------------------------------------------------------------------

    def _act(self) -> tuple[list[Callable[[], None]], bool]:
        """What each step does, and whether the code for it came from the disk."""
        works = {k: self._works(step) for k, step in enumerate(self.schedule.steps)}
        functions = self.gpu.functions([work for found in works.values() for work, _ in found])
        steps = enumerate(self.schedule.steps)
        return [self._action(s, works[k], functions) for k, s in steps], functions.from_disk

    def _works(self, step: ScheduleStep) -> list[tuple[GridWork, list[int]]]:
        """What a step launches of our own, and the positions of its parameters' addresses."""
        frame = self._frame
        if isinstance(step, KernelStep):
            buffers = (*step.operands, *step.results)
            stops = bool(self._guards) and any([self._takes(i) for i in step.results])
            kernel = count_operands(self.schedule, step)
            work = GridWork(kernel, frame.aligned(buffers), stops)
            return [(work, [*map(frame.position, buffers), *([0] if stops else [])])]
        if isinstance(step, NativeStep):
            return self._stages(step)
        if isinstance(step, GuardStep):
            places = [frame.position(step.flag), 0]
            number, seen = 1 + self._guards.index(step), self._indices(step)
            if seen is None:
                return [(GridWork(GuardStage(number), 1), places)]
            assert step.seen is not None
            buffer, low, high = step.seen
            stage = GuardStage(number, seen, low, high)
            return [(GridWork(stage, 1), [*places, frame.position(buffer)])]
        return []

    def _stages(self, step: NativeStep) -> list[tuple[GridWork, list[int]]]:
        """The stages of a routine."""
        routine, buffers = step.routine, (*step.operands, *step.results)
        if not isinstance(routine, GridRoutine):
            raise MalformedSchedule(f"a GPU has no {type(routine).__name__}")
        found, stops = [], bool(self._guards) and any([self._takes(i) for i in step.results])
        for stage in routine.stages:
            used = [buffers[k] for k in stage.arrays]
            aligned = self._frame.aligned([buffers[k] for k in stage.wide])
            stage = stage if aligned >= stage.aligned else replace(stage, aligned=aligned)
            places = [*map(self._frame.position, used), *([0] if stops else [])]
            found.append((GridWork(stage, aligned, stops), places))
        return found

    def _indices(self, step: GuardStep) -> RoutineArray | None:
        """The indices that a guard checks, if they lie in a row."""
        if step.seen is None:
            return None
        b = self.schedule.buffers[step.seen[0]]
        return array(b.dtype, b.shape) if b.contiguous and b.size else None

    def _takes(self, i: int) -> bool:
        return self.schedule.buffers[self.schedule.storage(i)].takes is not None

    def _action(
        self,
        step: ScheduleStep,
        works: list[tuple[GridWork, list[int]]],
        functions: GridFunctions,
    ) -> Callable[[], None]:
        frame = self._frame
        if works:
            launches = [_Bound(frame, functions.launches[work], at) for work, at in works]
            return launches[0] if len(launches) == 1 else _Sequence(launches)
        if isinstance(step, GemmStep):
            return lambda: self._multiply(step)
        if isinstance(step, LibraryStep):
            return lambda: self._call(step)
        raise MalformedSchedule(f"a GPU has no {type(step).__name__}")

    # -- steps -----------------------------------------------------------------------------------

    def _call(self, step: LibraryStep) -> None:
        """A kernel of the library: its results are taken over, or copied to where they belong."""
        frame, buffers = self._frame, self.schedule.buffers
        operands = [i.value if isinstance(i, Literal) else frame.tensor(i) for i in step.inputs]
        if is_structured(step.static):
            results = self._bodies.results(step.static[0], operands)
        else:
            results = library_results(step, operands, self.arrays.kind)
        for i, made in zip(step.outputs, map(self.arrays.whole, results), strict=True):
            b = buffers[i]
            if b.role == "scratch" and b.base is None and i not in self.plan.offsets:
                frame.place(i, made.contiguous())
            elif self._guards and self._takes(i):
                kept = frame.tensor(i)
                kept.copy_(made.where(self._status[0] == 0, kept))
            else:
                frame.tensor(i).copy_(made)

    def _multiply(self, step: GemmStep) -> None:
        a, b, c, *bias = [self._frame.walk(*access) for access in step.accesses()]
        if self._guards and self._takes(step.c):
            made = c.clone()
            multiply(step, a, b, made, *bias)
            c.copy_(made.where(self._status[0] == 0, c))
        else:
            multiply(step, a, b, c, *bias)

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
        with gpu.current():
            values = self._bind(list(arrays), room)
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
        written, seen, graph = self.signature.written, self._addresses, self._graph
        if graph is not None and (self._serves or graph.serves(seen)):
            self._serves = True
            self._note_writes(values)
            graph.replay(values)
            return
        before, self._seen = self._seen, seen.copy()
        if not self._captures or before is None:
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

    def _capture(self, values: list[Any]) -> "_Captured":
        """The steps as one graph, on the memory of this call where it does not move."""
        arrays, inputs = self.arrays, self.signature.inputs
        own = {i: arrays.empty(*self._like(i)) for i in sorted(self._moving)}
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
                raise _uncaptured(None if at < 0 else self.schedule.steps[at], e) from e
            raise
        finally:
            self._unplace()
        fixed = [(i, a) for i, a in enumerate(self._addresses) if i not in own]
        into = [i for i in own if i < inputs]
        return _Captured(replay, own, dict(fixed), into, self.signature.written, inputs)

    def _like(self, i: int) -> tuple[tuple[int, ...], np.dtype]:
        b = self.schedule.buffers[self.signature.buffers[i]]
        return b.shape, b.dtype

    # -- arguments -------------------------------------------------------------------------------

    def _bind(self, values: list[Any], room: Sequence[Any] | None) -> list[Any]:
        """The arrays of a call: on this GPU, row by row, none of them twice if it is written."""
        inputs = self.signature.inputs
        if len(values) != inputs:
            self.check_count(len(values))
        cells = self._cells
        if cells is None or not cells.write(values):
            cells = self._cells = self._make_cells(values)
            cells.write(values)
        for i, cell in cells.tensors.items():
            values[i] = cell
        own = {} if self._graph is None else self._graph.own
        for i, x in enumerate(self._no_room if room is None else room, inputs):
            if x is None:
                x = own[i] if i in own else self.arrays.empty(*self._fresh[i - inputs])
            values.append(x)
        addresses = [*map(self.arrays.address, values)]
        same = all(map(is_, values, [x() for x in self._checked]))
        if not same or addresses != self._addresses:
            self._check(values)
        return values

    def _check(self, values: list[Any]) -> None:
        """Check the arrays that are others than before, or elsewhere; copy what cannot be used."""
        checked, addresses, address = self._checked, self._addresses, self.arrays.address
        inputs, changed = self.signature.inputs, []
        for i, x in enumerate(values):
            if x is checked[i]() and address(x) == addresses[i]:
                continue
            changed.append(i)
            if not self._usable(x, i):
                if i < inputs:
                    self.adapt(values, i)
                else:
                    values[i] = self.arrays.empty(*self._fresh[i - inputs])
                x = values[i]
            checked[i], addresses[i] = ref(x), address(x)
        self._serves = False
        if self.signature.written:
            self._separate([i for i in changed if i < inputs], values)

    def _make_cells(self, values: list[Any]) -> Cells:
        hosts = {i: x for i, x in enumerate(values) if isinstance(x, np.ndarray)}
        for i in hosts:
            if i in self.signature.written:
                note_copy(self.copies, i, "it is in host memory")
        return Cells(self.gpu, hosts)

    def _separate(self, changed: Iterable[int], values: list[Any]) -> None:
        """Copy inputs whose memory is also a written one's; `changed` are new since the last call.

        All of them lie row by row, so that their first and last addresses tell.
        """
        if not changed:
            return
        written, addresses, nbytes = self.signature.written, self._addresses, self._nbytes
        if not set(written).isdisjoint(changed):
            spans = [(addresses[j], addresses[j] + nbytes[j], j) for j in written if nbytes[j]]
            self._written, changed = sorted(spans), range(self.signature.inputs)
        for i in changed:
            if nbytes[i] and self._is_written(i):
                self.separate(values, i)
                self._checked[i], addresses[i] = _nothing, self.arrays.address(values[i])

    def _is_written(self, i: int) -> bool:
        """Whether a written input begins in the memory of another one, or reaches into it."""
        spans, start = self._written, self._addresses[i]
        k = bisect_right(spans, (start, 0, 0))
        near = [s for s in spans[max(k - 2, 0) : k + 2] if s[2] != i]
        return any([a < start + self._nbytes[i] and start < end for a, end, _ in near])

    def _usable(self, x: Any, i: int) -> bool:
        shape, dtype = self._like(i)
        if not isinstance(x, self.arrays.kind) or x.shape != shape:
            return False
        writes = i in self.signature.written or i >= self.signature.inputs
        if self.arrays.dtype_of(x) != dtype or self.arrays.obstacle(x, writes):
            return False
        return self.arrays.address(x) % 16 == 0

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
                self._place([self._stand_in(i) for i in range(len(self._checked))])
                self._measures = self.gpu.measure(self.schedule, self._actions, self._drop_after)
                self._unplace()
                self._status.zero_()
        return self._measures

    def _stand_in(self, i: int) -> Any:
        """An array like that of a call, for timing."""
        found = self._checked[i]()
        if found is None or i >= self.signature.inputs or not self._usable(found, i):
            return self.arrays.zeros(*self._like(i))
        return self.arrays.copy(found) if i in self.signature.written else found

    def release(self) -> None:
        self._graph, self._seen = None, None

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


def _nothing() -> None:
    """No array."""


class _Bound:
    """A launch whose parameters are bound when the words are there."""

    def __init__(
        self, frame: Frame, bind: Callable[[np.ndarray, list[int]], Launch], places: list[int]
    ):
        self._frame, self._bind, self._places = frame, bind, places
        self._launch: Launch | None = None

    def __call__(self) -> None:
        if self._launch is None:
            self._launch = self._bind(self._frame.words, self._places)
        self._launch()


class _Sequence:
    """Launches, one after the other."""

    def __init__(self, launches: Sequence[Launch]):
        self._launches = launches

    def __call__(self) -> None:
        for launch in self._launches:
            launch()


class _Captured:
    """A captured graph.

    own    tensors of the graph's own, by position
    fixed  addresses of the others
    into   positions of inputs that are copied to the graph's own
    """

    def __init__(
        self,
        replay: Replay,
        own: dict[int, Any],
        fixed: dict[int, int],
        into: list[int],
        written: Sequence[int],
        inputs: int,
    ):
        self.own, self._fixed, self._into = own, fixed, into
        self._replay, self._pairs = replay, list(fixed.items())
        self._out = [i for i in own if i >= inputs or i in written]

    def serves(self, addresses: list[int]) -> bool:
        """Whether arrays that it reads and writes in place are where they were."""
        for i, a in self._pairs:
            if addresses[i] != a:
                return False
        return True

    def moved(self, addresses: list[int]) -> set[int]:
        """The positions of those that are not."""
        return {i for i, a in self._fixed.items() if addresses[i] != a}

    def replay(self, values: list[Any]) -> None:
        """Run it on the arrays of a call; results that are its own tensors there become copies."""
        own = self.own
        for i in self._into:
            own[i].copy_(values[i])
        self._replay()
        for i in self._out:
            if values[i] is own[i]:
                values[i] = own[i].clone()
            else:
                values[i].copy_(own[i])


def _last_uses(schedule: Schedule, placed: MemoryPlan) -> dict[int, list[int]]:
    """By step, the scratch storages that it uses last and that are in no arena."""
    found: dict[int, list[int]] = {}
    for storage, (_, last) in lifetimes(schedule).items():
        if storage not in placed.offsets:
            found.setdefault(last, []).append(storage)
    return found


def _uncaptured(step: ScheduleStep | None, e: Exception) -> Exception:
    if step is None:
        what, line = "the function", ""
    elif isinstance(step, LibraryStep):
        what, line = step.op.name, step.line
    else:
        origins = getattr(step, "origins", ())
        what, line = "a product", line_of(*origins[0]) if origins else ""
    return refusal_of(what, (str(e).splitlines() or [type(e).__name__])[0], line)
