"""Inspecting recorded graphs: what they save, where they were recorded, why a path is broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from threading import get_ident
from typing import TYPE_CHECKING, Any

from ...core.aval import Shape
from ...core.backends import BACKENDS, PYTHON_SCALARS
from ...core.node import Node, Severed
from ...core.objects import live_objects
from ...core.op import Partials
from ...core.record import field, record
from ...core.recording import Packed, is_pick
from ...core.types import Raw
from ...core.value import TENSORS
from .paths import freed_error

if TYPE_CHECKING:
    from ...arrays.tensor import Tensor


@record
class MemoryStats:
    """What live graphs save for their backward passes, each piece of memory counted once."""

    tensors: int = 0
    bytes: int = 0
    by_op: dict[str, int] = field(default_factory=dict)
    by_line: dict[str, int] = field(default_factory=dict)

    @property
    def saved_memory_mb(self) -> float:
        """The bytes in MiB."""
        return self.bytes / 2**20


def _live_nodes() -> list[Node]:
    """Every live recorded node, from the garbage collector: there is no list of them."""
    return live_objects((Node,))


def arrays_in(saved: tuple[Any, ...] | None) -> Iterator[Raw]:
    """The raw arrays in what a node saved."""
    for value in saved or ():
        if type(value) is tuple:
            yield from arrays_in(value)
        elif isinstance(value, Packed):
            yield from arrays_in((getattr(value.handle, "_data", None),))
        elif value is not None and type(value) not in PYTHON_SCALARS:
            yield value._data if type(value) in TENSORS else value  # one from a level below


def memory_stats() -> MemoryStats:
    """The values that live graphs have saved: how many, how many bytes, by op and by line.

    >>> import weft as wf
    >>> x = wf.ones(1000, requires_grad=True)
    >>> y = wf.exp(x)
    >>> wf.memory_stats().by_op["exp"]
    4000
    """
    seen, by_op, by_line = set(), Counter(), Counter()
    for node in sorted(_live_nodes(), key=lambda n: -n.id):
        for raw in arrays_in(node.saved):
            xp = BACKENDS[type(raw)]
            if xp.owner(raw) not in seen:
                seen.add(xp.owner(raw))
                by_op[node.name] += xp.nbytes(raw)
                by_line[node.line] += xp.nbytes(raw)
    return MemoryStats(len(seen), sum(by_op.values()), dict(by_op), dict(by_line))


def clear_tape() -> None:
    """Drop what the live graphs of this thread have saved.

    >>> import weft as wf
    >>> y = wf.exp(wf.ones(1000, requires_grad=True))
    >>> wf.clear_tape()
    >>> wf.memory_stats().bytes
    0
    """
    me = get_ident()
    for node in _live_nodes():
        if node.thread == me:
            node.free()


@record
class Entry:
    """One recorded operation, as `graph_of` lists it."""

    op: str
    inputs: tuple[int | None, ...]
    output: int
    saved: tuple[Shape, ...]
    line: str


def graph_of(loss: Tensor) -> list[Entry]:
    """The recorded operations behind a tensor, oldest first.

    loss  a tensor

    >>> import weft as wf
    >>> x = wf.tensor([1.0], requires_grad=True)
    >>> [e.op for e in wf.graph_of((x * x).sum())]
    ['multiply', 'sum']
    """
    nodes = sorted((n for n in _ancestors(loss) if n.__class__ is Node), key=lambda n: -n.id)
    return [
        Entry(
            n.name,
            tuple(None if p is None else -p.id for p in n.parents or ()),
            -n.id,
            tuple(tuple(a.shape) for a in arrays_in(n.saved)),
            n.line,
        )
        for n in nodes
        if not is_pick(n.op)
    ]


def _ancestors(x) -> set:
    seen = set()
    stack = [x._node]
    while stack:
        node = stack.pop()
        if node is None or node.__class__ is Severed or node in seen:
            continue
        seen.add(node)
        if node.__class__ is Node:
            stack.extend(node.parents or ())
    return seen


def explain_grad(loss: Tensor, x: Tensor) -> str:
    """Where the path from `loss` back to `x` runs, or where and why it is broken.

    loss  a tensor
    x     what it is, or should be, computed from

    >>> import weft as wf
    >>> x = wf.tensor([1.0], requires_grad=True)
    >>> print(wf.explain_grad((x.detach() * 2).sum(), x))
    nothing was recorded for the loss: ...
    """
    broken = _why_unrecorded(loss, x)
    if broken:
        return broken
    nodes = _ancestors(loss)
    gone = next((n for n in nodes if n.__class__ is Node and n.parents is None), None)
    if gone is not None:
        return str(freed_error(gone))
    if x._node not in nodes:
        return _why_disconnected(nodes)
    return _path(loss, x)


def _why_unrecorded(loss, x) -> str:
    if x._node is None or x._node.__class__ is Severed:
        return (
            "x does not require a gradient: make it with requires_grad=True (or tape.watch(x)) "
            "before it is used"
        )
    if loss._node.__class__ is Severed:
        return (
            f"the loss was computed from a gradient made at {loss._node.line} without its graph; "
            f"{loss._node.remedy}"
        )
    if loss._node is None:
        return (
            "nothing was recorded for the loss: it was computed under no_grad(), from detached "
            "values, from integers, or from tensors that do not require a gradient"
        )
    return ""


def _why_disconnected(nodes: set) -> str:
    """The text for an x that is not among the ancestors: where the graph reads constants."""
    ends = [
        f"  {n.name} (at {n.line}) took argument {i} as a constant"
        for n in sorted((n for n in nodes if n.__class__ is Node), key=lambda n: n.id)
        for i, p in enumerate(n.parents)
        if p is None
    ]
    shown = "\n".join(ends[:20]) or "  (no operation took in a constant)"
    return (
        "the loss does not depend on x in what was recorded. x was detached, converted, used "
        "under no_grad(), or not used; the recorded graph takes in unrecorded values at:\n" + shown
    )


def _path(loss, x) -> str:
    """A shortest recorded path, with the operations whose derivative is zero marked."""
    came = {loss._node: None}
    queue = [loss._node]
    for node in queue:
        if node is x._node:
            break
        for p in node.parents if node.__class__ is Node else ():
            if p is not None and p not in came:
                came[p] = node
                queue.append(p)
    path, node = [], came.get(x._node, loss._node if loss._node is x._node else None)
    while node is not None:
        path.append(node)
        node = came[node]
    lines = [f"  {n.name} (at {n.line}){_flat(n)}" for n in path if not is_pick(n.op)]
    return "the loss depends on x through:\n" + "\n".join(lines)


def _flat(node: Node) -> str:
    rule = node.op.rule
    if rule is None:
        return ": has no derivative"
    if isinstance(rule, Partials) and all(d.__class__ is int and d == 0 for d in rule.d):
        return ": piecewise constant, its derivative is 0 everywhere"
    return ""
