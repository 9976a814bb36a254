"""Numbers of a state that a device keeps: counts of steps that it may leave out.

A loss scaler on a GPU decides there whether a step is taken, so that the host does not know how
many were. A state then has arrays without axes in the place of its numbers (cells), which the
parameters of a step share. They are read where someone asks for them.
"""

import operator
from collections.abc import Callable, Iterable
from typing import Any

from ..backend.device import namespace_for
from ..core import dtypes
from ..core.backends import BACKENDS
from ..ops.elementwise import minimum
from .parameters import ParameterEntry


def is_late(number: Any) -> bool:
    """Whether a number of a state is a cell."""
    return type(number) in BACKENDS


def make_cell(number: Any, device: str) -> Any:
    """A cell with a number that the host knows."""
    return namespace_for(device).full((), number, dtypes.float64, device)


def counts_of(optimizer: Any, group: dict[str, Any]) -> list[str]:
    """The numbers of a state that change with its steps; others have the names of settings."""
    return [name for name in optimizer.started if name not in group]


def how_far(own: dict[str, Any], started: dict[str, Any]) -> tuple[Any, ...]:
    """The numbers of a state, for comparison; cells are compared by identity."""
    return tuple([id(own[n]) if is_late(own[n]) else own[n] for n in started])


def send(optimizer: Any, entries: list[ParameterEntry], device: str) -> None:
    """Let states with equal numbers share cells, which no other state has; nothing waits."""
    states = [optimizer._state[e.key] for e in entries]
    for name in counts_of(optimizer, entries[0].group):
        cell = states[0][name]
        if not is_late(cell):
            cell = make_cell(cell, device)
        elif BACKENDS[type(cell)].device_of(cell) != device:
            cell = make_cell(float(cell), device)
        elif sum([own.get(name) is cell for own in optimizer._state.values()]) > len(states):
            cell = BACKENDS[type(cell)].copy(cell)
        for own in states:
            own[name] = cell
    optimizer._late = True


def bring_home(optimizer: Any, keys: Iterable[str]) -> None:
    """Read cells of states; a state whose first step was left out is dropped."""
    known: dict[int, tuple[Any, float]] = {}  # by identity, with the cell
    for key in keys if optimizer._late else ():
        own = optimizer._state.get(key, {})
        late = [name for name in optimizer.started if name in own and is_late(own[name])]
        for name in late:
            cell = own[name]
            if id(cell) not in known:
                known[id(cell)] = cell, float(cell)
            own[name] = type(optimizer.started[name])(known[id(cell)][1])
        if late and not own["step"]:
            del optimizer._state[key]


class LateNumber:
    """A number that a program computes, with a number's operators, in double precision.

    Like a number of the host's, it takes the dtype of an array that it meets.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value

    def __weft_number__(self, dtype: Any) -> Any:
        """The number as a tensor."""
        return self.value.to(dtypes.float64 if dtype is None else dtype)

    def __eq__(self, other: object) -> Any:
        return self.value == _value(other)

    __hash__ = None  # type: ignore[assignment]

    def __le__(self, other: Any) -> Any:
        return self.value <= _value(other)

    def least(self, other: Any) -> "LateNumber":
        """The lesser of both."""
        return LateNumber(minimum(self.value, _value(other)))

    def __neg__(self) -> "LateNumber":
        return LateNumber(-self.value)


def _value(number: Any) -> Any:
    if type(number) is LateNumber:
        return number.value
    if hasattr(type(number), "__weft_number__"):
        return number.__weft_number__(dtypes.float64)
    return number


def _operator(name: str, reflected: bool) -> Callable[[LateNumber, Any], Any]:
    function = getattr(operator, name)

    def apply(self: LateNumber, other: Any) -> Any:
        if hasattr(other, "shape"):
            return NotImplemented
        if reflected:
            return LateNumber(function(_value(other), self.value))
        return LateNumber(function(self.value, _value(other)))

    return apply


for _name in ("add", "sub", "mul", "truediv", "pow"):
    setattr(LateNumber, f"__{_name}__", _operator(_name, False))
    setattr(LateNumber, f"__r{_name}__", _operator(_name, True))
