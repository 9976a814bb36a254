"""The values of a graph: the calls that compute them, and their operators."""

import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import errors
from ...arrays.inplace import copy_
from ...arrays.namespace import METHODS
from ...arrays.parameter import Parameter
from ...arrays.tensor import Tensor
from ...core.origin import Origin, line_of
from ...core.settings import override_settings

if TYPE_CHECKING:
    from ...arrays.types import ArrayLike
    from .calls import GraphCall, Update
    from .graph import Graph

# Methods of tensors that values of a graph do not have: they write into memory or create tensors.
_NOT_METHODS = {"at", "copy_", "view_as"} | {n for n in METHODS if n.endswith("_into")}
_METHODS = {n for n in METHODS if not n.startswith("_")} - _NOT_METHODS
_METHODS -= {n for n in METHODS if isinstance(vars(Tensor).get(n), staticmethod)}
_METHODS |= {"detach", "to"}
_READING = ("item", "numpy", "tolist", "to_vec", "to_scalar", "torch")

Sizes = tuple[int | None, ...]  # None for one that differs between runs


class Value:
    """A value that a graph computes: the result of a call at `position`."""

    graph: "Graph"
    call: "GraphCall"
    position: int

    __array_ufunc__ = None  # NumPy leaves `array * value` to the value

    if TYPE_CHECKING:  # operators are set by `_install`

        def __add__(self, other: Any) -> Any: ...
        def __radd__(self, other: Any) -> Any: ...

        def __sub__(self, other: Any) -> Any: ...
        def __rsub__(self, other: Any) -> Any: ...

        def __mul__(self, other: Any) -> Any: ...
        def __rmul__(self, other: Any) -> Any: ...

        def __truediv__(self, other: Any) -> Any: ...
        def __rtruediv__(self, other: Any) -> Any: ...

        def __floordiv__(self, other: Any) -> Any: ...
        def __rfloordiv__(self, other: Any) -> Any: ...

        def __mod__(self, other: Any) -> Any: ...
        def __rmod__(self, other: Any) -> Any: ...

        def __pow__(self, other: Any) -> Any: ...
        def __rpow__(self, other: Any) -> Any: ...

        def __matmul__(self, other: Any) -> Any: ...
        def __rmatmul__(self, other: Any) -> Any: ...

        def __and__(self, other: Any) -> Any: ...
        def __rand__(self, other: Any) -> Any: ...

        def __or__(self, other: Any) -> Any: ...
        def __ror__(self, other: Any) -> Any: ...

        def __xor__(self, other: Any) -> Any: ...
        def __rxor__(self, other: Any) -> Any: ...

        def __lshift__(self, other: Any) -> Any: ...
        def __rlshift__(self, other: Any) -> Any: ...

        def __rshift__(self, other: Any) -> Any: ...
        def __rrshift__(self, other: Any) -> Any: ...

        def __lt__(self, other: Any) -> Any: ...

        def __le__(self, other: Any) -> Any: ...

        def __gt__(self, other: Any) -> Any: ...

        def __ge__(self, other: Any) -> Any: ...

        def __neg__(self) -> Any: ...

        def __pos__(self) -> Any: ...

        def __abs__(self) -> Any: ...

        def __invert__(self) -> Any: ...

    def __init__(self, graph: "Graph", call: "GraphCall", position: int):
        self.graph, self.call, self.position = graph, call, position

    @property
    def origin(self) -> Origin:
        """The user's line that made it."""
        return self.call.origin

    @property
    def line(self) -> str:
        """The user's file and line that made it."""
        return line_of(*self.origin)

    @property
    def label(self) -> str:
        """Its name in messages and pictures."""
        return f"{self.call.name} at {self.line}"

    def _unknown(self, what: str) -> errors.StagingError:
        return errors.StagingError(
            f"{what} of a value of a graph ({self.label}), which has none before the graph is run; "
            "fetch it: run = g.compile([value]), or branch with g.where or g.cond"
        )

    def __bool__(self) -> bool:
        raise self._unknown("the truth")

    def __int__(self) -> int:
        raise self._unknown("the number")

    def __float__(self) -> float:
        raise self._unknown("the number")

    def __index__(self) -> int:
        raise self._unknown("the number")


