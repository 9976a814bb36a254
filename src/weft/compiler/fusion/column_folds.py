"""Folds of long columns in two stages: over pieces of a few rows each, then over the pieces.

Down a column, every step touches another cache line, and a fused kernel of the same rows would have
to walk them in the same way. By rows, each piece of rows has a line of partial folds; the second
stage folds those lines. The pieces depend on the lengths alone.
"""

from dataclasses import replace

from ..ir.kernel import FoldStep, Kernel, Operand, Result, Step, Strides, renumber
from ..limits import Limits
from .two_stage_folds import Stages, is_fold, line_dtype, mean, needed_values


def by_rows(kernel: Kernel, limits: Limits) -> Stages | None:
    """The stages of a kernel that folds columns; None if one stage is enough."""
    if len(kernel.domain) != 2 or kernel.folded != (1,) or not _fits(kernel, limits):
        return None
    times = _rows_joined(kernel, limits)
    columns, rows = kernel.domain[0] * times, kernel.domain[1] // times
    piece = limits.rows_of_piece(rows, columns)
    folds = [i for i in sorted(kernel.live) if is_fold(kernel, i)]
    whole = [k for k, r in enumerate(kernel.results) if kernel.settled[r.value] == 0]
    others = [k for k in range(len(kernel.results)) if k not in whole]
    pieces = -(-rows // piece)
    second, taken = _second(kernel, pieces, times, folds, others)
    return Stages(
        _first(kernel, piece, times, folds, whole),
        second,
        pieces * columns,
        tuple([line_dtype(kernel, i) for i in folds]),
        tuple(whole),
        taken,
        tuple(others),
    )


def _fits(kernel: Kernel, limits: Limits) -> bool:
    columns, rows = kernel.domain
    folds = [i for i in kernel.live if is_fold(kernel, i)]
    return (
        rows > limits.long_columns
        and rows * columns >= limits.column_elements
        and max(kernel.settled[i] for i in kernel.live) == 1
        and all(kernel.settled[_fold(kernel, i).value] == 0 for i in folds)
        and all(abs(strides[0]) < 2 for strides in _walk_strides(kernel))
        and (columns >= limits.narrow_rows // 4 or _rows_joined(kernel, limits) > 1)
    )


def _walk_strides(kernel: Kernel) -> list[Strides]:
    """The strides of all operands, and of the results that are stored for every row."""
    stored = [r.strides for r in kernel.results if kernel.settled[r.value] == 0]
    return [o.strides for o in kernel.operands] + stored


def _rows_joined(kernel: Kernel, limits: Limits) -> int:
    """How many rows are joined into one."""
    (columns, rows), narrow = kernel.domain, limits.narrow_rows
    lines = all(strides in ((1, columns), (0, 0)) for strides in _walk_strides(kernel))
    if columns >= narrow or not lines:
        return 1
    counts = range(-(-4 * narrow // columns), limits.joined_elements // columns + 1)
    able = [n for n in counts if rows % n == 0]
    return min(able, default=1)


def _fold(kernel: Kernel, i: int) -> FoldStep:
    fold = kernel.steps[i - len(kernel.operands)]
    assert isinstance(fold, FoldStep)
    return fold


def _first(kernel: Kernel, piece: int, times: int, folds: list[int], whole: list[int]) -> Kernel:
    """The steps up to the folds, row by row; stores their results, and a line per fold."""
    base, (columns, rows) = len(kernel.operands), kernel.domain
    steps: list[Step | FoldStep] = []
    number = {i: i for i in range(base)}

    def put(step: Step | FoldStep) -> int:
        steps.append(step)
        return base + len(steps) - 1

    def turned(strides: Strides) -> Strides:
        return strides[1] * times, strides[0]

    terms = [_fold(kernel, i).value for i in folds]
    wanted = needed_values(kernel, terms + [kernel.results[k].value for k in whole])
    for i in sorted(wanted):
        if i >= base:
            step = kernel.steps[i - base]
            assert isinstance(step, Step)
            number[i] = put(renumber(step, number))
    stored = [kernel.results[k] for k in whole]
    results = [Result(number[r.value], turned(r.strides)) for r in stored]
    for i, term in zip(folds, terms, strict=True):
        value, dtype, kind = number[term], line_dtype(kernel, i), _fold(kernel, i).kind
        if kernel.dtypes[term] != dtype:
            value = put(Step("cast", (value,), dtype, (dtype,)))
        results.append(Result(value, (columns * times, 1), "sum" if kind == "mean" else kind))
    operands = [replace(o, strides=turned(o.strides)) for o in kernel.operands]
    domain = (rows // times, columns * times)
    return Kernel(domain, tuple(operands), tuple(steps), tuple(results), piece=piece)


def _second(kernel: Kernel, pieces: int, times: int, folds: list[int], others: list[int]):
    """Fold the lines, then run the steps of folded values; also the operands that those need."""
    base, columns = len(kernel.operands), kernel.domain[0]
    wanted = needed_values(kernel, [kernel.results[k].value for k in others])
    taken = tuple([i for i in range(base) if i in wanted])
    number = {i: len(folds) + n for n, i in enumerate(taken)}
    operands = [Operand(line_dtype(kernel, i), (1, columns)) for i in folds]
    operands += [
        replace(o, strides=(o.strides[0], 0)) for o in map(kernel.operands.__getitem__, taken)
    ]
    steps: list[Step | FoldStep] = []

    def put(step: Step | FoldStep) -> int:
        steps.append(step)
        return len(operands) + len(steps) - 1

    for i in sorted(wanted - set(taken)):
        step = kernel.steps[i - base]
        if isinstance(step, Step):
            number[i] = put(renumber(step, number))
            continue
        line = folds.index(i)
        if step.kind in ("sum", "mean"):
            number[i] = mean(put, line, step, operands[line].dtype, kernel.terms)
        else:
            number[i] = put(replace(step, value=line))
    stored = [kernel.results[k] for k in others]
    results = tuple([Result(number[r.value], (r.strides[0], 0)) for r in stored])
    domain = (columns, pieces * times)
    return Kernel(domain, tuple(operands), tuple(steps), results, (1,)), taken
