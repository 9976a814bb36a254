"""The state of a ShardedOptimizer in one piece: gathered from all ranks, and cut for each."""

from collections.abc import Collection, Mapping
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

from .. import errors
from ..arrays.make import asarray
from ..core import dtypes
from ..core.backends import BACKENDS
from ..core.differences import differences
from ..core.value import TENSORS, wrap
from ..optim import state
from ..optim.late import bring_home
from ..optim.state import Slot, compare_states, dump
from .gathering import exchange, gather, write_range
from .member import Member
from .part import Part, cut
from .shares import Shares

if TYPE_CHECKING:
    from .sharded import ShardedOptimizer

States = dict[str, dict[str, Any]]


def all_true(group: Member, flag: Any) -> Any:
    """Whether a flag is true on all ranks, as a value of its device; part of a transaction."""
    xp = BACKENDS[type(flag)]
    counted = xp.cast(flag, dtypes.int32).reshape(1)
    least = group.run(partial(_least, counted)).wait()
    return (least != 0).reshape(())


def _least(counted: Any, member: Member) -> Any:
    return member.perform("all_reduce", counted, "min")


def known(group: Member, part: Part, what: str) -> set[str]:
    """The keys of parameters of which any rank has a state.

    what  the header of the transaction that this begins
    """
    own = [key for key in part.pieces if key in part.optimizer._state]
    return {key for keys in exchange(group, what, own) for key in keys}


def collect(
    group: Member,
    part: Part,
    shares: Shares,
    params: Mapping[str, Any],
    wanted: Collection[str],
    held: States | None = None,
) -> States:
    """The whole states of some parameters, from the pieces of all ranks: numbers and raw arrays.

    params  by key
    wanted  the keys of those that this rank wants
    held    the states of this rank's pieces; None: as they are now
    """
    own = _raw_states(part, held)
    table = {key: _describe(part, values) for key, values in own.items()}
    tables = [table]
    if group.size > 1:
        tables = exchange(group, "ShardedOptimizer: gather the state", table)
    _refuse_apart(tables)
    found: States = {}
    for rank, theirs in enumerate(tables):
        for key in [key for key in theirs if key in wanted and key not in found]:
            piece, p = shares[rank][key], params[key]._data
            numbers, arrays = theirs[key]
            found[key] = dict(numbers)
            for name, (dtype, shape) in arrays.items():
                whole = tuple(shape) if piece.whole else tuple(p.shape)
                device = BACKENDS[type(p)].device_of(p)
                found[key][name] = Slot(whole, dtypes.canonical(dtype), device).allocate()
    for key, values in own.items():
        for name in table[key][1] if key in found else ():
            write_range(found[key][name], shares[group.rank][key].start, values[name].reshape(-1))
    if group.size > 1:
        _gather(group, shares, tables, own, found, params)
    return {key: found[key] for key in params if key in found}


def _raw_states(part: Part, held: States | None) -> States:
    """The states of this rank's pieces as numbers and raw arrays."""
    if held is None:
        bring_home(part.optimizer, list(part.pieces))
        held = part.optimizer._state
    return {
        key: {name: v._data if type(v) in TENSORS else v for name, v in own.items()}
        for key, own in held.items()
    }


def _describe(part: Part, own: dict[str, Any]) -> list[dict[str, Any]]:
    """A state's numbers, and dtypes and shapes of its arrays."""
    started = part.optimizer.started
    arrays = {name: x for name, x in own.items() if name not in started}
    kinds = {n: [str(BACKENDS[type(x)].dtype_of(x)), [*x.shape]] for n, x in arrays.items()}
    return [{name: own[name] for name in started}, kinds]


def _refuse_apart(tables: list[dict[str, Any]]) -> None:
    """Raise if pieces of one parameter have states of different kinds."""
    seen: dict[str, tuple[int, Any]] = {}
    for rank, table in enumerate(tables):
        for key, (numbers, arrays) in table.items():
            now = numbers, sorted((name, dtype) for name, (dtype, _) in arrays.items())
            first, before = seen.setdefault(key, (rank, now))
            if now != before:
                raise errors.RanksDiffer(
                    f"ShardedOptimizer: the state of {key!r} is {before} on rank {first} and {now} "
                    f"on rank {rank}: the ranks have made different steps; load a checkpoint"
                )


