"""Operations derived from the table's rows: a first result alone, casts of arguments included."""

from typing import Any

from .backends import BACKENDS
from .node import Leaf, Node, NodeExtra, ids
from .op import DERIVED, Op
from .types import Raw

_FIRST: dict[Op, Op] = {}
_WHOLE: dict[Op, Op] = {}
_CASTING: dict[Op, Op] = {}
_UNCAST: dict[Op, Op] = {}


def first_of(op: Op) -> Op:
    """A row of the table with the first one of several outputs only, under the same name."""
    return _FIRST.get(op) or _derive(op, _FIRST, _WHOLE)


def whole_of(op: Op) -> Op | None:
    """The operation of which this one has the first output only; None if it is no such one."""
    return _WHOLE.get(op)


def casting(op: Op) -> Op:
    """A row of the table that casts its arguments first, under the same name."""
    return _CASTING.get(op) or _derive(op, _CASTING, _UNCAST)


def uncast(op: Op) -> Op | None:
    """The row that this one casts arguments for; None if it is no such one."""
    return _UNCAST.get(op)


def _derive(op: Op, made: dict[Op, Op], back: dict[Op, Op]) -> Op:
    """A new operation, known by its row and back; of two threads' the first one."""
    new = Op(name=op.name, compute=op.compute, shape=op.shape, rule=op.rule, arity=op.arity)
    back[new] = op
    DERIVED.add(new)
    return made.setdefault(op, new)


def cast_at(node: Node, cast: Op, value: Raw, parent: Node | Leaf) -> Node:
    """The node of a cast that is part of another node: of the value it saved, from a parent."""
    n = Node()
    n.op, n.parents, n.saved, n.id = cast, (parent,), (None, None), next(ids)
    n.static = (BACKENDS[value.__class__].dtype_of(value),)
    n.shape, n.dtype = value.shape, value.dtype
    n.thread, n.extra, n.code, n.lasti = node.thread, None, node.code, node.lasti
    return n


def with_all_outputs(node: Node, op: Op, saved: tuple[Any, ...]) -> Node:
    """A node of a first output as one of all outputs, to differentiate by those it saved.

    saved  what it saved, unpacked

    Of outputs that it did not save nobody asks, so their shapes are left open.
    """
    n = Node()
    others = saved[0][1:]
    n.op, n.parents, n.saved, n.static, n.id = op, node.parents, saved, node.static, next(ids)
    n.shape = node.shape, *[None if r is None else tuple(r.shape) for r in others]
    n.dtype = node.dtype, *[None if r is None else r.dtype for r in others]
    n.thread, n.extra, n.code, n.lasti = node.thread, None, node.code, node.lasti
    extra = node.extra
    if extra is not None:
        n.extra = NodeExtra()
        n.extra.limit = extra.limit
        # A checkpoint that is replayed fills the places of the nodes that it recorded itself.
        if extra.unpack is not None and not getattr(extra.unpack, "replays", False):
            n.saved, n.extra.unpack = node.saved, extra.unpack
    return n
