"""A compiled graph: from the tensors of its placeholders to the fetched values."""

from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any

from ... import errors
from ...arrays.make import asarray
from ...arrays.tensor import Tensor
from ...core import dtypes
from ...core.box import BOXED
from ...core.settings import current, override_settings
from ...core.value import TENSORS
from ...graph.graph import Graph as Program
from ..compiled import Compiled
from ..explain.report import Text, Texts
from .calls import GradientsCall, Replay, Update, needed_calls
from .names import public
from .trees import leaves, map_tree
from .values import GraphTensor, Placeholder, Sizes, Value, Variable

if TYPE_CHECKING:
    from .graph import Graph

Feeds = Mapping["str | Placeholder", Any]


class GraphFunction:
    """Runs part of a graph: `run(x=…)`, or `run({"x": …})` with names or placeholders as keys.

    placeholders  the inputs of each run
    """

    placeholders: list[Placeholder]

    def __init__(self, graph: "Graph", fetches: Any, max_variants: int):
        self._graph, self._fetches = graph, fetches
        found = [_check_fetch(graph, x) for x in leaves(fetches)]
        self._updates = _in_order([x for x in found if isinstance(x, Update)])
        values = [x for x in found if isinstance(x, Value)]
        values += [v for u in self._updates for v in (*u.values, u.result) if v is not None]
        self._calls = needed_calls(values)
        self._watched, read = set(), [*values, *[v for c in self._calls for v in c.operands]]
        self._gradients = [c for c in self._calls if isinstance(c, GradientsCall)]
        for call in self._gradients:
            self._watched |= {v for v in leaves(call.args[1]) if isinstance(v, Value)}
        self._names = {p.name for p in graph.placeholders}
        self.placeholders = [p for p in graph.placeholders if any(p is v for v in read)]
        self._compiled = Compiled(self._name_function(), (), (), max_variants)

    def _name_function(self) -> Callable[..., Any]:
        """The function to compile, under the graph's name and with its placeholders' names."""

        def run(*tensors):
            return self._replay_calls(tensors)

        run.__name__ = run.__qualname__ = self._graph.name
        kind = Parameter.POSITIONAL_ONLY
        names = [Parameter(_argument(p.name), kind) for p in self.placeholders]
        run.__signature__ = Signature(names)  # type: ignore[attr-defined]
        return run

    def _replay_calls(self, tensors: tuple[Tensor, ...]) -> Any:
        """The compiled function: replay the graph's calls, then the updates of variables."""
        tape = public().GradientTape(persistent=True)
        replay = Replay(self._graph, tape, self._watched)
        with override_settings(grad=bool(self._gradients)):
            for p, x in zip(self.placeholders, tensors, strict=True):
                replay.feed(p, x)
            for call in self._calls:
                replay.compute(call)
            fetched = map_tree(lambda x: _fetch(replay, x), self._fetches)
            for update in self._updates:
                update.make(replay)
        return fetched

    def __call__(self, feeds: Feeds | None = None, /, **named: Any) -> Any:
        given = named if feeds is None else self._merge_feeds(feeds, named)
        return self._compiled(*self._tensors(given))

    def _merge_feeds(self, feeds: Feeds, named: dict[str, Any]) -> dict[str, Any]:
        """All feeds, by the names of placeholders."""
        if not isinstance(feeds, Mapping):
            raise errors.DTypeError(
                f"run: got a {type(feeds).__name__}, expected run(name=value) or a dict"
            )
        given: dict[str, Any] = {}
        for key, value in (*feeds.items(), *named.items()):
            name = self._known_name(key)
            if name in given:
                raise errors.ArgumentError(f"run: {name!r} was given twice")
            given[name] = value
        return given

    def _tensors(self, given: dict[str, Any]) -> list[Tensor]:
        for key in given.keys() - self._names:
            self._known_name(key)
        missing = [p for p in self.placeholders if p.name not in given]
        if missing:
            inputs = ", ".join(f"{p.name!r} {p.shape} at {p.line}" for p in missing)
            raise errors.ArgumentError(
                f"run: nothing was given for the placeholder {inputs}; run({missing[0].name}=…)"
            )
        if len(given) > len(self.placeholders):
            for p in self._graph.placeholders:
                if p.name in given:
                    _convert_feed(p, given[p.name])
        return [_convert_feed(p, given[p.name]) for p in self.placeholders]

    def _known_name(self, key: object) -> str:
        if isinstance(key, Placeholder) and key.graph is self._graph:
            return key.name
        names = [p.name for p in self._graph.placeholders]
        if isinstance(key, str) and key in names:
            return key
        raise errors.ArgumentError(
            f"run: a value for {key!r}, which is no placeholder of this graph; it has "
            f"{', '.join(names) or 'none'}"
        )

    @property
    def graph(self) -> Program:
        """The traced graph of the latest run."""
        return self._compiled.graph

    @property
    def kernels(self) -> Texts:
        """The kernels of the latest run, as readable texts."""
        return self._compiled.kernels

    @property
    def recompilations(self) -> list[str]:
        """Why each variant after the first was compiled."""
        return self._compiled.recompilations

    def explain(self, verbose: bool = False) -> Text:
        """What was compiled, for which shapes, how, and why again."""
        return self._compiled.explain(verbose)

    def __repr__(self) -> str:
        asked = ", ".join(f"{p.name}={list(p.shape)}" for p in self.placeholders)
        return f"<compiled {self._graph.name}({asked})>"


