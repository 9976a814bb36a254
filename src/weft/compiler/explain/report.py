"""The texts of `fn.explain()` and `fn.kernels`."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any

from ...core.checkpointing import CheckpointStrategy
from ...core.origin import line_of
from ...core.record import record
from ...graph.graph import Literal
from ...graph.picture import short_dtype, shorten
from ..frontend.arguments import argument_name, describe_kind
from ..frontend.variant import Variant
from ..ir.kernel import FoldStep, Kernel
from ..ir.routine import Routine
from ..ir.schedule import (
    GemmStep,
    GuardStep,
    KernelStep,
    LibraryStep,
    NativeStep,
    Schedule,
    ScheduleStep,
    TiledStep,
)
from ..target import Executable, Measure

MOST = 40  # steps that are listed without verbose=True
_SIGNS = {"add": "+", "subtract": "-", "multiply": "·", "divide": "/", "strong_product": "·"}
_SIGNS |= {"less": "<", "less_equal": "≤", "greater": ">", "greater_equal": "≥", "equal": "=="}
_SIGNS |= {"not_equal": "≠", "logical_and": "and", "logical_or": "or", "power": "^"}


@record
class VariantRecord:
    """A variant, the key of its calls, why it was compiled, and the seconds of its trace.

    notes  further lines for the report
    """

    program: Variant
    key: tuple[Any, ...]
    reason: str
    traced: float
    notes: tuple[str, ...] = ()


class Text(str):
    """A string whose repr is the string itself."""

    def __repr__(self) -> str:
        return str(self)


class Texts(list[str]):
    """A list of texts that is printed one below the other."""

    def __str__(self) -> str:
        return "\n\n".join(self)

    __repr__ = __str__


# The whole


def report(
    name: str,
    most: int,
    programs: Sequence[VariantRecord],
    parameters: tuple[str, ...],
    verbose: bool,
) -> str:
    """The report on all variants of a function."""
    lines = [f"{name}: {len(programs)} of at most {most} programs"]
    for k, made in enumerate(programs):
        lines += ["", f"program {k}: {_arguments(made.key, parameters)}"]
        lines += [f"  {line}" for line in _program(made, verbose)]
    return "\n".join(lines)


def _arguments(key: tuple[Any, ...], parameters: tuple[str, ...]) -> str:
    """A text for the kinds of arguments of a variant."""
    (names, structure, static, *_), kinds = key[0], key[1]
    texts = []
    for path, kind in zip(structure.paths(), kinds, strict=True):
        first, *rest = path
        name = argument_name(names[first], parameters)
        texts.append(f"{name}{''.join(f'[{p!r}]' for p in rest)}: {describe_kind(kind)}")
    texts += [
        f"{argument_name(n, parameters)}: {shorten(repr(value[-1]), 24)} (static)"
        for n, value in static
    ]
    return shorten(", ".join(texts) or "no arguments", 240)


def _program(variant: VariantRecord, verbose: bool) -> Iterator[str]:
    program, run = variant.program, variant.program.executable
    if variant.reason:
        yield f"made because of {variant.reason}"
    yield from variant.notes
    yield _times(variant)
    yield f"{len(program.graph.equations)} equations became {_steps(run)}"
    rows = list(_facts(program, verbose))
    wide = max(len(label) for label, _ in rows)
    for label, text in rows:
        yield f"{label:{wide}}  {text}"
    for step in [s for s in run.schedule.steps if isinstance(s, LibraryStep)]:
        yield f"library call {step.op.name} at {step.line}: {step.reason}"
    yield from _list_steps(run, verbose)


def _times(variant: VariantRecord) -> str:
    times = {"trace": variant.traced, **variant.program.times}
    stages = ", ".join(f"{name} {1e3 * t:.1f}" for name, t in times.items())
    native = "loaded from the cache" if variant.program.executable.from_disk else "compiled"
    return f"made in {1e3 * sum(times.values()):.1f} ms: {stages} ({native})"


def _steps(run: Executable) -> str:
    """The number of steps, by kind."""
    kinds = Counter(kind_of(s) for s in run.schedule.steps)
    counts = [f"{n} {_plural(kind, n)}" for kind, n in kinds.items()]
    count = len(run.schedule.steps)
    return f"{count} step{'s' * (count != 1)}" + (f": {', '.join(counts)}" if counts else "")


def _plural(kind: str, n: int) -> str:
    word = {"product": "matrix product", "library": "library call"}.get(kind, kind)
    return word if n == 1 else f"{word}s"


def _facts(program: Variant, verbose: bool) -> Iterator[tuple[str, str]]:
    """Inputs, changes, memory, threads and guards, as titles and texts."""
    run = program.executable
    yield "reads", count_kinds([p.kind for p in program.places]) or "nothing"
    changed = [p.kind for p in program.places if p.changed]
    if changed:
        donated = sum(p.donated for p in program.places)
        where = (
            "" if not donated else " in place" if donated == len(changed) else " (some in place)"
        )
        yield "changes", count_kinds(changed) + where
    yield "memory", _memory(run)
    yield from _checkpoints(program)
    yield from run.facts()
    if program.derivative is not None:
        yield "pull-back", f"{len(program.derivative.graph.equations)} equations, for backward()"
    for i, c in run.copies.items():
        yield "copied", f"{program.places[i].label} at {c.count} calls: {c.reason}"
    conditions = [*map(str, program.guards), *program.watch.lines()]
    for line in conditions if verbose else conditions[:6]:
        yield "holds for", line if verbose else shorten(line, 110)
    if len(conditions) > 6 and not verbose:
        yield "", f"and {len(conditions) - 6} more: explain(verbose=True)"


def _memory(run: Executable) -> str:
    schedule = run.schedule
    fresh = run.fresh_bytes
    constants = sum(schedule.buffers[i].nbytes for i in schedule.constants)
    parts = [f"{_bytes(run.plan.size)} for values in between"]
    if run.plan.size > run.plan.least:
        parts[0] += f" ({_bytes(run.plan.least)} at once)"
    parts += [f"{_bytes(run.plan.adopted)} of library results"] if run.plan.adopted else []
    parts.append(f"{_bytes(fresh)} of new results")
    parts += [f"{_bytes(constants)} of constants"] if constants else []
    return ", ".join(parts) + f"; {_bytes(run.plan.peak + fresh + constants)} beside its inputs"


def _checkpoints(program: Variant) -> Iterator[tuple[str, str]]:
    """The strategy and its budget, the peak, and what runs again."""
    config, again, taken = program.checkpoint, program.executable.plan.again, program.memory
    if config is None:
        return
    strategy = CheckpointStrategy(config.strategy).value
    limit = "" if config.budget is None else f" within {_bytes(config.budget)}"
    yield "strategy", f"{strategy}{limit}: a call takes {_bytes(taken.peak)}"
    if again is None or not again.steps:
        yield "again", "nothing is computed again"
    else:
        steps = f"{again.steps} step{'s' * (again.steps > 1)}"
        saved = f"{_bytes(taken.arena)} in place of {_bytes(taken.unconstrained)}"
        time = f"about {100 * again.share:.0f} % more time"
        yield "again", f"{steps} run again, for {saved} of values in between: {time}"


def _bytes(n: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= size:
            return f"{n / size:.1f} {unit}"
    return f"{n} bytes"


def count_kinds(kinds: Iterable[str]) -> str:
    """The count of each kind: "2 arguments, 3 numbers"."""
    return ", ".join(f"{n} {kind}" for kind, n in Counter(kinds).items())


# Steps


def kind_of(step: ScheduleStep) -> str:
    """The kind of a step, as one word."""
    if isinstance(step, NativeStep):
        return step.routine.noun
    names = {KernelStep: "kernel", GemmStep: "product", LibraryStep: "library", GuardStep: "check"}
    names[TiledStep] = "product"
    return names.get(type(step)) or type(step).__name__.removesuffix("Step").lower()


def _list_steps(run: Executable, verbose: bool) -> Iterator[str]:
    steps = run.schedule.steps
    shown = steps if verbose else steps[:MOST]
    measures = run.measures()
    table = []
    for k, s in enumerate(shown):
        took = _took(measures[k]) if measures is not None else ()
        table.append((str(k), kind_of(s), sizes_of(s), *took, _lines_of(s), what_of(s)))
    wide = [max([len(row[c]) for row in table]) for c in range(len(table[0]) - 1)] if table else []
    for row in table:
        cells = [f"{cell:{w}}" for cell, w in zip(row, wide, strict=False)]
        yield f"  {'  '.join(cells)}  {row[-1]}".rstrip()
    if len(steps) > len(shown):
        yield f"  and {len(steps) - len(shown)} steps more: explain(verbose=True)"


def _took(measure: Measure) -> tuple[str, str, str]:
    """The time of a step, its bytes, and its share of the speed that the machine allows."""
    share = "" if measure.share is None else f"{100 * measure.share:.0f} %"
    return f"{1e6 * measure.seconds:.1f} µs", _bytes(measure.nbytes), share


def sizes_of(step: ScheduleStep) -> str:
    """The sizes that a step iterates over."""
    if isinstance(step, KernelStep):
        kernel = step.kernel
        sizes = "×".join(
            f"({n})" if a in kernel.folded else str(n) for a, n in enumerate(kernel.domain)
        )
        return sizes or "1"
    if isinstance(step, TiledStep):
        return sizes_of(step.product)
    if isinstance(step, GemmStep):
        sizes = f"{step.m}×{step.k} · {step.k}×{step.n}"
        return f"{prod(step.batch)} of {sizes}" if step.batch else sizes
    return ""


def what_of(step: ScheduleStep) -> str:
    """What a step computes, in one line."""
    if isinstance(step, KernelStep):
        rows = [f"fold {s.kind}" if isinstance(s, FoldStep) else s.row for s in step.kernel.steps]
        return shorten(", ".join(_runs(rows)), 76) or "copy"
    if isinstance(step, NativeStep):
        return shorten(routine_text(step.routine), 76)
    if isinstance(step, LibraryStep):
        return f"{step.op.name}: {step.reason}"
    if isinstance(step, GuardStep):
        return f"or {step.error.__name__}"
    if isinstance(step, GemmStep):
        flags = [n for n, on in (("aᵀ", step.transpose_a), ("bᵀ", step.transpose_b)) if on]
        flags += ["added to c"] if step.beta else []
        flags += [] if step.bias is None else ["+ bias"]
        return ", ".join([*flags, *([step.activation] if step.activation else [])])
    if isinstance(step, TiledStep):
        parts = [part for part in (what_of(step.product), f"then {what_of(step.then)}") if part]
        return shorten(", ".join(parts), 76)
    return ""


def _runs(rows: list[str]) -> list[str]:
    """Rows in order; equal neighbours once, with their count."""
    return [r if n == 1 else f"{n} {r}" for r, n in _neighbours(rows)]


def _neighbours(rows: list[str]) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for r in rows:
        if found and found[-1][0] == r:
            found[-1] = (r, found[-1][1] + 1)
        else:
            found.append((r, 1))
    return found


def routine_text(routine: Routine) -> str:
    """A routine's own description, else its name and short fields."""
    lines = routine.describe()
    if lines:
        return lines[0]
    fields = [
        f"{name}={getattr(value, 'name', value)}"
        for name, value in vars(routine).items()
        if isinstance(value, bool | int | float | str) or hasattr(value, "itemsize")
    ]
    return f"{type(routine).__name__}({', '.join(fields)})"


