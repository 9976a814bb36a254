"""Optimizers whose steps average the parameters: changing between the average and where they step.

The parameters are y, where gradients are taken, and y = β₁·x + (1 − β₁)·z between the average x
and a point z of the state. So x is computed from y and z, and needs no memory.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .. import errors
from ..arrays.inplace import own_memories
from ..core.backends import BACKENDS
from .optimizer import Optimizer
from .parameters import ParameterEntry
from .rules import average
from .walk import Job, walk


class SelfAveragingOptimizer(Optimizer):
    """An optimizer whose parameters are y in training, and the average x elsewhere.

    params   tensors, (name, tensor) pairs, a dict, a module, or a list of groups
    config   the optimizer's config, or a learning rate
    options  fields of the config

    >>> import weft as wf
    >>> p = wf.Parameter([1.0])
    >>> optimizer = wf.optim.ScheduleFreeAdamW([p], lr=0.1)
    >>> optimizer.is_averaged
    False
    """

    def __init__(self, params: Any = None, config: Any = None, **options: Any):
        self.is_averaged: bool = False  # whether the parameters are the average
        super().__init__(params, config, **options)

    def eval(self) -> None:
        """Make the parameters the average x, to evaluate or to save them.

        >>> import weft as wf
        >>> p = wf.Parameter([1.0])
        >>> optimizer = wf.optim.ScheduleFreeAdamW([p], lr=0.25)
        >>> optimizer.step([wf.tensor([1.0])])
        >>> optimizer.step([wf.tensor([1.0])])
        >>> [round(x, 4) for x in p.tolist()]
        [0.6125]
        >>> optimizer.eval()
        >>> [round(x, 4) for x in p.tolist()]  # the mean of 0.75 and 0.5
        [0.625]
        """
        if not self.is_averaged:
            self._move({id(g): 1.0 / g["beta1"] for g in self._param_groups})
            self.is_averaged = True

    def train(self) -> None:
        """Make the parameters y again, from which steps are taken.

        >>> import weft as wf
        >>> p = wf.Parameter([1.0])
        >>> optimizer = wf.optim.ScheduleFreeAdamW([p], lr=0.25)
        >>> optimizer.step([wf.tensor([1.0])])
        >>> optimizer.step([wf.tensor([1.0])])
        >>> optimizer.eval()
        >>> optimizer.train()
        >>> [round(x, 4) for x in p.tolist()]
        [0.6125]
        """
        if self.is_averaged:
            self._move({id(g): g["beta1"] for g in self._param_groups})
            self.is_averaged = False

    def _move(self, kept: dict[int, float]) -> None:
        """Move the parameters along the line through z; kept: their share, by group."""
        self.refuse_sharded("train" if self.is_averaged else "eval")
        self._check_groups()
        entries = [e for e in self.entries() if e.key in self._state]
        memory = own_memories([e.param for e in entries])
        numbers = {key: {"decay": share} for key, share in kept.items()}
        jobs = []
        for e, p in zip(entries, memory, strict=True):
            self._fit_slots(e, p)
            jobs.append(Job(average, (p, self._state[e.key]["z"]), numbers[id(e.group)]))
        walk(jobs)

    @contextmanager
    def swapped(self) -> Iterator["SelfAveragingOptimizer"]:
        """A block in which the parameters are the average x; after it they are bitwise as before.

        >>> import weft as wf
        >>> p = wf.Parameter([1.0])
        >>> optimizer = wf.optim.ScheduleFreeAdamW([p], lr=0.25)
        >>> optimizer.step([wf.tensor([1.0])])
        >>> optimizer.step([wf.tensor([1.0])])
        >>> with optimizer.swapped():
        ...     [round(x, 4) for x in p.tolist()]
        [0.625]
        """
        if self.is_averaged:
            yield self
            return
        params = [e.param for e in self.entries() if e.key in self._state]
        kept = [BACKENDS[type(p._data)].copy(p._data) for p in params]
        self.eval()
        try:
            yield self
        finally:
            for raw, before in zip(own_memories(params), kept, strict=True):
                BACKENDS[type(raw)].overwrite(raw, before)
            self.is_averaged = False

    def _admit(
        self, pairs: list[tuple[ParameterEntry, Any]], staging: Any = None
    ) -> list[tuple[ParameterEntry, Any]]:
        if staging is not None:
            name = staging.name_of(self, self._name)
            staging.fix(f"whether {name}'s parameters are the average", self, "is_averaged")
        if self.is_averaged:
            raise errors.ArgumentError(
                f"{self._name}.step: the parameters are the average, from which no step is taken; "
                "call optimizer.train() first"
            )
        return pairs

    def reset(self) -> None:
        """Forget all state: the next step is a first one, from the parameters as they are.

        >>> import weft as wf
        >>> optimizer = wf.optim.ScheduleFreeAdamW([wf.Parameter([1.0])])
        >>> optimizer.step([wf.tensor([1.0])])
        >>> optimizer.reset()
        >>> optimizer.state_dict()["state"]
        {}
        """
        super().reset()
        self.is_averaged = False

    def state_dict(self) -> dict[str, Any]:
        """The state, the groups, the config, and whether the parameters are the average.

        >>> import weft as wf
        >>> wf.optim.ScheduleFreeAdamW([wf.Parameter([1.0])]).state_dict()["averaged"]
        False
        """
        return {**super().state_dict(), "averaged": self.is_averaged}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from a `state_dict`; the parameters are to be loaded as they were then.

        saved  what `state_dict()` gave

        >>> import weft as wf
        >>> optimizer = wf.optim.ScheduleFreeAdamW([wf.Parameter([1.0])])
        >>> optimizer.eval()
        >>> other = wf.optim.ScheduleFreeAdamW([wf.Parameter([1.0])])
        >>> other.load_state_dict(optimizer.state_dict())
        >>> other.is_averaged
        True
        """
        averaged = saved.get("averaged") if isinstance(saved, dict) else None
        if not isinstance(averaged, bool):
            raise errors.ArgumentError(
                f"{self._name}.load_state_dict: expected what state_dict() gives, a dict with "
                "'averaged', True or False"
            )
        super().load_state_dict(saved)
        self.is_averaged = averaged
