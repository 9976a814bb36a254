"""Rules for random numbers of a dynamic shape: they equal those of the call's own length."""

from math import prod

import numpy as np

from .lift import Lift, LiftedEquation, Made
from .rules import rule


@rule("draw_uniform", "draw_normal", "draw_integers", "draw_below")
def _draw(lift: Lift, at: LiftedEquation) -> Made:
    """Draw in the order of the call's own elements; padding gets any numbers of the stream."""
    (state,), (_, *how) = at.e.inputs, at.e.static
    if at.small.static[1:] != at.e.static[1:] or at.actual.static[1:] != at.e.static[1:]:
        lift.refuse("draws in another way at other lengths", "draw outside of the function")
    out = at.e.outputs[0]
    shape, spans = lift.aval(out).shape, lift.spans_from_shapes(out)
    if len(lift.aval(state).shape) > 1 or not all([s is None or s.plain for s in spans]):
        lift.refuse(
            "draws numbers of a dynamic length for several streams, or for axes that are joined",
            "draw them with an axis for the length alone",
        )
    if not any(spans[1:]):
        return lift.keep(at, [spans])
    flat = lift.emit(at.e.op, state, (prod(shape),), *how, spans=(None,))
    return [(lift.emit("take", flat, _places(lift, at, shape), 0, spans=spans), spans)]


def _places(lift: Lift, at: LiftedEquation, shape) -> int:
    """The position of each element in the draw of the call's own length; any for padding."""
    own, total = lift.actual.graph.avals[at.e.outputs[0]].shape, None
    for axis, n in enumerate(shape):
        line = np.arange(n).reshape([-1 if a == axis else 1 for a in range(len(shape))])
        step = lift.number(np.asarray(prod(own[axis + 1 :])))
        part = lift.builder.emit("multiply", lift.builder.constant(line), step)
        total = part if total is None else lift.builder.emit("add", total, part)
    assert total is not None
    lift.spans[total] = (None,) * len(shape)
    return total
