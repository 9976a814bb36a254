"""The GPUs of this machine: whether there are any, their memory, waiting for them, timing them.

>>> import weft as wf
>>> wf.cuda.device_count() > 0 or not wf.cuda.is_available()
True
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from . import errors
from .core.late import raise_late

__all__ = [
    "Event",
    "device_count",
    "is_available",
    "max_memory_allocated",
    "memory_allocated",
    "reset_peak_memory_stats",
    "synchronize",
]


def is_available() -> bool:
    """Whether there is a GPU that PyTorch can use.

    >>> import weft as wf
    >>> wf.cuda.is_available() == (wf.cuda.device_count() > 0)
    True
    """
    return find_spec("torch") is not None and import_module("torch").cuda.is_available()


def device_count() -> int:
    """How many GPUs there are: the devices "cuda:0", "cuda:1" and so on.

    >>> import weft as wf
    >>> wf.cuda.device_count() >= 0
    True
    """
    return import_module("torch").cuda.device_count() if is_available() else 0


def memory_allocated(device: "str | int | None" = None) -> int:
    """The bytes that arrays on a GPU take now.

    device  "cuda:1" or 1; None: the current one

    >>> import weft as wf
    >>> not wf.cuda.is_available() or wf.cuda.memory_allocated() >= 0
    True
    """
    return _cuda("memory_allocated").memory_allocated(_index("memory_allocated", device))


def max_memory_allocated(device: "str | int | None" = None) -> int:
    """The most bytes that arrays on a GPU took since `reset_peak_memory_stats`.

    device  "cuda:1" or 1; None: the current one

    >>> import weft as wf
    >>> not wf.cuda.is_available() or wf.cuda.max_memory_allocated() >= 0
    True
    """
    return _cuda("max_memory_allocated").max_memory_allocated(
        _index("max_memory_allocated", device)
    )


def reset_peak_memory_stats(device: "str | int | None" = None) -> None:
    """Let `max_memory_allocated` begin with what is allocated now.

    device  "cuda:1" or 1; None: the current one

    >>> import weft as wf
    >>> if wf.cuda.is_available():
    ...     wf.cuda.reset_peak_memory_stats()
    """
    cuda = _cuda("reset_peak_memory_stats")
    cuda.reset_peak_memory_stats(_index("reset_peak_memory_stats", device))


def synchronize(device: "str | int | None" = None) -> None:
    """Wait until a GPU has done everything that it was given; raise the errors that it tells of.

    device  "cuda:1" or 1; None: the current one

    >>> import weft as wf
    >>> if wf.cuda.is_available():
    ...     wf.cuda.synchronize()
    """
    _cuda("synchronize").synchronize(_index("synchronize", device))
    raise_late()


class Event:
    """A mark in the work that a GPU is given: whether it has been reached, and when.

    enable_timing  whether times can be read; without it an event costs less

    >>> import weft as wf
    >>> if wf.cuda.is_available():
    ...     start, end = wf.cuda.Event(), wf.cuda.Event()
    ...     start.record()
    ...     x = wf.ones((100, 100), device="cuda") @ wf.ones((100, 100), device="cuda")
    ...     end.record()
    ...     end.synchronize()
    ...     assert start.elapsed_time(end) >= 0.0
    """

    def __init__(self, enable_timing: bool = True):
        self._event: Any = _cuda("Event").Event(enable_timing=enable_timing)
        self._timed = enable_timing

    def record(self) -> None:
        """Set the mark after what the current device was given so far.

        >>> import weft as wf
        >>> if wf.cuda.is_available():
        ...     wf.cuda.Event().record()
        """
        self._event.record()

    def query(self) -> bool:
        """Whether the GPU has come to the mark; True if it was not set.

        >>> import weft as wf
        >>> not wf.cuda.is_available() or wf.cuda.Event().query()
        True
        """
        return self._event.query()

    def synchronize(self) -> None:
        """Wait until the GPU comes to the mark.

        >>> import weft as wf
        >>> if wf.cuda.is_available():
        ...     wf.cuda.Event().synchronize()
        """
        self._event.synchronize()

    def elapsed_time(self, end: "Event") -> float:
        """The milliseconds from this mark to another one, both of which were reached.

        end  the later event

        >>> import weft as wf
        >>> if wf.cuda.is_available():
        ...     start, end = wf.cuda.Event(), wf.cuda.Event()
        ...     start.record()
        ...     end.record()
        ...     end.synchronize()
        ...     assert start.elapsed_time(end) >= 0.0
        """
        if not isinstance(end, Event) or not (self._timed and end._timed):
            raise errors.ArgumentError(
                "Event.elapsed_time: expected two events that were made with enable_timing=True"
            )
        return self._event.elapsed_time(end._event)


def _cuda(what: str) -> Any:
    """PyTorch's CUDA, or an error if there is no GPU."""
    if find_spec("torch") is None:
        raise errors.DeviceError(f"cuda.{what}: needs PyTorch: pip install 'weft[torch]'")
    if not is_available():
        raise errors.DeviceError(f"cuda.{what}: this machine has no CUDA device")
    return import_module("torch").cuda


def _index(what: str, device: "str | int | None") -> int | None:
    """The index of a GPU by its name."""
    if device is None or device == "cuda":
        return None
    name = f"cuda:{device}" if isinstance(device, int) else str(device)
    kind, _, index = name.partition(":")
    if kind != "cuda" or not index.isdigit() or int(index) >= device_count():
        raise errors.DeviceError(
            f"cuda.{what}: device {device!r}; this machine has {device_count()} CUDA device(s), "
            "'cuda:0' and so on"
        )
    return int(index)


def __dir__() -> list[str]:
    return list(__all__)
