"""Solutions of equations, differentiated without unrolling their solver."""

from .transform.implicit import argmin, fixed_point, root

__all__ = ["argmin", "fixed_point", "root"]
