"""NVIDIA's GPUs through PyTorch: its context, its streams, its allocator, its graphs."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import cached_property, lru_cache
from hashlib import sha256
from threading import RLock
from typing import Any

import numpy as np
import torch

from ...core.record import record
from ..cache import keys
from ..cache.disk import cache
from ..collecting import no_collection
from ..ir.schedule import Schedule
from ..raw.arrays import RawArrays, arrays_on
from ..target import Measure
from . import driver
from .gpu import GridFunctions, GridWork, Launch
from .kernels import EmittedGrid, GridKernel
from .ptx import FEATURES
from .runtime.measure import measure_steps
from .tuning import tuning

# The address of PyTorch's current stream on a GPU, by its number; a PyTorch without CUDA has none.
raw_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", int)
# The number of the current GPU, once PyTorch has begun to use them.
_current_index: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", int)
_COMPILERS = 16  # threads, in each of which LLVM and the driver compile one kernel
_SAME = nullcontext()
_CAPTURING = RLock()  # of two threads, one captures at a time


@record
class _Code:
    """A kernel on its way to the GPU.

    digest  that of its text
    key     that of its text on the disk, if it is not there yet
    image   its machine code, unless it is loaded
    made    whether that is new
    """

    kernel: GridKernel
    digest: str
    key: str = ""
    image: bytes | None = None
    made: bool = False


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
        torch.empty(1, device=self.where)  # PyTorch begins to use it
        return driver.context(self.index)

    # Kernels

    def functions(self, works: Iterable[GridWork]) -> GridFunctions:
        with ThreadPoolExecutor(_COMPILERS) as pool, self.current():
            try:
                return self._functions(dict.fromkeys(works), pool)
            except BaseException:  # Ctrl-C, for one: what has not begun is not to
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _functions(self, works: Iterable[GridWork], pool: ThreadPoolExecutor) -> GridFunctions:
        """The code of works that differ."""
        context, codes = self._context, dict[GridWork, Future[_Code]]()
        driver.enter(context)
        chosen = tuning()
        for work in works:
            key = keys.digest("ptx", (work, self.sm, FEATURES, chosen))
            text = cache().fetch(key)
            if text is None:
                codes[work] = pool.submit(self._compile, key, work.emit(), context)
            else:
                codes[work] = self._fetch_image(_unpack(text), pool, context)
        loaded = {work: self._load(code.result()) for work, code in codes.items()}
        fetched = not any([code.key or code.made for code in loaded.values()])
        return GridFunctions({w: self._launcher(code) for w, code in loaded.items()}, fetched)

    def _compile(self, key: str, emitted: EmittedGrid, context: Any) -> _Code:
        """A kernel by LLVM and the driver; in any thread."""
        kernel = emitted.build(self.sm)
        return self._assemble(_Code(kernel, _digest(kernel), key), context)

    def _assemble(self, code: _Code, context: Any) -> _Code:
        """A kernel by the driver; in any thread."""
        if not code.kernel.grid or code.digest in self._loaded:
            return code
        return replace(code, image=driver.assemble(code.kernel, context), made=True)

    def _fetch_image(
        self, kernel: GridKernel, pool: ThreadPoolExecutor, context: Any
    ) -> Future[_Code]:
        """A kernel with its machine code, which is made if the disk has none."""
        code = _Code(kernel, _digest(kernel))
        if kernel.grid and code.digest not in self._loaded:
            image = cache().fetch(self._key(code.digest))
            if image is None:
                return pool.submit(self._assemble, code, context)
            code = replace(code, image=image)
        done: Future[_Code] = Future()
        done.set_result(code)
        return done

    def _key(self, digest: str) -> str:
        return keys.digest("cubin", (digest, self.sm, driver.version()))

    def _load(self, code: _Code) -> _Code:
        """Load a kernel; what is new is kept on the disk."""
        if code.key:
            cache().store(code.key, _pack(code.kernel))
        if code.image is None or code.digest in self._loaded:
            return code
        if code.made:
            cache().store(self._key(code.digest), code.image)
        function = driver.Function(code.image, code.kernel.name)
        if code.kernel.shared:
            function.allow_shared(code.kernel.shared)
        self._loaded[code.digest] = function
        return code

    def _launcher(self, code: _Code) -> Callable[[np.ndarray, list[int]], Launch]:
        kernel = code.kernel
        if not kernel.grid:
            return lambda words, positions: _nothing
        function = self._loaded[code.digest]

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
        if not stream:  # `ExternalStream(0)` is a new one, for which the default one does not wait
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
        # Freeing other programs' graphs would end the capture.
        with _CAPTURING, torch.cuda.stream(self._capturing), no_collection():
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


def _nothing() -> None:
    """Launch a grid without blocks."""


def _digest(kernel: GridKernel) -> str:
    return sha256(kernel.ptx.encode()).hexdigest()


def _pack(kernel: GridKernel) -> bytes:
    head = f"{kernel.name} {kernel.grid} {kernel.block} {kernel.shared}\n"
    return (head + kernel.ptx).encode()


def _unpack(entry: bytes) -> GridKernel:
    head, _, ptx = entry.decode().partition("\n")
    name, *sizes = head.split()
    return GridKernel(name, ptx, *map(int, sizes))
