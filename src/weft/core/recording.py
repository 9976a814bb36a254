"""Recording an operation: its node, what that saves, and the marks of severed gradients."""

import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from threading import get_ident
from typing import Any, TypeAlias

from . import dtypes
from .backends import BACKENDS, PYTHON_SCALARS
from .derived import first_of
from .node import Leaf, Node, NodeExtra, Severed, ids
from .op import TABLE, Op, Partials, saves
from .origin import INTERNAL, user_frame
from .settings import Settings
from .types import Array, Raw, Static
from .value import TENSORS, wrap

_frame = sys._getframe
# The nodes of an operation's arguments, and the same with marks of severed gradients.
Parents: TypeAlias = tuple[Node | Leaf | None, ...]
Marks: TypeAlias = Sequence[Node | Leaf | Severed | None]
saved_flags: Callable[[Op, tuple[bool, ...]], tuple[bool, ...]] = lru_cache(maxsize=None)(saves)


def record_node(
    op: Op, data: Raw, parents: Parents, saved: tuple[Any, ...], static: Static
) -> Node:
    """The node of an operation that has just computed `data`."""
    n = Node()  # quicker than object.__new__, as the class has no __init__
    n.op = op
    n.parents = parents
    n.saved = saved
    n.static = static
    n.id = next(ids)
    n.shape = data.shape
    n.dtype = data.dtype
    n.thread = get_ident()
    n.extra = None
    f = _frame(2)
    code = f.f_code
    try:
        while INTERNAL[code.co_filename] and f.f_back is not None:
            f = f.f_back
            code = f.f_code
    except KeyError:  # the first frame of a file
        f = user_frame(f)
        code = f.f_code
    n.code = code
    n.lasti = f.f_lasti
    return n


def inexact(raw: Array) -> bool:
    raw = raw._data if raw.__class__ in TENSORS else raw
    if raw.dtype in dtypes.RAW_INEXACT:
        return True
    return dtypes.is_inexact(BACKENDS[raw.__class__].dtype_of(raw))


def track(
    op: Op,
    outs: Sequence[Any],
    parents: Marks,
    raws: Sequence[Raw],
    static: Static,
    settings: Settings,
) -> None:
    """Record an operation; a severed gradient's mark passes to the result, or to its node."""
    live = tuple([None if isinstance(p, Severed) else p for p in parents])
    tracked = [outs[k] for k in op.tracked if inexact(outs[k]._data)]
    if live.count(None) == len(live):
        mark(op, outs, parents)
        return
    if not tracked:
        return
    y = outs[0]._data if op.outputs == 1 else tuple(t._data for t in outs)
    saved = values_to_save(op, live, y, raws, static)
    tracked[0]._node = node = record_node(op, tracked[0]._data, live, saved, static)
    if settings.saved_hooks is not None:
        hook, unpack = settings.saved_hooks
        pack(node, hook, unpack, y)
    elif settings.saving is not None:
        settings.saving.save(node, y, raws, static)
    severed = mark_of(op, parents, tracked[0]._data)
    if severed is not None:
        sever(node, severed)
    if op.outputs > 1:
        _pick_outputs(node, outs, y, op.tracked)


def record_outputs(
    op: Op,
    outs: Sequence[Any],
    parents: Parents,
    raws: Sequence[Raw],
    static: Static,
    tracked: tuple[int, ...],
) -> None:
    """Record `tracked` ones of an operation's several outputs; none of its arguments is severed.

    Where it is the first one only, it is recorded as if there were no others.
    """
    for k in tracked:
        z = outs[k]._data
        if z.dtype in dtypes.RAW_INEXACT:
            y = tuple([t._data for t in outs])
            saved = values_to_save(op, parents, y, raws, static)
            if tracked == (0,) and TABLE.get(op.name) is op:
                outs[0]._node = record_node(first_of(op), z, parents, saved, static)
            else:
                _pick_outputs(record_node(op, z, parents, saved, static), outs, y, tracked)
            return


def _pick_outputs(
    node: Node, outs: Sequence[Any], y: tuple[Raw, ...], tracked: tuple[int, ...]
) -> None:
    """Give tracked outputs nodes of their own, which lead to the operation's."""
    node.shape = tuple([tuple(r.shape) for r in y])
    node.dtype = tuple([r.dtype for r in y])
    op = _picker(node.op)
    for k in tracked:
        outs[k]._node = _pick(op, node, k)


