"""`cond` in a function that is being compiled: one equation, and the rules of its derivatives."""

from collections.abc import Callable
from typing import Any

from ...arrays.tensor import Tensor
from ...core.op import Jvp
from ...core.recording import inexact
from ...core.settings import current
from ...core.value import TENSORS
from ...graph.graph import Graph
from ...graph.structured import BodyTrace, Branch, replay_body
from ...ops.elementwise import where
from ..modes.dual import unwrap_if_plain
from ..modes.functional import vjp
from ..modes.vmap import vmap
from .bodies import (
    apply_structure,
    floats,
    join_captured,
    mapped_body,
    push_body,
    substitute,
    tensors,
    trace_body,
    unwrap_like,
)
from .body_draws import streams


def cond(
    taken: Tensor, yes: Callable[[], list[Tensor]], no: Callable[[], list[Tensor]]
) -> list[Tensor]:
    """The results of one of two functions, as one equation; both return the same types."""
    outside = current.get().draws
    drawn: list[Any] = []

    def draws(inner: BodyTrace):
        drawn.append(streams(inner.of))
        return drawn[-1]

    def body(f: Callable[[], list[Tensor]]) -> Callable[[Any], list[Tensor]]:
        return lambda _: f()

    inners = [trace_body(body(f), [], branch=True, draws=draws) for f in (yes, no)]
    moved = [g for g, _, _ in ({**drawn[0].begun, **drawn[1].begun}).values()]
    for inner, there in zip(inners, drawn, strict=True):
        inner.graph.outputs += [inner.of(there.state(g))._data.index for g in moved]
    captured = join_captured(inners, 0)
    branch = Branch(inners[0].graph, inners[1].graph)
    out = list(apply_structure(branch, [taken, *captured], _COND))
    count = len(out) - len(moved)
    for g, state in zip(moved, out[count:], strict=True):
        outside.move(g, state)
    return out[:count]


def _pull_cond(g, y, *args):
    """The pull-back of the branch that was taken."""
    *args, branch = args
    gs = tensors(g if isinstance(g, list) else [g])
    taken, *values = tensors(args)
    given = [k for k, h in enumerate(gs) if h is not None]

    def wanted(asked: list[bool]) -> list:
        picked = [k for k in floats(values) if asked[k + 1]]

        def back(graph: Graph) -> list:
            def forward(*moved):
                out = replay_body(graph, substitute(values, picked, moved))
                return tuple([out[k] for k in given])

            _, pull = vjp(forward, *[values[k] for k in picked])
            return list(pull(tuple([gs[k] for k in given])))

        made = cond(taken, lambda: back(branch.yes), lambda: back(branch.no))
        found = dict(zip(picked, made, strict=True))
        whole = [None, *[found.get(k) for k in range(len(values))]]
        return unwrap_like(whole, [*(g if isinstance(g, list) else [g]), *args])

    return wanted


_pull_cond.on_demand = True  # type: ignore[attr-defined]


def _push_cond(tangents, y, *args):
    *args, branch = args
    taken, *values = tensors(args)
    moved = tensors(tangents)[1:]
    picked = [k for k, t in enumerate(moved) if t is not None]
    made = floats([branch.yes.avals[i] for i in branch.yes.outputs])

    def ahead(graph: Graph) -> list:
        return list(push_body(graph, values, picked, [moved[k] for k in picked], made)[1])

    out = cond(taken, lambda: ahead(branch.yes), lambda: ahead(branch.no))
    found = dict(zip(made, out, strict=True))
    results = [found.get(k) for k in range(len(branch.yes.outputs))]
    results = unwrap_like(results, [*args, *tangents])
    return tuple(results) if len(results) > 1 else results[0]


def _batch_cond(call, size, mapped, args, static):
    """One branch for the whole batch; both, if the predicate differs over the batch."""
    (branch,) = static
    taken, *values = tensors(args)
    every = [True] * len(branch.yes.outputs)
    if mapped[0]:
        axes = tuple([0 if on else None for on in mapped])
        made = vmap(lambda p, *xs: tuple(choose_elements(p, branch, list(xs))), axes)(
            taken, *values
        )
    else:
        over = [mapped_body(g, mapped[1:], every) for g in branch.graphs]
        made = cond(taken, lambda: over[0](values), lambda: over[1](values))
    made = [unwrap_if_plain(y) for y in made]
    return tuple(made) if len(made) > 1 else made[0]


def choose_elements(taken: Tensor, branch: Branch, values: list[Tensor]) -> list[Tensor]:
    """Run both branches, and select for each element the result of its own.

    Where a branch is not taken no cotangent passes back through its operands: it would be zero,
    but products in the branch may turn it into NaN.
    """
    yes = replay_body(branch.yes, where_taken(taken, values))
    no = replay_body(branch.no, where_taken(~taken, values))
    return [where(taken, a, b) for a, b in zip(yes, no, strict=True)]


def where_taken(taken: Tensor | bool, leaves: list[Any]) -> list[Any]:
    """The same values; cotangents pass back through them only where `taken` is true."""
    return [
        where(taken, x, x.detach()) if x.__class__ in TENSORS and inexact(x) else x for x in leaves
    ]


_COND = (Jvp(_push_cond, _pull_cond), _batch_cond)
