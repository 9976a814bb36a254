"""The thread pool: Python threads parked in native code, which share the units of large kernels.

They wait for work without the GIL, some ten microseconds spinning and then asleep, and are stopped
when the interpreter exits. A forked child starts without any.
"""

import atexit
import ctypes
import os
from threading import Lock, Thread, main_thread

from ....backend.shared import blas
from ...native.driver import driver
from ...native.objects import PROVIDERS
from ...native.thread_pool import PoolWords
from ...native.words import words
from .stack import enough

_libc = ctypes.CDLL(None)
_pool = words(PoolWords.SIZE)
_threads: list[Thread] = []
_lock = Lock()
_width = 1  # a copy of the pool's WIDTH
_over = False


def _clear() -> None:
    """An empty pool, without a job."""
    _pool[:] = 0
    _pool[PoolWords.MAIN] = main_thread().ident
    _set_width(1)
    at = _pool.ctypes.data
    _libc.pthread_mutex_init(ctypes.c_void_p(at + 8 * PoolWords.MUTEX), None)
    _libc.pthread_cond_init(ctypes.c_void_p(at + 8 * PoolWords.CONDITION), None)


def _set_width(count: int) -> None:
    global _width
    _pool[PoolWords.WIDTH] = _width = count


def address() -> int:
    """The address of the pool's words; the same for the lifetime of the process."""
    return _pool.ctypes.data


def main() -> int:
    """The address of the main thread's id."""
    return address() + 8 * PoolWords.MAIN


def width() -> int:
    """How many threads share work now, the caller included."""
    return _width


def resize(count: int | None = None) -> None:
    """Set how many threads share work; None: as many as BLAS may use."""
    count = blas.available() if count is None else count
    if count == _width or _over:
        return
    if count < 1:
        raise ValueError(f"{count} threads, expected at least 1")
    with _lock:
        work = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(
            driver().addresses["weft_work"]
        )
        while len(_threads) < count - 1:
            number = len(_threads)
            worker = Thread(
                target=work, args=(address(), number), name=f"weft_native_{number}", daemon=True
            )
            with enough():
                worker.start()
            _threads.append(worker)
            if number < PoolWords.ASLEEP - PoolWords.THREADS:
                _pool[PoolWords.THREADS + number] = worker.native_id
        _set_width(count)


def stop_workers() -> None:
    """Stop all workers: the caller then does all work."""
    with _lock:
        _set_width(1)
        _pool[PoolWords.STOP] = 1
        if _threads:
            wake = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(driver().addresses["weft_wake"])
            wake(address())
        for worker in _threads:
            worker.join()
        _threads.clear()
        _pool[PoolWords.STOP] = 0


def _end() -> None:
    """Native code is unloaded with the interpreter: no thread may be in it then."""
    global _over
    _over = True
    stop_workers()


def _forget() -> None:
    """A forked child has none of its parent's threads, and none of their jobs."""
    global _lock
    _lock = Lock()
    _threads.clear()
    _clear()


_clear()
atexit.register(_end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
PROVIDERS.append(lambda symbol: address() if symbol == "weft_thread_pool" else None)
