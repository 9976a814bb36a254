"""Compression: what ranks send of a bucket of gradients, and the mean that they make of it."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any, Protocol

from .. import errors
from ..core import dtypes
from ..core.backends import BACKENDS
from ..core.record import record
from ..ops import collective as rows
from ..ops.elementwise import divide
from ..ops.structural import cast

if TYPE_CHECKING:
    from .buckets import Bucket
    from .member import Member


@record
class TopK:
    """Each rank sends the largest k = ⌈ratio·n⌉ of n elements; the others wait (error feedback).

    ratio  the share of a bucket's elements that is sent

    >>> import weft as wf
    >>> wf.dist.TopK(ratio=0.05)
    TopK(ratio=0.05)
    """

    ratio: float = 0.01

    def __post_init__(self) -> None:
        if isinstance(self.ratio, bool) or not 0 < self.ratio <= 1:
            raise errors.ArgumentError(f"TopK: ratio={self.ratio!r}; expected 0 < ratio ≤ 1")


@record
class PowerSGD:
    """Matrices are sent as products P·Qᵀ of low rank, with error feedback (Vogels et al. 2019).

    rank         the columns of P and Q
    start        how many synchronised passes are sent whole first; below 1: a share of total_steps
    total_steps  the length of the training, for such a share

    A matrix with fewer than (rows + columns)·rank elements, and whatever is no matrix, is sent as
    it is. Of arrays with more axes, the last ones are the columns.

    >>> import weft as wf
    >>> wf.dist.PowerSGD(rank=2, start=0.1, total_steps=3000).begin
    300
    """

    rank: int = 4
    start: float = 1000
    total_steps: int | None = None

    def __post_init__(self) -> None:
        if type(self.rank) is not int or self.rank < 1 or not self.start >= 0:
            raise errors.ArgumentError(
                f"PowerSGD: rank={self.rank!r}, start={self.start!r}; expected rank ≥ 1, start ≥ 0"
            )
        if 0 < self.start < 1 and self.total_steps is None:
            raise errors.ArgumentError(
                f"PowerSGD: start={self.start!r} is a share of the steps; give total_steps=, or a "
                "whole number of steps"
            )

    @property
    def begin(self) -> int:
        """The first pass that is compressed."""
        share = 0 < self.start < 1
        return ceil(self.start * (self.total_steps or 0)) if share else int(self.start)


Compression = TopK | PowerSGD | str | None


class Compressor(Protocol):
    """Reduces buckets in one way; what it remembers between steps is its state.

    state  by kind and number of the parameter: this rank's own arrays
    """

    state: dict[str, dict[int, Any]]

    def reduce(self, member: Member, bucket: Bucket, flat: Any, step: int) -> Any:
        """The mean over ranks of a bucket's gradients and counts; `flat` may be overwritten.

        step  how many passes have synchronised before
        """
        ...

    def mean_by_rows(self, member: Member, flat: Any) -> Any:
        """The mean over ranks of gradients, in a recorded or traced pass."""
        ...


class Uncompressed:
    """All of it is sent."""

    def __init__(self) -> None:
        self.state: dict[str, dict[int, Any]] = {}

    def reduce(self, member: Member, bucket: Bucket, flat: Any, step: int) -> Any:
        total = member.perform("all_reduce", flat, "sum", flat)
        total /= member.size
        return total

    def mean_by_rows(self, member: Member, flat: Any) -> Any:
        return divide(rows.all_reduce(flat, member.name, member.size), member.size)


class Cast(Uncompressed):
    """Shares of the mean are sent in half precision; dtypes that are no wider stay as they are."""

    def __init__(self, dtype: Any):
        super().__init__()
        self._dtype = dtype

    def reduce(self, member: Member, bucket: Bucket, flat: Any, step: int) -> Any:
        if not self._narrows(bucket.dtype):
            return super().reduce(member, bucket, flat, step)
        xp = BACKENDS[type(flat)]
        flat /= member.size
        with xp.quiet():  # what leaves the range is infinite, on all ranks
            sent = xp.cast(flat, self._dtype)
        return xp.cast(member.perform("all_reduce", sent, "sum", sent), bucket.dtype)

    def mean_by_rows(self, member: Member, flat: Any) -> Any:
        dtype = dtypes.canonical(flat.dtype)
        if not self._narrows(dtype):
            return super().mean_by_rows(member, flat)
        share = cast(divide(flat, member.size), self._dtype)
        return cast(rows.all_reduce(share, member.name, member.size), dtype)

    def _narrows(self, dtype: Any) -> bool:
        return dtype.itemsize > self._dtype.itemsize and not dtypes.is_complex(dtype)


def compressor_of(compression: Compression) -> Compressor:
    """The compressor that `compression=` asks for."""
    from .error_feedback import LargestElements, LowRank

    named = {"topk": TopK(), "powersgd": PowerSGD()}
    if isinstance(compression, str):
        compression = named.get(compression, compression)
    if compression is None:
        return Uncompressed()
    if compression in ("float16", "bfloat16"):
        return Cast(dtypes.canonical(compression))
    if isinstance(compression, TopK):
        return LargestElements(compression)
    if isinstance(compression, PowerSGD):
        return LowRank(compression)
    raise errors.ArgumentError(
        f"wf.dist.DataParallel: compression={compression!r}; expected None, 'float16', 'bfloat16', "
        "'topk', 'powersgd', a wf.dist.TopK or a wf.dist.PowerSGD"
    )
