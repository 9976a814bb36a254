"""Objects that are never freed, where to free them would wait for threads that never end."""

import ctypes
from typing import Any


def keep_forever(x: Any) -> None:
    """Let an object outlive the interpreter, whose end frees all others."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(x))
