"""From the moments of sweeps to spans: each node's pull-back lasts until the next one begins."""

from types import CodeType
from typing import NamedTuple, TypeAlias

from ..core.op import Op
from .clock import Mark
from .tape import Span


class SweepMark(NamedTuple):
    """A sweep begins, or ends.

    after   how many spans of native code there were
    time    in nanoseconds
    live    bytes, and `peak` the most since the last moment
    mark    the GPU's, if it works
    """

    after: int
    begins: bool
    time: int
    thread: tuple[str, int]
    live: int = 0
    peak: int = 0
    mark: Mark | None = None


# A sweep comes to a node: `after`, `time`, the node's row, code object and instruction, `thread`,
# `live`, `peak`, the GPU's mark if it works on this node, and that if it works at all. It is one
# flat tuple since there are many, each of which Python's garbage collector looks at.
_Arrival: TypeAlias = tuple[
    int, int, Op, CodeType, int, tuple[str, int], int, int, Mark | None, Mark | None
]
Moment: TypeAlias = SweepMark | _Arrival


class OpenSweeps:
    """The sweeps of each thread that have not ended, with the node that each is at."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[str, int], list[_Arrival | None]] = {}

    def spans(self, moment: Moment) -> list[Span]:
        """The span that ends at a moment, if there is one."""
        if not isinstance(moment, SweepMark):
            _, time, _, _, _, thread, live, peak, _, mark = moment
            nodes = self._nodes[thread]
            last, nodes[-1] = nodes[-1], moment
            return _spans(last, time, live, peak, mark)
        if moment.begins:
            self._nodes.setdefault(moment.thread, []).append(None)
            return []
        last = self._nodes[moment.thread].pop()
        return _spans(last, moment.time, moment.live, moment.peak, moment.mark)


def _spans(node: _Arrival | None, stop: int, live: int, peak: int, mark: Mark | None) -> list[Span]:
    if node is None:
        return []
    _, start, op, code, lasti, thread, _, _, began, _ = node
    marks = None if began is None or mark is None else (began, mark)
    what = ("backward", op, start, stop, (code, lasti), True, thread)
    return [Span(*what, None, None, (), live, peak, marks)]
