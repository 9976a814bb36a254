"""What joins the ranks, as figures: how long a collective takes on so many of them."""

from dataclasses import dataclass
from math import ceil, log2
from typing import Literal, get_args

from ..errors import ArgumentError

Algorithm = Literal["ring", "tree", "halving", "hierarchical"]


@dataclass(frozen=True)
class Link:
    """The figures of a network: a message of b bytes takes α + b/β seconds.

    latency          α: the seconds that each message takes, whatever its size
    bandwidth        β: the bytes per second that a machine sends, and receives at the same time
    algorithm        how all-reduce is done, as below
    node_size        ranks of one machine
    inner_latency    α between ranks of one machine; None: the same
    inner_bandwidth  β of each rank inside of its machine; None: the same
    cores            the processor cores that the ranks of a machine share; None: each rank
                     computes on a device of its own
    busy             how many of them (of its device: which share of it) a rank takes away from
                     computing while it communicates

    All-reduce of b bytes among n ranks takes 2(n−1)·α + 2(n−1)/n·b/β by "ring",
    2⌈log₂ n⌉·α + 2(n−1)/n·b/β by "halving" (recursive halving and doubling), and
    2⌈log₂ n⌉·α + 2b/β by "tree". "hierarchical" is a ring in each machine and rings between the
    machines, of which each carries its part of the bytes. The other three see the slower one of α
    and of β as soon as the ranks are on several machines. Reduce-scatter and all-gather are half of
    an all-reduce.

    >>> import weft as wf
    >>> link = wf.dist.Link(latency=10e-6, bandwidth=1.25e9)  # Ethernet of 10 Gbit/s
    >>> f"{link.all_reduce(100e6, 8) * 1e3:.1f} ms"
    '140.1 ms'
    """

    latency: float
    bandwidth: float
    algorithm: Algorithm = "ring"
    node_size: int = 1
    inner_latency: float | None = None
    inner_bandwidth: float | None = None
    cores: float | None = None
    busy: float = 0.0

    def __post_init__(self) -> None:
        for name in ("latency", "inner_latency", "busy"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < float("inf"):
                raise ArgumentError(f"Link: {name}={value!r}; expected a number of at least 0")
        for name in ("bandwidth", "inner_bandwidth", "cores"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ArgumentError(f"Link: {name}={value!r}; expected a number above 0")
        if self.algorithm not in get_args(Algorithm):
            known = ", ".join(map(repr, get_args(Algorithm)))
            raise ArgumentError(f"Link: algorithm={self.algorithm!r}; expected one of {known}")
        if not isinstance(self.node_size, int) or self.node_size < 1:
            raise ArgumentError(
                f"Link: node_size={self.node_size!r}; expected an integer of at least 1"
            )

    def all_reduce(self, nbytes: float, size: int) -> float:
        """The seconds of an all-reduce, or 0 for one rank.

        nbytes  of the array, the same on each rank
        size    how many ranks there are

        >>> import weft as wf
        >>> wf.dist.Link(latency=0.0, bandwidth=1e9).all_reduce(1e9, 4)
        1.5
        """
        if size == 1:
            return 0.0
        inside = min(size, self.node_size)
        machines = ceil(size / self.node_size)
        near, fast = self._inner()
        if self.algorithm == "hierarchical":
            return _ring(nbytes, inside, near, fast) + _ring(
                nbytes, machines, self.latency, self.bandwidth
            )
        if machines > 1:
            near, fast = max(near, self.latency), min(fast, self.bandwidth)
        if self.algorithm == "ring":
            return _ring(nbytes, size, near, fast)
        turns, share = ceil(log2(size)), 1.0 if self.algorithm == "tree" else (size - 1) / size
        return 2 * turns * near + 2 * share * nbytes / fast

    def all_gather(self, nbytes: float, size: int) -> float:
        """The seconds of an all-gather, or 0 for one rank.

        nbytes  what each rank gives
        size    how many ranks there are

        >>> import weft as wf
        >>> wf.dist.Link(latency=0.0, bandwidth=1e9).all_gather(1e9, 4)
        3.0
        """
        return self.all_reduce(nbytes * size, size) / 2

    def _inner(self) -> tuple[float, float]:
        near, fast = self.inner_latency, self.inner_bandwidth
        return self.latency if near is None else near, self.bandwidth if fast is None else fast


def _ring(nbytes: float, size: int, latency: float, bandwidth: float) -> float:
    return 2 * (size - 1) * (latency + nbytes / size / bandwidth)
