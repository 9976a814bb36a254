"""`Target`: what the compiler needs of the machine that it compiles for."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ..core.op import Op
from ..core.record import record
from ..graph.graph import Equation, Graph
from .ir.kernel import Kernel
from .ir.routine import Routine
from .ir.schedule import GemmStep, Schedule, ScheduleStep
from .ir.views import View
from .limits import Limits
from .memory import MemoryPlan

Pass = Callable[[Graph], Graph]
Passes = Sequence[tuple[str, Pass]]
Arrays = Sequence[np.ndarray]


class Ending(Protocol):
    """The end of a call that changes something: done completely or not at all."""

    def finish(self, made: list[np.ndarray]) -> Any:
        """Write the call's outputs back, and give its result; may run twice."""

    def stop(self, task: int) -> None:
        """Clean up after an exception ended the call after this task."""


@record
class Measure:
    """What a step took.

    seconds  of the device
    nbytes   that it reads and writes, at least
    share    of the speed that its memory and its arithmetic allow, at most 1; None if unknown
    """

    seconds: float
    nbytes: int
    share: float | None


class Executable(Protocol):
    """A schedule that can be run: a function from the inputs' arrays to the outputs'.

    fresh        the shapes and dtypes of the outputs with new memory at each call
    fresh_bytes  their bytes
    copies       by input, how often and why it was copied
    run          of (inputs' arrays, room, ending): the outputs, or what the ending makes of them.
                 `room` are arrays like `fresh` for the outputs, or None for all or some of them
    from_disk    whether its code came from the disk cache
    """

    schedule: Schedule
    plan: MemoryPlan
    copies: dict[int, Any]

    @property
    def run(self) -> Callable[..., Any]: ...

    @property
    def fresh(self) -> list[tuple[tuple[int, ...], np.dtype]]: ...

    @property
    def fresh_bytes(self) -> int: ...

    @property
    def from_disk(self) -> bool: ...

    def written_last(self, output: int) -> tuple[int, int] | None:
        """Position in `fresh` and first task of an output after which nothing fails; else None."""
        ...

    def release(self) -> None:
        """Free the memory that is kept for the next call."""
        ...

    def facts(self) -> Iterator[tuple[str, str]]:
        """How it runs, as titles and texts for `explain()`."""
        ...

    def measures(self) -> Sequence[Measure] | None:
        """What each step takes, for `explain()`; None if steps are not timed."""
        ...


class Computing(Protocol):
    """What a target computes natively.

    product_dtypes  those in which matrix products are steps of their own
    """

    @property
    def product_dtypes(self) -> Collection[np.dtype]: ...

    def supports(self, graph: Graph, e: Equation) -> str:
        """Why no kernel computes an elementwise row or a fold for these dtypes; "" if one does.

        The answer depends on the row, the dtypes and the static parameters, never on sizes. The
        equation is needed for the kind of a Python scalar operand, and for the static parameter of
        an integer power, which decides whether kernels compute it.
        """
        ...

    def routine(self, graph: Graph, views: Mapping[int, View], e: Equation) -> Routine | str | None:
        """The routine of an equation, or why there is none; None for a row without routines."""
        ...


class Lowering(Computing, Protocol):
    """The part of a target that lowering needs: what it computes natively, and its passes.

    alignment  of buffers in the arena, in bytes
    adopts     whether the results of library calls stay in the memory that the library allocated,
               unless they are outputs: the arena has no place for them
    limits     by which fusion chooses between forms of a program
    passes     (name, pass) in order; each from a graph to one of the same values
    """

    @property
    def alignment(self) -> int: ...

    @property
    def adopts(self) -> bool: ...

    @property
    def limits(self) -> Limits: ...

    @property
    def passes(self) -> Passes: ...

    def cost(self, schedule: Schedule, step: ScheduleStep) -> float:
        """The approximate nanoseconds of a step."""
        ...

    def takes_long(self, work: Kernel | Routine | GemmStep, dtype: np.dtype | None = None) -> bool:
        """Whether a signal may end a call during this work: nothing is written in place before it.

        dtype  of a product, whose step does not have it
        """
        ...

    def library_fails(self, op: Op) -> bool:
        """Whether a library call of a row may raise an error or never end.

        The user's own functions (`op.foreign`) may do either. Where a call fails, nothing has been
        written in place before.
        """
        ...

    def tune(self, schedule: Schedule, tight: bool) -> Schedule:
        """The schedule with steps joined as this target runs them best.

        tight  whether steps are going to run again, so that less memory is taken
        """
        ...


class Target(Lowering, Protocol):
    """A machine that graphs are lowered for and schedules are built for.

    key   identifies the target in the disk cache
    """

    @property
    def key(self) -> tuple[Any, ...]: ...

    def build(self, schedule: Schedule, plan: MemoryPlan, capture: bool = True) -> Executable:
        """The executable of a schedule.

        capture  whether all steps may be captured as one graph; a target without graphs ignores it
        """
        ...


def optimise(graph: Graph, passes: Passes, check: Callable[[Graph], None] | None = None) -> Graph:
    """Apply the passes in order; `check` is called with the graph after each."""
    for _, apply in passes:
        graph = apply(graph)
        if check is not None:
            check(graph)
    return graph
