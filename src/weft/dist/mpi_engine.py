"""The engine of MPI, by mpi4py."""

import atexit
import json
from collections.abc import Callable
from time import monotonic, sleep
from typing import Any

import numpy as np
from mpi4py import MPI

from .. import errors
from ..core.communicator import Reduction
from .engine import HostEngine
from .pulse import Pulse

_OPS = {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN}
_LEVELS = {
    MPI.THREAD_SINGLE: "THREAD_SINGLE",
    MPI.THREAD_FUNNELED: "THREAD_FUNNELED",
}
# So long a wait asks without a pause, in seconds; and how long its pauses are after that.
_ASKS, _SHORTEST, _LONGEST = 3e-4, 1e-5, 1e-3
# So long a wait goes on before it looks at the pulses again, in seconds.
_SLICE = 0.25
_CARD = 1024  # bytes

# The communicator of this process, and what a collective that never ended may still write into.
_own: list[MPI.Intracomm] = []
_abandoned: list[Any] = []


def join(timeout: float) -> MPI.Intracomm:
    """A communicator of Weft's own with all processes of mpiexec."""
    if _abandoned:
        raise errors.RendezvousError(
            "init: a collective of MPI was left unfinished before in this process, after which MPI "
            "cannot go on: start the processes again by mpiexec"
        )
    level = _LEVELS.get(MPI.Query_thread())
    if level is not None:
        raise errors.RendezvousError(
            f"init: MPI was started with {level}, and collectives run in a thread: expected "
            "THREAD_MULTIPLE, which is mpi4py's default (mpi4py.rc.thread_level)"
        )
    if not _own:
        group, request = MPI.COMM_WORLD.Idup()
        _arrive(request, timeout)
        _own.append(group)
    return _own[0]


def _arrive(request: MPI.Request, timeout: float, *memory: Any) -> None:
    until = monotonic() + timeout
    while not request.Test():
        if monotonic() > until:
            _abandoned.append((request, memory))
            raise errors.RendezvousError(
                f"init: not all of the {MPI.COMM_WORLD.Get_size()} processes of mpiexec called "
                f"wf.dist.init(engine='mpi') within {timeout:g} s: let all of them call it, or "
                "give init a larger timeout"
            )
        sleep(_LONGEST)


def exchange_cards(
    group: MPI.Intracomm, card: dict[str, Any], timeout: float
) -> list[dict[str, Any]]:
    """The cards of all ranks."""
    mine = np.frombuffer(bytearray(json.dumps(card).encode().ljust(_CARD)), np.uint8)
    every = np.empty((group.Get_size(), _CARD), np.uint8)
    _arrive(group.Iallgather([mine, MPI.BYTE], [every, MPI.BYTE]), timeout, mine, every)
    return [json.loads(row.tobytes()) for row in every]


@atexit.register
def _abort() -> None:
    """End all processes of mpiexec: MPI would wait for a collective that nobody ends."""
    if _abandoned and not MPI.Is_finalized():
        MPI.COMM_WORLD.Abort(1)


class MpiEngine(HostEngine):
    """Arrays in host memory, by the upper-case methods of mpi4py."""

    def __init__(self, group: MPI.Intracomm, pulse: Pulse):
        self._group, self._pulse = group, pulse
        self.rank, self.size = group.Get_rank(), group.Get_size()

    def _run(self, collective: Callable[..., MPI.Request], *args: Any) -> None:
        """Call the library, and wait for it as long as all ranks are there."""
        request = None
        try:
            request = collective(*args)
            self._finish(request)
        except BaseException as e:
            _abandoned.append((request, args))  # MPI may still write into them
            if isinstance(e, MPI.Exception):
                self._pulse.explain(e)
            raise

    def _finish(self, request: MPI.Request) -> None:
        since = looked = monotonic()
        pause = _SHORTEST
        while not request.Test():
            now = monotonic()
            if now - since < _ASKS:
                continue
            sleep(pause)
            pause = min(1.02 * pause, _LONGEST)
            if now - looked > _SLICE:
                looked = now
                self._pulse.check(since)

    def _all_reduce(self, x: np.ndarray, kind: Reduction) -> None:
        self._run(self._group.Iallreduce, MPI.IN_PLACE, x, _OPS[kind])

    def _all_gather(self, x: np.ndarray, into: np.ndarray) -> None:
        self._run(self._group.Iallgather, [x, MPI.BYTE], [into, MPI.BYTE])

    def _all_to_all(self, x: np.ndarray, into: np.ndarray) -> None:
        self._run(self._group.Ialltoall, [x, MPI.BYTE], [into, MPI.BYTE])

    def _broadcast(self, x: np.ndarray, root: int) -> None:
        self._run(self._group.Ibcast, [x, MPI.BYTE], root)

    def close(self, failed: bool = False) -> None:
        if failed:
            _abandoned.append(self)
