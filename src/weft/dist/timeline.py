"""A step's events: computing and sending side by side, bucket after bucket on one link."""

from collections.abc import Sequence
from itertools import pairwise

from ..core.record import record


@record
class Piece:
    """Something that takes time.

    seconds  how long it takes where nothing else runs
    demand   the share of the cores (or of the device) that it needs
    """

    seconds: float
    demand: float


@record
class BucketTimes:
    """When a bucket was ready to be sent, begun to be worked on, and done."""

    ready: float
    begin: float
    end: float


@record
class Played:
    """When computing and sending are both done, and the times of each bucket."""

    end: float
    buckets: list[BucketTimes]


def alone(piece: Piece, capacity: float) -> float:
    """The seconds of a piece where nothing else runs, on so many cores."""
    return piece.seconds * max(1.0, piece.demand / capacity)


def play(
    compute: Piece, ready: Sequence[float], jobs: Sequence[Sequence[Piece]], capacity: float
) -> Played:
    """A step up to the optimizer.

    Job i begins when computing has done `ready[i]` of its seconds and job i − 1 is done; its
    pieces follow each other. While a piece and computing need more than there is, both slow down
    alike.

    compute   all computing up to the optimizer's step
    ready     in computing's own seconds, ascending
    jobs      what each bucket takes, in order
    capacity  the cores of a rank
    """
    clock = [(0.0, 0.0)]  # (what computing has done, when)
    found: list[BucketTimes] = []
    for due, pieces in zip(ready, jobs, strict=True):
        done, time = clock[-1]
        if done < due:  # nothing is sent meanwhile
            clock.append((due, time + alone(Piece(due - done, compute.demand), capacity)))
        begin = clock[-1][1]
        for piece in pieces:
            _send(piece, compute, capacity, clock)
        found.append(BucketTimes(_moment(due, clock), begin, clock[-1][1]))
    done, time = clock[-1]
    rest = Piece(compute.seconds - done, compute.demand)
    return Played(time + alone(rest, capacity), found)


def _send(piece: Piece, compute: Piece, capacity: float, clock: list[tuple[float, float]]) -> None:
    """Go on by a piece: beside computing while there is some left, then alone."""
    done, time = clock[-1]
    shared = min(piece.seconds, compute.seconds - done)
    if shared > 0:
        both = Piece(shared, piece.demand + compute.demand)
        done, time = done + shared, time + alone(both, capacity)
        clock.append((done, time))
    rest = Piece(piece.seconds - shared, piece.demand)
    clock.append((done, time + alone(rest, capacity)))


def _moment(due: float, clock: list[tuple[float, float]]) -> float:
    """When computing had done so much."""
    for (before, begin), (after, end) in pairwise(clock):
        if due <= before:
            return begin
        if due <= after:
            return begin + (end - begin) * (due - before) / (after - before)
    return clock[-1][1]
