"""Counting the live bytes of NumPy arrays, exactly, with a limit that is kept."""

import ctypes
from collections.abc import Callable
from threading import RLock, get_ident
from types import TracebackType
from typing import Any

from ..compiler.native.allocations import (
    UNLIMITED,
    Record,
    handler,
    make_handler,
    name_of,
    record_of,
    records_of,
    use_handler,
)
from ..errors import ArgumentError

_PRESSURE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
_PATIENCE = 100  # so often in a row room may be made without anything being freed
_DEFAULT = "default_allocator"  # NumPy's own


def counted_now() -> tuple[int, int] | None:
    """Live and peak bytes of the innermost `Counter` that counts here; None: there is none."""
    words = record_of(handler())
    return None if words is None else (words[Record.LIVE], words[Record.PEAK])


class Counter:
    """Counts the bytes of the NumPy arrays that a block makes, while it runs and after it.

    Every array's memory counts, temporaries inside of operations included, from its allocation
    until it is freed, also after the block. Arrays that existed before do not count, nor do views.
    A block inside another one counts in both. Compiled programs' arenas are NumPy arrays and are
    counted if they are allocated in the block: at the first call, or when several threads call.

    Counted are this thread and the threads of Weft's own kernels. A thread that the program starts
    counts if it runs in a copy of the context (`contextvars.copy_context().run`). PyTorch has no
    counter of CPU memory; on CUDA, ask `torch.cuda.memory_allocated` and `max_memory_allocated`.
    Not counted are stack memory, Python's objects, and what other libraries allocate themselves
    (BLAS's buffers, LAPACK's work arrays, SciPy's compiled functions).

    >>> import weft as wf
    >>> with wf.profile.Counter() as counter:
    ...     x = wf.ones((1000,), dtype="float64")
    ...     y = wf.sin(wf.exp(x))
    >>> counter.live, counter.peak
    (16000, 24000)
    >>> del x
    >>> counter.live
    8000
    """

    def __init__(self) -> None:
        self._capsule: Any = None
        self._words: Any = None
        self._outer: Any = None
        self._before: Any = None
        self._callback: Any = None
        self._pressed: Callable[[int], bool] | None = None
        self._lock = RLock()
        self._asked = 0  # the thread that is making room
        self._vain = 0  # how often in a row that freed nothing
        self._failure: BaseException | None = None

    # -- the block -------------------------------------------------------------------------------

    def start(self) -> "Counter":
        """Count from now on; the counter itself.

        A counter that was stopped goes on.

        >>> import weft as wf
        >>> counter = wf.profile.Counter().start()
        >>> x = wf.zeros((4, 4), dtype="float32")
        >>> counter.stop()
        >>> counter.live
        64
        """
        if self._before is not None:
            raise ArgumentError("Counter.start: it is counting already; make another Counter")
        around = handler()
        ours = record_of(around) is not None
        if not ours and name_of(around) != _DEFAULT:
            raise ArgumentError(
                f"Counter.start: NumPy allocates with {name_of(around)!r}, which another library "
                "has set; set NumPy's own allocator back first"
            )
        outer = around if ours else None
        if self._capsule is None:
            self._make(outer)
        elif self._outer is not outer:
            raise ArgumentError(
                "Counter.start: it counted in another block before; make another Counter"
            )
        self._before = use_handler(self._capsule)
        return self

    def _make(self, outer: Any) -> None:
        self._capsule, self._outer = make_handler(outer), outer
        words = record_of(self._capsule)
        if self._words is not None:  # a limit that was set before
            words[Record.LIMIT] = self._words[Record.LIMIT]
            words[Record.PRESSURE] = self._words[Record.PRESSURE]
        self._words = words

    def stop(self) -> None:
        """Do not count arrays that are made from now on.

        Those that were counted still count until they are freed.

        >>> import weft as wf
        >>> counter = wf.profile.Counter().start()
        >>> counter.stop()
        >>> x = wf.ones((5,))
        >>> counter.live
        0
        """
        if self._before is None:
            raise ArgumentError("Counter.stop: it is not counting; call start() first")
        if handler() is not self._capsule:
            raise ArgumentError(
                "Counter.stop: a block inside it is still counting, or it was started in another "
                "thread; stop that first, and stop where it was started"
            )
        use_handler(self._before)
        self._before = None

    def __enter__(self) -> "Counter":
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # -- the counts ------------------------------------------------------------------------------

    def _read(self, at: Record) -> int:
        return 0 if self._words is None else self._words[at]

    @property
    def live(self) -> int:
        """Bytes that are allocated now."""
        return self._read(Record.LIVE)

    @property
    def peak(self) -> int:
        """The most bytes that were live at once, since the start or `reset_peak()`."""
        return self._read(Record.PEAK)

    @property
    def allocations(self) -> int:
        """How many times memory was allocated."""
        return self._read(Record.COUNT)

    def counts(self, array: Any) -> bool:
        """Whether the memory of a NumPy array counts here.

        array  the array that owns the memory, not a view

        >>> import numpy as np
        >>> import weft as wf
        >>> before = np.ones(10)
        >>> with wf.profile.Counter() as counter:
        ...     counter.counts(before), counter.counts(np.ones(10))
        (False, True)
        """
        return self._words is not None and ctypes.addressof(self._words) in records_of(array)

    @property
    def is_counting(self) -> bool:
        """Whether it was started and not stopped."""
        return self._before is not None

    def reset_peak(self) -> None:
        """Let the peak begin again at what is live now.

        >>> import weft as wf
        >>> with wf.profile.Counter() as counter:
        ...     _ = wf.zeros((1000,), dtype="float64")
        ...     del _
        ...     counter.reset_peak()
        >>> counter.peak
        0
        """
        if self._words is not None:
            self._words[Record.PEAK] = self._words[Record.LIVE]

    # -- the limit -------------------------------------------------------------------------------

    def limit(self, nbytes: int | None, on_pressure: Callable[[int], bool] | None = None) -> None:
        """Never let more bytes than this be live at once.

        An allocation that would pass the limit fails: NumPy raises MemoryError. Before that,
        `on_pressure` is called, in the middle of whatever asks for memory: it may drop arrays, and
        returns whether to try again. It is asked again as long as it frees something. If it raises
        an exception, the allocation fails, and the exception is in `failure`.

        nbytes       the limit in bytes; None: no limit
        on_pressure  called with the bytes of the allocation; None: fail at once

        >>> import numpy as np
        >>> import weft as wf
        >>> kept = []
        >>> with wf.profile.Counter() as counter:
        ...     counter.limit(10_000, lambda size: kept.clear() or True)
        ...     for _ in range(20):
        ...         kept.append(np.ones(100))
        >>> counter.peak <= 10_000, len(kept)
        (True, 8)
        """
        if nbytes is not None and nbytes < 0:
            raise ArgumentError(f"Counter.limit: {nbytes} bytes, expected 0 or more, or None")
        if self._words is None:  # not begun: kept aside until it is
            self._words = (ctypes.c_int64 * Record.SIZE)()
        if on_pressure is not None and on_pressure == self._pressed:  # it may be running now
            self._words[Record.LIMIT] = UNLIMITED if nbytes is None else nbytes
            return
        self._callback, before = None, self._callback
        self._pressed = on_pressure
        place = 0
        if on_pressure is not None:
            self._callback = _PRESSURE(self._make_room(on_pressure))
            place = ctypes.cast(self._callback, ctypes.c_void_p).value or 0
        self._words[Record.PRESSURE] = place
        self._words[Record.LIMIT] = UNLIMITED if nbytes is None else nbytes
        del before  # only now nobody can call it

    @property
    def failure(self) -> BaseException | None:
        """What `on_pressure` raised last."""
        return self._failure

    def _make_room(self, on_pressure: Callable[[int], bool]) -> Callable[[int], int]:
        """The function that native code calls: it raises nothing, and ends."""

        def call(size: int) -> int:
            # What makes room may not allocate beyond the limit itself; other threads wait.
            if self._asked == get_ident():
                return 0
            with self._lock:
                try:
                    self._asked = get_ident()
                    live, limit = self.live, self._read(Record.LIMIT)
                    wanted = bool(on_pressure(size))
                    freed = self.live < live or self._read(Record.LIMIT) > limit
                    # Another thread may have taken what was freed, but not again and again.
                    self._vain = 0 if freed else self._vain + 1
                    return int(wanted and self._vain < _PATIENCE)
                except BaseException as failure:
                    self._failure = failure
                    return 0
                finally:
                    self._asked = 0

        return call

    def __del__(self) -> None:
        # Arrays and contexts may go on with the record, but not with this object's function.
        if self._capsule is not None:
            self._words[Record.LIMIT] = UNLIMITED
            self._words[Record.PRESSURE] = 0


def sampler(counter: Counter) -> Callable[[], tuple[int, int]]:
    """A function: the live bytes, and the most since it was called last. It is quick."""
    live, peak = int(Record.LIVE), int(Record.PEAK)
    words = memoryview(counter._words).cast("B").cast("q")  # quicker to read than ctypes' array

    def sample(held: Counter = counter) -> tuple[int, int]:  # the words are freed with it
        most = words[peak]
        now = words[peak] = words[live]
        return now, max(most, now)

    return sample


def note_origins(counter: Counter, function: int, smallest: int) -> None:
    """Call a native function of an allocation's bytes for each of at least `smallest`.

    Its result, where and when, is stored beside the array (`compiler/native/allocations.py`).

    function  its address; it must exist as long as the process; 0: none
    """
    counter._words[Record.SMALLEST] = smallest
    counter._words[Record.ORIGIN] = function
