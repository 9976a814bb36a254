"""How much memory a step needs, by a trace alone."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from .. import errors
from ..compiler.calling import Calling
from ..compiler.compiled import Compiled
from ..compiler.frontend.arguments import CallArguments, flatten_arguments, settings_key
from ..compiler.frontend.inputs import Captured, Gradient, InputSource, StateArray, TensorArgument
from ..compiler.frontend.trace import trace
from ..compiler.frontend.variant import Variant
from ..compiler.ir.schedule import LibraryStep, Schedule
from ..compiler.memory import MemoryPlan, lifetimes
from ..compiler.pipeline import lower
from ..compiler.raw.arrays import arrays_on
from ..core.backends import BACKENDS
from ..core.node import Leaf
from ..core.origin import Origin, line_of
from ..core.settings import current
from ..graph.graph import Literal
from ..transform.modes.reverse import BEFORE_SWEEP
from . import phantom
from .counter import Counter
from .ledger import Event, Ledger
from .stand_ins import GRADIENT, INPUT, STATE, StandIns

_LISTED = 12  # rows of the table of contents


@dataclass(frozen=True)
class Content:
    """Arrays that are alive at the peak: those that one operation makes at one line.

    op      the operation, or what the arrays are
    line    the user's file and line; "" for what is there before the step
    nbytes  of all of them
    count   how many they are

    >>> import weft as wf
    >>> x = wf.ones((1000,), dtype="float64")
    >>> wf.profile.estimate(lambda x: wf.exp(x).sum(), x).contents[0].nbytes
    8000
    """

    op: str
    line: str
    nbytes: int
    count: int


@dataclass(frozen=True)
class MemoryEstimate:
    """The bytes that a step needs; `print` shows them as a table.

    compiled         whether it is about the compiled step
    parameters       the tensors that gradients are wanted of
    gradients        those that the step leaves in `.grad`
    optimizer_state  moments and the like, also those that the first step makes
    inputs           other tensors: arguments, buffers, captured ones
    activations      what is alive when the backward pass begins, beyond all these; of a compiled
                     step: the arena, which holds its temporaries too
    temporaries      what is alive at the peak, beyond all these
    peak             the most that is alive at once
    contents         what is alive at the peak, the largest first

    >>> import weft as wf
    >>> model = wf.nn.Linear(100, 10)
    >>> estimate = wf.profile.estimate(lambda x: model(x).sum(), wf.ones((50, 100)))
    >>> estimate.parameters, estimate.inputs
    (4040, 20000)
    """

    compiled: bool
    parameters: int
    gradients: int
    optimizer_state: int
    inputs: int
    activations: int
    temporaries: int
    peak: int
    contents: tuple[Content, ...]

    def __str__(self) -> str:
        names = ("parameters", "gradients", "optimizer_state", "inputs", "activations")
        rows = [(name.replace("_", " "), getattr(self, name)) for name in (*names, "temporaries")]
        lines = [f"memory of {'a compiled' if self.compiled else 'an eager'} step"]
        lines += [f"  {name:<16}{_megabytes(n):>12}" for name, n in (*rows, ("peak", self.peak))]
        lines += ["", f"  at the peak{'':<23}{'MB':>10}  arrays  line"]
        for c in self.contents[:_LISTED]:
            lines.append(f"  {c.op:<32.32}{_megabytes(c.nbytes):>12}{c.count:>8}  {c.line}")
        rest = self.contents[_LISTED:]
        if rest:
            nbytes, count = sum([c.nbytes for c in rest]), sum([c.count for c in rest])
            lines.append(f"  {f'{len(rest)} more':<32}{_megabytes(nbytes):>12}{count:>8}")
        return "\n".join(lines)


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 1e6:,.3f}"


def estimate(
    step: Callable[..., Any], *args: Any, compiled: bool | None = None, **kwargs: Any
) -> MemoryEstimate:
    """The bytes that a call `step(*args, **kwargs)` needs, and their peak.

    step          a training step, or any function of tensors
    args, kwargs  its arguments: tensors of the wanted sizes
    compiled      whether the step runs compiled, or in eager mode; None: as it is given. That of
                  `wf.compile(f, checkpoint=config)` runs compiled under that config

    Nothing is computed, nothing of the step's size is allocated, and parameters, buffers, random
    streams and optimizers stay as they are: the step's Python code runs on tensors without values,
    once for the trace and, in eager mode, twice more. So its other effects happen, and what needs
    values is refused, as in `wf.compile`. No other thread may use the step's tensors meanwhile.

    The peak is that of a step in the course of training: an optimizer's state exists, and so do
    the gradients that a step before has left. Compiled, it is what the call's memory plan takes; in
    eager mode, what operations and their kernels allocate, until Python frees it. A step that is
    compiled several times, for several kinds of calls, has an arena for each. Kernels'
    temporaries are those on this machine's number of threads; those of decompositions, Fourier
    transforms, sorting and random draws are not known and not counted. Memory that is alive and has
    nothing to do with the step is not counted. An eager step is one on the CPU, and may have a
    checkpoint strategy; under a budget or with values on disk it is refused: the budget is its
    peak, or it raises.

    >>> import weft as wf
    >>> model = wf.nn.Sequential(wf.nn.Linear(64, 64), wf.nn.Tanh(), wf.nn.Linear(64, 1))
    >>> optimizer = wf.optim.AdamW(model.parameters())
    >>> def step(x):
    ...     optimizer.zero_grad()
    ...     loss = model(x).square().mean()
    ...     loss.backward()
    ...     optimizer.step()
    ...     return loss
    >>> estimate = wf.profile.estimate(step, wf.ones((10_000, 64)))
    >>> estimate.parameters, estimate.optimizer_state
    (16900, 33800)
    >>> 5.0e6 < estimate.peak < 20.0e6
    True
    """
    settings = current.get()
    if settings.levels or settings.staging is not None:
        raise errors.ArgumentError(
            "estimate: called inside of a transformation or a compiled function; call it outside"
        )
    if compiled is None:
        compiled = isinstance(step, Compiled)
    function = step.__wrapped__ if isinstance(step, Compiled) else step
    settings_key(settings)  # refuses settings under which nothing is traced
    taken = flatten_arguments(args, kwargs, lambda name: False, settings.grad)
    with Counter() as counter:
        program = trace_step(function, taken)
    if compiled:
        program.choose(getattr(step, "checkpoint", None), getattr(step, "capture", True))
        return _compiled(program, taken, counter.live)
    _refuse_devices(_tensors(program, taken))
    return _eager(program, taken, function, args, kwargs)


def trace_step(step: Callable[..., Any], taken: CallArguments) -> Variant:
    """The trace of a step, which is refused where it needs values."""
    name = getattr(step, "__name__", type(step).__name__)
    try:
        return trace(name, step, taken)
    except errors.StagingError as e:
        text = e.message.removeprefix("compile: ")
        raise errors.StagingError(f"estimate: the step cannot be traced: {text}") from e


def _refuse_devices(tensors: Iterable[Any]) -> None:
    """Refuse eager steps on other devices, whose kernels' temporaries are not known."""
    for t in tensors:
        if t.device != "cpu":
            raise errors.DeviceError(
                f"estimate: the step has a tensor on {t.device!r}, and eager steps are estimated "
                "on 'cpu'; make the model and the arguments there, or pass compiled=True"
            )


