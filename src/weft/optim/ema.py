"""Exponential moving averages of parameters."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, overload

from .. import errors
from ..arrays.inplace import own_memory
from ..core.backends import BACKENDS
from ..core.differences import differences
from ..core.reading import refuse_reading
from ..core.settings import current, refuse_while_staging
from ..core.value import wrap
from . import staged
from .configs import Config
from .late import is_late, make_cell
from .like import OptimizerLike
from .optimizer import AVERAGES, Optimizer
from .parameters import Gradients, ParameterEntry, Params, check_parameter, named_parameters
from .rules import average
from .state import like, take
from .walk import Job, walk

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor

_R = TypeVar("_R")


def _check_decay(what: str, decay) -> float:
    if isinstance(decay, bool) or not isinstance(decay, int | float) or not 0 <= decay <= 1:
        raise errors.ArgumentError(f"{what}: decay={decay!r:.40}, expected a number in [0, 1]")
    return float(decay)


class EMA:
    """An average s of each parameter: s ← decay·s + (1 − decay)·p at every `update()`.

    params  parameters, (name, parameter) pairs, a dict or a module
    decay   how much of the average is kept

    Averages begin with the parameters' values; those of half types are kept in float32.

    >>> import weft as wf
    >>> p = wf.Parameter([1.0])
    >>> ema = wf.optim.EMA([p], decay=0.5)
    >>> p.apply_update(wf.tensor([-2.0]))
    >>> ema.update()
    >>> with ema.swapped():
    ...     p.tolist()
    [2.0]
    >>> p.tolist()
    [3.0]
    """

    # What programs read or write, and what the trace guards.
    _guarded = ("_count", "_averages")

    def __init__(self, params: Params = (), decay: float = 0.999):
        self.decay: float = _check_decay("EMA", decay)
        self._count: Any = 0  # of updates: a number, or a cell of a device (`late.py`)
        self._entries: dict[Any, ParameterEntry] = {}
        self._averages: dict[str, Any] = {}
        AVERAGES.add(self)
        self._kept: dict[str, Any] | None = None  # the parameters, while the averages are in use
        for name, p in named_parameters(params):
            self.track(p, name)

    def track(
        self, param: "Tensor", name: str | None = None, start: "Tensor | None" = None
    ) -> None:
        """Begin an average of another parameter.

        param  the parameter
        name   what it is called in the state; None: its position
        start  what the average begins with; None: the value the parameter has

        >>> import weft as wf
        >>> ema, p = wf.optim.EMA(decay=0.5), wf.Parameter([1.0])
        >>> ema.track(p, "p")
        >>> ema.average_of(p).tolist()
        [1.0]
        """
        refuse_while_staging("an average begins")
        check_parameter("EMA", param)
        key = str(len(self._entries)) if name is None else name
        if param in self._entries or key in self._averages:
            raise errors.ArgumentError(f"EMA: the parameter {key!r} was given twice")
        slot = like(param._data)
        if start is not None:
            differences({key: slot}, {key: start}).refuse("EMA")
        self._averages[key] = take(wrap(param._data) if start is None else start, slot)
        self._entries[param] = ParameterEntry(param, key, {})

    def __contains__(self, param: "Tensor") -> bool:
        return param in self._entries

    def update(self, params: "Params | None" = None) -> None:
        """Move the averages towards the parameters: s ← decay·s + (1 − decay)·p.

        params  those whose averages move; None: all

        >>> import weft as wf
        >>> p = wf.Parameter([1.0])
        >>> ema = wf.optim.EMA([p], decay=0.5)
        >>> p.apply_update(wf.tensor([-2.0]))
        >>> ema.update()
        >>> ema.average_of(p).tolist()
        [2.0]
        """
        self.refuse_swapped("update")
        self.decay = _check_decay("EMA", self.decay)
        chosen = self._entries if params is None else [p for _, p in named_parameters(params)]
        entries = [self._entry(p) for p in chosen]
        staging = current.get().staging
        if staging is not None:
            staged.follow(self, entries, staging)
            return
        walk(self._jobs(entries))
        self.updates += 1

    def _jobs(self, entries: list[ParameterEntry], taken: Any = None) -> list[Job]:
        numbers = {"decay": self.decay}
        columns = [(self._averages[e.key], e.param._data) for e in entries]
        return [Job(average, both, numbers, taken=taken) for both in columns]

    def update_if(self, taken: Any, params: "list[Tensor]") -> None:
        """The update of some averages, which changes nothing where a device's flag is false."""
        self.decay = _check_decay("EMA", self.decay)
        walk(self._jobs([self._entry(p) for p in params], taken))
        xp = BACKENDS[type(taken)]
        count = self.count_on(xp.device_of(taken))
        xp.overwrite(count, xp.where(taken, count + 1, count))

    @property
    def updates(self) -> int:
        """How many updates there were."""
        refuse_reading("the count of updates of averages", "look at it outside of the function")
        return int(self._count)

    @updates.setter
    def updates(self, updates: int) -> None:
        self._count = updates

    def count_on(self, device: str) -> Any:
        """The memory of the count, from now on a device's."""
        count = self._count
        if not is_late(count) or BACKENDS[type(count)].device_of(count) != device:
            self._count = make_cell(self.updates, device)
        return self._count

    def raw(self, key: str) -> Any:
        """The memory of an average."""
        return self._averages[key]

    def swap(self) -> None:
        """Put the averages in the parameters' place, or the parameters back in theirs.

        >>> import weft as wf
        >>> p = wf.Parameter([1.0])
        >>> ema = wf.optim.EMA([p], decay=0.5)
        >>> p.apply_update(wf.tensor([-2.0]))
        >>> ema.swap()
        >>> p.tolist()
        [1.0]
        >>> ema.swap()
        >>> p.tolist()
        [3.0]
        """
        refuse_while_staging("averages and parameters are swapped")
        if self._kept is not None:
            self._write(self._kept)
            self._kept = None
            return
        entries = list(self._entries.values())
        self._kept = {e.key: _copy(e.param._data) for e in entries}
        self._write(self._averages)

    @property
    def is_swapped(self) -> bool:
        """Whether the averages are in the parameters' place."""
        return self._kept is not None

    @contextmanager
    def swapped(self) -> "Iterator[EMA]":
        """A block in which the parameters are the averages.

        >>> import weft as wf
        >>> p = wf.Parameter([1.0])
        >>> ema = wf.optim.EMA([p], decay=0.5)
        >>> p.apply_update(wf.tensor([-2.0]))
        >>> with ema.swapped():
        ...     p.tolist()
        [1.0]
        """
        self.refuse_swapped("swapped")
        self.swap()
        try:
            yield self
        finally:
            self.swap()

    def _write(self, values: dict[str, Any]) -> None:
        for entry in self._entries.values():
            raw = own_memory(entry.param)
            BACKENDS[type(raw)].overwrite(raw, values[entry.key])

    def refuse_swapped(self, what: str) -> None:
        """Raise while the parameters are the averages."""
        if self._kept is not None:
            raise errors.ArgumentError(
                f"EMA.{what}: the averages are in the parameters' place; call swap() first"
            )

    def average_of(self, param: "Tensor") -> "Tensor":
        """The average of a parameter, as a new tensor.

        param  the parameter

        >>> import weft as wf
        >>> p = wf.Parameter([1.0])
        >>> ema = wf.optim.EMA([p], decay=0.5)
        >>> p.apply_update(wf.tensor([-2.0]))
        >>> ema.average_of(p).tolist()
        [1.0]
        """
        entry, staging = self._entry(param), current.get().staging
        if staging is not None:
            return staged.average_of(self, entry, staging)
        return wrap(_copy(self._averages[entry.key]))

    def _entry(self, param) -> ParameterEntry:
        if param not in self._entries:
            raise errors.MissingParameter("EMA: this parameter has no average; track() it first")
        return self._entries[param]

    def state_dict(self) -> dict[str, Any]:
        """The averages by parameter (its name, else its position), the decay and the count.

        >>> import weft as wf
        >>> ema = wf.optim.EMA({"w": wf.Parameter([1.0])}, decay=0.5)
        >>> ema.state_dict()["decay"]
        0.5
        """
        refuse_while_staging("averages are saved")
        averages = {key: wrap(_copy(raw)) for key, raw in self._averages.items()}
        return {"decay": self.decay, "updates": self.updates, "averages": averages}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from a `state_dict`; an error lists what differs, and then nothing changes.

        saved  what `state_dict()` gave

        >>> import weft as wf
        >>> p = wf.Parameter([1.0])
        >>> ema = wf.optim.EMA([p], decay=0.5)
        >>> p.apply_update(wf.tensor([-2.0]))
        >>> saved = ema.state_dict()
        >>> ema.update()
        >>> ema.load_state_dict(saved)
        >>> ema.average_of(p).tolist()
        [1.0]
        """
        refuse_while_staging("averages are loaded")
        self.refuse_swapped("load_state_dict")
        differences(dict.fromkeys(self.state_dict(), 0), dict.fromkeys(saved, 0)).refuse("EMA")
        slots = {e.key: like(e.param._data) for e in self._entries.values()}
        differences(slots, saved["averages"]).refuse("EMA.load_state_dict")
        self.decay = _check_decay("EMA", saved["decay"])
        self.updates = saved["updates"]
        self._averages = {key: take(t, slots[key]) for key, t in saved["averages"].items()}


def _copy(raw):
    return BACKENDS[type(raw)].copy(raw)


class EMAOptimizer:
    """An optimizer whose steps also average the parameters that they change.

    optimizer  the optimizer
    decay      how much of the average is kept at a step

    An average begins with the value after the parameter's first step.

    >>> import weft as wf
    >>> p = wf.Parameter([4.0])
    >>> optimizer = wf.optim.EMAOptimizer(wf.optim.SGD([p], lr=1.0), decay=0.5)
    >>> for _ in range(2):
    ...     optimizer.step([wf.tensor([1.0])])
    >>> optimizer.swap_to_ema()
    >>> p.tolist()
    [2.5]
    """

    def __init__(self, optimizer: Optimizer | OptimizerLike, decay: float = 0.999):
        self.optimizer: Any = optimizer
        self.ema: EMA = EMA((), decay)
        self._pending: dict[str, Any] = {}  # averages that were loaded before their parameters

    @property
    def decay(self) -> float:
        """How much of the average is kept."""
        return self.ema.decay

    @property
    def config(self) -> Config:
        """The optimizer's config."""
        return self.optimizer.config

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The optimizer's groups."""
        return self.optimizer.param_groups

    @overload
    def step(self, grads: Callable[[], _R]) -> _R: ...
    @overload
    def step(self, grads: "Gradients | None" = None) -> None: ...
    def step(self, grads: Any = None) -> Any:
        """The optimizer's step, and then the averages'.

        grads  as of `Optimizer.step`

        >>> import weft as wf
        >>> p = wf.Parameter([4.0])
        >>> optimizer = wf.optim.EMAOptimizer(wf.optim.SGD([p], lr=1.0), decay=0.5)
        >>> optimizer.step([wf.tensor([1.0])])
        >>> p.tolist()
        [3.0]
        """
        self.ema.refuse_swapped("step")
        loss = self.optimizer.step(grads)
        if current.get().staging is not None:
            self._step_staged()
            return loss
        followed = []
        for p in self.optimizer._changed:
            key = self.optimizer.entry_of(p).key
            if p in self.ema:
                followed.append(p)
            elif key in self._pending:
                self.ema.track(p, key, self._pending.pop(key))
                followed.append(p)
            else:
                self.ema.track(p, key)
        self.ema.update(followed)
        return loss

    def skips_on(self, device: str) -> bool:
        """Whether `step_if` takes flags of a device: the averages have begun."""
        known = all([e.param in self.ema for e in self.optimizer.entries()])
        return known and self.optimizer.skips_on(device)

    def step_if(self, taken: Any, grads: "Gradients | None" = None) -> None:
        """The step, which changes nothing where a flag of the parameters' device is false."""
        self.ema.refuse_swapped("step")
        self.optimizer.step_if(taken, grads)
        self.ema.update_if(taken, self.optimizer._changed)

    def _step_staged(self) -> None:
        new = [p for p in self.optimizer._changed if p not in self.ema]
        if new:
            raise errors.StagingError(
                f"EMAOptimizer.step: {len(new)} parameters have no average yet, which begins after "
                "their first step; take that outside of the compiled function"
            )
        self.ema.update(self.optimizer._changed)

    def set_lr(self, lr: float) -> None:
        """Set the optimizer's learning rate.

        lr  the learning rate

        >>> import weft as wf
        >>> p = wf.Parameter([4.0])
        >>> optimizer = wf.optim.EMAOptimizer(wf.optim.SGD([p], lr=1.0), decay=0.5)
        >>> optimizer.set_lr(0.5)
        >>> optimizer.step([wf.tensor([1.0])])
        >>> p.tolist()
        [3.5]
        """
        self.optimizer.set_lr(lr)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or fill them with zeros.

        set_to_none  whether `.grad` becomes None; else zeros

        >>> import weft as wf
        >>> p = wf.Parameter([4.0])
        >>> optimizer = wf.optim.EMAOptimizer(wf.optim.SGD([p], lr=1.0), decay=0.5)
        >>> grads = (p * p).sum().backward()
        >>> optimizer.zero_grad()
        >>> p.grad is None
        True
        """
        self.optimizer.zero_grad(set_to_none)

    def swap_to_ema(self) -> None:
        """Put the averages in the parameters' place, to evaluate or to save them.

        >>> import weft as wf
        >>> p = wf.Parameter([4.0])
        >>> optimizer = wf.optim.EMAOptimizer(wf.optim.SGD([p], lr=1.0), decay=0.5)
        >>> optimizer.step([wf.tensor([1.0])])
        >>> optimizer.step([wf.tensor([1.0])])
        >>> optimizer.swap_to_ema()
        >>> p.tolist()
        [2.5]
        """
        self.ema.refuse_swapped("swap_to_ema")
        self.ema.swap()

    def swap_back(self) -> None:
        """Put the parameters back in their place.

        >>> import weft as wf
        >>> p = wf.Parameter([4.0])
        >>> optimizer = wf.optim.EMAOptimizer(wf.optim.SGD([p], lr=1.0), decay=0.5)
        >>> optimizer.step([wf.tensor([1.0])])
        >>> optimizer.step([wf.tensor([1.0])])
        >>> optimizer.swap_to_ema()
        >>> optimizer.swap_back()
        >>> p.tolist()
        [2.0]
        """
        if not self.ema.is_swapped:
            raise errors.ArgumentError("EMAOptimizer.swap_back: the parameters are in their place")
        self.ema.swap()

    def swapped(self) -> AbstractContextManager[EMA]:
        """A block in which the parameters are the averages.

        >>> import weft as wf
        >>> p = wf.Parameter([4.0])
        >>> optimizer = wf.optim.EMAOptimizer(wf.optim.SGD([p], lr=1.0), decay=0.5)
        >>> optimizer.step([wf.tensor([1.0])])
        >>> optimizer.step([wf.tensor([1.0])])
        >>> with optimizer.swapped():
        ...     p.tolist()
        [2.5]
        """
        return self.ema.swapped()

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's state and the averages'.

        >>> import weft as wf
        >>> p = wf.Parameter([4.0])
        >>> optimizer = wf.optim.EMAOptimizer(wf.optim.SGD([p], lr=1.0), decay=0.5)
        >>> sorted(optimizer.state_dict())
        ['ema', 'optimizer']
        """
        ema = self.ema.state_dict()
        # The optimizer's keys as they are now: positions change where its groups do.
        found = [(e.key, e.param) for e in self.optimizer.entries() if e.param in self.ema]
        ema["averages"] = {key: self.ema.average_of(p) for key, p in found} | self._pending
        return {"optimizer": self.optimizer.state_dict(), "ema": ema}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from a `state_dict`.

        saved  what `state_dict()` gave

        >>> import weft as wf
        >>> p = wf.Parameter([4.0])
        >>> optimizer = wf.optim.EMAOptimizer(wf.optim.SGD([p], lr=1.0), decay=0.5)
        >>> optimizer.load_state_dict(optimizer.state_dict())
        """
        differences({"optimizer": {}, "ema": {}}, saved).refuse("EMAOptimizer.load_state_dict")
        self.ema.refuse_swapped("load_state_dict")
        self.optimizer.load_state_dict(saved["optimizer"])
        self.ema = EMA((), saved["ema"]["decay"])
        self.ema.updates = saved["ema"]["updates"]
        self._pending = dict(saved["ema"]["averages"])
        for e in self.optimizer.entries():
            if e.key in self._pending:
                self.ema.track(e.param, e.key, self._pending.pop(e.key))
