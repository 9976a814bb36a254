"""`DataLoader`: batches of a dataset in an order that a saved cursor continues exactly."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextvars import copy_context
from dataclasses import replace
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import errors
from ..backend.device import canonical_device
from ..core.counter import Generator
from ..core.differences import differences
from ..core.settings import current
from .collation import collate as stacked
from .collation import place_batch
from .datasets import gatherer
from .order import epoch_order, sample_streams

if TYPE_CHECKING:
    from ..arrays.types import Device
    from .datasets import Dataset


class DataLoader:
    """The batches of a dataset, epoch after epoch, with an exact cursor.

    A loop goes through all batches of an epoch, and the next loop through those of another one,
    also if the first was left early: `next(iter(loader))` takes no batch away from it. The order
    is a function of seed and epoch alone, so that a loader that has loaded another's
    `state_dict()` hands out exactly the batches that the other's loop would have handed out next.
    Loops may be inside of each other; the cursor is that of the loop that had the last batch.

    Workers are threads, not processes: nothing is pickled and datasets are shared. They help
    where loading leaves Python's interpreter lock: reading files, decoding, NumPy. A dataset and
    its transform must then bear being called from several threads. What the batches hold and
    their order do not depend on the number of workers; an error in a worker is raised where the
    loop asks for its batch. Leaving the loop stops the threads.

    dataset     has `__len__` and `__getitem__`; one with `gather_batch(indices)`, as a
                `TensorDataset`, gives whole batches if there is neither transform nor collate
    batch_size  samples in a batch; the last batch of an epoch may have fewer
    shuffle     whether each epoch goes through the samples in an order of its own
    seed        of the orders and of the transforms' random streams
    drop_last   leave out a last batch that is not full
    workers     threads that prepare batches; 0: the loop itself does
    collate     list of samples -> batch; by default arrays and numbers are stacked into tensors,
                through dicts, tuples and lists
    prefetch    batches each worker may be ahead of the loop
    device      where the batches' arrays go: "cpu", "torch", "cuda", …; by default tensors stay on
                their device, and numbers and NumPy's arrays come to the tensors of their sample
    transform   (sample, generator) -> sample; the generator is a function of seed, epoch and the
                sample's index: draw from it, and the result does not depend on the workers

    >>> import weft as wf
    >>> data = wf.train.TensorDataset(wf.arange(6))
    >>> loader = wf.train.DataLoader(data, batch_size=2, shuffle=True, seed=1)
    >>> batches = iter(loader)
    >>> first = next(batches)
    >>> state = loader.state_dict()
    >>> rest = [x.tolist() for (x,) in batches]
    >>> loader.epoch, loader.position
    (1, 0)
    >>> loader.load_state_dict(state)
    >>> [x.tolist() for (x,) in loader] == rest
    True
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int = 1,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        workers: int = 0,
        collate: Callable[[list[Any]], Any] | None = None,
        prefetch: int = 2,
        transform: Callable[[Any, Generator], Any] | None = None,
        device: Device | None = None,
    ):
        _check_dataset(dataset)
        self.device: str | None = None if device is None else canonical_device(device)
        self.dataset = dataset
        self.batch_size: int = _at_least(1, "batch_size", batch_size)
        self.shuffle: bool = bool(shuffle)
        Generator(seed)  # refuses an invalid seed
        self.seed: int = int(seed)
        self.drop_last: bool = bool(drop_last)
        self.workers: int = _at_least(0, "workers", workers)
        self.prefetch: int = _at_least(1, "prefetch", prefetch)
        self.collate = collate
        self.transform = transform
        self._samples = len(dataset)
        self._epoch = self._position = 0
        self._begun = 0  # how many epochs loops have begun
        self._continues = False  # whether the next loop begins at the cursor
        self._loads = 0  # how many states were loaded
        if len(self) == 0:
            raise errors.ArgumentError(
                f"DataLoader: {self._samples} samples in batches of {self.batch_size} with "
                f"drop_last={self.drop_last} make no batch; give more samples, a smaller "
                "batch_size, or drop_last=False"
            )

    def __len__(self) -> int:
        """How many batches an epoch has."""
        whole, rest = divmod(self._samples, self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    @property
    def epoch(self) -> int:
        """The number of the epoch that the cursor is in."""
        return self._epoch

    @property
    def position(self) -> int:
        """How many batches of this epoch have been handed out."""
        return self._position

    def state_dict(self) -> dict[str, int | bool]:
        """The cursor, and what gives it its meaning: plain numbers.

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
        what = "DataLoader.load_state_dict"
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

    def _meaning(self) -> dict[str, int | bool]:
        return {
            "seed": self.seed,
            "samples": self._samples,
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
        }

    @property
    def continues(self) -> bool:
        """Whether the next loop goes on at the cursor, as after `load_state_dict`."""
        return self._continues

    def next_state(self) -> dict[str, int | bool]:
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

    def all_batches(self) -> Iterator[Any]:
        """All batches of the epoch that the cursor is in; the cursor stays where it is.

        >>> import weft as wf
        >>> loader = wf.train.DataLoader(wf.train.TensorDataset(wf.arange(4)), batch_size=2)
        >>> [x.tolist() for (x,) in loader.all_batches()]
        [[0, 1], [2, 3]]
        """
        self._check_length()
        return self._make_batches(self._epoch, 0)

    def _batches(self, loads: int) -> Iterator[Any]:
        self._check_loads(loads)
        begin = self.next_state()
        epoch, position = begin["epoch"], begin["position"]
        self._continues, self._begun = False, max(self._begun, epoch + 1)
        made: Any = self._make_batches(epoch, position)
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
                "DataLoader: load_state_dict() was called during this loop, which cannot go on; "
                "begin a new loop, which continues from the loaded state"
            )

    def _check_length(self) -> None:
        if len(self.dataset) != self._samples:
            raise errors.ArgumentError(
                f"DataLoader: the dataset has {len(self.dataset)} samples now and had "
                f"{self._samples} when the loader was made; make a new loader"
            )

    def _make_batches(self, epoch: int, position: int) -> Iterator[Any]:
        """An epoch's batches from a position on, made here or by threads."""
        make = self._maker(epoch)
        numbers = range(position, len(self))
        if self.workers:
            return _ahead(make, numbers, self.workers, self.workers * self.prefetch)
        return (make(k, lambda: False) for k in numbers)

    def _maker(self, epoch: int) -> Callable[[int, Callable[[], bool]], Any]:
        """(k, stopped) -> batch k of an epoch; None if stopped before it was complete."""
        n, size, device = self._samples, self.batch_size, self.device
        order = epoch_order(n, self.seed, epoch) if self.shuffle else np.arange(n)
        plain = self.transform is None and self.collate is None
        gather = gatherer(self.dataset) if plain else None
        if gather is not None:
            return lambda k, stopped: place_batch(gather(order[k * size : (k + 1) * size]), device)
        dataset, transform, join = self.dataset, self.transform, self.collate or stacked
        streams = sample_streams(self.seed, epoch)

        def sample(i: int):
            try:
                found = dataset[i]
                return found if transform is None else transform(found, streams.fork(i))
            except Exception as e:
                e.add_note(f"DataLoader: at sample {i} of the dataset, in epoch {epoch}")
                raise

        def make(k: int, stopped: Callable[[], bool]):
            samples = []
            for i in order[k * size : (k + 1) * size].tolist():
                if stopped():
                    return None
                samples.append(sample(i))
            return place_batch(join(samples), device)

        return make


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


def _check_dataset(dataset) -> None:
    for name in ("__len__", "__getitem__"):
        if not hasattr(dataset, name):
            raise errors.ArgumentError(
                f"DataLoader: a dataset of type {type(dataset).__name__} has no {name}; expected "
                "an object with __len__ and __getitem__, such as a list or a TensorDataset"
            )


def _at_least(least: int, name: str, value) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise errors.ArgumentError(f"DataLoader: {name}={value!r}, expected an integer ≥ {least}")
    return int(value)
