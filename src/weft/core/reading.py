"""Whether user code asks for a value of Weft's while a function is being compiled.

What Weft reads for itself during a trace it guards, or reads at each call; what user code reads is
to be compared, or refused.
"""

import sys
from typing import Any

from ..errors import StagingError
from .origin import is_of_this_package
from .settings import current

# Properties that give what the property of another object has.
_PASSED_ON = frozenset(("config", "decay", "lr", "param_groups", "state", "changed", "__repr__"))


def reading_trace() -> Any:
    """The trace in which user code asks for a property; None: eager mode, or Weft asks.

    It is called by the property's function.
    """
    staging = current.get().staging
    return None if staging is None or _is_asked_by_weft(sys._getframe(2)) else staging


def refuse_reading(what: str, remedy: str) -> None:
    """Refuse to let user code read what a program keeps in memory that Python does not look at.

    It is called by a property's function.
    """
    if current.get().staging is not None and not _is_asked_by_weft(sys._getframe(2)):
        raise StagingError(
            f"compile: {what} is read in a function that is being compiled, where it would be read "
            f"once, not at each call; {remedy}"
        )


def _is_asked_by_weft(frame: Any) -> bool:
    while is_of_this_package(frame) and frame.f_code.co_name in _PASSED_ON:
        frame = frame.f_back
    return is_of_this_package(frame)
