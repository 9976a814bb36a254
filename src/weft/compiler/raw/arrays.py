"""`RawArrays`: the raw arrays of one device as the frontend and executables use them."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from ...core.aval import Shape
from ...core.types import Raw


class RawArrays(Protocol):
    """The raw arrays of one device.

    A variant chooses it once, by the device of its trace (`arrays_on`).

    kind          the class of the arrays; the fast path accepts no other
    device        Weft's name of the device
    host_runtime  whether executables of the CPU's kind run on views of the arrays (`view`); else
                  an executable takes and gives the arrays themselves
    """

    device: str
    host_runtime: bool

    @property
    def kind(self) -> type[Any]: ...

    # Memory

    def owner(self, raw: Raw, /) -> int:
        """The identity of the memory of an array, as `core.versions` has it."""
        ...

    def meets(self, raws: Iterable[Raw], owners: Collection[int], /) -> bool:
        """Whether any of the arrays lies in memory of these owners."""
        ...

    def shares_memory(self, a: Raw, b: Raw, /) -> bool:
        """Whether two arrays have an element in common."""
        ...

    def is_frozen(self, raw: Raw, /) -> bool:
        """Whether writers must copy first."""
        ...

    def drop_shared(self, raws: Iterable[Raw | None], /) -> list[Raw | None]:
        """None for arrays whose memory others hold; Python's references to them do not count."""
        ...

    def address(self, raw: Raw, /) -> int:
        """Where its first element is."""
        ...

    # Arrays

    def empty(self, shape: Shape, dtype: np.dtype, /) -> Raw:
        """A new array."""
        ...

    def maker(self, shape: Shape, dtype: np.dtype, /) -> Callable[[], Raw]:
        """A quick function that makes a new array; their GPU must be the current one."""
        ...

    def zeros(self, shape: Shape, dtype: np.dtype, /) -> Raw:
        """A new array of zeros."""
        ...

    def copy(self, raw: Raw, /) -> Raw:
        """A copy."""
        ...

    def overwrite(self, raw: Raw, value: Raw, /) -> None:
        """Write into the memory of an array."""
        ...

    def whole(self, value: Any, /) -> Raw:
        """An array or a number as an array of this kind."""
        ...

    def note_write(self, raws: Sequence[Raw], /) -> None:
        """Tell the library that native code writes into these arrays."""
        ...

    # What executables check

    def dtype_of(self, raw: Raw, /) -> np.dtype:
        """Weft's dtype of an array."""
        ...

    def raw_dtype(self, dtype: np.dtype, /) -> Any:
        """The library's own name of a dtype; there is one object for each."""
        ...

    def is_here(self, raw: Raw, /) -> bool:
        """Whether an array of this kind is on this device."""
        ...

    def obstacle(self, raw: Raw, writes: bool, /) -> str:
        """Why a kernel cannot use an array of the right shape and dtype in place; "" if it can.

        writes  whether it writes into the array
        """
        ...

    # NumPy's arrays of the same memory, where `host_runtime` is true

    def view(self, raw: Raw, /) -> np.ndarray:
        """The same memory as a NumPy array; a copy of what has no such memory."""
        ...

    def of_view(self, array: np.ndarray, /) -> Raw:
        """An array of this kind in the memory of a NumPy array."""
        ...


def arrays_on(device: str) -> RawArrays:
    """The raw arrays of a device, by Weft's name of it."""
    if device == "cpu":
        from .numpy_arrays import NUMPY

        return NUMPY
    from .torch_arrays import TorchArrays  # only now: it loads torch

    return TorchArrays.on(device)
