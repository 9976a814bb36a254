"""Solutions of equations, differentiated without unrolling their solver."""

from .transform.solve.implicit import argmin, fixed_point, root

__all__ = ["argmin", "fixed_point", "root"]


def __dir__() -> list[str]:
    return list(__all__)
