"""Steps, averages and clipping in a traced function, whose inputs are the state."""

from collections.abc import Callable
from functools import partial
from math import inf
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from .. import errors
from ..arrays.inplace import refuse_staging
from ..arrays.make import asarray
from ..core import dtypes
from ..core.aval import Aval
from ..core.exact import Exact, exact
from ..core.value import wrap
from ..ops.complex_ import abs_
from ..ops.elementwise import where
from ..ops.reduce import amax
from ..ops.structural import stack, sum_
from ..transform.modes.backward import no_grad
from .conditional import choose_if_taken, condition_of, count_if_taken, refuse_second
from .late import LateNumber, bring_home, counts_of, how_far, send
from .parameters import ParameterEntry
from .rules import average
from .stamped import Stamps
from .state import like
from .walk import working_dtype

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from .clip import HeldGradient

_MOVING = ("lr", "lr_scale")  # settings that are read at each call


class StepGroup:
    """Parameters of one group with equal step counts, updated together at each call.

    At each call `prepare` runs first: it sets `alike`, a guard on equal step counts, and `given`,
    the rule's numbers. Step counts change only in `commit`, after the call has succeeded. Native
    code detects states changed from outside since the last call; `readings` counts these changes.
    """

    def __init__(self, optimizer: Any, entries: list[ParameterEntry], ahead: int, staging: Any):
        self.optimizer = optimizer
        self.entries = entries
        self.ahead = ahead
        self.group: dict[str, Any] = entries[0].group
        started = optimizer.started
        self.given: dict[str, Any] = {}
        self.alike: bool = True
        self.readings: int = 0
        self._keys = [e.key for e in entries]
        self._names = (*started, "step")[: max(len(started), 2)]
        self._numbers = itemgetter(*self._names)  # a tuple, for two names or more
        self._places = [*{name: k for k, name in enumerate(self._names)}.items()]  # each name once
        slots = optimizer.slots(self.group, entries[0].param._data)
        # The state after the step, without the values of its arrays.
        self._own: dict = {n: Aval(s.shape, s.dtype, s.device) for n, s in slots.items()}
        # A number named like a setting is the value of it that the state's arrays were scaled for.
        self._settings = {name: self.group[name] for name in started if name in self.group}
        self._held: Any = None
        self._staging, self._unchanged = staging, bool  # False
        self._count: Callable[[str, Any], bool]  # of states that native code watches

    def prepare(self) -> None:
        """Read the step counts of these parameters, and compute the numbers of the step."""
        optimizer, own = self.optimizer, self._own
        if optimizer._state is not self._held or not self._unchanged():
            self._held = None
            bring_home(optimizer, self._keys)
            states = [*map(optimizer._state.get, self._keys)]
            self._states = [s or optimizer.started for s in states]
            far = [*map(self._numbers, self._states)]
            self.alike = far.count(far[0]) == len(far)
        self._begun = begun = self._numbers(self._states[0])
        for name, value in zip(self._names, begun):  # noqa: B905  (as many)
            own[name] = value
        for _ in range(self.ahead):
            own["step"] += 1
            self.given.update(optimizer.numbers(self.group, own))

    def settle(self) -> None:
        """Create or update the states, where they changed since the last step.

        As step counts are equal, the numbers of one state are those of all.
        """
        states, settings = self._states, self._settings
        if self._held is not None:
            if [*map(states[0].__getitem__, settings)] == [*settings.values()]:
                return
        for e in self.entries:
            self.optimizer.settle(e)
        self._watch(self.optimizer._state)

    def _watch(self, state: dict) -> None:
        """Watch the states as they are now; equal numbers become one object."""
        self._states = states = [state[key] for key in self._keys]
        self.readings += 1
        if not all([isinstance(x, dict) for x in (state, *states)]):
            return  # nothing that native code knows
        records = self._staging.records()
        numbers = {name: states[0][name] for name in self._names}
        for own in states:
            own.update(numbers)
            free = [records.any if name in numbers else value for name, value in own.items()]
            records.table(own, [*own], free)
        records.table(state, [*state], [*state.values()])
        for name in numbers:
            records.alike(name, states)
        self._held, self._unchanged = state, records.watching()
        self._count = records.counting(states)

    def commit(self) -> None:
        """Count the step."""
        for name, k in self._places:
            now = self._own[name]
            if now == self._begun[k]:
                continue
            if self._held is not None:
                self._count(name, now)
            else:
                for state in self._states:
                    state[name] = now


