"""Which functions run while a function is traced, and whether they look at the world outside.

A profile function sees every call. Code of the user's is kept with its globals; of the
code of libraries only the names count, since it may read objects of the user's.
"""

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import numpy as np

from .... import errors
from ....core.origin import is_internal, line_of
from ....core.settings import current
from .bytecode import find_names
from .profile import Calls

User = tuple[CodeType, dict[str, Any]]  # a code of the user's with its globals
PACKAGE = str(Path(__file__).parents[3])
_NEEDED = tuple(f"-packages/{name}/" for name in ("optree", "ml_dtypes", "llvmlite"))

# Installed packages are read when their functions run; their modules and classes do not change.
USER, INSTALLED, LIBRARY, OWN = "user", "installed", "library", "own"
_owners: dict[str, str] = {}  # by file


def owner(filename: str) -> str:
    """Whose a source file is: the user's, an installed package's, a library's, or our own."""
    found = _owners.get(filename)
    if found is None:
        if filename.startswith(PACKAGE):
            found = OWN
        elif is_internal(filename) or filename.startswith("<frozen"):
            found = LIBRARY
        elif any(part in filename for part in _NEEDED):
            found = LIBRARY
        else:
            found = INSTALLED if "-packages" in filename else USER
        _owners[filename] = found
    return found


def owner_of_code(code: CodeType, variables: dict[str, Any]) -> str:
    """Whose a code with these globals is; what `dataclass` writes belongs to the module's file."""
    filename = code.co_filename
    written = filename.startswith("<") and not filename.startswith("<frozen")
    return owner(variables.get("__file__") or filename if written else filename)


class RanCode:
    """What ran: codes of the user's with their globals, and the names in other people's codes.

    changes  whether places count that are only assigned to
    """

    changes = False
    dynamic: bool  # whether attributes are read by names that no code holds
    asks_types: bool  # whether `type` is named, which sees through stand-ins

    def __init__(self):
        self.user: list[User] = []
        self.codes: dict[int, CodeType] = {}  # all, by identity
        self.library: set[str] = set()  # names in the code of libraries
        self.dynamic = self.asks_types = False
        self.calls: Calls | None = None
        self._equal: set[CodeType] | None = None

    def note(self, frame: FrameType) -> bool:
        """A code that is met; whether it is kept."""
        code = frame.f_code
        if id(code) in self.codes:
            return True
        whose = owner_of_code(code, frame.f_globals)
        if whose != OWN and (_is_importing(frame) or current.get().staging is None):
            return False  # a custom operation is tried, which is called as it is at each call
        if whose in (USER, INSTALLED):
            self.user.append((code, frame.f_globals))
            self.dynamic = self.dynamic or find_names(code).dynamic
            self.asks_types = self.asks_types or "type" in find_names(code).globals
        elif whose == LIBRARY:
            self.library.update(code.co_names)
        self.codes[id(code)] = code
        return True

    def position(self) -> tuple[int, int]:
        """How much has run so far."""
        return len(self.user), len(self.codes)

    def return_to(self, position: tuple[int, int]) -> None:
        """Forget what has run since."""
        del self.user[position[0] :]
        for key in list(self.codes)[position[1] :]:
            del self.codes[key]
        if self.calls is not None:
            self.calls.forget()

    def note_function(self, f: FunctionType) -> None:
        """A function of the user's that a walk has come to."""

    def has_run(self, code: CodeType) -> bool:
        """Whether this very code has run."""
        return id(code) in self.codes

    def __contains__(self, code: CodeType) -> bool:
        """Whether a code has run, or an equal one: a notebook's cell that was run again."""
        if id(code) in self.codes:
            return True
        if self._equal is None:
            self._equal = {c for c, _ in self.user}
        return code in self._equal


class MayRun(RanCode):
    """What may run: every function of the user's that a walk comes to."""

    changes = True

    def note_function(self, f: FunctionType) -> None:
        code = f.__code__
        for c in (code, *_inside(code)):
            if id(c) not in self.codes:
                self.codes[id(c)] = c
                self.user.append((c, f.__globals__))

    def has_run(self, code: CodeType) -> bool:
        return True

    __contains__ = has_run


