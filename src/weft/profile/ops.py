"""The profiler of operations: how long each takes, with its flops, bytes and roofline."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from os import PathLike
from types import TracebackType

from ..errors import ArgumentError
from . import gpu
from .census import census
from .counter import Counter, note_origins
from .events import Events, OpEvent
from .origins import Place, live_by_place, note_origins_of
from .page import Measured, StrategyCost, write_page
from .peaks import Peaks, least_seconds, peaks
from .recorder import Recorder, now
from .trace import write_trace
from .work import Work

_KEYS: dict[str, Callable[[OpEvent], str]] = {
    "op": lambda e: e.name,
    "line": lambda e: e.line,
    "op and line": lambda e: f"{e.name} at {e.line}",
    "op and sizes": lambda e: f"{e.name}({e.sizes})",
}


@dataclass(frozen=True)
class OpRow:
    """A row of an `OpTable`: what several operations took together.

    name             what they have in common
    calls            how many there were
    seconds          how long they ran
    self_seconds     without the operations inside of them
    share            `self_seconds` as a part of the time of the profile
    flops            floating-point operations; None: not known of any
    nbytes           bytes that were read and written; None: not known of any
    roofline         the least possible time as a part of that taken, at the machine's peaks; None:
                     not known. Above 1 the arrays were in the cache
    counted_seconds  of `self_seconds`, the part whose flops and bytes are known

    >>> import weft as wf
    >>> x = wf.ones((300, 300))
    >>> with wf.profile.OpProfiler() as profiler:
    ...     y = x @ x
    >>> row = profiler.table()["matmul"]
    >>> row.calls, row.flops, row.nbytes
    (1, 54000000, 1080000)
    """

    name: str
    calls: int
    seconds: float
    self_seconds: float
    share: float
    flops: int | None = None
    nbytes: int | None = None
    roofline: float | None = None
    counted_seconds: float = 0.0

    @property
    def gflops_per_second(self) -> float | None:
        """Billions of floating-point operations per second, of those that are counted."""
        return _rate(self.flops, self.counted_seconds)

    @property
    def gb_per_second(self) -> float | None:
        """Billions of bytes per second, of those that are counted."""
        return _rate(self.nbytes, self.counted_seconds)


def _rate(amount: int | None, seconds: float) -> float | None:
    return None if amount is None or not seconds else amount / seconds / 1e9


_HEAD = "{:<44}{:>8}{:>11}{:>11}{:>8}{:>10}{:>10}{:>9}{:>9}{:>10}"
_TITLES = ("", "calls", "total ms", "self ms", "share")
_TITLES += ("Mflop", "MB", "GFLOP/s", "GB/s", "roofline")


@dataclass(frozen=True)
class OpTable:
    """What operations took, the longest first; `print` shows it.

    rows     one for each operation, or line
    seconds  the time of the profile

    >>> import weft as wf
    >>> with wf.profile.OpProfiler() as profiler:
    ...     y = wf.tanh(wf.ones((1000, 1000)))
    >>> print(profiler.table())
               calls   total ms    self ms   share     Mflop        MB  GFLOP/s     GB/s  roofline
    tanh           1 ...
    """

    rows: tuple[OpRow, ...]
    seconds: float

    def __getitem__(self, name: str) -> OpRow:
        for row in self.rows:
            if row.name == name:
                return row
        known = ", ".join(repr(r.name) for r in self.rows[:20]) or "none"
        raise KeyError(f"no row {name!r}; there is {known}")

    def __str__(self) -> str:
        lines = [_HEAD.format(*_TITLES)]
        for r in self.rows:
            name = r.name if len(r.name) <= 42 else r.name[:41] + "…"
            lines.append(
                _HEAD.format(
                    *(name, r.calls, f"{1e3 * r.seconds:.3f}", f"{1e3 * r.self_seconds:.3f}"),
                    *(f"{100 * r.share:.1f} %", _number(r.flops, 1e6), _number(r.nbytes, 1e6)),
                    *(_number(r.gflops_per_second), _number(r.gb_per_second)),
                    "" if r.roofline is None else f"{100 * r.roofline:.0f} %",
                ).rstrip()
            )
        covered = sum(r.self_seconds for r in self.rows)
        rest = max(self.seconds - covered, 0.0)
        lines.append(
            f"{1e3 * self.seconds:.3f} ms in all, {1e3 * rest:.3f} of it outside of operations"
        )
        return "\n".join(lines)


def _number(value: float | None, unit: float = 1.0) -> str:
    return "" if value is None else f"{value / unit:,.1f}"


def table_of(
    events: Iterable[OpEvent], by: str, seconds: float, limits: Callable[[str], Peaks]
) -> OpTable:
    """The table of events.

    limits  from a device to its peaks
    """
    groups: dict[str, list[OpEvent]] = {}
    for e in events:
        if e.kind not in ("program", "launch"):
            groups.setdefault(_KEYS[by](e), []).append(e)
    rows = [_row(name, group, seconds, limits) for name, group in groups.items()]
    return OpTable(tuple(sorted(rows, key=lambda r: -r.self_seconds)), seconds)


def _row(name: str, group: list[OpEvent], total: float, limits: Callable[[str], Peaks]) -> OpRow:
    own = sum(e.self_seconds for e in group)
    counted = [e for e in group if e.nbytes is not None]
    taken = sum(e.self_seconds for e in counted)
    least = sum(_least(e, limits) for e in counted)
    flops = [e.flops for e in counted if e.flops is not None]
    return OpRow(
        *(name, len(group), sum(e.seconds for e in group), own, own / total if total else 0.0),
        flops=sum(flops) if flops else None,
        nbytes=sum(e.nbytes or 0 for e in counted) if counted else None,
        roofline=least / taken if taken and least else None,
        counted_seconds=taken,
    )


def _least(e: OpEvent, limits: Callable[[str], Peaks]) -> float:
    device = e.thread if e.thread.startswith("cuda:") else "cpu"
    found = least_seconds(Work(e.name, e.sizes, e.dtype, e.flops, e.nbytes), limits(device))
    return found or 0.0


class OpProfiler:
    """Measures each operation of a block: eager ones and pull-backs, and the steps of compiled
    functions, on the CPU and on GPUs.

    memory  whether live bytes are recorded too, and which lines hold them at the peak
    peaks   what the machine does at most, for the roofline; None: measured when it is needed

    Flops are counted from shapes: exactly for products, convolutions and attention, one for each
    element of other results. A pull-back that is not made of operations of the table (the product
    with a derivative, sums of cotangents) has a time and no counts. On a GPU, times are those
    between PyTorch's events around an operation; nothing waits for it. The steps of a compiled
    function are measured by its own native code; they run as always.

    It takes a microsecond or two for each operation and pull-back and, with `memory`, some more for
    each large new array; nothing when it is not running.

    >>> import weft as wf
    >>> x = wf.ones((500, 500), requires_grad=True)
    >>> with wf.profile.OpProfiler() as profiler:
    ...     loss = wf.tanh(x @ x).sum()
    ...     _ = loss.backward()
    >>> {"matmul", "matmul backward", "tanh"} <= {row.name for row in profiler.table().rows}
    True
    """

    def __init__(self, *, memory: bool = True, peaks: Peaks | None = None):
        self._memory = memory
        self._peaks = peaks
        self._recorder: Recorder | None = None
        self._undo = ExitStack()
        self._began = self._ended = 0
        self._before: dict[Place, int] = {}
        self._held: dict[str, int] = {}
        self._events: tuple[OpEvent, ...] | None = None

    # -- the block -------------------------------------------------------------------------------

    def start(self) -> "OpProfiler":
        """Begin to measure, and forget what was measured before; the profiler itself.

        >>> import weft as wf
        >>> profiler = wf.profile.OpProfiler().start()
        >>> y = wf.sin(wf.ones(3))
        >>> profiler.stop()
        >>> [event.name for event in profiler.events]
        ['sin']
        """
        if self._recorder is not None and not self._ended:
            raise ArgumentError("OpProfiler.start: it is measuring already; stop() it first")
        with ExitStack() as undo:
            recorder = Recorder(self._count(undo) if self._memory else None)
            gpu.wait()
            began = now()
            undo.enter_context(recorder.install())
            self._recorder, self._undo = recorder, undo.pop_all()
            self._events, self._began, self._ended = None, began, 0
        return self

    def _count(self, undo: ExitStack) -> Counter:
        """Begin to count bytes."""
        self._held = census().by_role
        counter = Counter().start()
        undo.callback(self._end_count, counter)
        note_origins_of(counter)
        self._before = live_by_place()
        return counter

    @staticmethod
    def _end_count(counter: Counter) -> None:
        if counter.is_counting:
            counter.stop()
        note_origins(counter, 0, 0)

    def stop(self) -> None:
        """Stop measuring.

        >>> import weft as wf
        >>> profiler = wf.profile.OpProfiler().start()
        >>> profiler.stop()
        >>> profiler.seconds > 0
        True
        """
        if self._recorder is None or self._ended:
            raise ArgumentError("OpProfiler.stop: nothing is measured; call start() first")
        with self._undo:  # it is closed, too, if the GPU reports an error of the block
            try:
                gpu.wait()
            finally:
                self._ended = now()

    def __enter__(self) -> "OpProfiler":
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _finished(self, what: str) -> Recorder:
        if self._recorder is None or not self._ended:
            raise ArgumentError(
                f"OpProfiler.{what}: nothing was measured yet; use it after the `with` block"
            )
        return self._recorder

    # -- what was measured -----------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        """How long the block took."""
        self._finished("seconds")
        return (self._ended - self._began) / 1e9

    @property
    def events(self) -> tuple[OpEvent, ...]:
        """What ran, in the order in which it ended."""
        recorder = self._finished("events")
        if self._events is None:
            self._events = tuple(Events(self._began, recorder.cuda).of(recorder.spans))
        return self._events

    @property
    def peak_bytes(self) -> int:
        """The most bytes of new NumPy arrays that were live at once; see `Counter`."""
        fullest = self._finished("peak_bytes").fullest
        return 0 if fullest is None else fullest.peak

    @property
    def peak_event(self) -> OpEvent | None:
        """The event in which, or before which, the most bytes were live."""
        fullest = self._finished("peak_event").fullest
        return max(self.events, key=lambda e: e.peak) if fullest else None

    @property
    def peak_contents(self) -> dict[str, int]:
        """The bytes that were live at the peak, by where their arrays were made."""
        fullest = self._finished("peak_contents").fullest
        event = self.peak_event
        if fullest is None or event is None:
            return {}
        found = {
            str(place): n - self._before.get(place, 0)
            for place, n in live_by_place(memoryview(fullest.held).cast("q")).items()
        }
        found = {name: n for name, n in sorted(found.items(), key=lambda i: -i[1]) if n > 0}
        inside, small = fullest.peak - fullest.live, fullest.live - sum(found.values())
        if inside > 0:
            found[f"temporary, in {event.name} at {event.line}"] = inside
        if small > 0:
            found["smaller arrays"] = small
        return found

    def table(self, by: str = "op") -> OpTable:
        """What operations took together, the longest first.

        by  "op", "line", "op and line" or "op and sizes"

        >>> import weft as wf
        >>> x = wf.ones((500, 500))
        >>> with wf.profile.OpProfiler() as profiler:
        ...     for _ in range(3):
        ...         y = wf.exp(x)
        >>> profiler.table()["exp"].calls
        3
        """
        if by not in _KEYS:
            raise ArgumentError(f"OpProfiler.table: by={by!r}, expected one of {', '.join(_KEYS)}")
        return table_of(self.events, by, self.seconds, self._limits)

    def _limits(self, device: str) -> Peaks:
        return peaks(device) if self._peaks is None else self._peaks

    # -- files -----------------------------------------------------------------------------------

    def save_trace(self, path: str | PathLike[str]) -> None:
        """Write the events as a trace that https://ui.perfetto.dev and Chrome open.

        path  of the file, JSON

        >>> import tempfile, weft as wf
        >>> with wf.profile.OpProfiler() as profiler:
        ...     y = wf.sin(wf.ones(3))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     profiler.save_trace(f"{folder}/trace.json")
        """
        write_trace(self.events, path)

    def save_report(self, path: str | PathLike[str], title: str = "Profile") -> None:
        """Write one HTML file with a timeline, the memory and a table of the operations.

        path   of the file
        title  its heading

        >>> import tempfile, weft as wf
        >>> with wf.profile.OpProfiler() as profiler:
        ...     y = wf.sin(wf.ones(3))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     profiler.save_report(f"{folder}/report.html")
        """
        self._write_report(path, title)

    def _write_report(
        self, path: str | PathLike[str], title: str, strategies: Sequence[StrategyCost] = ()
    ) -> None:
        tables = [("Operations", self.table()), ("Lines", self.table("line"))]
        write_page(
            Measured(
                *(title, self.seconds, self.events, tables),
                *(self.peak_bytes, self.peak_contents, self._held, strategies),
            ),
            path,
        )