def _lines_of(step: ScheduleStep) -> str:
    origins = (step.origin,) if isinstance(step, LibraryStep | GuardStep) else step.origins
    lines = list(dict.fromkeys([line_of(code, at) for code, at in origins]))
    return lines[0] + (f" +{len(lines) - 1}" if len(lines) > 1 else "") if lines else ""


# Kernels


def kernels_text(schedule: Schedule) -> Texts:
    """Each kernel and routine as readable lines."""
    texts = Texts()
    for step in schedule.steps:
        if isinstance(step, KernelStep):
            texts.append("\n".join(_kernel(schedule, step)))
        elif isinstance(step, TiledStep):
            tile = "×".join(map(str, step.tile))
            head, *lines = _kernel(schedule, step.then)
            texts.append("\n".join([f"{head}, in tiles of {tile} of a product", *lines]))
        elif isinstance(step, NativeStep):
            inside = step.routine.describe()[1:]
            lines = [routine_text(step.routine), *[f"  {line}" for line in inside]]
            texts.append("\n  ".join([f"{step.routine.noun}{_at(step)}", *lines]))
    return texts


def _at(step: KernelStep | NativeStep) -> str:
    lines = list(dict.fromkeys(line_of(*o) for o in step.origins))
    return f" at {', '.join(lines[:4])}" + (", …" if len(lines) > 4 else "") if lines else ""


