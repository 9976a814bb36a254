"""Random draws in the bodies of loops and branches of a function that is being compiled."""

from .. import errors
from ..core.aval import Aval
from ..core.settings import current
from ..core.value import wrap
from ..graph.structured import Inner


class NoDraws:
    """Stands in for generators where nobody knows how often they are asked."""

    again = False

    def __call__(self, generator, words):
        raise errors.StagingError(
            "in a compiled function, a random number is drawn in a branch, in a while_loop, or in "
            "a loop inside of vmap or a checkpoint; draw what may be needed before, and pass it in"
        )

    def along(self, length: int, reverse: bool) -> "NoDraws":
        return self


class Draws:
    """Stands in for generators in the body of a loop: a draw is one more array to go along."""

    again = False

    def __init__(self, inner: Inner, outside):
        self._inner, self._outside = inner, outside
        self.arrays: list = []
        self.inputs: list[int] = []

    def __call__(self, generator, words):
        return self._entered(self._outside(generator, words))

    def _entered(self, draw):
        """The draw of one step, of a draw that has a state for each."""
        states = wrap(draw.state)
        one = self._inner.input(self._inner.tag, Aval(states.shape[1:], states.dtype))
        self.arrays.append(states)
        self.inputs.append(one.index)
        return type(draw)(one)

    def along(self, length: int, reverse: bool) -> "_Within":
        return _Within(self, self._outside.along(length, reverse))


class _Within:
    """The draws of a loop in a loop, as the steps of the outer one see them."""

    again = False

    def __init__(self, around: Draws, outside):
        self._around, self._outside = around, outside

    def __call__(self, generator, words):
        return self._around._entered(self._outside(generator, words))

    def along(self, length: int, reverse: bool) -> "_Within":
        return _Within(self._around, self._outside.along(length, reverse))


def draws_along(length: int, reverse: bool):
    """What stands in for generators in a loop, as those around it see it."""
    settings = current.get()
    if any([level.size is not None for level in settings.levels]):
        return NoDraws()  # of each element of a batch its own, at a level below the loop's
    along = getattr(settings.draws, "along", None)
    return NoDraws() if along is None else along(length, reverse)
