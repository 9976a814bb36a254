"""Blocks without garbage collection."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

_LOCK = RLock()
_blocks: set[object] = set()  # those that are running, in all threads
_collects = False  # whether Python did before the first of them


@contextmanager
def no_collection() -> Iterator[None]:
    """A block in which Python does not look for cyclic garbage, unless something asks for it."""
    global _collects
    own = object()
    try:  # around all of it: a signal handler may raise anywhere
        with _LOCK:
            if not _blocks:
                _collects = gc.isenabled()
            _blocks.add(own)
            gc.disable()
        yield
    finally:
        with _LOCK:
            _blocks.discard(own)
            if not _blocks and _collects:
                gc.enable()