# -- what there is -----------------------------------------------------------------------------


def _is_parameter(tensor: Any) -> bool:
    return tensor._node.__class__ is Leaf and tensor._node.requested


def _tensors(program: Variant, taken: CallArguments) -> list[Any]:
    captured = [p.tensor for p in program.places if isinstance(p, Captured)]
    return list({id(t): t for t in (*taken.call.tensors, *captured)}.values())


def _nbytes(tensors: Iterable[Any]) -> int:
    return sum([BACKENDS[type(t._data)].nbytes(t._data) for t in tensors])


# -- compiled ----------------------------------------------------------------------------------


def _compiled(program: Variant, taken: CallArguments, constants: int) -> MemoryEstimate:
    """The estimate of a compiled step.

    constants  bytes that the trace has made
    """
    schedule, placed = lower(program.graph, program.donated, program.target, program.checkpoint)
    tensors = _tensors(program, taken)
    given = [t for t in tensors if _is_parameter(t)]
    parameters, inputs = _nbytes(given), _nbytes([t for t in tensors if not _is_parameter(t)])
    state = [phantom.nbytes_of(p.entered.aval) for p in program.places if _is_state(p)]
    new, old = _gradients(program, taken, schedule)
    results = Calling(schedule).fresh_bytes - sum(new)
    work = results + constants + library_bytes(schedule) + _copies(program, taken)
    contents = [
        Content("parameters", "", parameters, len(given)),
        Content(INPUT, "", inputs, len(tensors) - len(given)),
        Content(STATE, "", sum(state), len(state)),
        Content(GRADIENT, "", sum(new), len(new)),
        Content("gradient before", "", sum(old), len(old)),
        *arena_contents(schedule, placed),
        Content("results, constants, library calls", "", work, 1),
    ]
    return MemoryEstimate(
        compiled=True,
        parameters=parameters,
        gradients=sum(new),
        optimizer_state=sum(state),
        inputs=inputs,
        activations=placed.size,
        temporaries=sum(old) + work,
        peak=parameters + inputs + sum(state) + sum(new) + placed.size + sum(old) + work,
        contents=_sort(contents),
    )


