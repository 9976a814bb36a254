"""The engine of torch.distributed: gloo."""

import os
from datetime import timedelta
from time import monotonic
from typing import Any

import numpy as np
import torch
from torch.distributed import PrefixStore, ProcessGroupGloo, ReduceOp, Store, Work

from ..core.communicator import Reduction
from .engine import HostEngine
from .immortal import keep_forever
from .pulse import Pulse

# So long a wait goes on before it looks at the pulses again.
_SLICE = timedelta(seconds=0.25)
_OPS = {"sum": ReduceOp.SUM, "max": ReduceOp.MAX, "min": ReduceOp.MIN}


def gloo(store: Store, rank: int, size: int, address: str, seconds: float) -> ProcessGroupGloo:
    """A group of gloo, which torch's default group has nothing to do with.

    seconds  after these it gives up by itself, where nobody waits for it any more
    """
    options = ProcessGroupGloo._Options()
    options._timeout = timedelta(seconds=seconds)
    interface = os.environ.get("GLOO_SOCKET_IFNAME")
    where = {"interface": interface} if interface else {"hostname": address}
    options._devices = [ProcessGroupGloo.create_device(**where)]
    return ProcessGroupGloo(PrefixStore("gloo", store), rank, size, options)


class TorchEngine(HostEngine):
    """Arrays in host memory, by gloo."""

    def __init__(self, group: ProcessGroupGloo, pulse: Pulse):
        self._group, self._pulse = group, pulse
        self.rank, self.size = group.rank(), group.size()
        self._abandoned: list[Any] = []

    def _finish(self, work: Work, *memory: Any) -> None:
        """Wait for the library, as long as all ranks are there."""
        since = monotonic()
        while True:
            try:
                work.wait(_SLICE)
                return
            except RuntimeError as e:
                if work.is_completed():
                    if work.is_success():
                        return
                    self._pulse.explain(e)
            except BaseException:
                self._abandoned += [work, memory]
                raise
            try:
                self._pulse.check(since)
            except BaseException:
                self._abandoned += [work, memory]  # gloo may still write into it
                raise

    def _all_reduce(self, x: np.ndarray, kind: Reduction) -> None:
        y = torch.from_numpy(x)
        self._finish(self._group.allreduce(y, _OPS[kind]), y)

    def _all_gather(self, x: np.ndarray, into: np.ndarray) -> None:
        mine, every = torch.from_numpy(x), torch.from_numpy(into)
        self._finish(self._group._allgather_base(every, mine), mine, every)

    def _all_to_all(self, x: np.ndarray, into: np.ndarray) -> None:
        mine, came = torch.from_numpy(x), torch.from_numpy(into)
        self._finish(self._group.alltoall_base(came, mine, [], []), mine, came)

    def _reduce_scatter(self, x: np.ndarray, into: np.ndarray) -> None:
        mine, part = torch.from_numpy(x), torch.from_numpy(into)
        self._finish(self._group._reduce_scatter_base(part, mine), mine, part)

    def _broadcast(self, x: np.ndarray, root: int) -> None:
        y = torch.from_numpy(x)
        self._finish(self._group.broadcast(y, root), y)

    def barrier(self) -> None:
        self._finish(self._group.barrier())

    def close(self, failed: bool = False) -> None:
        if failed:
            # A collective that nobody ends is under way: to free the group would wait for it.
            keep_forever((self._group, self._abandoned))
        else:
            self._group.shutdown()
        del self._group
