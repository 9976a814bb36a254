"""The engine of torch.distributed: gloo."""

import os
from collections.abc import Callable
from datetime import timedelta
from time import monotonic
from typing import Any

import numpy as np
import torch
import torch.distributed

from .. import errors
from ..core.communicator import Reduction
from .engine import HostEngine
from .immortal import keep_forever
from .pulse import Pulse

_c10d: Any = torch.distributed  # whose stubs do not have what it has

# So long a wait goes on before it looks at the pulses again.
_SLICE = timedelta(seconds=0.25)
_OPS = {"sum": _c10d.ReduceOp.SUM, "max": _c10d.ReduceOp.MAX, "min": _c10d.ReduceOp.MIN}


def gloo(store: Any, rank: int, size: int, address: str, seconds: float) -> Any:
    """A group of gloo, which torch's default group has nothing to do with.

    seconds  after these it gives up by itself, where nobody waits for it any more
    """
    options = _c10d.ProcessGroupGloo._Options()
    options._timeout = timedelta(seconds=seconds)
    interface = os.environ.get("GLOO_SOCKET_IFNAME")
    where = {"interface": interface} if interface else {"hostname": address}
    options._devices = [_c10d.ProcessGroupGloo.create_device(**where)]
    return _c10d.ProcessGroupGloo(_c10d.PrefixStore("gloo", store), rank, size, options)


def _ended(work: Any) -> bool:
    """Whether a collective ends soon; raises what it failed with."""
    try:
        work.wait(_SLICE)
    except RuntimeError:
        if not work.is_completed():
            return False
        work.wait()  # it failed, unless the time was over just before its end
    return True


class TorchEngine(HostEngine):
    """Arrays in host memory, by gloo."""

    def __init__(self, group: Any, pulse: Pulse):
        self._group, self._pulse = group, pulse
        self.rank, self.size = group.rank(), group.size()
        self._abandoned: list[Any] = []

    def _run(self, collective: Callable[..., Any], *args: Any) -> None:
        """Call the library, and wait for it as long as all ranks are there."""
        since, work = monotonic(), None
        try:
            work = collective(*args)
            while not _ended(work):
                self._pulse.check(since)
        except BaseException as e:
            self._abandoned.append((work, args))  # gloo may still write into them
            if isinstance(e, RuntimeError) and not isinstance(e, errors.DistributedError):
                self._pulse.explain(e)
            raise

    def _all_reduce(self, x: np.ndarray, kind: Reduction) -> None:
        self._run(self._group.allreduce, torch.from_numpy(x), _OPS[kind])

    def _all_gather(self, x: np.ndarray, into: np.ndarray) -> None:
        self._run(self._group._allgather_base, torch.from_numpy(into), torch.from_numpy(x))

    def _all_to_all(self, x: np.ndarray, into: np.ndarray) -> None:
        self._run(self._group.alltoall_base, torch.from_numpy(into), torch.from_numpy(x), [], [])

    def _broadcast(self, x: np.ndarray, root: int) -> None:
        self._run(self._group.broadcast, torch.from_numpy(x), root)

    def close(self, failed: bool = False) -> None:
        if failed:
            # A collective that nobody ends is under way: to free the group would wait for it.
            keep_forever((self._group, self._abandoned))
        else:
            self._group.shutdown()
        del self._group
