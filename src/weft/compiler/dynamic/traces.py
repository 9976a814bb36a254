"""A function traced at several lengths: what depends on the length."""

from typing import Any, NamedTuple

from ...core.record import field, record
from ...graph.graph import Graph, Literal


class Differs(Exception):
    """The function does something else at another length; the message says what."""


@record(frozen=False)
class Varying:
    """The constants and literals that depend on the length, and so become inputs."""

    literals: set[tuple[int, int]] = field(default_factory=set)  # (equation, operand)
    constants: set[int] = field(default_factory=set)
    # Those in loops and branches, by the equation's outputs and the name of the body.
    inside: dict[tuple[tuple[int, ...], str], "Varying"] = field(default_factory=dict)


class LengthTrace(NamedTuple):
    """The graph of a function traced at one length."""

    length: int
    graph: Graph


def check_alike(one: Graph, other: Graph) -> None:
    """Raise `Differs` unless two graphs have the same equations, up to shapes and numbers."""
    for a, b in zip(one.equations, other.equations, strict=False):
        if a.op is not b.op or a.outputs != b.outputs:
            raise Differs(f"{a.op.name} at {a.line} in place of {b.op.name} at {b.line}")
        if [_wire(x) for x in a.inputs] != [_wire(x) for x in b.inputs]:
            raise Differs(f"{a.op.name} at {a.line} takes other operands")
    if len(one.equations) != len(other.equations):
        raise Differs(f"{len(one.equations)} operations in place of {len(other.equations)}")
    same = one.inputs == other.inputs and one.outputs == other.outputs
    same = same and len(one.avals) == len(other.avals)
    if not same or one.constants.keys() != other.constants.keys():
        raise Differs("other tensors are read or made")
    for i, (a, b) in enumerate(zip(one.avals, other.avals, strict=True)):
        if a.dtype != b.dtype or len(a.shape) != len(b.shape):
            raise Differs(f"value {i} is {a.dtype}{list(a.shape)}, not {b.dtype}{list(b.shape)}")


def _wire(x) -> Any:
    return x.value.__class__ if x.__class__ is Literal else x
