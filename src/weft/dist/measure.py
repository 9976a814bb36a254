"""Measuring what `simulate` needs: a training step on one rank, and the link between ranks."""

import os
import socket
from collections.abc import Callable, Sequence
from hashlib import blake2b
from statistics import mean, median, stdev
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays.make import ones
from ..core.backends import BACKENDS
from ..core.communicator import ALONE, CONNECTED, Communicator
from ..core.node import Leaf
from ..errors import ArgumentError
from ..optim.optimizer import Optimizer
from ..profile import gpu
from ..transform.modes.watch import OVER, WATCHERS, LastUses, Visit, Watch
from .alone import AloneEngine
from .member import Member
from .network import Link
from .reducer import GradientReducer
from .step_profile import GradientProfile, StepProfile
from .world import is_initialized, world

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor

_WARM_UP = 3  # steps that are not counted
_COPIED = 1 << 26  # bytes of the array by which the memory's speed is measured
_SIZES = tuple([1 << k for k in range(16, 25, 2)])  # bytes of the arrays that are reduced


def measure_step(
    loss: Callable[[], "Tensor"], optimizer: Optimizer, *, samples: int = 1, steps: int = 20
) -> StepProfile:
    """Measure the parts of a training step on this process, which changes the parameters.

    loss       called without arguments, with this rank's share of the batch: the forward pass
    optimizer  of the model's parameters
    samples    how many samples the share has
    steps      how many steps are timed; figures are medians

    A step is `loss()`, `backward()`, the optimizer's step and `zero_grad()`. The backward pass
    does what it does under `DataParallel`, in a group of one: gradients are put into buckets. When
    they are final is seen in as many further passes. What a compiled function computes is final at
    its end. The model is one that is not wrapped.

    In a group all ranks call it and compute at the same time; figures are means over ranks. So what
    processes of one machine take from each other (cores, caches, the memory's bandwidth) is in
    them: measure with as many on a machine as will run there, and as they will run; torchrun, for
    instance, gives each one thread.

    >>> import weft as wf
    >>> model = wf.nn.Sequential(wf.nn.Linear(64, 64), wf.nn.Tanh(), wf.nn.Linear(64, 1))
    >>> x = wf.ones((16, 64))
    >>> optimizer = wf.optim.SGD(model, lr=1e-3)
    >>> profile = wf.dist.measure_step(lambda: model(x).sum(), optimizer, samples=16)
    >>> profile.nbytes, profile.step > 0
    (16900, True)
    """
    if steps < 2:
        raise ArgumentError(f"measure_step: steps={steps!r}; expected an integer of at least 2")
    group = world() if is_initialized() else CONNECTED[ALONE]
    params = [e.param for e in optimizer.entries() if e.param.requires_grad]
    ready = _ready(loss, params, optimizer, steps)
    device = params[0].device
    measured = _steps(loss, optimizer, params, steps, group)
    forward, backward, rest, used = [median(part) for part in zip(*measured, strict=True)]
    figures = [
        *(forward, backward, rest, stdev([sum(m[:3]) for m in measured])),
        *(0.0 if device.startswith("cuda") else used, _speed(device)),
        *ready,
    ]
    means = (group.all_reduce(np.array(figures)) / group.size).tolist()
    forward, backward, rest, spread, used, speed, *ready = means
    gradients = [
        GradientProfile(tuple(p.shape), min(share, 1.0) * backward, p.dtype.itemsize)
        for p, share in zip(params, ready, strict=True)
    ]
    return StepProfile(forward, backward, rest, tuple(gradients), samples, spread, used, speed)


def _steps(
    loss: Callable[[], "Tensor"],
    optimizer: Optimizer,
    params: Sequence[Any],
    steps: int,
    group: Communicator,
) -> list[tuple[float, float, float, float]]:
    """Steps whose gradients are reduced in a group of one."""
    alone = Member(AloneEngine(), "measure_step")
    try:
        reducer = GradientReducer([(str(k), p) for k, p in enumerate(params)], alone)
        measured = [_step(loss, optimizer, group) for _ in range(_WARM_UP + steps)][_WARM_UP:]
        del reducer  # its buckets are filled as long as it is alive
    finally:
        alone.close()
    return measured


def _step(
    loss: Callable[[], "Tensor"], optimizer: Optimizer, group: Communicator
) -> tuple[float, float, float, float]:
    """The seconds of a step's three parts, and how many cores were busy."""
    group.barrier()
    moments, before = [_now()], process_time()
    found = loss()
    moments.append(_now())
    found.backward()
    moments.append(_now())
    optimizer.step()
    optimizer.zero_grad()
    moments.append(_now())
    used = process_time() - before
    a, b, c, d = moments
    return b - a, c - b, d - c, used / (d - a)


def _now() -> float:
    gpu.wait()
    return perf_counter()


class _Moments:
    """Notes when the gradients of leaves are final in a backward pass, and leaves them there.

    present  whether any was there at the end: another watch may have taken them
    """

    def __init__(self, uses: LastUses):
        self._waiting = sorted([(use, leaf.id, leaf) for leaf, use in uses.items()])
        self._leaves = list(uses)
        self.found: dict[Leaf, float] = {}
        self.present = False
        self.due = self._waiting[0][0]

    def advance(self, at: int, pending: dict[Any, Any]) -> None:
        moment = _now()
        while self._waiting and self._waiting[0][0] < at:
            self.found[self._waiting.pop(0)[2]] = moment
        self.present = any([leaf in pending for leaf in self._leaves])
        self.due = self._waiting[0][0] if self._waiting else OVER

    def finish(self) -> dict[Leaf, Any]:
        return {}

    def abort(self) -> bool:
        return False

    def tell(self, error: BaseException) -> None:
        return None


