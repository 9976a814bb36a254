"""`loss.backward()`, hooks on gradients, and contexts that switch recording."""

from __future__ import annotations

from itertools import count
from threading import RLock
from typing import TYPE_CHECKING, Any

from ... import errors
from ...core import dtypes
from ...core.backends import BACKENDS
from ...core.box import BOXES, nodes_below
from ...core.dispatch import above
from ...core.node import Leaf, Node, NodeExtra, Severed
from ...core.origin import origin
from ...core.settings import SettingsBlock, current, override_settings, traced
from ...core.value import TENSORS, wrap
from .gradient_map import GradientMap
from .paths import not_recorded_error
from .reverse import sweep
from .watch import WATCHERS, begin_watch

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from ...arrays.tensor import Tensor
    from ...arrays.types import ArrayLike
    from ...core.types import Array


_new = object.__new__
_handles = count()
_REMEDY = "pass create_graph=True to that backward()"
_accumulating = RLock()  # threads that share a leaf add to one `.grad`


def backward(
    self: Tensor,
    grad: ArrayLike | None = None,
    retain_graph: bool = False,
    create_graph: bool = False,
) -> GradientMap:
    """The gradients of this tensor with respect to the leaves it was computed from.

    grad          the cotangent to start with; needed unless the tensor has one element
    retain_graph  keep the graph for another backward pass
    create_graph  record this pass too, so that the gradients can be differentiated

    Returns a `GradientMap` of this call's gradients; the leaves' `.grad` accumulates them.

    >>> import weft as wf
    >>> x = wf.tensor(3.0, requires_grad=True)
    >>> (x**2 + 2 * x + 1).backward()[x].item()
    8.0
    """
    node = self._node
    if node is None or node.__class__ is Severed:
        raise no_graph_error(self)
    seed = seed_for(self, grad)
    start = {node: seed if create_graph else seed._data}
    retain = retain_graph or create_graph
    if WATCHERS:
        reached = _watched_sweep(start, create_graph, retain)
    else:
        reached = sweep(start, record=create_graph, retain=retain, on_node=_visit_recorded)
    return _deliver(reached, seed, create_graph)


def _watched_sweep(start: dict, record: bool, retain: bool) -> dict:
    """The sweep, in which those take part who watch leaves of it."""
    ((node, seed),) = start.items()
    watch = begin_watch(node, record or seed.__class__ in BOXES, _visit_recorded)
    try:
        return sweep(start, record=record, retain=retain, on_node=_visit_recorded, watch=watch)
    except BaseException as e:
        if watch is not None:
            watch.abort(e)
        raise


def _visit_recorded(node, g):
    """`visit` in a pass to all leaves; refuses a node that was computed from a severed gradient."""
    if node.extra.severed is not None:
        raise not_recorded_error(node.extra.severed, node)
    return visit(node, g)


def no_graph_error(x: Tensor) -> errors.GradientError:
    """The error that says why x cannot be differentiated."""
    if x._node.__class__ is Severed:
        return not_recorded_error(x._node)
    if not dtypes.is_inexact(x.dtype):
        return errors.NotDifferentiable(
            f"backward(): a tensor of dtype {x.dtype} has no derivative; compute the loss in "
            f"floating point"
        )
    if nodes_below(x):
        return errors.NoGraph(
            "backward(): inside vmap or jvp, and what requires a gradient is none of the "
            "function's arguments; use wf.grad there, with that tensor as an argument"
        )
    return errors.NoGraph(
        "backward(): nothing was recorded for this tensor: no input of its computation requires "
        "a gradient, or it was computed under no_grad() or detached; give an input "
        "requires_grad=True"
    )


