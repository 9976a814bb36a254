"""Comparing the reachable state of a variant before each call."""

from collections.abc import Callable, Sequence
from typing import Any

from ....core.value import Value
from .frames import RanCode
from .walk import ReadWalk


class ReadWatch:
    """The reachable state of a traced function, as at the last match.

    ran       the code that ran during the trace
    found     the tensors that the program reads at each call
    function  the function
    objects   the objects among its arguments
    """

    def __init__(
        self,
        ran: RanCode,
        found: Sequence[Value],
        function: Callable[..., Any],
        objects: Sequence[Any],
    ):
        self._ran, self._function = ran, function
        self._tensors = found
        self._found = {id(t) for t in found}
        self._take(self._walk(objects), objects)

    def _walk(self, objects: Sequence[Any]) -> ReadWalk:
        name = getattr(self._function, "__name__", type(self._function).__name__)
        arguments = [(f"argument {k}", x) for k, x in enumerate(objects)]
        return ReadWalk(self._ran, self._found, [(name, self._function), *arguments])

    def _take(self, walk: ReadWalk, objects: Sequence[Any]) -> None:
        self._last, self._objects = walk, objects
        self.places_match: Callable[[], bool] = walk.links.match

    def matches(self, objects: Sequence[Any]) -> bool:
        """Whether these are the same objects, and every place still holds its object."""
        same = objects is self._objects or _same(objects, self._objects)
        return same and self.places_match()

    def renew_arrays(self) -> bool:
        """Accept the tensors' new arrays; whether every place then matches."""
        return self._last.links.renew()

    def renew(self, objects: Sequence[Any]) -> str | None:
        """Accept other objects with equal contents; a text for the difference if there is one."""
        if _same(objects, self._objects) and self.renew_arrays():
            return None
        now = self._walk(objects)
        why = self._last.difference(now)
        if why is None:
            self._take(now, objects)
        return why

    def lines(self) -> list[str]:
        """A text for each value."""
        return self._last.lines()


def _same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all([x is y for x, y in zip(a, b, strict=True)])
