"""All rules for axes with padding: the modules that enter them, and how one is found."""

from . import draws, loops, moments, moves, products
from .rules import RULES, rule_of

__all__ = ["RULES", "draws", "loops", "moments", "moves", "products", "rule_of"]
