"""The layers of a model and their costs."""

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any
from weakref import ref

from .. import errors
from ..arrays.random import get_state, set_state
from ..core.backends import BACKENDS
from ..core.box import ground
from ..core.value import TENSORS
from ..graph.graph import Equation, Literal
from ..graph.symbol import Trace
from ..ops.flops import flops
from ..transform.modes import trees
from ..transform.modes.backward import enable_grad, no_grad, saved_tensors_hooks
from ..transform.modes.trace import trace_of
from .module import Module
from .tree import is_differentiable, put_together, take_apart


@dataclass(frozen=True)
class Row:
    """A module of a model: what it holds and does itself, without the modules in it.

    name              as in `named_modules()`; the model itself has none
    class_name        its class
    output_shape      of its last result, in the containers that it came in; None: never called
    parameters        how many numbers are in its own parameters, `trainable` of which are trained
    flops             floating-point operations of a forward pass, as `ops/flops.py` counts them
    activation_bytes  what is kept for the backward pass, without parameters and buffers
    """

    name: str
    class_name: str
    output_shape: Any = None
    parameters: int = 0
    trainable: int = 0
    flops: int = 0
    activation_bytes: int = 0


@dataclass(frozen=True)
class Summary:
    """The rows of a model, whose columns add up to the totals.

    rows  one `Row` for each module: its name, kind, shapes, parameters, operations and bytes

    >>> import weft as wf
    >>> s = wf.nn.summary(wf.nn.Sequential(wf.nn.Linear(4, 8), wf.nn.ReLU()), wf.ones((10, 4)))
    >>> s.parameters, len(s.rows)
    (40, 3)
    """

    rows: list[Row] = field(default_factory=list)

    def _total(self, column: str) -> int:
        return sum(getattr(row, column) for row in self.rows)

    @property
    def parameters(self) -> int:
        """How many numbers are in the parameters."""
        return self._total("parameters")

    @property
    def trainable(self) -> int:
        """How many of them are trained."""
        return self._total("trainable")

    @property
    def flops(self) -> int:
        """Floating-point operations of a forward pass."""
        return self._total("flops")

    @property
    def activation_bytes(self) -> int:
        """What a forward pass keeps for the backward pass."""
        return self._total("activation_bytes")

    def __getitem__(self, name: str) -> Row:
        for row in self.rows:
            if row.name == name:
                return row
        raise errors.MissingParameter(
            f"summary: no module {name!r}, only {', '.join(row.name for row in self.rows[1:])}"
        )

    def __str__(self) -> str:
        return _table(self)

    __repr__ = __str__


def _flops(e: Equation, avals: list[Any]) -> int:
    operands = [None if isinstance(i, Literal) else avals[i] for i in e.inputs]
    return flops(e.op, [avals[i] for i in e.outputs], operands, e.static)


_HEAD = ("layer", "output", "parameters", "trainable", "flops", "activations")


def _table(s: Summary) -> str:
    lines: list[tuple[str, ...]] = [_HEAD]
    for row in s.rows:
        depth = row.name.count(".") + 1 if row.name else 0
        name = f"{row.name.rpartition('.')[2]}: {row.class_name}" if row.name else row.class_name
        shape = "" if row.output_shape is None else _spell(row.output_shape)
        lines.append(("  " * depth + name, shape, *_numbers(row)))
    lines.append(("total", "", *_numbers(s)))
    widths = [max(len(line[i]) for line in lines) for i in range(len(_HEAD))]
    text = [_align(line, widths) for line in lines]
    bar = "-" * max(map(len, text))
    return "\n".join([text[0], bar, *text[1:-1], bar, text[-1]])


