"""Column sums fused into kernels that walk the same rows.

A kernel that folds its rows (a layer norm and its neighbours) cannot fold columns as well, and an
elementwise kernel need not have rows at all. But the first stage of a column sum goes by rows:
where both read or compute the same array, they become one kernel, and an array that only the sum
needs is never stored.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import prod

from ..ir.kernel import Kernel, in_rows, renumber
from ..ir.schedule import KernelStep, Schedule, ScheduleStep
from ..ir.verify import may_fail
from ..limits import Limits


def join_column_folds(schedule: Schedule, limits: Limits) -> Schedule:
    """Fuse column sums into kernels that walk the same rows."""
    steps = list(schedule.steps)
    reads = Counter(map(schedule.storage, schedule.outputs))
    for step in steps:
        reads.update(map(schedule.storage, step.reads))
    at = 0
    while at < len(steps):
        step = steps[at]
        host = _host(schedule, steps, at) if _is_sum(step) else None
        if host is None and limits.joins_forward and _is_sum(step):
            later = _later_host(schedule, steps, at)
            if later is not None:
                steps, host = _put_off(schedule, steps, at, later)
        elif host is not None:
            del steps[at]
        if host is None:
            at += 1
            continue
        fused = _fuse(_by_rows(steps[host], step), step)
        for one in (steps[host], step):
            reads.subtract(map(schedule.storage, one.reads))
        reads.update(map(schedule.storage, fused.reads))
        unread = {s for i in fused.writes if reads[s := schedule.storage(i)] == 0}
        steps[host] = _without(fused, unread)
    return replace(schedule, steps=tuple(steps))


def _is_sum(step: ScheduleStep) -> bool:
    return isinstance(step, KernelStep) and bool(step.kernel.piece) and not step.kernel.folded


def _host(schedule: Schedule, steps: Sequence[ScheduleStep], at: int) -> int | None:
    """The last kernel before a sum that the sum can be fused into."""
    step = steps[at]
    assert isinstance(step, KernelStep)
    if any(schedule.buffers[i].takes is not None for i in step.results):
        return None
    read = {schedule.storage(step.operands[n]) for n in _used_values(step.kernel)}
    for k in range(at - 1, -1, -1):
        other = steps[k]
        written = {schedule.storage(i) for i in other.writes}
        if isinstance(other, KernelStep) and _alike(other.kernel, step.kernel):
            shared = _shared_operands(_by_rows(other, step), step)
            apart = {schedule.storage(step.operands[n]) for n in _used_values(step.kernel, shared)}
            if any(_whole(step.kernel, n) for n in shared) and not apart & written:
                return k
        if read & written:
            return None
    return None


def _later_host(schedule: Schedule, steps: Sequence[ScheduleStep], at: int) -> int | None:
    """The first kernel behind a sum that the sum can be fused into.

    What is computed of the sum comes after that kernel then, so the kernel must not need it.
    """
    step = steps[at]
    assert isinstance(step, KernelStep)
    if any(schedule.buffers[i].takes is not None for i in step.results):
        return None
    read = {schedule.storage(step.operands[n]) for n in _used_values(step.kernel)}
    made = {schedule.storage(i) for i in step.results}
    for k in range(at + 1, len(steps)):
        other = steps[k]
        if not read.isdisjoint(_changed(schedule, other)):
            return None
        if not made.isdisjoint([schedule.storage(i) for i in other.reads]):
            if may_fail(other):
                return None  # an input may be written before it then
            made |= {schedule.storage(i) for i in other.writes}
            read |= {schedule.storage(i) for i in other.reads}
        elif not made.isdisjoint(_changed(schedule, other)):
            return None
        elif isinstance(other, KernelStep) and _alike(other.kernel, step.kernel):
            shared = _shared_operands(_by_rows(other, step), step)
            if any(_whole(step.kernel, n) for n in shared):
                return k
    return None


def _changed(schedule: Schedule, step: ScheduleStep) -> set[int]:
    """The storage that a step writes, and that of the inputs whose memory it takes."""
    written = {schedule.storage(i) for i in step.writes}
    return written | {t for i in written if (t := schedule.buffers[i].takes) is not None}


def _put_off(
    schedule: Schedule, steps: Sequence[ScheduleStep], at: int, host: int
) -> tuple[list[ScheduleStep], int]:
    """The steps without a sum, and with all that is computed of it behind its host.

    Also the new position of the host.
    """
    made = {schedule.storage(i) for i in steps[at].writes}
    ahead: list[ScheduleStep] = []
    behind: list[ScheduleStep] = []
    for step in steps[at + 1 : host]:
        if made.isdisjoint([schedule.storage(i) for i in step.reads]):
            ahead.append(step)
        else:
            made |= {schedule.storage(i) for i in step.writes}
            behind.append(step)
    before = [*steps[:at], *ahead]
    return [*before, steps[host], *behind, *steps[host + 1 :]], len(before)


def _alike(host: Kernel, kernel: Kernel) -> bool:
    """Whether a kernel walks the rows of a sum, and in the same pieces if it has pieces."""
    rows = host.domain == kernel.domain and host.folded in ((), (1,))
    line = host.domain == (prod(kernel.domain),) and not host.folded
    return (rows or line) and host.piece in (0, kernel.piece)


def _by_rows(host: ScheduleStep, step: ScheduleStep) -> KernelStep:
    """A host over one contiguous axis, split into the rows of a sum."""
    assert isinstance(host, KernelStep) and isinstance(step, KernelStep)
    rows, columns = step.kernel.domain
    return replace(host, kernel=in_rows(host.kernel, (rows, columns)))


def _used_values(kernel: Kernel, but: Sequence[int] = ()) -> list[int]:
    return [n for n in range(len(kernel.operands)) if n in kernel.live and n not in but]


def _shared_operands(host: KernelStep, step: KernelStep) -> list[int]:
    """The operands of a sum that its host reads or computes."""
    return [n for n in _used_values(step.kernel) if _find_in_host(host, step, n) >= 0]


def _whole(kernel: Kernel, n: int) -> bool:
    return all(kernel.operands[n].strides)


def _find_in_host(host: KernelStep, step: KernelStep, n: int) -> int:
    """The host's value that is operand n of a sum; −1 if there is none."""
    buffer, strides = step.operands[n], step.kernel.operands[n].strides
    for i, r in zip(host.results, host.kernel.results, strict=True):
        if (i, r.strides, r.over_rows) == (buffer, strides, ""):
            return r.value
    for k, (i, o) in enumerate(zip(host.operands, host.kernel.operands, strict=True)):
        if (i, o.strides) == (buffer, strides):
            return k
    return -1


