"""What NumPy kernels allocate beside their results, by row."""

from collections.abc import Callable, Sequence
from typing import Any

from ..core.op import TABLE, Op, Partials

Work = Callable[[Sequence[Any], Sequence[Any], tuple[Any, ...]], int]

ELEMENTWISE: frozenset[str] = frozenset()
WORK: dict[str, Work] = {}


def of(op: Op, operands: Sequence[Any], results: Sequence[Any], static: tuple[Any, ...]) -> int:
    """The bytes of a kernel's temporaries beside its results at its own peak."""
    work = WORK.get(op.name)
    return 0 if work is None else work(operands, results, static)
