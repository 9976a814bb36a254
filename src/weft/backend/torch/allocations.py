"""Bytes of PyTorch's tensors by device, and being asked before an operation allocates some."""

from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Protocol
from weakref import ref

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Freed:
    """The bytes of tensors that were freed, without asking the allocator.

    Memory is freed at any moment, in any thread.
    """

    def __init__(self) -> None:
        self._known: dict[int, ref[Any]] = {}
        self._freed: deque[int] = deque()

    def watch(self, x: torch.Tensor) -> int:
        """Notice when a tensor's memory is freed; its bytes, or 0 if it is watched already."""
        storage = x.untyped_storage()
        key, nbytes = storage._cdata, storage.nbytes()
        if key in self._known:
            return 0
        known, freed = self._known, self._freed

        def forget(gone: Any) -> None:
            if known.get(key) is gone:
                del known[key]
            freed.append(nbytes)

        self._known[key] = ref(storage, forget)  # it lives as long as its memory
        return nbytes

    def take(self) -> int:
        """The bytes that were freed since the last call."""
        total = 0
        while self._freed:
            total += self._freed.popleft()
        return total


class Bytes(Protocol):
    """The bytes of one device."""

    @property
    def is_complete(self) -> bool:
        """Whether all memory counts by itself: other tensors, and what is allocated in kernels."""
        ...

    def read(self) -> tuple[int, int]:
        """Live now, and the most at once so far."""
        ...

    def begin_peak(self) -> None:
        """Let the most begin again at what is live now."""
        ...

    def add(self, x: torch.Tensor) -> None:
        """Take note of a tensor that was made, or was there before."""
        ...

    def expect(self, nbytes: int) -> None:
        """Take note that so many are about to be allocated."""
        ...

    def most(self) -> int:
        """At least what is live now; quicker than `read`."""
        ...


class CudaBytes:
    """What PyTorch's allocator of a GPU says, which takes tens of microseconds."""

    is_complete = True

    def __init__(self, device: torch.device):
        self._device = device
        self._freed = Freed()
        self._most = 0

    def read(self) -> tuple[int, int]:
        found = torch.cuda.memory_stats_as_nested_dict(self._device)["allocated_bytes"]["all"]
        self._freed.take()
        self._most = found["current"]
        return found["current"], found["peak"]

    def begin_peak(self) -> None:
        torch.cuda.reset_peak_memory_stats(self._device)

    def add(self, x: torch.Tensor) -> None:
        self._freed.watch(x)

    def expect(self, nbytes: int) -> None:
        self._most += nbytes

    def most(self) -> int:
        self._most -= self._freed.take()
        return self._most


class HostBytes:
    """Bytes of tensors in host memory, which PyTorch does not count: of those that were added.

    What a kernel allocates and frees itself is not known.
    """

    is_complete = False

    def __init__(self) -> None:
        self._freed = Freed()
        self._live = self._peak = 0

    def read(self) -> tuple[int, int]:
        return self.most(), self._peak

    def begin_peak(self) -> None:
        self._peak = self.most()

    def add(self, x: torch.Tensor) -> None:
        self._live += self._freed.watch(x)
        self._peak = max(self._peak, self.most())

    def expect(self, nbytes: int) -> None:
        """It counts when it is added."""

    def most(self) -> int:
        self._live -= self._freed.take()
        return self._live


def bytes_of(device: torch.device) -> Bytes:
    """The counter of a device's bytes."""
    return HostBytes() if device.type == "cpu" else CudaBytes(device)


def are_last(tensors: list[torch.Tensor]) -> bool:
    """Whether these tensors, which share their memory, are the last that hold it."""
    storage = tensors[0].untyped_storage()
    bases = {id(b): b for x in tensors if (b := x._base) is not None}
    hidden = [key for key in bases if all(id(x) != key for x in tensors)]
    # The storage is held by each tensor, by what a view is of, and by `storage` itself.
    return torch._C._storage_Use_Count(storage._cdata) == len(tensors) + len(hidden) + 1


class Observer(TorchDispatchMode):
    """A block whose operations are run by somebody else.

    run  called with an operation, its arguments and the device that it works on
    """

    def __init__(self, run: Callable[..., Any]):
        super().__init__()
        self._run_by = run

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: what PyTorch would put around each call for its compiler takes 5 µs."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        device = _device_of(args, kwargs) if allocates(func) else None
        if device is None:
            return func(*args, **kwargs)
        return self._run_by(func, args, kwargs, device)


def _device_of(args: tuple, kwargs: dict[str, Any]) -> torch.device | None:
    """The device that an operation allocates on."""
    given = kwargs.get("device")
    if given is not None:
        return torch.empty(0, device=given).device if _is_vague(given) else torch.device(given)
    for x in tensors_of(args):
        if x.device.type != "cpu":
            return x.device
    found = next(tensors_of(args), None)
    return None if found is None else found.device


def _is_vague(device: Any) -> bool:
    """Whether a GPU is meant without its number."""
    found = torch.device(device)
    return found.type != "cpu" and found.index is None


def tensors_of(values: Any) -> Iterator[torch.Tensor]:
    """The tensors among arguments and their lists."""
    for v in values:
        if isinstance(v, torch.Tensor):
            yield v
        elif isinstance(v, list | tuple):
            yield from tensors_of(v)


@lru_cache(maxsize=None)
def allocates(func: Any) -> bool:
    """Whether an operation has a result in memory of its own: no view, not in place."""
    return any(r.alias_info is None for r in func._schema.returns)


def signature(values: Any) -> Any:
    """What an operation's allocations depend on: shapes and dtypes in the place of tensors."""
    if isinstance(values, torch.Tensor):
        return values.shape, values.dtype
    if isinstance(values, list | tuple):
        return tuple([signature(v) for v in values])
    return values
