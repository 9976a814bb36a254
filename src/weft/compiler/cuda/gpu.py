"""`Gpu`: what executables need of a GPU. Tests have another one, which emulates grids."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from ...core.record import record
from ..ir.kernel import Kernel
from ..ir.schedule import Schedule
from ..raw.arrays import RawArrays
from ..target import Measure
from .kernels import EmittedGrid, emit_kernel
from .stage import Stage, emit_stage


@record
class GridWork:
    """A kernel, or a stage of something else, to launch.

    aligned  what all its pointers are multiples of, in bytes, or more
    stops    whether it does nothing if a cell is not 0, which is its last parameter
    """

    what: Kernel | Stage
    aligned: int
    stops: bool = False

    def emit(self) -> EmittedGrid:
        """Its code."""
        if isinstance(self.what, Kernel):
            return emit_kernel(self.what, self.aligned, self.stops)
        return emit_stage(self.what, self.stops)


class Launch(Protocol):
    """A kernel with its parameters."""

    def __call__(self) -> None:
        """Launch it on the current stream."""
        ...


@record
class GridFunctions:
    """Functions from the addresses of parameters to launches, by what they compute.

    A launch reads the addresses, from a NumPy array of words at these positions, when it is called.
    from_disk  whether all code came from the disk cache
    """

    launches: Mapping[GridWork, Callable[[np.ndarray, list[int]], Launch]]
    from_disk: bool


class Replay(Protocol):
    """A captured graph."""

    def __call__(self) -> None:
        """Launch it on the current stream."""
        ...


class Gpu(Protocol):
    """One GPU.

    name    Weft's name of the device
    sm      ten times its compute capability
    arrays  its raw arrays
    """

    @property
    def name(self) -> str: ...

    @property
    def sm(self) -> int: ...

    @property
    def arrays(self) -> RawArrays: ...

    def current(self) -> AbstractContextManager[Any]:
        """A block in which it is the current one."""
        ...

    def functions(self, works: Iterable[GridWork]) -> GridFunctions:
        """The code of kernels, loaded."""
        ...

    def writer(self, address: int, count: int) -> tuple[Callable[[], None], np.ndarray]:
        """A function that writes 64-bit words there, in the order of the current stream.

        It writes those that the array holds when it is called, which may change right after.
        """
        ...

    def within(self, stream: Any) -> AbstractContextManager[Any]:
        """A block in another thread in which it and a stream are the current ones."""
        ...

    def wait(self) -> None:
        """Wait until all that was launched is done."""
        ...

    def pinned(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """Zeros in the host's memory that it writes into by itself."""
        ...

    def stream(self) -> Any:
        """The current stream, which can be compared."""
        ...

    def follow(self, before: Any) -> None:
        """Let the current stream wait for another one."""
        ...

    def measure(
        self,
        schedule: Schedule,
        actions: Sequence[Callable[[], None]],
        after: Callable[[int], None],
    ) -> Sequence[Measure] | None:
        """What each step takes; `after` is called with the number of each that was done."""
        ...

    def capture(self, work: Callable[[], None]) -> Replay:
        """Capture what a function launches as a graph, without running it."""
        ...
