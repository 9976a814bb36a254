"""`scan` in a function that is being compiled: one equation, and the rules of its derivatives.

A backward pass goes through the steps in reverse order and rematerialises each from the carries
that it began with; a pass of the compiler then saves expensive values in the forward loop instead.
The rules return loops again, written with the body as a function: so one rule for each mode serves
every order of derivative and any nesting.
"""

from collections.abc import Callable

from ...arrays.make import zeros
from ...arrays.manipulation import moveaxis
from ...arrays.tensor import Tensor
from ...core import dtypes
from ...core.aval import Aval
from ...core.op import Jvp
from ...core.value import as_seen_by_trace
from ...graph.structured import BodyTrace, Loop, replay_body
from ..modes.dual import unwrap_if_plain
from ..modes.functional import vjp
from .bodies import (
    apply_structure,
    kind_of,
    mapped_body,
    narrow_tangent,
    push_body,
    reached_outputs,
    settle_batched,
    spread_out,
    substitute,
    tensors,
    trace_body,
    unwrap_like,
    zeros_of,
)
from .body_draws import BodyDraws, draws_along

Values = list[Tensor]
Step = Callable[[Values, Values], tuple[Values, Values]]  # (carry, x) to (carry, y)


def scan(f: Step, carry: Values, xs: Values, length: int, reverse: bool) -> tuple[Values, Values]:
    """carry, y = f(carry, x) as one equation: the last carries, and the ys stacked."""
    n, count = len(carry), len(carry) + len(xs)

    def step(given: Values) -> Values:
        after, ys = f(given[:n], given[n:count])
        return [*after, *ys, *given[:n]]

    slices = [Aval(x.shape[1:], x.dtype, x.device) for x in xs]
    outside, drawn = draws_along(length, reverse), []

    def draws(inner: BodyTrace) -> BodyDraws:
        drawn.append(BodyDraws(inner, outside))
        return drawn[0]

    inner = trace_body(step, [*map(kind_of, carry), *slices], draws=draws)
    if not inner.graph.inputs:  # the same at each step: an operand shows which trace it is in
        inner.of(as_seen_by_trace(zeros(())))
    states = drawn[0]
    rest = [i for i in inner.graph.inputs[count:] if i not in states.inputs]
    inner.graph.inputs = [*inner.graph.inputs[:count], *states.inputs, *rest]
    xs = [*xs, *states.arrays]
    loop = Loop(inner.graph, n, len(xs), length, reverse, saved=n)
    out = apply_structure(loop, [*carry, *xs, *inner.captured_tensors()], _SCAN)
    return list(out[:n]), list(out[n : len(out) - n])


def _pull_scan(g, y, *args):
    """The steps in reverse order, each pulled back at the carry that it began with."""
    *args, loop = args
    gs = tensors(g if isinstance(g, list) else [g])
    saved = (y if isinstance(y, tuple) else (y,))[len(gs) - loop.saved :]
    carries, xs, constants = (tensors(v) for v in (saved, *loop.parts(args)[1:]))

    def wanted(asked: list[bool]) -> list:
        made = _pull_steps(loop, gs, carries, xs, constants, asked)
        return unwrap_like(made, [*(g if isinstance(g, list) else [g]), *args])

    return wanted


_pull_scan.on_demand = True  # type: ignore[attr-defined]


