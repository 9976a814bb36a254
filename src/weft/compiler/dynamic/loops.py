"""Rules for loops and branches: their bodies are lifted, too."""

from dataclasses import replace

from ...core.aval import Aval
from ...core.dtypes import bool_
from ...graph.graph import Equation, Graph
from ...graph.structured import Loop, Structured, row
from ..passes.rewriting import Operand
from .lift import Lift, Lifted, LiftedEquation, Made
from .rules import MASK, rule_of, structure_rule
from .spans import Spans, is_ragged
from .traces import LengthTrace, Varying


def _inside(lift: Lift, at: LiftedEquation, name: str, stepped: bool = False) -> Lift:
    """The lift of a body.

    stepped  whether some of its steps are padding; the body then gets a flag
    """
    graphs = [getattr(e.static[0], name) for e in (at.small, at.e, at.actual)]
    lengths = [t.length for t in (lift.small, lift.large, lift.actual)]
    varying = lift.varying.inside.setdefault((at.e.outputs, name), Varying())
    traced = [LengthTrace(n, g) for n, g in zip(lengths, graphs, strict=True)]
    made = Lift(lift.name, traced, varying)
    made.padding = stepped or lift.padding
    if stepped:
        made.step = made.graph.new(Aval((), bool_))
        made.spans[made.step] = ()
    return made


def _outside(lift: Lift, lifted: Lifted) -> list[int]:
    """The operands for the inputs of a body that depend on the length."""
    return [lift.number(x, s) for x, s in zip(lifted.numbers, lifted.added, strict=True)]


def _emit_structure(
    lift: Lift,
    at: LiftedEquation,
    structure: Structured,
    operands: list[Operand],
    spans: list[Spans],
) -> Made:
    """Emit the equation with another structure."""
    op = at.e.op
    kind, rules = type(structure), (op.rule, op.batch)
    op = row(kind, len(operands), op.outputs, op.tracked, rules)  # type: ignore[arg-type]
    e = Equation(op, tuple(operands), (structure,), at.e.outputs, at.e.origin)
    lift.builder.append(e)
    return list(zip(e.outputs, spans, strict=True))


@structure_rule("cond")
def _cond(lift: Lift, at: LiftedEquation) -> Made:
    """Both branches get the length-dependent inputs of either."""
    flag, *operands = at.e.inputs
    if is_ragged(lift.of(flag)):
        lift.refuse("branches by an array of dynamic length", "use wf.where")
    given = [lift.of(x) for x in operands]
    yes, no = (_inside(lift, at, name).run(given, rule_of) for name in ("yes", "no"))
    if yes.outputs != no.outputs:
        lift.refuse("has results whose padding lies in other places in its two branches", MASK)
    own = [g.graph.inputs[len(operands) :] for g in (yes, no)]
    more = [*_outside(lift, yes), *_outside(lift, no)]
    for graph, other, k in ((yes.graph, no.graph, 1), (no.graph, yes.graph, 0)):
        unread = [graph.new(other.avals[i]) for i in own[k]]
        mine = graph.inputs[len(operands) :]
        graph.inputs[len(operands) :] = [*mine, *unread] if k else [*unread, *mine]
    branch = replace(at.e.static[0], yes=yes.graph, no=no.graph)
    return _emit_structure(lift, at, branch, [flag, *operands, *more], yes.outputs)


@structure_rule("while")
def _while(lift: Lift, at: LiftedEquation) -> Made:
    operands, loop = at.e.inputs, at.e.static[0]
    if lift.padding or any([is_ragged(lift.of(x)) for x in operands]):
        lift.refuse(
            "ends when its values say so, and padding among them could keep it from that",
            "loop over values of fixed length, with wf.scan along the dynamic axis",
        )
    given = [lift.of(x) for x in operands]
    test, body = (_inside(lift, at, name).run(given, rule_of) for name in ("test", "body"))
    if test.numbers or body.numbers:
        lift.refuse("computes with a number that depends on the length", "pass valid.sum() to it")
    made = replace(loop, test=test.graph, body=body.graph)
    fixed: list[Spans] = [(None,) * lift.aval(i).ndim for i in at.e.outputs]
    return _emit_structure(lift, at, made, list(operands), fixed)


@structure_rule("scan")
def _scan(lift: Lift, at: LiftedEquation) -> Made:
    """A loop along the dynamic axis does not change its carries in steps that are padding."""
    loops = [e.static[0] for e in (at.small, at.e, at.actual)]
    large: Loop = loops[1]
    span = lift.between(loops[0].length, large.length)
    if span is not None and loops[2].length != span.size(lift.actual.length):
        lift.refuse(f"has {loops[2].length} steps at length {lift.actual.length}", MASK)
    carries, xs, constants = large.parts(list(at.e.inputs))
    given = [lift.of(x) for x in carries]
    given += [lift.of(x)[1:] for x in xs] + [lift.of(x) for x in constants]
    inside = _inside(lift, at, "body", stepped=span is not None)
    body = inside.run(given, rule_of)
    if body.outputs[: large.carries] != given[: large.carries]:
        lift.refuse("has carries whose padding lies in other places after a step", MASK)
    flags = []
    if span is not None:
        xs = [lift.mask_padding(x, 0, [0]) for x in xs]
        flags = [lift.valid(span)]
        _keep_carries(inside, body.graph, large)
    more = _outside(lift, body)
    made = replace(large, body=body.graph, xs=large.xs + len(flags))
    operands = [*carries, *xs, *flags, *constants, *more]
    stacked = [(span, *s) for s in body.outputs[large.carries :]]
    return _emit_structure(lift, at, made, operands, [*body.outputs[: large.carries], *stacked])


def _keep_carries(inside: Lift, body: Graph, loop: Loop) -> None:
    """Let steps that are padding return their carries unchanged."""
    step, end = inside.step, loop.carries + loop.xs
    assert step is not None
    body.inputs.insert(end, step)
    for k in range(loop.carries):
        before, after = body.inputs[k], body.outputs[k]
        if before != after:
            body.outputs[k] = inside.builder.emit("where", step, after, before)
