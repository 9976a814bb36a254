"""Calls of LLVM that no signal handler interrupts.

Python runs signal handlers in the main thread, between any two instructions. If one raises an
exception inside of llvmlite, memory of LLVM's may be freed twice, its lock may stay locked, and in
a destructor the exception is lost. So the main thread leaves these calls to another thread and
waits for it: Ctrl-C ends the waiting, and what the other thread computes is dropped there.
"""

import atexit
import os
from _thread import LockType, allocate_lock, start_new_thread
from collections.abc import Callable
from functools import wraps
from threading import get_ident, main_thread
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_running: set[LockType] = set()  # a lock for each thread, until its call is done


def shielded(function: Callable[P, R]) -> Callable[P, R]:
    """A function whose calls run to their end, whatever signals come."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if get_ident() != main_thread().ident:
            return function(*args, **kwargs)
        result: list[R] = []
        failure: list[BaseException] = []
        done = allocate_lock()

        def run() -> None:
            _running.add(done)
            try:
                result.append(function(*args, **kwargs))
            except BaseException as error:
                failure.append(error)
            finally:
                _running.discard(done)
                done.release()

        # Not a `Thread`: a signal handler that raises while one starts may block it for ever.
        done.acquire()
        start_new_thread(run, ())
        done.acquire()
        if failure:
            raise failure.pop()
        return result.pop()

    return call


def _finish() -> None:
    """Wait for the calls whose callers were interrupted."""
    for lock in tuple(_running):
        lock.acquire()
        lock.release()


# LLVM is not to run while the process ends, nor to be locked by a thread that a child lacks.
atexit.register(_finish)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_finish)
