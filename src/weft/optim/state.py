"""The state of an optimizer: its arrays, saving and loading."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from math import prod
from typing import Any

import numpy as np

from .. import errors
from ..arrays.make import asarray
from ..backend.device import namespace_for
from ..core import dtypes
from ..core.backends import BACKENDS
from ..core.differences import differences
from ..core.record import record
from ..core.value import TENSORS, wrap
from .aligned import allocate_aligned, allocated_bytes
from .late import bring_home


@record
class Slot:
    """An array of a state: its shape, dtype and device, and its initial value.

    every  how many elements of the parameter share one of its elements
    start  the parameter's raw array -> the initial values, in place of `fill`
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    device: str
    fill: float = 0.0
    every: int = 1
    start: Callable[[Any], Any] | None = None

    def bytes_on(self, device: str) -> int:
        """The memory that it takes there."""
        if device != self.device:
            return 0
        if device == "cpu":
            return allocated_bytes(self.shape, self.dtype)
        return prod(self.shape) * self.dtype.itemsize

    def begin(self, p: Any) -> Any:
        """The raw array of a parameter's new state."""
        raw = self.allocate()
        if self.start is not None:
            BACKENDS[type(raw)].overwrite(raw, self.start(p))
        return raw

    def allocate(self) -> Any:
        """A new raw array; a complex one has the fill in both parts."""
        fill = complex(self.fill, self.fill) if dtypes.is_complex(self.dtype) else self.fill
        if self.device != "cpu":
            return namespace_for(self.device).full(self.shape, fill, self.dtype, self.device)
        raw = allocate_aligned(self.shape, self.dtype)
        raw.fill(fill)
        return raw

    def fit(self, raw: Any, p: Any) -> Any:
        """An array that fits: a new one, the one there is, or a copy of it where this is."""
        if raw is None:
            return self.begin(p)
        xp = BACKENDS[type(raw)]
        same = xp.device_of(raw) == self.device and xp.dtype_of(raw) == self.dtype
        return raw if same and tuple(raw.shape) == self.shape else take(wrap(raw), self)


def like(
    p: Any,
    fill: float = 0.0,
    shape: tuple[int, ...] | None = None,
    start: Callable[[Any], Any] | None = None,
) -> Slot:
    """A slot like a parameter (or of another shape); half types keep their state in float32."""
    xp = BACKENDS[type(p)]
    dtype = dtypes.accumulator(xp.dtype_of(p))
    own = tuple(p.shape) if shape is None else shape
    return Slot(own, dtype, xp.device_of(p), fill, start=start)


def real_size(p: Any) -> int:
    """How many real numbers a parameter holds."""
    return prod(p.shape) * (2 if dtypes.is_complex(p.dtype) else 1)


def dump(optimizer: Any) -> dict[str, Any]:
    """Copies of all state, as tensors and plain numbers."""
    groups = []
    entries = optimizer.entries()
    for group in optimizer._param_groups:
        keys = [e.key for e in entries if e.group is group]
        groups.append({**group, "params": keys})
    saved = dict(optimizer._pending)
    bring_home(optimizer, [e.key for e in entries])
    for e in entries:
        if e.key in optimizer._state:
            saved[e.key] = _dump_entry(optimizer, e)
    return {
        "optimizer": type(optimizer).__name__,
        "config": asdict(optimizer.config),
        "state": saved,
        "param_groups": groups,
        "lr_ratios": [known.ratio for known in optimizer._grouped],
    }


def _dump_entry(optimizer, entry) -> dict[str, Any]:
    """One parameter's numbers and arrays.

    The arrays are those of the current settings (new ones at their initial values) and those of
    earlier settings.
    """
    own, p = optimizer._state[entry.key], entry.param._data
    slots = optimizer.slots(entry.group, p)
    known = optimizer.slots(entry.group | optimizer.switched_on, p)
    kept = {name: _copy(own[name]) for name in known if name in own}
    begun = {name: wrap(slot.begin(p)) for name, slot in slots.items() if name not in own}
    return {name: own[name] for name in optimizer.started} | kept | begun


def _copy(raw):
    return wrap(BACKENDS[type(raw)].copy(raw))


