"""Where in the user's program something happened."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from opcode import opmap
from types import CodeType, FrameType

import numpy as np

_PACKAGES = os.path.dirname(os.path.dirname(np.__file__))
_STANDARD = os.path.dirname(os.__file__) + os.sep
# The libraries whose functions call this package on the user's behalf, and this package.
_ARRAY_LIBRARIES = tuple(
    os.path.join(_PACKAGES, name, "") for name in ("numpy", "scipy", "sklearn", "torch")
)
_FILES = os.path.dirname(os.path.dirname(__file__)) + os.sep
_LIBRARIES = (_FILES, *_ARRAY_LIBRARIES)
_PACKAGE = __name__.partition(".")[0] + "."
_STORES = {opmap[name] for name in ("STORE_SUBSCR", "STORE_SLICE") if name in opmap}


# Whether a source file is not the user's, by `co_filename`, whose hash is cached: walking out of
# the library costs one lookup a frame. Filled at the first frame of each file.
INTERNAL: dict[str, bool] = {}


def user_frame(frame: FrameType) -> FrameType:
    """The innermost frame, from this one outwards, that runs the user's code."""
    while frame.f_back is not None and (
        is_internal(frame.f_code.co_filename) or is_generated(frame)
    ):
        frame = frame.f_back
    return frame


def is_generated(frame: FrameType) -> bool:
    """Whether the frame runs code generated for a record or dataclass of this package."""
    module = frame.f_globals.get("__name__", "")
    return frame.f_code.co_filename == "<string>" and module.startswith(_PACKAGE)


def is_of_this_package(frame: FrameType) -> bool:
    """Whether the frame runs code of this package."""
    return frame.f_code.co_filename.startswith(_FILES)


def is_internal(filename: str) -> bool:
    """Whether a source file is not the user's: this package's, the libraries' or Python's own."""
    if filename not in INTERNAL:
        standard = filename.startswith(_STANDARD) and "-packages" not in filename
        INTERNAL[filename] = standard or filename.startswith(_LIBRARIES)
    return INTERNAL[filename]


Origin = tuple[CodeType, int]


def line_of(code: CodeType, lasti: int) -> str:
    """`train.py:41` for a code object and an instruction offset."""
    line = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= lasti < end and number is not None:
            line = number
    return f"{os.path.basename(code.co_filename)}:{line}"


# The user's line that current operations are attributed to, where it is not that of the caller.
_written: ContextVar[Origin | None] = ContextVar("weft_written", default=None)


@contextmanager
def written_at(place: Origin | None) -> Iterator[None]:
    """A block whose operations are attributed to `place`, a line of the user's."""
    token = _written.set(place)
    try:
        yield
    finally:
        _written.reset(token)


def origin(depth: int = 1) -> Origin:
    """The user's call in progress, in its cheapest form: code object and instruction offset."""
    written = _written.get()
    if written is not None:
        return written
    frame = sys._getframe(depth)
    try:
        while INTERNAL[frame.f_code.co_filename] and frame.f_back is not None:
            frame = frame.f_back
    except KeyError:  # the first frame of a file
        frame = user_frame(frame)
    return frame.f_code, frame.f_lasti


def assigns_item(frame: FrameType) -> bool:
    """Whether the frame is at a statement `a[i] = v`."""
    return frame.f_code.co_code[frame.f_lasti] in _STORES


def is_array_library(frame: FrameType) -> bool:
    """Whether the frame runs code of NumPy, SciPy, scikit-learn or PyTorch."""
    return frame.f_code.co_filename.startswith(_ARRAY_LIBRARIES)


def here() -> str:
    """The user's file and line of the call in progress."""
    written = _written.get()
    if written is not None:
        return line_of(*written)
    frame = user_frame(sys._getframe(1))
    return line_of(frame.f_code, frame.f_lasti)
