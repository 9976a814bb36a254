"""The floating-point operations of kernels."""

from math import prod

from ...core.op import TABLE, Partials
from .kernel import FoldStep, Kernel, Step


def kernel_flops(kernel: Kernel) -> int:
    """One for each row that computes and each fold, at every point of the domain."""
    return prod(kernel.domain) * sum(map(_computes, kernel.steps))


def _computes(s: Step | FoldStep) -> bool:
    if isinstance(s, FoldStep):
        return True
    op = TABLE.get(s.row)
    return op is not None and isinstance(op.rule, Partials) and op.moves in ("", "sums")