def seed_for(x: Tensor, grad: Any) -> Tensor:
    """The starting cotangent as a tensor like x."""
    if grad.__class__ in TENSORS:
        grad = traced(grad)
        a, b = grad._data, x._data
        if a.__class__ is b.__class__ and a.shape == b.shape and a.dtype is b.dtype:
            if a.device == b.device:
                return grad
    if grad is None:
        if x.size != 1:
            raise errors.NonScalarBackward(
                f"backward() of a tensor of shape {x.shape} needs a starting gradient of that "
                f"shape: reduce it first (x.sum()) or pass grad="
            )
        xp = BACKENDS[type(x._data)]
        return wrap(xp.full(x.shape, 1, x.dtype, x.device))
    if type(grad) not in TENSORS:
        raise errors.DTypeError(
            f"backward(grad=…): expected a tensor, got {type(grad).__name__}; "
            f"wf.tensor(…) makes one"
        )
    if grad.shape != x.shape:
        raise errors.ShapeError(
            f"backward(grad=…): shape {grad.shape} for a tensor of shape {x.shape}"
        )
    if grad.device != x.device:
        raise errors.DeviceError(
            f"backward(grad=…): on {grad.device!r}, the tensor on {x.device!r}"
        )
    return grad if grad.dtype == x.dtype else grad.to(x.dtype)


def _deliver(reached: dict, seed, create_graph: bool) -> GradientMap:
    """Make the gradient map, and add the same gradients to the leaves' `.grad`."""
    call = origin()
    mark = None if create_graph else Severed(call, (), _REMEDY)
    xp = BACKENDS[seed._data.__class__]
    seeded = xp.owner(seed._data)
    staging = current.get().staging
    grads = {}
    with _accumulating:
        for leaf, g in reached.items():
            if g.__class__ in TENSORS and not create_graph:  # a function around this records it
                grads[-leaf.id] = g
                if leaf.requested:
                    leaf.add(g)
                continue
            raw = g._data if create_graph else g
            # The map and `.grad` share frozen memory: a writer must copy. The seed's is the user's.
            own = BACKENDS[raw.__class__]
            raw = raw if raw.__class__ is own.array_type else own.whole(raw)
            # On another backend it is unknown whether the seed's memory is shared.
            shared = own is not xp or own.owner(raw) == seeded
            raw = own.freeze(own.copy(raw) if shared else raw)
            made = g._node if create_graph else mark
            grads[-leaf.id] = wrap(raw, made)
            if leaf.requested:
                owner = leaf.tensor and leaf.tensor()
                if staging is None and owner is not None and owner._grad is None:
                    owner._grad = wrap(raw, made)
                else:
                    leaf.add(wrap(raw, made))
            elif staging is not None:
                staging.check_unrequested_leaf(leaf)
    if mark is not None:
        mark.of = tuple(grads)
    return GradientMap(grads, call)


def visit(node: Any, g: Array) -> Array:
    """Run a node's gradient hooks, and store its gradient if it has `retain_grad`.

    Other paths may share the memory of g: hooks get it frozen; what they return and what is
    retained is copied. If no hook changes g, the same object is returned.
    """
    if not (node.extra.hooks or node.extra.retains):
        return g
    raw = type(g) not in TENSORS
    t = wrap(BACKENDS[type(g)].frozen_view(g), _severed_at(node)) if raw else g
    given = t._data
    for hook in list(node.extra.hooks.values()):
        changed_to = hook(t)
        if changed_to is not None and changed_to is not t:
            t = _copy(traced(_check_cotangent(node, changed_to)))
    if node.extra.retains:
        kept = node.extra.grad
        node.extra.grad = _copy(t) if kept is None else kept + t
    if t._data is given:
        return g
    return t._data if raw else wrap(t._data, t._node)


def _severed_at(node) -> Severed:
    """The mark of the gradients that hooks get in a pass that is not recorded."""
    made = origin() if node.__class__ is Leaf else (node.code, node.lasti)
    return Severed(made, None, "record that pass, by create_graph=True or a persistent tape")


def _copy(t):
    """The same value on the same node in memory of its own."""
    return wrap(BACKENDS[type(t._data)].copy(t._data), t._node)


def _check_cotangent(node, g):
    if type(g) not in TENSORS or g.shape != tuple(node.shape):
        got = getattr(g, "shape", type(g).__name__)
        raise errors.ShapeError(
            f"a gradient hook on {node.name} returned {got}, expected a tensor of shape "
            f"{tuple(node.shape)}"
        )
    expected = dtypes.canonical(node.dtype)
    if g.dtype != expected:
        raise errors.DTypeError(
            f"a gradient hook on {node.name} returned {g.dtype} on {g.device!r}, expected "
            f"{expected}; convert it with .to()"
        )
    return g


