"""A few threads that share pieces of work among them."""

import os
from collections import deque
from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any

# More would wait for Python's interpreter lock, which each piece takes a few times.
LIMIT = 4

_lock = Lock()
_pool: Any = None


def threads() -> int:
    """How many threads share work: the cores this process has, but at most four.

    The environment's OMP_NUM_THREADS, which NumPy's and PyTorch's kernels follow, is another
    bound.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(LIMIT, cores, max(int(asked), 1) if asked.isdigit() else LIMIT)


def share(pieces: Iterable, worker: Callable[[], Callable], count: int) -> None:
    """Do every piece once, by `count` threads; each calls `worker()` for a function of its own."""
    left = deque(pieces)

    def work():
        do = worker()
        while True:
            try:
                piece = left.popleft()
            except IndexError:
                return
            do(piece)

    helpers = [_executor().submit(work) for _ in range(count - 1)]
    try:
        work()
    finally:
        for helper in helpers:
            helper.result()


def _executor():
    global _pool
    with _lock:
        if _pool is None:
            # Not above: it takes a while to load, and few programs get here.
            from concurrent.futures import ThreadPoolExecutor

            _pool = ThreadPoolExecutor(LIMIT - 1, thread_name_prefix="weft-optim")
        return _pool


def _forget() -> None:
    """A forked child has none of its parent's threads."""
    global _pool, _lock
    _pool, _lock = None, Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