def _pull_steps(loop: Loop, gs: list, carries, xs, constants, asked: list[bool]) -> list:
    body, n = loop.body, loop.carries
    kinds = [body.avals[i] for i in body.inputs]
    moving = [dtypes.is_inexact(a.dtype) for a in kinds]
    state = [k for k in range(n) if moving[k]]
    along = [k for k in range(n, n + loop.xs) if moving[k] and asked[k]]
    fixed = [k for k in range(n + loop.xs, len(kinds)) if moving[k] and asked[k]]
    picked = [*state, *along, *fixed]
    given = [k for k in range(n, len(gs)) if gs[k] is not None]

    def back(cotangents: list, slices: list) -> tuple[list, list]:
        here = [*slices[: n + loop.xs], *constants]

        def forward(*moved):
            out = replay_body(body, substitute(here, picked, moved))
            return tuple([out[k] for k in (*state, *given)])

        _, pull = vjp(forward, *[here[k] for k in picked])
        seeds = (*cotangents[: len(state)], *slices[n + loop.xs :])
        found = pull(seeds)
        n_state, n_here = len(state), len(state) + len(along)
        sums = zip(cotangents[n_state:], found[n_here:], strict=True)
        return [*found[:n_state], *[a + b for a, b in sums]], list(found[n_state:n_here])

    start = [zeros_of(kinds[k]) if gs[k] is None else gs[k] for k in state]
    start += [zeros_of(kinds[k]) for k in fixed]
    after, ys = scan(
        back, start, [*carries, *xs, *[gs[k] for k in given]], loop.length, not loop.reverse
    )
    found = dict(zip([*state, *fixed], after, strict=True)) | dict(zip(along, ys, strict=True))
    return [found.get(k) for k in range(len(kinds))]


def _push_scan(tangents, y, *args):
    """The steps, with the tangents of carries and xs as further carries and xs."""
    *args, loop = args
    n, m = loop.carries, loop.carries + loop.xs
    kinds = [loop.body.avals[i] for i in loop.body.inputs]
    values = tensors(args)
    moved = [narrow_tangent(x, a.dtype) for x, a in zip(tensors(tangents), kinds, strict=True)]
    state = [k for k in range(n) if dtypes.is_inexact(kinds[k].dtype)]
    along = [k for k in range(n, m) if moved[k] is not None]
    fixed = [k for k in range(m, len(kinds)) if moved[k] is not None]
    out = [loop.body.avals[i] for i in loop.body.outputs]
    made = [k for k, a in enumerate(out) if dtypes.is_inexact(a.dtype)]

    def ahead(carry: list, slices: list) -> tuple[list, list]:
        here = [*carry[:n], *slices[: loop.xs], *values[m:]]
        given = [*carry[n:], *slices[loop.xs :], *[moved[k] for k in fixed]]
        ys, ds = push_body(loop.body, here, [*state, *along, *fixed], given, made)
        ahead_of = dict(zip(made, ds, strict=True))
        return (
            [*ys[:n], *[ahead_of[k] for k in state]],
            [ahead_of[k] for k in made if k >= n],
        )

    start = [zeros_of(kinds[k]) if moved[k] is None else moved[k] for k in state]
    xs = [*values[n:m], *[moved[k] for k in along]]
    after, ds = scan(ahead, [*values[:n], *start], xs, loop.length, loop.reverse)
    found = dict(zip(state, after[n:], strict=True))
    found |= dict(zip([k for k in made if k >= n], ds, strict=True))
    results = unwrap_like([found.get(k) for k in range(len(out))], [*args, *tangents])
    return tuple(results) if len(results) > 1 else results[0]


def _batch_scan(call, size, mapped, args, static):
    """The loop over a batch: the body is mapped over the inputs that differ over the batch."""
    (loop,) = static
    n, m = loop.carries, loop.carries + loop.xs
    values, inputs = tensors(args), settle_batched(loop.body, list(mapped), n)
    carry = spread_out(values[:n], inputs, mapped, size)
    xs = [moveaxis(x, 1, 0) if on else x for x, on in zip(values[n:m], inputs[n:m], strict=True)]
    outputs = [*inputs[:n], *reached_outputs(loop.body, inputs)[n:]]
    over = mapped_body(loop.body, inputs, outputs)

    def step(carry: list, slices: list) -> tuple[list, list]:
        out = over([*carry, *slices, *values[m:]])
        return out[:n], out[n:]

    after, ys = scan(step, carry, xs, loop.length, loop.reverse)
    ys = [moveaxis(y, 0, 1) if on else y for y, on in zip(ys, outputs[n:], strict=True)]
    made = [
        unwrap_if_plain(y) for y in spread_out([*after, *ys], [True] * len(outputs), outputs, size)
    ]
    return tuple(made) if len(made) > 1 else made[0]


_SCAN = (Jvp(_push_scan, _pull_scan), _batch_scan)
