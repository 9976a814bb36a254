"""Numbers of derived and foreign classes, as plain Python numbers."""

from typing import Any

from numpy import generic

from .backends import PYTHON_SCALARS

_KINDS: tuple[Any, ...] = (int, float, complex)


def plain(x: Any) -> Any:
    """x as a plain Python number if it is a number; anything else unchanged.

    A member of an `IntEnum` becomes its integer. A host scalar (`compiler.frontend.host_scalars`)
    becomes its value, and the trace is specialised to that value.
    """
    if type(x) in PYTHON_SCALARS or isinstance(x, generic):
        return x
    if hasattr(type(x), "__weft_value__"):
        return x.__weft_value__()
    return unwrap_number(x)


def unwrap_number(x: Any) -> Any:
    """x as an int, float or complex if its class derives from one of them."""
    if isinstance(x, generic):
        return x
    for kind in _KINDS:
        if isinstance(x, kind):
            return kind(x)
    return x


def plain_in(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row's static parameters with plain numbers, also in nested tuples."""
    return tuple([plain_in(v) if type(v) is tuple else plain(v) for v in values])
