"""Grid kernels: a fused kernel as PTX, and how it is launched."""

from hashlib import sha256

from ...core.record import record
from ..emit.code import LLModule
from ..emit.scalar import check_dtypes
from ..ir.kernel import Kernel
from .flat import FlatPlan, emit_flat, plan_flat
from .folds import FoldPlan, emit_folds, plan_folds
from .machine import Machine, PtxMachine
from .pieces import PiecePlan, emit_pieces, plan_columns, plan_pieces
from .ptx import FEATURES, ptx_of


@record
class GridKernel:
    """A kernel in PTX.

    Its parameters are pointers: one for each operand, then one for each result; then one to a cell,
    if it stops where that is not 0. A grid of no blocks has nothing to compute, and is not to be
    launched.
    shared  bytes of shared memory that a launch adds
    """

    name: str
    ptx: str
    grid: int
    block: int
    shared: int


@record
class EmittedGrid:
    """A kernel whose code is emitted, before LLVM; see `GridKernel`."""

    name: str
    module: LLModule
    grid: int
    block: int
    shared: int

    def build(self, sm: int) -> GridKernel:
        """The kernel in PTX for compute capability `sm`/10; in any thread."""
        return GridKernel(self.name, ptx_of(self.module, sm), self.grid, self.block, self.shared)


GridPlan = FlatPlan | FoldPlan | PiecePlan


def build_kernel(
    kernel: Kernel, sm: int = 90, aligned: int = 16, stops: bool = False
) -> GridKernel:
    """A kernel as PTX for compute capability `sm`/10; see `emit_kernel`."""
    return emit_kernel(kernel, aligned, stops).build(sm)


def emit_kernel(kernel: Kernel, aligned: int = 16, stops: bool = False) -> EmittedGrid:
    """The code of a kernel.

    aligned  what all its pointers are multiples of, in bytes, or more
    stops    whether it does nothing if the cell of its last parameter is not 0
    """
    form, plan = plan_grid(kernel, aligned)
    module = LLModule(_attributes(plan), FEATURES)
    name = "weft_" + sha256(repr((kernel, aligned, stops)).encode()).hexdigest()[:20]
    machine = PtxMachine(module, name, len(kernel.operands) + len(kernel.results), stops)
    emit_grid(form, plan, machine, aligned)
    return EmittedGrid(name, module, plan.grid, plan.block, machine.dynamic)


def _attributes(plan: GridPlan) -> str:
    """What the assembler is to know: the threads of a block, and blocks that must fit together."""
    threads = f'"nvvm.reqntid"="{plan.block}"'
    together = plan.together if isinstance(plan, PiecePlan | FoldPlan) else 1
    return f'{threads} "nvvm.minctasm"="{together}"' if together > 1 else threads


def plan_grid(kernel: Kernel, aligned: int) -> tuple[Kernel, GridPlan]:
    """How threads share a kernel's domain, and the kernel in the form that they compute."""
    check_dtypes(kernel.dtypes)
    if kernel.piece and kernel.folded:
        return kernel, plan_pieces(kernel, aligned)
    if kernel.piece:
        return plan_columns(kernel, aligned)
    return kernel, (plan_folds if kernel.folded else plan_flat)(kernel, aligned)


def emit_grid(kernel: Kernel, plan: GridPlan, machine: Machine, aligned: int) -> None:
    """Emit the function of one thread."""
    if not plan.grid:
        machine.finish()
    elif isinstance(plan, FlatPlan):
        emit_flat(kernel, plan, machine, aligned)
    elif isinstance(plan, PiecePlan):
        emit_pieces(kernel, plan, machine, aligned)
    else:
        emit_folds(kernel, plan, machine, aligned)