class LateStepGroup(StepGroup):
    """Parameters whose step a device may leave out: it counts their steps, in cells they share."""

    def __init__(self, optimizer: Any, entries: list[ParameterEntry], ahead: int, staging: Any):
        super().__init__(optimizer, entries, ahead, staging)
        self._device = staging.late_device
        self._counts = counts_of(optimizer, self.group)

    def prepare(self) -> None:
        """Compute the numbers of the step that the host knows."""
        optimizer, own = self.optimizer, self._own
        if optimizer._state is not self._held or not self._unchanged():
            self._held = None
            states = [*map(optimizer._state.get, self._keys)]
            self._states = [s or optimizer.started for s in states]
            far = [how_far(s, optimizer.started) for s in self._states]
            self.alike = far.count(far[0]) == len(far)
        begun = [*map(self._states[0].__getitem__, self._settings)]
        own.update(zip(self._settings, begun, strict=True))
        own.update({name: optimizer.started[name] + 1 for name in self._counts})
        self.given.update(optimizer.numbers(self.group, own))

    def numbers(self, slots: dict[Any, Any], staging: Any) -> dict[str, Any]:
        """Trace the counting of the step; returns the numbers that follow from the counts."""
        key, own = self._keys[0], dict(self._own)
        for name in self._counts:
            slots[key, name] = staging.slot(
                f"{name} of {key!r}",
                Aval((), dtypes.float64, self._device),
                lambda name=name: self.optimizer._state[key][name],
                self,
            )
            own[name] = LateNumber(wrap(slots[key, name].staged))
        own["step"] = own["step"] + 1
        found = self.optimizer.numbers(self._moving(staging), own)
        for name in self._counts:
            place = slots[key, name]
            place.staged = choose_if_taken(staging, own[name].value, wrap(place.staged))._data
        return {name: v for name, v in found.items() if isinstance(v, LateNumber)}

    def _moving(self, staging: Any) -> dict[str, Any]:
        """The settings, of which the rates are host scalars: numbers may follow from them."""
        name = staging.name_of(self.optimizer, type(self.optimizer).__name__)
        rates = {
            n: partial(self.group.__getitem__, n) for n in _MOVING if self.group[n] is not None
        }
        return self.group | {n: staging.host(f"{name}.{n}", read) for n, read in rates.items()}

    def _watch(self, state: dict) -> None:
        send(self.optimizer, self.entries, self._device)
        self._states = states = [state[key] for key in self._keys]
        self.readings += 1
        if not all([isinstance(x, dict) for x in (state, *states)]):
            return  # nothing that native code knows
        records = self._staging.records()
        for own in states:
            free = [records.any if name in self._settings else v for name, v in own.items()]
            records.table(own, [*own], free)
        records.table(state, [*state], [*state.values()])
        self._held, self._unchanged = state, records.watching()

    def commit(self) -> None:
        """The device has counted the step."""


class DropNew:
    """Drops the states of parameters whose first step was skipped."""

    def __init__(self, optimizer: Any, entries: list[ParameterEntry]):
        self.optimizer = optimizer
        self.entries = entries

    def __call__(self) -> None:
        state = self.optimizer._state
        for e in self.entries:
            if e.key in state and not state[e.key]["step"]:
                del state[e.key]


