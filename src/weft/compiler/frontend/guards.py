"""What a program is built on: what Python decided while it was written, and must decide again."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...core.node import Leaf, Node, Severed

Hook = Callable[[Any], Any]  # on a gradient: another one, or None


@dataclass(frozen=True)
class Guard:
    """A decision of Python's that a program is built on."""

    label: str
    decide: Callable[[], Any]
    value: Any

    def matches(self) -> bool:
        """Whether Python would decide alike now; what it decides on was prepared before."""
        return self.decide() == self.value

    def describe_change(self) -> str:
        """How Python decides otherwise now."""
        return f"{self.label}: was {_describe(self.value)}, is {_describe(self.decide())}"

    def __str__(self) -> str:
        return f"{self.label}: {_describe(self.value)}"


def _describe(value) -> str:
    """A value in words: of a list of equal ones, one."""
    if isinstance(value, list) and value and all([v == value[0] for v in value]):
        return repr(value[0])
    return repr(value)


@dataclass(frozen=True)
class LeafState:
    """Whether a leaf has a gradient, and which hooks, as attributes."""

    leaf: Callable[[], Leaf]

    @property
    def gradient(self) -> bool:
        return self.leaf().held is not None

    @property
    def hooks(self) -> list[Hook]:
        return hooks_of(self.leaf())


def hooks_of(node: Leaf | Node | Severed | None) -> list[Hook]:
    """The hooks on a leaf's gradient; of what is no leaf none."""
    extra = node.extra if isinstance(node, Leaf) else None
    return [] if extra is None else list(extra.hooks.values())


class FixedAttributes:
    """Attributes that must stay what they are: one guard for all that have one description."""

    def __init__(self):
        self.where: list[tuple[Any, str]] = []

    def __call__(self) -> list[Any]:
        return [getattr(owner, name) for owner, name in self.where]
