"""Arrays in a temporary file: written when they are put there, mapped when they are read.

The file has no name, so that nothing is left of it when the process ends. Its ranges are reused
when the arrays in them have died: its size is bounded by the most that was in it at once.
"""

import os
from bisect import insort
from collections import deque
from ctypes import c_char
from mmap import ACCESS_READ, PAGESIZE, mmap
from tempfile import TemporaryFile
from threading import Lock
from typing import Any
from weakref import WeakSet, finalize

import numpy as np

from ... import errors
from ...core.backends import BACKENDS

_GROWTH = 16 << 20  # bytes by which a file grows at least
_ALIGNMENT = 64
# A view whose elements are spread over more than this many times their bytes is not moved.
_SPREAD = 4


class _File:
    """A file and its free ranges.

    Ranges are freed by the garbage collector, at any moment and in any thread: they are noted, and
    become free when the next one is taken.
    """

    def __init__(self, folder: Any):
        try:
            self._file = TemporaryFile(dir=folder, prefix="weft-", buffering=0)
        except OSError as e:
            raise errors.OffloadError(
                f"save_on_disk: no file can be made in {folder or 'the temporary folder'} "
                f"({e.strerror}); give folder= a directory that exists and can be written to"
            ) from e
        finalize(self, self._file.close)
        self._free: list[tuple[int, int]] = []  # (start, end), by start, none touching
        self.size = 0
        self.map: Any = None  # the whole file, read only; those before it live with their arrays
        self.freed: deque[tuple[int, int]] = deque()

    def write(self, address: int, nbytes: int) -> tuple[int, int]:
        """Put memory into the smallest free range that it fits in; (start, end) of that."""
        need = -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        while self.freed:
            self._give(*self.freed.popleft())
        try:
            if not any(end - start >= need for start, end in self._free):
                self._grow(need)
            size, start = min(
                (end - start, start) for start, end in self._free if end - start >= need
            )
            self._copy(address, nbytes, start)
        except OSError as error:
            raise errors.OffloadError(
                f"{nbytes:,} bytes could not be moved out to a file of {self.size:,}: {error}; "
                "give wf.save_on_disk a folder= with more space"
            ) from error
        self._free.remove((start, start + size))
        if size > need:
            insort(self._free, (start + need, start + size))
        return start, start + need

    def _copy(self, address: int, nbytes: int, start: int) -> None:
        memory = memoryview((c_char * nbytes).from_address(address)).cast("B")
        done = 0
        while done < nbytes:
            done += os.pwrite(self._file.fileno(), memory[done:], start + done)

    def _grow(self, need: int) -> None:
        more = max(need, _GROWTH, self.size // 2)
        more = -(-more // PAGESIZE) * PAGESIZE
        os.ftruncate(self._file.fileno(), self.size + more)  # takes no space until it is written
        self.map = mmap(self._file.fileno(), self.size + more, access=ACCESS_READ)
        self._give(self.size, self.size + more)
        self.size += more

    def _give(self, start: int, end: int) -> None:
        """Make a range free, in one with its neighbours."""
        near = [r for r in self._free if r[1] == start or r[0] == end]
        for r in near:
            self._free.remove(r)
            start, end = min(start, r[0]), max(end, r[1])
        insort(self._free, (start, end))


class _Range:
    """A range of a file, freed when nobody holds it."""

    __slots__ = ("__weakref__", "file", "place")

    def __init__(self, file: _File, place: tuple[int, int]):
        self.file, self.place = file, place

    def __del__(self) -> None:
        self.file.freed.append(self.place)


class Stored:
    """An array in a file.

    Its strides are those of the original, so that kernels give the same bits.
    """

    __slots__ = ("_device", "_dtype", "_offset", "_range", "_shape", "_strides", "_xp")

    def __init__(self, range_: _Range, offset: int, array: np.ndarray, xp: Any, device: str):
        self._range, self._offset, self._xp, self._device = range_, offset, xp, device
        self._dtype, self._shape, self._strides = array.dtype, array.shape, array.strides

    def load(self) -> Any:
        """The array: read-only pages of the file, or a copy on another backend."""
        range_ = self._range
        start = range_.place[0] + self._offset
        found: Any = np.ndarray(self._shape, self._dtype, range_.file.map, start, self._strides)
        if self._xp.array_type is not np.ndarray:
            return self._xp.from_any(found, self._device)
        # Views of it hold this array, hence the range.
        finalize(found, _let_go, range_).atexit = False
        return found


def _let_go(_: _Range) -> None:
    pass


class Disk:
    """A temporary file for the arrays of one block, made when the first one comes.

    folder  where it is; None: the system's folder for temporary files
    """

    def __init__(self, folder: Any = None):
        self._folder = folder
        self._file: _File | None = None
        self._lock = Lock()
        _disks.add(self)

    def store(self, raws: list[Any]) -> list[Stored] | None:
        """Put arrays that share their memory into one range; None if they are to stay."""
        xp = BACKENDS[raws[0].__class__]
        device = xp.device_of(raws[0])
        arrays = [np.asarray(xp.to_numpy(raw)) for raw in raws]
        bounds = [_bounds(a) for a in arrays]
        low, high = min(b[0] for b in bounds), max(b[1] for b in bounds)
        if high - low > _SPREAD * max(a.nbytes for a in arrays):
            return None
        with self._lock:
            if self._file is None:
                self._file = _File(self._folder)
            range_ = _Range(self._file, self._file.write(low, high - low))
        return [
            Stored(range_, a.__array_interface__["data"][0] - low, a, xp, device) for a in arrays
        ]

    def settle(self) -> None:
        """Nothing is under way: `store` writes at once."""


def _bounds(a: np.ndarray) -> tuple[int, int]:
    """The addresses where an array's elements begin and end."""
    low = high = a.__array_interface__["data"][0]
    for n, stride in zip(a.shape, a.strides, strict=True):
        low, high = (low + stride * (n - 1), high) if stride < 0 else (low, high + stride * (n - 1))
    return low, high + a.itemsize


# After a fork both processes read the files from before, and neither writes to them.
_disks: WeakSet[Disk] = WeakSet()
_held: list[Disk] = []


def _before_fork() -> None:
    _held.extend(_disks)
    for disk in _held:
        disk._lock.acquire()


def _after_fork() -> None:
    for disk in _held:
        disk._file = None
        disk._lock.release()
    _held.clear()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
