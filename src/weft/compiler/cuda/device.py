"""NVIDIA's GPUs through PyTorch: its context, its streams, its allocator, its graphs."""

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import Any

import numpy as np
import torch

from ..cache import keys
from ..cache.disk import cache
from ..ir.schedule import Schedule
from ..raw.arrays import RawArrays, arrays_on
from ..target import Measure
from . import driver
from .gpu import GridFunctions, GridWork, Launch
from .kernels import GridKernel
from .ptx import FEATURES
from .runtime.measure import measure_steps

# The address of PyTorch's current stream on a GPU, by its number; a PyTorch without CUDA has none.
raw_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", int)
# The number of the current GPU, once PyTorch has begun to use them.
_current_index: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", int)
_ASSEMBLERS = 8  # threads, in each of which the driver assembles one kernel


_SAME = nullcontext()


class NvidiaGpu:
    """One GPU; `gpu_of` gives the one object of a device."""

    def __init__(self, name: str):
        self.name = name
        self.arrays: RawArrays = arrays_on(name)
        self.where = torch.device(name)
        self.index: int = self.where.index or 0
        self.sm: int = driver.compute_capability(self.index)
        self._loaded: dict[str, driver.Function] = {}  # by the digest of the text

    def current(self) -> AbstractContextManager[Any]:
        return _SAME if _current_index() == self.index else torch.cuda.device(self.where)

    @cached_property
    def _context(self) -> Any:
        with torch.cuda.device(self.where):
            torch.empty(1, device=self.where)  # which makes it
            return driver.context()

    # Kernels

    def functions(self, works: Iterable[GridWork]) -> GridFunctions:
        texts: dict[GridWork, GridKernel] = {}
        images: dict[str, Any] = {}  # machine code, or its future, by the digest of the text
        fetched = True
        with ThreadPoolExecutor(_ASSEMBLERS) as pool, self.current():
            context = self._context
            for work in dict.fromkeys(works):
                kernel, known = self._text(work)
                texts[work], digest = kernel, sha256(kernel.ptx.encode()).hexdigest()
                if not kernel.grid or digest in self._loaded or digest in images:
                    continue
                image = cache().fetch(self._key(digest))
                fetched = fetched and known and image is not None
                images[digest] = image or pool.submit(driver.assemble, kernel, context)
            for kernel in texts.values():
                digest = sha256(kernel.ptx.encode()).hexdigest()
                if digest in images:
                    self._load(digest, kernel, images.pop(digest))
        return GridFunctions({w: self._launcher(k) for w, k in texts.items()}, fetched)

    def _text(self, work: GridWork) -> tuple[GridKernel, bool]:
        """A kernel's text, and whether the disk had it."""
        key = keys.digest("ptx", (work, self.sm, FEATURES))
        found = cache().fetch(key)
        if found is not None:
            return _unpack(found), True
        made = work.build(self.sm)
        cache().store(key, _pack(made))
        return made, False

    def _key(self, digest: str) -> str:
        return keys.digest("cubin", (digest, self.sm, driver.version()))

    def _load(self, digest: str, kernel: GridKernel, image: Any) -> None:
        if not isinstance(image, bytes):
            image = image.result()
            cache().store(self._key(digest), image)
        function = driver.Function(image, kernel.name)
        if kernel.shared:
            function.allow_shared(kernel.shared)
        self._loaded[digest] = function

    def _launcher(self, kernel: GridKernel) -> Callable[[np.ndarray, list[int]], Launch]:
        if not kernel.grid:
            return lambda words, positions: _nothing
        function = self._loaded[sha256(kernel.ptx.encode()).hexdigest()]

        def bind(words: np.ndarray, positions: list[int]) -> Launch:
            base = words.ctypes.data
            table = np.array([base + 8 * i for i in positions], np.uint64)
            launch, at = function.launch, table.ctypes.data
            grid, block, shared, index = kernel.grid, kernel.block, kernel.shared, self.index

            def go(_held: Any = (words, table)) -> None:
                launch(grid, block, shared, at, raw_stream(index))

            return go

        return bind

    # Memory and streams

    @cached_property
    def _writer(self) -> driver.Writer:
        return driver.Writer()

    def writer(self, address: int, count: int) -> tuple[Callable[[], None], np.ndarray]:
        write, words = self._writer.to(address, count)
        index = self.index
        return lambda: write(raw_stream(index)), words

    @contextmanager
    def within(self, stream: int) -> Iterator[None]:
        driver.enter(self._context)
        with torch.cuda.stream(self._named(stream)):
            yield

    def wait(self) -> None:
        torch.cuda.synchronize(self.where)

    def pinned(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        return torch.zeros(shape, dtype=self.arrays.raw_dtype(dtype), pin_memory=True)

    def stream(self) -> int:
        return raw_stream(self.index)

    def follow(self, before: int) -> None:
        torch.cuda.current_stream(self.where).wait_stream(self._named(before))

    def _named(self, stream: int) -> torch.cuda.Stream:
        """PyTorch's object for the address of a stream."""
        if (
            not stream
        ):  # `ExternalStream(0)` is a new one, which the default stream does not wait for
            return torch.cuda.default_stream(self.where)
        return torch.cuda.ExternalStream(stream, self.where)

    def measure(
        self,
        schedule: Schedule,
        actions: Sequence[Callable[[], None]],
        after: Callable[[int], None],
    ) -> list[Measure]:
        return measure_steps(schedule, actions, after)

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self._capturing), _no_collection():
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                work()
            except BaseException:
                with suppress(RuntimeError):  # what invalidated the capture is the error to tell of
                    graph.capture_end()
                # PyTorch's allocator may still take what this stream allocates for the graph's.
                del self._capturing
                raise
            graph.capture_end()
        return graph.replay

    @cached_property
    def _capturing(self) -> torch.cuda.Stream:
        return torch.cuda.Stream(self.where)


@lru_cache(maxsize=None)
def gpu_of(device: str) -> NvidiaGpu:
    """The GPU of a device, by Weft's name of it."""
    return NvidiaGpu(device)


@contextmanager
def _no_collection() -> Iterator[None]:
    """A block without garbage collection: freeing other programs' graphs would end a capture."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _nothing() -> None:
    """Launch a grid without blocks."""


def _pack(kernel: GridKernel) -> bytes:
    head = f"{kernel.name} {kernel.grid} {kernel.block} {kernel.shared}\n"
    return (head + kernel.ptx).encode()


def _unpack(entry: bytes) -> GridKernel:
    head, _, ptx = entry.decode().partition("\n")
    name, *sizes = head.split()
    return GridKernel(name, ptx, *map(int, sizes))