def _is_state(place: InputSource) -> bool:
    return isinstance(place, StateArray)


def _gradients(
    program: Variant, taken: CallArguments, schedule: Schedule
) -> tuple[list[int], list[int]]:
    """The bytes of each gradient that a call makes, and of those there were that it keeps so long.

    The others' memory is used again (`GradientBuffers`).
    """
    call, places = taken.call, program.places
    given = {p.leaf(call): p.entered.aval for p in places if isinstance(p, Gradient)}
    calling, new, old = Calling(schedule), [], []
    for r in program.replaced:
        nbytes = schedule.buffers[schedule.outputs[r.position]].nbytes
        new.append(nbytes)
        again = r.owner is not None and calling.written_last(r.position) is not None
        if not again or given.pop(r.find(call), None) is not None:
            old.append(nbytes)
    return new, [*old, *map(phantom.nbytes_of, given.values())]


def library_bytes(schedule: Schedule) -> int:
    """The most bytes of library calls: kernels' results and temporaries, and the results before."""
    most = before = 0
    with phantom.simulation() as ledger:
        for step in schedule.steps:
            if isinstance(step, LibraryStep):
                operands = [_operand(schedule, i) for i in step.inputs]
                made, taken = phantom.bytes_of_call(ledger, step.op, operands, step.static)
                most, before = max(most, before + taken), made
    return most


def _operand(schedule: Schedule, i: int | Literal) -> Any:
    if isinstance(i, Literal):
        return i.value
    b = schedule.buffers[i]
    return phantom.strided(b.shape, b.dtype, b.strides)


def _copies(program: Variant, taken: CallArguments) -> int:
    """The bytes of inputs that are not laid out as programs read them."""
    sources = [p for p in program.places if isinstance(p, Captured | TensorArgument)]
    raws = [p.read(taken.call) for p in sources]
    own = {id(x): BACKENDS[type(x)] for x in raws}
    copied = [x for x in raws if arrays_on(own[id(x)].device_of(x)).obstacle(x, False)]
    return sum([own[id(x)].nbytes(x) for x in copied])


def arena_contents(schedule: Schedule, placed: MemoryPlan) -> list[Content]:
    """What lies in the arena at the worst step, and the gaps between that."""
    spans, buffers = lifetimes(schedule), schedule.buffers
    change = [0] * (len(schedule.steps) + 1)
    for b, (first, last) in spans.items():
        change[first] += buffers[b].nbytes
        change[last + 1] -= buffers[b].nbytes
    live = [*accumulate(change)]
    worst = live.index(max(live))
    found = []
    for b, (first, last) in spans.items():
        if first <= worst <= last:
            found.append(Content(*_label(schedule.steps[first]), buffers[b].nbytes, 1))
    rest = placed.size - sum([c.nbytes for c in found])
    return [*found, Content("gaps in the arena", "", rest, 1)] if rest > 0 else found


