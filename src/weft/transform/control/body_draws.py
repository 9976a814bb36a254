"""Random draws in the bodies of loops and branches of a function that is being compiled."""

from collections.abc import Callable
from typing import Any

from ... import errors
from ...arrays.tensor import Tensor
from ...core.aval import Aval
from ...core.counter import Generator
from ...core.settings import current
from ...core.value import wrap
from ...graph.structured import BodyTrace
from ...ops.draws import state_after


class NoDraws:
    """Refuses draws where a program cannot reproduce eager mode's numbers.

    where  the place in words, for the message
    """

    again: bool = False

    def __init__(self, where: str):
        self.where = where
        self.begun: dict[int, tuple[Any, ...]] = {}

    def __call__(self, generator: Generator, words: int) -> Any:
        raise errors.StagingError(
            f"in a compiled function, a random number is drawn in {self.where}; draw what may be "
            "needed before, and pass it in"
        )

    def along(self, length: int, reverse: bool) -> "NoDraws":
        return self


class Streams:
    """Draws in a body that runs an unknown number of times.

    A stream's position after the body depends on that number, so it is a value of the program: the
    body takes the position as an input, and returns the new one.

    begun  by `id(generator)`: the generator, its stream's state before the body, and inside
    """

    again: bool = False

    def __init__(self, outside: Any, enter: Callable[..., Any]):
        self._outside, self._enter = outside, enter
        self._now: dict[int, Any] = {}
        self.begun: dict[int, tuple[Any, ...]] = {}

    def state(self, generator: Any) -> Any:
        """A stream's state at this point of the body."""
        key = id(generator)
        if key not in self._now:
            before = self._outside.state(generator)
            self._now[key] = inside = self._enter(before)
            self.begun[key] = (generator, before, inside)
        return self._now[key]

    def move(self, generator: Any, state: Any) -> None:
        """Set a stream's state."""
        self.state(generator)
        self._now[id(generator)] = state

    def draw_of(self, state: Any) -> Any:
        """A draw from a stream in this state."""
        return self._outside.draw_of(state)

    def __call__(self, generator: Generator, words: int) -> Any:
        state = self.state(generator)
        self.move(generator, state_after(state, words))
        return self.draw_of(state)

    def along(self, length: int, reverse: bool) -> NoDraws:
        return NoDraws("a scan inside of a branch or of a while_loop")


def streams(enter: Callable[..., Any]) -> "Streams | NoDraws":
    """The function that replaces generators' draws in a branch or the body of a while_loop.

    enter  maps a stream's state outside to its state in the body
    """
    settings = current.get()
    if any([level.size is not None for level in settings.levels]):
        return NoDraws("a branch or a while_loop inside of vmap")
    if not hasattr(settings.draws, "state"):
        return NoDraws("a branch or a while_loop inside of a scan or a checkpoint")
    return Streams(settings.draws, enter)


class BodyDraws:
    """Draws in the body of a scan: the steps' draws are one more array that it iterates over."""

    again: bool = False

    def __init__(self, inner: BodyTrace, outside: Any):
        self._inner, self._outside = inner, outside
        self.arrays: list[Tensor] = []
        self.inputs: list[int] = []

    def __call__(self, generator: Generator, words: int) -> Any:
        return self._enter_step(self._outside(generator, words))

    def _enter_step(self, draw):
        """The draw of one step, from a draw that has a state for each step."""
        states = wrap(draw.state)
        one = self._inner.input(self._inner.tag, Aval(states.shape[1:], states.dtype))
        self.arrays.append(states)
        self.inputs.append(one.index)
        return type(draw)(one)

    def along(self, length: int, reverse: bool) -> "_NestedDraws":
        return _NestedDraws(self, self._outside.along(length, reverse))


class _NestedDraws:
    """The draws of a scan inside a scan, for one step of the outer one."""

    again: bool = False

    def __init__(self, around: BodyDraws, outside: Any):
        self._around, self._outside = around, outside

    def __call__(self, generator: Generator, words: int) -> Any:
        return self._around._enter_step(self._outside(generator, words))

    def along(self, length: int, reverse: bool) -> "_NestedDraws":
        return _NestedDraws(self._around, self._outside.along(length, reverse))


def draws_along(length: int, reverse: bool) -> Any:
    """The function that makes the draws of all steps of a scan, outside of its body."""
    settings = current.get()
    if any([level.size is not None for level in settings.levels]):
        # Each element of a batch would need its own draw, at a level below the loop's.
        return NoDraws("a scan inside of vmap")
    along = getattr(settings.draws, "along", None)
    return NoDraws("a scan inside of a checkpoint") if along is None else along(length, reverse)
