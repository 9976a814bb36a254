"""Routines as stages: grids of threads that run one after the other."""

from abc import ABC, abstractmethod

from ....core.record import field, record
from ...ir.routine import Routine
from ..machine import Machine


@record
class RoutineStage(ABC):
    """A grid of threads (see `Stage`), equal to others that have the same code.

    arrays   the arrays that it accesses, by their places among the routine's operands, results and
             scratch; pointers to them are the parameters of its entry, in this order
    aligned  what the pointers of `wide` are multiples of, in bytes, or more
    """

    arrays: tuple[int, ...] = field(compare=False, repr=False)
    aligned: int = field(default=16, kw_only=True)

    @property
    def wide(self) -> tuple[int, ...]:
        """Those of `arrays` of which more than one element may be accessed at once."""
        return self.arrays

    @property
    @abstractmethod
    def grid(self) -> int:
        """The number of blocks, at least one."""

    @property
    @abstractmethod
    def block(self) -> int:
        """The threads of a block: whole warps."""

    @abstractmethod
    def emit(self, machine: Machine) -> None:
        """Emit the function of one thread, to its end."""


class GridRoutine(Routine):
    """A routine that emits its stages; each starts when all of the one before it has ended."""

    @property
    @abstractmethod
    def stages(self) -> tuple[RoutineStage, ...]:
        """The stages, in order, for arrays that are aligned to sixteen bytes.

        For others, replace their `aligned`.
        """
