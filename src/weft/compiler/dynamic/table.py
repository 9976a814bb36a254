"""All rules for axes with padding (`rule_of`): imports the modules that register them."""

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
