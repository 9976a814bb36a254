"""Loops over epochs whose batches are functions of an epoch's number, with an exact cursor."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextvars import copy_context
from dataclasses import replace
from typing import Any

from .. import errors
from ..core.differences import differences
from ..core.settings import current
from .parts import Part, Share


class EpochLoader(ABC):
    """The cursor of a loader: what `DataLoader` says of loops, epochs and states.

    A loader gives the number of batches, what gives its cursor a meaning, and a function that
    makes batch k of an epoch; that function may depend on the epoch's number, and on nothing else.

    workers   threads that prepare batches; 0: the loop itself does
    prefetch  batches each worker may be ahead of the loop
    """

    def __init__(self, workers: int, prefetch: int):
        self.workers: int = workers
        self.prefetch: int = prefetch
        self._epoch = self._position = 0
        self._begun = 0  # how many epochs loops have begun
        self._continues = False  # whether the next loop begins at the cursor
        self._loads = 0  # how many states were loaded

    @abstractmethod
    def __len__(self) -> int:
        """How many batches an epoch has."""

    @abstractmethod
    def _meaning(self) -> dict[str, Any]:
        """What must be the same where a cursor continues: plain values by name."""

    @abstractmethod
    def _maker(self, epoch: int) -> Callable[[int, Callable[[], bool]], Any]:
        """(k, stopped) -> batch k of an epoch; None if stopped before it was complete."""

    def _maker_of_parts(
        self, epoch: int, part: Part
    ) -> Callable[[int, Callable[[], bool]], Share | None]:
        """As `_maker`, of a rank's part of each batch; only its samples are loaded."""
        raise errors.ArgumentError(
            f"{type(self).__name__}: cannot give each rank a part of a batch; define "
            "_maker_of_parts(epoch, part), whose function makes the Share of batch k of an epoch "
            "from part.of(samples) and part.counts(len(samples))"
        )

    @abstractmethod
    def _check_length(self) -> None:
        """Raise if the data is not what it was when the loader was made."""

    @property
    def epoch(self) -> int:
        """The number of the epoch that the cursor is in."""
        return self._epoch

    @property
    def position(self) -> int:
        """How many batches of this epoch have been handed out."""
        return self._position

    def state_dict(self) -> dict[str, Any]:
        """The cursor, and what gives it its meaning: plain values.

        Batches that workers have prepared and the loop has not had yet do not count.

        >>> import weft as wf
        >>> loader = wf.train.DataLoader(wf.train.TensorDataset(wf.arange(4)), batch_size=2)
        >>> first = next(iter(loader))
        >>> loader.state_dict()["position"]
        1
        """
        return {"epoch": self._epoch, "position": self._position, **self._meaning()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where a `state_dict()` was taken; refused if it is of other data or settings.

        state  what `state_dict()` gave

        The next loop gives the rest of that epoch's batches. A loop that is running can not go
        on: begin a new one.

        >>> import weft as wf
        >>> loader = wf.train.DataLoader(wf.train.TensorDataset(wf.arange(4)), batch_size=2)
        >>> first = next(iter(loader))
        >>> loader.load_state_dict(loader.state_dict())
        >>> [x.tolist() for (x,) in loader]
        [[2, 3]]
        """
        what = f"{type(self).__name__}.load_state_dict"
        if not isinstance(state, Mapping):
            raise errors.StateMismatch(
                f"{what}: got {type(state).__name__}, expected what state_dict() gives"
            )
        differences(self.state_dict(), state).refuse(what)
        other = [
            f"{name} ({mine} here, {state[name]} in the state)"
            for name, mine in self._meaning().items()
            if state[name] != mine
        ]
        if other:
            raise errors.StateMismatch(
                f"{what}: the state is of a loader with another {', '.join(other)}; it continues "
                "only a loader of the same data and settings"
            )
        epoch, position = state["epoch"], state["position"]
        if epoch < 0 or not 0 <= position <= len(self):
            raise errors.StateMismatch(
                f"{what}: epoch {epoch}, position {position}: expected an epoch ≥ 0 and a position "
                f"from 0 to {len(self)}"
            )
        self._epoch, self._position, self._begun = epoch, position, epoch
        self._continues, self._loads = True, self._loads + 1

    @property
    def continues(self) -> bool:
        """Whether the next loop goes on at the cursor, as after `load_state_dict`."""
        return self._continues

    def next_state(self) -> dict[str, Any]:
        """The cursor at which the next loop begins, as a `state_dict()`.

        >>> import weft as wf
        >>> loader = wf.train.DataLoader(wf.train.TensorDataset(wf.arange(4)), batch_size=2)
        >>> loader.next_state()["epoch"]
        0
        """
        begin = {} if self._continues else {"epoch": self._begun, "position": 0}
        return self.state_dict() | begin

    def __iter__(self) -> Iterator[Any]:
        """All batches of an epoch, or after `load_state_dict` the rest of them."""
        self._check_length()
        return self._batches(self._loads)

    def parts(self, part: Part) -> Iterator[Share]:
        """A loop as `iter()` of the loader begins it, over a rank's part of each batch.

        part  whose rank it is; the cursor is the same on all ranks

        >>> import weft as wf
        >>> from weft.train.parts import Part
        >>> loader = wf.train.DataLoader(wf.train.TensorDataset(wf.arange(4)), batch_size=3)
        >>> [share.batch[0].tolist() for share in loader.parts(Part(0, 2))]
        [[0, 1], [3]]
        """
        self._check_length()
        return self._batches(self._loads, part)

    def all_parts(self, part: Part) -> Iterator[Share]:
        """A rank's part of `all_batches`; the cursor stays where it is.

        part  whose rank it is

        >>> import weft as wf
        >>> from weft.train.parts import Part
        >>> loader = wf.train.DataLoader(wf.train.TensorDataset(wf.arange(4)), batch_size=3)
        >>> [(x.batch[0].tolist(), x.counts) for x in loader.all_parts(Part(1, 2))]
        [([2], True), ([3], False)]
        """
        self._check_length()
        return self._make_batches(self._epoch, 0, part)

    def all_batches(self) -> Iterator[Any]:
        """All batches of the epoch that the cursor is in; the cursor stays where it is.

        >>> import weft as wf
        >>> loader = wf.train.DataLoader(wf.train.TensorDataset(wf.arange(4)), batch_size=2)
        >>> [x.tolist() for (x,) in loader.all_batches()]
        [[0, 1], [2, 3]]
        """
        self._check_length()
        return self._make_batches(self._epoch, 0)

    def _batches(self, loads: int, part: Part | None = None) -> Iterator[Any]:
        self._check_loads(loads)
        begin = self.next_state()
        epoch, position = begin["epoch"], begin["position"]
        self._continues, self._begun = False, max(self._begun, epoch + 1)
        made: Any = self._make_batches(epoch, position, part)
        try:
            for batch in made:
                self._check_loads(loads)
                position += 1
                self._epoch, self._position = epoch, position
                yield batch
                del batch  # not kept alive while waiting for the next one
                self._check_loads(loads)
        finally:
            made.close()
        self._check_loads(loads)
        self._epoch, self._position = self._begun, 0

    def _check_loads(self, loads: int) -> None:
        if self._loads != loads:
            raise errors.ArgumentError(
                f"{type(self).__name__}: load_state_dict() was called during this loop, which "
                "cannot go on; begin a new loop, which continues from the loaded state"
            )

    def _make_batches(self, epoch: int, position: int, part: Part | None = None) -> Iterator[Any]:
        """An epoch's batches from a position on, or parts of them, made here or by threads."""
        make = self._maker(epoch) if part is None else self._maker_of_parts(epoch, part)
        numbers = range(position, len(self))
        if self.workers:
            return _ahead(make, numbers, self.workers, self.workers * self.prefetch)
        return (make(k, lambda: False) for k in numbers)


def _ahead(make: Callable[..., Any], numbers: range, workers: int, depth: int) -> Iterator[Any]:
    """make(k) for each number in order, by threads that are at most `depth` ahead.

    Each thread runs under the settings of the loop that started it.
    """
    from concurrent.futures import ThreadPoolExecutor  # slow to import

    stop = threading.Event()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="weft-data")
    context = copy_context()
    context.run(_race)
    waiting: deque = deque()
    left = iter(numbers)

    def begin() -> None:
        for k in left:
            waiting.append(pool.submit(context.copy().run, make, k, stop.is_set))
            return

    try:
        for _ in range(depth):
            begin()
        while waiting:
            done = waiting.popleft().result()
            begin()
            yield done
            del done
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


def _race() -> None:
    """A block that refuses draws whose results would depend on the order of the workers."""
    settings = current.get()
    if settings.determinism is not None:
        current.set(replace(settings, determinism=settings.determinism.among_threads()))
