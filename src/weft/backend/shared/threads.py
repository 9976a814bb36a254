"""Threads that share the tiles of a kernel among them.

NumPy computes without Python's lock, but its BLAS shares one product of matrices among threads of
its own: while tiles are shared, it is told to leave that.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from contextvars import Context, copy_context
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, TypeVar

from ...core.warned import note_caller
from . import blas

T = TypeVar("T")  # a piece of work
Worker = Callable[[], Callable[[T], None]]  # makes what does pieces, for one thread

# More would wait for Python's lock, which each tile takes a few times.
LIMIT = 8
# Multiplications from which on it pays to call a second thread.
ENOUGH = 1 << 24
# What passing over an element costs in multiplications, which a product of matrices does.
PASS = 16

_lock = Lock()
_queue, _helpers = SimpleQueue(), 0


def cores() -> int:
    """How many threads share work: as many as BLAS has been given, and at most eight."""
    return min(LIMIT, blas.available())


def parts(operations: int) -> int:
    """In how many pieces to cut work: two for each thread, since some come late; 1 if it is little.

    More would be in each other's way: between two calls of NumPy's a thread needs Python's lock,
    and waits for it as long as it takes to be woken up, if another one has it.
    """
    return 2 * cores() if operations >= ENOUGH else 1


def share(pieces: Sequence[T], worker: Worker[T], operations: int) -> None:
    """Do every piece once; each thread calls `worker()` for a function with memory of its own.

    What a piece does must not depend on who does it, nor on the order of the pieces. With few
    `operations` in all, the calling thread does them.
    """
    count = min(cores(), len(pieces)) if operations >= ENOUGH and len(pieces) > 1 else 1
    if count < 2:
        _do_all(pieces, worker, operations)
        return
    left, done, mine = iter(pieces), SimpleQueue(), 0
    with blas.alone():
        jobs = _jobs(count - 1)
        for _ in range(count - 1):
            context = copy_context()
            context.run(note_caller)
            jobs.put((context, left, worker, done))
        try:
            do = worker()
            for piece in left:
                mine += 1
                do(piece)
        finally:
            mine += len(list(left))  # none, unless a piece has failed
            # Who comes when all is done is not waited for: the others' pieces are counted.
            failures = [done.get() for _ in range(len(pieces) - mine)]
    for failure in failures:
        if failure is not None:
            raise failure


def _do_all(pieces: Sequence[T], worker: Worker[T], operations: int) -> None:
    do = worker()
    # Few operations are no work for BLAS' threads either, which would look out for more of it.
    with blas.alone() if operations < ENOUGH else nullcontext():
        for piece in pieces:
            do(piece)


def _help(left: Iterator[T], worker: Worker[T], done: SimpleQueue[BaseException | None]) -> None:
    """Do pieces as long as there are any; for each say None, or the exception it has raised."""
    do = None
    for piece in left:
        try:
            do = worker() if do is None else do
            do(piece)
        except BaseException as failure:
            done.put(failure)
        else:
            done.put(None)


def _serve(jobs: SimpleQueue[Any]) -> None:
    while True:
        _run(*jobs.get())


def _run(context: Context, *job: Any) -> None:
    """One job, of which nothing is held afterwards."""
    context.run(_help, *job)


def _jobs(helpers: int) -> SimpleQueue[Any]:
    """Where so many helping threads wait for work; futures take three times as long over it.

    There are no more of them than are needed: those that worked last are the quickest to wake.
    """
    global _helpers
    with _lock:
        while _helpers < helpers:
            name = f"weft_{_helpers}"
            Thread(target=_serve, args=(_queue,), name=name, daemon=True).start()
            _helpers += 1
        return _queue


def _forget() -> None:
    """A forked child has none of its parent's threads."""
    global _queue, _helpers, _lock
    _queue, _helpers, _lock = SimpleQueue(), 0, Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