def values_to_save(
    op: Op, parents: Parents, y: Any, raws: Sequence[Raw], static: Static
) -> tuple[Any, ...]:
    """The values that a node saves: (y, *args) with None for those unread, or `keep`'s tuple."""
    rule = op.rule
    keep = getattr(rule, "keep", None)
    if keep is not None:
        return keep(y, *raws, *static)
    saved: list[Any] = [None] * (len(parents) + 1)
    every = None not in parents and op.arity is not None
    for i in _places(op, None if every else tuple([p is not None for p in parents])):
        if i:
            saved[i] = raws[i - 1]
        else:
            unread = getattr(rule, "unread", ())
            saved[0] = tuple([None if k in unread else v for k, v in enumerate(y)]) if unread else y
    return tuple(saved)


@lru_cache(maxsize=None)
def _places(op: Op, tracked: tuple[bool, ...] | None) -> tuple[int, ...]:
    """Which of (y, *args) are saved when these arguments are tracked; None: all of them."""
    flags = (True,) * (op.arity or 0) if tracked is None else tracked
    return tuple([i for i, f in enumerate(saves(op, flags)) if f])


def mark(op: Op, outs: Sequence[Any], parents: Marks) -> None:
    """Pass the marks of severed gradients to results that are not recorded."""
    for k in op.tracked:
        if inexact(outs[k]._data):
            outs[k]._node = mark_of(op, parents, outs[k]._data)


def mark_of(op: Op, parents: Marks, z: Raw) -> Severed | None:
    """The mark of a result: that of its arguments, without those whose derivative is zero."""
    found = None
    for i, p in enumerate(parents):
        if isinstance(p, Severed) and not _is_flat(op, i, z):
            found = p if found is None else found.merge(p)
    return found


def _is_flat(op: Op, i: int, z) -> bool:
    """Whether the derivative by an argument is zero everywhere."""
    if isinstance(op.rule, Partials):
        d = op.rule.d[i]
        return d.__class__ is int and d == 0
    return op.name == "sign" and not dtypes.is_complex(BACKENDS[z.__class__].dtype_of(z))


def sever(node: Node, mark: Severed) -> None:
    """Mark a node whose arguments include a severed gradient, beside those that are recorded."""
    node.extra = node.extra or NodeExtra()
    node.extra.severed = mark


def _picking(xp, outputs, k: int):
    return outputs[k]


@lru_cache(maxsize=None)
def _picker(op: Op) -> Op:
    """The operation that picks one output of another one, under that one's name."""
    return Op(name=op.name, compute=_picking, shape=lambda *_: None, rule=None, arity=1)


def is_pick(op: Op) -> bool:
    """Whether a node's operation picks one of several outputs."""
    return op.compute is _picking


def pick(whole: Node, k: int) -> Node:
    """The node of output k of an operation with several outputs."""
    return _pick(_picker(whole.op), whole, k)


def _pick(op: Op, whole: Node, k: int) -> Node:
    n = Node()
    n.op = op
    n.parents = (whole,)
    n.saved = ()
    n.static = (k,)
    n.id = next(ids)
    n.thread = whole.thread
    n.extra = None
    n.shape = whole.shape[k]
    n.dtype = whole.dtype[k]
    n.code = whole.code
    n.lasti = whole.lasti
    return n


def pack(
    node: Node, hook: Callable[[Any], Any], unpack: Callable[[Any], Any], y: Any = None
) -> None:
    """Replace a node's saved values by what the pack hook returns for them.

    Our own hooks have a method for a node as a whole, which gets the operation's results, too.
    """
    node.extra = NodeExtra()
    node.extra.unpack = unpack
    pack_node = getattr(hook, "pack_node", None)
    if pack_node is not None:
        node.saved = pack_node(node, y)
    else:
        node.saved = tuple(_pack(hook, s) for s in node.saved or ())


def _pack(hook, value):
    if type(value) is tuple:
        return tuple(_pack(hook, v) for v in value)
    if value is None or type(value) in PYTHON_SCALARS:
        return value
    return Packed(hook(wrap(value)))


class Packed:
    """What the user's pack hook returned for a saved value."""

    __slots__ = ("handle",)

    def __init__(self, handle: Any):
        self.handle: Any = handle
