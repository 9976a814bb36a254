"""Where in the user's program something happened."""

import sys
from pathlib import Path
from types import CodeType

# `co_filename` of every module of this package: strings with a cached hash, so that
# walking out of the library costs one set lookup a frame.
INTERNAL = {str(p) for p in Path(__file__).parent.parent.rglob("*.py")}


def line_of(code: CodeType, lasti: int) -> str:
    """`train.py:41` for a code object and an instruction offset."""
    positions = list(code.co_positions())
    index = lasti // 2
    line = positions[index][0] if index < len(positions) else code.co_firstlineno
    return f"{Path(code.co_filename).name}:{line}"


def user_frame(depth: int = 1):
    """The innermost frame outside this package."""
    frame = sys._getframe(depth)
    while frame.f_code.co_filename in INTERNAL and frame.f_back is not None:
        frame = frame.f_back
    return frame


def here() -> str:
    """The user's file and line of the call in progress."""
    frame = user_frame(2)
    return line_of(frame.f_code, frame.f_lasti)
