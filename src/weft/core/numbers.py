"""Python's numbers, in whatever class they come."""

from typing import Any

from numpy import generic

from .backends import PYTHON_SCALARS

_KINDS: tuple[Any, ...] = (int, float, complex)


def plain(x: Any) -> Any:
    """x as a number of Python's own if it is one in another class; anything else as it is.

    A member of an `IntEnum` is the integer that it is. A number of each call of a function that is
    being compiled (`compile.host`) is its value now, and the program is made for that value.
    """
    if type(x) in PYTHON_SCALARS or isinstance(x, generic):
        return x
    if hasattr(type(x), "__weft_value__"):
        return x.__weft_value__()
    return unwrap_number(x)


def unwrap_number(x: Any) -> Any:
    """x as a number of Python's own if it is one in a class derived from those."""
    if isinstance(x, generic):
        return x
    for kind in _KINDS:
        if isinstance(x, kind):
            return kind(x)
    return x


def plain_in(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Static parameters of a row with plain numbers, in tuples among them too."""
    return tuple([plain_in(v) if type(v) is tuple else plain(v) for v in values])
