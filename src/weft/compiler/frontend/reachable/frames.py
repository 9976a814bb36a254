"""The functions that run during a trace, and whether they read the outside world.

A profile function is called at every call. User code is recorded with its globals; of library code
only the names are recorded, since it may read objects of the user.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

import numpy as np

from .... import errors
from ....core.origin import is_internal, line_of
from ....core.settings import current
from ...collecting import no_collection
from .bytecode import find_names
from .profile import Calls

User = tuple[CodeType, dict[str, Any]]  # a code object of the user with its globals
PACKAGE = str(Path(__file__).parents[3])
_NEEDED = tuple(f"-packages/{name}/" for name in ("optree", "ml_dtypes", "llvmlite"))

# Code of installed packages is recorded when it runs; their modules and classes do not change.
USER, INSTALLED, LIBRARY, OWN = "user", "installed", "library", "own"
_owners: dict[str, str] = {}  # by file


def owner(filename: str) -> str:
    """The owner of a source file: USER, INSTALLED, LIBRARY, or OWN (Weft)."""
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
    """The owner of a code object; generated code (`dataclass`) belongs to its globals' file."""
    filename = code.co_filename
    written = filename.startswith("<") and not filename.startswith("<frozen")
    return owner(variables.get("__file__") or filename if written else filename)


# Modules of Python whose functions read all attributes of an object.
_READING_ALL = ("dataclasses", "copy")


class ReadPlace(NamedTuple):
    """A key of a dict that user code has read.

    shallow  whether its value is a list of which only the elements' identities are compared
    """

    label: str
    held: dict[Any, Any]
    key: Any
    shallow: bool


class RanCode:
    """The code that ran: the user's with its globals, and the names in library code.

    changes  whether places that are only assigned to are recorded, too
    """

    changes = False
    dynamic: bool  # whether attributes are read by computed names
    asks_types: bool  # whether `type` is named, which tells host scalars from numbers

    def __init__(self):
        self.user: list[User] = []
        self.codes: dict[int, CodeType] = {}  # all code objects, by identity
        self.library: set[str] = set()  # names in the code of libraries
        self.dynamic = self.asks_types = False
        self.calls: Calls | None = None
        self.identified: dict[int, Any] = {}  # tensors of whose leaves the program knows more
        self.places: dict[str, ReadPlace] = {}  # reads that names do not tell, by their labels
        self._equal: set[CodeType] | None = None

    def note(self, frame: FrameType) -> bool:
        """Record the code of a frame; whether it was recorded."""
        code = frame.f_code
        if id(code) in self.codes:
            return True
        whose = owner_of_code(code, frame.f_globals)
        if whose != OWN and (_is_importing(frame) or current.get().staging is None):
            return False  # an import, or a trial of a custom operation, which each call runs itself
        if whose in (USER, INSTALLED):
            self.user.append((code, frame.f_globals))
            self.dynamic = self.dynamic or find_names(code).dynamic
            self.asks_types = self.asks_types or "type" in find_names(code).globals
        elif whose == LIBRARY:
            self._note_library(frame)
        self.codes[id(code)] = code
        return True

    def _note_library(self, frame: FrameType) -> None:
        """Record the names in code of a library, also those it reads as strings."""
        code = frame.f_code
        self.library.update(code.co_names)
        if find_names(code).dynamic and _asking(frame) is not None:
            module = frame.f_globals.get("__name__", "")
            texts = [c for c in code.co_consts if isinstance(c, str)]
            self.library.update([text for text in texts if text.isidentifier()])
            self.dynamic = self.dynamic or module in _READING_ALL

    def position(self) -> tuple[int, int]:
        """How much is recorded so far."""
        return len(self.user), len(self.codes)

    def return_to(self, position: tuple[int, int]) -> None:
        """Forget what was recorded since."""
        del self.user[position[0] :]
        for key in list(self.codes)[position[1] :]:
            del self.codes[key]
        if self.calls is not None:
            self.calls.forget()

    def note_function(self, f: FunctionType) -> None:
        """Called for each function of the user that a walk visits."""

    def has_run(self, code: CodeType) -> bool:
        """Whether this code object has run."""
        return id(code) in self.codes

    def __contains__(self, code: CodeType) -> bool:
        """Whether a code object or an equal one has run: a notebook cell may be run again."""
        if id(code) in self.codes:
            return True
        if self._equal is None:
            self._equal = {c for c, _ in self.user}
        return code in self._equal


class MayRun(RanCode):
    """The code that may run: every function of the user that a walk visits."""

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
    """The code objects of functions defined inside a function."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _inside(constant)


class _Watcher:
    """Records the code that runs, and the first read of the outside world."""

    def __init__(self, name: str):
        self.name, self.ran = name, RanCode()
        self.refused: errors.StagingError | None = None

    def __call__(self, frame: FrameType, function: Any = None) -> bool:
        """Handle a call; whether further calls of the same function can be skipped."""
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
    """A block whose function calls are recorded; `name` is that of the traced function."""
    watcher = _Watcher(name)
    calls = watcher.ran.calls = Calls(watcher)
    states = _random_states()
    # The callbacks and finalisers of a collection are not part of the function.
    with no_collection(), calls.watch():
        yield watcher.ran
    if watcher.refused is not None:
        raise watcher.refused
    if states != _random_states():
        raise _draw_error(name)


# The outside world: clocks, files, random numbers that are not Weft's

# Names of functions that read it, with their modules or classes.
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
    **dict.fromkeys(("random", "getrandbits", "getstate"), ("random", "random numbers")),
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
# Code objects of Python functions that read it: what they read, and their names.
_ASKING = {
    **{
        getattr(type(os.environ), method).__code__: ("the environment", "os.environ")
        for method in ("__getitem__", "__iter__", "__len__")
    },
    np.geterr.__code__: ("how NumPy treats errors", "np.geterr"),
}
# Modules of Python that read it for purposes of their own.
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
    """What a built-in function with a name in `_WORLD` reads; None if it is another function."""
    module, what = _WORLD[function.__name__]
    owner = function.__self__
    kind = owner if isinstance(owner, type) else type(owner)
    homes = {getattr(function, "__module__", None), *[k.__module__ for k in kind.__mro__]}
    return what if not homes.isdisjoint((module, f"_{module}", "nt")) else None


def _refusal(name: str, frame: FrameType, what: str, function: str) -> errors.StagingError | None:
    """The error for a call from user code that reads the outside world; None for other callers."""
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
    """Whether the frame runs during an import, which happens once anyway."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _asking(frame: FrameType | None) -> FrameType | None:
    """The user's frame that calls, also through Python's own modules; None if Weft calls."""
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
    """The states of Python's and of NumPy's `random`."""
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
