"""A captured graph on the arrays of a call."""

from collections.abc import Iterable, Sequence
from typing import Any

from ....core.origin import line_of
from ...ir.schedule import LibraryStep, ScheduleStep
from ..captures import refusal_of
from ..gpu import Replay


class Captured:
    """A captured graph.

    own    tensors of the graph's own, by position
    fixed  addresses of the others
    into   positions of inputs that are copied to the graph's own
    """

    def __init__(
        self,
        replay: Replay,
        own: dict[int, Any],
        fixed: dict[int, int],
        into: list[int],
        written: Sequence[int],
        inputs: int,
    ):
        self.own, self._fixed, self._into = own, fixed, into
        self._replay = replay
        self._out = [i for i in own if i >= inputs or i in written]

    def serves(self, addresses: list[int], shifted: Iterable[int]) -> bool:
        """Whether arrays that it reads and writes in place are where they were.

        shifted  the positions of all that may not be
        """
        fixed = self._fixed
        return all([i not in fixed or addresses[i] == fixed[i] for i in shifted])

    def moved(self, addresses: list[int]) -> set[int]:
        """The positions of those that are not."""
        return {i for i, a in self._fixed.items() if addresses[i] != a}

    def replay(self, values: list[Any]) -> None:
        """Run it on the arrays of a call; results that are its own tensors there become copies."""
        own = self.own
        for i in self._into:
            own[i].copy_(values[i])
        self._replay()
        for i in self._out:
            if values[i] is own[i]:
                values[i] = own[i].clone()
            else:
                values[i].copy_(own[i])


def uncaptured(step: ScheduleStep | None, e: Exception) -> Exception:
    """The error for a step that no graph could capture; None if no step had begun."""
    if step is None:
        what, line = "the function", ""
    elif isinstance(step, LibraryStep):
        what, line = step.op.name, step.line
    else:
        origins = getattr(step, "origins", ())
        what, line = "a product", line_of(*origins[0]) if origins else ""
    return refusal_of(what, (str(e).splitlines() or [type(e).__name__])[0], line)