class GraphTensor(Value):
    """A tensor that a graph computes, with the part of its shape that all runs share.

    shape   with None for a size that differs between runs; `x.length(axis)` gives it
    """

    def __init__(
        self, graph: "Graph", call: "GraphCall", position: int, shape: Sizes, dtype: np.dtype
    ):
        super().__init__(graph, call, position)
        self.shape: Sizes = shape
        self.dtype: np.dtype = dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def length(self, axis: int = 0) -> "int | GraphNumber":
        """The size along an axis: an int, or a symbolic number if it differs between runs."""
        return self.graph.length(self, axis)

    def __len__(self) -> int:
        if not self.shape:
            raise errors.Unsized("len(): a value without axes")
        if self.shape[0] is None:
            raise errors.StagingError(
                f"len() of a value of a graph ({self.label}) of shape {self.shape}, whose size "
                "differs between runs; x.length() stands for it"
            )
        return self.shape[0]

    def __getitem__(self, index: Any) -> "GraphTensor":
        return self.graph.record("index", operator.getitem, (self, index))

    def __iter__(self) -> Iterator["GraphTensor"]:
        return (self[i] for i in range(len(self)))

    def __contains__(self, x: object) -> bool:
        raise self._unknown("whether something is in the values")

    def __weft_tensor__(self) -> Tensor:
        """Its tensor during a replay of its graph."""
        return self.graph.resolve(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise self.not_here()

    def not_here(self) -> errors.InterchangeError:
        """The error for its use as a tensor outside of a replay."""
        return errors.InterchangeError(
            f"a value of a graph ({self.label}) outside of its graph, where it has no numbers; "
            "compute with the graph's own operations, g.name(…) for wf.name(…), with the value on "
            "the left of an operator, or fetch it: run = g.compile([value])"
        )

    def __setitem__(self, index: Any, value: Any) -> None:
        raise errors.StagingError(
            f"values of a graph do not change ({self.label}); make another one: g.where(…), "
            "g.concat(…), g.scatter(…)"
        )

    def __getattr__(self, name: str) -> Any:
        if name in _READING:
            raise self._unknown(f".{name}()")
        if name not in _METHODS:
            raise AttributeError(f"a value of a graph has no {name!r}")
        method = getattr(Tensor, name)
        if isinstance(method, property):
            return self.graph.record(name, operator.attrgetter(name), (self,))
        return lambda *args, **kwargs: self.graph.record(name, method, (self, *args), kwargs)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_METHODS})

    def __repr__(self) -> str:
        return f"<{self.call.name}: {self.dtype}{_sizes(self.shape)}>"


class GraphNumber(Value):
    """A symbolic Python number, computed from the shapes of a run."""

    def __repr__(self) -> str:
        return f"<{self.call.name}: a number>"


class Placeholder(GraphTensor):
    """An input tensor of each run."""

    def __init__(self, graph: "Graph", name: str, shape: Sizes, dtype: np.dtype, origin: Origin):
        super().__init__(graph, None, 0, shape, dtype)  # type: ignore[arg-type]  # no call makes it
        self.name: str = name
        self._origin = origin

    @property
    def origin(self) -> Origin:
        return self._origin

    @property
    def label(self) -> str:
        return f"the placeholder {self.name!r} at {self.line}"

    def __repr__(self) -> str:
        return f"<placeholder {self.name}: {self.dtype}{_sizes(self.shape)}>"


class Variable(GraphTensor):
    """A tensor that a graph keeps between runs.

    parameter      the `wf.Parameter` that holds it, for optimizers and files
    initial_value  its value at first
    """

    def __init__(self, graph: "Graph", name: str, parameter: Parameter, origin: Origin):
        super().__init__(graph, None, 0, parameter.shape, parameter.dtype)  # type: ignore[arg-type]
        self.name: str = name
        self.parameter: Parameter = parameter
        self._origin = origin
        self.initial_value: Tensor = parameter.detach().clone()

    @property
    def origin(self) -> Origin:
        return self._origin

    @property
    def label(self) -> str:
        return f"the variable {self.name!r} at {self.line}"

    @property
    def value(self) -> Tensor:
        """A copy of its current value; may be assigned."""
        return self.parameter.detach().clone()

    @value.setter
    def value(self, value: "ArrayLike") -> None:
        with override_settings(grad=False):
            copy_(self.parameter, value)

    def reset(self) -> None:
        """Set it to its initial value."""
        self.value = self.initial_value

    def assign(self, value: "GraphTensor | ArrayLike") -> "Update":
        """An update that assigns a value when it is fetched: `g.compile([w.assign(…)])`."""
        return self.graph.assign(self, value)

    def __repr__(self) -> str:
        return f"<variable {self.name}: {self.dtype}{_sizes(self.shape)}>"


def _sizes(shape: Sizes) -> str:
    return f"[{', '.join(map(str, shape))}]"


# The operators record Python's own functions, which a run applies to tensors.


def _forward(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def recorded(self: Value, *others):
        return self.graph.record(name, function, (self, *others))

    return recorded


def _backward(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def recorded(self: Value, other):
        return self.graph.record(name, function, (other, self))

    return recorded


_BOTH = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "pow",
    "matmul": "matmul",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift",
}
_ONE = {"neg": "negative", "pos": "positive", "abs": "abs", "invert": "bitwise_invert"}
_COMPARE = {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}
_COMPARE |= {"eq": "equal", "ne": "not_equal"}


def _install() -> None:
    for kind, name in (_BOTH | _ONE | _COMPARE).items():
        function = getattr(operator, f"__{kind}__")
        setattr(Value, f"__{kind}__", _forward(name, function))
        if kind in _BOTH:
            setattr(Value, f"__r{kind}__", _backward(name, function))


_install()
