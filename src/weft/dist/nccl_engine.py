"""The engine of torch.distributed for GPUs: NCCL."""

import os
from collections.abc import Callable
from datetime import timedelta
from time import monotonic, sleep
from typing import Any

import torch
import torch.distributed

from .. import errors
from ..core.communicator import Reduction
from .immortal import keep_forever
from .pulse import Pulse
from .torch_engine import TorchEngine

_c10d: Any = torch.distributed  # whose stubs do not have what it has
_OPS = {"sum": _c10d.ReduceOp.SUM, "max": _c10d.ReduceOp.MAX, "min": _c10d.ReduceOp.MIN}
_ADDED_AS = {torch.uint32: torch.int32, torch.uint64: torch.int64}
# How long the pauses of a wait are, in seconds, and how often it looks at the pulses.
_SHORTEST, _LONGEST, _SLICE = 1e-5, 1e-3, 0.25


def own_gpu(local_rank: str | None) -> int:
    """Make the GPU of this process's number on its machine the current one."""
    count = torch.cuda.device_count()
    if not _c10d.is_nccl_available() or not count:
        raise errors.RendezvousError(
            "init: backend='nccl' needs a GPU and a PyTorch that is built with NCCL; "
            "use backend='gloo'"
        )
    index = int(local_rank or 0)
    if index >= count:
        raise errors.RendezvousError(
            f"init: backend='nccl' with LOCAL_RANK={index} on a machine of {count} GPUs: start a "
            "process for each GPU at most, or use backend='gloo'"
        )
    torch.cuda.set_device(index)
    return index


def nccl(store: Any, rank: int, size: int, seconds: float) -> Any:
    """A group of NCCL, which torch's default group has nothing to do with."""
    # Else PyTorch ends the process when a rank is lost, before the error can say which one.
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
    options = _c10d.ProcessGroupNCCL.Options()
    options._timeout = timedelta(seconds=seconds)
    return _c10d.ProcessGroupNCCL(_c10d.PrefixStore("nccl", store), rank, size, options)


class NcclEngine:
    """Arrays on GPUs by NCCL, all others by gloo.

    While a stream is captured into a graph, a collective is put on it, and nobody waits.
    """

    def __init__(self, host: TorchEngine, group: Any, pulse: Pulse):
        self._host, self._group, self._pulse = host, group, pulse
        self.rank, self.size = host.rank, host.size
        self._abandoned: list[Any] = []

    def near(self, x: Any) -> bool:
        """Whether an array lies on a GPU."""
        return isinstance(x, torch.Tensor) and x.is_cuda

    def capturing(self) -> bool:
        """Whether what this thread puts on its stream is captured into a graph."""
        return torch.cuda.is_current_stream_capturing()

    def on_this_stream(self, action: Callable[[], Any]) -> Callable[[], Any]:
        """An action that another thread does after what is on this thread's stream now."""
        stream = torch.cuda.current_stream()

        def act() -> Any:
            with torch.cuda.stream(stream):
                return action()

        return act

    def _run(self, collective: Callable[..., Any], *args: Any) -> None:
        """Call the library, and wait for the GPU as long as all ranks are there."""
        work = None
        try:
            work = collective(*args)
            if not self.capturing():
                self._finish(work)
            work.wait()  # lets this thread's stream wait, not this thread
        except BaseException as e:
            self._abandoned.append((work, args))  # NCCL may still write into them
            if isinstance(e, RuntimeError) and not isinstance(e, errors.DistributedError):
                self._pulse.explain(e)
            raise

    def _finish(self, work: Any) -> None:
        since = looked = monotonic()
        pause = _SHORTEST
        while not work.is_completed():
            sleep(pause)
            pause = min(1.05 * pause, _LONGEST)
            if monotonic() - looked > _SLICE:
                looked = monotonic()
                self._pulse.check(since)

    def all_reduce(self, x: Any, kind: Reduction, out: Any = None) -> Any:
        if not self.near(x):
            return self._host.all_reduce(x, kind, out)
        if out is None:
            y = x.clone(memory_format=torch.contiguous_format)
        else:
            y = out if out is x else out.copy_(x)
        whole = y if y.is_contiguous() else y.contiguous()
        if whole.numel():
            self._run(self._group.allreduce, _numbers(whole), _OPS[kind])
        return y if whole is y else y.copy_(whole)

    def all_gather(self, x: Any) -> Any:
        if not self.near(x):
            return self._host.all_gather(x)
        every = x.new_empty((self.size, *x.shape))
        if every.numel():
            self._run(self._group._allgather_base, _bytes(every), _bytes(x))
        return every

    def all_to_all(self, x: Any) -> Any:
        if not self.near(x):
            return self._host.all_to_all(x)
        came = x.new_empty(x.shape)
        if came.numel():
            self._run(self._group.alltoall_base, _bytes(came), _bytes(x), [], [])
        return came

    def broadcast(self, x: Any, root: int) -> Any:
        if not self.near(x):
            return self._host.broadcast(x, root)
        y = x.clone(memory_format=torch.contiguous_format)
        if y.numel():
            self._run(self._group.broadcast, _bytes(y), root)
        return y

    def close(self, failed: bool = False) -> None:
        if failed:
            self._group.abort()
            keep_forever((self._group, self._abandoned))
        else:
            self._group.shutdown()
        del self._group
        self._host.close(failed)


def _flat(x: torch.Tensor) -> torch.Tensor:
    """The elements of a contiguous tensor; axes of length one may have had any stride."""
    return x.as_strided((x.numel(),), (1,))


def _bytes(x: torch.Tensor) -> torch.Tensor:
    return _flat(x.contiguous()).view(torch.uint8)


def _numbers(x: torch.Tensor) -> torch.Tensor:
    """The memory of a contiguous tensor as numbers that NCCL knows how to add."""
    flat = _flat(x)
    if flat.is_complex():
        return _flat(torch.view_as_real(flat))
    return flat.view(_ADDED_AS.get(flat.dtype, flat.dtype))
