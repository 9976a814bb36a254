"""The group of all processes of a program: joining it, leaving it, asking who one is."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

from .. import errors
from ..core.communicator import Communicator
from .alone import AloneEngine
from .engine import Engine
from .member import Member

# The process's world, and what stands in for it in a context: tests run several ranks in threads.
_world: list[Member] = []
_stand_in: ContextVar[Communicator | None] = ContextVar("world", default=None)


def init(
    engine: Literal["torch", "mpi"] = "torch",
    backend: Literal["gloo", "nccl"] | None = None,
    timeout: float = 300.0,
) -> Communicator:
    """Join the processes that a launcher started, as it says in the environment.

    engine   "torch" (torch.distributed, started by torchrun) or "mpi" (mpi4py, by mpiexec)
    backend  of torch.distributed; None: "nccl" where there is a GPU for each process, else "gloo"
    timeout  the seconds that a rank waits for others before it raises

    Returns the group of all processes; a process that no launcher started is alone in it.

    >>> import weft as wf
    >>> wf.dist.init().size
    1
    >>> wf.dist.finalize()
    """
    if _world:
        raise errors.DistributedError(
            "init: this process belongs to a group already; call wf.dist.finalize() first"
        )
    member = Member(_connect(engine, backend, timeout), "world")
    _world.append(member)
    return member


def _connect(engine: str, backend: str | None, timeout: float) -> Engine:
    return AloneEngine()


def finalize() -> None:
    """Leave the group of all processes; nothing happens where this process belongs to none.

    >>> import weft as wf
    >>> group = wf.dist.init()
    >>> wf.dist.finalize()
    >>> wf.dist.is_initialized()
    False
    """
    if _world:
        _world.pop().close()


def world() -> Communicator:
    """The group of all processes; raises before `init`."""
    found = _stand_in.get() or (_world[-1] if _world else None)
    if found is None:
        raise errors.DistributedError(
            "this process belongs to no group yet: call wf.dist.init() first"
        )
    return found


@contextmanager
def standing_in(member: Communicator) -> Iterator[None]:
    """A block in which another group is the world."""
    token = _stand_in.set(member)
    try:
        yield
    finally:
        _stand_in.reset(token)


def is_initialized() -> bool:
    """Whether this process belongs to a group.

    >>> import weft as wf
    >>> wf.dist.is_initialized()
    False
    """
    return bool(_stand_in.get() or _world)


def rank() -> int:
    """The number of this process, from 0.

    >>> import weft as wf
    >>> group = wf.dist.init()
    >>> wf.dist.rank()
    0
    >>> wf.dist.finalize()
    """
    return world().rank


def size() -> int:
    """How many processes there are.

    >>> import weft as wf
    >>> group = wf.dist.init()
    >>> wf.dist.size()
    1
    >>> wf.dist.finalize()
    """
    return world().size
