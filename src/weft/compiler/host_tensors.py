"""Executables on the arrays of a device: NumPy's runtime on tensors of PyTorch in host memory."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any
from weakref import ref

import numpy as np

from ..backend.device import as_numpy
from ..core.record import record
from ..core.types import Raw
from .calling import note_copy, refuse_own_operations, signature_of
from .raw.arrays import RawArrays
from .target import Ending, Executable, Measure


def on_arrays(
    executable: Executable, arrays: RawArrays, on_host: Collection[int] = ()
) -> Executable:
    """The executable as a function of these arrays.

    on_host  positions of outputs that NumPy's arrays are wanted of, whatever the others are
    """
    if arrays.host_runtime:
        return HostTensors(executable, arrays, on_host)
    return HostOutputs(executable, on_host) if on_host else executable


class _Around:
    """An executable with another `run` around its own."""

    def __init__(self, executable: Executable):
        self._executable = executable
        self.schedule, self.plan = executable.schedule, executable.plan
        self.copies: dict[int, Any] = executable.copies
        self.written_last = executable.written_last

    @property
    def fresh(self) -> list[tuple[tuple[int, ...], np.dtype]]:
        """The shapes and dtypes of the outputs with new memory at each call."""
        return self._executable.fresh

    @property
    def fresh_bytes(self) -> int:
        """Their bytes."""
        return self._executable.fresh_bytes

    @property
    def from_disk(self) -> bool:
        """Whether its code came from the disk cache."""
        return self._executable.from_disk

    def release(self) -> None:
        """Free the memory that is kept for the next call."""
        self._executable.release()

    def facts(self) -> Iterator[tuple[str, str]]:
        """How it runs, by titles."""
        yield from self._executable.facts()

    def measures(self) -> Sequence[Measure] | None:
        """What each step takes; None: steps are not timed."""
        return self._executable.measures()


class HostOutputs(_Around):
    """An executable some of whose outputs are wanted as NumPy's arrays."""

    def __init__(self, executable: Executable, on_host: Collection[int]):
        super().__init__(executable)
        self._on_host = frozenset(on_host)

    def run(
        self,
        arrays: Sequence[Raw],
        room: Sequence[Raw] | None = None,
        ending: Ending | None = None,
    ) -> Any:
        """The outputs of these inputs, or what `ending` makes of them."""
        if ending is None:
            return self.outputs(self._executable.run(arrays, room))
        return self._executable.run(arrays, room, _OutputsEnding(self, ending))

    def outputs(self, made: list[Raw]) -> list[Raw]:
        """The outputs where they are wanted."""
        return [as_numpy(raw) if k in self._on_host else raw for k, raw in enumerate(made)]


class HostTensors(_Around):
    """An executable on views of other arrays; what it writes, it writes into their memory.

    Inputs may be NumPy's arrays as well: numbers, random words, state that is kept on the host.
    """

    def __init__(self, executable: Executable, arrays: RawArrays, on_host: Collection[int]):
        refuse_own_operations(executable.schedule, arrays.device)
        super().__init__(executable)
        self._arrays, self._on_host = arrays, frozenset(on_host)
        self._written = signature_of(self.schedule).written
        self._fresh = executable.fresh
        self._owned = _OwnedMemory(arrays)

    def release(self) -> None:
        """Free the memory that is kept for the next call."""
        self._executable.release()

    def facts(self) -> Iterator[tuple[str, str]]:
        """How it runs, by titles."""
        yield from super().facts()
        yield "arrays", f"the memory of tensors on {self._arrays.device!r}"

    def run(
        self,
        arrays: Sequence[Raw],
        room: Sequence[Raw] | None = None,
        ending: Ending | None = None,
    ) -> Any:
        """The outputs of these inputs, or what `ending` makes of them."""
        of = _CallViews(self._arrays, self._on_host, self._owned, {})
        views = of.take(arrays)
        self._prepare_writes(arrays, views, of)
        free = None if room is None else of.take_room(room, self._fresh)
        if ending is None:
            return of.outputs(self._executable.run(views, free))
        return self._executable.run(views, free, _OutputsEnding(of, ending))

    def _prepare_writes(
        self, arrays: Sequence[Raw], views: list[np.ndarray], of: "_CallViews"
    ) -> None:
        """Tell PyTorch of the inputs that are written; those that cannot be are copied."""
        kind = self._arrays.kind
        written = [i for i in self._written if isinstance(arrays[i], kind)]
        for i in written:
            why = self._arrays.obstacle(arrays[i], True)
            if why and views[i].flags.c_contiguous:  # else native code sees it by itself
                views[i] = views[i].copy()
                note_copy(self.copies, i, why)
        self._arrays.note_write([arrays[i] for i in written if id(views[i]) in of.known])


class _OwnedMemory:
    """The NumPy arrays that own the memory of results, as long as these live.

    Native code writes an output into memory that an array owns, never into a view.
    """

    def __init__(self, arrays: RawArrays):
        self._arrays = arrays
        self._owners: dict[int, tuple[ref, np.ndarray]] = {}  # by the identity of the result

    def result(self, array: np.ndarray) -> Raw:
        """A result in the memory of an array."""
        made = self._arrays.of_view(array)
        if array.base is None:
            key = id(made)
            self._owners[key] = ref(made, lambda _: self._owners.pop(key, None)), array
        return made

    def owner(self, raw: Raw) -> np.ndarray | None:
        """The array that owns the memory of a result of before; None for any other array."""
        found = self._owners.get(id(raw))
        if found is None or found[0]() is not raw:
            return None
        same = self._arrays.address(raw) == found[1].__array_interface__["data"][0]
        return found[1] if same else None


@record(frozen=False, slots=True)
class _CallViews:
    """The views of one call; by their identities, (the view, the array that it is of)."""

    arrays: RawArrays
    on_host: Collection[int]
    owned: _OwnedMemory
    known: dict[int, tuple[np.ndarray, Raw]]

    def take(self, raws: Sequence[Raw]) -> list[np.ndarray]:
        """The arrays as NumPy's."""
        view, kind, views = self.arrays.view, self.arrays.kind, []
        for raw in raws:
            if isinstance(raw, kind):
                found = view(raw)
                self.known[id(found)] = found, raw
                views.append(found)
            else:
                views.append(raw)
        return views

    def take_room(
        self, room: Sequence[Raw], fresh: Sequence[tuple[tuple[int, ...], np.dtype]]
    ) -> list[np.ndarray]:
        """Arrays for the outputs: those that own the given results' memory, else new ones."""
        found = []
        for raw, (shape, dtype) in zip(room, fresh, strict=True):
            array = None if raw is None else self.owned.owner(raw)
            if array is None:
                array = np.empty(shape, dtype)
            else:
                self.known[id(array)] = array, raw
            found.append(array)
        return found

    def outputs(self, made: list[np.ndarray]) -> list[Raw]:
        """The outputs: the arrays that were given, or new ones in the memory of NumPy's."""
        return [self._output(k, array) for k, array in enumerate(made)]

    def _output(self, position: int, array: np.ndarray) -> Raw:
        if id(array) not in self.known:  # a call may end twice, with the same outputs
            made = array if position in self.on_host else self.owned.result(array)
            self.known[id(array)] = array, made
        return self.known[id(array)][1]


@record(frozen=False, slots=True)
class _OutputsEnding:
    """The end of a call whose outputs are brought where they are wanted."""

    of: "_CallViews | HostOutputs"
    ending: Ending

    def finish(self, made: list[np.ndarray]) -> Any:
        return self.ending.finish(self.of.outputs(made))

    def stop(self, task: int) -> None:
        self.ending.stop(task)
