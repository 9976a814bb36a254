"""The tensors of a call: on their GPU, row by row, none of them twice if it is written."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import is_
from typing import Any
from weakref import ref

import numpy as np

from ...calling import Calling, note_copy
from ..gpu import Gpu
from .cells import Cells


class Arguments:
    """Binds the arrays of calls; looks only at those that are others than before, or elsewhere.

    addresses  where the arrays of the last call are, by position
    serves     whether a graph was found to do at these addresses
    """

    def __init__(self, calling: Calling, gpu: Gpu):
        self._calling, self._gpu = calling, gpu
        self.signature, self.arrays = calling.signature, calling.arrays
        self._cells: Cells | None = None
        self._fresh = calling.fresh
        self._no_room = [None] * len(self._fresh)
        # What was checked last: the arrays are the caller's, and freed as he likes.
        self._checked: list[Callable[[], Any]] = [_nothing] * len(self.signature.buffers)
        self.addresses: list[int] = [0] * len(self.signature.buffers)
        self._nbytes = [calling.schedule.buffers[i].nbytes for i in self.signature.buffers]
        self.serves = False
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
        for i, x in enumerate(self._no_room if room is None else room, inputs):
            if x is None:
                x = own[i] if i in own else self.arrays.empty(*self._fresh[i - inputs])
            values.append(x)
        addresses = [*map(self.arrays.address, values)]
        same = all(map(is_, values, [x() for x in self._checked]))
        if not same or addresses != self.addresses:
            self._check(values)
        return values

    def _check(self, values: list[Any]) -> None:
        """Check the arrays that are others than before, or elsewhere; copy what cannot be used."""
        checked, addresses, address = self._checked, self.addresses, self.arrays.address
        inputs, changed = self.signature.inputs, []
        for i, x in enumerate(values):
            if x is checked[i]() and address(x) == addresses[i]:
                continue
            changed.append(i)
            if not self._usable(x, i):
                if i < inputs:
                    self._calling.adapt(values, i)
                else:
                    values[i] = self.arrays.empty(*self._fresh[i - inputs])
                x = values[i]
            checked[i], addresses[i] = ref(x), address(x)
        self.serves = False
        if self.signature.written:
            self._separate([i for i in changed if i < inputs], values)

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

    def _separate(self, changed: Iterable[int], values: list[Any]) -> None:
        """Copy inputs whose memory is also a written one's; `changed` are new since the last call.

        All of them lie row by row, so that their first and last addresses tell.
        """
        if not changed:
            return
        written, addresses, nbytes = self.signature.written, self.addresses, self._nbytes
        if not set(written).isdisjoint(changed):
            spans = [(addresses[j], addresses[j] + nbytes[j], j) for j in written if nbytes[j]]
            self._written, changed = sorted(spans), range(self.signature.inputs)
        for i in changed:
            if nbytes[i] and self._is_written(i):
                self._calling.separate(values, i)
                self._checked[i], addresses[i] = _nothing, self.arrays.address(values[i])

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
        writes = i in self.signature.written or i >= self.signature.inputs
        if self.arrays.dtype_of(x) != dtype or self.arrays.obstacle(x, writes):
            return False
        return self.arrays.address(x) % 16 == 0

    def stand_in(self, i: int) -> Any:
        """An array like that of a call, for timing."""
        found = self._checked[i]()
        if found is None or i >= self.signature.inputs or not self._usable(found, i):
            return self.arrays.zeros(*self.like(i))
        return self.arrays.copy(found) if i in self.signature.written else found


def _nothing() -> None:
    """No array."""
