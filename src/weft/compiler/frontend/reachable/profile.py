"""A native profile function (`llvm.profile`), which replaces the current one for a while."""

import _thread
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import c_int64, c_void_p, py_object, pythonapi
from types import BuiltinFunctionType

from ....core.once import once
from ...native.driver import driver
from ...native.layout import UnknownLayout
from ...native.profile import ROOM, Profile
from ...native.words import words

_set = pythonapi.PyEval_SetProfile
_set.restype, _set.argtypes = None, [c_void_p, py_object]
_thread_state = pythonapi.PyThreadState_Get
_thread_state.restype, _thread_state.argtypes = c_void_p, []


class Calls:
    """Reports each called function.

    tell  is called with the frame, and the built-in function if it is one; if it returns True,
          further calls of the function are not reported
    """

    def __init__(self, tell: Callable[..., bool]):
        self._words = words(Profile.SIZE + ROOM, tell)
        self._words[: Profile.COUNT] = [id(tell), id(True), id(BuiltinFunctionType)]

    def forget(self) -> None:
        """Report every function again."""
        self._words[Profile.COUNT :] = 0

    @contextmanager
    def watch(self) -> Iterator[None]:
        """A block whose calls are reported; a running profiler is paused."""
        before = sys.getprofile()
        function = None if before is None else _word(_thread_state() + _place())
        _set(driver().addresses["weft_profile"], self._words)
        try:
            yield
        finally:
            if before is None:
                sys.setprofile(None)
            else:
                _set(function, before)


@once
def _place() -> int:
    """The offset (bytes) of the profile function's address in a thread's state.

    It is searched for in a new thread, which has no profile function.
    """
    found: list[int] = []
    done = _thread.allocate_lock()
    done.acquire()
    calls = Calls(lambda *call: True)
    expected = driver().addresses["weft_profile"], id(calls._words)

    def look() -> None:
        try:
            with calls.watch():
                state = _thread_state()
                for at in range(0, 512, 8):
                    if (_word(state + at), _word(state + at + 16)) == expected:
                        found.append(at)
        finally:
            done.release()

    _thread.start_new_thread(look, ())
    done.acquire()
    if len(found) != 1:
        raise UnknownLayout(
            "where this Python keeps its profile function is not known, and a profiler is running; "
            "compile without it"
        )
    return found[0]


def _word(address: int) -> int:
    return c_int64.from_address(address).value
