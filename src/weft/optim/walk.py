"""Applying an update rule to the memory of many parameters, block by block.

Blocks have a fixed size and rules are elementwise, so that results depend neither on the number of
threads nor on the other parameters in the same call.
"""

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import numpy as np

from ..backend.shared.threads import PASS, share
from ..core import dtypes
from ..core.backends import BACKENDS
from ..core.record import record
from . import rules
from .program import UpdateProgram

# Elements of a block: a rule's operands fit the CPU's caches; on an accelerator temporaries
# stay at some 64 MiB.
_HOST, _ACCELERATOR = 1 << 16, 1 << 24
# Arrays with fewer elements are joined: copying them costs less than calls for each.
_SMALL_ON_HOST, _SMALL_ON_ACCELERATOR = 1 << 13, 1 << 22
# The least elements for a compiled rule: each call is traced, and the first one compiled.
_FOR_A_PROGRAM = 1 << 16
# About how many passes over the elements a rule makes.
_PASSES = 8
# The rules that PyTorch's backend has as one kernel. Their moments are averages there, which is
# what discounted sums for β = 0 are.
_FUSED = {
    rules.sgd: "update_sgd",
    rules.adam: "update_adam",
    rules.adamw: "update_adamw",
    rules.average: "update_average",
}


@record
class Job:
    """One parameter's arrays and numbers for a rule.

    columns  p, g and the state: raw arrays, written to except for g
    hyper    the numbers; jobs that hold the same dict are done together
    every    how many elements of p share one element of a column; None: one each
    whole    whether the rule needs all of p at once, in its shape
    traced   whether the rule is arithmetic that `program` can trace
    taken    a flag of the device's, an array without axes: where it is false, nothing is written
    """

    rule: Callable[..., Any]
    columns: tuple[Any, ...]
    hyper: dict[str, Any]
    every: tuple[int, ...] | None = None
    whole: bool = False
    traced: bool = True
    taken: Any = None


# Called as around(run, jobs) in the place of run(), at each step: how profilers measure them.
AROUND: list[Callable[[Callable[[], None], list[Job]], None]] = []


def walk(jobs: list[Job]) -> None:
    """Run all jobs; those that share their numbers run together."""
    if not AROUND:
        _walk(jobs)
        return
    run = partial(_walk, jobs)
    for around in AROUND:
        run = partial(around, run, jobs)
    run()


def fused_kernel(rule: Callable[..., Any]) -> str:
    """The name of a rule's kernel in PyTorch's backend; "": there is none."""
    return _FUSED.get(rule, "")


def is_fused(rule: Callable[..., Any], p: Any) -> bool:
    """Whether the parameter's backend has the rule as one kernel, on averages."""
    return rule in _FUSED and BACKENDS[type(p)].name == "torch"


def _is_fused_job(job: Job) -> bool:
    """Whether a job is done by such a kernel: a dampened first step must be known to be one."""
    late = job.taken is not None and job.hyper.get("dampening")
    return is_fused(job.rule, job.columns[0]) and not late


def _walk(jobs: list[Job]) -> None:
    together: dict[tuple, list[Job]] = {}
    for job in jobs:
        p = job.columns[0]
        if job.whole:
            _do_whole(job)
        elif prod(p.shape):
            memory = (type(p), p.dtype, p.device, len(job.columns), job.every)
            kind = job.rule, id(job.hyper), id(job.taken)
            together.setdefault((*kind, *memory), []).append(job)
    for alike in together.values():
        p = alike[0].columns[0]
        run = _do_fused if _is_fused_job(alike[0]) else _do_alike
        getattr(BACKENDS[type(p)], "walk", run)(alike)  # arrays without values only count the step


def working_dtype(dtype: np.dtype) -> np.dtype[Any]:
    """The real dtype in which parameters of this dtype are updated."""
    return dtypes.accumulator(dtypes.to_real(dtype))


def _dtype(job: Job, xp) -> np.dtype:
    return working_dtype(xp.dtype_of(job.columns[0]))