above.visit = visit


class HookHandle:
    """Takes a hook away again."""

    def __init__(self, hooks: dict[Any, Any], key: int):
        self._hooks, self._key = hooks, key

    def remove(self) -> None:
        self._hooks.pop(self._key, None)


def register_hook(self: Tensor, hook: Callable[[Tensor], Tensor | None]) -> HookHandle:
    """Call `hook(gradient)` when this tensor's gradient is known; it may return another one.

    hook  gradient -> another gradient, or None to leave it

    The handle's `remove()` ends it.

    >>> import weft as wf
    >>> x = wf.tensor([1.0], requires_grad=True)
    >>> handle = x.register_hook(lambda g: g * 10.0)
    >>> (x * 2.0).sum().backward()[x].tolist()
    [20.0]
    """
    extra = _extra_of(self, "register_hook")
    key = next(_handles)
    extra.hooks[key] = hook
    return HookHandle(extra.hooks, key)


def retain_grad(self: Tensor) -> None:
    """Keep the gradient of this intermediate value in `.grad`.

    >>> import weft as wf
    >>> x = wf.tensor([3.0], requires_grad=True)
    >>> y = x * 2.0
    >>> y.retain_grad()
    >>> grads = (y * y).sum().backward()
    >>> y.grad.tolist()
    [12.0]
    """
    if self._node.__class__ is not Leaf:
        _extra_of(self, "retain_grad").retains = True


def _extra_of(x, what: str) -> NodeExtra:
    node = x._node
    if node.__class__ is not Leaf and node.__class__ is not Node:
        raise errors.NoGraph(
            f"{what}(): this tensor does not require a gradient; call it on one that does "
        )
    if node.extra is None:
        node.extra = NodeExtra()
    return node.extra


def no_grad() -> SettingsBlock:
    """A block (or decorated function) in which nothing is recorded.

    >>> import weft as wf
    >>> x = wf.tensor([1.0], requires_grad=True)
    >>> with wf.no_grad():
    ...     (x * 2.0).requires_grad
    False
    """
    return SettingsBlock(grad=False)


def enable_grad() -> SettingsBlock:
    """A block inside `no_grad()` in which operations are recorded again.

    >>> import weft as wf
    >>> x = wf.tensor([1.0], requires_grad=True)
    >>> with wf.no_grad(), wf.enable_grad():
    ...     (x * 2.0).requires_grad
    True
    """
    return SettingsBlock(grad=True)


def is_grad_enabled() -> bool:
    """Whether operations on tracked tensors are being recorded.

    >>> import weft as wf
    >>> with wf.no_grad():
    ...     wf.is_grad_enabled()
    False
    """
    return current.get().grad


def detect_anomaly() -> AbstractContextManager[Any]:
    """A block that stops at the first NaN or infinity, in the forward or backward pass.

    >>> import weft as wf
    >>> with wf.detect_anomaly():
    ...     wf.tensor(float("inf")) + 1
    Traceback (most recent call last):
    ...
    weft.errors.AnomalyError: add made the first NaN or infinity of the forward pass (at ...)
    """
    return override_settings(anomaly=True)


def saved_tensors_hooks(
    pack: Callable[[Tensor], Any], unpack: Callable[[Any], Tensor]
) -> AbstractContextManager[Any]:
    """A block in which what is saved for backward goes through `pack`, and back by `unpack`.

    pack    tensor -> whatever is kept in its place
    unpack  what `pack` gave -> the tensor

    >>> import weft as wf
    >>> x = wf.tensor([3.0], requires_grad=True)
    >>> with wf.saved_tensors_hooks(lambda t: t.tolist(), lambda kept: wf.tensor(kept)):
    ...     y = (x * x).sum()
    >>> y.backward()[x].tolist()
    [6.0]
    """
    return override_settings(saved_hooks=(pack, unpack))
