"""What a ShardedOptimizer refuses: other rules, and ranks whose optimizers differ."""

from hashlib import blake2b
from typing import Any

import numpy as np

from .. import errors
from ..backend.device import as_numpy
from ..core.backends import BACKENDS
from ..optim.groups import MultiGroupOptimizer
from ..optim.late import bring_home
from ..optim.optimizer import Optimizer
from ..optim.parameters import ParameterEntry
from .gathering import exchange
from .member import Member

# What a rule that looks at all parameters together has of its own.
_JOINT = ("step", "_advance", "_update", "_observe")


def optimizer_inside(optimizer: Any) -> Optimizer:
    """The optimizer, or that of a MultiGroupOptimizer; raises unless its steps can be shared."""
    if isinstance(optimizer, MultiGroupOptimizer):
        optimizer = optimizer.base_optimizer
    name = type(optimizer).__name__
    if not isinstance(optimizer, Optimizer):
        raise errors.ArgumentError(
            f"ShardedOptimizer: got a {name}, expected an optimizer of wf.optim; what wraps one "
            f"goes around: {name}(ShardedOptimizer(optimizer), …)"
        )
    if optimizer.sharded is not None:
        raise errors.ArgumentError(
            f"ShardedOptimizer: this {name} was given to a ShardedOptimizer before; go on with that"
        )
    if any([getattr(type(optimizer), n) is not getattr(Optimizer, n) for n in _JOINT]):
        raise errors.ArgumentError(
            f"ShardedOptimizer: the steps of {name} need sums over all parameters, which the part "
            "of one rank does not have; use it without sharding, or another optimizer, such as AdamW"
        )
    return optimizer


def refuse_different(group: Member, optimizer: Optimizer) -> None:
    """Raise on all ranks if their optimizers differ: in parameters, settings or states."""
    bring_home(optimizer, list(optimizer._state))
    groups = {id(group): k for k, group in enumerate(optimizer._param_groups)}
    mine = [_describe(optimizer, e, groups[id(e.group)]) for e in optimizer.entries()]
    _compare(group, "ShardedOptimizer: compare parameters", mine)


def refuse_different_values(group: Member, optimizer: Optimizer) -> None:
    """Raise on all ranks if their parameters have different values."""
    mine = [[e.key, "", "", "", _digest({"": e.param._data})] for e in optimizer.entries()]
    _compare(group, "ShardedOptimizer: compare values", mine)


def _describe(optimizer: Optimizer, entry: ParameterEntry, group: int) -> list[str]:
    """A parameter's name, kind, optimizer and settings, and a digest of its state."""
    raw = entry.param._data
    kind = f"{BACKENDS[type(raw)].dtype_of(raw)} {tuple(raw.shape)} in group {group}"
    settings = {name: v for name, v in entry.group.items() if name != "params"}
    state = _digest(optimizer._state.get(entry.key, {}))
    return [entry.key, kind, type(optimizer).__name__, repr(settings), state]


def _digest(values: dict[str, Any]) -> str:
    digest = blake2b(digest_size=16)
    for name, value in values.items():
        digest.update(name.encode())
        digest.update(_bytes(value) if type(value) in BACKENDS else repr(value).encode())
    return digest.hexdigest()


def _bytes(raw: Any) -> Any:
    return np.ascontiguousarray(as_numpy(raw)).reshape(-1).view(np.uint8)


def _compare(group: Member, what: str, mine: list[list[str]]) -> None:
    """Raise on all ranks if one of them has something else than rank 0."""
    every = exchange(group, what, mine)
    for rank, theirs in enumerate(every):
        if theirs != every[0]:
            raise errors.RanksDiffer(
                f"ShardedOptimizer: {_difference(every[0], theirs, rank)}; make the same model and "
                "the same optimizer on all ranks, and give them rank 0's values, as DataParallel "
                "or wf.dist.broadcast does"
            )


def _difference(first: list[list[str]], other: list[list[str]], rank: int) -> str:
    if len(first) != len(other):
        return f"rank 0 has {len(first)} parameters, rank {rank} has {len(other)}"
    a, b = next((a, b) for a, b in zip(first, other, strict=True) if a != b)
    if a[:2] != b[:2]:
        return f"a parameter of rank 0 is {a[0]!r} ({a[1]}), of rank {rank} {b[0]!r} ({b[1]})"
    if a[2:4] != b[2:4]:
        return f"the settings of {a[0]!r} are {a[2]} {a[3]} on rank 0, {b[2]} {b[3]} on rank {rank}"
    return f"rank 0 has other values or another state of {a[0]!r} than rank {rank}"
