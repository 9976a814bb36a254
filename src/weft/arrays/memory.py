"""Making the C library keep freed memory, so that large arrays reuse their pages."""

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
# Blocks up to this size come from the heap; larger ones are mapped, and given back when freed.
_LARGEST_KEPT = 1 << 30


def keep_freed_memory() -> None:
    """glibc only: fresh pages cost 6 to 8 times the arithmetic done on them."""
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT)
        mallopt(_M_TRIM_THRESHOLD, _LARGEST_KEPT)
        mallopt(_M_TOP_PAD, 64 << 20)
