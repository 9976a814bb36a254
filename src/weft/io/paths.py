"""Telling the path from the object to save."""

import os
from pathlib import Path
from typing import Any

from ..errors import ArgumentError


def path_first(what: str, a: Any, b: Any) -> tuple[Path, Any]:
    """The path and the other of two arguments, which may come in either order."""
    if isinstance(b, str | os.PathLike) and not isinstance(a, str | os.PathLike):
        a, b = b, a
    if not isinstance(a, str | os.PathLike) or isinstance(b, str | os.PathLike):
        raise ArgumentError(
            f"{what}: got {type(a).__name__} and {type(b).__name__}, expected a path and what to "
            "save under it"
        )
    return Path(a), b
