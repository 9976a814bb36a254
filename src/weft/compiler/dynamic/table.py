"""All rules for axes with padding: the modules that enter them, and how one is found."""

from . import draws, indices, loops, moments, moves, products, slices
from .rules import RULES, rule_of

__all__ = [
    "RULES",
    "draws",
    "indices",
    "loops",
    "moments",
    "moves",
    "products",
    "rule_of",
    "slices",
]
