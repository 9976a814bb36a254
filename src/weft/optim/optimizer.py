"""Optimizer: parameters, their groups and state, and the step by an update rule."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, fields, replace
from functools import lru_cache
from inspect import Parameter as Argument
from inspect import Signature, signature
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, overload
from weakref import WeakSet

from .. import errors
from ..arrays.inplace import own_memories, refuse_levels
from ..arrays.make import zeros_like
from ..core import dispatch
from ..core.backends import BACKENDS
from ..core.box import BOXES
from ..core.reading import reading_trace, refuse_reading
from ..core.settings import current, refuse_while_staging
from ..core.value import TENSORS, as_seen_by_trace, wrap
from ..transform.modes.backward import enable_grad
from . import configs, staged
from .configs import Config, checked_number
from .late import bring_home, counts_of, how_far, send
from .membership import GroupRecord, is_unchanged, regroup
from .parameters import (
    Gradients,
    ParameterEntry,
    Params,
    gradient_pairs,
    graph_of_gradients,
    group_options,
    groups_of,
    parameters_of_variables,
    raw_gradient,
)
from .read_in_trace import groups_read
from .repeated import RepeatedStep, repeated_step
from .state import Slot, dump, load
from .walk import Job, is_fused, walk

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from ..arrays.types import ArrayLike

_R = TypeVar("_R")

_OF_GROUPS = ("params", "name", "lr_scale")  # what a group has beside the fields of the config


@lru_cache(maxsize=None)
def _keywords(rule: Callable[..., Any]) -> tuple[str, ...]:
    """The numbers a rule takes."""
    found = signature(rule).parameters.values()
    return tuple(p.name for p in found if p.kind is Argument.KEYWORD_ONLY)


# All optimizers, for counting what they hold.
_OPTIMIZERS: WeakSet[Any] = WeakSet()


# Called as (optimizer, what) before gradients are used or forgotten: what raises refuses that.
BEFORE_STEP: list[Callable[[Any, str], None]] = []


def check_step(optimizer: Any, what: str) -> None:
    """Ask those who have gradients of an optimizer's parameters whether they may be used now.

    what  what is being done with them, for messages
    """
    for check in list(BEFORE_STEP):
        check(optimizer, f"{optimizer._name}.{what}")


# The averages of parameters that are in use, which have a dict `_averages`.
AVERAGES: WeakSet[Any] = WeakSet()


def held_arrays() -> Iterator[Any]:
    """The arrays of all optimizers' parameters, gradients and states, and of all averages."""
    for ema in list(AVERAGES):
        yield from [raw for raw in ema._averages.values() if type(raw) in BACKENDS]
    for optimizer in list(_OPTIMIZERS):
        parameters = [p for group in optimizer._param_groups for p in group["params"]]
        states = [v for own in optimizer._state.values() for v in own.values()]
        for x in (*parameters, *[getattr(p, "grad", None) for p in parameters], *states):
            raw = getattr(x, "_data", x)
            if type(raw) in BACKENDS and type(raw) not in BOXES:
                yield raw


def bytes_to_come(device: str) -> int:
    """The bytes on a device that all optimizers' first steps will take for their states."""
    return sum([state_bytes(optimizer, device, True) for optimizer in list(_OPTIMIZERS)])


def state_bytes(optimizer: "Optimizer", device: str = "cpu", to_come: bool = False) -> int:
    """The bytes on a device of an optimizer's state, or of what its first step will make."""
    if optimizer.sharded is not None:
        return optimizer.sharded.state_bytes(device, to_come)
    total = 0
    for e in optimizer.entries():
        raw = e.param._data
        if (to_come and e.key in optimizer._state) or not e.param.requires_grad:
            continue
        if type(raw) not in BOXES:
            total += sum([s.bytes_on(device) for s in optimizer.slots(e.group, raw).values()])
    return total


def average_bytes(ema: Any) -> int:
    """The bytes of averages of parameters; None: there are none."""
    found = () if ema is None else ema._averages.values()
    return sum([BACKENDS[type(x)].nbytes(x) for x in found])


