"""`wf.Graph`: a static graph, built value by value, differentiated and compiled."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import errors
from ...arrays.inplace import copy_
from ...arrays.make import asarray, tensor
from ...arrays.parameter import Parameter
from ...arrays.tensor import Tensor
from ...core import dtypes
from ...core.aval import integer_in
from ...core.origin import origin
from ...core.value import TENSORS
from ...graph.picture import draw
from .calls import GradientsCall, GraphCall, Update, replaying
from .names import SECTIONS, Section, functions, unknown
from .picture import picture_of, text_of
from .probe import SIZES, ShapeProbe
from .trees import leaves, map_tree
from .values import GraphNumber, GraphTensor, Placeholder, Sizes, Value, Variable

if TYPE_CHECKING:
    from ...arrays.types import ArrayLike, DTypeLike
    from .function import GraphFunction

Source = GraphTensor | Parameter  # what gradients can be taken with respect to
# An optimizer's step, on (name, parameter, gradient) triples.
Step = Callable[[list[tuple[str, Parameter, Tensor]]], Any]


class Graph:
    """A program that is built first and run later, by the same compiler as `wf.compile`.

    name  what messages call it

    Every function of `wf`, `wf.nn.functional`, `wf.linalg`, `wf.fft` and `wf.special` is a method,
    and records a call: `g.matmul(x, w)`. So do operators and methods of values. Shapes are inferred
    at once, with None for sizes that differ between runs, so errors are raised at the line that
    makes them. In a run all variables are read first and changed last. Graphs run on the CPU; what
    `wf.compile` is given runs where its tensors are.

    >>> import weft as wf
    >>> g = wf.Graph()
    >>> x = g.placeholder("x", (None, 2))
    >>> w = g.variable("w", [[1.0], [2.0]])
    >>> loss = g.mean((x @ w) ** 2)
    >>> run = g.compile([loss, *g.gradients(loss, [w])])
    >>> value, slope = run(x=[[1.0, 1.0]])
    >>> value.item(), slope.tolist()
    (9.0, [[6.0], [6.0]])
    """

    def __init__(self, name: str = "graph"):
        self.name = name
        self.placeholders: list[Placeholder] = []
        self.variables: list[Variable] = []
        self.calls: list[GraphCall] = []
        self.made: dict[GraphCall, list[Value]] = {}  # the values of each call
        self._probes = [ShapeProbe(self, size) for size in SIZES]

    # Inputs

    def placeholder(
        self, name: str, shape: int | Sequence[int | None], dtype: "DTypeLike | None" = None
    ) -> Placeholder:
        """An input of each run: `run(name=…)`.

        name   its name as an argument of runs
        shape  the sizes; None for one that differs between runs, which are specialised on it
        dtype  None: the default dtype, float32

        >>> import weft as wf
        >>> g = wf.Graph()
        >>> x = g.placeholder("x", (None, 2))
        >>> run = g.compile(x * 2.0)
        >>> run(x=[[1.0, 2.0]]).tolist()
        [[2.0, 4.0]]
        """
        self._check_name("placeholder", name)
        dtype = dtypes.default_float() if dtype is None else dtypes.canonical(dtype)
        made = Placeholder(self, name, _sizes(name, shape), dtype, origin())
        for probe in self._probes:
            probe.enter(made)
        self.placeholders.append(made)
        return made

    def variable(
        self,
        name: str,
        init: "Parameter | ArrayLike",
        dtype: "DTypeLike | None" = None,
        trainable: bool = True,
    ) -> Variable:
        """A tensor that the graph keeps between runs, and that runs can change.

        name       its name in `state_dict()`
        init       its initial value: numbers, an array, a tensor, or a `wf.Parameter` to use
        dtype      None: that of `init`
        trainable  whether gradients with respect to it are wanted

        >>> import weft as wf
        >>> g = wf.Graph()
        >>> w = g.variable("w", [1.0, 2.0])
        >>> g.compile(w * 2.0)().tolist()
        [2.0, 4.0]
        """
        self._check_name("variable", name)
        if isinstance(init, Value):
            raise errors.DTypeError(
                f"variable: {name!r} cannot begin with a value of a graph ({init.label}), which "
                "has no numbers yet; give numbers, and assign the value in a run: w.assign(value)"
            )
        if not isinstance(init, Parameter) or dtype is not None:
            given = tensor(init, dtype=dtype)
            init = Parameter(given, trainable and dtypes.is_inexact(given.dtype))
        made = Variable(self, name, init, origin())
        self.variables.append(made)
        return made

    def constant(self, value: "ArrayLike", dtype: "DTypeLike | None" = None) -> GraphTensor:
        """A tensor that is the same in all runs.

        value  numbers, an array or a tensor
        dtype  None: that of the value

        >>> import weft as wf
        >>> g = wf.Graph()
        >>> g.compile(g.constant([1.0, 2.0]) * 2.0)().tolist()
        [2.0, 4.0]
        """
        held = tensor(value, dtype=dtype)
        return self._add(GraphCall(len(self.calls), "constant", lambda: held, (), {}, origin()))

    def _check_name(self, what: str, name: object) -> None:
        if not isinstance(name, str) or not name:
            raise errors.DTypeError(f"{what}: got {name!r}, expected a name first")
        for other in (*self.placeholders, *self.variables):
            if other.name == name:
                raise errors.ArgumentError(
                    f"{what}: the name {name!r} is taken, by {other.label}; give another one"
                )

    # Calls

    def record(
        self,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Record a call; its results are values of the graph."""
        kwargs = kwargs or {}
        replay = replaying.get()
        if replay is not None and replay.graph is self:
            return function(*map_tree(replay.resolve, args), **map_tree(replay.resolve, kwargs))
        return self._record(GraphCall, name, function, args, kwargs)

    def resolve(self, value: GraphTensor) -> Tensor:
        """The tensor of a value during a replay; raises outside of one."""
        replay = replaying.get()
        if replay is None or replay.graph is not self:
            raise value.not_here()
        return replay.resolve(value)

    def _record(
        self,
        kind: type[GraphCall],
        name: str,
        function: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        foreign: bool = False,
    ) -> Any:
        for x in leaves((args, kwargs)):
            self._check_operand(name, x)
        args, kwargs = map_tree(_keep_argument, args), map_tree(_keep_argument, kwargs)
        number = len(self.calls)
        return self._add(kind(number, name, function, args, kwargs, origin(), foreign))

    def _add(self, call: GraphCall) -> Any:
        """Infer the shapes of a call's results, and add it to the graph."""
        try:
            first, second = [probe.compute(call) for probe in self._probes]
            made = self._values(call, first, second)
        except Exception as failure:
            for probe in self._probes:
                probe.forget(call)
            unknown = [v for v in call.operands if isinstance(v, GraphTensor) and None in v.shape]
            if unknown and isinstance(failure, errors.WeftError):
                failure.add_note(
                    f"None in a shape stands for any size, and {SIZES[0]} was tried; give the size "
                    "in g.placeholder(…) if only one will do"
                )
            raise
        self.calls.append(call)
        self.made[call] = [x for x in leaves(made) if isinstance(x, Value)]
        return made

    def _check_operand(self, name: str, x: object) -> None:
        if isinstance(x, Update):
            raise errors.DTypeError(
                f"{name}: got {x!r}, a change that is fetched, g.compile([…]), not computed with"
            )
        if isinstance(x, Value) and x.graph is not self:
            raise errors.ArgumentError(
                f"{name}: {x.label} is of another graph ({x.graph.name!r}); fetch it there, and "
                "give it to a placeholder here"
            )

    def _values(self, call: GraphCall, first: Any, second: Any) -> Any:
        """The results of a call as values, from its results at two probe sizes."""
        ones, others = list(leaves(first)), list(leaves(second))
        if len(ones) != len(others):
            raise errors.StagingError(
                f"{call.name}: how many results there are depends on a size that differs between "
                "runs"
            )
        made = iter([self._value(call, k, a, b) for k, (a, b) in enumerate(zip(ones, others))])  # noqa: B905
        return map_tree(lambda _: next(made), first)

    def _value(self, call: GraphCall, position: int, a: Any, b: Any) -> Any:
        if a.__class__ in TENSORS:
            if len(a.shape) != len(b.shape):
                raise errors.StagingError(
                    f"{call.name}: how many axes the result has depends on a size that differs "
                    "between runs"
                )
            shape = tuple([n if n == m else None for n, m in zip(a.shape, b.shape, strict=True)])
            return GraphTensor(self, call, position, shape, a.dtype)
        same = a is b or (type(a) is type(b) and isinstance(a, bool | int | float | str) and a == b)
        return a if same else GraphNumber(self, call, position)

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """`function(*args, **kwargs)`, a function of tensors or a module, as part of the graph.

        function      the function or module
        args, kwargs  its arguments, which may be or contain values of the graph

        >>> import weft as wf
        >>> g = wf.Graph()
        >>> x = g.placeholder("x", (2,))
        >>> run = g.compile(g.call(lambda x: (x * x).sum(), x))
        >>> run(x=[3.0, 4.0]).item()
        25.0
        """
        if not callable(function):
            raise errors.DTypeError(f"call: got a {type(function).__name__}, expected a function")
        name = getattr(function, "__name__", type(function).__name__)
        return self._record(GraphCall, name, function, args, kwargs, foreign=True)

    def length(self, x: GraphTensor, axis: int = 0) -> "int | GraphNumber":
        """The size of x along an axis: an int, or a symbolic number if it differs between runs.

        x     a value of the graph
        axis  the axis

        >>> import weft as wf
        >>> g = wf.Graph()
        >>> x = g.placeholder("x", (None, 2))
        >>> g.length(x, 1)
        2
        """
        self._check_operand("length", x)
        axis = integer_in("length", "axis", axis)
        if not -x.ndim <= axis < x.ndim:
            raise errors.AxisError(f"length: axis {axis} of a value of shape {x.shape}")
        size = x.shape[axis]
        return self.record("length", lambda t: t.shape[axis], (x,)) if size is None else size

    def gradients(
        self,
        targets: GraphTensor | Sequence[GraphTensor],
        sources: Source | Sequence[Source],
        output_gradients: "GraphTensor | ArrayLike | None" = None,
    ) -> Any:
        """∂targets/∂sources, summed over the targets, as values of the graph.

        targets           a value, or several
        sources           values (or `wf.Parameter`s); the gradient of one that no target depends on
                          is None
        output_gradients  a cotangent for each target; by default ones

        >>> import weft as wf
        >>> g = wf.Graph()
        >>> w = g.variable("w", [3.0])
        >>> (slope,) = g.gradients(g.sum(w * w), [w])
        >>> g.compile(slope)().tolist()
        [6.0]
        """
        many = isinstance(sources, list | tuple)
        listed = [targets] if isinstance(targets, Value) else list(targets)
        wanted = list(sources) if many else [sources]
        for x in wanted:
            if not isinstance(x, GraphTensor | Parameter):
                raise errors.DTypeError(
                    f"gradients: a {type(x).__name__} among the sources, expected values of the "
                    "graph"
                )
        seeds = output_gradients
        if seeds is not None and not isinstance(seeds, list | tuple):
            seeds = [seeds]
        if seeds is not None:
            seeds = [s if isinstance(s, Value) else self.constant(s) for s in seeds]
        found = self._record(GradientsCall, "gradients", None, (listed, wanted, seeds), {})
        return found if many else found[0]

    # Updates

    def assign(self, variable: Variable, value: "GraphTensor | ArrayLike") -> Update:
        """An update that assigns a value to a variable when fetched; the fetch gives the value.

        variable  the variable
        value     a value of the graph, of its shape

        >>> import weft as wf
        >>> g = wf.Graph()
        >>> w = g.variable("w", [1.0])
        >>> run = g.compile(g.assign(w, w * 2.0))
        >>> run().tolist(), run().tolist()
        ([2.0], [4.0])
        """
        if not isinstance(variable, Variable):
            raise errors.DTypeError(
                f"assign: got {variable!r}, expected a variable of this graph first"
            )
        self._check_operand("assign", variable)
        self._check_operand("assign", value)
        value = value if isinstance(value, GraphTensor) else self.constant(value, variable.dtype)
        fitted = self.record("assign", _fit_value, (value, variable.dtype, variable.shape))
        parameter = variable.parameter
        return Update(
            self,
            "assign",
            (variable,),
            (fitted,),
            lambda values: copy_(parameter, values[0].detach()),
            origin(),
            fitted,
        )

    def update(self, name: str, step: Step, pairs: Iterable[tuple[Any, Any]]) -> Update:
        """A step of an optimizer: `step` with (name, parameter, gradient) triples."""
        pairs = [(v, g) for v, g in pairs if g is not None]
        for variable, gradient in pairs:
            self._check_pair(name, variable, gradient)
        if not pairs:
            raise errors.ArgumentError(f"{name}: no variable has a gradient")
        variables = tuple([v for v, _ in pairs])

        def change(gradients: list[Tensor]) -> None:
            given = zip(variables, gradients, strict=True)
            step([(v.name, v.parameter, g.detach()) for v, g in given])

        return Update(self, name, variables, tuple([g for _, g in pairs]), change, origin())

    def _check_pair(self, name: str, variable: object, gradient: object) -> None:
        if not isinstance(variable, Variable) or not isinstance(gradient, GraphTensor):
            raise errors.DTypeError(
                f"{name}: got {variable!r} and {gradient!r}, expected a variable of the graph and "
                "its gradient"
            )
        self._check_operand(name, variable)
        self._check_operand(name, gradient)
        if gradient.shape != variable.shape:
            raise errors.ShapeError(
                f"{name}: a gradient of shape {gradient.shape} for {variable.label} of shape "
                f"{variable.shape}"
            )

    # Compiling, drawing, state

    def compile(self, fetches: Any, max_variants: int = 8) -> "GraphFunction":
        """A function that runs the graph: `run(x=…)` gives the values of `fetches`.

        fetches       values and updates: one, or lists, tuples and dicts of them
        max_variants  the largest number of combinations of shapes that it is compiled for

        >>> import weft as wf
        >>> g = wf.Graph()
        >>> x = g.placeholder("x", (2,))
        >>> run = g.compile({"sum": g.sum(x), "double": x * 2.0})
        >>> run(x=[1.0, 2.0])["sum"].item()
        3.0
        """
        from .function import GraphFunction  # at first use: it loads LLVM

        return GraphFunction(self, fetches, max_variants)

    def draw(self, path: str | PathLike[str] | None = None, format: str = "svg") -> str:
        """A picture of the graph as it was built, as text.

        path    a file to write it to as well; its suffix may give the format
        format  "svg", or "dot" for Graphviz

        >>> import weft as wf
        >>> g = wf.Graph()
        >>> y = g.placeholder("x", (2,)) * 2.0
        >>> g.draw(format="dot").startswith("digraph")
        True
        """
        return draw(picture_of(self), path, format)

    def __str__(self) -> str:
        return text_of(self)

    def parameters(self) -> list[Parameter]:
        """The parameters of the variables.

        >>> import weft as wf
        >>> g = wf.Graph()
        >>> w = g.variable("w", [1.0])
        >>> [p.tolist() for p in g.parameters()]
        [[1.0]]
        """
        return [v.parameter for v in self.variables]

    def named_parameters(self) -> list[tuple[str, Parameter]]:
        """The parameters of the variables with their names.

        >>> import weft as wf
        >>> g = wf.Graph()
        >>> w = g.variable("w", [1.0])
        >>> [name for name, p in g.named_parameters()]
        ['w']
        """
        return [(v.name, v.parameter) for v in self.variables]

    def state_dict(self) -> dict[str, Tensor]:
        """The values of the variables by name, as copies.

        >>> import weft as wf
        >>> g = wf.Graph()
        >>> w = g.variable("w", [1.0])
        >>> list(g.state_dict())
        ['w']
        """
        return {v.name: v.value for v in self.variables}

    def load_state_dict(self, state: "Mapping[str, ArrayLike]") -> None:
        """Set the variables to the values of a `state_dict`.

        state  arrays by name

        >>> import weft as wf
        >>> g = wf.Graph()
        >>> w = g.variable("w", [1.0])
        >>> g.load_state_dict({"w": [5.0]})
        >>> g.compile(w * 2.0)().tolist()
        [10.0]
        """
        have, want = set(state), {v.name for v in self.variables}
        if have != want:
            raise errors.StateMismatch(
                f"load_state_dict: missing {sorted(want - have)}, unexpected {sorted(have - want)}"
            )
        values = {v: asarray(state[v.name]) for v in self.variables}
        for v, x in values.items():
            if x.shape != v.shape:
                raise errors.StateMismatch(
                    f"load_state_dict: shape {x.shape} for {v.label}, expected {v.shape}"
                )
        for v, x in values.items():
            v.value = x

    # The public functions

    def recorder(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that records calls of `function`."""

        def recorded(*args, **kwargs):
            return self.record(name, function, args, kwargs)

        recorded.__name__ = recorded.__qualname__ = name
        recorded.__doc__ = f"`wf`'s {name}, recorded in the graph.\n\n{function.__doc__}"
        return recorded

    def __getattr__(self, name: str) -> Any:
        if name in SECTIONS:
            return Section(self, name)
        if name.startswith("_") or name not in functions():
            raise AttributeError(unknown("a graph", name, functions()))
        return self.recorder(name, functions()[name])

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *functions(), *SECTIONS})

    def __repr__(self) -> str:
        return (
            f"<graph {self.name}: {len(self.placeholders)} placeholders, {len(self.variables)} "
            f"variables, {len(self.calls)} calls>"
        )


def _sizes(name: str, shape: Any) -> Sizes:
    if shape is None or isinstance(shape, str | ModuleType):
        raise errors.ShapeError(
            f"placeholder: {name!r} needs a shape: (None, 784), with None for sizes that differ "
            "between runs, or () for a number"
        )
    dims = (shape,) if isinstance(shape, int) else tuple(shape)
    made = [None if n is None else integer_in("placeholder", "shape", n) for n in dims]
    if any([n is not None and n < 0 for n in made]):
        raise errors.ShapeError(f"placeholder: {name!r} of shape {dims} has a negative size")
    return tuple(made)


def _keep_argument(x: Any) -> Any:
    """An argument as the graph keeps it: arrays are copied, as the caller may change them."""
    return x.copy() if isinstance(x, np.ndarray) else x


def _fit_value(x: Tensor, dtype: np.dtype, shape: Sizes) -> Tensor:
    """A copy of x in a variable's dtype; raises for another shape."""
    if x.shape != shape:
        raise errors.ShapeError(f"assign: a value of shape {x.shape} for a variable of {shape}")
    return x.to(dtype).clone()
