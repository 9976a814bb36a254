"""What the compiler asks of the machine that it makes code for."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ..graph.graph import Equation, Graph
from .ir.kernel import Kernel
from .ir.routine import Routine
from .ir.schedule import GemmStep, Schedule
from .ir.views import View
from .memory import MemoryPlan

Pass = Callable[[Graph], Graph]
Passes = Sequence[tuple[str, Pass]]
Arrays = Sequence[np.ndarray]


class Ending(Protocol):
    """What follows a call that changes something: done completely or not at all."""

    def finish(self, made: list[np.ndarray]) -> Any:
        """Take over what the call made, and give its result; it may be done twice."""

    def stop(self, task: int) -> None:
        """An exception ended the call behind this task."""


class Executable(Protocol):
    """A schedule that can be run: a function from the inputs' arrays to the outputs'.

    fresh        the shapes and dtypes of outputs that have memory of their own, new at each call
    fresh_bytes  their bytes
    copies       by inputs, how often and why each had to be copied
    from_disk    whether its code was found there
    """

    schedule: Schedule
    plan: MemoryPlan
    copies: dict[int, Any]
    run: Callable[..., Any]

    @property
    def fresh(self) -> list[tuple[tuple[int, ...], np.dtype]]: ...

    @property
    def fresh_bytes(self) -> int: ...

    @property
    def from_disk(self) -> bool: ...

    def written_last(self, output: int) -> tuple[int, int] | None:
        """Which of `fresh` a result is, and its first task, if nothing fails once it is written."""
        ...

    def facts(self) -> Iterator[tuple[str, str]]:
        """How it runs: what a report tells, by titles."""
        ...


class Computing(Protocol):
    """What a machine computes by itself."""

    def supports(self, graph: Graph, e: Equation) -> str:
        """Why no kernel computes an elementwise row or a fold for these dtypes; "" if one does.

        The answer is of the row, the dtypes and the static parameters alone, never of the sizes: of
        an operand that is Python's number only the equation tells the kind, and of an integer power
        only the static parameter whether it is one that kernels compute.
        """
        ...

    def routine(self, graph: Graph, views: Mapping[int, View], e: Equation) -> Routine | str | None:
        """The routine of an equation; why there is none; None for a row that has no routine."""
        ...


class Lowering(Computing, Protocol):
    """What graphs are lowered for: what it computes by itself, and how graphs are prepared.

    alignment  of buffers in the arena, in bytes
    passes     by name, in order; each from a graph to one of the same values
    """

    @property
    def alignment(self) -> int: ...

    @property
    def passes(self) -> Passes: ...

    def takes_long(self, work: Kernel | Routine | GemmStep, dtype: np.dtype | None = None) -> bool:
        """Whether a signal is to end a call during this: nothing is written in place before it.

        dtype  of a product, which does not say
        """
        ...

    def tune(self, schedule: Schedule) -> Schedule:
        """The schedule with steps joined as this machine runs them best."""
        ...


class Target(Lowering, Protocol):
    """A machine: what graphs are lowered for, and how schedules are made ready to run there.

    key   tells it apart from others where schedules are kept on disk
    """

    @property
    def key(self) -> tuple[Any, ...]: ...

    def build(self, schedule: Schedule, plan: MemoryPlan) -> Executable:
        """Make it ready to run."""
        ...


def optimise(graph: Graph, passes: Passes, check: Callable[[Graph], None] | None = None) -> Graph:
    """The graph after some passes, in order; `check` is called with the graph after each."""
    for _, apply in passes:
        graph = apply(graph)
        if check is not None:
            check(graph)
    return graph
