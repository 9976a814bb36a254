"""What the machine can do at most: operations and bytes per second, measured once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from time import perf_counter
from typing import Any

import numpy as np

from .work import Work, dtype_name

# The side of the matrices that are multiplied, the bytes that are copied, the runs of each.
_SIDE, _COPIED, _RUNS = 1024, 1 << 26, 8
_SIDE_ON_GPU, _COPIED_ON_GPU = 4096, 1 << 29


@dataclass(frozen=True)
class Peaks:
    """What a machine does at most, as `OpProfiler` compares with.

    flops      floating-point operations per second, by the name of the dtype
    bandwidth  bytes per second that are read and written in memory

    >>> import weft as wf
    >>> peaks = wf.profile.Peaks(flops={"float32": 1e12, "float64": 5e11}, bandwidth=1e11)
    >>> peaks.flops["float64"]
    500000000000.0
    """

    flops: Mapping[str, float]
    bandwidth: float


def least_seconds(work: Work, limits: Peaks) -> float | None:
    """The time that work takes at least: computing and moving overlap. None: not known."""
    if work.flops is None and work.nbytes is None:
        return None
    rate = limits.flops.get(dtype_name(work.dtype)) or limits.flops.get("float32")
    computing = (work.flops or 0) / rate if rate else 0.0
    return max(computing, (work.nbytes or 0) / limits.bandwidth)


@lru_cache(maxsize=8)
def peaks(device: str = "cpu") -> Peaks:
    """Measure what a device does at most: matrix products, and copies. It takes about a second.

    device  "cpu", or a GPU: "cuda", "cuda:1"

    The result is kept for the process. Something else that runs at the same time makes it smaller.

    >>> import weft as wf
    >>> wf.profile.peaks().bandwidth > 0
    True
    """
    return _on_cpu() if device == "cpu" else _on_gpu(device)


def _best(run: Callable[[], Any], wait: Callable[[], Any] = lambda: None) -> float:
    """The shortest time of a few runs, after one that does not count."""
    times = []
    for _ in range(_RUNS + 1):
        wait()
        begin = perf_counter()
        run()
        wait()
        times.append(perf_counter() - begin)
    return min(times[1:])


def _on_cpu() -> Peaks:
    flops = {}
    for name in ("float32", "float64"):
        a = np.ones((_SIDE, _SIDE), name)
        flops[name] = 2 * _SIDE**3 / _best(partial(np.matmul, a, a))
    source = np.ones(_COPIED, np.uint8)
    target = np.empty_like(source)
    return Peaks(flops, 2 * _COPIED / _best(lambda: np.copyto(target, source)))


def _on_gpu(device: str) -> Peaks:
    torch = import_module("torch")

    def wait() -> None:
        torch.cuda.synchronize(device)

    flops = {}
    for name in ("float16", "bfloat16", "float32", "float64"):
        a = torch.ones((_SIDE_ON_GPU, _SIDE_ON_GPU), dtype=getattr(torch, name), device=device)
        flops[name] = 2 * _SIDE_ON_GPU**3 / _best(partial(torch.matmul, a, a), wait)
    source = torch.ones(_COPIED_ON_GPU, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return Peaks(flops, 2 * _COPIED_ON_GPU / _best(lambda: target.copy_(source), wait))
