"""The calls of a graph (functions, gradients, updates of variables), and their replay."""

from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from inspect import getclosurevars, isfunction
from typing import TYPE_CHECKING, Any

from ...arrays.tensor import Tensor
from ...core.dtypes import is_inexact
from ...core.origin import Origin, written_at
from ...core.record import field, record
from ...core.settings import override_settings
from ...core.value import TENSORS
from .trees import leaves, map_tree
from .values import Placeholder, Value, Variable

if TYPE_CHECKING:
    from .graph import Graph


@record(eq=False)
class GraphCall:
    """A function applied to values of a graph.

    foreign  whether it is the user's function, whose own lines are shown in errors
    """

    number: int
    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    origin: Origin
    foreign: bool = False

    @property
    def operands(self) -> Iterator[Value]:
        """The values that it reads, also those that functions among its arguments close over."""
        own = (self.function,) if self.foreign else ()
        return _values(leaves((own, self.args, self.kwargs)))

    def compute(self, replay: "Replay") -> Any:
        """The results, for one set of inputs."""
        args, kwargs = map_tree(replay.resolve, self.args), map_tree(replay.resolve, self.kwargs)
        with written_at(None if self.foreign else self.origin):
            return self.function(*args, **kwargs)


def _values(things: Iterable[Any]) -> Iterator[Value]:
    for x in things:
        if isinstance(x, Value):
            yield x
        elif isfunction(x):
            inside = getclosurevars(x)
            yield from _values(leaves((inside.nonlocals, inside.globals)))


# The current replay, for functions among a call's arguments that compute with values.
replaying: ContextVar["Replay | None"] = ContextVar("weft_replaying", default=None)


@record(eq=False)
class GradientsCall(GraphCall):
    """The gradients of targets with respect to sources; args are the three lists."""

    def compute(self, replay: "Replay") -> Any:
        targets, sources, seeds = map_tree(replay.resolve, self.args)
        with written_at(self.origin):
            return replay.tape.gradient(targets, sources, seeds)


@record(eq=False)
class Update:
    """An update of variables, which runs when it is fetched, after everything else.

    result  the value of the fetch
    """

    graph: "Graph"
    name: str
    variables: tuple[Variable, ...]
    values: tuple[Value, ...]
    change: Callable[[list[Tensor]], Any]
    origin: Origin
    result: Value | None = None

    def make(self, replay: "Replay") -> None:
        """Run the update."""
        with override_settings(grad=False), written_at(self.origin):
            self.change([replay.resolve(v) for v in self.values])

    def __repr__(self) -> str:
        return f"<{self.name}: {', '.join(v.name for v in self.variables)}>"


@record(frozen=False, eq=False)
class Replay:
    """Computes a graph from the tensors of its placeholders, one call after the other.

    tape     watches the sources of gradients
    watched  those sources; None for all values
    """

    graph: "Graph"
    tape: Any  # a `wf.GradientTape`, which is in a layer above
    watched: set[Value] | None
    given: dict[Placeholder, Tensor] = field(default_factory=dict)
    results: dict[GraphCall, list[Any]] = field(default_factory=dict)

    def feed(self, placeholder: Placeholder, tensor: Tensor) -> None:
        """Set the tensor of a placeholder."""
        self.given[placeholder] = self._watch(placeholder, tensor)

    def resolve(self, x: Any) -> Any:
        """The tensor or number of a value; anything else is returned unchanged."""
        if not isinstance(x, Value):
            return x
        if isinstance(x, Placeholder):
            return self.given[x]
        if isinstance(x, Variable):
            return x.parameter
        if x.call not in self.results:
            self.compute(x.call)
        return self.results[x.call][x.position]

    def compute(self, call: GraphCall) -> Any:
        """Run a call, and store its results."""
        token = replaying.set(self)
        try:
            made = call.compute(self)
        finally:
            replaying.reset(token)
        results = list(leaves(made))
        self.results[call] = results
        for value in self.watched or ():
            if value.call is call:
                self._watch(value, results[value.position])
        if self.watched is None:
            for x in results:
                self._watch(None, x)
        return made

    def _watch(self, value: Value | None, x: Any) -> Any:
        wanted = self.watched is None or value in self.watched
        if wanted and x.__class__ in TENSORS and is_inexact(x.dtype) and not x.requires_grad:
            self.tape.watch(x)
        return x


def needed_calls(fetched: Iterable[Value]) -> list[GraphCall]:
    """The calls that values depend on, in the order in which they were recorded."""
    found: dict[GraphCall, None] = {}
    todo = [v.call for v in fetched if v.call is not None]
    while todo:
        call = todo.pop()
        if call not in found:
            found[call] = None
            todo += [v.call for v in call.operands if v.call is not None]
    return sorted(found, key=lambda c: c.number)
