"""What a bucket of gradients sends, and what is computed for that: by kind of compression."""

from collections.abc import Sequence
from math import ceil, prod
from typing import Literal, Protocol

from ..core.record import record
from ..errors import ArgumentError
from .step_profile import GradientProfile

_INDEX = 4  # bytes of an index of a sparse gradient


@record
class Round:
    """A collective of a bucket.

    collective  its name
    nbytes      of the array that each rank gives to it
    """

    collective: Literal["all_reduce", "all_gather"]
    nbytes: int


class Traffic(Protocol):
    """A kind of compression.

    passes  how often the bytes of the gradients are read or written to put them into buckets,
            make them small, make them large again and take their mean: counted in the code
    """

    passes: float

    def rounds(self, bucket: Sequence[GradientProfile]) -> list[Round]:
        """The collectives of a bucket, in order; each waits for the one before."""
        ...


@record
class Plain:
    """Gradients as they are: copied into the bucket, divided by the number of ranks.

    Behind them, the bucket has a number for each gradient, and one for the whole.
    """

    passes: float = 4.0

    def rounds(self, bucket: Sequence[GradientProfile]) -> list[Round]:
        counts = (len(bucket) + 1) * bucket[0].itemsize
        return [Round("all_reduce", sum([g.nbytes for g in bucket]) + counts)]


@record
class Halved:
    """Gradients in a type of two bytes."""

    passes: float = 7.0

    def rounds(self, bucket: Sequence[GradientProfile]) -> list[Round]:
        return [Round("all_reduce", sum([prod(g.shape) * min(g.itemsize, 2) for g in bucket]))]


@record
class Sparse:
    """The largest elements of a bucket with their places.

    ratio  which share of the elements is sent
    """

    ratio: float
    passes: float = 24.0

    def rounds(self, bucket: Sequence[GradientProfile]) -> list[Round]:
        count = ceil(self.ratio * sum([prod(g.shape) for g in bucket]))
        return [Round("all_gather", count * (bucket[0].itemsize + _INDEX))]


@record
class LowRank:
    """Matrices as products of two thin ones (PowerSGD), vectors and small matrices as they are."""

    rank: int
    passes: float = 13.0

    def rounds(self, bucket: Sequence[GradientProfile]) -> list[Round]:
        left = right = 0
        for g in bucket:
            rows, columns = (g.shape[0], prod(g.shape[1:])) if g.shape else (1, 1)
            rank = min(self.rank, rows, columns)
            if (rows + columns) * rank < rows * columns:
                left, right = left + rows * rank * g.itemsize, right + columns * rank * g.itemsize
            else:
                left += g.nbytes
        return [Round("all_reduce", n) for n in (left, right) if n]


def traffic_of(compression: object) -> Traffic:
    """The kind of compression that `DataParallel` calls by a name or an object."""
    named: dict[object, Traffic] = {
        None: Plain(),
        "float16": Halved(),
        "bfloat16": Halved(),
        "topk": Sparse(0.01),
        "powersgd": LowRank(4),
    }
    if isinstance(compression, Sparse | LowRank):
        return compression
    if compression not in named:
        raise ArgumentError(
            f"simulate: compression={compression!r}; expected None, 'float16', 'bfloat16', "
            "'topk', 'powersgd', TopK(…) or PowerSGD(…)"
        )
    return named[compression]


def buckets_of(
    gradients: Sequence[GradientProfile], nbytes: float, first: float
) -> list[list[GradientProfile]]:
    """The gradients in the order in which they are final, cut into buckets of one type.

    nbytes  a bucket is full when it has so many bytes or more
    first   likewise the first one, which is sent earlier
    """
    found: list[list[GradientProfile]] = []
    open_: dict[int, list[GradientProfile]] = {}
    for g in sorted(gradients, key=lambda g: g.ready):
        bucket = open_.setdefault(g.itemsize, [])
        bucket.append(g)
        if sum([v.nbytes for v in bucket]) >= (nbytes if found else first):
            found.append(open_.pop(g.itemsize))
    found += open_.values()
    return sorted(found, key=lambda bucket: bucket[-1].ready)
