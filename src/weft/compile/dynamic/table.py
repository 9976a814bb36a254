"""All rules for axes with padding: the modules that enter them, and how one is found."""

from . import loops, moves, products
from .rules import RULES, rule_of

__all__ = ["RULES", "loops", "moves", "products", "rule_of"]
