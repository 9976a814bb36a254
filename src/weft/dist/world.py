"""The group of all processes of a program: joining it, leaving it, asking who one is."""

import atexit
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Literal

from .. import errors
from ..core.communicator import Communicator
from .immortal import keep_forever
from .member import Member
from .start import start_mpi, start_torch

# The process's world, and what stands in for it in a context: tests run several ranks in threads.
_world: list[Member] = []
_stand_in: ContextVar[Communicator | None] = ContextVar("world", default=None)


def init(
    engine: Literal["torch", "mpi"] = "torch",
    backend: Literal["gloo", "nccl"] | None = None,
    timeout: float = 300.0,
    rendezvous: str | None = None,
) -> Communicator:
    """Join the processes that a launcher started, as it says in the environment.

    engine      "torch" (torch.distributed, started by torchrun) or "mpi" (mpi4py, by mpiexec)
    backend     of torch.distributed; None: "nccl" where there is a GPU for each process, else
                "gloo"
    timeout     the seconds that a rank waits for others that are alive before it raises; for one
                that is dead or stopped it waits for 15 at most
    rendezvous  where the ranks meet, if MASTER_ADDR and MASTER_PORT do not say so: the path of a
                new file as "file:///path", or "host:port"; RANK and WORLD_SIZE are read

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
    if engine not in ("torch", "mpi") or backend not in (None, "gloo", "nccl"):
        raise errors.ArgumentError(
            f"init: engine={engine!r}, backend={backend!r}; expected engine 'torch' with backend "
            "'gloo', 'nccl' or None, or engine 'mpi' with None"
        )
    if not 0 < timeout < float("inf"):
        raise errors.ArgumentError(f"init: timeout={timeout!r}; expected a number of seconds > 0")
    if engine == "mpi":
        if backend is not None or rendezvous is not None:
            raise errors.ArgumentError(
                "init: backend and rendezvous are torch.distributed's; with engine='mpi' both must "
                "be None"
            )
        member = start_mpi(float(timeout), os.environ)
    else:
        member = start_torch(backend, float(timeout), rendezvous, os.environ)
    _world.append(member)
    _watch_forks()
    atexit.unregister(_abandon)
    atexit.register(_abandon)  # the latest one runs first, before libraries' own
    return member


@cache
def _watch_forks() -> None:
    os.register_at_fork(after_in_child=_disown)


def _abandon() -> None:
    """Before a process ends it leaves its group: threads of libraries are not to outlive it."""
    while _world:
        # What Python has printed if an error ended the program.
        _world.pop().close(abandon=sys.__dict__.get("last_value") or True)


def _disown() -> None:
    for member in _world:
        member.disown()
        keep_forever(member)  # the threads of its libraries are the parent's


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
