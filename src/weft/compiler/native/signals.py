"""Native code that polls for signals, so that Ctrl-C ends a long call.

Each call has words of its own, its watch. Between pieces of work the calling thread asks
`weft_look` whether to continue; every `PERIOD` that takes the GIL and lets Python run its signal
handlers, which only the main thread does. Once a handler has raised an exception, every look says
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

# Nanoseconds between two polls. Taking the GIL from a thread that runs Python
# takes up to 5 ms.
PERIOD = 20_000_000
# Approximate nanoseconds of work between two reads of the clock.
WORK = 100_000


class WatchWords(IntEnum):
    """The words of a watch."""

    FINISHED = 0  # whether the call has done all of its work
    STOPPED = 1  # 1 + the task at which it stopped, if a signal handler raised an exception
    NEXT = 2  # when to poll again, in nanoseconds
    STATE = 3  # state of the thread that released the GIL; 0: it has the GIL
    MAIN = 4  # address of the main thread's id
    PASSED = 5  # stands in for FINISHED in all segments but the last
    SIZE = 6


def write_signals(module: LLModule, clock: int) -> None:
    """Emit the functions `weft_begin` and `weft_look`.

    clock  the system's number of a monotonic clock
    """
    now = _write_now(module, clock)
    code = module.function("void", [POINTER], "weft_begin")
    (watch,) = code.parameters
    put(code.constant(WORD, 0), watch, WatchWords.STOPPED)
    put(invoke(code, now, "i64", []) + PERIOD, watch, WatchWords.NEXT)
    leave(code)
    _write_look(module, now)


def _write_now(module: LLModule, clock: int) -> str:
    """Emit weft_now(): nanoseconds of a monotonic clock."""
    code = module.function("i64", [], "weft_now")
    time = code.local(WORD, 2)
    invoke(code, "clock_gettime", "i32", [code.constant(HALF_WORD, clock), time])
    leave(code, word(time, 0) * 1_000_000_000 + word(time, 1))
    return code.name


def _write_look(module: LLModule, now: str) -> None:
    """Emit weft_look(watch): whether the call must stop; without a watch it need not."""
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
    """Polls for signals in a loop: after enough work, not at each step.

    The estimated nanoseconds of the steps are counted down in a variable of the function, which
    nested loops share.
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
        """Emit code that leaves the function if the call must stop."""
        code = self.code
        left = code.load(WORD, self._left, 8) - max(int(cost), 1)
        code.store(left, self._left, 8)

        def look() -> None:
            self._fill()
            self.leave_if_stopped(invoke(code, "weft_look", "i64", [self.watch]))

        when(left < 0, look, rarely=True)

    def leave_if_stopped(self, verdict: LLValue) -> None:
        """Emit a return from the function if a look said that the call must stop."""
        when(verdict.compare("ne", 0), lambda: leave(self.code), rarely=True)
