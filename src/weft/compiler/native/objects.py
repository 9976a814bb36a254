"""Object code: its key in the cache, packing it with the names that it asks for, linking it."""

import json
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm

from ..cache import keys
from ..emit.capsules import blas_function
from ..emit.code import LLModule
from ..emit.elementary import PREFIX, address_of
from .machine import Loaded, Processor, compile_module, host, load

# Before the names of BLAS's functions, which have Fortran's conventions and 32-bit integers.
BLAS = "blas_"
# Before those of the driver, of our own products, and of the crew's memory.
OWN = "weft_"
# Who knows where functions and memory of ours are, by their symbols; None for others' symbols.
PROVIDERS: list[Callable[[str], int | None]] = []


def pack_object(module: LLModule, quickly: bool = False) -> bytes:
    """An object file, and before it the names that it asks for."""
    head = json.dumps(sorted(module.symbols)).encode()
    return len(head).to_bytes(8, "little") + head + compile_module(module, quickly=quickly)


def link(image: bytes, exports: list[str]) -> Loaded:
    """Load what `pack_object` made."""
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


def digest(kind: str, program: tuple[Any, ...], target: Processor | None = None) -> str:
    """The key of a program's object code: the program, who compiles it, and what for."""
    return keys.digest(kind, (program, machine_key(target)))


def machine_key(target: Processor | None = None) -> tuple[str, ...]:
    """What tells a processor apart from others."""
    target = target or host()
    return (llvm.get_process_triple(), target.cpu, target.features)
