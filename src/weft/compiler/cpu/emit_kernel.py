"""Compile and load a single kernel: an object file, and the function in it."""

from collections.abc import Sequence
from ctypes import CFUNCTYPE, addressof, c_int64, c_void_p
from typing import Any

import numpy as np

from ...core.record import field, record
from ..emit.code import LLModule
from ..emit.elementary import PREFIX, address_of
from ..ir.kernel import Kernel, MalformedKernel, verify
from ..native.machine import Processor, compile_module, host, load
from .loop_nest import Nest
from .loops import Extents, lower

ENTRY = "weft_kernel"
_PROTOTYPE = CFUNCTYPE(None, c_void_p, c_int64, c_int64)


@record
class Image:
    """A kernel as an object file, with what is needed to link and to call it."""

    data: bytes
    symbols: tuple[str, ...]
    count: int
    grain: int
    checked: bool


@record
class LoadedKernel:
    """A loaded kernel: `call(pointers, begin, end)` computes the units from begin to end.

    `begin` and `end` are multiples of `grain`, or `end` is `count`; pieces of the work may run in
    any order and concurrently.
    """

    image: Image
    call: Any
    _hold: Any = field(repr=False)

    def __call__(
        self, arrays: Sequence[np.ndarray], begin: int = 0, end: int | None = None
    ) -> None:
        """Run all units, or some, on arrays: operands, then results."""
        verdict = c_int64(0)
        places = [*(a.ctypes.data for a in arrays), addressof(verdict)]
        pointers = (c_void_p * len(places))(*places)
        self.call(addressof(pointers), begin, self.image.count if end is None else end)
        if self.image.checked and verdict.value:
            what = f"array {verdict.value - 1}" if verdict.value > 0 else "the range of units"
            raise MalformedKernel(f"{what} was left: units {begin} to {end}")


def module_of(
    kernel: Kernel, target: Processor | None = None, extents: Extents = ()
) -> tuple[LLModule, Nest]:
    """The LLVM IR of a kernel, and its loop nest."""
    verify(kernel)
    module = LLModule((target or host()).attributes)
    return module, lower(kernel, module, ENTRY, extents)


def build(kernel: Kernel, target: Processor | None = None, extents: Extents = ()) -> Image:
    """Compile a kernel; with `extents`, one that checks every access (see `lower`)."""
    module, nest = module_of(kernel, target, extents)
    symbols = tuple(sorted(module.symbols))
    return Image(compile_module(module, target), symbols, nest.count, nest.grain, bool(extents))


def link(image: Image) -> LoadedKernel:
    """Load a compiled kernel."""
    known = [s for s in image.symbols if s.startswith(PREFIX)]
    symbols = {s: address_of(s.removeprefix(PREFIX)) for s in known}
    loaded = load(image.data, [ENTRY], symbols)
    return LoadedKernel(image, _PROTOTYPE(loaded.addresses[ENTRY]), loaded)


def native(kernel: Kernel, target: Processor | None = None, extents: Extents = ()) -> LoadedKernel:
    """Compile a kernel and load it."""
    return link(build(kernel, target, extents))
