"""Full reductions in two stages, so that threads can share the first.

A kernel that folds all of its axes is one unit of work. If it is large, the first stage folds
pieces, whose number depends on the lengths alone, and the second stage folds the partial results.
The remainder behind pieces of equal length is a kernel of its own.
"""

from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np

from ...core import dtypes
from ...core.record import record
from ...graph.graph import Literal
from ..ir.kernel import FoldStep, Kernel, Operand, Result, Step, renumber
from ..limits import Limits
from .canonical import canonical


@record
class Stages:
    """Two kernels in place of one, or three with a remainder.

    Buffers of the first: the operands, then `whole` of the results and a line for each of `lines`
    (their dtypes). Buffers of the second: those lines and `operands` of the operands, then the
    other results, `folded`. `length` is the length of the lines. `rest` has the buffers of the
    first, all offset by `behind` steps along the outermost axis, and the last elements of the
    lines.
    """

    first: Kernel
    second: Kernel
    length: int
    lines: tuple[np.dtype, ...]
    whole: tuple[int, ...]
    operands: tuple[int, ...]
    folded: tuple[int, ...]
    rest: Kernel | None = None
    behind: int = 0


def split_stages(kernel: Kernel, limits: Limits) -> Stages | None:
    """The stages of a kernel; None if one stage is enough."""
    axes, large = range(len(kernel.domain)), limits.full_fold_elements
    if not kernel.folded or set(kernel.folded) != set(axes) or prod(kernel.domain) < large:
        return None
    pieces = _pieces(kernel, limits)
    if pieces is None or max(kernel.settled[i] for i in kernel.live) > 1:
        return None
    folds = [i for i in sorted(kernel.live) if is_fold(kernel, i)]
    whole = [k for k, r in enumerate(kernel.results) if kernel.settled[r.value] == 0]
    others = [k for k in range(len(kernel.results)) if k not in whole]
    left = kernel.domain[0] % pieces
    length = pieces + bool(left)
    second, operands = _second(kernel, length, folds, others, even=not left)
    return Stages(
        _first(kernel, pieces, folds, whole),
        second,
        length,
        tuple(line_dtype(kernel, i) for i in folds),
        tuple(whole),
        operands,
        tuple(others),
        _first(kernel, pieces, folds, whole, rest=True) if left else None,
        kernel.domain[0] - left,
    )


def is_fold(kernel: Kernel, i: int) -> bool:
    """Whether a value of a kernel is the result of a fold."""
    base = len(kernel.operands)
    return i >= base and isinstance(kernel.steps[i - base], FoldStep)


def _pieces(kernel: Kernel, limits: Limits) -> int | None:
    """The number of pieces of the outermost axis; it need not divide the length."""
    n, rest = kernel.domain[0], prod(kernel.domain[1:])
    counts = range(limits.fewest_pieces, min(n, limits.most_pieces) + 1)
    able = [p for p in counts if n // p * rest >= limits.piece_elements]
    even = [p for p in able if n % p == 0 and p >= min(limits.even_pieces, n)]
    # A remainder of one element would be no fold.
    others = [p for p in able if p <= limits.usual_pieces and n % p * rest != 1]
    return max(even or others, default=None)


def line_dtype(kernel: Kernel, i: int) -> np.dtype:
    """The dtype of partial folds: half types would be rounded twice."""
    dtype = kernel.dtypes[i]
    fold = kernel.steps[i - len(kernel.operands)]
    wide = isinstance(fold, FoldStep) and fold.kind in ("sum", "prod", "mean")
    return dtypes.accumulator(dtype) if wide else dtype


def _first(
    kernel: Kernel, pieces: int, folds: list[int], whole: list[int], rest: bool = False
) -> Kernel:
    """The steps up to the folds, over the pieces or the rest; their results, and a line per fold.

    Where there is a rest, sums take the place of means.
    """
    each, left = divmod(kernel.domain[0], pieces)
    sizes = (1, left) if rest else (pieces, each)

    def cut(strides: tuple[int, ...]) -> tuple[int, ...]:
        return (strides[0] * each, *strides)

    domain = (*sizes, *kernel.domain[1:])
    line = (1, *(0,) * len(kernel.domain))
    base = len(kernel.operands)
    steps = list(kernel.steps)
    for i in folds:
        fold = steps[i - base]
        assert isinstance(fold, FoldStep)
        kind = "sum" if left and fold.kind == "mean" else fold.kind
        steps[i - base] = replace(fold, kind=kind, dtype=line_dtype(kernel, i))
    results = [Result(kernel.results[k].value, cut(kernel.results[k].strides)) for k in whole]
    return canonical(
        Kernel(
            domain,
            tuple(replace(o, strides=cut(o.strides)) for o in kernel.operands),
            _up_to(kernel, steps, folds, whole),
            (*results, *(Result(i, line) for i in folds)),
            tuple(range(1, len(domain))),
        )
    )


def _up_to(kernel: Kernel, steps: list, folds: list[int], whole: list[int]) -> tuple:
    """The steps up to the last one whose value the first stage stores."""
    last = max([*folds, *(kernel.results[k].value for k in whole)])
    return tuple(steps[: last + 1 - len(kernel.operands)])


def _second(kernel: Kernel, length: int, folds: list[int], others: list[int], even: bool):
    """Fold the lines, then run the steps of folded values; also the operands that those need."""
    base = len(kernel.operands)
    wanted = needed_values(kernel, [kernel.results[k].value for k in others])
    taken = tuple(i for i in range(base) if i in wanted)
    number = {i: len(folds) + n for n, i in enumerate(taken)}
    operands = [Operand(line_dtype(kernel, i), (1,)) for i in folds]
    operands += [replace(kernel.operands[i], strides=(0,)) for i in taken]
    steps: list[Step | FoldStep] = []

    def put(step: Step | FoldStep) -> int:
        steps.append(step)
        return len(operands) + len(steps) - 1

    for i in sorted(wanted - set(taken)):
        step = kernel.steps[i - base]
        if isinstance(step, Step):
            number[i] = put(renumber(step, number))
        elif step.kind == "mean" and not even:
            number[i] = mean(put, folds.index(i), step, line_dtype(kernel, i), kernel.terms)
        else:
            number[i] = put(replace(step, value=folds.index(i)))
    results = tuple(Result(number[kernel.results[k].value], (0,)) for k in others)
    return Kernel((length,), tuple(operands), tuple(steps), results, (0,)), taken


def mean(
    put: Callable[[Step | FoldStep], int], line: int, fold: FoldStep, dtype: np.dtype, terms: int
) -> int:
    """A sum or mean of a line of sums, in the dtype of the fold."""
    total = put(FoldStep("sum", line, dtype))
    if fold.kind == "mean":
        total = put(Step("divide", (total, Literal(float(terms))), dtype))
    if fold.dtype != dtype:
        total = put(Step("cast", (total,), fold.dtype, (fold.dtype,)))
    return total


def needed_values(kernel: Kernel, values: list[int]) -> set[int]:
    """The values that these depend on, stopping at folds."""
    base, found, todo = len(kernel.operands), set(), list(values)
    while todo:
        i = todo.pop()
        if i in found:
            continue
        found.add(i)
        step = kernel.steps[i - base] if i >= base else None
        if isinstance(step, Step):
            todo += [j for j in step.inputs if not isinstance(j, Literal)]
    return found
