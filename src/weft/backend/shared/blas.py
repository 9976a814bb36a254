"""The threads of NumPy's and SciPy's OpenBLAS: reading their number, and pinning it to one.

OpenBLAS adds up in another order with another number of threads.
"""

import os
from collections.abc import Callable
from ctypes import CDLL
from functools import lru_cache
from glob import glob
from threading import Lock
from typing import Any

import numpy as np

from ...core.once import once

# How the names of each package's OpenBLAS end.
_SUFFIXES = {"numpy": "64_", "scipy": ""}
# Read by OpenBLAS when it is loaded: its idle threads spin for 2ⁿ clock ticks before they sleep,
# also right after the start; by default for a tenth of a second.
_LOOKOUT, _TICKS = "OPENBLAS_THREAD_TIMEOUT", "20"

_lock = Lock()
_shared, _pins, _before = 0, 0, 1


@once
def openblas(package: str) -> CDLL | None:
    """The OpenBLAS that comes with NumPy or SciPy, each with its own; None for another BLAS."""
    suffix = _SUFFIXES[package]
    folder = os.path.join(os.path.dirname(np.__file__), os.pardir, f"{package}.libs")
    for path in glob(os.path.join(folder, f"libscipy_openblas{suffix}-*")):
        library = _load(path)
        if hasattr(library, f"scipy_openblas_set_num_threads{suffix}"):
            return library
    return None


def _load(path: str) -> CDLL:
    """Load an OpenBLAS, with threads that soon sleep unless the user set the time.

    They would spin on the cores that compiled programs are about to use.
    """
    if _LOOKOUT in os.environ:
        return CDLL(path)
    os.environ[_LOOKOUT] = _TICKS
    try:
        return CDLL(path)
    finally:
        del os.environ[_LOOKOUT]


@lru_cache(maxsize=None)
def thread_count_functions(package: str) -> tuple[Callable[[], int], Callable[[int], Any]] | None:
    """Functions that get and set the number of threads of a package's OpenBLAS."""
    library, suffix = openblas(package), _SUFFIXES[package]
    if library is None:
        return None
    getter, setter = (f"scipy_openblas_{verb}_num_threads{suffix}" for verb in ("get", "set"))
    return getattr(library, getter), getattr(library, setter)


def available() -> int:
    """How many threads NumPy's BLAS has, before pinning.

    Inside `alone` the threads are in use: then it is 1. For a BLAS other than OpenBLAS it is the
    number of cores this process may use, at most OMP_NUM_THREADS.
    """
    found = thread_count_functions("numpy")
    if found is None:
        return 1 if _shared else _allowed_threads()
    return _before if _pins and not _shared else found[0]()


def _allowed_threads() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, max(int(asked), 1)) if asked.isdigit() else cores


class alone:
    """A block in which BLAS uses one thread per product, since our threads share the work."""

    def __enter__(self) -> None:
        _hold(shared=1)

    def __exit__(self, *failure: object) -> None:
        _hold(shared=-1)


def pin() -> None:
    """Make BLAS use one thread per product, until as many calls of `unpin`."""
    _hold(pins=1)


def unpin() -> None:
    """End a `pin()`."""
    _hold(pins=-1)


def _hold(shared: int = 0, pins: int = 0) -> None:
    """Count the requests for one thread: the first sets it, the last restores the old number."""
    global _shared, _pins, _before
    ask, tell = thread_count_functions("numpy") or (lambda: 1, lambda count: None)
    with _lock:
        if not (_shared or _pins):
            _before = ask()
            tell(1)
        _shared, _pins = _shared + shared, _pins + pins
        if not (_shared or _pins):
            tell(_before)


def _forget() -> None:
    """In a forked child: the parent's threads are gone."""
    global _lock, _shared
    _lock, _shared = Lock(), 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