def _label(step: Any) -> tuple[str, str]:
    """The operation of a step of a schedule, and the user's line."""
    rows = getattr(step, "rows", ())
    name = rows[-1] if rows else type(step).__name__.removesuffix("Step").lower()
    origins = getattr(step, "origins", ())
    return name, line_of(*origins[-1]) if origins else getattr(step, "line", "")


# -- eager -------------------------------------------------------------------------------------


class _Sweeps:
    """Notes when the backward pass with the most memory begins."""

    def __init__(self, ledger: Ledger):
        self._ledger, self._most = ledger, -1
        self.at: int | None = None

    def __call__(self) -> None:
        if self._ledger.live > self._most:
            self._most, self.at = self._ledger.live, len(self._ledger.events)

    @contextmanager
    def noted(self) -> Iterator["_Sweeps"]:
        BEFORE_SWEEP.append(self)
        try:
            yield self
        finally:
            BEFORE_SWEEP.remove(self)


def _eager(
    program: Variant, taken: CallArguments, step: Callable[..., Any], args: Any, kwargs: Any
) -> MemoryEstimate:
    tensors = _tensors(program, taken)
    parameters = _nbytes([t for t in tensors if _is_parameter(t)])
    inputs = _nbytes([t for t in tensors if not _is_parameter(t)])
    arrays = sum([taken.call.tensors[k]._data.nbytes for k in taken.call.arrays])
    stand_ins = StandIns(program, taken.call.tensors)
    with phantom.simulation() as ledger, stand_ins.in_place():
        there = len(ledger.events)
        step(*args, **kwargs)
        ledger.reset_peak()
        with _Sweeps(ledger).noted() as sweeps:
            step(*args, **kwargs)
        held = [t._grad._data for t in tensors if getattr(t, "_grad", None) is not None]
        left = {phantom.key_of(g): g.nbytes for g in held}
        del held
    given = {e.key: e for e in ledger.events[:there]}
    state = sum([e.nbytes for e in given.values() if e.op == STATE])
    alive, saved = ledger.alive(ledger.peak_at), {}
    if sweeps.at is not None:
        saved = {k: e for k, e in ledger.alive(sweeps.at).items() if k not in given}
    known = sum([e.nbytes for k, e in alive.items() if k in given or k in saved or k in left])
    peak = ledger.peak + arrays
    return MemoryEstimate(
        compiled=False,
        parameters=parameters,
        gradients=sum(left.values()),
        optimizer_state=state,
        inputs=inputs,
        activations=sum([e.nbytes for e in saved.values()]),
        temporaries=peak - arrays - known,
        peak=peak,
        contents=_contents(ledger, alive),
    )


def _contents(ledger: Ledger, alive: dict[int, Event]) -> tuple[Content, ...]:
    found = []
    for e in alive.values():
        given = e.op in (INPUT, GRADIENT, STATE)
        found.append(Content(e.op, "" if given else _line(e.origin), e.nbytes, 1))
    op, origin, extra = ledger.at_work
    found.append(Content(f"temporaries of {op}", _line(origin), extra, 1))
    return _sort(found)


def _line(origin: Origin | None) -> str:
    return "" if origin is None else line_of(*origin)


def _sort(contents: Iterable[Content]) -> tuple[Content, ...]:
    """The contents, those of one operation at one line together, the largest first."""
    bytes_of: dict[tuple[str, str], list[int]] = {}
    for c in contents:
        sums = bytes_of.setdefault((c.op, c.line), [0, 0])
        sums[0] += c.nbytes
        sums[1] += c.count
    joined = [Content(*key, *sums) for key, sums in bytes_of.items() if sums[0]]
    return tuple(sorted(joined, key=lambda c: -c.nbytes))
