"""Object code: its key in the cache, packing it with the names that it asks for, linking it."""

import json
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
from ..emit.capsules import blas_function
from ..emit.code import Module
from ..emit.elementary import PREFIX, address_of
from .machine import Loaded, Target, compiled, host, load

# Before the names of BLAS's functions, which have Fortran's conventions and 32-bit integers.
BLAS = "blas_"
# Before those of the driver, of our own products, and of the crew's memory.
OWN = "weft_"
# Who knows where functions and memory of ours are, by their symbols; None for others' symbols.
PROVIDERS: list[Callable[[str], int | None]] = []


def packed(module: Module, quickly: bool = False) -> bytes:
    """An object file, and before it the names that it asks for."""
    head = json.dumps(sorted(module.symbols)).encode()
    return len(head).to_bytes(8, "little") + head + compiled(module, quickly=quickly)


def link(image: bytes, exports: list[str]) -> Loaded:
    """Load what `packed` made."""
    size = 8 + int.from_bytes(image[:8], "little")
    places = {s: at for s in json.loads(image[8:size]) if (at := place_of(s)) is not None}
    return load(image[size:], exports, places)


def place_of(symbol: str) -> int | None:
    """Where a function that object code asks for is; None for one that the process has."""
    if symbol.startswith(PREFIX):
        return address_of(symbol.removeprefix(PREFIX))
    if symbol.startswith(OWN):
        found = (find(symbol) for find in PROVIDERS)
        return next((at for at in found if at is not None), None)
    return blas_function(symbol.removeprefix(BLAS)) if symbol.startswith(BLAS) else None


def digest(kind: str, program: tuple, target: Target | None = None) -> str:
    """The key of a program's object code: the program, who compiles it, and what for."""
    target = target or host()
    machine = (llvm.get_process_triple(), target.cpu, target.features)
    text = spelled((kind, program, machine, dtypes.default_float(), *_compiler()))
    return sha256(text.encode()).hexdigest()


@lru_cache(maxsize=1)
def _compiler() -> tuple[str, ...]:
    """Versions, and the state of the source: of the compiler, and of the table that it reads.

    A file is known by its path, its size and when it was written: by what Python itself goes when
    it asks whether bytecode is of a source.
    """
    source, package = sha256(), Path(__file__).parents[2]
    for layer in ("core", "graph", "backend", "ops", "compiler"):
        for path, size, written in sorted(_files(str(package / layer))):
            source.update(f"{path} {size} {written}\n".encode())
    scipy = find_spec("scipy")  # asking for its version would load it
    if scipy is not None and scipy.origin is not None:
        found = os.stat(scipy.origin)
        source.update(f"{scipy.origin} {found.st_size} {found.st_mtime_ns}".encode())
    versions = (llvmlite.__version__, *map(str, llvm.llvm_version_info), np.__version__)
    return (*versions, source.hexdigest())


def _files(folder: str) -> Iterator[tuple[str, int, int]]:
    """The source files below a folder: where each is, its bytes, and when it was written."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _files(entry.path)
            elif entry.name.endswith(".py"):
                found = entry.stat()
                yield entry.path, found.st_size, found.st_mtime_ns


def spelled(value) -> str:
    """A text that is the same in every process, and different for different values."""
    kind = type(value)
    if kind in _PLAIN:
        return repr(value)
    if kind is tuple:
        return f"({','.join([spelled(x) for x in value])})"
    if isinstance(value, np.dtype):
        return _dtype_text(value)
    if not is_dataclass(kind):
        raise TypeError(f"a {kind.__name__} in a program that is to be stored: {value!r}")
    inside = ",".join([spelled(x) for x in _parts(kind)(value)])
    return f"{kind.__module__}.{kind.__name__}({inside})"


_PLAIN = frozenset((bool, int, float, complex, str, type(None)))


@lru_cache(maxsize=None)
def _dtype_text(dtype: np.dtype) -> str:
    return f"dtype {dtype.name}"


@lru_cache(maxsize=None)
def _parts(kind: type) -> Callable[[Any], tuple]:
    """The fields of a dataclass as a tuple."""
    names = [f.name for f in fields(kind)]
    return lambda value: tuple([getattr(value, name) for name in names])
