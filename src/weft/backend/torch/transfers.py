"""Tensors in host memory: copied out, and saved ones back, while the GPU computes."""

from collections import deque
from collections.abc import Callable
from typing import Any
from weakref import ref

import numpy as np
import torch

# How many tensors are kept on the GPU until their copies are known to be complete, are copied back
# before they are wanted, and are kept after that: a result is wanted by its own node soon after
# the one that read it.
_PENDING, _AHEAD, _RECENT = 4, 2, 2


class PinnedMemory:
    """Pinned host memory that is used again: to allocate it takes longer than to copy to it.

    Pieces are given back with the event after which they may be overwritten. That can happen at
    any moment, in any thread.
    """

    def __init__(self) -> None:
        self._free: dict[int, deque[tuple[torch.Tensor, Any]]] = {}  # by bytes

    def take(self, nbytes: int) -> tuple[torch.Tensor, Any]:
        """A piece of memory, and the event to wait for before it is written to; None: none."""
        try:
            return self._free[nbytes].pop()
        except (KeyError, IndexError):
            return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True), None

    def give(self, piece: torch.Tensor, event: Any) -> None:
        self._free.setdefault(piece.nbytes, deque()).append((piece, event))


PINNED = PinnedMemory()


def begin_read(x: torch.Tensor) -> Callable[[], np.ndarray]:
    """Begin to copy a contiguous tensor to the host; the function waits for that copy only.

    Later writes into x do not matter. The function is called once at most.
    """
    if not x.is_cuda:
        there = x.numpy().copy()
        return lambda: there
    stream = torch.cuda.current_stream(x.device)
    piece, event = PINNED.take(x.nbytes)
    if event is not None:
        stream.wait_event(event)
    host = piece.view(x.dtype).view(x.shape)
    with torch.cuda.stream(stream):
        host.copy_(x, non_blocking=True)
        copied = stream.record_event()

    def read() -> np.ndarray:
        copied.synchronize()
        values = host.numpy().copy()
        PINNED.give(piece, copied)
        return values

    return read


class Streams:
    """The two streams of a device on which copies are made, one for each direction.

    An event is complete when the copy is. Whoever computes waits for events on its own stream;
    the host waits for none.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._out, self._back = torch.cuda.Stream(device), torch.cuda.Stream(device)

    def copy_out(self, x: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """A copy in pinned memory, and its event; x must live until somebody has waited for it."""
        self._out.wait_stream(torch.cuda.current_stream(self._device))
        piece, event = PINNED.take(x.nbytes)
        strides = torch.empty_like(x, device="meta").stride()
        host = torch.as_strided(piece.view(x.dtype), x.shape, strides)
        with torch.cuda.stream(self._out):
            if event is not None:
                self._out.wait_event(event)
            host.copy_(x, non_blocking=True)
            return host, self._out.record_event()

    def give_back(self, host: torch.Tensor, event: Any) -> None:
        """Let the memory of a copy be used again after an event."""
        PINNED.give(torch.empty(0, dtype=torch.uint8).set_(host.untyped_storage()), event)

    def copy_back(self, host: torch.Tensor, written: Any) -> tuple[torch.Tensor, Any]:
        """A copy on the device of what `copy_out` made, and its event."""
        with torch.cuda.stream(self._back):
            self._back.wait_event(written)
            x = torch.empty_like(host, device=self._device)
            x.copy_(host, non_blocking=True)
            return x, self._back.record_event()

    def wait(self, event: Any, x: torch.Tensor) -> None:
        """Let what is computed from now on wait for an event; it may use x, and free it."""
        stream = torch.cuda.current_stream(self._device)
        stream.wait_event(event)
        x.record_stream(stream)


class HostCopy:
    """A tensor in host memory.

    before  the one that was saved before this one, weakly: a backward pass wants it next
    ahead   its copy on the device with that copy's event, if it was made before it was wanted
    last    the event after which nothing reads or writes the host's memory
    """

    __slots__ = ("__weakref__", "ahead", "before", "host", "last", "transfers", "written")

    def __init__(self, transfers: "DeviceTransfers", host: torch.Tensor, written: Any, before: Any):
        self.transfers, self.host, self.written, self.before = transfers, host, written, before
        self.ahead: tuple[torch.Tensor, Any] | None = None
        self.last = written

    def __del__(self) -> None:
        self.transfers.streams.give_back(self.host, self.last)

    def fetch(self) -> None:
        """Begin to copy it back, if that has not begun."""
        if self.ahead is None:
            x, self.last = self.transfers.streams.copy_back(self.host, self.written)
            self.ahead = x, self.last

    def load(self) -> torch.Tensor:
        """The tensor on its device; those that a backward pass wants next are on their way."""
        self.transfers.settle(0)
        for one, x in self.transfers.recent:
            if one() is self:
                return x
        self.fetch()
        following = self.before()
        for _ in range(_AHEAD):
            if following is None:
                break
            following.fetch()
            following = following.before()
        assert self.ahead is not None
        (x, event), self.ahead = self.ahead, None
        self.transfers.streams.wait(event, x)
        self.transfers.recent.append((ref(self), x))
        return x


def _nothing() -> None:
    return None


class DeviceTransfers:
    """The copies of one device's tensors, in the order in which they were saved."""

    def __init__(self, streams: Any):
        self.streams = streams
        self._last: Any = _nothing
        self._pending: deque[tuple[Any, torch.Tensor]] = deque()
        self.recent: deque[tuple[Any, torch.Tensor]] = deque(maxlen=_RECENT)

    def store(self, x: torch.Tensor) -> HostCopy:
        """Begin to copy a tensor out."""
        host, written = self.streams.copy_out(x)
        self._pending.append((written, x))
        self.settle(_PENDING)
        made = HostCopy(self, host, written, self._last)
        self._last = ref(made)
        return made

    def settle(self, most: int) -> None:
        """Let go of tensors, but for the `most` last: their memory is free once it is copied.

        Computing waits for those copies, on its stream. That bounds what is held.
        """
        while len(self._pending) > most:
            self.streams.wait(*self._pending.popleft())


class Transfers:
    """The copies of one block, by device; `streams` makes a device's streams."""

    def __init__(self, streams: Any = Streams):
        self._streams = streams
        self._devices: dict[torch.device, DeviceTransfers] = {}

    def store(self, raws: list[torch.Tensor]) -> list[HostCopy] | None:
        """Begin to copy tensors out; None if one repeats elements: it has little memory."""
        if any(n > 1 and not s for x in raws for n, s in zip(x.shape, x.stride(), strict=True)):
            return None
        device = raws[0].device
        if device not in self._devices:
            self._devices[device] = DeviceTransfers(self._streams(device))
        return [self._devices[device].store(x) for x in raws]

    def settle(self) -> None:
        """Let go of all tensors whose copies were begun: what computes next waits for those."""
        for transfers in self._devices.values():
            transfers.settle(0)
