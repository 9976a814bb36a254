"""Routines on a GPU: stages, each a grid of blocks, that run one after the other."""

from abc import abstractmethod

from ...ir import routine
from ..stage import Stage


class GridRoutine(routine.Routine):
    """A routine of stages; their arrays are among its operands, results and scratch, in order."""

    @property
    @abstractmethod
    def stages(self) -> tuple[Stage, ...]:
        """What is launched, in order."""
