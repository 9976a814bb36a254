"""What a bucket of gradients sends, and what is computed for that: by kind of compression."""

from collections.abc import Sequence
from math import ceil, prod
from operator import itemgetter
from typing import Literal, Protocol

from ..core.record import record
from ..errors import ArgumentError
from .compression import Compression, PowerSGD, TopK
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

    passes    what making gradients small and large again takes beside what is done without
              compression, as so many readings or writings of their bytes: measured with NumPy on
              one core of an AMD EPYC
    per_rank  likewise for what came from each rank
    """

    @property
    def passes(self) -> float: ...
    @property
    def per_rank(self) -> float: ...

    def rounds(self, bucket: Sequence[GradientProfile]) -> list[Round]:
        """The collectives of a bucket, in order; each waits for the one before."""
        ...


def _elements(bucket: Sequence[GradientProfile]) -> int:
    return sum([prod(g.shape) for g in bucket])


def _tail(bucket: Sequence[GradientProfile]) -> int:
    """A bucket has a number for each gradient behind them, and one for the whole."""
    return len(bucket) + 1


@record
class Plain:
    """Gradients as they are."""

    passes: float = 0.0
    per_rank: float = 0.0

    def rounds(self, bucket: Sequence[GradientProfile]) -> list[Round]:
        return [Round("all_reduce", (_elements(bucket) + _tail(bucket)) * bucket[0].itemsize)]


@record
class Halved:
    """Gradients in a type of two bytes."""

    passes: float = 7.0
    per_rank: float = 0.0

    def rounds(self, bucket: Sequence[GradientProfile]) -> list[Round]:
        size = min(bucket[0].itemsize, 2)
        return [Round("all_reduce", (_elements(bucket) + _tail(bucket)) * size)]


@record
class Sparse:
    """The largest elements of a bucket with their places."""

    ratio: float

    @property
    def passes(self) -> float:
        return 28 + 150 * self.ratio

    @property
    def per_rank(self) -> float:
        return 6 * self.ratio

    def rounds(self, bucket: Sequence[GradientProfile]) -> list[Round]:
        count = ceil(self.ratio * _elements(bucket))
        values = (count + _tail(bucket)) * bucket[0].itemsize
        return [Round("all_gather", values), Round("all_gather", count * _INDEX)]


@record
class LowRank:
    """Matrices as products of two thin ones, vectors and small matrices as they are."""

    rank: int
    passes: float = 27.0
    per_rank: float = 0.0

    def rounds(self, bucket: Sequence[GradientProfile]) -> list[Round]:
        left, right, rest = 0, 0, _tail(bucket)
        for g in bucket:
            rows, columns = (g.shape[0], prod(g.shape[1:])) if g.shape else (1, 1)
            rank = min(self.rank, rows, columns)
            if (rows + columns) * rank < rows * columns:
                left, right = left + rows * rank, right + columns * rank
            else:
                rest += rows * columns
        return [Round("all_reduce", n * bucket[0].itemsize) for n in (rest, left, right) if n]


def traffic_of(compression: Compression) -> Traffic:
    """What `DataParallel` sends with `compression=`."""
    named = {"topk": TopK(), "powersgd": PowerSGD()}
    if isinstance(compression, str):
        compression = named.get(compression, compression)
    if isinstance(compression, TopK):
        return Sparse(compression.ratio)
    if isinstance(compression, PowerSGD):
        return LowRank(compression.rank)
    if compression is None:
        return Plain()
    if compression in ("float16", "bfloat16"):
        return Halved(33.0 if compression == "float16" else 7.0)
    raise ArgumentError(
        f"simulate: compression={compression!r}; expected None, 'float16', 'bfloat16', 'topk', "
        "'powersgd', a wf.dist.TopK or a wf.dist.PowerSGD"
    )


def buckets_of(
    gradients: Sequence[GradientProfile], nbytes: float, first: float
) -> list[list[GradientProfile]]:
    """The gradients in the order in which they are final, cut into buckets of one type.

    Of those that are final at once, the last parameter's comes first, as in `DataParallel`.

    nbytes  a bucket is full when it has so many bytes or more
    first   likewise the first one, which is sent earlier
    """
    found: list[list[GradientProfile]] = []
    open_: dict[int, list[GradientProfile]] = {}
    for _, _, g in sorted(
        [(g.ready, -i, g) for i, g in enumerate(gradients)], key=itemgetter(0, 1)
    ):
        bucket = open_.setdefault(g.itemsize, [])
        bucket.append(g)
        if sum([v.nbytes for v in bucket]) >= (nbytes if found else first):
            found.append(open_.pop(g.itemsize))
    found += open_.values()
    return sorted(found, key=lambda bucket: bucket[-1].ready)
