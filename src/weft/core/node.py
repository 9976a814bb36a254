"""The recorded graph's nodes: owned by the tensors they made, pointing to their parents."""

from collections.abc import Callable, Collection, Iterator
from itertools import count
from types import CodeType
from typing import Any
from weakref import ref

from .aval import Shape
from .op import Op
from .origin import Origin, line_of
from .settings import current
from .types import Array, Static

# Decreasing, so that a heap hands out the newest node first.
ids: Iterator[int] = count(-1, -1)


class Node:
    """One recorded operation: what its pull-back needs, and where it was called."""

    __slots__ = (
        "__weakref__",
        "code",
        "dtype",
        "extra",
        "id",
        "lasti",
        "op",
        "parents",
        "saved",
        "shape",
        "static",
        "thread",
    )

    op: Op
    parents: Any  # a tuple; None after the graph was freed
    saved: Any
    static: Static
    id: int
    shape: Any  # of an operation with several outputs: a tuple of shapes
    dtype: Any
    thread: int
    extra: "NodeExtra | None"
    code: CodeType
    lasti: int

    @property
    def line(self) -> str:
        """The user's file and line of the forward call."""
        return line_of(self.code, self.lasti)

    @property
    def name(self) -> str:
        return self.op.name

    def free(self) -> None:
        """Drop the saved values and the parents; a second backward pass then raises."""
        self.parents = self.saved = None


class NodeExtra:
    """State that few nodes have: gradient hooks, a retained gradient, an unpack hook.

    `severed` is the mark of arguments that were computed from a gradient without its graph, `limit`
    the budget of bytes that the node was recorded under.
    """

    __slots__ = ("grad", "hooks", "limit", "retains", "severed", "unpack")

    def __init__(self):
        self.hooks: dict[int, Callable[[Any], Any]] = {}
        self.retains: bool = False
        self.grad: Any = None
        self.severed: Severed | None = None
        self.unpack: Any = None
        self.limit: Any = None


class Leaf:
    """Where differentiation ends: the identity of a tensor that requires a gradient."""

    __slots__ = (
        "__weakref__",
        "dtype",
        "extra",
        "id",
        "kept",
        "requested",
        "shape",
        "tensor",
        "watchers",
    )

    name = "leaf"
    kept: Any

    def __init__(self, shape: Shape, dtype: Any, tensor: ref[Any] | None, requested: bool):
        self.id: int = next(ids)
        self.shape: Shape = shape
        self.dtype: Any = dtype
        self.tensor: Any = tensor  # weak reference, or None: the tensor owns the leaf
        self.kept = None
        self.extra: NodeExtra | None = None
        self.requested: bool = requested  # by requires_grad, not only by a tape's watch
        self.watchers: tuple[Any, ...] = ()

    @property
    def grad(self) -> Any:
        """The accumulated gradient.

        It is stored on the tensor, not here: a recorded gradient's graph leads to this leaf, and
        reference counting alone would never free that cycle. It is stored here only after the
        tensor has died.
        """
        staging = current.get().staging
        return self.held if staging is None else staging.gradient(self)

    @grad.setter
    def grad(self, gradient: Array | None) -> None:
        staging = current.get().staging
        if staging is None:
            self.held = gradient
        else:
            staging.set_gradient(self, gradient)

    @property
    def held(self) -> Any:
        """The gradient that the tensor has now, whatever a running trace assigns to it."""
        owner = self.tensor and self.tensor()
        return self.kept if owner is None else owner._grad

    @held.setter
    def held(self, gradient: Array | None) -> None:
        owner = self.tensor and self.tensor()
        if owner is None:
            self.kept = gradient
        else:
            owner._grad = gradient

    def add(self, gradient: Array) -> None:
        """Accumulate a gradient."""
        staging = current.get().staging
        if staging is not None:
            have = staging.gradient(self)
            staging.set_gradient(self, gradient if have is None else have + gradient)
            return
        owner = self.tensor and self.tensor()
        if owner is None:
            self.kept = gradient if self.kept is None else self.kept + gradient
        else:
            have = owner._grad
            owner._grad = gradient if have is None else have + gradient


class Severed:
    """Marks values computed from a gradient that was made without its graph.

    of      what the gradient was computed from: negated ids of leaves and nodes; None: anything
    remedy  how to get the gradient with its graph, for the error message
    asks    in a compiled function: (node) -> bool for each such gradient among a call's arguments
    """

    __slots__ = ("__weakref__", "asks", "id", "of", "origin", "remedy")
    asks: tuple[Any, ...]
    id: int
    of: Collection[int] | None
    origin: Origin
    remedy: str

    def __init__(
        self, origin: Origin, of: Collection[int] | None, remedy: str, asks: tuple[Any, ...] = ()
    ):
        self.id = next(ids)
        self.origin, self.of, self.remedy, self.asks = origin, of, remedy, asks

    @property
    def line(self) -> str:
        """Where the gradient was computed."""
        return line_of(*self.origin)

    def concerns(self, goal: "Leaf | Node") -> bool:
        """Whether the gradient may depend on a leaf or a node."""
        if goal.id < self.id:  # recorded later
            return False
        if self.of is None or any(-n.id in self.of for n in with_leaves(goal)):
            return True
        return any([ask(goal) for ask in self.asks])

    def merge(self, other: "Severed") -> "Severed":
        """The mark of a value that was computed from both gradients."""
        if other is self:
            return self
        of = None if self.of is None or other.of is None else {*self.of, *other.of}
        return Severed(self.origin, of, self.remedy, (*self.asks, *other.asks))


def with_leaves(goal: "Leaf | Node") -> list["Leaf | Node"]:
    """A node and the leaves that it was computed from."""
    found, waiting, seen = [goal], [goal], set()
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, Leaf):
            found.append(node)
        else:
            waiting += [p for p in node.parents or () if p is not None]
    return found
