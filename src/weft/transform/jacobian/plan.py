"""The plan of a Jacobian: the candidates, the cost of each, and the choice."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod
from time import perf_counter

import numpy as np

from ... import errors
from ...arrays.tensor import Tensor
from ...core.record import field, record
from ...graph.graph import Equation, Literal
from . import sweeps
from .bicolouring import bicolouring
from .colouring import Colouring, Csr, column_colouring, row_colouring
from .cut import narrowest_cut
from .native import NativePlan, native_of
from .scheduling import SchedulerConfig, SchedulingStrategy
from .seeds import Seeds, identity
from .sparsity import Dense, jacobian_pattern
from .star_colouring import star_colouring
from .sweeps import Structure, Sweeper

_WORTH_COMPRESSING = 0.5  # of the dense sweeps; a denser pattern is not tracked further
_SMALL = 8  # inputs or outputs: a Jacobian this narrow is not searched for sparsity
# Seconds, measured on a laptop-sized CPU: for each equation of a sweep; for each element that a
# seed moves, forward and reverse; for each entry of a product at a cut, to write it and for each
# value of the cut; for each entry that is read out of compressed sweeps.
_PER_EQUATION, _FORWARD, _REVERSE = 1e-5, 1e-9, 1.5e-9
_WRITE, _PRODUCT, _GATHER = 2e-10, 1e-10, 3e-9
_OPERANDS = 0.25  # of an element moved: an operand's element that is read beside it
_TRIED_SECONDS = 0.5  # a candidate that is estimated to take longer is not timed


@record
class Candidate:
    """One way to compute a Jacobian: `kind`, its sweeps, and what it costs in seconds."""

    kind: str
    forward: int
    reverse: int
    estimate: float = 0.0
    measured: float | None = None
    colouring: Colouring | None = None
    cut: tuple[int, ...] = ()
    seeds: tuple[Seeds, ...] = field(default=(), compare=False)

    def run(self, s: Sweeper) -> Tensor:
        """The matrix (m, n), or the entries of the pattern where it is compressed."""
        if self.colouring is not None:
            return sweeps.entries(s, self.colouring.gather, *self.seeds)
        if self.kind == "mixed":
            return sweeps.through_cut(s, list(self.cut), *self.seeds)
        dense = sweeps.dense_forward if self.kind == "forward" else sweeps.dense_reverse
        return dense(s, *self.seeds)


def _dense(kind: str, forward: int, reverse: int, cut=()) -> Candidate:
    """A plan that seeds every element of its inputs, outputs or cut."""
    return Candidate(kind, forward, reverse, cut=tuple(cut), seeds=(identity(forward or reverse),))


def _coloured_candidate(kind: str, colouring: Colouring) -> Candidate:
    """A plan that seeds the groups of a colouring."""
    seeds = Seeds(colouring.column_seeds(np.float32)), Seeds(colouring.row_seeds(np.float32))
    return Candidate(kind, colouring.forward, colouring.reverse, colouring=colouring, seeds=seeds)


@record(frozen=False)
class Plan:
    """The structure of a function's Jacobian, and how it will be computed.

    shape       (outputs, inputs), flattened
    pattern     the sparsity as a CSR array of ones; None if it was not searched for or is dense
    cut         the size of the narrowest cut between inputs and outputs
    candidates  everything that was considered, `chosen` among them
    """

    shape: tuple[int, int]
    candidates: list[Candidate]
    chosen: Candidate
    why: str
    pattern: Csr = None
    cut: int | None = None
    equations: int = 0
    chunk: int = 0
    structure: Structure | None = None
    notes: list[str] = field(default_factory=list)
    native: NativePlan | None = None
    code: str = ""  # whether, or when, it is compiled, in words

    @property
    def compressed(self) -> bool:
        return self.chosen.colouring is not None

    def run(self, s: Sweeper) -> Tensor:
        """The matrix (m, n), or the entries of the pattern, by native code where that pays."""
        found = None if self.native is None else self.native.run(s, self)
        return self.chosen.run(s) if found is None else found

    def __str__(self) -> str:
        return _text(self)

    __repr__ = __str__


def _text(plan: Plan) -> str:
    m, n = plan.shape
    lines = [f"Jacobian of {n} inputs and {m} outputs, {plan.equations} equations"]
    if plan.pattern is not None:
        nnz = plan.pattern.nnz
        lines.append(f"  sparsity: {nnz} nonzeros, {nnz / max(m * n, 1):.2%} of the entries")
    lines += [f"  {note}" for note in plan.notes]
    if plan.cut is not None:
        lines.append(f"  narrowest cut: {plan.cut} values")
    lines.append(f"  {'plan':<10}{'forward':>9}{'reverse':>9}{'estimated':>12}{'measured':>12}")
    for c in sorted(plan.candidates, key=lambda c: c.estimate):
        measured = "" if c.measured is None else _seconds(c.measured)
        mark = "  <- chosen" if c is plan.chosen else ""
        lines.append(
            f"  {c.kind:<10}{c.forward:>9}{c.reverse:>9}{_seconds(c.estimate):>12}"
            f"{measured:>12}{mark}"
        )
    lines.append(f"  why: {plan.why}")
    if plan.chunk < plan.chosen.forward + plan.chosen.reverse:
        lines.append(f"  in chunks of {plan.chunk} seeds, to stay within the memory limit")
    lines += [f"  {plan.code}"] if plan.code else []
    return "\n".join(lines)


def _seconds(t: float) -> str:
    return f"{t * 1e6:.0f} µs" if t < 1e-3 else f"{t * 1e3:.2f} ms" if t < 1 else f"{t:.2f} s"


def make_plan(
    s: Sweeper,
    config: SchedulerConfig,
    *,
    kinds: tuple[str, ...] | None = None,
    symmetric: bool = False,
    sparse: bool = False,
    measure: bool = False,
) -> Plan:
    """The plan for a traced function.

    kinds      the kinds of plan to choose from; None: those that the configuration allows
    symmetric  the Jacobian is a Hessian
    sparse     the pattern is needed, whatever is chosen
    measure    time every candidate that is not too slow to be timed
    """
    n, m = s.size(s.trace.inputs), s.size(s.trace.outputs)
    allowed = kinds or config.families(m, n)
    plan = Plan(
        (m, n),
        [],
        None,  # type: ignore[arg-type]  # it is chosen below
        "",
        equations=len(s.equations),
        chunk=s.chunk,
        structure=s.extract_structure(),
    )
    found = [_dense("forward", n, 0), _dense("reverse", 0, m)]
    worth = min(m, n) > _SMALL or kinds is not None
    if sparse or (worth and {"columns", "rows", "both", "star"} & set(allowed)):
        coloured = _compressed_candidates(s, plan, symmetric and _is_gradient(s), allowed)
        limit = max(m, n) if kinds else _WORTH_COMPRESSING * min(m, n)
        found += [c for c in coloured if c.forward + c.reverse <= limit]
    if "mixed" in allowed and worth:
        found += _mixed_candidates(s, plan, kinds)
    found = [c for c in found if c.kind in allowed] or found[:1]
    if not found:
        raise errors.ArgumentError(f"jacobian: none of the plans {allowed} fits this function")
    found = _estimate(s, found)
    found = _time(s, found) if measure else found
    plan.candidates = found
    plan.chosen = min(found, key=lambda c: c.estimate)
    plan.why = _why(plan, config, kinds)
    chosen = plan.chosen
    plan.native = native_of(s, max(chosen.forward, chosen.reverse), chosen.estimate)
    return plan


def _compressed_candidates(s: Sweeper, plan: Plan, symmetric: bool, allowed) -> list[Candidate]:
    """The candidates that use sparsity."""
    m, n = plan.shape
    try:
        pattern = jacobian_pattern(s.trace, s.equations, _WORTH_COMPRESSING)
    except Dense:
        plan.notes.append("sparsity: none worth using")
        return []
    if symmetric:  # a pattern that is wider than necessary may be so on one side only
        pattern = _symmetric(pattern)
    plan.pattern = pattern
    ways: dict[str, Callable] = {"columns": column_colouring, "rows": row_colouring}
    if symmetric:
        ways = {"star": star_colouring, "columns": column_colouring}
    found = []
    for kind, way in ways.items():
        if kind in allowed or (kind == "star" and "columns" in allowed):
            colouring = way(pattern)
            found.append(_coloured_candidate(kind, colouring))
    fewest = min((c.forward + c.reverse for c in found), default=min(m, n))
    if symmetric:
        return [c for c in found if c.kind == "star" or c.forward < found[0].forward]
    if "both" in allowed and not symmetric and fewest > 3:
        colouring = bicolouring(pattern)
        if colouring.count < fewest and colouring.kind == "bicolouring":
            found.append(_coloured_candidate("both", colouring))
    return found


def _is_gradient(s: Sweeper) -> bool:
    """Whether the table's rules alone made a gradient, so that its Jacobian is symmetric.

    A custom operation's rule may be anything: one that clips cotangents is no derivative.
    """
    return not any([e.op.foreign for e in s.trace.equations])


def _symmetric(pattern):
    """A pattern united with its transpose."""
    from scipy.sparse import csr_array

    united = csr_array(pattern + pattern.T)
    united.sum_duplicates()
    united.sort_indices()
    return united


def _mixed_candidates(s: Sweeper, plan: Plan, kinds) -> list[Candidate]:
    """The candidate that cuts the function at its narrowest cut, if that is narrow enough."""
    cut, size = narrowest_cut(s.trace, s.equations)
    plan.cut = size
    if kinds is None and 2 * size > min(plan.shape):
        return []
    return [_dense("mixed", size, size, cut)]


def _estimate(s: Sweeper, found: list[Candidate]) -> list[Candidate]:
    """Each candidate with its cost, from the equations alone: the same choice in every run.

    The constants were measured once: a sweep costs a fixed time for each equation, and each seed
    the memory traffic of its (co)tangents; a reverse sweep half as much again.
    """
    traffic = sum(_traffic(s, e) for e in s.equations)
    m, n = s.size(s.trace.outputs), s.size(s.trace.inputs)

    def swept(count: int, rate: float) -> float:
        chunks = -(-count // s.chunk)
        return chunks * _PER_EQUATION * len(s.equations) + count * traffic * rate

    def cost(c: Candidate) -> float:
        if c.kind == "mixed":  # the cut divides the equations between the modes
            swept_once = (swept(c.forward, _FORWARD) + swept(c.reverse, _REVERSE)) / 2
            return swept_once + m * n * (_WRITE + _PRODUCT * c.forward)
        total = swept(c.forward, _FORWARD) + swept(c.reverse, _REVERSE)
        return total if c.colouring is None else total + c.colouring.gather.size * _GATHER

    return [replace(c, estimate=cost(c)) for c in found]


def _traffic(s: Sweeper, e: Equation) -> float:
    """The elements that one seed moves through an equation."""
    avals = s.trace.avals
    read = sum(prod(avals[i].shape) for i in e.inputs if not isinstance(i, Literal))
    return sum(prod(avals[i].shape) for i in e.outputs) + _OPERANDS * read


def _clock(run: Callable[[], Tensor]) -> float:
    start = perf_counter()
    found = run()
    if found.device.startswith("cuda"):  # whose kernels run on after the call
        found.reshape(-1)[:1].detach().to("cpu")
    return perf_counter() - start


def _time(s: Sweeper, found: list[Candidate]) -> list[Candidate]:
    """The candidates, timed unless they are too slow; the choice does not depend on the times."""
    return [
        replace(c, measured=min(_clock(partial(c.run, s)) for _ in range(3)))
        if c.estimate < _TRIED_SECONDS
        else c
        for c in found
    ]


def _why(plan: Plan, config: SchedulerConfig, kinds) -> str:
    m, n = plan.shape
    if kinds is not None and len(kinds) == 1:
        return "it was asked for"
    ratio = m / max(n, 1)
    if config.strategy is SchedulingStrategy.AUTO:
        if ratio >= config.forward_mode_threshold:
            return f"outputs/inputs = {ratio:.3g} ≥ {config.forward_mode_threshold:g}: forward mode"
        if ratio <= config.reverse_mode_threshold:
            return f"outputs/inputs = {ratio:.3g} ≤ {config.reverse_mode_threshold:g}: reverse mode"
    others = [c.estimate for c in plan.candidates if c is not plan.chosen]
    if not others:
        return "the only plan that is allowed"
    if plan.chosen.estimate == 0:
        return "the fewest sweeps"
    return f"estimated {min(others) / plan.chosen.estimate:.1f} times cheaper than the next one"
