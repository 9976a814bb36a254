"""The thread pool of NumPy's kernels, which share their tiles.

NumPy computes without Python's lock, but its BLAS splits each product among its own threads: while
tiles are shared, BLAS is limited to one thread.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from contextvars import copy_context
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, TypeVar

from ...core.warned import note_caller
from . import blas

T = TypeVar("T")  # a piece of work
Worker = Callable[[], Callable[[T], None]]  # makes a thread's function of a piece

# More would contend for Python's lock, which each tile takes a few times.
LIMIT = 8
# The least multiplications for which a second thread pays.
ENOUGH = 1 << 24
# The cost of one pass over an element, in multiplications of a matrix product.
PASS = 16

_lock = Lock()
_queue, _helpers = SimpleQueue(), 0


def cores() -> int:
    """How many threads share work: as many as BLAS has, and at most eight."""
    return min(LIMIT, blas.available())


def parts(operations: int) -> int:
    """The number of pieces of a job: two for each thread, since some start late; 1 for a small job.

    With more, threads contend for Python's lock, which each needs between two calls of NumPy: a
    thread that finds it taken sleeps and has to be woken.
    """
    return 2 * cores() if operations >= ENOUGH else 1


def share(pieces: Sequence[T], worker: Worker[T], operations: int) -> None:
    """Run every piece once; each thread calls `worker()` for a function with scratch memory.

    A piece's result must not depend on the thread nor on the order of the pieces. With few
    `operations` in all, the calling thread runs them.
    """
    count = min(cores(), len(pieces)) if operations >= ENOUGH and len(pieces) > 1 else 1
    if count < 2:
        _do_all(pieces, worker, operations)
        return
    left, done = iter(pieces), SimpleQueue()
    with blas.alone():
        jobs = _offer(count - 1, left, worker, done)
        try:
            do = worker()
            for piece in left:
                do(piece)
        finally:
            # Jobs that no thread has begun are taken back; the others' threads are waited for.
            failures = [done.get() for job in jobs if not _take_back(job)]
    for failure in failures:
        if failure is not None:
            raise failure


def _offer(count: int, *work: Any) -> list[list[Any]]:
    """Put jobs into the queue; a thread that begins one empties it."""
    queue, offered = _jobs(count), []
    for _ in range(count):
        context = copy_context()
        context.run(note_caller)
        offered.append([(context, *work)])
        queue.put(offered[-1])
    return offered


def _take_back(job: list[Any]) -> bool:
    try:
        job.pop()
    except IndexError:
        return False
    return True


def _do_all(pieces: Sequence[T], worker: Worker[T], operations: int) -> None:
    do = worker()
    # A small job should not wake BLAS's threads either, which would spin afterwards.
    with blas.alone() if operations < ENOUGH else nullcontext():
        for piece in pieces:
            do(piece)


def _help(left: Iterator[T], worker: Worker[T]) -> BaseException | None:
    """Run pieces while there are any; the exception of the first one that fails."""
    do = None
    try:
        for piece in left:
            do = worker() if do is None else do
            do(piece)
    except BaseException as failure:
        for _ in left:  # the other threads should end, too
            pass
        return failure
    return None


def _serve(jobs: SimpleQueue[Any]) -> None:
    while True:
        _run(jobs.get())


def _run(job: list[Any]) -> None:
    """Run a job, unless it was taken back; nothing of it is kept alive when that is reported."""
    try:
        context, left, worker, done = job.pop()
    except IndexError:
        return
    failure = context.run(_help, left, worker)
    del context, left, worker
    done.put(failure)


def _jobs(helpers: int) -> SimpleQueue[Any]:
    """The queue on which at least `helpers` threads wait; futures take three times as long.

    No more threads are started than needed: those that ran last are the quickest to wake.
    """
    global _helpers
    with _lock:
        while _helpers < helpers:
            name = f"weft_{_helpers}"
            Thread(target=_serve, args=(_queue,), name=name, daemon=True).start()
            _helpers += 1
        return _queue


def _forget() -> None:
    """In a forked child: the parent's threads are gone."""
    global _queue, _helpers, _lock
    _queue, _helpers, _lock = SimpleQueue(), 0, Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
