"""The interpreter with what a GPU's target says: products of halves, adopted results, limits."""

from weft.compiler.cuda.computes import library_fails
from weft.compiler.cuda.limits import GPU_LIMITS
from weft.compiler.ir.routine import Routine
from weft.compiler.limits import Limits
from weft.core.dtypes import REAL
from weft.core.op import Op

from .interpreter import Interpreter, passes_of

# Rows that are library calls here, so that many results are adopted.
CALLS = ("tanh", "maximum", "sum")


class GpuLike(Interpreter):
    """NumPy as a GPU: kernels, products and library calls, and no routines."""

    key, alignment, product_dtypes = ("interpreter like a GPU",), 256, REAL
    adopts, passes = True, passes_of(REAL)

    def __init__(self, limits: Limits = GPU_LIMITS, calls: tuple[str, ...] = CALLS):
        self.limits, self.calls = limits, calls

    def supports(self, graph, e) -> str:
        return "it is a call" if e.op.name in self.calls else super().supports(graph, e)

    def routine(self, graph, views, e) -> Routine | str | None:
        return None

    def takes_long(self, work, dtype=None) -> bool:
        return False

    def library_fails(self, op: Op) -> bool:
        return library_fails(op)


GPU_LIKE = GpuLike()
