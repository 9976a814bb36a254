"""Graph: a program as typed equations, each value assigned once."""

from os import PathLike
from typing import Any, NamedTuple

from ..core.aval import Aval
from ..core.exact import exact
from ..core.op import Op
from ..core.origin import Origin, line_of
from ..core.record import field, record
from ..core.types import Static


class Equation(NamedTuple):
    """outputs = op(*inputs, *static); inputs and outputs are indices of values.

    A Python scalar among the inputs stands for itself, as a `Literal`.
    """

    op: Op
    inputs: tuple[Any, ...]  # int | Literal
    static: Static
    outputs: tuple[int, ...]
    origin: Origin

    @property
    def line(self) -> str:
        """The user's file and line of the call."""
        return line_of(*self.origin)


@record(eq=False, slots=True)
class Literal:
    """A Python scalar in the place of an operand.

    Literals are equal if type and bits are: 1, 1.0 and True are three, 0.0 and -0.0 two.
    """

    value: Any

    def __eq__(self, other: Any) -> bool:
        return other.__class__ is Literal and exact(self.value) == exact(other.value)

    def __hash__(self) -> int:
        return hash(exact(self.value))


@record(frozen=False)
class Graph:
    """A program: inputs, constants, the equations in order, outputs.

    avals      the type of each value, by index
    inputs     the indices of the arguments
    constants  the values that were not computed from the arguments, by index
    """

    avals: list[Aval] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    constants: dict[int, Any] = field(default_factory=dict)
    equations: list[Equation] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)

    def new(self, aval: Aval) -> int:
        """The index of a new value."""
        self.avals.append(aval)
        return len(self.avals) - 1

    def draw(self, path: str | PathLike[str] | None = None, format: str = "svg") -> str:
        """A picture of the program, with a box for the equations of each of the user's lines.

        path    a file to write it to as well; its suffix may give the format
        format  "svg", or "dot" for Graphviz
        """
        from .picture import draw, picture_of

        return draw(picture_of(self), path, format)

    def __str__(self) -> str:
        return text(self)


def text(graph: Graph) -> str:
    """The program in readable lines."""

    def typed(i: int) -> str:
        a = graph.avals[i]
        return f"v{i}:{a.dtype}[{','.join(map(str, a.shape))}]"

    def shown(i) -> str:
        return repr(i.value) if isinstance(i, Literal) else f"v{i}"

    lines = [f"inputs  {' '.join(map(typed, graph.inputs))}"]
    lines += [f"const   {typed(i)}" for i in graph.constants]
    for e in graph.equations:
        operands = ", ".join([*map(shown, e.inputs), *map(repr, e.static)])
        lines.append(f"{', '.join(map(typed, e.outputs))} = {e.op.name}({operands})")
        bodies = [g for s in e.static for g in getattr(s, "graphs", ())]
        lines += ["    " + line for body in bodies for line in text(body).split("\n")]
    lines.append(f"outputs {' '.join(map(shown, graph.outputs))}")
    return "\n".join(lines)