class Optimizer:
    """Changes parameters by their gradients; the base of all optimizers.

    params   tensors, (name, tensor) pairs, a dict, a module, or a list of groups: dicts with
             "params" and options of their own, or `ParameterGroup`s; without parameters, the
             first step with (id, parameter, gradient) triples brings them
    config   the optimizer's config, or a learning rate
    options  fields of the config; PyTorch's spelling is understood

    >>> import weft as wf
    >>> p, q = wf.Parameter([1.0]), wf.Parameter([1.0])
    >>> optimizer = wf.optim.SGD([{"params": [p]}, {"params": [q], "lr": 0.5}], lr=0.25)
    >>> optimizer.step([wf.tensor([1.0]), wf.tensor([1.0])])
    >>> p.tolist(), q.tolist()
    ([0.75], [0.5])
    """

    # What the trace of a step guards, and what user code reads by properties.
    _guarded: ClassVar[tuple[str, ...]] = (
        *("_config", "_param_groups", "_state", "_changed", "_late", "_grouping", "_entries"),
        *("_grouped", "_pending", "_pending_group", "_last", "_checked"),
    )
    Config: ClassVar[type[Config]]
    rule: ClassVar[Callable[..., tuple[Any, ...]]]
    __signature__: ClassVar[Signature]  # with the fields of the config as keywords
    whole: ClassVar[bool] = False  # whether the rule needs the whole parameter at once
    traced: ClassVar[bool] = True  # whether the rule is arithmetic only
    can_skip: ClassVar[bool] = True  # whether a device can leave a step out
    estimates_rate: ClassVar[bool] = False  # whether lr is a factor of a rate that it estimates
    started: ClassVar[dict[str, Any]] = {"step": 0}  # the numbers of a new state
    shaping: ClassVar[tuple[str, ...]] = ()  # the options that determine the arrays of a state
    switched_on: ClassVar[dict[str, Any]] = {}  # settings under which a state has all its arrays
    apart: ClassVar[tuple[str, ...]] = ()  # arrays of a state that `_observe` has, not the rule

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "Config" in vars(cls):
            kind = Argument.POSITIONAL_OR_KEYWORD
            first = [Argument(n, kind, default=None) for n in ("params", "config")]
            settings = signature(cls.Config).parameters.values()
            given = [p.replace(kind=Argument.KEYWORD_ONLY) for p in settings]
            cls.__signature__ = Signature([*first, *given])

    def __init__(
        self,
        params: "Params | configs.Config | None" = None,
        config: "configs.Config | float | None" = None,
        **options: Any,
    ):
        if isinstance(params, Config):
            if config is not None:
                raise errors.ArgumentError(f"{self._name}: two configs; parameters come first")
            params, config = None, params
        self._config: Any = self._read_config(config, options)
        _OPTIMIZERS.add(self)
        self._param_groups: list[dict[str, Any]] = []
        self._state: dict[str, dict[str, Any]] = {}
        self.takes_more: bool = params is None  # whether steps may bring new parameters
        self._changed: list[Tensor] = []  # the parameters that the last step changed
        self._late: bool = False  # whether a device may keep counts of steps
        self._grouping: int = 0  # counts the changes of group membership
        self._entries: dict[Any, ParameterEntry] = {}
        self._grouped: list[GroupRecord] = []  # the groups as they were last read
        self._pending: dict[str, dict[str, Any]] = {}  # loaded before the parameters were added
        self._pending_group: dict[str, Any] = {}  # the settings that were loaded with them
        self._last: RepeatedStep | None = None  # the last step, if it can be repeated
        self._checked: dict[int, dict[str, Any]] = {}  # the settings of the groups by their ids
        # The ShardedOptimizer that makes the steps and has the state in this one's place.
        self.sharded: Any = None
        if params is not None:
            for group in groups_of(params):
                self.add_param_group(group)
            if not self._entries:
                raise errors.ArgumentError(f"{self._name}: there are no parameters to optimize")

    @property
    def _name(self) -> str:
        return type(self).__name__

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups: dicts of their parameters and settings, which may be changed."""
        staging = reading_trace()
        return self._param_groups if staging is None else groups_read(self, staging)

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        refuse_while_staging("the groups of an optimizer are replaced")
        self._param_groups = groups

    @property
    def state(self) -> dict[str, dict[str, Any]]:
        """The states of the parameters by their keys: raw arrays and numbers."""
        refuse_reading("the state of an optimizer", "look at it outside of the function")
        return self._state

    @state.setter
    def state(self, state: dict[str, dict[str, Any]]) -> None:
        refuse_while_staging("the state of an optimizer is replaced")
        self._state = state

    @property
    def changed(self) -> "list[Tensor]":
        """The parameters that the last step changed."""
        refuse_reading("what a step has changed", "look at it after the call")
        return self._changed

    @changed.setter
    def changed(self, params: "list[Tensor]") -> None:
        self._changed = params

    @property
    def config(self) -> Any:
        """The defaults of new groups; `set_lr` changes its learning rate."""
        staging = reading_trace()
        if staging is not None:
            name = staging.name_of(self, self._name)
            staging.note_read(f"{name}.config", self.__dict__, "_config")
        return self._config

    @property
    def lr(self) -> float | None:
        """The learning rate, which groups scale; assigning it is `set_lr`."""
        return self.config.lr

    @lr.setter
    def lr(self, lr: float) -> None:
        self.set_lr(lr)

    def _read_config(self, config: Any, options: dict[str, Any]) -> Any:
        given = self.Config.keywords(options)
        if config is None:
            return self.Config(**{**self.Config.KEYWORD_DEFAULTS, **given})
        if type(config) is self.Config:
            return replace(config, **given)
        if isinstance(config, Config):
            raise errors.DTypeError(
                f"{self._name}: got {type(config).__name__}, expected {self.Config.__name__}"
            )
        if "lr" in given:
            raise errors.ArgumentError(f"{self._name}: lr was given twice")
        return self.Config(**{**self.Config.KEYWORD_DEFAULTS, "lr": config, **given})

    def refuse_sharded(self, what: str) -> None:
        """Raise if a ShardedOptimizer has taken over."""
        if self.sharded is not None:
            raise errors.ArgumentError(
                f"{self._name}.{what}: the state of this optimizer is distributed over processes; "
                f"call {what}() of the ShardedOptimizer that was made of it"
            )

    # Parameters

    def add_param_group(self, group: Params) -> None:
        """Add parameters, with settings of their own.

        group  a dict with "params" and options, or a `ParameterGroup`

        >>> import weft as wf
        >>> p, q = wf.Parameter([1.0]), wf.Parameter([1.0])
        >>> optimizer = wf.optim.SGD([p], lr=0.5)
        >>> optimizer.add_param_group({"params": [q], "lr": 0.25})
        >>> len(optimizer.param_groups)
        2
        """
        refuse_while_staging("a group is added to an optimizer")
        self._add_group(group)

    def _add_group(self, group: Params) -> None:
        pairs, options = group_options(group)
        self.read_groups()
        params = [p if name is None else (name, p) for name, p in pairs]
        regroup(self, [*self._param_groups, {"params": params, **options}])
        self._pending_group = {}

    def _settings(self, options: dict[str, Any]) -> dict[str, Any]:
        """The settings of a group: its options, else the config's fields."""
        options = self._pending_group | options
        scale = checked_number(self._name, "lr_scale", options.pop("lr_scale", 1.0))
        label = options.pop("name", None)
        own = asdict(replace(self.config, **self.Config.keywords(options)))
        return {"name": label, "lr_scale": scale, **own}

    def _check_shape(self, key: str, p: "Tensor") -> None:
        """Refuse parameters whose shape or dtype the rule does not take."""

    def entries(self) -> list[ParameterEntry]:
        """The parameters with the keys of their states and their groups, in order."""
        staging = current.get().staging
        if staging is not None:
            staged.depend_on_settings(self, staging)
        self.read_groups()
        return list(self._entries.values())

    def read_groups(self) -> None:
        """Apply changes that were made to `param_groups` by hand."""
        if not is_unchanged(self._grouped, self._param_groups):
            regroup(self, self._param_groups)

    def entry_of(self, param: "Tensor", name: str | None = None) -> ParameterEntry:
        """The entry of a parameter, which is added if the optimizer was made without any."""
        self.read_groups()
        if type(param) in TENSORS and param in self._entries:
            return self._entries[param]
        if not self.takes_more:
            raise errors.ArgumentError(
                f"{self._name}: a gradient for a {type(param).__name__} that is no parameter of "
                "this optimizer; add it with add_param_group()"
            )
        if not self._param_groups:
            self._add_group([])
        self._param_groups[0]["params"].append(param if name is None else (name, param))
        try:
            self.read_groups()
        except errors.WeftError:
            self._param_groups[0]["params"].pop()
            raise
        return self._entries[param]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or fill them with zeros.

        set_to_none  whether `.grad` becomes None; else zeros

        >>> import weft as wf
        >>> p = wf.Parameter([1.0])
        >>> optimizer = wf.optim.SGD([p])
        >>> grads = (p * p).sum().backward()
        >>> optimizer.zero_grad()
        >>> p.grad is None
        True
        """
        check_step(self, "zero_grad")
        for entry in self.entries():
            p = entry.param
            if set_to_none:
                p.grad = None
            elif p.grad is not None:
                p.grad = zeros_like(p.detach())

    def set_lr(self, lr: float) -> None:
        """Set the learning rate; groups with one of their own keep its ratio to this one.

        lr  the learning rate

        >>> import weft as wf
        >>> optimizer = wf.optim.SGD([wf.Parameter([1.0])], lr=0.5)
        >>> optimizer.set_lr(0.25)
        >>> optimizer.param_groups[0]["lr"]
        0.25
        """
        refuse_while_staging("the learning rate of an optimizer is set")
        self._config = replace(self.config, lr=lr)
        self.read_groups()
        for known in self._grouped:
            known.group["lr"] = self.config.lr * known.ratio

    # Steps

    @overload
    def step(self, grads: Callable[[], _R]) -> _R: ...
    @overload
    def step(self, grads: "Gradients | None" = None) -> None: ...
    def step(self, grads: Any = None) -> Any:
        """Change the parameters by their gradients.

        grads  nothing: the parameters' `.grad`; a `GradientMap`; a list, one for each parameter;
               (id, parameter, gradient) triples; or a function that computes the loss and the
               gradients, whose result is returned

        >>> import weft as wf
        >>> p = wf.Parameter([1.0])
        >>> optimizer = wf.optim.SGD([p], lr=0.25)
        >>> optimizer.step((p * p).sum().backward())
        >>> p.tolist()
        [0.5]
        """
        loss = None
        if callable(grads):
            with enable_grad():
                loss = grads()
            grads = None
        self._advance(gradient_pairs(self, grads))
        return loss

    def apply_gradients(self, pairs: Iterable[tuple[Any, Any]]) -> Any:
        """`step` with (parameter, gradient) pairs.

        pairs  (parameter, gradient) pairs

        With gradients that a `wf.Graph` computes, it is what makes the step when it is fetched:
        `run = g.compile([loss, optimizer.apply_gradients([(w, grad)])])`.

        >>> import weft as wf
        >>> p = wf.Parameter([1.0])
        >>> wf.optim.SGD([p], lr=0.25).apply_gradients([(p, wf.tensor([2.0]))])
        >>> p.tolist()
        [0.5]
        """
        listed = [tuple(pair) for pair in pairs]
        graph = graph_of_gradients(listed)
        if graph is not None:
            return graph.update(f"{self._name}.apply_gradients", self.step, listed)
        self.step(parameters_of_variables(listed))

    def _advance(self, pairs: list[tuple[ParameterEntry, Any]]) -> None:
        check_step(self, "step")
        self.refuse_sharded("step")
        staging = current.get().staging
        if staging is not None:
            staged.advance(self, pairs, staging)
            return
        self._check_groups()
        pairs = self._admit(pairs)
        entries = [e for e, _ in pairs]
        if self._last is None or not self._last.take(self, pairs):
            self._last = None
            bring_home(self, [e.key for e in entries])
            raws = [raw_gradient(f"{self._name}.step", e, g) for e, g in pairs]
            memory = own_memories([e.param for e in entries])
            jobs = self._update(list(zip(entries, memory, raws, strict=True)))
            self._last = repeated_step(self, entries, jobs)
        self._changed = [e.param for e in entries]

    def _update(self, given: list[tuple[ParameterEntry, Any, Any]]) -> list[Job]:
        """Update raw parameters by raw gradients, and their states; what was done."""
        common = self._observe(given)
        shared: dict[tuple[Any, ...], dict[str, Any]] = {}
        jobs = [self._job(e, p, g, shared, common) for e, p, g in given]
        walk(jobs)
        return jobs

    def _admit(
        self, pairs: list[tuple[ParameterEntry, Any]], staging: Any = None
    ) -> list[tuple[ParameterEntry, Any]]:
        """The gradients that take part in a step; raises if none can be taken now.

        staging  the program that the step is traced into, which must depend on what decides
        """
        return pairs

    def _observe(
        self, given: list[tuple[ParameterEntry, Any, Any]], taken: Any = None
    ) -> dict[str, Any]:
        """The numbers of a step that follow from all parameters and gradients together.

        given  entries with their raw parameters and gradients
        taken  as of `step_if`
        """
        return {}

    def _observe_staged(
        self, given: list[tuple[ParameterEntry, Any]], read: Callable[..., Any], staging: Any
    ) -> dict[str, Any]:
        """`_observe`, traced.

        given  entries with the gradients' tensors
        read   (entry, name) -> the place of an array of its state in the program
        """
        return {}

    def skips_on(self, device: str) -> bool:
        """Whether `step_if` takes flags of a device: all parameters are there."""
        return self.can_skip and all([e.param.device == device for e in self.entries()])

    def step_if(self, taken: Any, grads: "Gradients | None" = None) -> None:
        """The step, which changes nothing where a flag of the parameters' device is false.

        taken  an array without axes; nothing waits for it
        grads  as of `step`
        """
        check_step(self, "step")
        self.refuse_sharded("step")
        pairs = gradient_pairs(self, grads)
        self._check_groups()
        pairs = self._admit(pairs)
        raws = [(e, raw_gradient(f"{self._name}.step", e, g)) for e, g in pairs]
        memory = own_memories([e.param for e, _ in raws])
        given = {id(e): (p, g) for (e, g), p in zip(raws, memory, strict=True)}
        jobs, cells = [], []
        groups = self._equally_far([e for e, _ in raws], BACKENDS[type(taken)], taken)
        common = self._observe([(e, *given[id(e)]) for e, _ in raws], taken)
        for entries in groups:
            numbers, made = self._numbers_if(entries[0], taken, common)
            cells += made
            for e in entries:
                p, g = given[id(e)]
                jobs.append(self._job_if(e, p, g, numbers, taken))
        walk(jobs)
        for cell, count in cells:
            BACKENDS[type(cell)].overwrite(cell, count)
        self._changed = [e.param for e, _ in raws]

    def _equally_far(
        self, entries: list[ParameterEntry], xp: Any, taken: Any
    ) -> list[list[ParameterEntry]]:
        """The parameters of a step by group and count, with states whose counts are cells."""
        found: dict[tuple[Any, ...], list[ParameterEntry]] = {}
        for e in entries:
            self._fit_slots(e, e.param._data)
            own = self._state[e.key]
            self.rescale(e.group, own, self._is_averaged(e))
            far = how_far(own, self.started)
            found.setdefault((id(e.group), self.rule_of(own), *far), []).append(e)
        for alike in found.values():
            send(self, alike, xp.device_of(taken))
        return list(found.values())

    def _is_averaged(self, entry: ParameterEntry) -> bool:
        return is_fused(self.rule_of(self._state[entry.key]), entry.param._data)

    def _numbers_if(
        self, entry: ParameterEntry, taken: Any, common: dict[str, Any]
    ) -> tuple[dict[str, Any], list[tuple[Any, Any]]]:
        """The numbers of a step, and cells of counts with what they will hold."""
        held, xp = self._state[entry.key], BACKENDS[type(taken)]
        own = dict(held)
        own["step"] = own["step"] + 1
        for name in counts_of(self, entry.group):
            own[name] = own[name] + 0  # `numbers` may change it in place
        rule, numbers = self.rule_of(own), self.numbers(entry.group, own)
        both = entry.group | numbers | common
        names = counts_of(self, entry.group)
        cells = [(held[name], xp.where(taken, own[name], held[name])) for name in names]
        return {name: both[name] for name in _keywords(rule)}, cells

    def _job_if(
        self, entry: ParameterEntry, p: Any, g: Any, numbers: dict[str, Any], taken: Any
    ) -> Job:
        slots, every = self._fit_slots(entry, p)
        own = self._state[entry.key]
        columns = (p, g, *[own[name] for name in slots if name not in self.apart])
        rule = self.rule_of(own)
        return Job(rule, columns, numbers, every, self.whole, self.traced, taken)

    def compute_update(self, grad: "ArrayLike", param: "Tensor | None" = None) -> "Tensor":
        """What a step with this gradient subtracts from a parameter, whose state advances.

        grad   the gradient
        param  may be left out where there is only one; an optimizer without parameters takes the
               gradient for that of a parameter which is zero

        >>> import weft as wf
        >>> wf.optim.SGD(lr=0.25).compute_update(wf.tensor([2.0])).tolist()
        [0.5]
        """
        self.refuse_sharded("compute_update")
        what = f"{self._name}.compute_update"
        given = dispatch.above.adopt(grad)
        refuse_levels((given,), what)
        entry = self._only_entry(what, given) if param is None else self.entry_of(param)
        self._check_groups()
        bring_home(self, [entry.key])
        g = raw_gradient(what, entry, given)
        raw = entry.param._data
        moved = BACKENDS[type(raw)].copy(raw)
        if self._admit([(entry, g)]):
            self._update([(entry, moved, g)])
        return wrap(raw - moved)

    def _only_entry(self, what: str, grad: "Tensor") -> ParameterEntry:
        if not self.entries():
            raw = grad._data
            zero = BACKENDS[type(raw)].full(grad.shape, 0, grad.dtype, grad.device)
            return self.entry_of(wrap(zero))
        if len(self._entries) > 1:
            raise errors.ArgumentError(
                f"{what}: which of the {len(self._entries)} parameters? Give param="
            )
        return self.entries()[0]

    def _check_groups(self) -> None:
        """Read the groups if they changed since the last step; refuse settings out of range."""
        for group in self._param_groups:
            group["lr_scale"] = checked_number(self._name, "lr_scale", group["lr_scale"])
            given = {name: value for name, value in group.items() if name not in _OF_GROUPS}
            if given != self._checked.get(id(group)):
                self._checked[id(group)] = self._check_settings(group, given)

    def _check_settings(self, group: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        """The settings of a group, checked, and in the config's spelling from now on."""
        names = {field.name for field in fields(self.Config)}
        read = self.Config.read(given)
        unknown = [name for name in read if name not in names]
        if unknown:
            raise errors.ArgumentError(
                f"{self._name}: {', '.join(map(repr, unknown))} in a group of parameters, which is "
                f"no setting of this optimizer; it has {', '.join(sorted(names))}"
            )
        for name in set(given) - names:
            del group[name]
        group.update(asdict(replace(self.config, **read)))
        return {name: group[name] for name in names}

    # State

    def _job(
        self,
        entry: ParameterEntry,
        p: Any,
        g: Any,
        shared: dict[tuple[Any, ...], dict[str, Any]],
        common: dict[str, Any],
    ) -> Job:
        """The arrays and numbers of one parameter's step, in which its state advances.

        Parameters of a group with equal step counts share their numbers, and are updated together.
        """
        slots, every = self._fit_slots(entry, p)
        own = self._state[entry.key]
        for name, slot in slots.items():
            if own[name].shape != slot.shape:  # kernels would read and write beyond it
                raise errors.ShapeError(
                    f"{type(self).__name__}: {name} of {entry.key!r} has the shape "
                    f"{tuple(own[name].shape)}, expected {slot.shape}; load a state that fits by "
                    f"load_state_dict(), or begin anew: del optimizer.state[{entry.key!r}]"
                )
        rule = self.rule_of(own)
        self.rescale(entry.group, own, is_fused(rule, p))
        own["step"] += 1
        numbers = self.numbers(entry.group, own)
        key = (rule, id(entry.group), *numbers.values())
        if key not in shared:
            both = entry.group | numbers | common
            shared[key] = {name: both[name] for name in _keywords(rule)}
        columns = (p, g, *[own[name] for name in slots if name not in self.apart])
        return Job(rule, columns, shared[key], every, self.whole, self.traced)

    def _fit_slots(
        self, entry: ParameterEntry, p: Any
    ) -> tuple[dict[str, Slot], tuple[int, ...] | None]:
        """The slots of a parameter; its state is created, or moved to the parameter's device."""
        like = (type(p), p.dtype, p.device, *[entry.group[name] for name in self.shaping])
        if entry.fitted is None or entry.fitted[0] != like or entry.key not in self._state:
            slots = self.slots(entry.group, p)
            own = self._state.setdefault(entry.key, dict(self.started))
            self._check_slots(entry, slots, own)
            for name, slot in slots.items():
                own[name] = slot.fit(own.get(name), p)
            every = tuple([s.every for s in slots.values()])
            entry.fitted = like, slots, (1, 1, *every) if any(k > 1 for k in every) else None
        return entry.fitted[1:]

    def _check_slots(
        self, entry: ParameterEntry, slots: dict[str, Slot], own: dict[str, Any]
    ) -> None:
        """Refuse settings that a state already in use cannot adopt."""
        for name, slot in slots.items():
            found = tuple(own[name].shape) if name in own else slot.shape
            if found != slot.shape:
                raise errors.ArgumentError(
                    f"{self._name}: {name} of {entry.key!r} has the shape {found}, and its "
                    f"settings ({', '.join(self.shaping)}) or its own shape {entry.param.shape} "
                    f"ask for {slot.shape} now; change them back, or begin anew with reset()"
                )

    def settle(self, entry: ParameterEntry) -> None:
        """Create a parameter's state, or update it to the settings of its group."""
        self._fit_slots(entry, entry.param._data)
        self.rescale(entry.group, self._state[entry.key])

    def rescale(self, group: dict[str, Any], own: dict[str, Any], averages: bool = False) -> None:
        """Update the arrays of a state to changed settings; discounted sums maybe to averages."""

    def fitting_gradient(self, entry: ParameterEntry, g: "Tensor") -> "Tensor":
        """The gradient of a parameter, checked against its shape and dtype, as a tensor."""
        return wrap(raw_gradient(f"{self._name}.step", entry, as_seen_by_trace(g)))

    def keywords(self, rule: Callable[..., Any]) -> tuple[str, ...]:
        """The numbers a rule takes."""
        return _keywords(rule)

    def slots(self, group: dict[str, Any], p: Any) -> dict[str, Slot]:
        """The arrays of a parameter's state."""
        return {}

    def upgrade_state(self, own: dict[str, Any]) -> dict[str, Any]:
        """A parameter's saved state, converted from the form of earlier versions."""
        return own

    def rule_of(self, own: dict[str, Any]) -> Callable[..., Any]:
        """The rule for a parameter with this state."""
        return type(self).rule

    def numbers(self, group: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
        """The numbers of this step that are no fields of the config."""
        rate = None if group["lr"] is None else group["lr"] * group["lr_scale"]
        return {"lr": rate, "t": own["step"]}

    def reset(self) -> None:
        """Forget all state: the next step is a first one.

        >>> import weft as wf
        >>> p = wf.Parameter([0.0])
        >>> optimizer = wf.optim.SGD([p], lr=1.0, momentum=0.5)
        >>> optimizer.step([wf.tensor([1.0])])
        >>> optimizer.reset()
        >>> optimizer.step([wf.tensor([1.0])])
        >>> p.tolist()
        [-2.0]
        """
        refuse_while_staging("the state of an optimizer is forgotten")
        self.refuse_sharded("reset")
        self._state.clear()
        self._pending.clear()
        self._pending_group = {}

    def state_dict(self) -> dict[str, Any]:
        """The state by parameter (its name, else its position), the groups and the config.

        >>> import weft as wf
        >>> optimizer = wf.optim.Adam({"w": wf.Parameter([1.0])})
        >>> optimizer.step([wf.tensor([1.0])])
        >>> list(optimizer.state_dict()["state"])
        ['w']
        """
        refuse_while_staging("the state of an optimizer is read")
        self.refuse_sharded("state_dict")
        return dump(self)

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from a `state_dict`; an error lists what differs, and then nothing changes.

        saved  what `state_dict()` gave

        >>> import weft as wf
        >>> p = wf.Parameter([0.0])
        >>> first, second = (wf.optim.SGD([p], lr=1.0, momentum=0.5) for _ in range(2))
        >>> first.step([wf.tensor([1.0])])
        >>> second.load_state_dict(first.state_dict())
        >>> second.step([wf.tensor([1.0])])  # 1 + 0.5·1
        >>> p.tolist()
        [-2.5]
        """
        refuse_while_staging("the state of an optimizer is loaded")
        self.refuse_sharded("load_state_dict")
        load(self, saved)

    def __repr__(self) -> str:
        entries = self.entries()
        count = sum([e.param.size for e in entries])
        return f"{self._name}({len(entries)} parameters, {count} elements, {self.config})"
