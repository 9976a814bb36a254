"""Severed gradients among the arguments: the leaves that their marks concern at each call."""

from typing import TYPE_CHECKING

from ...arrays.tensor import Tensor
from ...core.node import Leaf, Node, Severed
from ...core.record import record
from ...core.recording import sever
from .inputs import Call

if TYPE_CHECKING:
    from .capture import Capture


@record
class SeveredQuery:
    """Whether a severed gradient, an argument of each call, depends on a leaf."""

    capture: "Capture"
    position: int

    def __call__(self, goal: Leaf | Node) -> bool:
        """Whether it depends on a leaf of the program, with a guard for the answer."""
        find, position, now = self.capture.leaf_finder(goal), self.position, self.capture.now  # type: ignore[arg-type]  # a node finds itself

        def depends() -> bool:
            mark = now.call.tensors[position]._node
            return mark.__class__ is Severed and mark.concerns(find(now.call))

        return self.capture.depends(
            f"whether argument {position}, a gradient, depends on leaf {-goal.id}", depends
        )


def mark_argument(capture: "Capture", position: int, mark: Severed) -> Severed:
    """The mark of an argument during the trace."""
    return Severed(mark.origin, (), mark.remedy, (SeveredQuery(capture, position),))


def at_call(mark: Severed, call: Call) -> Severed | None:
    """The mark of a traced value, joined with the marks of the call's arguments."""
    given = [call.tensors[ask.position]._node for ask in mark.asks]
    given = [m for m in given if m.__class__ is Severed]
    if mark.of == () and given:
        found, *given = given
    else:
        found = Severed(mark.origin, mark.of, mark.remedy)
    for other in given:
        found = found.merge(other)
    return found


def marks_behind(results: list[Tensor]) -> Severed | None:
    """The joined marks of the severed gradients that the recorded results depend on."""
    found, seen, waiting = None, set(), [x._node for x in results]
    while waiting:
        node = waiting.pop()
        if node.__class__ is not Node or node in seen:
            continue
        seen.add(node)
        mark = None if node.extra is None else node.extra.severed
        if mark is not None:
            found = mark if found is None else found.merge(mark)
        waiting += [p for p in node.parents or () if p is not None]
    return found


def sever_at_call(node: Node, mark: Severed, call: Call) -> None:
    """Mark the node of a call with the severed gradients that its results depend on."""
    found = at_call(mark, call)
    if found is not None:
        sever(node, found)
