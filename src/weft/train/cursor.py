"""A run's position in its data, independent of other loops over the loader."""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from .parts import Part


class Loader(Protocol):
    """Batches, epoch after epoch, with a cursor: a `DataLoader`, or the like."""

    @property
    def epoch(self) -> int: ...
    @property
    def position(self) -> int: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...
    def state_dict(self) -> Mapping[str, Any]: ...
    def load_state_dict(self, saved: Any, /) -> None: ...


class Cursor:
    """A loader's state as it was right after it handed out the run's last batch.

    Callbacks, and programs between two calls of `fit`, may loop over the loader as they like.

    epoch     how many epochs the run has gone through
    position  how many batches of this one it has had
    """

    def __init__(self, loader: Any):
        self.loader = loader
        going_on = continues(loader)
        self.state: dict[str, Any] = loader.state_dict() if going_on else loader.next_state()
        self.epoch: int = loader.epoch if going_on else 0
        self.position: int = loader.position if going_on else 0

    def rest(self, part: Part | None = None) -> Iterator[Any]:
        """The remaining batches of this epoch; with a part, a rank's shares of them."""
        self.loader.load_state_dict(self.state)
        return iter(self.loader) if part is None else self.loader.parts(part)

    def note(self) -> None:
        """Record that the loader has handed out a batch."""
        self.state, self.position = self.loader.state_dict(), self.loader.position

    def end_epoch(self) -> None:
        """Go on to the next epoch: the run's own count, whatever epochs other loops have begun."""
        next(self.rest(), None)  # no batch is left
        self.note()
        self.epoch += 1


def continues(loader: Any) -> bool:
    """Whether the next loop starts at the loader's cursor; True for loaders other than ours."""
    return getattr(loader, "continues", True)
