"""Routines on a GPU: stages, each a grid of blocks, that run one after the other."""

from abc import abstractmethod
from typing import Protocol

from ...ir import routine
from ..machine import Machine


class Stage(Protocol):
    """A grid of blocks; stages are records, equal if their code is.

    arrays  positions among operands, results and scratch whose pointers the entry gets, in order
    """

    @property
    def grid(self) -> int: ...

    @property
    def block(self) -> int: ...

    @property
    def arrays(self) -> tuple[int, ...]: ...

    def emit(self, machine: Machine) -> None:
        """Emit the function of one thread."""
        ...


class GridRoutine(routine.Routine):
    """A routine of stages."""

    @property
    @abstractmethod
    def stages(self) -> tuple[Stage, ...]:
        """What is launched, in order."""
