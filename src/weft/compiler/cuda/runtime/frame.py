"""The memory of a program on a GPU: where each buffer is, as addresses and as tensors."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....errors import BudgetExceeded
from ...ir.schedule import Schedule
from ...memory import MemoryPlan, call_bytes
from ..arrays import aligned_of
from ..gpu import Gpu


class Frame:
    """Where the buffers of a schedule are.

    Kernels take addresses from `words`, one for each place that a step names; library calls take
    tensors. Constants are there once, the arena until `free`; others are bound by `place`.
    """

    def __init__(self, schedule: Schedule, placed: MemoryPlan, gpu: Gpu, stop: int):
        self.schedule, self.gpu, self._stop = schedule, gpu, stop
        self._whole: dict[int, Any] = {}  # a tensor of each storage
        self._positions: dict[tuple[int, int], int] = {}  # by storage and offset in bytes
        self._of_storage: dict[int, list[tuple[int, int]]] = {}
        self.words, self._fixed = np.zeros(0, np.uint64), False
        arrays = gpu.arrays
        self._placed, self._arena = placed, None
        for i, x in schedule.constants.items():
            self._whole[i] = arrays.whole(np.ascontiguousarray(x))
        self.lay()

    # The arena

    def lay(self) -> None:
        """Allocate the arena, unless it is there."""
        if self._arena is not None:
            return
        self._arena = arena = _allocate(self.schedule, self._placed, self.gpu)
        for i, at in self._placed.offsets.items():
            b = self.schedule.buffers[i]
            part = arena[at : at + b.nbytes].view(self.gpu.arrays.raw_dtype(b.dtype))
            self.place(i, part.reshape(b.shape))

    def free(self) -> None:
        """Free the arena, until `lay`."""
        self._arena = None
        for i in self._placed.offsets:
            self.drop(i)

    # Addresses

    def position(self, buffer: int) -> int:
        """The position of a buffer's address among the words; before they are fixed."""
        b = self.schedule.buffers[buffer]
        storage = self.schedule.storage(buffer)
        offset = b.offset * b.dtype.itemsize
        key = storage, offset
        if key not in self._positions:
            self._positions[key] = len(self._positions) + 1  # the first is that of the stop cell
            self._of_storage.setdefault(storage, []).append((self._positions[key], offset))
        return self._positions[key]

    def fix(self) -> None:
        """Make the words, when all positions are known."""
        self.words = np.zeros(1 + len(self._positions), np.uint64)
        self.words[0], self._fixed = self._stop, True
        for storage in self._whole:
            self.place(storage, self._whole[storage])

    def place(self, storage: int, tensor: Any) -> None:
        """Bind the memory of a storage; outputs that take an input's memory are it, too."""
        self._whole[storage] = tensor
        if not self._fixed:
            return
        address = self.gpu.arrays.address(tensor)
        for position, offset in self._of_storage.get(storage, ()):
            self.words[position] = address + offset

    def aligned(self, buffers: Sequence[int]) -> int:
        """What the addresses of all of these are multiples of, in bytes."""
        return aligned_of(self.schedule, buffers)

    # Tensors

    def tensor(self, i: int) -> Any:
        """Buffer i as a tensor."""
        b = self.schedule.buffers[i]
        return self.walk(i, b.shape, b.strides)

    def walk(self, i: int, sizes: Sequence[int], strides: Sequence[int]) -> Any:
        """Buffer i from its first element, by strides in elements."""
        b, whole = self.schedule.buffers[i], self._whole[self.schedule.storage(i)]
        dtype = self.gpu.arrays.raw_dtype(b.dtype)
        if whole.dtype is not dtype:  # an output in an input's memory
            whole = whole.view(dtype)
        first = whole.storage_offset() + b.offset
        if min(strides, default=0) >= 0 or 0 in sizes:
            return whole.as_strided(sizes, [max(s, 0) for s in strides], first)
        turned = [a for a, s in enumerate(strides) if s < 0]  # PyTorch has no negative strides
        first += sum([(sizes[a] - 1) * strides[a] for a in turned])
        return whole.as_strided(sizes, list(map(abs, strides)), first).flip(turned)

    def drop(self, storage: int) -> None:
        """Forget a tensor that was bound, so that its memory may be used again."""
        self._whole.pop(storage, None)


def _allocate(schedule: Schedule, placed: MemoryPlan, gpu: Gpu) -> Any:
    """The arena."""
    with _explaining(schedule, placed, gpu.name):
        return gpu.arrays.empty((placed.size,), np.dtype(np.uint8))


class _explaining:
    """A block in which running out of memory says how much the program needs."""

    def __init__(self, schedule: Schedule, placed: MemoryPlan, name: str):
        self._needed: Callable[[], Any] = lambda: call_bytes(schedule, placed)
        self._name = name

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        import torch

        if not isinstance(error, torch.OutOfMemoryError):
            return
        need, mib = self._needed(), 1 << 20
        free, total = torch.cuda.mem_get_info(self._name)
        held = torch.cuda.memory_reserved(self._name) - torch.cuda.memory_allocated(self._name)
        fits = need.inputs + free + held
        raise BudgetExceeded(
            f"compile: {self._name!r} has {(free + held) / mib:.0f} MiB free of "
            f"{total / mib:.0f}, and a call needs {(need.peak - need.inputs) / mib:.0f} MiB beside "
            f"its inputs, {need.arena / mib:.0f} of them for values in between: compile with "
            f"checkpoint=CheckpointConfig('auto', memory_budget_mb={fits * 0.95 / mib:.0f}), or "
            "make the batch smaller"
        ) from None