def _argument(name: str) -> str:
    return name if name.isidentifier() else f"p{abs(hash(name))}"


def _check_fetch(graph: "Graph", x: Any) -> Value | Update | None:
    if x is None or (isinstance(x, Value | Update) and x.graph is graph):
        return x
    if isinstance(x, Value | Update):
        raise errors.ArgumentError(f"compile: {x!r} is of another graph")
    raise errors.DTypeError(
        f"compile: got a {type(x).__name__} to fetch, expected values of the graph"
    )


def _in_order(updates: list[Update]) -> list[Update]:
    """The updates in order; raises if two of them change one variable."""
    by: dict[Variable, Update] = {}
    made = list(dict.fromkeys(updates))
    for update in made:
        for v in update.variables:
            if v in by:
                raise errors.ArgumentError(
                    f"compile: {v.label} would be changed twice in a run, by {by[v]!r} and by "
                    f"{update!r}; fetch them in runs of their own"
                )
            by[v] = update
    return made


def _fetch(replay: Replay, x: Any) -> Any:
    """The result of a fetch; values are those before the updates."""
    if isinstance(x, Update):
        x = x.result
    known = replay.resolve(x)
    if known.__class__ not in TENSORS:
        return known
    plain = isinstance(x, Placeholder | Variable)
    return known.detach().clone() if plain else known.detach()


def _convert_feed(p: GraphTensor, value: Any) -> Tensor:
    """A value for a placeholder, in its dtype."""
    x = value if value.__class__ in TENSORS else asarray(value)
    if x.__class__ in BOXED or (x.requires_grad and current.get().grad):
        raise errors.InterchangeError(
            f"run: a tensor for {p.label} that is being differentiated, batched or compiled, which "
            "would end there; use g.gradients in the graph and give it x.detach(), or compile a "
            "function with wf.compile"
        )
    x = x.detach() if x.requires_grad else x
    if x.shape != p.shape and not _fits(x.shape, p.shape):
        raise errors.ShapeError(f"run: shape {x.shape} for {p.label}, expected {p.shape}")
    if x.dtype == p.dtype:
        return x
    if dtypes.rank(x.dtype) > dtypes.rank(p.dtype):
        raise errors.DTypeError(f"run: {x.dtype} for {p.label}, expected {p.dtype}")
    made = x.to(p.dtype)
    if not dtypes.is_inexact(p.dtype) and not bool((made == x).all()):
        raise errors.ArgumentError(f"run: {x.dtype} for {p.label} with numbers beyond {p.dtype}")
    return made


def _fits(shape: Sizes, wanted: Sizes) -> bool:
    pairs = zip(shape, wanted, strict=False)
    return len(shape) == len(wanted) and all([want in (None, n) for n, want in pairs])
