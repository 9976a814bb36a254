"""What carries arrays between processes, one collective at a time."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from ..core.backends import BACKENDS
from ..core.communicator import Reduction


class Engine(Protocol):
    """A library that joins processes.

    Arrays are raw ones, of NumPy or PyTorch, which the engine does not write to; results are new
    arrays of the same kind. All ranks call the same methods in the same order, never two at once.
    """

    rank: int
    size: int

    def all_reduce(self, x: Any, kind: Reduction, out: Any = None) -> Any:
        """Elementwise over ranks, of the dtypes in `reductions.NATIVE`; in any order.

        out  a contiguous array that the result is written into; x itself, for instance
        """
        ...

    def all_gather(self, x: Any) -> Any:
        """The arrays of all ranks, of shape (size, *x.shape)."""
        ...

    def all_to_all(self, x: Any) -> Any:
        """Of x of shape (size, …), row i goes to rank i; row j of the result came from rank j."""
        ...

    def broadcast(self, x: Any, root: int) -> Any: ...
    def close(self, failed: bool = False) -> None:
        """Leave the group; no other method is called afterwards.

        failed  whether a collective has failed, so that others may never come to an end
        """
        ...


class GpuEngine(Engine, Protocol):
    """An engine that carries arrays on GPUs from there, in the order of their streams."""

    def capturing(self) -> bool:
        """Whether what this thread puts on its stream is captured into a graph."""
        ...

    def on_this_stream(self, action: Callable[[], Any]) -> Callable[[], Any]:
        """An action that another thread does after what is on this thread's stream now."""
        ...


def as_bytes(x: np.ndarray) -> np.ndarray:
    """The memory of a contiguous array."""
    return x.reshape(-1).view(np.uint8)


# Sums of these are sums of the numbers that they are made of, or have the same bits.
_SUMMED_AS = {"c8": "f4", "c16": "f8", "u4": "i4", "u8": "i8"}


def numbers(x: np.ndarray) -> np.ndarray:
    """The memory of a contiguous array as numbers that libraries know how to add."""
    flat = x.reshape(-1)
    known = _SUMMED_AS.get(x.dtype.str[1:])
    return flat if known is None else flat.view(known)


def _writable(x: Any) -> np.ndarray:
    """A contiguous array in host memory with the values of x: x itself, or a copy."""
    found = np.ascontiguousarray(BACKENDS[type(x)].to_numpy(x)).reshape(x.shape)
    return found if found.flags.writeable else found.copy()


class HostEngine(ABC):
    """An engine whose library carries contiguous NumPy arrays: others are converted here.

    What moves is carried as bytes, and what is added as `numbers`, so a library needs no names of
    dtypes. Nothing is carried for arrays without elements.
    """

    rank: int
    size: int

    def all_reduce(self, x: Any, kind: Reduction, out: Any = None) -> Any:
        xp = BACKENDS[type(x)]
        if out is None:
            y = np.array(xp.to_numpy(x), order="C").reshape(x.shape)
        else:
            if out is not x:
                xp.overwrite(out, x)
            y = _writable(out)
        if y.size:
            self._all_reduce(numbers(y), kind)
        if out is None:
            return _like(x, y)
        if not np.may_share_memory(y, xp.to_numpy(out)):
            xp.overwrite(out, _like(x, y))
        return out

    def all_gather(self, x: Any) -> Any:
        mine = _writable(x)
        every = np.empty((self.size, *mine.shape), mine.dtype)
        if every.size:
            self._all_gather(as_bytes(mine), as_bytes(every))
        return _like(x, every)

    def all_to_all(self, x: Any) -> Any:
        mine = _writable(x)
        came = np.empty(mine.shape, mine.dtype)
        if came.size:
            self._all_to_all(as_bytes(mine), as_bytes(came))
        return _like(x, came)

    def broadcast(self, x: Any, root: int) -> Any:
        y = np.array(BACKENDS[type(x)].to_numpy(x), order="C").reshape(x.shape)
        if y.size:
            self._broadcast(as_bytes(y), root)
        return _like(x, y)

    @abstractmethod
    def _all_reduce(self, x: np.ndarray, kind: Reduction) -> None:
        """Reduce in place."""

    @abstractmethod
    def _all_gather(self, x: np.ndarray, into: np.ndarray) -> None: ...
    @abstractmethod
    def _all_to_all(self, x: np.ndarray, into: np.ndarray) -> None: ...
    @abstractmethod
    def _broadcast(self, x: np.ndarray, root: int) -> None:
        """Overwrite x but on the rank `root`."""

    @abstractmethod
    def close(self, failed: bool = False) -> None: ...


def _like(x: Any, y: np.ndarray) -> Any:
    """An array of the kind of x, where x lies, with the memory of y where that can be."""
    xp = BACKENDS[type(x)]
    return xp.adopt(y, xp.device_of(x))
