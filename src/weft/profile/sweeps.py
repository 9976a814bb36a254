"""From the moments of sweeps to spans: each node's pull-back lasts until the next one begins."""

from types import CodeType
from typing import Any, NamedTuple

from ..core.op import Op
from .clock import Mark
from .tape import Span


class SweepMark(NamedTuple):
    """A sweep begins, or ends: nanoseconds, the thread, (live bytes, their peak), the GPU's mark.

    All this, and what is noted of a node, is a moment: the span before it ends there.
    """

    begins: bool
    time: int
    thread: tuple[str, int]
    memory: tuple[int, int]
    mark: Mark | None = None


# What is noted when a sweep comes to a node: nanoseconds, its row and line, the thread, (live
# bytes, their peak), the GPU's mark if it works on this node, and if it worked on any before.
Noted = tuple[
    int, Op, CodeType, int, tuple[str, int], tuple[int, int], Mark | None, Mark | None
]  # no named tuple: that takes longer


class OpenSweeps:
    """The sweeps of each thread that have not ended, with the node that each is at."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[str, int], list[Noted | None]] = {}

    def spans(self, moment: SweepMark | Noted) -> list[Span]:
        """The span that ends at a moment, if there is one."""
        if not isinstance(moment, SweepMark):
            time, _, _, _, thread, memory, _, mark = moment
            open_ = self._nodes[thread]
            last, open_[-1] = open_[-1], moment
            return _span(last, time, memory, mark)
        if moment.begins:
            self._nodes.setdefault(moment.thread, []).append(None)
            return []
        last = self._nodes[moment.thread].pop()
        return _span(last, moment.time, moment.memory, moment.mark)


def _span(node: Noted | None, stop: int, memory: tuple[int, int], mark: Any) -> list[Span]:
    if node is None:
        return []
    start, op, code, lasti, thread, _, began, _ = node
    marks = None if began is None or mark is None else (began, mark)
    what = ("backward", op, start, stop, (code, lasti), True, thread)
    return [Span(*what, None, None, (), *memory, marks)]
