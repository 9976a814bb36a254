"""Steps that repeat the last one: the same arrays by fused kernels, with new gradients and numbers.

An ordinary step looks at every parameter's array, state and settings. As long as none of them was
replaced since the last step, one look at their identities is enough.
"""

from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

from ..core import versions
from ..core.backends import BACKENDS
from ..core.record import record
from ..core.settings import current
from ..core.value import GROUND
from .parameters import ParameterEntry
from .walk import AROUND, Job, fused_kernel

# A parameter, its array, what its gradient has to be like, the strides of these arrays, and the
# arrays of its state by name.
Row = tuple[ParameterEntry, "ref[Any]", Any, Any, tuple[tuple[str, "ref[Any]"], ...]]


@record(eq=False)
class _Batch:
    """The parameters of one group that are equally far.

    shaped  the values of the settings that determine the arrays of a state
    scaled  the values of the settings that these arrays were scaled for: those of a compiled step
            are sums, these are averages
    """

    group: dict[str, Any]
    rule: Callable[..., Any]
    shaped: list[Any]
    scaled: list[tuple[str, Any]]
    rows: list[Row]


@record(eq=False)
class RepeatedStep:
    """A step that was taken by fused kernels on the arrays as they are.

    Arrays are known by weak references: they are freed as if there was no such step.
    """

    batches: list[_Batch]
    entries: list[ParameterEntry]
    stamp: versions.SharedStamp

    def take(self, optimizer: Any, pairs: Sequence[tuple[ParameterEntry, Any]]) -> bool:
        """Take the step again if nothing but gradients and numbers has changed; whether it did."""
        if optimizer._late or AROUND or current.get().saving is not None:
            return False
        if len(pairs) != len(self.entries):
            return False
        # By identity: an edit of the groups may give a key to another parameter.
        gradients = {id(e): g for e, g in pairs}
        found: list[list[list[Any]]] = []
        for batch in self.batches:
            columns = _columns(optimizer, batch, gradients)
            if columns is None:
                return False
            found.append(columns)
        self.stamp.stamp()
        for batch, columns in zip(self.batches, found, strict=True):
            hyper = _advance_counts(optimizer, batch)
            xp = BACKENDS[type(columns[0][0])]
            getattr(xp, fused_kernel(batch.rule))(*columns, **hyper)
        return True


def _columns(  # noqa: C901  (the hot path)
    optimizer: Any, batch: _Batch, gradients: dict[int, Any]
) -> list[list[Any]] | None:
    """Parameters, gradients and arrays of the state; None if something was replaced."""
    group, state, rows = batch.group, optimizer._state, batch.rows
    if [group[name] for name in optimizer.shaping] != batch.shaped:
        return None
    first = state.get(rows[0][0].key)
    if first is None or optimizer.rule_of(first) is not batch.rule:
        return None
    if any([first[name] != value for name, value in batch.scaled]):
        return None
    expected = [(name, first[name]) for name in optimizer.started]
    ps, gs, held = [], [], []
    for e, known, like, strides, arrays in rows:
        g: Any = gradients.get(id(e))
        p: Any = e.param._data
        own = state.get(e.key)
        if own is None or e.group is not group or g.__class__ not in GROUND:
            return None
        if p.shape != like[-1] or not _is_as_known(p, known):
            return None
        raw = g._data
        if (raw.__class__, raw.dtype, raw.device, raw.shape) != like:
            return None
        for name, count in expected:
            if own.get(name) != count:
                return None
        xp: Any = BACKENDS[p.__class__]
        if xp.is_frozen(p):
            return None
        found: list[Any] = []
        for name, reference in arrays:
            array: Any = own.get(name)
            if array is None or not _is_as_known(array, reference):
                return None
            found.append(array)
        ps.append(p)
        gs.append(raw if raw.stride() == strides else xp.with_strides(raw, strides))
        held.append(found)
    return [ps, gs, *map(list, zip(*held, strict=True))]


def _is_as_known(x: Any, known: "ref[Any]") -> bool:
    """Whether an array is the one that is known, and was not turned around in place."""
    return x.is_contiguous() and x is known()


def _advance_counts(optimizer: Any, batch: _Batch) -> dict[str, Any]:
    """Count the step in all states, which are equally far; the numbers of the step."""
    state, (first, *others) = optimizer._state, batch.rows
    own = state[first[0].key]
    own["step"] += 1
    both = batch.group | optimizer.numbers(batch.group, own)
    counts = {name: own[name] for name in optimizer.started}
    for e, *_ in others:
        state[e.key].update(counts)
    return {name: both[name] for name in optimizer.keywords(batch.rule)}


def repeated_step(
    optimizer: Any, entries: Sequence[ParameterEntry], jobs: Sequence[Job]
) -> RepeatedStep | None:
    """The step that was just taken, to be taken again; None if it was not all fused."""
    if not jobs or any([not _repeats(optimizer, e, j) for e, j in zip(entries, jobs, strict=True)]):
        return None
    batches: dict[tuple[Any, ...], _Batch] = {}
    for e, job in zip(entries, jobs, strict=True):
        p, _, *held = job.columns
        names = e.fitted[1]
        like = (p.__class__, p.dtype, p.device, p.shape)
        row = (
            e,
            ref(p),
            like,
            p.stride(),
            tuple([(n, ref(x)) for n, x in zip(names, held, strict=True)]),
        )
        shaped = [e.group[name] for name in optimizer.shaping]
        own = optimizer._state[e.key]
        scaled = [(name, own[name]) for name in optimizer.started if name in e.group]
        batch = _Batch(e.group, job.rule, shaped, scaled, [])
        far = id(job.hyper), *[own[name] for name in optimizer.started]
        batches.setdefault(far, batch).rows.append(row)
    keys = [versions.watch_memory(job.columns[0]) for job in jobs]
    return RepeatedStep(list(batches.values()), list(entries), versions.SharedStamp(keys))


def _repeats(optimizer: Any, e: ParameterEntry, job: Job) -> bool:
    """Whether a job is done by a fused kernel on its arrays, which are those of the parameter."""
    fused = fused_kernel(job.rule) and not job.whole and job.every is None and job.taken is None
    p = job.columns[0]
    if not fused or BACKENDS[type(p)].name != "torch" or hasattr(BACKENDS[type(p)], "walk"):
        return False
    plain = p.dtype.is_floating_point and p.dtype.itemsize >= 4 and p.numel() and e.param._data is p
    arrays = (p, *job.columns[2:])
    alike = [c.dtype is p.dtype and c.stride() == p.stride() for c in arrays]
    return plain and p.is_contiguous() and all(alike)
