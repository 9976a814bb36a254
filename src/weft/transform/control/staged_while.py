"""`while_loop` in a function that is being compiled, and the rules of its derivatives."""

from collections.abc import Callable
from typing import Any

from ... import errors
from ...arrays.tensor import Tensor
from ...core.op import Jvp
from ...core.settings import current
from ...core.value import wrap
from ...graph.graph import Graph
from ...graph.structured import BodyTrace, Repeat, replay_body
from ...ops.batching import spread
from ...ops.elementwise import where
from ...ops.reduce import any_
from ..modes.dual import to_tensor, unwrap_if_plain
from ..modes.functional import vjp
from ..modes.vmap import vmap
from .bodies import (
    apply_structure,
    floats,
    join_captured,
    kind_of,
    mapped_body,
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
from .body_draws import streams
from .staged_cond import cond, where_taken
from .staged_scan import Values, scan


def while_loop(
    test: Callable[[Values], Any],
    body: Callable[[Values], Values],
    carry: Values,
    most: int | None,
) -> tuple[Values, Tensor]:
    """carry = body(carry) while test(carry), as one equation: the last carry, and whether it ended.

    It has not ended if the test still holds after `most` steps.
    """
    kinds, n, drawn = [kind_of(x) for x in carry], len(carry), []
    outside = current.get().draws

    def draws(inner: BodyTrace):
        drawn.append(streams(lambda state: wrap(inner.input(inner.tag, kind_of(state)))))
        return drawn[0]

    inners = [trace_body(lambda c: [test(c)], kinds), trace_body(body, kinds, draws=draws)]
    begun = list(drawn[0].begun.values())
    _carry_streams(inners[0].graph, inners[1].graph, n, drawn[0], begun)
    captured = join_captured(inners, n + len(begun))
    repeat = Repeat(inners[0].graph, inners[1].graph, n + len(begun), most)
    *after, ended = apply_structure(repeat, [*carry, *[s for _, s, _ in begun], *captured], _WHILE)
    for (g, _, _), state in zip(begun, after[n:], strict=True):
        outside.move(g, state)
    return after[:n], ended


def _carry_streams(test: Graph, body: Graph, n: int, drawn, begun: list) -> None:
    """Random streams that the body draws from as further carries, after the first n."""
    given = [inside._data.index for _, _, inside in begun]
    rest = [i for i in body.inputs[n:] if i not in given]
    body.inputs = [*body.inputs[:n], *given, *rest]
    body.outputs += [drawn.state(g)._data.index for g, _, _ in begun]
    test.inputs[n:n] = [test.new(kind_of(state)) for _, state, _ in begun]


def _pull_while(g, y, *args):
    """The pull-back of a scan of `most` steps, each of which is taken or not."""
    *args, repeat = args
    if repeat.most is None:
        raise errors.NotDifferentiable(
            "while_loop: in a compiled function a backward pass must know how many steps there may "
            "be; give max_steps, or use wf.scan with a fixed number of steps"
        )
    gs = tensors(g if isinstance(g, list) else [g])
    values, n = tensors(args), repeat.carries
    given = [k for k in range(n) if gs[k] is not None]

    def wanted(asked: list[bool]) -> list:
        picked = [k for k in floats(values) if asked[k]]

        def forward(*moved):
            whole = substitute(values, picked, moved)
            after = _run_steps(repeat, whole[:n], whole[n:])
            return tuple([after[k] for k in given])

        _, pull = vjp(forward, *[values[k] for k in picked])
        found = dict(zip(picked, pull(tuple([gs[k] for k in given])), strict=True))
        whole = [found.get(k) for k in range(len(values))]
        return unwrap_like(whole, [*(g if isinstance(g, list) else [g]), *args])

    return wanted


_pull_while.on_demand = True  # type: ignore[attr-defined]


def _run_steps(repeat: Repeat, carry: list, constants: list) -> list:
    """The last carry, by a loop of a known length."""

    def step(carry: list, _: list) -> tuple[list, list]:
        going = replay_body(repeat.test, [*carry, *constants])[0]
        return cond(
            going, lambda: replay_body(repeat.body, [*carry, *constants]), lambda: carry
        ), []

    assert repeat.most is not None
    return scan(step, carry, [], repeat.most, False)[0]


def _push_while(tangents, y, *args):
    *args, repeat = args
    values, moved, n = tensors(args), tensors(tangents), repeat.carries
    state = floats(values[:n])
    fixed = [k for k in range(n, len(values)) if moved[k] is not None]

    def ahead(carry: list) -> list:
        here = [*carry[:n], *values[n:]]
        given = [*carry[n:], *[moved[k] for k in fixed]]
        ys, ds = push_body(repeat.body, here, [*state, *fixed], given, state)
        return [*ys, *ds]

    def test(carry: list):
        return replay_body(repeat.test, [*carry[:n], *values[n:]])[0]

    start = [zeros_of(kind_of(values[k])) if moved[k] is None else moved[k] for k in state]
    after, _ = while_loop(test, ahead, [*values[:n], *start], repeat.most)
    found = dict(zip(state, after[n:], strict=True))
    return tuple(unwrap_like([found.get(k) for k in range(n + 1)], [*args, *tangents]))


def _batch_while(call, size, mapped, args, static):
    """The loop until the test fails for the whole batch; finished elements keep their carry."""
    (repeat,) = static
    values, n = tensors(args), repeat.carries
    inputs = settle_batched(repeat.body, list(mapped), n)
    while (differs := reached_outputs(repeat.test, inputs)[0]) and not all(inputs[:n]):
        inputs = [*[True] * n, *inputs[n:]]
    carry = spread_out(values[:n], inputs, mapped, size)
    test = mapped_body(repeat.test, inputs, [differs])
    body = mapped_body(repeat.body, inputs, inputs[:n])

    def going(carry: list):
        return test([*carry, *values[n:]])[0]

    def step(carry: list) -> list:
        if not differs:
            return body([*carry, *values[n:]])
        on = going(carry)

        def one(p, *xs):
            out = replay_body(repeat.body, where_taken(p, list(xs)))
            return tuple([where(p, a, b) for a, b in zip(out, xs, strict=False)])

        axes = (0, *[0 if mark else None for mark in inputs])
        return list(vmap(one, axes)(on, *carry, *values[n:]))

    def any_going(carry: list):
        on = going(carry)
        return any_(on, (0,), False) if differs else on

    after, ended = while_loop(any_going, step, carry, repeat.most)
    made = [
        *spread_out(after, [True] * n, inputs, size),
        to_tensor(spread(unwrap_if_plain(ended), size)),
    ]
    return tuple([unwrap_if_plain(x) for x in made])


_WHILE = (Jvp(_push_while, _pull_while), _batch_while)