def advance(optimizer: Any, pairs: list[tuple[ParameterEntry, Any]], staging: Any) -> None:
    """Trace the step of these parameters."""
    slots = staging.state(optimizer, dict)  # the state after earlier steps of the program
    late = condition_of(staging) is not None and staging.late_device is not None
    if not late:
        bring_home(optimizer, [e.key for e, _ in pairs])
    depend_on_settings(optimizer, staging)
    pairs = optimizer._admit(pairs, staging)
    groups: list[tuple[StepGroup, dict[str, Any]]] = []
    for entries in _group_by_count(optimizer, pairs, slots):
        ahead = slots.setdefault((entries[0].key, "steps"), 0) + 1
        refuse_second(staging, type(optimizer).__name__, ahead, slots)
        for e in entries:
            slots[e.key, "steps"] = ahead
        kind = LateStepGroup if late else StepGroup
        together = kind(optimizer, entries, ahead, staging)
        name = staging.name_of(optimizer, type(optimizer).__name__)
        which = f"whether {name} is equally far with the parameters of {entries[0].key!r}"
        together.prepare()
        staging.preparing.append(together.prepare)
        staging.depends(f"{which} (step {ahead} of a call)", partial(getattr, together, "alike"))
        staging.before.append(together.settle)
        given = _hosts(optimizer, together.given, staging)
        if isinstance(together, LateStepGroup):
            given |= together.numbers(slots, staging)
        else:
            drop = DropNew(optimizer, entries)
            staging.after.append(count_if_taken(staging, together.commit, drop))
        groups.append((together, given))
    with no_grad():
        _update_all(optimizer, groups, dict(pairs), slots, staging)
    optimizer._changed = [e.param for e, _ in pairs]  # averages are updated by these


def _update_all(optimizer, groups: list, gradients: dict, slots: dict, staging) -> None:
    """Trace the update of the parameters of all groups."""
    of = {e.key: together for together, _ in groups for e in together.entries}

    def read(entry: ParameterEntry, name: str) -> Any:
        _slot(of[entry.key], entry, name, _value(entry), slots, staging)
        return slots[entry.key, name]

    fitting = {e: optimizer.fitting_gradient(e, g) for e, g in gradients.items()}
    common = optimizer._observe_staged(list(fitting.items()), read, staging)
    for together, given in groups:
        stamps = Stamps(staging)
        for e in together.entries:
            _update(together, e, fitting[e], given | common, slots, stamps)


class _Groups:
    """Guard on an optimizer's groups: the settings that a program is specialised on."""

    def __init__(self, optimizer, staging):
        self.optimizer: Any = optimizer
        self._staging = staging
        first = optimizer._param_groups[0]
        self.static = [name for name in first if name not in ("params", "name", *_MOVING)]
        self._look = itemgetter(*[name for name in first if name not in ("params", "name")])
        self._rates = itemgetter(*_MOVING)
        self._known: list = []  # the groups at the last call
        self.settings: list = []  # membership, and the settings that rules branch on
        self._seen: list = []  # the learning rates read with them
        self._held, self._unchanged = None, bool  # False

    def prepare(self) -> None:
        """Read the groups, if they changed since the last call."""
        groups = self.optimizer._param_groups
        same = groups is self._held and self._unchanged()
        if not same or [*map(self._rates, groups)] != self._seen:
            self._read()
            groups = self.optimizer._param_groups
            self._seen = [*map(self._rates, groups)]
            if not same:
                self._watch(groups)

    def _read(self) -> None:
        self.optimizer.read_groups()
        now = self._now()
        if now != self._known:
            self.optimizer._check_groups()
            self._known, static = self._now(), self.static
            groups = self.optimizer._param_groups
            read = [[g["lr"] is None, *[Exact(g[name]) for name in static]] for g in groups]
            self.settings = [self.optimizer._grouping, *read]

    def _now(self) -> list:
        groups = self.optimizer._param_groups
        return [
            self.optimizer._grouping,
            *map(len, groups),
            *[exact(self._look(g)) for g in groups],
        ]

    def _watch(self, groups: list) -> None:
        lists = [groups, *[group["params"] for group in groups]]
        if not all([isinstance(x, list) for x in lists]):
            return  # nothing that native code knows
        records = self._staging.records()
        records.elements(groups, [*groups])
        for group in groups:
            free = [records.any if name in _MOVING else value for name, value in group.items()]
            records.table(group, [*group], free)
            records.elements(group["params"], [*group["params"]])
        self._held, self._unchanged = groups, records.watching()


