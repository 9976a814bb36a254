"""Compression: what ranks send of a bucket of gradients."""

from typing import Any, Protocol

from .buckets import Bucket
from .member import Member


class Compressor(Protocol):
    """Reduces buckets in one way; what it remembers between steps is its state."""

    def reduce(self, member: Member, bucket: Bucket, flat: Any) -> Any:
        """The mean over ranks of a bucket's gradients and counts, in a new array.

        A last element that is not NaN means that no rank has failed.
        """
        ...

    def by_rows(self, flat: Any) -> Any:
        """What is summed over ranks of gradients in a recorded or traced pass."""
        ...


class Uncompressed:
    """All of it."""

    def reduce(self, member: Member, bucket: Bucket, flat: Any) -> Any:
        total = member.perform("all_reduce", flat, "sum")
        total /= member.size
        return total

    def by_rows(self, flat: Any) -> Any:
        return flat
