"""How much memory the program of a compiled function takes, by a trace and a plan alone."""

from __future__ import annotations

from typing import Any

from ..compiler.calling import signature_of
from ..compiler.compiled import Compiled
from ..compiler.frontend.arguments import flatten_arguments, settings_key
from ..compiler.memory import call_bytes
from ..compiler.pipeline import lower
from ..core.record import record
from ..core.settings import current
from .counter import Counter
from .estimate import Content, arena_contents, library_bytes, trace_step


@record
class ProgramBytes:
    """The memory of one program of a compiled function.

    arena     values in between; it stays from one call to the next
    library   what calls of libraries take beside it, at most
    results   new arrays of a call
    constants of the program
    inputs    what it reads: arguments, captured tensors, state
    outputs   shape and dtype of each new array of a call
    contents  what lies in the arena at the worst step

    >>> import weft as wf
    >>> from weft.profile.programs import program_bytes
    >>> step = wf.compile(lambda x: (x @ x).exp())
    >>> found = program_bytes(step, wf.ones((4, 4), dtype="float32"))
    >>> found.inputs, found.results
    (64, 64)
    """

    arena: int
    library: int
    results: int
    constants: int
    inputs: int
    outputs: tuple[tuple[tuple[int, ...], Any], ...]
    contents: tuple[Content, ...]

    @property
    def peak(self) -> int:
        """What a call takes beside what it reads."""
        return self.arena + self.library + self.results + self.constants


def program_bytes(step: Compiled[..., Any], *args: Any) -> ProgramBytes:
    """The memory of the program for a call `step(*args)`; nothing is built or computed.

    step  a compiled function; under a budget that is too small it raises `BudgetExceeded`
    args  its arguments: tensors of the wanted sizes, whose values are not read

    >>> import weft as wf
    >>> from weft.profile.programs import program_bytes
    >>> f = wf.compile(lambda x: (x @ x).sum())
    >>> program_bytes(f, wf.ones((4, 4), dtype="float32")).arena >= 64
    True
    """
    settings = current.get()
    settings_key(settings)  # refuses settings under which nothing is traced
    taken = flatten_arguments(args, {}, lambda name: False, settings.grad)
    with Counter() as counter:
        program = trace_step(step.__wrapped__, taken)
    made = counter.live
    program.choose(step.checkpoint, step.capture)
    schedule, placed = lower(program.graph, program.donated, program.target, program.checkpoint)
    found, fresh = call_bytes(schedule, placed), signature_of(schedule).fresh
    adopted = placed.adopted
    return ProgramBytes(
        arena=placed.size,
        library=library_bytes(schedule) if adopted is None else adopted,
        results=found.outputs,
        constants=max(found.constants, made),
        inputs=found.inputs,
        outputs=tuple([(schedule.buffers[i].shape, schedule.buffers[i].dtype) for i in fresh]),
        contents=tuple(arena_contents(schedule, placed)),
    )
