"""One process as a member of a group: transactions that all ranks agree on, in order."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from ..core.backends import BACKENDS
from ..core.communicator import CONNECTED, Pending, Reduction
from .channel import Channel
from .engine import Engine
from .header import Header, compare


class Member:
    """A `Communicator` over an engine.

    A transaction is a header, which the ranks compare, and one collective or more that it stands
    for. So ranks that do different things are told so instead of mixing their arrays up.

    engine  what carries the arrays
    name    the group's name, by which rows of recorded and compiled programs find it
    sent    by collective, the bytes of the arrays that this rank gave to it, without headers
    """

    def __init__(self, engine: Engine, name: str):
        self.engine, self.name = engine, name
        self.rank, self.size = engine.rank, engine.size
        self.sent: Counter[str] = Counter()
        self._channel = Channel(name)
        self._number = 0  # of transactions
        CONNECTED[name] = self

    # Collectives, a transaction each

    def all_reduce(self, x: Any, kind: Reduction = "sum") -> Any:
        return self._call("all_reduce", x, kind)

    def all_gather(self, x: Any) -> Any:
        return self._call("all_gather", x)

    def reduce_scatter(self, x: Any) -> Any:
        return self._call("reduce_scatter", x)

    def broadcast(self, x: Any, root: int = 0) -> Any:
        return self._call("broadcast", x, root)

    def barrier(self) -> None:
        self._channel.call(partial(self._agree, "barrier"))

    def compare(self, what: str) -> None:
        self._channel.call(partial(self._agree, what))

    def start(self, collective: str, x: Any, *rest: Any) -> Pending:
        return self._channel.start(partial(self._transact, collective, x, *rest))

    def _call(self, collective: str, x: Any, *rest: Any) -> Any:
        return self._channel.call(partial(self._transact, collective, x, *rest))

    def _transact(self, collective: str, x: Any, *rest: Any) -> Any:
        if collective == "all_reduce" and not rest:
            rest = ("sum",)
        said = " ".join(
            map(str, (collective, *rest, BACKENDS[type(x)].dtype_of(x), tuple(x.shape)))
        )
        self._agree(said)
        return self.perform(collective, x, *rest)

    # Transactions of several collectives

    def agree(self, what: str) -> Pending:
        """Begin a transaction in the background: the ranks compare `what`.

        If they differ, the transaction and all later ones raise. What the header stands for is
        started next, by `run`.
        """
        return self._channel.start(partial(self._agree, what))

    def run(self, action: Callable[["Member"], Any]) -> Pending:
        """Run a part of a transaction in the background: `action(member)` calls `perform`."""
        return self._channel.start(partial(action, self))

    def _agree(self, what: str) -> None:
        header = Header(self._number, what)
        self._number += 1
        compare(self.engine.all_gather(header.pack()))

    def perform(self, collective: str, x: Any, *rest: Any) -> Any:
        """A collective of a transaction that is under way, without a header of its own."""
        self.sent[collective] += BACKENDS[type(x)].nbytes(x)
        return getattr(self.engine, collective)(x, *rest)

    def close(self) -> None:
        """Leave the group."""
        self._channel.close()
        CONNECTED.pop(self.name, None)
        self.engine.close()