def _gather(
    group: Member, shares: Shares, tables: list[Any], own: States, found: States, params: Any
) -> None:
    """Fill the arrays that this rank wants with what others have."""
    kinds: dict[tuple[str, str], list[list[tuple[str, str, int]]]] = {}
    for rank, table in enumerate(tables):
        for key, (_, arrays) in table.items():
            for name, (dtype, shape) in arrays.items():
                kind = dtype, str(params[key]._data.device)
                lists = kinds.setdefault(kind, [[] for _ in tables])
                lists[rank].append((key, name, prod(shape)))
    for kind, lists in sorted(kinds.items()):
        sizes = [[size for _, _, size in items] for items in lists]
        mine = [own[key][name].reshape(-1) for key, name, _ in lists[group.rank]]
        key = next(key for items in lists for key, _, _ in items)
        device = BACKENDS[type(params[key]._data)].device_of(params[key]._data)
        like = Slot((0,), dtypes.canonical(kind[0]), device).allocate()

        def write(rank: int, which: int, start: int, values: Any, lists=lists) -> None:
            key, name, _ = lists[rank][which]
            if key in found:
                write_range(found[key][name], shares[rank][key].start + start, values)

        gather(group, mine, sizes, like, write)


def gathered(sharded: "ShardedOptimizer", root: int | None) -> dict[str, Any] | None:
    """The state of the optimizer as if it were not sharded; None on ranks other than the root."""
    group = sharded.ready()
    part, params = sharded.part, {e.key: e.param for e in sharded.entries()}
    saved = part.optimizer.state_dict()
    here = root is None or root == group.rank
    wanted = params if here else ()
    states = collect(group, part, sharded.shares, params, wanted, saved["state"])
    if not here:
        return None
    whole = {key: {n: _tensor(x) for n, x in own.items()} for key, own in states.items()}
    return {**saved, **dump(sharded.optimizer), "state": whole}


def _tensor(value: Any) -> Any:
    return wrap(value) if type(value) in BACKENDS else value


def own_part(sharded: "ShardedOptimizer") -> dict[str, Any]:
    """The state of this rank's pieces, with which elements they are."""
    group = sharded.ready()
    saved = sharded.part.optimizer.state_dict()
    share = _share(sharded, group)
    return {**saved, **dump(sharded.optimizer), "state": saved["state"], "share": share}


def _share(sharded: "ShardedOptimizer", group: Member) -> dict[str, Any]:
    pieces = {key: [piece.start, piece.stop] for key, piece in sharded.part.pieces.items()}
    return {"rank": group.rank, "size": group.size, "pieces": pieces}


def load(sharded: "ShardedOptimizer", saved: Mapping[str, Any]) -> None:
    """Load a whole state, or this rank's part of one, if all of it fits."""
    group, base, part = sharded.ready(), sharded.optimizer, sharded.part
    what = f"ShardedOptimizer({type(base).__name__}).load_state_dict"
    state.check_form(what, base, saved)
    if not base.entries():
        raise errors.ArgumentError(f"{what}: the optimizer has no parameters yet; add them first")
    state.checked_groups(what, base, saved["param_groups"])
    states = {str(key): own for key, own in saved["state"].items()}
    if "share" in saved:
        if saved["share"] != _share(sharded, group):
            raise errors.StateMismatch(
                f"{what}: this is the part of rank {saved['share']['rank']} of "
                f"{saved['share']['size']}, and this is rank {group.rank} of {group.size}, or its "
                "pieces are others; load what state_dict() gathers, or by load_sharded()"
            )
    else:
        entries = {e.key: e for e in base.entries()}
        differences(dict.fromkeys(entries, 0), dict.fromkeys([*entries, *states], 0)).refuse(what)
        order = dict(zip(map(id, base._param_groups), saved["param_groups"], strict=False))
        slots = compare_states(base, entries, states, lambda e: order.get(id(e.group), e.group))
        states = {
            key: {
                name: wrap(cut(asarray(x)._data, part.pieces[key])) if name in slots[key] else x
                for name, x in own.items()
            }
            for key, own in states.items()
            if key in part.pieces
        }
    install(sharded, {k: v for k, v in saved.items() if k != "share"}, states)


def install(sharded: "ShardedOptimizer", saved: dict[str, Any], states: States) -> None:
    """Adopt settings and the states of this rank's pieces; if an error is raised, nothing."""
    base, part = sharded.optimizer, sharded.part
    before = dump(base)
    groups = [
        {**own, "params": [key for key in map(str, own["params"]) if key in part.pieces]}
        for own in saved["param_groups"]
    ]
    state.load(base, {**saved, "state": {}})
    try:
        part.optimizer.load_state_dict({**saved, "state": states, "param_groups": groups})
    except errors.WeftError:
        state.load(base, before)
        raise
