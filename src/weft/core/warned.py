"""Warnings that arise inside this package, reported at the user's line.

NumPy's kernels warn from C, at the line of the Python code that called them: a line of this
package. There a filter for the user's module does not match, and Python's "once per location" means
once for the whole program. Correcting the location before the kernel runs would cost every call.
So it is corrected when a warning is about to be shown: the warning is withdrawn, and issued again
at the user's line, through all filters.
"""

import sys
import warnings
from contextvars import ContextVar
from types import FrameType
from typing import Any

from .origin import is_generated, is_internal, is_of_this_package

# Others (deprecations, say) are about this package's own lines.
_CATEGORIES = (RuntimeWarning, UserWarning)
# The file, line and globals of the user's call; for a worker thread, of the call it works for.
Place = tuple[str, int, dict[str, Any]]
_called_from: ContextVar[Place | None] = ContextVar("weft_called_from", default=None)
_show = warnings._showwarnmsg  # type: ignore[attr-defined]


def install() -> None:
    """Replace the hook through which Python shows warnings."""
    warnings._showwarnmsg = _show_at_users_line  # type: ignore[attr-defined]


def _show_at_users_line(msg: warnings.WarningMessage) -> None:
    if not issubclass(msg.category, _CATEGORIES) or not is_internal(msg.filename):
        _show(msg)
        return
    inner: list[FrameType] = []
    place = _users_place(sys._getframe(1), inner)
    if place is None:
        _show(msg)
        return
    _forget(msg, inner)
    filename, line, own = place
    registry = own.setdefault("__warningregistry__", {})
    module = own.get("__name__", "<string>")
    warnings.warn_explicit(
        msg.message, msg.category, filename, line, module, registry, None, msg.source
    )


def note_caller() -> None:
    """Attribute warnings in this context to the user's call that is in progress."""
    _called_from.set(_users_place(sys._getframe(1), []))


def _users_place(frame: FrameType | None, inner: list[FrameType]) -> Place | None:
    """Where the user called this package (None: nowhere); frames inside of that go to `inner`."""
    here = False
    while frame is not None and (is_internal(frame.f_code.co_filename) or is_generated(frame)):
        here = here or is_of_this_package(frame)
        inner.append(frame)
        frame = frame.f_back
    if not here:
        return None
    if frame is None:
        return _called_from.get()
    return frame.f_code.co_filename, frame.f_lineno, frame.f_globals


def _forget(msg: warnings.WarningMessage, inner: list[FrameType]) -> None:
    """Remove the warning from the registries of the inner frames, as if it had not been given."""
    text = str(msg.message)
    for frame in inner:
        given = frame.f_globals.get("__warningregistry__", {})
        given.pop((text, msg.category, msg.lineno), None)
        given.pop((text, msg.category, 0), None)
    warnings.onceregistry.pop((text, msg.category), None)  # type: ignore[attr-defined]
