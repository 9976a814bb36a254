"""Blocks without garbage collection."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """A block in which Python does not look for cyclic garbage, unless something asks for it."""
    collects = gc.isenabled()
    try:
        gc.disable()  # inside: a signal handler may raise right after it
        yield
    finally:
        if collects:
            gc.enable()
