"""Buckets: which parameters' gradients are reduced together, in which order."""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np

from ..core.aval import Aval
from ..core.record import record

# The first bucket is small, so that the first collective begins early.
FIRST = 1 << 20


@record
class ParameterSpec:
    """A parameter as all ranks must have it."""

    name: str
    aval: Aval
    trained: bool

    @property
    def size(self) -> int:
        return prod(self.aval.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.aval.dtype.itemsize

    def __str__(self) -> str:
        how = "" if self.trained else ", frozen"
        return f"{self.name!r} {self.aval.dtype.name} {self.aval.shape}{how}"


@record
class Bucket:
    """Gradients in one flat array: of `members`, numbers of parameters, at `starts`.

    Behind them is one element for each member, which counts the ranks that have a gradient of it,
    and a last one, which is NaN if a rank has failed.
    """

    members: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    starts: tuple[int, ...]
    size: int
    dtype: np.dtype[Any]
    device: str

    def parts(self) -> Iterable[tuple[int, tuple[int, ...], int, int]]:
        """(number, shape, start, end) of each member."""
        ends = (*self.starts[1:], self.size)
        return zip(self.members, self.shapes, self.starts, ends, strict=True)

    @property
    def length(self) -> int:
        """Of the flat array, with the counts and the last element."""
        return self.size + len(self.members) + 1


def plan_buckets(
    specs: Sequence[ParameterSpec], order: Iterable[int], nbytes: int
) -> tuple[Bucket, ...]:
    """The buckets of the trained parameters, of one dtype and device each, in this order.

    A bucket is full when it has `nbytes`, the first one when it has a megabyte.
    """
    opened: dict[tuple[Any, str], list[int]] = {}
    full: list[list[int]] = []
    for k in order:
        spec = specs[k]
        if not spec.trained:
            continue
        key = spec.aval.dtype, spec.aval.device
        members = opened.setdefault(key, [])
        members.append(k)
        limit = nbytes if full else min(FIRST, nbytes)
        if sum([specs[i].nbytes for i in members]) >= limit:
            full.append(opened.pop(key))
    return tuple([make_bucket(specs, members) for members in (*full, *opened.values())])


def make_bucket(specs: Sequence[ParameterSpec], members: Sequence[int]) -> Bucket:
    """The bucket of some parameters of one dtype and device."""
    ends = list(accumulate([specs[k].size for k in members]))
    first = specs[members[0]].aval
    return Bucket(
        members=tuple(members),
        shapes=tuple([specs[k].aval.shape for k in members]),
        starts=(0, *ends[:-1]),
        size=ends[-1],
        dtype=first.dtype,
        device=first.device,
    )


def digest(*parts: object) -> str:
    """A short digest of texts and bytes, for headers."""
    found = blake2b(digest_size=6)
    for part in parts:
        found.update(part if isinstance(part, bytes) else str(part).encode())
        found.update(b"\0")
    return found.hexdigest()
