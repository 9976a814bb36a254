"""Object code: its cache key, packing it with the symbols that it imports, linking it."""

import json
from collections.abc import Callable
from typing import Any

from ..cache import keys
from ..cache.disk import cache
from ..emit.capsules import blas_function
from ..emit.code import LLModule
from ..emit.elementary import PREFIX, address_of
from .machine import Loaded, Processor, compile_module, host, load, triple

# Prefix of BLAS's functions, which have Fortran's conventions and 32-bit integers.
BLAS = "blas_"
# Prefixes of the driver's functions, of our own products, and of the thread pool's memory.
OWN = "weft_"
# Functions from a symbol to the address of our function or memory; None for other symbols.
PROVIDERS: list[Callable[[str], int | None]] = []


def pack_object(module: LLModule, quickly: bool = False) -> bytes:
    """An object file, preceded by the symbols that it imports."""
    head = json.dumps(sorted(module.symbols)).encode()
    return len(head).to_bytes(8, "little") + head + compile_module(module, quickly=quickly)


def link(image: bytes, exports: list[str]) -> Loaded:
    """Load what `pack_object` made."""
    size = 8 + int.from_bytes(image[:8], "little")
    places = {s: at for s in json.loads(image[8:size]) if (at := place_of(s)) is not None}
    return load(image[size:], exports, places)


def load_written(
    kind: str,
    of: tuple[Any, ...],
    write: Callable[[LLModule], Any],
    exports: list[str],
    quickly: bool = False,
) -> Loaded:
    """Functions of a module that `write` fills, from the disk if they are there.

    kind, of  what distinguishes their code from others'
    """
    key = digest(kind, of)
    image = cache().fetch(key)
    if image is None:
        module = LLModule(host().attributes)
        write(module)
        image = pack_object(module, quickly)
        cache().store(key, image)
    return link(image, exports)


def place_of(symbol: str) -> int | None:
    """The address of an imported function; None for one that the process exports."""
    if symbol.startswith(PREFIX):
        return address_of(symbol.removeprefix(PREFIX))
    if symbol.startswith(OWN):
        found = (find(symbol) for find in PROVIDERS)
        return next((at for at in found if at is not None), None)
    return blas_function(symbol.removeprefix(BLAS)) if symbol.startswith(BLAS) else None


def digest(kind: str, program: tuple[Any, ...], target: Processor | None = None) -> str:
    """The key of a program's object code: the program, the compiler and the processor."""
    return keys.digest(kind, (program, machine_key(target)))


def machine_key(target: Processor | None = None) -> tuple[str, ...]:
    """What distinguishes this processor from others."""
    target = target or host()
    return (triple(), target.cpu, target.features)
