"""How training would scale to more ranks: a measured step and a link, played event by event."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..core.record import record
from ..errors import ArgumentError
from .compression import Compression
from .header import BYTES as HEADER_BYTES
from .network import Link
from .step_profile import GradientProfile, StepProfile, slowest
from .timeline import BucketTimes, Piece, alone, play
from .traffic import Round, Traffic, buckets_of, traffic_of

_MB = 2**20


@dataclass(frozen=True)
class Prediction:
    """What a step on so many ranks is expected to take; all times are in seconds.

    size           how many ranks there are
    step           from the begin of a step to that of the next one
    compute        forward and backward pass and optimizer, on the slowest rank
    compression    making gradients small, and large again
    communication  how long arrays are on their way, if nothing else ran
    sent           bytes that a rank gives to collectives in a step, as `Member.sent` counts them
    samples        of all ranks together
    efficiency     the step's time on one rank, by that on so many
    buckets        when each bucket was ready, begun and done, from the begin of the step

    >>> import weft as wf
    >>> profile = wf.dist.StepProfile.even(0.5, 4e6)
    >>> (p,) = wf.dist.simulate(profile, wf.dist.Link(latency=0.0, bandwidth=1e9), [4])
    >>> p.size, len(p.buckets), p.step < 0.51
    (4, 2, True)
    """

    size: int
    step: float
    compute: float
    compression: float
    communication: float
    sent: int
    samples: int
    efficiency: float
    buckets: tuple[BucketTimes, ...] = field(repr=False)

    @property
    def throughput(self) -> float:
        """Samples per second of all ranks together.

        >>> import weft as wf
        >>> profile = wf.dist.StepProfile.even(0.5, 4e6, samples=32)
        >>> link = wf.dist.Link(latency=0.0, bandwidth=1e9)
        >>> wf.dist.simulate(profile, link, [1])[0].throughput
        64.0
        """
        return self.samples / self.step

    @property
    def exposed(self) -> float:
        """The seconds of a step in which a rank only waits for what is sent or compressed.

        >>> import weft as wf
        >>> profile = wf.dist.StepProfile.even(0.5, 4e6)
        >>> slow = wf.dist.Link(latency=0.0, bandwidth=1e6)
        >>> wf.dist.simulate(profile, slow, [1, 2])[1].exposed > 3
        True
        """
        return self.step - self.compute


class Scaling(Sequence[Prediction]):
    """The predictions for several numbers of ranks; printed, a table.

    predictions  one for each number of ranks

    >>> import weft as wf
    >>> profile = wf.dist.StepProfile.even(0.5, 4e6)
    >>> scaling = wf.dist.simulate(profile, wf.dist.Link(latency=0.0, bandwidth=1e9), [1, 2])
    >>> [p.size for p in scaling]
    [1, 2]
    """

    def __init__(self, predictions: Iterable[Prediction]):
        self._all = tuple(predictions)

    def __getitem__(self, i: Any) -> Any:
        return self._all[i]

    def __len__(self) -> int:
        return len(self._all)

    def __repr__(self) -> str:
        return f"Scaling({list(self._all)!r})"

    def __str__(self) -> str:
        head = ("ranks", "step ms", "compute ms", "network ms", "exposed ms", "MB", "efficiency")
        rows = [
            (
                f"{p.size}",
                *[f"{1e3 * t:.2f}" for t in (p.step, p.compute, p.communication, p.exposed)],
                f"{p.sent / 1e6:.2f}",
                f"{p.efficiency:.1%}",
                f"{p.throughput:,.0f}",
            )
            for p in self
        ]
        table = [(*head, "samples/s"), *rows]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        return "\n".join(
            "  ".join([cell.rjust(w) for cell, w in zip(row, widths, strict=True)]) for row in table
        )


def simulate(
    profile: StepProfile,
    link: Link,
    sizes: Sequence[int] = (1, 2, 4, 8),
    *,
    overlap: bool = True,
    compression: Compression = None,
    compression_seconds: float | None = None,
    bucket_mb: float = 25.0,
    sharded: bool = False,
) -> Scaling:
    """Predict the steps of data-parallel training, from one rank's step and a network's figures.

    Every rank has as many samples as the profile. Buckets wait for their gradients and for each
    other; each takes Σ α + b/β of its collectives (`Link`), beside what is still computed. The
    optimizer waits for the last bucket, and the slowest of n ranks determines the step:
    μ + σ·E[max of n standard normal numbers].

    profile              a step on one rank
    link                 what joins the ranks
    sizes                numbers of ranks
    overlap              whether buckets are sent while the backward pass runs
    compression          as `DataParallel` takes it
    compression_seconds  what compressing takes for all gradients; None: from how often it reads and
                         writes them, at the profile's `speed`
    bucket_mb            the size of a bucket in MiB; the first has 1
    sharded              whether each rank updates its share of the parameters only

    >>> import weft as wf
    >>> profile = wf.dist.StepProfile.even(0.25, 100e6, samples=32)
    >>> ethernet = wf.dist.Link(latency=20e-6, bandwidth=1.25e9)
    >>> print(wf.dist.simulate(profile, ethernet, [1, 8, 64]))
    ranks  step ms  compute ms  network ms  exposed ms      MB  efficiency  samples/s
        1   250.00      250.00        0.00        0.00    0.00      100.0%        128
        8   283.83      250.00      141.54       33.83  100.00       88.1%        902
       64   296.10      250.00      171.37       46.10  100.00       84.4%      6,917
    """
    traffic = traffic_of(compression)
    if not bucket_mb > 0:
        raise ArgumentError(f"simulate: bucket_mb={bucket_mb!r}; expected a number above 0")
    for size in sizes:
        if not isinstance(size, int) or size < 1:
            raise ArgumentError(f"simulate: a size of {size!r}; expected integers of at least 1")
    limit = bucket_mb * _MB
    buckets = buckets_of(profile.gradients, limit, min(limit, _MB))
    work = _Work(profile, traffic, compression_seconds)
    plan = _Plan(profile, link, traffic, buckets, overlap, sharded, work)
    return Scaling([plan.predict(size) for size in sizes])


class _Work:
    """The seconds that compressing takes for each byte of gradients."""

    def __init__(self, profile: StepProfile, traffic: Traffic, seconds: float | None):
        self._traffic = traffic
        self._given = None if seconds is None else seconds / profile.nbytes
        self._speed = profile.speed or 1.0
        if seconds is None and profile.speed is None and traffic.passes:
            raise ArgumentError(
                "simulate: what compressing takes is not known, since the profile has no speed; "
                "give compression_seconds=…, or a profile of wf.dist.measure_step"
            )

    def per_byte(self, size: int) -> float:
        if self._given is not None:
            return self._given
        return (self._traffic.passes + self._traffic.per_rank * size) / self._speed


@record
class _Machine:
    """What a rank computes and sends with.

    slower    by what factor the slowest rank computes longer
    capacity  the cores of a rank; where each has a device of its own, 1
    demand    how many of them computing needs
    busy      and sending
    """

    slower: float
    capacity: float
    demand: float
    busy: float


def _machine(profile: StepProfile, link: Link, size: int) -> _Machine:
    slower = slowest(profile, size)
    if link.cores is None:
        return _Machine(slower, 1.0, 1.0, link.busy)
    return _Machine(slower, link.cores / min(size, link.node_size), profile.cores, link.busy)


@record
class _Plan:
    """What all numbers of ranks have in common."""

    profile: StepProfile
    link: Link
    traffic: Traffic
    buckets: list[list[GradientProfile]]
    overlap: bool
    sharded: bool
    work: _Work

    def predict(self, size: int) -> Prediction:
        profile, machine = self.profile, _machine(self.profile, self.link, size)
        compute = Piece((profile.forward + profile.backward) * machine.slower, machine.demand)
        share = size if self.sharded else 1
        update = Piece(profile.optimizer * machine.slower / share, machine.demand)
        gather = Piece(self._gathering(size), machine.busy)
        jobs = self._jobs(size, machine) if size > 1 else []
        ready = [self._ready(bucket, machine, compute) for bucket in self.buckets[: len(jobs)]]
        sent = play(compute, ready, jobs, machine.capacity)
        alone_ = partial(alone, capacity=machine.capacity)
        step = sent.end + alone_(update) + alone_(gather)
        return Prediction(
            size,
            step,
            alone_(compute) + alone_(update),
            sum([alone_(work) for work, _ in jobs]),
            sum([alone_(way) for _, way in jobs]) + alone_(gather),
            self._bytes(size) if size > 1 else 0,
            profile.samples * size,
            profile.step / step,
            tuple(sent.buckets),
        )

    def _ready(self, bucket, machine: _Machine, compute: Piece) -> float:
        if not self.overlap:
            return compute.seconds
        return (self.profile.forward + bucket[-1].ready) * machine.slower

    def _jobs(self, size: int, machine: _Machine) -> list[tuple[Piece, Piece]]:
        """Of each bucket what is computed for it, then its way; before the first, the header."""
        found, header = [], self.link.all_gather(HEADER_BYTES, size)
        for bucket in self.buckets:
            work = self.work.per_byte(size) * sum([g.nbytes for g in bucket])
            way = sum([self._seconds(r, size) for r in self.traffic.rounds(bucket)])
            found.append((Piece(work, machine.demand), Piece(way + header, machine.busy)))
            header = 0.0
        return found

    def _seconds(self, r: Round, size: int) -> float:
        if r.collective == "all_gather":
            return self.link.all_gather(r.nbytes, size)
        return self.link.all_reduce(r.nbytes, size)

    def _gathering(self, size: int) -> float:
        """The seconds in which the ranks give each other their shares of the parameters."""
        return self.link.all_gather(self.profile.nbytes / size, size) if self.sharded else 0.0

    def _bytes(self, size: int) -> int:
        sent = sum([r.nbytes for bucket in self.buckets for r in self.traffic.rounds(bucket)])
        return sent + (-(-self.profile.nbytes // size) if self.sharded else 0)