def depend_on_settings(optimizer, staging) -> None:
    """Specialise the program on the groups, and the settings that are not read at each call."""
    if not optimizer._param_groups:
        return  # a step brings the parameters
    optimizer._check_groups()  # from here on in the config's spelling
    staging.state((id(optimizer), "groups"), partial(_guard_groups, optimizer, staging), optimizer)


def _guard_groups(optimizer, staging) -> None:
    """Add a guard on an optimizer's groups, which are read before each call."""
    groups = _Groups(optimizer, staging)
    groups.prepare()
    staging.preparing.append(groups.prepare)
    name = staging.name_of(optimizer, type(optimizer).__name__)
    label = f"{name}'s settings (params, {', '.join(groups.static)})"
    staging.depends(label, partial(getattr, groups, "settings"))


def _group_by_count(optimizer, pairs, slots) -> list[list[ParameterEntry]]:
    """The parameters of a step by group and by the numbers of their state."""
    found: dict[tuple, list[ParameterEntry]] = {}
    for e, _ in pairs:
        have = optimizer._state.get(e.key, optimizer.started)
        far = how_far(have, optimizer.started)
        found.setdefault((id(e.group), slots.get((e.key, "steps"), 0), *far), []).append(e)
    return list(found.values())


def _hosts(optimizer, given: dict[str, Any], staging) -> dict[str, Any]:
    """The numbers of a step as host scalars."""
    name = staging.name_of(optimizer, type(optimizer).__name__)
    return {
        key: None if v is None else staging.host(f"{name}.{key}", partial(given.__getitem__, key))
        for key, v in given.items()
    }


def _update(
    together: StepGroup, entry: ParameterEntry, g, given: dict, slots: dict, stamps: Stamps
) -> None:
    optimizer, p, staging = together.optimizer, entry.param, stamps.staging
    if dtypes.is_complex(p.dtype):
        raise errors.StagingError(
            f"{type(optimizer).__name__}.step: the parameter {entry.key!r} is {p.dtype}, and a "
            "compiled step takes real ones; step outside of the compiled function"
        )
    value = _value(entry)
    found = optimizer.slots(entry.group, value._data)
    names = [name for name in found if name not in optimizer.apart]
    state = [_slot(together, entry, name, value, slots, staging) for name in names]
    own = dict(optimizer.started) | {n: slots[entry.key, n].staged for n in names}
    rule = optimizer.rule_of(own)
    hyper = {k: (entry.group | given)[k] for k in optimizer.keywords(rule)}
    work = working_dtype(p.dtype)
    columns = [x if x.dtype == dtypes.uint8 else x.to(work) for x in (value, g, *state)]
    new, *rest = stamps(rule, columns, hyper)
    new = choose_if_taken(staging, new.to(p.dtype), value)
    if entry.staged is None:
        staging.assign(p, new)
    else:
        entry.staged = new
    for name, made, old in zip(names, rest, state, strict=True):
        place = slots[entry.key, name]
        place.staged = choose_if_taken(staging, made.to(place.entered.aval.dtype), old)._data


def _value(entry: ParameterEntry) -> "Tensor":
    """A parameter's value at this point of the program."""
    return entry.param.detach() if entry.staged is None else entry.staged


def _slot(together: StepGroup, entry: ParameterEntry, name: str, value, slots: dict, staging):
    """An array of a parameter's state at this point of the program."""
    optimizer = together.optimizer
    if (entry.key, name) not in slots:
        slot = optimizer.slots(entry.group, value._data)[name]
        slots[entry.key, name] = staging.slot(
            f"{name} of {entry.key!r}",
            Aval(slot.shape, slot.dtype, slot.device),
            lambda: optimizer._state[entry.key][name],
            together,
        )
    return wrap(slots[entry.key, name].staged)


class _UpdateCount:
    """Counts an update of averages: once for each call, even if it is committed twice."""

    def __init__(self, ema):
        self.ema, self.due = ema, True

    def begin(self) -> None:
        self.ema._count, self.due = self.ema.updates, True  # which a device may have

    def commit(self) -> None:
        if self.due:  # nothing is called in the next line, so no signal comes in between
            self.due, self.ema._count = False, self.ema._count + 1


