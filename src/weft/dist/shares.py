"""Which part of which parameter each rank updates."""

from collections.abc import Iterable
from math import prod
from typing import Any

from ..core.backends import BACKENDS
from ..core.record import record
from ..optim.optimizer import Optimizer
from ..optim.parameters import ParameterEntry

# Parameters are cut at multiples of this many elements: each vector of a kernel is in one part.
_ALIGNED = 64


@record
class Piece:
    """The elements [start, stop) of a parameter, in the order of its indices.

    key    of the parameter
    whole  whether the rule needs all of the parameter at once, in its shape
    """

    key: str
    start: int
    stop: int
    whole: bool = False

    @property
    def size(self) -> int:
        return self.stop - self.start


# By rank, the pieces by their parameters' keys, in the optimizer's order: at most one of each.
Shares = list[dict[str, Piece]]


def share_out(optimizer: Optimizer, size: int) -> Shares:
    """The pieces of an optimizer's parameters, so that all ranks have states of about equal size.

    Parameters that are updated element by element are laid end to end and cut into as many ranges
    as there are ranks, apart by dtype, device and bytes of state; other ones go whole to the rank
    that has the least, the largest first.
    """
    alike: dict[tuple[Any, ...], list[ParameterEntry]] = {}
    whole: list[tuple[int, ParameterEntry]] = []
    loads = [0] * size
    for entry in optimizer.entries():
        raw = entry.param._data
        slots = optimizer.slots(entry.group, raw)
        if is_elementwise(optimizer, entry):
            each = sum([s.dtype.itemsize for s in slots.values()])
            alike.setdefault((raw.dtype, str(raw.device), each), []).append(entry)
        else:
            bytes_ = sum([prod(s.shape) * s.dtype.itemsize for s in slots.values()])
            whole.append((bytes_ or BACKENDS[type(raw)].nbytes(raw), entry))
    found: list[list[Piece]] = [[] for _ in range(size)]
    for (_, _, each), entries in alike.items():
        for rank, pieces in enumerate(_cut(entries, size)):
            found[rank] += pieces
            loads[rank] += each * sum([piece.size for piece in pieces])
    for bytes_, entry in sorted(whole, key=lambda pair: -pair[0]):
        rank = loads.index(min(loads))
        loads[rank] += bytes_
        found[rank].append(Piece(entry.key, 0, entry.param.size, True))
    order = {e.key: k for k, e in enumerate(optimizer.entries())}
    return [{p.key: p for p in sorted(own, key=lambda p: order[p.key])} for own in found]


def is_elementwise(optimizer: Optimizer, entry: ParameterEntry) -> bool:
    """Whether the update of a part of a parameter needs no other part of it."""
    raw = entry.param._data
    slots = optimizer.slots(entry.group | optimizer.switched_on, raw)
    shape = tuple(raw.shape)
    return not optimizer.whole and all([s.shape == shape and s.every == 1 for s in slots.values()])


def _cut(entries: list[ParameterEntry], size: int) -> list[list[Piece]]:
    """By rank, the pieces of parameters that are laid end to end."""
    total = sum([e.param.size for e in entries])
    bounds = [total * rank // size for rank in range(size + 1)]
    found: list[list[Piece]] = [[] for _ in range(size)]
    begin = 0
    for e in entries:
        cuts = [_aligned(bound - begin, e.param.size) for bound in bounds]
        for rank in range(size):
            if cuts[rank] < cuts[rank + 1]:
                found[rank].append(Piece(e.key, cuts[rank], cuts[rank + 1]))
        if not e.param.size:  # its steps are counted too
            found[0].append(Piece(e.key, 0, 0))
        begin += e.param.size
    return found


def _aligned(place: int, size: int) -> int:
    """The nearest place in an array where it may be cut."""
    if place <= 0:
        return 0
    if place >= size:
        return size
    return min((place + _ALIGNED // 2) // _ALIGNED * _ALIGNED, size)


def overlaps(sizes: Iterable[int], start: int, stop: int) -> list[tuple[int, int, int]]:
    """Of arrays laid end to end: (which, from, to) of those within [start, stop)."""
    found, begin = [], 0
    for k, size in enumerate(sizes):
        a, b = max(start - begin, 0), min(stop - begin, size)
        if a < b:
            found.append((k, a, b))
        begin += size
    return found
