"""Epilogue kernels, tile by tile."""

from dataclasses import replace
from functools import lru_cache
from math import prod

from ...core.record import record
from .kernel import Kernel, Operand, Result, in_rows
from .schedule import TiledStep


@record
class TileKernel:
    """The kernel of a column of tiles; its pointers are `shifts` past those of the whole kernel.

    shifts  in elements, for each operand, then each result
    """

    kernel: Kernel
    shifts: tuple[int, ...]


@lru_cache(maxsize=1024)
def parts(step: TiledStep) -> tuple[TileKernel, ...]:
    """The kernels over columns of tiles, from left to right."""
    kernel, n, width = step.then.kernel, step.product.n, step.tile[1]
    if width >= n:
        return (TileKernel(kernel, (0,) * (len(kernel.operands) + len(kernel.results))),)
    whole = in_rows(kernel, (prod(step.product.batch) * step.product.m, n))
    accesses: tuple[Operand | Result, ...] = (*whole.operands, *whole.results)
    return tuple(
        TileKernel(
            replace(whole, domain=(whole.domain[0], min(width, n - left))),
            tuple(left * x.strides[1] for x in accesses),
        )
        for left in range(0, n, width)
    )