def _fuse(host: ScheduleStep, step: ScheduleStep) -> KernelStep:
    """One kernel with the steps and results of both."""
    assert isinstance(host, KernelStep) and isinstance(step, KernelStep)
    new = [n for n in _used_values(step.kernel) if _find_in_host(host, step, n) < 0]
    base, more = len(host.kernel.operands), len(new)
    ours = {i: i if i < base else i + more for i in range(base + len(host.kernel.steps))}
    theirs = {n: base + k for k, n in enumerate(new)}
    theirs |= {
        n: ours[_find_in_host(host, step, n)] for n in _used_values(step.kernel) if n not in theirs
    }
    behind, own = len(ours) + more, len(step.kernel.operands)
    theirs |= {own + k: behind + k for k in range(len(step.kernel.steps))}
    kernel = Kernel(
        host.kernel.domain,
        (*host.kernel.operands, *(step.kernel.operands[n] for n in new)),
        (
            *(renumber(s, ours) for s in host.kernel.steps),
            *(renumber(s, theirs) for s in step.kernel.steps),
        ),
        (
            *(replace(r, value=ours[r.value]) for r in host.kernel.results),
            *(replace(r, value=theirs[r.value]) for r in step.kernel.results),
        ),
        host.kernel.folded,
        step.kernel.piece,
    )
    return KernelStep(
        kernel,
        (*host.operands, *(step.operands[n] for n in new)),
        (*host.results, *step.results),
        tuple(dict.fromkeys((*host.origins, *step.origins))),
    )


def _without(step: ScheduleStep, storages: set[int]) -> ScheduleStep:
    """A kernel without the results that are written to these storages."""
    assert isinstance(step, KernelStep)
    pairs = zip(step.results, step.kernel.results, strict=True)
    kept = [(i, r) for i, r in pairs if i not in storages]
    kernel = replace(step.kernel, results=tuple(r for _, r in kept))
    return replace(step, kernel=kernel, results=tuple(i for i, _ in kept))
