"""Rows whose operands are checked beforehand, by a guard."""

from dataclasses import replace
from functools import lru_cache

from ...core.op import TABLE, Op
from ...graph.guard import WITHIN

__all__ = ["WITHIN", "checked_row"]


@lru_cache(maxsize=None)
def checked_row(row: str) -> Op:
    """A row whose indices passed a guard: only this variant lowers to native code."""
    return _with_name(row, f"checked_{row}")


@lru_cache(maxsize=None)
def prepared_row(row: str) -> Op:
    """A row whose operands already have the compute dtype."""
    return _with_name(row, f"prepared_{row}")


def _with_name(row: str, name: str) -> Op:
    op = TABLE[row]
    compute = op.compute or (lambda xp, *args: getattr(xp, row)(*args))
    return replace(op, name=name, compute=compute)