def _inside(code: CodeType) -> Iterator[CodeType]:
    """The codes of functions that are made in a function."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _inside(constant)


class _Watcher:
    """Notes what runs, and the first look at the world."""

    def __init__(self, name: str):
        self.name, self.ran = name, RanCode()
        self.refused: errors.StagingError | None = None

    def __call__(self, frame: FrameType, function: Any = None) -> bool:
        """A call; whether it needs no mention again."""
        if function is not None:
            if function.__name__ not in _WORLD:
                return True
            what = _of_world(function)
            if what is not None:
                self._look(frame, what, function.__qualname__)
            return False
        if frame.f_code in _ASKING:
            self._look(frame, *_ASKING[frame.f_code])
            return False
        return self.ran.note(frame)

    def _look(self, frame: FrameType, what: str, function: str) -> None:
        self.refused = self.refused or _refusal(self.name, frame, what, function)


@contextmanager
def watch_frames(name: str) -> Iterator[RanCode]:
    """A block whose function calls are noted; `name` is the function that is being compiled."""
    watcher = _Watcher(name)
    calls = watcher.ran.calls = Calls(watcher)
    states, collects = _random_states(), gc.isenabled()
    gc.disable()  # whose callbacks are other people's
    try:
        with calls.watch():
            yield watcher.ran
    finally:
        if collects:
            gc.enable()
    if watcher.refused is not None:
        raise watcher.refused
    if states != _random_states():
        raise _draw_error(name)


# The world outside: clocks, files, other people's random numbers

# Names of functions that read it, with the modules or classes that they are of.
_WORLD = {
    **dict.fromkeys(
        (
            *("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns"),
            *("process_time", "process_time_ns", "thread_time", "thread_time_ns"),
            *("localtime", "gmtime", "ctime", "asctime", "clock_gettime", "clock_gettime_ns"),
        ),
        ("time", "the clock"),
    ),
    **dict.fromkeys(("now", "utcnow", "today"), ("datetime", "the clock")),
    "strftime": ("time", "the clock"),
    **dict.fromkeys(("random", "getrandbits"), ("random", "random numbers")),
    **dict.fromkeys(("urandom", "getrandom"), ("posix", "the system's random numbers")),
    **dict.fromkeys(("getcwd", "listdir", "scandir", "stat", "read"), ("posix", "files")),
    **dict.fromkeys(
        ("open", "open_code", "readline", "readlines", "readinto", "getvalue", "getbuffer"),
        ("io", "files"),
    ),
    "globals": ("builtins", "variables by names that are computed"),
    "input": ("builtins", "the keyboard"),
    "_getframe": ("sys", "Python's frames"),
    "currentframe": ("inspect", "Python's frames"),
}
# Python code that runs when it is read: what that is, and by which name.
_ASKING = {
    **{
        getattr(type(os.environ), method).__code__: ("the environment", "os.environ")
        for method in ("__getitem__", "__iter__", "__len__")
    },
    np.geterr.__code__: ("how NumPy treats errors", "np.geterr"),
}
# Modules of Python's that look there on their own account.
_UNASKED = ("logging", "warnings", "linecache", "tokenize", "importlib", "traceback", "contextlib")
_REMEDIES = {
    "the clock": "Read it outside, and pass a float",
    "files": "Read them outside, and pass what is in them",
    "the keyboard": "Ask outside, and pass the answer",
    "variables by names that are computed": "Use a dict of your own",
    "how NumPy treats errors": "Ask outside, and pass the answer",
    "the environment": "Read it outside, and pass what is in it",
    "Python's frames": "Pass what is wanted as an argument",
}
_RANDOM = "Draw with wf.random or wf.randn, or draw outside and pass the numbers"


def _of_world(function) -> str | None:
    """What of the world a built-in function with such a name reads, if it is that one."""
    module, what = _WORLD[function.__name__]
    home = getattr(function, "__module__", None) or type(function.__self__).__module__
    if isinstance(function.__self__, type):
        home = function.__self__.__module__
    return what if home in (module, f"_{module}", "nt") else None


def _refusal(name: str, frame: FrameType, what: str, function: str) -> errors.StagingError | None:
    """The error for a call of the user's that reads the world; None if it is somebody else's."""
    asking = _asking(frame)
    if asking is None:
        return None
    line = line_of(asking.f_code, asking.f_lasti)
    remedy = _REMEDIES.get(what, _RANDOM)
    return errors.StagingError(
        f"compile: {name} reads {what} ({function}, at {line}), which a program "
        f"cannot watch: it would be read once, when {name} is compiled. {remedy}"
    )


def _is_importing(frame: FrameType | None) -> bool:
    """Whether the frame runs because a module is imported, which happens once anyway."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _asking(frame: FrameType | None) -> FrameType | None:
    """The user's frame that calls, through Python's own modules or not; None if Weft does."""
    if _is_importing(frame):
        return None
    while frame is not None:
        whose = owner_of_code(frame.f_code, frame.f_globals)
        if whose in (USER, INSTALLED):
            return frame
        module = frame.f_globals.get("__name__", "").partition(".")[0]
        if whose == OWN or module in _UNASKED:
            return None
        frame = frame.f_back
    return None


def _random_states() -> list:
    """How far the streams of Python's and of NumPy's `random` are."""
    states: list = []
    if "random" in sys.modules:
        states.append(sys.modules["random"].getstate())
    if "numpy.random" in sys.modules:
        kind, keys, *rest = sys.modules["numpy.random"].get_state(legacy=True)
        states.append((kind, keys.tobytes(), *rest))
    return states


def _draw_error(name: str) -> errors.StagingError:
    return errors.StagingError(
        f"compile: {name} draws from `random` or `np.random`, whose numbers would be drawn once, "
        f"when {name} is compiled. {_RANDOM}"
    )