def _ready(
    loss: Callable[[], "Tensor"], params: Sequence[Any], optimizer: Optimizer, steps: int
) -> list[float]:
    """When gradients are final: medians, as shares of the backward pass."""
    runs = []
    for _ in range(steps):
        begin, total, moments = _watched(loss(), params)
        optimizer.zero_grad()
        if moments is None or not moments.present:
            raise ArgumentError(
                "measure_step: the loss depends on no parameter of the optimizer, or their model "
                "is wrapped by wf.dist.DataParallel; measure the model before it is wrapped"
            )
        runs.append([(moments.found.get(p._node, begin + total) - begin) / total for p in params])
    return [median(times) for times in zip(*runs, strict=True)]


def _watched(found: "Tensor", params: Sequence[Any]) -> tuple[float, float, _Moments | None]:
    """When a backward pass begins, how long it takes, and when gradients are final."""
    own, noted = {p._node for p in params}, []

    def begin_watch(uses: LastUses, by_rows: bool, visit: Visit) -> Watch | None:
        mine = {leaf: use for leaf, use in uses.items() if leaf in own}
        noted.extend([_Moments(mine)] if mine else [])
        return noted[-1] if mine else None

    WATCHERS.append(begin_watch)
    try:
        begin = _now()
        found.backward()
        total = _now() - begin
    finally:
        WATCHERS.remove(begin_watch)
    return begin, total, noted[-1] if noted else None


def _speed(device: str) -> float:
    """Bytes per second that a copy reads and writes, on a device."""
    x = ones(_COPIED, dtype="uint8", device=device)._data
    copy, times = BACKENDS[type(x)].copy, []
    for _ in range(5):
        begin = _now()
        copy(x)
        times.append(_now() - begin)
    return 2 * _COPIED / median(times)


def measure_link(*, device: str = "cpu", sizes: Sequence[int] = _SIZES, repeats: int = 10) -> Link:
    """Measure the latency and the bandwidth of all-reduce between the ranks of this run.

    device   of the arrays that are sent
    sizes    bytes of the arrays that are reduced
    repeats  how often each is; medians count

    All ranks call it and get the same figures: the line a + c·b with the least relative errors
    through the times of b bytes, as those of a ring (n − 1 steps for the header of a transaction,
    2(n − 1) for its array). They contain what the library and Weft take for each message. Machines
    are told apart by their names; ranks of a machine share the cores that the process may use.

    >>> import weft as wf
    >>> group = wf.dist.init()
    >>> if group.size > 1:
    ...     print(wf.dist.measure_link())
    >>> wf.dist.finalize()
    """
    group = world()
    if group.size == 1:
        raise ArgumentError(
            "measure_link: this process is alone in its group; start at least two, for instance by "
            "torchrun --nproc-per-node 2"
        )
    found = np.array([_reduced(group, device, nbytes, repeats) for nbytes in sizes])
    found = group.all_reduce(found) / group.size  # so that all ranks have the same figures
    times, busy = found.T
    fixed, slope = line(np.array(sizes), times)
    n, share = group.size, _ranks_of_machine(group)
    on_cpu = not device.startswith("cuda")
    return Link(
        latency=fixed / (3 * (n - 1)),
        bandwidth=2 * (n - 1) / n / slope,
        node_size=share,
        cores=len(os.sched_getaffinity(0)) if on_cpu else None,
        busy=float(mean(busy[len(busy) // 2 :])) if on_cpu else 0.0,
    )


def line(sizes: np.ndarray, times: np.ndarray) -> tuple[float, float]:
    """a ≥ 0 and c of the line a + c·b with the least relative errors through times of b bytes."""
    matrix = np.stack([1 / times, sizes / times], axis=1)
    (fixed, slope), *_ = np.linalg.lstsq(matrix, np.ones(len(sizes)), rcond=None)
    if fixed < 0:
        fixed, slope = 0.0, np.sum(matrix[:, 1]) / np.sum(matrix[:, 1] ** 2)
    if slope <= 0:
        raise ArgumentError(
            f"measure_link: more bytes did not take longer, of {sizes.tolist()}; give larger sizes"
        )
    return float(fixed), float(slope)


def _reduced(group: Communicator, device: str, nbytes: int, repeats: int) -> tuple[float, float]:
    """The seconds of an all-reduce, and how many cores it keeps busy on a rank meanwhile."""
    x = ones(max(1, nbytes // 4), dtype="float32", device=device)._data
    group.all_reduce(x)
    group.barrier()
    times, before = [], process_time()
    for _ in range(repeats):
        begin = _now()
        group.all_reduce(x)
        times.append(_now() - begin)
    return median(times), (process_time() - before) / sum(times)


def _ranks_of_machine(group: Communicator) -> int:
    """How many ranks the machine with the most of them has."""
    name = blake2b(socket.gethostname().encode(), digest_size=8).digest()
    names = group.all_gather(np.frombuffer(name, np.uint8))
    _, counts = np.unique(np.asarray(names), axis=0, return_counts=True)
    return int(counts.max())
