"""Where in the user's program something happened."""

import sys
from pathlib import Path
from types import CodeType

# `co_filename` of every module of this package: strings with a cached hash, so that
# walking out of the library costs one set lookup a frame.
INTERNAL = {str(p) for p in Path(__file__).parent.parent.rglob("*.py")}


Origin = tuple[CodeType, int]


def line_of(code: CodeType, lasti: int) -> str:
    """`train.py:41` for a code object and an instruction offset."""
    line = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= lasti < end and number is not None:
            line = number
    return f"{Path(code.co_filename).name}:{line}"


def origin(depth: int = 1) -> Origin:
    """The user's call in progress, cheaply: code object and instruction offset."""
    frame = sys._getframe(depth)
    while frame.f_code.co_filename in INTERNAL and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code, frame.f_lasti


def here() -> str:
    """The user's file and line of the call in progress."""
    return line_of(*origin(2))
