"""Everything that must hold of a row, checked on a backend: `python -m tests.table.check tanh`."""

import importlib
import sys
import time
import traceback
from collections.abc import Callable, Iterator

import numpy as np
import torch

from weft.core import dtypes
from weft.core.op import TABLE, Op, Partials

from . import first_order, higher_order, values
from .probe import BACKEND_NAMES, Probe
from .problems import Problem
from .reference import Reference, references
from .rows import modules
from .trial import Trial

# How many problems of a row are printed.
SHOWN = 6
PRECISIONS = (dtypes.float32, dtypes.float16, dtypes.bfloat16)
SMOOTH = [
    first_order.check_jacobian,
    higher_order.check_alone,
    higher_order.check_second,
    higher_order.check_vanishing_cotangent,
]


def check_row(op: Op, backend: str) -> list[Problem]:
    """All problems of a row on a backend; none for a right one."""
    with np.errstate(all="ignore"):  # finite differences step out of domains on purpose
        return list(problems_of(op, backend))


def problems_of(op: Op, backend: str) -> Iterator[Problem]:
    """The problems of a row one by one, for those who need only the first."""
    refs = references(op)
    third = _third_case(refs)
    for k, ref in enumerate(refs):
        where = f"{op.name}[{k}: {ref.probe.case.label}] on {backend}"
        yield from run(where, _checks(ref, backend, third=ref is third))
    if isinstance(op.rule, Partials):
        for ref in at_poles(op, refs):
            where = f"{op.name}[{ref.probe.case.label}] on {backend}"
            trial = Trial(ref, Probe(op, ref.probe.case, backend))
            yield from run(where, [bound(higher_order.check_zero_cotangent, trial)])


def at_poles(op: Op, refs: tuple[Reference, ...]) -> Iterator[Reference]:
    """Where an elementwise row's partials are infinite, once for each kind of arguments."""
    seen = set()
    for ref in refs:
        kinds, filled = ref.probe.layout.kinds, all(np.size(a) for a in ref.probe.case.args)
        if kinds and filled and kinds not in seen:
            seen.add(kinds)
            yield Reference(Probe(op, higher_order.poles(op, ref.probe.case)))


def _third_case(refs: tuple[Reference, ...]) -> Reference | None:
    """The smallest case that has something to differentiate."""
    able = [r for r in refs if r.probe.case.smooth and r.probe.op.rule is not None]
    sizes = [(r.x.size, k, r) for k, r in enumerate(able) if r.x.size]
    return min(sizes)[2] if sizes else None


def run(where: str, checks: list[Callable]) -> Iterator[Problem]:
    """Each check's findings; an exception is a finding with the place that raised it."""
    for check in checks:
        try:
            for kind, message in check():
                yield Problem(kind, where, message)
        except Exception as e:
            at = traceback.extract_tb(e.__traceback__)[-1]
            line = f"{type(e).__name__}: {e} ({at.filename}:{at.lineno}, in {at.name})"
            yield Problem("raised", where, f"in {check.__name__}: {line}")


def _checks(ref: Reference, backend: str, third: bool) -> list[Callable]:
    probe = Probe(ref.probe.op, ref.probe.case, backend)
    wanted = [values.check_shape_rule, values.check_value, values.check_layouts]
    if probe.op.rule is None:
        wanted.append(first_order.check_refusal)
    else:
        wanted.append(first_order.check_refused_arguments)
    if probe.op.rule is not None and probe.moving:
        wanted += [first_order.check_form, first_order.check_adjoint]
        wanted += [higher_order.check_zero_cotangent]
        wanted += SMOOTH if probe.case.smooth else [first_order.check_agreement]
    if third:
        wanted.append(higher_order.check_third)
    trial = Trial(ref, probe)
    precise = [bound(values.check_precision, trial, p) for p in PRECISIONS]
    return [*(bound(check, trial) for check in wanted), *precise]


def bound(check: Callable, *args) -> Callable:
    def called():
        return check(*args)

    called.__name__ = check.__name__
    return called


def report(problems: list[Problem]) -> str:
    """The first problems, one a line."""
    lines = [f"  {p}" for p in problems[:SHOWN]]
    if len(problems) > SHOWN:
        lines.append(f"  and {len(problems) - SHOWN} more")
    return "\n".join(lines)


def main(names: list[str]) -> int:
    """Check rows by name (all, without names) on both backends and print what is wrong."""
    torch.set_num_threads(1)
    for module in modules():
        try:
            importlib.import_module(module)
        except Exception as e:
            print(f"cannot import {module}: {type(e).__name__}: {e}")
    for name in names or sorted(TABLE):
        op = TABLE[name]
        if op.sample is None:
            print(f"{name}: no sample")
            continue
        for backend in BACKEND_NAMES:
            start = time.perf_counter()
            problems = check_row(op, backend)
            spent = time.perf_counter() - start
            verdict = f"{len(problems)} problems" if problems else "ok"
            print(f"{name} on {backend}: {verdict} ({len(references(op))} cases, {spent:.2f} s)")
            if problems:
                print(report(problems))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
