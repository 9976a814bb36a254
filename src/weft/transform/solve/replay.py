"""Pure programs: the equations of a trace without its values, to be replayed on others."""

from typing import Any

from ...arrays.tensor import Tensor
from ...core.call import caller
from ...core.record import record
from ...core.recording import inexact
from ...graph.graph import Equation, Literal
from ...graph.symbol import Trace
from ..modes.dual import to_tensor
from ..modes.trace import Traced, passes_on


@record
class PureProgram:
    """A function's equations as a pure function of all that they depend on.

    inputs  the indices of its arguments: the function's own, then all values that it captured

    No array is part of a program, so two traces of one function give equal programs.
    """

    inputs: tuple[int, ...]
    equations: tuple[Equation, ...]
    outputs: tuple[int, ...]

    def __call__(self, *values: Any) -> list[Any]:
        known = dict(zip(self.inputs, values, strict=True))
        for e in self.equations:
            operands = [i.value if i.__class__ is Literal else known[i] for i in e.inputs]
            z = e.op.call(caller(e.op), operands, e.static)
            known.update(zip(e.outputs, (z,) if e.op.outputs == 1 else z, strict=True))
        return [known[i] for i in self.outputs]


def close_trace(traced: Traced, here_only: bool = False) -> tuple[PureProgram, list[Tensor]]:
    """The program of a trace, and the values that it captured.

    here_only  the program will be replayed at the traced point only, for its derivatives: values
               without one (stopped, an index, a mask) are then captured instead of recomputed
    """
    trace = traced.trace
    carries = _carrying(trace) if here_only else None
    wanted, chosen = set(trace.outputs), []
    for e in reversed(trace.equations):
        if wanted.isdisjoint(e.outputs) or (carries is not None and carries.isdisjoint(e.outputs)):
            continue
        chosen.append(e)
        wanted.update([i for i in e.inputs if i.__class__ is not Literal])
    made = {i for e in chosen for i in e.outputs}
    found = sorted(wanted - made - set(trace.inputs))
    program = PureProgram((*trace.inputs, *found), tuple(reversed(chosen)), tuple(trace.outputs))
    return program, [to_tensor(trace.values[i]) for i in found]


def _carrying(trace: Trace) -> set[int]:
    """The values that carry a derivative with respect to the inputs or a constant."""
    reached = set(trace.inputs) | {i for i, v in trace.constants.items() if inexact(v)}
    for e in trace.equations:
        moving = [i.__class__ is not Literal and i in reached for i in e.inputs]
        if passes_on(e, moving):
            reached.update([e.outputs[k] for k in e.op.tracked])
    return reached
