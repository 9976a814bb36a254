"""One process as a member of a group: its collectives in order, over an engine."""

from functools import partial
from typing import Any

from ..core.communicator import CONNECTED, Pending, Reduction
from .channel import Channel
from .engine import Engine


class Member:
    """A `Communicator` over an engine.

    engine  what carries the arrays
    name    the group's name, by which rows of recorded and compiled programs find it
    """

    def __init__(self, engine: Engine, name: str):
        self.engine, self.name = engine, name
        self.rank, self.size = engine.rank, engine.size
        self._channel = Channel(name)
        CONNECTED[name] = self

    def all_reduce(self, x: Any, kind: Reduction = "sum") -> Any:
        return self._channel.call(partial(self._perform, "all_reduce", x, kind))

    def all_gather(self, x: Any) -> Any:
        return self._channel.call(partial(self._perform, "all_gather", x))

    def reduce_scatter(self, x: Any) -> Any:
        return self._channel.call(partial(self._perform, "reduce_scatter", x))

    def broadcast(self, x: Any, root: int = 0) -> Any:
        return self._channel.call(partial(self._perform, "broadcast", x, root))

    def barrier(self) -> None:
        self._channel.call(self.engine.barrier)

    def start(self, collective: str, x: Any, *rest: Any) -> Pending:
        return self._channel.start(partial(self._perform, collective, x, *rest))

    def _perform(self, collective: str, x: Any, *rest: Any) -> Any:
        if collective == "all_reduce" and not rest:
            rest = ("sum",)
        return getattr(self.engine, collective)(x, *rest)

    def close(self) -> None:
        """Leave the group."""
        self._channel.close()
        CONNECTED.pop(self.name, None)
        self.engine.close()
