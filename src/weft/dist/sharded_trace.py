"""Steps of a ShardedOptimizer in a function that is being compiled."""

from typing import TYPE_CHECKING, Any

from ..arrays.make import zeros
from ..ops import collective as rows
from ..ops.slicing import narrow
from ..ops.structural import concat, reshape
from ..transform.modes.backward import no_grad
from .gathering import windows
from .member import Member
from .shares import Piece, overlaps

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from ..optim.parameters import ParameterEntry
    from .sharded import ShardedOptimizer


def advance(
    sharded: "ShardedOptimizer",
    group: Member,
    pairs: list[tuple["ParameterEntry", Any]],
    staging: Any,
) -> None:
    """Trace the step of this rank's pieces, and the exchange of the results."""
    _follow(sharded, staging)
    base, part = sharded.optimizer, sharded.part
    with no_grad():
        own = []
        for e, g in pairs:
            piece = part.pieces.get(e.key)
            gradient = base.fitting_gradient(e, g)
            if piece is not None:
                entry = part.entries[e.key]
                entry.staged = _cut(e.param.detach(), piece)
                own.append((entry, _cut(gradient, piece)))
        try:
            part.optimizer._advance(own)
            new = {entry.key: _flat(entry.staged) for entry, _ in own}
        finally:
            for entry, _ in own:
                entry.staged = None
        for e, value in _whole(sharded, group, [e for e, _ in pairs], new):
            staging.assign(e.param, reshape(value, e.param.shape))


def _cut(x: "Tensor", piece: Piece) -> Any:
    return x if piece.whole else narrow(_flat(x), 0, piece.start, piece.stop)


def _flat(x: Any) -> Any:
    return reshape(x, (x.size,))


def _follow(sharded: "ShardedOptimizer", staging: Any) -> None:
    """Share out and read settings before each call; a program is for one way of sharing out."""

    def depend() -> bool:
        staging.preparing.append(sharded.ready)
        staging.before.append(sharded.part.bind)
        name = staging.name_of(sharded, "ShardedOptimizer")
        staging.depends(f"how the parameters of {name} are shared out", sharded.sharing)
        return True

    staging.state((id(sharded), "shares"), depend, sharded)


def _whole(
    sharded: "ShardedOptimizer", group: Member, entries: list["ParameterEntry"], new: dict[str, Any]
) -> list[tuple["ParameterEntry", Any]]:
    """The flat values of parameters, from the pieces that the ranks have updated."""
    alike: dict[Any, list[ParameterEntry]] = {}
    for e in entries:
        if e.param.size:
            alike.setdefault(e.param.dtype, []).append(e)
    found = []
    for those in alike.values():
        lists = [[own[e.key] for e in those if e.key in own] for own in sharded.shares]
        parts = _gather(group, lists, new, those[0].param) if group.size > 1 else {}
        for e in those:
            if group.size == 1:
                found.append((e, new[e.key]))
                continue
            pieces = [x for rank in range(group.size) for x in parts.get((rank, e.key), ())]
            found.append((e, concat(pieces, 0) if len(pieces) > 1 else pieces[0]))
    return found


def _gather(
    group: Member, lists: list[list[Piece]], new: dict[str, Any], like: "Tensor"
) -> dict[tuple[int, str], list[Any]]:
    """By rank and key, the values of a piece, in parts that follow each other."""
    parts: dict[tuple[int, str], list[Any]] = {}
    sizes = [[piece.size for piece in pieces] for pieces in lists]
    for start, stop in windows(sizes, like.dtype.itemsize):
        packed = [
            narrow(new[lists[group.rank][k].key], 0, a, b)
            for k, a, b in overlaps(sizes[group.rank], start, stop)
        ]
        missing = stop - start - sum([x.shape[0] for x in packed])
        if missing:
            packed.append(zeros((missing,), dtype=like.dtype, device=like.device))
        joined = concat(packed, 0) if len(packed) > 1 else packed[0]
        gathered = rows.all_gather(joined, group.name, group.size)
        for rank, pieces in enumerate(lists):
            row, at = _flat(narrow(gathered, 0, rank, rank + 1)), 0
            for k, a, b in overlaps(sizes[rank], start, stop):
                parts.setdefault((rank, pieces[k].key), []).append(narrow(row, 0, at, at + b - a))
                at += b - a
    return parts