def load(optimizer: Any, saved: Mapping[str, Any]) -> None:
    """Check all of a saved state, and only then load it."""
    what = f"{type(optimizer).__name__}.load_state_dict"
    check_form(what, optimizer, saved)
    config = optimizer.Config(**saved["config"])
    states = {str(key): value for key, value in saved["state"].items()}
    if optimizer.takes_more and not optimizer.entries():
        if len(saved["param_groups"]) > 1:
            raise errors.ArgumentError(
                f"{what}: the state has {len(saved['param_groups'])} groups and the optimizer no "
                "parameters yet; give it its groups first"
            )
        optimizer._pending, optimizer._config = dict(states), config
        for settings in saved["param_groups"]:
            optimizer._pending_group = {k: v for k, v in settings.items() if k != "params"}
        return
    entries = {e.key: e for e in optimizer.entries()}
    groups = checked_groups(what, optimizer, saved["param_groups"])
    differences({k: 0 for k in entries}, {k: 0 for k in [*entries, *states]}).refuse(what)
    order = {id(g): settings for g, settings in zip(optimizer._param_groups, groups, strict=True)}
    loaded = check_states(optimizer, entries, states, lambda e: order[id(e.group)])
    optimizer._config = config
    for group, settings in zip(optimizer._param_groups, groups, strict=True):
        group.update({k: v for k, v in settings.items() if k != "params"})
    if "lr_ratios" in saved:  # earlier versions did not save them
        ratios = zip(optimizer._grouped, saved["lr_ratios"], strict=True)
        optimizer._grouped = [known._replace(ratio=ratio) for known, ratio in ratios]
    optimizer._state = loaded


def check_form(what: str, optimizer: Any, saved: Any) -> None:
    """Refuse a value that is no state of such an optimizer."""
    expected = ("optimizer", "config", "state", "param_groups")
    if not isinstance(saved, Mapping) or any(name not in saved for name in expected):
        raise errors.ArgumentError(
            f"{what}: expected what state_dict() gives, a dict with {', '.join(expected)}"
        )
    if saved["optimizer"] != type(optimizer).__name__:
        raise errors.StateMismatch(
            f"{what}: the state is of {saved['optimizer']!r}, expected {type(optimizer).__name__!r}"
        )
    differences(asdict(optimizer.config), saved["config"])._replace(mismatched=[]).refuse(what)


def checked_groups(what: str, optimizer, saved) -> list[dict[str, Any]]:
    """The saved settings of each group, if the groups hold the same parameters."""
    mine = {f"group {i}": g for i, g in enumerate(optimizer._param_groups)}
    theirs = {f"group {i}": g for i, g in enumerate(saved)}
    differences(dict.fromkeys(mine, 0), dict.fromkeys(theirs, 0)).refuse(what)
    for label, group in mine.items():
        keys = [e.key for e in optimizer.entries() if e.group is group]
        found = dict.fromkeys(map(str, theirs[label]["params"]), 0)
        differences(dict.fromkeys(keys, 0), found).refuse(f"{what}: {label}")
        fields = differences(dict.fromkeys(group, 0), dict.fromkeys(theirs[label], 0))
        fields.refuse(f"{what}: {label}")
    return list(saved)


def check_states(
    optimizer: Any, entries: Any, states: Any, settings: Callable[..., Any]
) -> dict[str, dict[str, Any]]:
    """Saved states as raw arrays and numbers, if they fit the parameters.

    settings: entry -> those of its group, to which the states belong
    """
    slots = compare_states(optimizer, entries, states, settings)
    return {
        key: {n: take(v, slots[key].get(n)) for n, v in own.items()} for key, own in states.items()
    }


def compare_states(
    optimizer: Any, entries: Any, states: Any, settings: Callable[..., Any]
) -> dict[str, dict[str, Slot]]:
    """The arrays that saved states have, which are upgraded; refuse those that do not fit.

    settings: as of `check_states`
    """
    what = f"{type(optimizer).__name__}.load_state_dict"
    expected, found, slots = {}, {}, {}
    for key, own in states.items():
        group, p = settings(entries[key]), entries[key].param._data
        states[key] = own = optimizer.upgrade_state(own)
        known = optimizer.slots(group | optimizer.switched_on, p)
        asked = optimizer.slots(group, p)
        slots[key] = {name: s for name, s in known.items() if name in asked or name in own} | asked
        expected |= {f"{key}.{n}": v for n, v in (optimizer.started | slots[key]).items()}
        found |= {f"{key}.{n}": v for n, v in own.items()}
    differences(expected, found).refuse(what)
    return slots


def take(value: Any, slot: Slot | None) -> Any:
    """A number, or a copy of an array on the slot's device, in its dtype."""
    if slot is None:
        return value.item() if type(value) in TENSORS else value
    raw = slot.allocate()  # contiguous, whatever the saved array is
    source = asarray(value, dtype=slot.dtype, device=slot.device)
    BACKENDS[type(raw)].overwrite(raw, source._data)
    return raw
