"""The C library's memory: making it keep what is freed, and asking how much is taken."""

import ctypes
import sys
from functools import lru_cache
from typing import Any

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
# Blocks up to this size come from the heap; larger ones are mapped, and given back when freed.
_LARGEST_KEPT = 1 << 30


class _Usage(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def keep_freed_memory() -> None:
    """glibc only: fresh pages cost 6 to 8 times the arithmetic done on them."""
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT)
        mallopt(_M_TRIM_THRESHOLD, _LARGEST_KEPT)
        mallopt(_M_TOP_PAD, 64 << 20)


@lru_cache(maxsize=1)
def _mallinfo() -> Any:
    """glibc's function, since its version 2.33; None elsewhere."""
    found = getattr(ctypes.CDLL(None), "mallinfo2", None) if sys.platform == "linux" else None
    if found is not None:
        found.restype = _Usage
    return found


def allocated_bytes() -> int | None:
    """The bytes that `malloc` has given out in this process; None if it does not say."""
    ask = _mallinfo()
    if ask is None:
        return None
    usage = ask()
    return usage.uordblks + usage.hblkhd