def _kernel(schedule: Schedule, step: KernelStep) -> Iterator[str]:
    kernel = step.kernel
    folded = f" folding {'×'.join(str(kernel.domain[a]) for a in kernel.folded)}"
    yield f"kernel {sizes_of(step)}{folded if kernel.folded else ''}{_at(step)}"
    operands = " ".join(_buffer(schedule, i) for i in step.operands)
    yield f"  {operands or 'nothing'} → {' '.join(_buffer(schedule, i) for i in step.results)}"
    names = [f"b{i}" for i in step.operands]
    stored: dict[int, list[str]] = {}
    for i, r in zip(step.results, kernel.results, strict=True):
        stored.setdefault(r.value, []).append(f"b{i}")
    for k in range(len(kernel.steps)):
        number = len(step.operands) + k
        names.append(f"t{k}")
        target = " = ".join([*stored.get(number, ()), f"t{k}"])
        yield f"  {target} = {expression(kernel, k, names)}"
    for number, targets in stored.items():
        if number < len(step.operands):
            yield f"  {' = '.join(targets)} = {names[number]}"


def expression(kernel: Kernel, k: int, names: list[str]) -> str:
    """Step k of a kernel as a formula."""
    s = kernel.steps[k]
    if isinstance(s, FoldStep):
        return f"{s.kind} of {names[s.value]}"
    given: list[Any] = [repr(i.value) if isinstance(i, Literal) else names[i] for i in s.inputs]
    if s.row in _SIGNS and len(given) == 2:
        return f"{given[0]} {_SIGNS[s.row]} {given[1]}"
    if s.row == "cast":
        return f"{short_dtype(str(s.dtype))}({given[0]})"
    return f"{s.row}({', '.join([*given, *map(repr, s.static)])})"


def _buffer(schedule: Schedule, i: int) -> str:
    b = schedule.buffers[i]
    return f"b{i}:{short_dtype(str(b.dtype))}[{','.join(map(str, b.shape))}]"
