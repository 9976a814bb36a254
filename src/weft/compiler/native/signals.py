"""Native code that looks for signals, so that Ctrl-C ends a call that takes long.

A call has words of its own, its watch. Between pieces of its work the thread that called asks
`weft_look` whether to go on; every `PERIOD` that takes Python's lock and lets Python handle its
signals, which only the main thread does. Once a handler has raised an exception, every look says
so, and all code on the way back to Python returns without doing the rest.
"""

from enum import IntEnum

from ..emit.code import Code, LLModule, LLValue
from ..emit.control import (
    HALF_WORD,
    POINTER,
    WORD,
    invoke,
    leave,
    leave_if,
    pointer,
    put,
    when,
    word,
)

# Nanoseconds between two looks for signals. Taking Python's lock from a thread that computes in
# Python takes up to 5 ms.
PERIOD = 20_000_000
# About how many nanoseconds of work go by between two looks at the clock.
WORK = 100_000


class WatchWords(IntEnum):
    """The words of a watch."""

    FINISHED = 0  # whether the call has done all of its work
    STOPPED = 1  # 1 + the task at which it ended, if a signal's handler raised an exception
    NEXT = 2  # when to look for signals again, in nanoseconds
    STATE = 3  # of the thread that gave Python's lock back; 0: it has the lock
    MAIN = 4  # where the number of the main thread is
    PASSED = 5  # written in place of FINISHED by all segments but the last
    SIZE = 6


def write_signals(module: LLModule, clock: int) -> None:
    """The functions `weft_begin` and `weft_look`.

    clock  the system's number of a clock that only goes forward
    """
    now = _write_now(module, clock)
    code = module.function("void", [POINTER], "weft_begin")
    (watch,) = code.parameters
    put(code.constant(WORD, 0), watch, WatchWords.STOPPED)
    put(invoke(code, now, "i64", []) + PERIOD, watch, WatchWords.NEXT)
    leave(code)
    _write_look(module, now)


def _write_now(module: LLModule, clock: int) -> str:
    """now(): nanoseconds of a clock that only goes forward."""
    code = module.function("i64", [])
    time = code.local(WORD, 2)
    invoke(code, "clock_gettime", "i32", [code.constant(HALF_WORD, clock), time])
    leave(code, word(time, 0) * 1_000_000_000 + word(time, 1))
    return code.name


def _write_look(module: LLModule, now: str) -> None:
    """weft_look(watch): whether the call has to end; without a watch it does not."""
    code = module.function("i64", [POINTER], "weft_look")
    (watch,) = code.parameters
    zero, one = code.constant(WORD, 0), code.constant(WORD, 1)
    leave_if(watch.cast("ptrtoint", "i64").equals(0), zero)
    leave_if(word(watch, WatchWords.STOPPED).compare("ne", 0), one)
    time = invoke(code, now, "i64", [])
    leave_if(time < word(watch, WatchWords.NEXT), zero)
    put(time + PERIOD, watch, WatchWords.NEXT)
    here = invoke(code, "pthread_self", "i64", [])
    leave_if(here.compare("ne", word(pointer(watch, WatchWords.MAIN), 0)), zero)
    released = word(watch, WatchWords.STATE).compare("ne", 0)
    state = pointer(watch, WatchWords.STATE)
    when(released, lambda: invoke(code, "PyEval_RestoreThread", "void", [state]))
    raised = invoke(code, "PyErr_CheckSignals", "i32", []).compare("ne", 0)
    when(released, lambda: invoke(code, "PyEval_SaveThread", "ptr", []))
    when(raised, lambda: put(one, watch, WatchWords.STOPPED))
    leave(code, raised.cast("zext", "i64"))


class Fuel:
    """Looking for signals in a loop: after so much work that it is worth it, not at each step.

    The nanoseconds that steps are thought to take are counted down in a variable of the function,
    which loops inside of each other share.
    """

    code: Code
    watch: LLValue

    def __init__(self, code: Code, watch: LLValue):
        self.code, self.watch = code, watch
        self._left = code.local(WORD)
        self._fill()

    def _fill(self) -> None:
        self.code.store(self.code.constant(WORD, WORK), self._left, 8)

    def spend(self, cost: float) -> None:
        """Write code that leaves the function if the call has to end."""
        code = self.code
        left = code.load(WORD, self._left, 8) - max(int(cost), 1)
        code.store(left, self._left, 8)

        def look() -> None:
            self._fill()
            self.leave_if_stopped(invoke(code, "weft_look", "i64", [self.watch]))

        when(left < 0, look, rarely=True)

    def leave_if_stopped(self, verdict: LLValue) -> None:
        """Return from the function, if a look has said that the call has to end."""
        when(verdict.compare("ne", 0), lambda: leave(self.code), rarely=True)
