"""ShardedOptimizer: each rank has the state of its part of the parameters only (ZeRO-1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast, overload

from .. import errors
from ..arrays.inplace import own_memories
from ..core.backends import BACKENDS
from ..core.communicator import Finished, Pending
from ..core.reading import refuse_reading
from ..core.settings import current, override_settings, refuse_while_staging
from ..core.value import wrap
from ..optim.averaged import SelfAveragingOptimizer
from ..optim.optimizer import Optimizer, check_step
from ..optim.parameters import gradient_pairs, raw_gradient
from ..transform.modes.backward import enable_grad
from . import sharded_files, sharded_state, sharded_trace
from .gathering import gather, write_range
from .layout import sample
from .member import Member
from .part import Part, cut
from .passed_on import PassesOn
from .sharded_checks import optimizer_inside, refuse_different, refuse_different_values
from .shares import Shares, share_out
from .world import is_initialized, world

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from ..optim.groups import MultiGroupOptimizer
    from ..optim.parameters import Gradients

_R = TypeVar("_R")


class ShardedOptimizer(PassesOn):
    """An optimizer whose state is distributed: of N ranks, each has about 1/N of it (ZeRO-1).

    optimizer  an optimizer of `wf.optim`; it makes no steps of its own any more

    At a step each rank updates its part of the parameters by the gradients, which must be the same
    on all ranks (as `DataParallel` leaves them), and the ranks hand each other the results. What
    comes out is what the optimizer would have computed, to the bit where it computes element by
    element. All ranks call the same methods in the same order; settings may be changed on the
    optimizer or here, in the same way on all ranks.

    Rules that need whole parameters (Muon, LAMB, Adafactor, 8-bit moments) are given whole ones.
    Prodigy and LBFGS, which need sums over all parameters, are refused.

    >>> import weft as wf
    >>> group = wf.dist.init()  # of one process, where no launcher started several
    >>> p = wf.Parameter([1.0])
    >>> optimizer = wf.dist.ShardedOptimizer(wf.optim.SGD([p], lr=0.25))
    >>> optimizer.step((p * p).sum().backward())
    >>> p.tolist()
    [0.5]
    >>> wf.dist.finalize()
    """

    # What the trace of a step guards or reads at each call.
    _guarded: ClassVar[tuple[str, ...]] = (
        *("_part", "_shares", "_group", "_grouping", "_held", "_sharings", "_compared"),
        *("_steps", "_changed"),
    )

    def __init__(self, optimizer: Optimizer | MultiGroupOptimizer):
        base = optimizer_inside(optimizer)
        super().__init__(base)
        self._part = Part(base)
        self._shares: Shares = []
        self._group: Member | None = None  # among whose ranks the parameters are shared out
        self._grouping = -1  # the optimizer's count of changes of its groups, then
        self._held: dict[str, Tensor] = {}  # the parameters, then
        self._sharings = 0  # how often they were
        self._compared = 0  # the sharing after which values were compared
        self._steps = 0
        self._changed: list[Tensor] = []
        base.sharded = self

    @property
    def changed(self) -> list[Tensor]:
        """The parameters that the last step changed."""
        refuse_reading("what a step has changed", "look at it after the call")
        return self._changed

    @property
    def state(self) -> dict[str, dict[str, Any]]:
        """The states of this rank's pieces of parameters."""
        refuse_reading("the state of an optimizer", "look at it outside of the function")
        return self._part.optimizer.state

    def state_bytes(self, device: str = "cpu", to_come: bool = False) -> int:
        """The bytes on a device of this rank's part of the state, or of what a step will make."""
        group = self._group
        if group is None and is_initialized():
            group = cast(Member, world())
        rank, size = (0, 1) if group is None else (group.rank, group.size)
        total, entries = 0, {e.key: e for e in self.entries()}
        for key, piece in share_out(self.optimizer, size)[rank].items():
            entry = entries[key]
            if not (to_come and key in self._part.optimizer._state):
                slots = self.optimizer.slots(entry.group, cut(entry.param._data, piece))
                total += sum([slot.bytes_on(device) for slot in slots.values()])
        return total

    # Shares

    def ready(self) -> Member:
        """The group; before it, all ranks share out the parameters if they changed."""
        base, group = self.optimizer, cast(Member, world())
        base.read_groups()
        if self._group is not None and group is not self._group:
            raise errors.DistributedError(
                "ShardedOptimizer: its state is distributed over the ranks of a group that was "
                "left; take its state_dict() before wf.dist.finalize(), and load it into a new one"
            )
        with override_settings(staging=None, levels=(), grad=False):
            if base._grouping != self._grouping:
                self._share_out(group)
            self._part.follow()
        return group

    def _share_out(self, group: Member) -> None:
        base = self.optimizer
        if group.size > 1:
            refuse_different(group, base)
        shares = share_out(base, group.size)
        pieces, states = shares[group.rank], base._state
        if self._held:
            now = {p: e.key for p, e in base._entries.items()}
            keys = {key: now[p] for key, p in self._held.items() if p in now}
            wanted = {key for key, new in keys.items() if new in pieces}
            held = sharded_state.collect(group, self._part, self._shares, self._held, wanted)
            states = {keys[key]: own for key, own in held.items()}
        self._part.take_over(pieces, states)
        base._state = {}
        self._shares, self._group, self._grouping = shares, group, base._grouping
        self._held = {e.key: e.param for e in base.entries()}
        self._sharings += 1

    def sharing(self) -> int:
        """A number that changes when parameters are shared out anew."""
        return self._sharings

    @property
    def shares(self) -> Shares:
        """By rank, the pieces of the parameters."""
        return self._shares

    @property
    def part(self) -> Part:
        """This rank's part."""
        return self._part

    # Steps

    @overload
    def step(self, grads: Callable[[], _R]) -> _R: ...
    @overload
    def step(self, grads: Gradients | None = None) -> None: ...
    def step(self, grads: Any = None) -> Any:
        """Change the parameters by their gradients, which are the same on all ranks.

        grads  as of `Optimizer.step`

        >>> import weft as wf
        >>> group = wf.dist.init()
        >>> p = wf.Parameter([1.0])
        >>> optimizer = wf.dist.ShardedOptimizer(wf.optim.SGD([p], lr=0.25))
        >>> optimizer.step([wf.tensor([2.0])])
        >>> p.tolist()
        [0.5]
        >>> wf.dist.finalize()
        """
        loss = None
        if callable(grads):
            with enable_grad():
                loss = grads()
            grads = None
        self._advance(grads)
        return loss

    def skips_on(self, device: str) -> bool:
        """Whether `step_if` takes flags of a device: all parameters are there."""
        return self.optimizer.skips_on(device)

    def step_if(self, taken: Any, grads: Gradients | None = None) -> None:
        """The step, which changes nothing where a flag of the parameters' device is false.

        taken  an array without axes; where one rank's is false, all leave the step out
        grads  as of `step`
        """
        self._advance(grads, taken)

    def _advance(self, grads: Any, taken: Any = None) -> None:
        base = self.optimizer
        check_step(base, "step")
        pairs = gradient_pairs(base, grads)
        group, staging = self.ready(), current.get().staging
        if self._compared != self._sharings and group.size > 1:
            refuse_different_values(group, base)
        self._compared = self._sharings
        pairs = self._part.optimizer._admit(pairs, staging)
        self._changed = [e.param for e, _ in pairs]
        if staging is not None:
            sharded_trace.advance(self, group, pairs, staging)
            return
        name = type(base).__name__
        raws = {e.key: raw_gradient(f"{name}.step", e, g) for e, g in pairs}
        agreed = self._agree(group, f"{name}.step {self._steps}", raws)
        self._steps += 1
        if taken is not None and group.size > 1:
            taken = sharded_state.all_true(group, taken)
        self._update(raws, taken)
        self._hand_round(group, {e.key: e.param for e, _ in pairs})
        agreed.wait()  # a rank that has no gradients has waited for nothing

    def _agree(self, group: Member, what: str, gradients: dict[str, Any]) -> Pending:
        """Begin a transaction: all ranks make this step, of these parameters, by these settings."""
        if group.size == 1:
            return Finished(None)
        keys = [e.key for e in self.entries()]
        without = [key for key in keys if key not in gradients]
        some = f", none of {', '.join(without)}" if without else ""
        settings = [
            {name: value for name, value in own.items() if name != "params"}
            for own in self.optimizer._param_groups
        ]
        values = sample(list(gradients.values()), self._steps)
        return group.agree(
            f"{what}: {len(gradients)} of {len(keys)} gradients{some}, values {values}; {settings}"
        )

    def _update(self, gradients: dict[str, Any], taken: Any) -> None:
        """Update this rank's pieces by raw gradients of the parameters."""
        part = self._part
        own_memories([self._held[key] for key in gradients])
        part.bind()
        keys = [key for key in part.pieces if key in gradients]
        pairs = [(part.entries[k], wrap(cut(gradients[k], part.pieces[k]))) for k in keys]
        if pairs and taken is None:
            part.optimizer._advance(pairs)
        elif pairs:
            part.optimizer.step_if(taken, [(e.param, g) for e, g in pairs])
        part.write_back(keys)

    def _hand_round(self, group: Member, params: dict[str, Any]) -> None:
        """Give all ranks the pieces of parameters that were updated."""
        if group.size == 1:
            return
        alike: dict[tuple[Any, ...], list[str]] = {}
        for key, p in params.items():
            alike.setdefault((p._data.dtype, str(p._data.device)), []).append(key)
        for keys in alike.values():
            lists = [[own[key] for key in keys if key in own] for own in self._shares]
            mine = [self._part.entries[piece.key].param for piece in lists[group.rank]]
            own = [piece._data.reshape(-1) for piece in mine]

            def write(rank: int, which: int, start: int, values: Any, lists=lists) -> None:
                piece = lists[rank][which]
                write_range(params[piece.key]._data, piece.start + start, values)

            sizes = [[piece.size for piece in pieces] for pieces in lists]
            gather(group, own, sizes, params[keys[0]]._data, write)

    # State

    def reset(self) -> None:
        """Forget all state, on all ranks: the next step is a first one.

        >>> import weft as wf
        >>> group = wf.dist.init()
        >>> p = wf.Parameter([0.0])
        >>> optimizer = wf.dist.ShardedOptimizer(wf.optim.SGD([p], lr=1.0, momentum=0.5))
        >>> optimizer.step([wf.tensor([1.0])])
        >>> optimizer.reset()
        >>> optimizer.step([wf.tensor([1.0])])
        >>> p.tolist()
        [-2.0]
        >>> wf.dist.finalize()
        """
        refuse_while_staging("the state of an optimizer is forgotten")
        self.ready().agree(f"{type(self.optimizer).__name__}.reset").wait()
        self._part.optimizer.reset()

    @overload
    def state_dict(self, gather: bool = True, root: None = None) -> dict[str, Any]: ...
    @overload
    def state_dict(self, gather: bool = True, *, root: int) -> dict[str, Any] | None: ...
    def state_dict(self, gather: bool = True, root: int | None = None) -> dict[str, Any] | None:
        """The state, as the optimizer would have it without sharding; all ranks call this.

        gather  whether the parts of all ranks are joined; else those of this rank's pieces
        root    the rank that has the result, where others have None; None: all have it

        What was gathered loads into an optimizer that is not sharded, and into one that is, on any
        number of ranks; a part loads where it comes from. All of the state is on the parameters'
        device for this: `save_sharded` needs no rank that holds it.

        >>> import weft as wf
        >>> group = wf.dist.init()
        >>> optimizer = wf.dist.ShardedOptimizer(wf.optim.Adam({"w": wf.Parameter([1.0])}))
        >>> optimizer.step([wf.tensor([1.0])])
        >>> list(optimizer.state_dict()["state"])
        ['w']
        >>> wf.dist.finalize()
        """
        refuse_while_staging("the state of an optimizer is read")
        if gather:
            return sharded_state.gathered(self, root)
        return sharded_state.own_part(self)

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from a `state_dict`; an error lists what differs, and then nothing changes.

        saved  what `state_dict()` gave, here or without sharding; all ranks have all of it

        >>> import weft as wf
        >>> group = wf.dist.init()
        >>> p = wf.Parameter([0.0])
        >>> plain = wf.optim.SGD([p], lr=1.0, momentum=0.5)
        >>> plain.step([wf.tensor([1.0])])
        >>> sharded = wf.dist.ShardedOptimizer(wf.optim.SGD([p], lr=1.0, momentum=0.5))
        >>> sharded.load_state_dict(plain.state_dict())
        >>> sharded.step([wf.tensor([1.0])])  # 1 + 0.5·1
        >>> p.tolist()
        [-2.5]
        >>> wf.dist.finalize()
        """
        refuse_while_staging("the state of an optimizer is loaded")
        sharded_state.load(self, saved)

    # Parameters that are an average (ScheduleFreeAdamW)

    @property
    def is_averaged(self) -> bool:
        """Whether the parameters are the optimizer's average."""
        own = self._part.optimizer
        return isinstance(own, SelfAveragingOptimizer) and own.is_averaged

    def eval(self) -> None:
        """Make the parameters the average of the steps, as `ScheduleFreeAdamW.eval` does.

        >>> import weft as wf
        >>> group = wf.dist.init()
        >>> p = wf.Parameter([1.0])
        >>> optimizer = wf.dist.ShardedOptimizer(wf.optim.ScheduleFreeAdamW([p], lr=0.25))
        >>> optimizer.step([wf.tensor([1.0])])
        >>> optimizer.eval()
        >>> optimizer.is_averaged
        True
        >>> wf.dist.finalize()
        """
        self._move("eval", True)

    def train(self) -> None:
        """Make the parameters those from which steps are taken again.

        >>> import weft as wf
        >>> group = wf.dist.init()
        >>> p = wf.Parameter([1.0])
        >>> optimizer = wf.dist.ShardedOptimizer(wf.optim.ScheduleFreeAdamW([p], lr=0.25))
        >>> optimizer.eval()
        >>> optimizer.train()
        >>> optimizer.is_averaged
        False
        >>> wf.dist.finalize()
        """
        self._move("train", False)

    def _move(self, what: str, averaged: bool) -> None:
        refuse_while_staging("parameters are moved to their average or back")
        group, own = self.ready(), self._averaging(what)
        if own.is_averaged == averaged:
            return
        moved = sharded_state.known(group, self._part, f"ShardedOptimizer.{what}")
        params = {key: p for key, p in self._held.items() if key in moved}
        own_memories(params.values())
        self._part.bind()
        own.eval() if averaged else own.train()
        self._part.write_back([key for key in self._part.pieces if key in params])
        self._hand_round(group, params)

    def _averaging(self, what: str) -> SelfAveragingOptimizer:
        own = self._part.optimizer
        if not isinstance(own, SelfAveragingOptimizer):
            raise errors.ArgumentError(
                f"ShardedOptimizer.{what}: {type(own).__name__} does not average the parameters; "
                "ScheduleFreeAdamW does"
            )
        return own

    @contextmanager
    def swapped(self) -> Iterator[ShardedOptimizer]:
        """A block in which the parameters are the average; after it they are bitwise as before.

        >>> import weft as wf
        >>> group = wf.dist.init()
        >>> p = wf.Parameter([1.0])
        >>> optimizer = wf.dist.ShardedOptimizer(wf.optim.ScheduleFreeAdamW([p], lr=0.25))
        >>> for _ in range(2):
        ...     optimizer.step([wf.tensor([1.0])])
        >>> with optimizer.swapped():
        ...     [round(x, 4) for x in p.tolist()]
        [0.625]
        >>> wf.dist.finalize()
        """
        own = self._averaging("swapped")
        if own.is_averaged:
            yield self
            return
        params = [e.param for e in self.entries()]
        kept = [BACKENDS[type(p._data)].copy(p._data) for p in params]
        self.eval()
        try:
            yield self
        finally:
            for raw, before in zip(own_memories(params), kept, strict=True):
                BACKENDS[type(raw)].overwrite(raw, before)
            own.is_averaged = False

    # Files

    def save_sharded(self, path: str | PathLike[str]) -> None:
        """Save the state into a directory that all ranks see, each rank its part, atomically.

        path  the directory; what was saved there before is replaced when all is written

        >>> import tempfile
        >>> import weft as wf
        >>> group = wf.dist.init()
        >>> optimizer = wf.dist.ShardedOptimizer(wf.optim.SGD([wf.Parameter([1.0])], lr=0.5))
        >>> with tempfile.TemporaryDirectory() as here:
        ...     optimizer.save_sharded(f"{here}/sgd")
        ...     optimizer.set_lr(0.1)
        ...     optimizer.load_sharded(f"{here}/sgd")
        >>> optimizer.lr
        0.5
        >>> wf.dist.finalize()
        """
        refuse_while_staging("the state of an optimizer is saved")
        sharded_files.save(self, path)

    def load_sharded(self, path: str | PathLike[str]) -> None:
        """Go on from what `save_sharded` saved, on any number of ranks.

        path  the directory

        >>> import tempfile
        >>> import weft as wf
        >>> group = wf.dist.init()
        >>> optimizer = wf.dist.ShardedOptimizer(wf.optim.SGD([wf.Parameter([1.0])], lr=0.5))
        >>> with tempfile.TemporaryDirectory() as here:
        ...     optimizer.save_sharded(f"{here}/sgd")
        ...     optimizer.load_sharded(f"{here}/sgd")
        >>> wf.dist.finalize()
        """
        refuse_while_staging("the state of an optimizer is loaded")
        sharded_files.load(self, path)

    def __repr__(self) -> str:
        return f"ShardedOptimizer({self.optimizer!r})"
