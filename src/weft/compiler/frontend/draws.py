"""Random draws in the bodies of loops: keys and counters for each step, in the order of the steps.

A draw in a loop is an input with one state per step; in nested loops, one per step of both. Each
call reserves them in the order in which the steps would draw: a loop is a list of draws and inner
loops, which is repeated for each step.
"""

from collections.abc import Callable, Iterator
from threading import get_ident
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.aval import Aval
from ...core.counter import Generator, ReservedBlocks
from ...core.dtypes import uint64
from ...core.record import field, record
from ...errors import StagingError
from ...graph.staged import Staged
from .inputs import Call, Changeable, DrawWords, state_of

if TYPE_CHECKING:
    from .capture import Capture


def streams_of(capture: "Capture") -> dict[int, "Stream"]:
    """The streams whose state is a value of the program, by the identity of the generator."""
    return capture.state(("random streams",), dict)


class ReservedDraws:
    """The random numbers that a call reserves; it gives them back if it fails."""

    generators: list[Generator]
    starts: list[tuple[int, int, int]]
    ends: list[tuple[int, int, int]]

    def __init__(self, places: list[DrawWords]):
        self.generators = list({id(p.generator): p.generator for p in places}.values())
        self.starts = [g.here() for g in self.generators]
        self.ends = self.starts

    def end(self) -> None:
        """Note where the reservations end."""
        self.ends = [g.here() for g in self.generators]

    def give_back(self) -> None:
        """Rewind the generators from which nothing else was drawn since."""
        for g, start, end in zip(self.generators, self.starts, self.ends, strict=True):
            g.rewind(start, end)


@record(frozen=False, eq=False)
class StepWords(DrawWords):
    """The keys and counters of one draw in a loop's body."""

    label = "random words of a loop"
    loop: "LoopDraws"
    values: list[np.ndarray] = field(init=False, default_factory=list)

    def read(self, call: Call) -> np.ndarray:
        outermost = self.loop.outermost
        if self is next(outermost.places()):
            outermost.reserve(call)
        loops = self.loop.loops
        made = np.array(self.values, np.uint64).reshape(*[loop.length for loop in loops], 3)
        # In a reversed loop the first step reads the last element of xs.
        return np.flip(made, tuple([k for k, loop in enumerate(loops) if loop.reverse]))

    def reserve(self, call: Call) -> None:
        """Reserve the draw of one more step."""
        self.values.append(super().read(call))


class Stream(DrawWords, Changeable):
    """The state of a stream, before and after a program whose number of draws is not known.

    More is reserved than a program can draw; the rest is given back after the call.
    """

    def __init__(self, staged: Staged, generator: Generator):
        super().__init__(staged, generator, _AHEAD)
        self.label = "a random stream"
        self._begun: dict[int, ReservedBlocks] = {}  # by thread

    def read(self, call: Call) -> np.ndarray:
        draw = self._begun[get_ident()] = self.generator.reserve(self.words)
        return state_of(draw)

    def write(self, call: Call, raw: np.ndarray) -> None:
        self.generator.give_back(self._begun[get_ident()], self.words, int(raw[1]))


_AHEAD = 1 << 42  # words


@record(frozen=False, eq=False)
class LoopDraws:
    """While a loop body is traced: turns each random draw into an input with one entry per step.

    capture  the trace of the whole function, which gets the inputs
    draw     wraps an input as the draw that the body gets
    length   the number of steps
    reverse  whether the loop goes from the last step to the first
    around   the draws of the loop around this one; None: this is the outermost
    items    the draws of the body and the loops nested in it, in the order of the trace
    """

    capture: "Capture"
    draw: Callable[[Staged], Any]
    length: int
    reverse: bool
    around: "LoopDraws | None" = None
    items: "list[StepWords | LoopDraws]" = field(init=False, default_factory=list)

    @property
    def outermost(self) -> "LoopDraws":
        return self if self.around is None else self.around.outermost

    @property
    def loops(self) -> "list[LoopDraws]":
        """This loop and those around it, the outermost first."""
        return [*([] if self.around is None else self.around.loops), self]

    @property
    def again(self) -> bool:
        """Whether a checkpoint replays the function."""
        return False

    def places(self) -> Iterator[StepWords]:
        """All draws, in the order of the trace."""
        for item in self.items:
            if isinstance(item, LoopDraws):
                yield from item.places()
            else:
                yield item

    def __call__(self, generator: Generator, words: int) -> Any:
        if id(generator) in streams_of(self.capture):
            raise StagingError(
                "in a compiled function, a random number is drawn in a scan, after a branch or a "
                "while_loop that draws from the same generator; draw what is needed before"
            )
        sizes = [loop.length for loop in self.loops]
        place = self.capture.enter(Aval((*sizes, 3), uint64), StepWords, generator, words, self)
        self.items.append(place)
        return self.draw(place.staged)

    def along(self, length: int, reverse: bool) -> "LoopDraws":
        """The draws of a nested loop."""
        inside = LoopDraws(self.capture, self.draw, length, reverse, self)
        self.items.append(inside)
        return inside

    def reserve(self, call: Call) -> None:
        """Reserve all draws of a call."""
        for place in self.places():
            place.values = []
        self._go(call)

    def _go(self, call: Call) -> None:
        for _ in range(self.length):
            for item in self.items:
                if isinstance(item, LoopDraws):
                    item._go(call)
                else:
                    item.reserve(call)