def _align(line: tuple[str, ...], widths: list[int]) -> str:
    """Words to the left, numbers to the right."""
    cells = [
        c.ljust(w) if i < 2 else c.rjust(w)
        for i, (c, w) in enumerate(zip(line, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()


def _spell(shape) -> str:
    if isinstance(shape, list | tuple) and not all(isinstance(n, int) for n in shape):
        return ", ".join(map(_spell, shape))
    return "×".join(map(str, shape)) or "()" if isinstance(shape, tuple) else str(shape)


def _numbers(x) -> tuple[str, ...]:
    counts = (f"{n:,}" for n in (x.parameters, x.trainable))
    return (*counts, _with_unit(x.flops, 1000, ""), _with_unit(x.activation_bytes, 1024, "B"))


def _with_unit(n: int, base: int, unit: str) -> str:
    prefixes = ("k", "M", "G", "T") if base == 1000 else ("Ki", "Mi", "Gi", "Ti")
    for power, prefix in reversed(list(enumerate(prefixes, 1))):
        if n >= base**power:
            return f"{n / base**power:.4g} {prefix}{unit}"
    return f"{n} {unit}".rstrip()


class _ModuleWatch:
    """The module that is running, and the costs of each module by itself."""

    def __init__(self, model: Module):
        self.shapes: dict[str, Any] = {}
        self.done: dict[str, int] = {}
        self._running = [""]
        self._switch: Callable[[], None] = lambda: None
        for name, module in model.named_modules():
            # The copy shares its dicts of hooks with the model.
            module._forward_hooks = dict(module._forward_hooks)
            module._forward_pre_hooks = dict(module._forward_pre_hooks)
            module.register_forward_pre_hook(lambda m, args, name=name: self._enter(name))
            module.register_forward_hook(lambda m, args, out, name=name: self._leave(name, out))

    @property
    def running(self) -> str:
        """The name of the module that is running."""
        return self._running[-1]

    def add(self, amount: int, name: str) -> None:
        """Count something for a module."""
        self.done[name] = self.done.get(name, 0) + amount

    def _enter(self, name: str) -> None:
        self._switch()
        self._running.append(name)

    def _leave(self, name: str, out) -> None:
        self._switch()
        self._running.pop()
        self.shapes[name] = _shapes(out)

    def follow(self, trace: Trace) -> None:
        """Count the operations of a trace, for each module those made while it was running."""
        counted = 0

        def switch():
            nonlocal counted
            avals = trace.avals
            self.add(sum(_flops(e, avals) for e in trace.equations[counted:]), self.running)
            counted = len(trace.equations)

        self._switch = switch


def _shapes(out):
    if type(out) in TENSORS:
        return out.shape
    if isinstance(out, dict):
        return {k: _shapes(v) for k, v in out.items()}
    if isinstance(out, list | tuple):
        return tuple(map(_shapes, out))
    return None if out is None else type(out).__name__


def summary(model: Module, *args: Any, **kwargs: Any) -> Summary:
    """The layers of a model with shapes, parameters, operations and bytes, in a call of it.

    model         the module
    args, kwargs  what it is called with

    The model is run twice with these arguments: traced, for the operations that it executes, and
    recorded, for what is saved. Its buffers and the random numbers stay as they were.

    >>> import weft as wf
    >>> model = wf.nn.Sequential(wf.nn.Linear(4, 8, bias=False), wf.nn.ReLU())
    >>> s = wf.nn.summary(model, wf.ones((10, 4)))
    >>> s.parameters, s["0"].flops, s["1"].output_shape
    (32, 640, (10, 8))
    """
    with _as_before():
        computed = _trace_call(model, args, kwargs)
    with _as_before():
        kept = _record_call(model, args, kwargs)
    seen: set[int] = set()
    rows = []
    for name, module in model.named_modules():
        own = [p for p in module.parameters(recurse=False) if id(p) not in seen]
        seen.update(map(id, own))
        trained = [p for p in own if p.requires_grad]
        numbers = [sum(prod(p.shape) for p in part) for part in (own, trained)]
        done = computed.done.get(name, 0), kept.done.get(name, 0)
        size, trainable = numbers
        shape = kept.shapes.get(name)
        rows.append(Row(name, type(module).__name__, shape, size, trainable, *done))
    return Summary(rows)


@contextmanager
def _as_before():
    """A block that restores the random streams at its end."""
    state = get_state()
    try:
        yield
    finally:
        set_state(state)


def _copy(model: Module) -> Module:
    """The same parameters in other modules, with copies of the buffers."""
    leaves, skeleton = take_apart(model, is_leaf=lambda x: True)
    buffers = {id(b) for b in model.buffers()}
    return put_together(skeleton, [x.clone() if id(x) in buffers else x for x in leaves])


def _trace_call(model: Module, args: tuple, kwargs: dict) -> _ModuleWatch:
    """Trace a call, and count its operations."""
    leaves, rebuild = trees.flatten((_copy(model), args, kwargs))
    places = [i for i, x in enumerate(leaves) if x.__class__ in TENSORS and is_differentiable(x)]
    watches = []

    def run(*symbols):
        for i, x in zip(places, symbols, strict=True):
            leaves[i] = x
        copied, args, kwargs = rebuild(leaves)
        watches.append(watch := _ModuleWatch(copied))
        if symbols:
            watch.follow(symbols[0]._data.trace)
        copied(*args, **kwargs)
        return symbols

    with no_grad():
        trace_of("summary", run, [leaves[i] for i in places], tuple)
    return watches[0]


class _SavedValue:
    """A value saved for backward, and the module that saved it."""

    __slots__ = ("__weakref__", "owner", "x")

    def __init__(self, x, owner: str):
        self.x, self.owner = x, owner


def _record_call(model: Module, args: tuple, kwargs: dict) -> _ModuleWatch:
    """Record a call, and count the bytes that its graph keeps, each piece of memory once."""
    copied = _copy(model)
    watch = _ModuleWatch(copied)
    weak: list[ref[_SavedValue]] = []

    def pack(x) -> _SavedValue:
        kept = _SavedValue(x, watch.running)
        weak.append(ref(kept))
        return kept

    with enable_grad(), saved_tensors_hooks(pack, lambda kept: kept.x):
        out = copied(*args, **kwargs)
    held = [ground(x) for x in (*copied.parameters(), *copied.buffers())]
    seen = {BACKENDS[type(raw)].owner(raw) for raw in held}
    for kept in [k for r in weak if (k := r()) is not None]:  # not without a path to `out`
        raw = ground(kept.x)
        xp = BACKENDS[type(raw)]
        if xp.owner(raw) not in seen:
            seen.add(xp.owner(raw))
            watch.add(xp.nbytes(raw), kept.owner)
    del out  # kept alive the graph until here
    return watch
