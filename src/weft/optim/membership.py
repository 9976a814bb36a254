"""Which parameters belong to which group of an optimizer, read from `param_groups`."""

from collections.abc import Mapping
from operator import is_
from typing import Any, NamedTuple

from .. import errors
from .parameters import ParameterEntry, check_parameter, named_parameters
from .state import check_states


class GroupRecord(NamedTuple):
    """A group as it was last read.

    ratio  of the group's learning rate to the optimizer's, which `set_lr` keeps
    """

    group: dict[str, Any]
    params: tuple[Any, ...]
    ratio: float


def is_unchanged(known: list[GroupRecord], groups: Any) -> bool:
    """Whether the groups are unchanged since they were last read.

    Parameters are compared by identity: tensors compare by their values otherwise.
    """
    if len(known) != len(groups):
        return False
    for (group, params, _), now in zip(known, groups, strict=True):
        held = group.get("params") if now is group else None
        if type(held) is not list or len(held) != len(params) or not all(map(is_, held, params)):
            return False
    return True


def regroup(optimizer: Any, groups: list[dict[str, Any]]) -> None:
    """Adopt the groups as they are now; if something in them is refused, nothing changes.

    A parameter keeps its state, also in another group; the state of a parameter that left all
    groups is dropped. Parameters without a name are called by their position.
    """
    what = type(optimizer).__name__
    pairs = [_pairs(what, group) for group in groups]
    ratios = {id(known.group): known.ratio for known in optimizer._grouped}
    settings = [
        None
        if id(group) in ratios
        else optimizer._settings({name: v for name, v in group.items() if name != "params"})
        for group in groups
    ]
    entries = _entries(optimizer, groups, pairs)
    state = {
        e.key: optimizer._state[old.key]
        for e in entries
        if (old := optimizer._entries.get(e.param)) is not None and old.key in optimizer._state
    }
    waiting = dict(optimizer._pending)
    came = {e.key: e for e in entries if e.param not in optimizer._entries and e.key in waiting}
    fits = [own or group for group, own in zip(groups, settings, strict=True)]
    order = {id(group): own for group, own in zip(groups, fits, strict=True)}
    saved = {key: waiting.pop(key) for key in came}
    state |= check_states(optimizer, came, saved, lambda e: order[id(e.group)])
    optimizer._entries = {e.param: e for e in entries}
    optimizer._state, optimizer._pending = state, waiting
    _install(optimizer, groups, pairs, settings, ratios)


def _install(optimizer, groups: list, pairs: list, settings: list, ratios: dict) -> None:
    """Install checked groups, new ones with all their settings."""
    rate = optimizer.config.lr
    for group, held, own in zip(groups, pairs, settings, strict=True):
        listed = group["params"] if type(group["params"]) is list else []
        listed[:] = [p for _, p in held]
        if own is not None:
            group.clear()
            group.update({"params": listed, **own})
            relative = rate and own["lr"] is not None and own["lr"] != rate
            ratios[id(group)] = own["lr"] / rate if relative else 1.0
        group["params"] = listed
    if groups is not optimizer._param_groups:
        optimizer._param_groups[:] = groups
    optimizer._grouped = [GroupRecord(g, tuple(g["params"]), ratios[id(g)]) for g in groups]
    optimizer._grouping += 1


def _pairs(what: str, group) -> list[tuple[str | None, Any]]:
    """(name or None, parameter) pairs of a group."""
    if not isinstance(group, dict) or "params" not in group:
        came = ", ".join(map(repr, group)) if isinstance(group, Mapping) else type(group).__name__
        raise errors.ArgumentError(
            f"{what}: a group of parameters is {came or 'empty'!s:.80}, expected a dict with "
            "'params'; add groups with add_param_group()"
        )
    return named_parameters(group["params"])


def _entries(optimizer, groups: list, pairs: list) -> list[ParameterEntry]:
    """The entries of all groups' parameters; an entry whose group is the same is reused."""
    what, found, keys, params = type(optimizer).__name__, [], set(), set()
    for group, held in zip(groups, pairs, strict=True):
        for name, p in held:
            check_parameter(what, p)
            old = optimizer._entries.get(p)
            name = old.name if name is None and old is not None else name
            key = str(len(found)) if name is None else name
            if p in params or key in keys:
                raise errors.ArgumentError(
                    f"{what}: the parameter {key!r} was given twice; each belongs to one group, "
                    "under a name of its own"
                )
            optimizer._check_shape(key, p)
            same = old is not None and old.group is group and old.key == key
            found.append(old if same else ParameterEntry(p, key, group, name))
            keys.add(key)
            params.add(p)
    return found
