"""Canonical kernels: kernels that access memory in the same way are equal."""

from typing import Any

from ..ir.kernel import Kernel, Operand, Result


def canonical(kernel: Kernel) -> Kernel:
    """The same kernel with its axes sorted by stride, and collapsed where they are contiguous.

    So shapes that do not matter do not distinguish kernels, and one compilation serves them all. A
    kernel that folds columns is canonical already.
    """
    if kernel.piece:
        return kernel
    accesses: tuple[Any, ...] = (*kernel.operands, *kernel.results)
    axes = [
        (size, tuple(x.strides[a] for x in accesses), a in kernel.folded)
        for a, size in enumerate(kernel.domain)
        if size != 1
    ]
    axes.sort(key=lambda axis: (axis[2], -sum(map(abs, axis[1]))))
    made: list[tuple] = []
    for size, strides, folded in axes:
        last = made[-1] if made else None
        if (
            last
            and last[2] == folded
            and 0 not in (size, last[0])
            and all(s == t * size for s, t in zip(last[1], strides, strict=True))
        ):
            made[-1] = (last[0] * size, strides, folded)
        else:
            made.append((size, strides, folded))
    columns = [tuple(strides[i] for _, strides, _ in made) for i in range(len(accesses))]
    count = len(kernel.operands)
    read = zip(kernel.operands, columns[:count], strict=True)
    stored = zip(kernel.results, columns[count:], strict=True)
    return Kernel(
        tuple([size for size, _, _ in made]),
        tuple([Operand(o.dtype, strides) for o, strides in read]),
        kernel.steps,
        tuple([Result(r.value, strides, r.over_rows) for r, strides in stored]),
        tuple([k for k, (_, _, folded) in enumerate(made) if folded]),
        kernel.piece,
    )
