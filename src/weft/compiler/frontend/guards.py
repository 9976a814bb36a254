"""Guards: decisions of Python code during the trace that must come out the same at each call."""

from collections.abc import Callable
from typing import Any

from ...core.node import Leaf, Node, Severed
from ...core.record import record

Hook = Callable[[Any], Any]  # from a gradient to another one, or None


@record
class Guard:
    """A decision during the trace that a variant depends on: `decide()` gave `value`."""

    label: str
    decide: Callable[[], Any]
    value: Any

    def matches(self) -> bool:
        """Whether the decision is the same now; `Variant.prepare` has read what it compares."""
        return self.decide() == self.value

    def describe_change(self) -> str:
        """A text for how the decision differs now."""
        return f"{self.label}: was {_describe(self.value)}, is {_describe(self.decide())}"

    def __str__(self) -> str:
        return f"{self.label}: {_describe(self.value)}"


def _describe(value) -> str:
    """A text for a value: of a list of equal values, one."""
    if isinstance(value, list) and value and all([v == value[0] for v in value]):
        return repr(value[0])
    return repr(value)


@record
class LeafState:
    """A leaf's state as attributes: whether it has a gradient, and its hooks."""

    leaf: Callable[[], Leaf]

    @property
    def gradient(self) -> bool:
        return self.leaf().held is not None

    @property
    def hooks(self) -> list[Hook]:
        return hooks_of(self.leaf())


def hooks_of(node: Leaf | Node | Severed | None) -> list[Hook]:
    """The hooks on a leaf's gradient; none for any other node."""
    extra = node.extra if isinstance(node, Leaf) else None
    return [] if extra is None else list(extra.hooks.values())


class FixedAttributes:
    """Attributes that must not change: one guard for all with the same label."""

    def __init__(self):
        self.where: list[tuple[Any, str]] = []

    def __call__(self) -> list[Any]:
        return [getattr(owner, name) for owner, name in self.where]