def _write_columns(columns: list) -> list:
    return [columns[0], *columns[2:]]


def _do_whole(job: Job) -> None:
    xp = BACKENDS[type(job.columns[0])]
    dtype = xp.raw_dtype(_dtype(job, xp))
    with xp.quiet():
        results = job.rule(*[_in(c, dtype, xp) for c in job.columns], **job.hyper)
        for column, result in zip(_write_columns(list(job.columns)), results, strict=True):
            _write_if(job.taken, column, result, xp)


def _in(x, dtype, xp):
    """A floating-point array cast to the dtype; integer codes stay."""
    return x if x.dtype == dtype or x.dtype == xp.raw_dtype(dtypes.uint8) else xp.cast(x, dtype)


def _do_alike(jobs: list[Job]) -> None:
    first = jobs[0]
    xp = BACKENDS[type(first.columns[0])]
    device, dtype = xp.device_of(first.columns[0]), _dtype(first, xp)
    flats = [_FlatJob(job, xp) for job in jobs]
    on_host = device in ("cpu", "torch")
    size = _HOST if on_host else _ACCELERATOR
    pieces = _pieces(flats, size, _SMALL_ON_HOST if on_host else _SMALL_ON_ACCELERATOR)
    total = sum(f.size for f in flats)
    if device == "cpu" and first.traced and total > _FOR_A_PROGRAM:
        run: Callable[..., Any] = UpdateProgram(first.rule, len(first.columns), dtype, first.hyper)
    else:
        run = partial(_run_rule, first.rule, first.hyper, xp, first.taken)
    raw_dtype = xp.raw_dtype(dtype)
    operations = PASS * _PASSES * total if device == "cpu" else 0
    share(pieces, lambda: partial(_do_piece, run, raw_dtype, xp), operations)
    for job in flats:
        job.finish()


def _do_fused(jobs: list[Job]) -> None:
    """One kernel for all arrays in their own memory; the others are cast in blocks."""
    first = jobs[0]
    xp = BACKENDS[type(first.columns[0])]
    dtype = xp.raw_dtype(_dtype(first, xp))
    late = {} if first.taken is None else {"taken": first.taken}
    update = partial(getattr(xp, _FUSED[first.rule]), **first.hyper, **late)
    direct = [job.columns for job in jobs if _is_direct(job, dtype)]
    if direct:
        ps, gs, *held = [list(column) for column in zip(*direct, strict=True)]
        gs = [xp.with_strides(g, p.stride()) for p, g in zip(ps, gs, strict=True)]
        update(ps, gs, *held)
    if len(direct) == len(jobs):
        return
    flats = [_FlatJob(job, xp) for job in jobs if not _is_direct(job, dtype)]
    for piece in _pieces(flats, _ACCELERATOR, _ACCELERATOR):
        _update_cast(update, dtype, xp, piece)
    for job in flats:
        job.finish()


def _is_direct(job: Job, dtype) -> bool:
    """Whether kernels of real numbers of this dtype can walk the arrays; g may be copied."""
    p, g, *held = job.columns
    if p.dtype is not dtype or g.dtype is not dtype or not p.is_contiguous():
        return False
    strides = p.stride()
    return all([c.dtype is dtype and c.stride() == strides for c in held])


def _update_cast(update: Callable[..., None], dtype, xp, piece: list[list]) -> None:
    """Update casts of the arrays, and write back those that are not the arrays themselves."""
    columns = [list(c) for c in zip(*piece, strict=True)]
    casts = [[xp.with_strides(_in(x, dtype, xp), (1,)) for x in column] for column in columns]
    update(*casts)
    for held, new in zip(_write_columns(columns), _write_columns(casts), strict=True):
        pairs = [(a, b) for a, b in zip(held, new, strict=True) if a is not b]
        if pairs:
            xp._foreach_copy_(*map(list, zip(*pairs, strict=True)))


