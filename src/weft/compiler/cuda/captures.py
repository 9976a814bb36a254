"""What no graph of a GPU can capture: library calls that read values on the host."""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from ...core.op import Op
from ...errors import StagingError
from ...graph.graph import Equation, Graph, Literal
from ...graph.structured import STRUCTURED, Repeat
from ..ir.schedule import LibraryStep, Schedule

# Why calls of these rows wait for values. PyTorch checks the results of its solvers on the host
# (`_linalg_check_errors`). Others may do so, too: they are refused when the capture fails.
_FAILS = "whether it has failed is read on the host"
_LARGEST = "the largest value is read on the host"
_ELSEWHERE = "it is computed on the host"
_WAITS = {
    **dict.fromkeys(("inv", "solve", "triangular_solve", "cholesky", "pinv"), _FAILS),
    **dict.fromkeys(("eigh", "eigvalsh", "eig", "eigvals", "svd", "svdvals"), _FAILS),
    **dict.fromkeys(("matrix_rank", "adjugate", "adjugate_tangent", "invertible"), _FAILS),
    "bincount": _LARGEST,
    **dict.fromkeys(("sqrtm", "logm", "sylvester"), _ELSEWHERE),
}

WAYS_OUT = (
    "compile with capture=False, which runs the function step by step, or move it out of the "
    "compiled function"
)


def refuse_uncaptured(schedule: Schedule) -> None:
    """Raise for the first step of a schedule that no graph can capture."""
    for step in schedule.steps:
        if isinstance(step, LibraryStep):
            sizes = [schedule.buffers[i].size for i in step.reads]
            for name, why, line in _waiting(step, sizes):
                raise refusal_of(name, why, line)


def refusal_of(name: str, why: str, line: str) -> StagingError:
    """The error for an operation that cannot be captured."""
    at = f" (at {line})" if line else ""
    return StagingError(
        f"compile: {name} cannot be captured in a graph of the GPU: {why}{at}; {WAYS_OUT}"
    )


def _waiting(call: LibraryStep | Equation, sizes: Sequence[int]) -> Iterator[tuple[str, str, str]]:
    """What a call does that waits: name, reason and line; also in the bodies of loops."""
    structure = call.static[0] if len(call.static) == 1 else None
    if isinstance(structure, Repeat):
        yield call.op.name, "each step is decided on the host, as it has no kernel", call.line
    elif isinstance(structure, STRUCTURED):
        for graph in structure.graphs:
            for e in graph.equations:
                yield from _waiting(e, _sizes(graph, e))
    elif 0 not in sizes and (why := _why(call.op, call.static)):
        yield call.op.name, why, call.line


def _why(op: Op, static: Sequence[Any]) -> str:
    if op.name == "triangular_solve" and static[-1]:  # a diagonal of ones is never singular
        return ""
    return _WAITS.get(op.name, "")


def _sizes(graph: Graph, e: Equation) -> list[int]:
    return [prod(graph.avals[i].shape) for i in e.inputs if not isinstance(i, Literal)]
