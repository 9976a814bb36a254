"""Making the parameters and reading the arguments of layers."""

from __future__ import annotations

from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeVar

from .. import errors
from ..arrays.make import empty
from ..arrays.parameter import Parameter

if TYPE_CHECKING:
    from ..arrays.types import Device, DTypeLike

_Choice = TypeVar("_Choice", bound=str)


def parameter(shape: tuple[int, ...], device: Device | None, dtype: DTypeLike | None) -> Parameter:
    """A parameter whose values are yet to be set."""
    return Parameter(empty(shape, dtype=dtype, device=device))


def sizes(layer: str, *, least: int = 1, **given: Any) -> None:
    """Refuse sizes that are no integers, or smaller than `least`."""
    for name, n in given.items():
        if not isinstance(n, Integral) or isinstance(n, bool) or n < least:
            raise errors.ArgumentError(
                f"{layer}: {name}={n!r}, expected an integer of {least} or more"
            )


def probability(layer: str, p: float) -> float:
    """Refuse what is no probability."""
    if not isinstance(p, Real) or isinstance(p, bool) or not 0 <= float(p) <= 1:
        raise errors.ArgumentError(f"{layer}: p={p!r}, expected a probability from 0 to 1")
    return p


def one_of(layer: str, name: str, value: _Choice, choices: tuple[str, ...]) -> _Choice:
    """Refuse what is not among the choices."""
    if value not in choices:
        raise errors.ArgumentError(
            f"{layer}: {name}={value!r}, expected {' or '.join(map(repr, choices))}"
        )
    return value


def per_axis(layer: str, name: str, value: Any, axes: int) -> tuple[int, ...]:
    """One integer for all axes, or one for each."""
    values = (value,) * axes if isinstance(value, Integral) else tuple(value)
    if len(values) != axes or not all(isinstance(n, Integral) for n in values):
        raise errors.ArgumentError(
            f"{layer}: {name}={value!r}, expected an integer, or {axes} of them"
        )
    return tuple(int(n) for n in values)
