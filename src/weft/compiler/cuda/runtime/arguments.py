"""The tensors of a call: on their GPU, row by row, none of them twice if it is written."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...calling import Calling, note_copy
from ..gpu import Gpu
from .cells import Cells
from .places import make_places


class Arguments:
    """Binds the arrays of calls; looks only at those that are not as they were.

    addresses  where the arrays of the last call are, by position
    shifted    positions whose addresses have changed since a graph was found to do
    """

    def __init__(self, calling: Calling, gpu: Gpu):
        self._calling, self._gpu = calling, gpu
        self.signature, self.arrays = calling.signature, calling.arrays
        self._cells: Cells | None = None
        count, written = len(self.signature.buffers), self.signature.written
        self._makers = [self.arrays.maker(*kind) for kind in calling.fresh]
        self._no_room = [None] * len(self._makers)
        # What was checked last: the arrays are the caller's, and freed as he likes.
        self._places = make_places([*map(self.like, range(count))], self.arrays)
        self._moved = self._places.moved
        self._writes = [i in written or i >= self.signature.inputs for i in range(count)]
        self.addresses: list[int] = [0] * count
        self.shifted: set[int] = set()
        self._nbytes = [calling.schedule.buffers[i].nbytes for i in self.signature.buffers]
        # Where inputs are written: (address, end, position) of each, in order.
        self._written: list[tuple[int, int, int]] = []

    def bind(
        self, values: list[Any], room: Sequence[Any] | None, own: Mapping[int, Any]
    ) -> list[Any]:
        """The arrays of a call: its inputs, and those for results, which are in `room` or new.

        own  tensors of a captured graph, by position, which are as good for results
        """
        inputs = self.signature.inputs
        if len(values) != inputs:
            self._calling.check_count(len(values))
        cells = self._cells
        if cells is None or not cells.write(values):
            cells = self._cells = self._make_cells(values)
            cells.write(values)
        for i, cell in cells.tensors.items():
            values[i] = cell
        values += self._no_room if room is None else room
        for i, x in own.items():
            if i >= inputs and values[i] is None:
                values[i] = x
        moved = self._moved(values)
        if moved:
            self._check(values, moved, own)
        return values

    def _check(self, values: list[Any], moved: list[int], own: Mapping[int, Any]) -> None:
        """Check arrays that are not as they were; copy what cannot be used, make what is missing.

        Nothing is recorded of them before all is done: an exception may end it anywhere.
        """
        address, places = self.arrays.address, self._places
        inputs, changed, usable = self.signature.inputs, [], []
        for i in moved:
            x = values[i]
            if i >= inputs and (x is None or x is own.get(i)):  # nothing is wrong with our own
                if x is None:
                    values[i] = x = self._makers[i - inputs]()
                else:
                    usable.append(i)
                self._move(i, address(x))
                continue
            places.forget(i)
            if self._usable(x, i):
                usable.append(i)
            elif i < inputs:
                self._calling.adapt(values, i)
            else:
                values[i] = self._makers[i - inputs]()
            if i < inputs:
                changed.append(i)
            self._move(i, address(values[i]))
        apart = self._separate(changed, values) if self.signature.written else ()
        for i in usable:
            if i not in apart:
                places.record(i, values[i], self.addresses[i])

    def _move(self, i: int, at: int) -> None:
        """Note where an array is."""
        if self.addresses[i] != at:
            self._places.forget(i)
            self.shifted.add(i)
            self.addresses[i] = at

    def like(self, i: int) -> tuple[tuple[int, ...], np.dtype]:
        """The shape and the dtype of a bound array."""
        b = self._calling.schedule.buffers[self.signature.buffers[i]]
        return b.shape, b.dtype

    def _make_cells(self, values: list[Any]) -> Cells:
        hosts = {i: x for i, x in enumerate(values) if isinstance(x, np.ndarray)}
        for i in hosts:
            if i in self.signature.written:
                note_copy(self._calling.copies, i, "it is in host memory")
        return Cells(self._gpu, hosts)

    def _separate(self, changed: Iterable[int], values: list[Any]) -> set[int]:
        """Copy inputs whose memory is also a written one's; returns their positions.

        All of them lie row by row, so that their first and last addresses tell.

        changed  those that are new since the last call
        """
        apart: set[int] = set()
        if not changed:
            return apart
        written, addresses, nbytes = self.signature.written, self.addresses, self._nbytes
        if not set(written).isdisjoint(changed):
            spans = [(addresses[j], addresses[j] + nbytes[j], j) for j in written if nbytes[j]]
            self._written, changed = sorted(spans), range(self.signature.inputs)
        for i in changed:
            if nbytes[i] and self._is_written(i):
                self._places.forget(i)
                self._calling.separate(values, i)
                apart.add(i)
                self._move(i, self.arrays.address(values[i]))
        return apart

    def _is_written(self, i: int) -> bool:
        """Whether a written input begins in the memory of another one, or reaches into it."""
        spans, start = self._written, self.addresses[i]
        k = bisect_right(spans, (start, 0, 0))
        near = [s for s in spans[max(k - 2, 0) : k + 2] if s[2] != i]
        return any([a < start + self._nbytes[i] and start < end for a, end, _ in near])

    def _usable(self, x: Any, i: int) -> bool:
        shape, dtype = self.like(i)
        if not isinstance(x, self.arrays.kind) or x.shape != shape:
            return False
        if self.arrays.dtype_of(x) != dtype or self.arrays.obstacle(x, self._writes[i]):
            return False
        return self.arrays.address(x) % 16 == 0

    def stand_in(self, i: int) -> Any:
        """An array like that of a call, for timing."""
        found = self._places.held(i)
        if found is None or i >= self.signature.inputs or not self._usable(found, i):
            return self.arrays.zeros(*self.like(i))
        return self.arrays.copy(found) if i in self.signature.written else found
