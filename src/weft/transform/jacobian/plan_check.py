"""The key of a plan, and checks that a plan and its result are right."""

from hashlib import blake2b
from typing import Any

import numpy as np

from ... import errors
from ...arrays.dtype_functions import finfo
from ...arrays.make import asarray
from ...arrays.tensor import Tensor
from ...backend.device import as_numpy
from ...core import dtypes
from ...core.aval import Aval
from ...core.backends import BACKENDS
from ...core.box import ground
from ...core.exact import exact
from ...core.op import MOVES
from ...core.value import aval_of
from ...graph.graph import Literal
from ...graph.staged import Staged
from ...graph.symbol import Trace
from ...ops.elementwise import maximum, where
from ...ops.index import segment_sum
from ...ops.logic import isfinite
from ...ops.positions import index_like
from ..modes.trace import operands
from .colouring import recovers
from .cut import separates
from .plan import Plan
from .seeds import Seeds
from .sweeps import Sweeper


def signature(trace: Trace) -> tuple[Any, ...]:
    """The key of a plan: the equations, their types, and the values of index arrays.

    Another branch gives other equations, so a plan is never used for a program that it was not
    made for.
    """
    lines = []
    for e in trace.equations:
        inputs = tuple([None if i.__class__ is Literal else i for i in e.inputs])
        moves = e.op.moves in MOVES or e.op.moves == "sums"
        digest = _index_digests(trace, e) if moves else None
        lines.append((e.op, inputs, e.static and exact(e.static), digest))
    shapes = tuple([tuple(v.shape) for v in trace.values])
    inputs = tuple([aval_of(trace.values[i]) for i in (*trace.inputs, *trace.constants)])
    return inputs, tuple(trace.outputs), shapes, tuple(lines)


def _index_digests(trace: Trace, e):
    """A digest of each index array: which elements move where is part of the sparsity."""
    if e.op.arity in (None, 1):
        return None
    found = []
    for value, transpose in zip(operands(trace, e), e.op.rule.transpose, strict=True):
        if transpose is None:
            raw = value._data if isinstance(value, Tensor) else value
            raw = raw.known if raw.__class__ is Staged else ground(raw)
            known = raw is not None and raw.__class__ is not Aval
            values: Any = np.ascontiguousarray(as_numpy(raw)) if known else None
            digest = blake2b(values, digest_size=16) if known else None
            found.append(None if digest is None else digest.digest())
    return tuple(found)


def check_plan(name: str, s: Sweeper, plan: Plan) -> None:
    """Raise for a plan that is wrong for its equations, whatever their values are.

    A cut must separate the inputs from the outputs, and a colouring must recover every entry of the
    pattern unmixed. Both are properties of graphs, checked exactly, also for programs that are only
    traced. That a pattern contains all derivatives follows from the rows, each of which is tested
    for that.
    """
    chosen = plan.chosen
    if chosen.kind == "mixed" and not separates(s.trace, s.equations, chosen.cut):
        raise _plan_error(name, plan, "a way from the inputs to the results does not meet its cut")
    if chosen.colouring is not None and not recovers(chosen.colouring, plan.pattern):
        raise _plan_error(name, plan, "its sweeps do not hold every entry unmixed")


def _plan_error(name: str, plan: Plan, why: str) -> errors.PlanError:
    return errors.PlanError(
        f"{name}: the {plan.chosen.kind} plan is wrong: {why}. This is a defect of Weft, please "
        "report it; mode='forward' and mode='reverse' do without"
    )


def refuse_verification(name: str, found: Tensor) -> None:
    if ground(found).__class__ is Aval:
        raise errors.StagingError(
            f"{name}: verify=True compares numbers, and in a function that is being compiled there "
            "are none yet; leave it out, or call it outside"
        )


def check_projection(name: str, s: Sweeper, plan: Plan, found: Tensor) -> None:
    """Compare J·v for a random v with a forward sweep; a wrong Jacobian raises."""
    if 0 in plan.shape:
        return
    with BACKENDS[np.ndarray].quiet():
        excess = as_numpy(ground(_excess(s, plan, found.detach())))
    places = np.argwhere(excess > 1)  # NaN where something is infinite
    if len(places):
        raise errors.PlanError(
            f"{name}: (J·v)[{places[0][-1]}] by the {plan.chosen.kind} plan is off that by a "
            f"forward sweep, {excess[tuple(places[0])]:.3g} times as far as rounding explains. If "
            "a custom operation is part of the function, see that its rules agree "
            "(wf.check_grads); mode='forward' and 'reverse' use one mode alone"
        )


def _excess(s: Sweeper, plan: Plan, found: Tensor) -> Tensor:
    """The error of each element of J·v, relative to what rounding explains.

    It is computed with tensors, so that every element of a batch is compared.
    """
    n = plan.shape[1]
    v = np.random.default_rng(0).uniform(0.5, 1.5, (1, n)).astype(np.float32)
    expected = s.forward(Seeds(v), s.trace.inputs, s.trace.outputs)[0].detach().to("float64")
    terms = found.to("float64") * _over_columns(plan, v[0], found)
    scale = _sum_rows(plan, abs(terms)) + abs(expected)
    eps = 100 * _precision(s) * (n + len(s.equations) + 10)
    # Entries may cancel inside the function: allow for rounding of values of size one.
    allowed = eps * (scale + maximum(where(isfinite(scale), scale, 0.0).max(), 1.0))
    return abs(_sum_rows(plan, terms) - expected) / allowed


def _over_columns(plan: Plan, v: np.ndarray, like: Tensor) -> Tensor:
    """The element of v for each entry of the result."""
    wide = v[plan.pattern.indices] if plan.compressed else v
    return asarray(wide, dtype="float64", device=like.device)


def _sum_rows(plan: Plan, terms: Tensor) -> Tensor:
    """The sum of each row."""
    if not plan.compressed:
        return terms.sum(-1)
    rows = np.repeat(np.arange(plan.shape[0]), np.diff(plan.pattern.indptr))
    return segment_sum(terms, index_like(terms, rows), 0, plan.shape[0])


def _precision(s: Sweeper) -> float:
    """The coarsest rounding among a trace's floating-point values."""
    found = [a.dtype for a in s.trace.avals if dtypes.is_inexact(a.dtype)]
    return max(finfo(d).eps for d in found)