def _run_rule(rule: Callable[..., Any], hyper: dict, xp, taken, columns: list) -> None:
    for column, result in zip(_write_columns(columns), rule(*columns, **hyper), strict=True):
        _write_if(taken, column, result, xp)


def _write_if(taken: Any, column: Any, result: Any, xp: Any) -> None:
    """Write a result into an array, where a flag is true or there is none."""
    if taken is not None:
        result = xp.where(taken, xp.cast(result, xp.dtype_of(column)), column)
    xp.overwrite(column, result)


class _FlatJob:
    """A job's arrays as flat arrays of real numbers, over the same memory where they can be."""

    def __init__(self, job: Job, xp):
        self.xp, self.job = xp, job
        self.every = job.every or (1,) * len(job.columns)
        self.columns = [flat(c, xp) for c in job.columns]
        self.size = prod(self.columns[0].shape)

    def cut(self, start: int, stop: int) -> list:
        pairs = zip(self.columns, self.every, strict=True)
        return [c[start // k : -(-stop // k)] for c, k in pairs]

    def finish(self) -> None:
        """Copy columns that could not be updated in their own memory back."""
        pairs = zip(_write_columns([*self.job.columns]), _write_columns(self.columns), strict=True)
        for x, line in pairs:
            if not self.xp.lies_in(line, x):
                write_flat(x, line, self.xp)


def flat(x: Any, xp: Any) -> Any:
    """An array as a flat one of real numbers, over the same memory where it is contiguous."""
    if xp.name == "numpy":
        line = np.ascontiguousarray(x).reshape(-1)
        return line.view(dtypes.to_real(line.dtype)) if line.dtype.kind == "c" else line
    if x.is_complex():
        x = xp.view_as_real(x.resolve_conj())
    return x.reshape(-1)


def write_flat(x: Any, line: Any, xp: Any) -> None:
    """Write a `flat` array back into the original."""
    if dtypes.is_complex(x.dtype):
        pairs = line.reshape(*x.shape, 2)
        xp.overwrite(x.real, pairs[..., 0])
        xp.overwrite(x.imag, pairs[..., 1])
    else:
        xp.overwrite(x, line.reshape(tuple(x.shape)))


def _pieces(flats: list[_FlatJob], size: int, small: int) -> list[list[list]]:
    """Blocks of about `size` elements: of one large parameter, or of several small ones."""
    pieces, joined, held = [], [], 0
    for job in flats:
        if job.size >= small or max(job.every) > 1:
            step = max(size // max(job.every), 1) * max(job.every)
            starts = range(0, job.size, step)
            pieces += [[job.cut(a, min(a + step, job.size))] for a in starts]
            continue
        if held + job.size > size:
            pieces.append(joined)
            joined, held = [], 0
        joined.append(job.columns)
        held += job.size
    return [*pieces, joined] if joined else pieces


def _do_piece(run: Callable[[list], None], dtype, xp, piece: list[list]) -> None:
    """Run on one block in place, or on a copy if it joins several parameters or needs a cast."""
    with xp.quiet():
        parts = [[_in(c, dtype, xp) for c in columns] for columns in piece]
        if len(parts) > 1:
            columns = [xp.concatenate(c) for c in zip(*parts, strict=True)]
        else:
            columns = parts[0]
        run(columns)
        if len(parts) > 1:
            _hand_back(_write_columns(columns), [_write_columns(p) for p in piece], xp)
            return
        for column, result in zip(_write_columns(piece[0]), _write_columns(columns), strict=True):
            if column is not result:
                xp.overwrite(column, result)


def _hand_back(columns: list, parts: list[list], xp) -> None:
    """Write the parts of joined columns back where they came from."""
    sizes = [len(part[0]) for part in parts]
    if xp.name == "torch":
        for k, column in enumerate(columns):
            xp._foreach_copy_([part[k] for part in parts], column.split(sizes))
        return
    start = 0
    for part, size in zip(parts, sizes, strict=True):
        for target, column in zip(part, columns, strict=True):
            xp.overwrite(target, column[start : start + size])
        start += size
