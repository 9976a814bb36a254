"""What a group of processes must offer so that the table's collective rows can run on it."""

from contextvars import ContextVar
from typing import Any, Literal, Protocol

from .. import errors
from .backends import BACKENDS

Reduction = Literal["sum", "max", "min"]


class Pending(Protocol):
    """A collective that runs in the background."""

    def wait(self) -> Any:
        """Its result, when it is there."""
        ...

    def done(self) -> bool:
        """Whether `wait` would return at once."""
        ...


class Communicator(Protocol):
    """A group of processes; each calls the same collectives in the same order.

    Arrays are raw ones, of NumPy or PyTorch, and results are new arrays of the same kind.

    name  the group's name, by which rows of recorded and compiled programs find it
    rank  the number of this process, from 0
    size  how many processes there are
    """

    name: str
    rank: int
    size: int

    def all_reduce(self, x: Any, kind: Reduction = "sum", out: Any = None) -> Any:
        """Elementwise over all ranks' arrays; written into `out`, x itself for instance."""
        ...

    def all_gather(self, x: Any) -> Any:
        """The arrays of all ranks, of shape (size, *x.shape)."""
        ...

    def reduce_scatter(self, x: Any) -> Any:
        """Of x of shape (size, …), this rank's part of the sum over ranks."""
        ...

    def broadcast(self, x: Any, root: int = 0) -> Any:
        """The array of one rank."""
        ...

    def barrier(self) -> None:
        """Return when all ranks have called it."""
        ...

    def compare(self, what: str) -> None:
        """Raise unless all ranks call it with the same text."""
        ...

    def start(self, collective: str, x: Any, *rest: Any) -> Pending:
        """Run a collective in the background, after those that were started or called before.

        collective  the name of one of the methods above
        rest        its arguments after x
        """
        ...


# Whether what is computed now is recorded for a backward pass, in which all ranks must take part.
is_recorded: ContextVar[bool] = ContextVar("is_recorded", default=False)

# The groups that this process belongs to, by name.
CONNECTED: dict[str, Communicator] = {}


def connected(name: str, size: int) -> Communicator:
    """The group of a name; raises unless this process belongs to it and it has that size."""
    found = CONNECTED.get(name)
    if found is None:
        raise errors.DistributedError(
            f"this process does not belong to the group {name!r} of {size} ranks: call "
            f"wf.dist.init() before, and wf.dist.finalize() after the last use"
        )
    if found.size != size:
        raise errors.DistributedError(
            f"the group {name!r} has {found.size} ranks now; this was recorded with {size}"
        )
    return found


class Finished:
    """A collective that is done."""

    def __init__(self, result: Any):
        self._result = result

    def wait(self) -> Any:
        return self._result

    def done(self) -> bool:
        return True


class Alone:
    """A group of one process, whose collectives copy."""

    def __init__(self, name: str):
        self.name, self.rank, self.size = name, 0, 1

    def all_reduce(self, x: Any, kind: Reduction = "sum", out: Any = None) -> Any:
        if out is None:
            return BACKENDS[type(x)].copy(x)
        if out is not x:
            BACKENDS[type(x)].overwrite(out, x)
        return out

    def all_gather(self, x: Any) -> Any:
        return BACKENDS[type(x)].copy(x)[None]

    def reduce_scatter(self, x: Any) -> Any:
        return BACKENDS[type(x)].copy(x[0])

    def broadcast(self, x: Any, root: int = 0) -> Any:
        return BACKENDS[type(x)].copy(x)

    def barrier(self) -> None:
        return None

    def compare(self, what: str) -> None:
        return None

    def start(self, collective: str, x: Any, *rest: Any) -> Pending:
        return Finished(getattr(self, collective)(x, *rest))


# The name of a group of one process that always exists: tests of the table's rows run on it.
ALONE = "alone"
CONNECTED[ALONE] = Alone(ALONE)
