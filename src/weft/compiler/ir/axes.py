"""The axes of a kernel with the strides of all its arrays, and how neighbours merge."""

from typing import Any

from ...core.record import record
from .kernel import Kernel


@record
class Axis:
    """A loop: its length, and its stride in each array."""

    size: int
    strides: tuple[int, ...]


def axes_of(kernel: Kernel) -> list[Axis]:
    """The axes of a kernel's domain; arrays are the operands, then the results."""
    accesses: tuple[Any, ...] = (*kernel.operands, *kernel.results)
    return [
        Axis(size, tuple([x.strides[a] for x in accesses])) for a, size in enumerate(kernel.domain)
    ]


def merge_axes(axes: list[Axis]) -> list[Axis]:
    """Axes sorted from the widest strides to the narrowest, contiguous neighbours merged."""
    axes = sorted(axes, key=lambda a: -sum(map(abs, a.strides)))
    made: list[Axis] = []
    for axis in axes:
        last = made[-1] if made else None
        if last and all(
            s == t * axis.size for s, t in zip(last.strides, axis.strides, strict=True)
        ):
            made[-1] = Axis(last.size * axis.size, axis.strides)
        else:
            made.append(axis)
    return made
