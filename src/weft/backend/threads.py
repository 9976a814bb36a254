"""Threads that share the tiles of a kernel among them.

NumPy computes without Python's lock, but its BLAS shares one product of matrices among threads of
its own: while tiles are shared, it is told to leave that.
"""

import os
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from ctypes import CDLL
from functools import lru_cache
from glob import glob
from threading import Lock
from typing import Any

import numpy as np

# More would wait for Python's lock, which each tile takes a few times.
LIMIT = 8
# Multiplications from which on it pays to call a second thread.
ENOUGH = 1 << 24
# What passing over an element costs in multiplications, which a product of matrices does.
PASS = 16

_lock = Lock()
_pool: Any = None
_busy, _before = 0, 1


def cores() -> int:
    """How many threads share work: as many as BLAS has been given, and at most eight."""
    found = _blas()
    return 1 if found is None else min(LIMIT, found[0]())


def share(pieces: Sequence, worker: Callable[[], Callable], operations: int) -> None:
    """Do every piece once; each thread calls `worker()` for a function with memory of its own.

    What a piece does must not depend on who does it, nor on the order of the pieces. With few
    `operations` in all, the calling thread does them.
    """
    count = min(cores(), len(pieces)) if operations >= ENOUGH and len(pieces) > 1 else 1
    left = deque(pieces)

    def work():
        do = worker()
        while True:
            try:
                piece = left.popleft()
            except IndexError:
                return
            do(piece)

    if count < 2:
        work()
        return
    with _blas_alone():
        helpers = [_executor().submit(copy_context().run, work) for _ in range(count - 1)]
        try:
            work()
        finally:
            left.clear()  # empty already, unless a piece has failed
            for helper in helpers:
                helper.result()


@lru_cache(maxsize=None)
def _blas() -> tuple[Callable, Callable] | None:
    """How to ask and to tell NumPy's OpenBLAS its number of threads; None for another BLAS."""
    folder = os.path.join(os.path.dirname(np.__file__), os.pardir, "numpy.libs")
    for path in glob(os.path.join(folder, "libscipy_openblas64_*")):
        library = CDLL(path)
        names = [f"scipy_openblas_{verb}_num_threads64_" for verb in ("get", "set")]
        if all(hasattr(library, name) for name in names):
            return getattr(library, names[0]), getattr(library, names[1])
    return None


@contextmanager
def _blas_alone():
    """A block in which products of matrices use one thread each."""
    global _busy, _before
    ask, tell = _blas() or (lambda: 1, lambda count: None)
    with _lock:
        if not _busy:
            _before = ask()
            tell(1)
        _busy += 1
    try:
        yield
    finally:
        with _lock:
            _busy -= 1
            if not _busy:
                tell(_before)


def _executor():
    global _pool
    with _lock:
        if _pool is None:
            # Not above: it takes a while to load, and few programs get here.
            from concurrent.futures import ThreadPoolExecutor

            _pool = ThreadPoolExecutor(LIMIT - 1, thread_name_prefix="weft")
        return _pool


def _forget() -> None:
    """A forked child has none of its parent's threads."""
    global _pool, _lock, _busy
    _pool, _lock, _busy = None, Lock(), 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
