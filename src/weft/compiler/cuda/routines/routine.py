"""Routines as stages: grids of threads that run one after the other."""

from abc import ABC, abstractmethod
from hashlib import sha256

from ....core.record import field, record
from ...emit.code import LLModule
from ...ir.routine import Routine
from ..kernels import GridKernel
from ..machine import Machine, PtxMachine
from ..ptx import FEATURES, ptx_of


@record
class Stage(ABC):
    """A grid of threads. Stages are equal if their code is, whatever their arrays are.

    arrays  the arrays that it accesses, by their places among the routine's operands, results and
            scratch; pointers to them are the parameters of its entry, in this order
    """

    arrays: tuple[int, ...] = field(compare=False, repr=False)

    @property
    @abstractmethod
    def grid(self) -> int:
        """The number of blocks, at least one."""

    @property
    @abstractmethod
    def block(self) -> int:
        """The threads of a block: whole warps."""

    @abstractmethod
    def emit(self, machine: Machine, aligned: int) -> None:
        """Emit the function of one thread.

        `aligned` is what all its pointers are multiples of, in bytes, or more.
        """


class GridRoutine(Routine):
    """A routine that emits its stages; each starts when all of the one before it has ended."""

    @property
    @abstractmethod
    def stages(self) -> tuple[Stage, ...]:
        """The stages, in order."""


def build_stage(stage: Stage, sm: int = 90, aligned: int = 16) -> GridKernel:
    """A stage as PTX for compute capability `sm`/10; equal stages have equal names."""
    module = LLModule(f'"nvvm.reqntid"="{stage.block}"', FEATURES)
    name = "weft_" + sha256(repr((stage, aligned)).encode()).hexdigest()[:20]
    stage.emit(PtxMachine(module, name, len(stage.arrays)), aligned)
    return GridKernel(name, ptx_of(module, sm), stage.grid, stage.block, 0)