def follow(ema: Any, entries: list[ParameterEntry], staging: Any) -> None:
    """Trace the update of averages by their parameters."""
    name = staging.name_of(ema, "EMA")
    staging.depends(f"{name}'s decay", lambda: Exact(ema.decay))
    staging.fix(f"whether {name}'s averages are in the parameters' place", ema, "is_swapped")
    with no_grad():
        for e in entries:
            place, p = _average(ema, e, staging), e.param.detach()
            work = working_dtype(p.dtype)
            (made,) = average(wrap(place.staged).to(work), p.to(work), decay=ema.decay)
            made = made.to(place.entered.aval.dtype)
            place.staged = choose_if_taken(staging, made, wrap(place.staged))._data
    if condition_of(staging) is not None and staging.late_device is not None:
        _count_late(ema, staging)
        return
    count = _UpdateCount(ema)
    staging.before.append(count.begin)
    staging.after.append(count_if_taken(staging, count.commit))


def _count_late(ema: Any, staging: Any) -> None:
    """Trace the count of an update that a device may leave out."""
    device = staging.late_device
    cell = staging.state(
        (id(ema), "updates"),
        lambda: staging.slot(
            "updates of averages", Aval((), dtypes.float64, device), lambda: ema.count_on(device)
        ),
        ema,
    )
    count = wrap(cell.staged)
    cell.staged = choose_if_taken(staging, count + 1, count)._data


def average_of(ema: Any, entry: ParameterEntry, staging: Any) -> "Tensor":
    """An average at this point of the program."""
    return wrap(_average(ema, entry, staging).staged)


def _average(ema, entry: ParameterEntry, staging):
    """The place of an average in the program."""
    averages = staging.state(ema, dict)
    if entry.key not in averages:
        slot = like(entry.param._data)
        kind = Aval(slot.shape, slot.dtype, slot.device)
        label = f"the average of {entry.key!r}"
        averages[entry.key] = staging.slot(label, kind, lambda: ema.raw(entry.key))
    return averages[entry.key]


def stage_clip_norm(
    held: "list[HeldGradient]", max_norm: float, norm_type: float, error_if_nonfinite: bool
) -> Any:
    """`clip_grad_norm`, traced; the norm is a tensor in double precision."""
    if error_if_nonfinite:
        refuse_staging("clip_grad_norm(error_if_nonfinite=True)", "look at the norm outside of it")
    total = norm_of([h.grad for h in held], norm_type)
    limit(held, max_norm, total)
    return total


def limit(held: "list[HeldGradient]", max_norm: float, total: Any) -> None:
    """Clip gradients by their common norm, which is given."""
    with no_grad():
        factor = where((total > max_norm) & (total < inf), max_norm / total, 1.0)
        multiply(held, factor)


def multiply(held: "list[HeldGradient]", factor: Any) -> list[Any]:
    """Multiply gradients by a number; returns them before they are rounded to half types."""
    made = []
    for h in held:
        wide = dtypes.accumulator(h.grad.dtype)
        made.append(h.grad.detach().to(wide) * factor.to(dtypes.to_real(wide)))
        h.replace(made[-1].to(h.grad.dtype))
    return made


def stage_rescale(held: "list[HeldGradient]", factor: Any) -> Any:
    """`rescale`, traced; the norm is a tensor in double precision."""
    with no_grad():
        return norm_of(multiply(held, factor))


def norm_of(gradients: "list[Tensor]", norm_type: float = 2.0) -> Any:
    """`global_norm`, traced."""
    sizes = [abs_(g.detach()).to(dtypes.float64) for g in gradients if g.size]
    if not sizes:
        return asarray(0.0, dtype=dtypes.float64)
    with no_grad():
        if norm_type == inf:
            return _reduce_all(amax, sizes)
        if norm_type == 2:
            return _reduce_all(sum_, [x * x for x in sizes]).sqrt()
        return _reduce_all(sum_, [x**norm_type for x in sizes]) ** (1.0 / norm_type)


def _reduce_all(reduce: Callable[..., Any], arrays: list):
    """All elements of all arrays reduced to one."""
    each = [reduce(x, tuple(range(x.ndim)), False) for x in arrays]
    return reduce(stack(each, 0), (0,), False)
