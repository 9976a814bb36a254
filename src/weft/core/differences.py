"""How a saved state differs from the expected one: by names and shapes."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..errors import StateMismatch

_LISTED = 20


class Differences(NamedTuple):
    """Names that only one of two states has, and names whose values differ in shape or kind.

    missing     names that were expected and are not there
    unexpected  names that are there and were not expected
    mismatched  names of values that differ, with the difference

    >>> import weft as wf
    >>> wf.io.differences({"w": wf.zeros(2)}, {"b": wf.zeros(2)}).missing
    ['w']
    """

    missing: list[str]
    unexpected: list[str]
    mismatched: list[str]

    @property
    def any(self) -> bool:
        """Whether anything differs."""
        return bool(self.missing or self.unexpected or self.mismatched)

    def __str__(self) -> str:
        lists = zip(self._fields, self, strict=True)
        return "; ".join(f"{title}: {_list_names(names)}" for title, names in lists if names)

    def refuse(self, what: str) -> None:
        """Raise an error that lists the differences, if there are any.

        what  what the message calls the state

        >>> import weft as wf
        >>> wf.io.differences({"w": wf.zeros(2)}, {}).refuse("state")
        Traceback (most recent call last):
            ...
        weft.errors.StateMismatch: state: missing: w
        """
        if self.any:
            raise StateMismatch(f"{what}: the state is of something else: {self}")


def differences(expected: Mapping[str, Any], found: Mapping[str, Any]) -> Differences:
    """Compare two states by names and shapes; dtypes and devices may differ.

    expected, found  arrays by name

    >>> import weft as wf
    >>> found = {"weight": wf.zeros((2, 3)), "scale": wf.ones(2)}
    >>> print(wf.io.differences({"weight": wf.zeros((3, 3)), "bias": wf.zeros(3)}, found))
    missing: bias; unexpected: scale; mismatched: weight (expected (3, 3), found (2, 3))
    """
    mismatched = [
        f"{name} (expected {_shape_or_type(expected[name])}, found {_shape_or_type(found[name])})"
        for name in expected
        if name in found and _shape_or_type(expected[name]) != _shape_or_type(found[name])
    ]
    missing = [name for name in expected if name not in found]
    return Differences(missing, [name for name in found if name not in expected], mismatched)


def _shape_or_type(value) -> str:
    """The shape of an array; of anything else the name of its type."""
    shape = getattr(value, "shape", None)
    return type(value).__name__ if shape is None else str(tuple(shape))


def _list_names(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(map(str, names[:_LISTED])) + more
