"""Severed gradients among the arguments: the leaves that their marks concern at each call."""

from typing import TYPE_CHECKING

from ...arrays.tensor import Tensor
from ...core.node import Leaf, Node, Severed, with_leaves
from ...core.record import record
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


@record
class CallMark:
    """The mark of a traced value, made anew for each call.

    mark      as the trace has it
    elsewhere  what the gradient was computed from outside of the arguments; None: anything
    arguments  the positions of the arguments that it was computed from
    """

    mark: Severed
    elsewhere: tuple[int, ...] | None
    arguments: tuple[int, ...]

    def __call__(self, call: Call) -> Severed:
        """The mark, by the call's own leaves, joined with the marks of its arguments."""
        mark, of = self.mark, self.elsewhere
        if of is not None:
            behind = [with_leaves(call.tensors[k]._node) for k in self.arguments]
            of = {*of, *[-node.id for nodes in behind for node in nodes]}
        given = [call.tensors[ask.position]._node for ask in mark.asks]
        given = [m for m in given if m.__class__ is Severed]
        if mark.of == () and given:
            found, *given = given
        else:
            found = Severed(mark.origin, of, mark.remedy)
        for other in given:
            found = found.merge(other)
        return found


def at_calls(capture: "Capture", mark: Severed) -> Severed | CallMark:
    """A traced value's mark, or what makes it if it depends on the arguments of a call."""
    places = {-leaf.id: k for leaf, k in capture.leaves.items()}
    own = mark.of or ()
    arguments = tuple([places[k] for k in own if k in places])
    if not (arguments or mark.asks):
        return mark
    elsewhere = None if mark.of is None else tuple([k for k in own if k not in places])
    return CallMark(mark, elsewhere, arguments)


def mark_of(made: Severed | CallMark | None, call: Call) -> Severed | None:
    """The mark for a call."""
    return made(call) if made.__class__ is CallMark else made  # type: ignore[return-value]


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
