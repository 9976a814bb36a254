"""NumPy's arrays, for the compiler."""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...core.aval import Shape
from ...core.backends import BACKENDS
from ...core.types import Namespace, Raw

_numpy: Namespace = BACKENDS[np.ndarray]
_owner = _numpy.owner


class NumPyArrays:
    """NumPy's arrays: native code runs on them as they are."""

    kind = np.ndarray
    device = "cpu"
    host_runtime = False
    owner = staticmethod(_owner)
    shares_memory = staticmethod(np.shares_memory)
    is_frozen = staticmethod(_numpy.is_frozen)
    copy = staticmethod(_numpy.copy)
    overwrite = staticmethod(_numpy.overwrite)
    empty: Callable[..., np.ndarray] = staticmethod(np.empty)
    zeros: Callable[..., np.ndarray] = staticmethod(np.zeros)
    whole: Callable[..., np.ndarray] = staticmethod(np.asarray)
    dtype_of = staticmethod(_numpy.dtype_of)
    raw_dtype = staticmethod(_numpy.raw_dtype)

    def meets(self, raws: Iterable[np.ndarray], owners: Collection[int]) -> bool:
        for raw in raws:
            if (id(raw) if raw.base is None else _owner(raw)) in owners:
                return True
        return False

    def drop_shared(self, raws: Iterable[np.ndarray | None]) -> list[np.ndarray | None]:
        """Python's references to the arrays are all that there can be."""
        return [*raws]

    def maker(self, shape: Shape, dtype: np.dtype) -> Callable[[], np.ndarray]:
        return partial(np.empty, shape, dtype)

    def address(self, raw: np.ndarray) -> int:
        return raw.ctypes.data

    def note_write(self, raws: Sequence[Raw]) -> None:
        """NumPy counts no writes."""

    def is_here(self, raw: Any) -> bool:
        return True

    def obstacle(self, raw: np.ndarray, writes: bool) -> str:
        if type(raw) is not np.ndarray:
            return f"it is a {type(raw).__name__}"
        if not raw.flags.c_contiguous:
            return "it is not laid out row by row"
        if not raw.flags.aligned:
            return "it is misaligned"
        return "its memory is read-only" if writes and not raw.flags.writeable else ""

    def view(self, raw: np.ndarray) -> np.ndarray:
        return raw

    def of_view(self, array: np.ndarray) -> np.ndarray:
        return array


NUMPY = NumPyArrays()
