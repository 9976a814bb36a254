"""`Stage`: work on a GPU that no kernel describes, as the function of one thread."""

from hashlib import sha256
from typing import Protocol

from ..emit.code import LLModule
from .kernels import EmittedGrid, GridKernel
from .machine import Machine, PtxMachine
from .ptx import FEATURES


class Stage(Protocol):
    """One launch; a frozen record, equal to others that have the same code.

    arrays  positions among the arrays of its routine, whose addresses are the parameters
    """

    @property
    def grid(self) -> int: ...

    @property
    def block(self) -> int: ...

    @property
    def arrays(self) -> tuple[int, ...]: ...

    def emit(self, machine: Machine) -> None:
        """Emit the function of one thread, to its end."""
        ...


def build_stage(stage: Stage, sm: int, stops: bool = False) -> GridKernel:
    """A stage as PTX for compute capability `sm`/10; see `build_kernel`."""
    return emit_stage(stage, stops).build(sm)


def emit_stage(stage: Stage, stops: bool = False) -> EmittedGrid:
    """The code of a stage; see `emit_kernel`."""
    module = LLModule(f'"nvvm.reqntid"="{stage.block}"', FEATURES)
    name = "weft_" + sha256(repr((stage, stops)).encode()).hexdigest()[:20]
    machine = PtxMachine(module, name, len(stage.arrays), stops)
    stage.emit(machine)
    return EmittedGrid(name, module, stage.grid, stage.block, machine.dynamic)
