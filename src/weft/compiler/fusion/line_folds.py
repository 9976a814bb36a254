"""Folds of a few long lines in two stages: over pieces of each line, then over the pieces.

A block of threads folds a line. Where there are fewer lines than blocks that run at once, each line
is cut into pieces of equal length; the second stage folds their partial results.
"""

from dataclasses import replace
from math import prod

from ..ir.kernel import FoldStep, Kernel, Operand, Result, Step, Strides, renumber
from ..ir.schedule import row_major
from ..limits import Limits
from .canonical import canonical
from .two_stage_folds import Stages, is_fold, line_dtype, needed_values


def split_lines(kernel: Kernel, limits: Limits) -> Stages | None:
    """The stages of a kernel that folds a few lines; None if one stage is enough."""
    kept = [a for a in range(len(kernel.domain)) if a not in kernel.folded]
    lines = prod([kernel.domain[a] for a in kept])
    if not kernel.folded or not kept or kernel.piece or not 0 < lines < limits.split_lines:
        return None
    if prod(kernel.domain) < limits.full_fold_elements:
        return None
    if max([kernel.settled[i] for i in kernel.live], default=0) != 1:
        return None
    pieces = _pieces(kernel, lines, limits)
    if pieces is None:
        return None
    folds = [i for i in sorted(kernel.live) if is_fold(kernel, i)]
    whole = [k for k, r in enumerate(kernel.results) if kernel.settled[r.value] == 0]
    others = [k for k in range(len(kernel.results)) if k not in whole]
    second, operands = _second(kernel, kept, pieces, folds, others)
    return Stages(
        _first(kernel, kept, pieces, folds, whole),
        second,
        lines * pieces,
        tuple([line_dtype(kernel, i) for i in folds]),
        tuple(whole),
        operands,
        tuple(others),
    )


def _pieces(kernel: Kernel, lines: int, limits: Limits) -> int | None:
    """The pieces of a line: as few as make enough of them together, else as many as there are."""
    n = kernel.domain[kernel.folded[0]]
    each = prod([kernel.domain[a] for a in kernel.folded])
    able = [
        p
        for p in range(2, min(n, limits.most_pieces) + 1)
        if n % p == 0 and each // p >= limits.piece_elements
    ]
    enough = [p for p in able if p * lines >= limits.usual_pieces]
    return min(enough, default=max(able, default=None))


def _line(kernel: Kernel, kept: list[int], pieces: int) -> Strides:
    """The strides of partial results, by kept axes and by pieces."""
    return row_major((*[kernel.domain[a] for a in kept], pieces))


def _first(
    kernel: Kernel, kept: list[int], pieces: int, folds: list[int], whole: list[int]
) -> Kernel:
    """The steps up to the folds, over pieces; their results, and a line for each fold."""
    base, cut = len(kernel.operands), kernel.folded[0]
    each = kernel.domain[cut] // pieces

    def divided(strides: Strides) -> Strides:
        return (*strides[:cut], strides[cut] * each, *strides[cut:])

    line = [0] * len(kernel.domain)
    *along, step = _line(kernel, kept, pieces)
    for a, s in zip(kept, along, strict=True):
        line[a] = s
    partial = (*line[:cut], step, *line[cut:])
    steps = list(kernel.steps)
    for i in folds:
        fold = steps[i - base]
        assert isinstance(fold, FoldStep)
        steps[i - base] = replace(fold, dtype=line_dtype(kernel, i))
    last = max([*folds, *(kernel.results[k].value for k in whole)])
    stored = [kernel.results[k] for k in whole]
    return canonical(
        Kernel(
            (*kernel.domain[:cut], pieces, each, *kernel.domain[cut + 1 :]),
            tuple([replace(o, strides=divided(o.strides)) for o in kernel.operands]),
            tuple(steps[: last + 1 - base]),
            (
                *(Result(r.value, divided(r.strides)) for r in stored),
                *(Result(i, partial) for i in folds),
            ),
            tuple([a + 1 for a in kernel.folded]),
        )
    )


def _second(
    kernel: Kernel, kept: list[int], pieces: int, folds: list[int], others: list[int]
) -> tuple[Kernel, tuple[int, ...]]:
    """Fold the lines, then run the steps of folded values; also the operands that those need."""
    base = len(kernel.operands)
    wanted = needed_values(kernel, [kernel.results[k].value for k in others])
    taken = tuple([i for i in range(base) if i in wanted])
    number = {i: len(folds) + n for n, i in enumerate(taken)}

    def still(strides: Strides) -> Strides:
        return (*[strides[a] for a in kept], 0)

    line = _line(kernel, kept, pieces)
    operands = [Operand(line_dtype(kernel, i), line) for i in folds]
    operands += [
        replace(o, strides=still(o.strides)) for o in map(kernel.operands.__getitem__, taken)
    ]
    steps: list[Step | FoldStep] = []
    for i in sorted(wanted - set(taken)):
        step = kernel.steps[i - base]
        if isinstance(step, FoldStep):
            steps.append(replace(step, value=folds.index(i)))
        else:
            steps.append(renumber(step, number))
        number[i] = len(operands) + len(steps) - 1
    results = [
        Result(number[kernel.results[k].value], still(kernel.results[k].strides)) for k in others
    ]
    domain = (*[kernel.domain[a] for a in kept], pieces)
    made = Kernel(domain, tuple(operands), tuple(steps), tuple(results), (len(kept),))
    return canonical(made), taken
