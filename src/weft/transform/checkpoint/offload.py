"""Moving what is saved for the backward pass out of the memory that computing needs."""

import os
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol
from weakref import WeakValueDictionary, ref

from ...core import versions
from ...core.backends import BACKENDS, PYTHON_SCALARS
from ...core.box import BOXED
from ...core.node import Leaf, Node, ids
from ...core.recording import Packed
from ...core.settings import override_settings
from ...core.value import wrap
from .disk import Disk

# Arrays of fewer bytes stay where they are.
LEAST = 4096


class Moved(Protocol):
    """A value that was moved out."""

    def load(self) -> Any:
        """The array, where it was."""
        ...


class Place(Protocol):
    """Where values are moved to."""

    def store(self, raws: list[Any]) -> list[Any] | None:
        """Move out arrays that share their memory; None if they are to stay."""
        ...

    def settle(self) -> None:
        """Let go of what was moved out, though it may not be copied yet."""
        ...


class Host:
    """Host memory, for arrays on a GPU; those that are in host memory stay."""

    def __init__(self) -> None:
        self._transfers: Any = None

    def store(self, raws: list[Any]) -> list[Any] | None:
        xp = BACKENDS[raws[0].__class__]
        if xp.device_of(raws[0]) in ("cpu", "torch"):
            return None
        if self._transfers is None:
            from ...backend.torch.transfers import Transfers

            self._transfers = Transfers()
        return self._transfers.store(raws)

    def settle(self) -> None:
        if self._transfers is not None:
            self._transfers.settle()


def place_for(offload: str) -> Place:
    """The place that a config names."""
    return Host() if offload == "cpu" else Disk()


class _Handle:
    """A moved value that several nodes may save."""

    __slots__ = ("__weakref__", "_raw", "_when", "moved")

    def __init__(self, moved: Moved, raw: Any):
        self.moved = moved
        self._raw = ref(raw)
        self._when = next(ids)

    def is_of(self, raw: Any) -> bool:
        """Whether this array was moved, and not overwritten since."""
        last = versions.last_write(raw)
        return self._raw() is raw and (last is None or last >= self._when)


class Offload:
    """The hooks that move what nodes save to a place.

    Leaves (parameters) and what shares their memory stay: they are held anyway. A result that
    several nodes save is moved once; other memory may be overwritten by NumPy in between.
    """

    def __init__(self, place: Place):
        self._place = place
        self._leaves: dict[int, ref[Any]] = {}  # tensors by the memory that they have
        self._results: dict[int, ref[Any]] = {}  # the arrays that operations made, by id
        self._handles: WeakValueDictionary[int, _Handle] = WeakValueDictionary()

    def __call__(self, t: Any) -> Any:
        """What is kept of an argument of `wf.checkpoint`."""
        made = self._move(t._data)
        return t if made is None else made

    def unpack(self, kept: Any) -> Any:
        return wrap(kept.moved.load()) if kept.__class__ is _Handle else kept

    def pack_node(self, node: Node, y: Any) -> tuple[Any, ...]:
        """What a node saves, moved out."""
        for result in y if y.__class__ is tuple else (y,):
            if result is not None and _is_array(result):
                key = id(result)
                self._results[key] = ref(result, partial(_forget, self._results, key))
        saved, parents = node.saved or (), node.parents or ()
        for p in parents:
            tensor = p.tensor and p.tensor() if isinstance(p, Leaf) else None
            if tensor is not None and tensor._data.__class__ in BACKENDS:
                key = BACKENDS[tensor._data.__class__].owner(tensor._data)
                self._leaves[key] = ref(tensor, partial(_forget, self._leaves, key))
        if getattr(node.op.rule, "keep", None) is not None or len(saved) != len(parents) + 1:
            return self._pack(saved)
        both = zip(saved, (None, *parents), strict=True)
        return tuple([v if p.__class__ is Leaf else self._pack(v) for v, p in both])

    def _pack(self, value: Any) -> Any:
        if value.__class__ is tuple:
            return tuple([self._pack(v) for v in value])
        if value is None or value.__class__ in PYTHON_SCALARS or value.__class__ not in BACKENDS:
            return value
        handle = self._handles.get(id(value))
        if handle is None or not handle.is_of(value):
            handle = self._move(value)
        if handle is None:
            return value
        if self._results.get(id(value), _nothing)() is value:
            self._handles[id(value)] = handle
        return Packed(handle)

    def _move(self, raw: Any) -> _Handle | None:
        if raw.__class__ not in BACKENDS or raw.__class__ in BOXED or not _is_array(raw):
            return None
        xp = BACKENDS[raw.__class__]
        leaf = self._leaves.get(xp.owner(raw), _nothing)()
        if xp.nbytes(raw) < LEAST or (leaf is not None and xp.owner(leaf._data) == xp.owner(raw)):
            return None
        found = self._place.store([raw])
        return None if found is None else _Handle(found[0], raw)


def _nothing() -> None:
    return None


def _forget(known: dict[int, Any], key: int, gone: Any) -> None:
    if known.get(key) is gone:
        del known[key]


def _is_array(raw: Any) -> bool:
    return bool(raw.__class__.__weakrefoffset__)  # NumPy's scalars have none


def _moving(place: Place) -> AbstractContextManager[Any]:
    hook = Offload(place)
    return override_settings(saved_hooks=(hook, hook.unpack))


def save_on_cpu() -> AbstractContextManager[Any]:
    """A block in which what is saved for backward is kept in host memory.

    What is on a GPU is copied to pinned memory while the GPU computes on, and copied back before
    the backward pass gets there. Leaves, what is below 4 KiB, and what is in host memory already
    stay where they are.

    >>> import weft as wf
    >>> x = wf.tensor([3.0], requires_grad=True)
    >>> with wf.save_on_cpu():
    ...     y = (x * x).sum()
    >>> y.backward()[x].tolist()
    [6.0]
    """
    return _moving(Host())


def save_on_disk(folder: str | os.PathLike[str] | None = None) -> AbstractContextManager[Any]:
    """A block in which what is saved for backward is kept in a temporary file.

    folder  where the file is; by default in the system's folder for temporary files, which should
            not itself be in memory (tmpfs)

    The backward pass reads the pages of the file, so gradients have the same bits. Those pages
    are no allocations of NumPy: `wf.profile.Counter` does not count them, and the system may drop
    them at any time. Space is reused when graphs are freed; the file has no name and disappears
    with the last of them. Leaves and what is below 4 KiB stay in memory.

    >>> import weft as wf
    >>> x = wf.ones(10_000, requires_grad=True)
    >>> with wf.save_on_disk():
    ...     y = wf.exp(wf.sin(x)).sum()
    >>> wf.memory_stats().by_op.get("exp", 0)
    0
    >>> round(y.backward()[x][0].item(), 3)
    1.253
    """
    return _moving(Disk(folder))
