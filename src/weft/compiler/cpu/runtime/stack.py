"""The stack of the calling thread: native code keeps blocks and lines of arrays there.

Overflowing it would crash the process, so its size is checked once per thread.
"""

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from .... import errors

# Bytes: a routine takes half a megabyte at most, a product that it calls as much, and there are
# the callers' frames.
NEEDED = 2 << 20
_known = threading.local()
_libc = ctypes.CDLL(None)
_ATTRIBUTES = 128  # bytes, with room to spare


def require() -> None:
    """Raise for a thread whose stack is too small."""
    if getattr(_known, "enough", False):
        return
    size = _size()
    if size is not None and size < NEEDED:
        raise errors.StackTooSmall(
            f"compiled program: this thread has a stack of {size >> 10} kB, and native code needs "
            f"{NEEDED >> 10}; call threading.stack_size({NEEDED}), or with more, before the "
            "thread is started"
        )
    _known.enough = True


def _size() -> int | None:
    """The size in bytes of this thread's stack; None where the system does not say."""
    if not hasattr(_libc, "pthread_getattr_np"):
        return None
    held = ctypes.create_string_buffer(_ATTRIBUTES)
    start, size = ctypes.c_void_p(), ctypes.c_size_t()
    if _libc.pthread_getattr_np(ctypes.c_void_p(threading.get_ident()), held):
        return None
    _libc.pthread_attr_getstack(held, ctypes.byref(start), ctypes.byref(size))
    _libc.pthread_attr_destroy(held)
    return size.value


@contextmanager
def enough() -> Iterator[None]:
    """Threads that are started in this block have enough stack, whatever the default."""
    before = threading.stack_size()
    if not 0 < before < NEEDED:
        yield
        return
    threading.stack_size(NEEDED)
    try:
        yield
    finally:
        threading.stack_size(before)
