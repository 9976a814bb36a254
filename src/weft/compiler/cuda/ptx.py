"""PTX: what LLVM generates for NVIDIA's GPUs."""

import re

from ...errors import WeftError
from ..emit.code import LLModule
from ..native.machine import Processor, assembly

_SYSTEM = "nvptx64-nvidia-cuda"
# The version of the language: the oldest that knows the instructions of these processors.
_VERSION = {80: 71, 86: 71, 89: 78, 90: 78}
_EXTERN = re.compile(r"\.extern\s+\.func.*?(\w+)\s*(?:\(|;|$)", re.MULTILINE)


class UnresolvedSymbols(WeftError, NotImplementedError):
    """Raised for code that calls functions which do not exist on a GPU."""


def ptx_of(module: LLModule, sm: int) -> str:
    """A module as PTX for processors of compute capability `sm`/10.

    Code that calls external functions is refused: LLVM makes one of every unknown intrinsic.
    """
    version = _VERSION.get(sm, max(_VERSION.values()))
    text = assembly(module, Processor(f"sm_{sm}", f"+ptx{version}", _SYSTEM))
    if ".extern" in text:
        names = ", ".join(sorted(set(_EXTERN.findall(text)))) or "something external"
        raise UnresolvedSymbols(f"PTX cannot call {names}: no such function exists on a GPU")
    return text
