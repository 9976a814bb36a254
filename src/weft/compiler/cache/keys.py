"""Keys of entries on disk: the content, the compiler's versions and its source."""

import os
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import lru_cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numpy as np

from ...core import dtypes


def digest(kind: str, content: tuple[Any, ...]) -> str:
    """The key of something that this compiler produced."""
    text = spell_value((kind, content, dtypes.default_float(), *_compiler()))
    return sha256(text.encode()).hexdigest()


@lru_cache(maxsize=1)
def _compiler() -> tuple[str, ...]:
    """Versions, and the state of the source: of the compiler, and of the table that it reads.

    A file is identified by its path, size and modification time, as Python does to decide whether
    bytecode is up to date.
    """
    source, package = sha256(), Path(__file__).parents[2]
    for layer in ("core", "graph", "backend", "ops", "compiler"):
        for path, size, written in sorted(_files(str(package / layer))):
            source.update(f"{path} {size} {written}\n".encode())
    scipy = find_spec("scipy")  # importing it for its version would load it
    if scipy is not None and scipy.origin is not None:
        found = os.stat(scipy.origin)
        source.update(f"{scipy.origin} {found.st_size} {found.st_mtime_ns}".encode())
    versions = (llvmlite.__version__, *map(str, llvm.llvm_version_info), np.__version__)
    return (*versions, source.hexdigest())


def _files(folder: str) -> Iterator[tuple[str, int, int]]:
    """The source files below a folder: the path, size and modification time of each."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _files(entry.path)
            elif entry.name.endswith(".py"):
                found = entry.stat()
                yield entry.path, found.st_size, found.st_mtime_ns


def spell_value(value: Any) -> str:
    """A text that is the same in every process, and different for different values."""
    kind = type(value)
    if kind in _PLAIN:
        return repr(value)
    if kind is tuple:
        return f"({','.join([spell_value(x) for x in value])})"
    if isinstance(value, np.dtype):
        return _dtype_text(value)
    if not is_dataclass(kind):
        raise TypeError(f"a {kind.__name__} in a program that is to be stored: {value!r}")
    inside = ",".join([spell_value(x) for x in _parts(kind)(value)])
    return f"{kind.__module__}.{kind.__name__}({inside})"


_PLAIN = frozenset((bool, int, float, complex, str, type(None)))


@lru_cache(maxsize=None)
def _dtype_text(dtype: np.dtype) -> str:
    return f"dtype {dtype.name}"


@lru_cache(maxsize=None)
def _parts(kind: type) -> Callable[[Any], tuple[Any, ...]]:
    """The fields of a dataclass as a tuple."""
    names = [f.name for f in fields(kind)]
    return lambda value: tuple([getattr(value, name) for name in names])
