"""Host scalars: numbers that Python computes before each call, such as rates and counts."""

import operator
import sys
from collections.abc import Callable
from functools import partial
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import errors
from ...arrays.make import asarray
from ...arrays.numpy_calls import is_known
from ...arrays.tensor import Tensor
from ...core.backends import PYTHON_SCALARS
from ...core.exact import Exact

if TYPE_CHECKING:
    from .capture import Capture

_PACKAGE = str(Path(__file__).parents[2])


class Host:
    """A host scalar: a Python number that each call reads anew, with a number's operators.

    Python does arithmetic on it at each call, in double precision as always; in an operation with a
    tensor it is a scalar of the tensor's dtype. Where the trace needs its value (a comparison,
    `range`, `math`), it uses the current one, and a guard requires the same outcome at each call.
    """

    __slots__ = ("formula", "label", "read", "staging")
    staging: "Capture"
    label: str
    read: Callable[[], Any]
    formula: "Formula | None"  # of a number that operators made of others

    def __init__(
        self,
        staging: "Capture",
        label: str,
        read: Callable[[], Any],
        formula: "Formula | None" = None,
    ):
        self.staging, self.label, self.read, self.formula = staging, label, read, formula

    def flat(self) -> Callable[[], Any]:
        """`read` as one function, which calls no other for each operator."""
        if self.formula is None or len(self.label) > _LONG:
            return self.read
        names: dict[str, Any] = {}
        return eval(f"lambda: {_written(self, names)}", names)

    def decide(self, what: str, decide: Callable[[Any], Any]) -> Any:
        """`decide` of the current value, with a guard for the outcome."""
        read = self.read
        return self.staging.depends(f"{what} of {self.label}", lambda: decide(read()))

    def __bool__(self) -> bool:
        return self.decide("the truth", bool)

    def __float__(self) -> float:
        return float(self.__weft_value__())

    def __int__(self) -> int:
        return self.decide("the integer part", int)

    def __index__(self) -> int:
        return self.decide("the index", operator.index)

    def __round__(self, digits: int | None = None) -> float:
        self.decide(f"the value rounded to {digits}", lambda v: Exact(round(v, digits)))
        return round(self.read(), digits)

    def __trunc__(self) -> int:
        return self.decide("the integer part", int)

    def __hash__(self) -> int:
        return hash(self.__weft_value__())

    def __str__(self) -> str:
        return str(self.__weft_value__())

    def __format__(self, spec: str) -> str:
        return format(self.__weft_value__(), spec)

    def __repr__(self) -> str:
        return repr(self.__weft_value__())

    def __getattr__(self, name: str) -> Any:
        """Other attributes of floats: `is_integer`, `hex`, `real`."""
        if name.startswith("__") or not hasattr(float, name):
            raise AttributeError(f"'float' object has no attribute {name!r}")
        return getattr(self.__weft_value__(), name)

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # type: ignore[override]
        """The class for `isinstance`: the number's own, except in calls from this package."""
        asking = sys._getframe(1).f_code.co_filename
        return Host if asking.startswith(_PACKAGE) else self.decide("the type", type)

    def __weft_value__(self) -> Any:
        """The current value, with a guard for it: the program is specialised on it."""
        self.decide("the value", Exact)
        return self.read()

    def __weft_number__(self, dtype: np.dtype | None) -> Tensor:
        """The number as a tensor."""
        return self.staging.number(self, dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """A NumPy function gives a tensor, of numbers alone too: NumPy's result has a dtype."""
        if any([isinstance(x, np.ndarray) for x in inputs]):
            return self._beside_arrays(ufunc, method, inputs, options)
        if method != "__call__" or options or not all(map(_is_number, inputs)):
            return NotImplemented
        reads = [x.read if type(x) is Host else partial(_same, x) for x in inputs]
        label = f"{ufunc.__name__}({', '.join(map(_label_of, inputs))})"
        made = Host(self.staging, label, lambda: ufunc(*[read() for read in reads]))
        dtype = np.asarray(made.read()).dtype
        if dtype.kind != "f":
            return made.__weft_value__()
        return self.staging.number(made, dtype)

    def _beside_arrays(
        self, ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        arrays = [x for x in inputs if isinstance(x, np.ndarray)]
        if method != "__call__" or options or any([x.dtype == object for x in arrays]):
            raise errors.StagingError(
                f"compile: np.{ufunc.__name__} would write {self.label}, which differs from call "
                "to call, into an array of NumPy's; use tensors, or float(number), for which "
                "the program is made anew for each value"
            )
        if not is_known(ufunc):  # NumPy computes it, specialised on the current value
            return ufunc(*[x.__weft_value__() if type(x) is Host else x for x in inputs])
        value = self.read()
        wide = [asarray(x.astype(np.result_type(x, value), copy=False)) for x in arrays]
        given = iter(wide)
        return ufunc(*[next(given) if isinstance(x, np.ndarray) else x for x in inputs])


Real.register(Host)

Formula = tuple[str, tuple[Any, ...]]  # Python's text with {} for each operand, and these
_LONG = 1000  # characters of a label: Python's parser knows some hundred nested brackets


def _written(x: Any, names: dict[str, Any]) -> str:
    """A number as Python's text; what it stands for goes to `names`."""
    if type(x) is Host and x.formula is not None:
        text, operands = x.formula
        return text.format(*[_written(operand, names) for operand in operands])
    name = f"v{len(names)}"
    names[name] = x.read if type(x) is Host else x
    return f"{name}()" if type(x) is Host else name


def _is_number(x) -> bool:
    return type(x) is Host or type(x) in PYTHON_SCALARS or isinstance(x, np.generic)


def _same(x):
    return x


def _label_of(x) -> str:
    return x.label if type(x) is Host else repr(x)


def _combine(name: str, sign: str, reflected: bool) -> Callable:
    function, text = getattr(operator, name), f"({{}} {sign} {{}})"

    def combined(self: Host, other):
        if type(other) is Host:
            mine, its = self.read, other.read
            label = f"({self.label} {sign} {other.label})"
            formula = text, (self, other)
            return Host(self.staging, label, lambda: function(mine(), its()), formula)
        if type(other) not in PYTHON_SCALARS:
            return NotImplemented
        mine = self.read
        if reflected:
            label = f"({other!r} {sign} {self.label})"
            return Host(self.staging, label, lambda: function(other, mine()), (text, (other, self)))
        label = f"({self.label} {sign} {other!r})"
        return Host(self.staging, label, lambda: function(mine(), other), (text, (self, other)))

    return combined


def _compare(name: str, sign: str) -> Callable:
    function = getattr(operator, name)

    def compared(self: Host, other):
        if type(other) is Host:
            its = other.read
            return self.decide(f"({sign} {other.label})", lambda v: function(v, its()))
        if type(other) not in PYTHON_SCALARS:
            return NotImplemented
        return self.decide(f"({sign} {other!r})", lambda v: function(v, other))

    return compared


def _alone(function: Callable, sign: str) -> Callable:
    def applied(self: Host) -> Host:
        mine = self.read
        return Host(self.staging, f"{sign}{self.label}", lambda: function(mine()))

    return applied


for _name, _sign in {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "truediv": "/",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
}.items():
    setattr(Host, f"__{_name}__", _combine(_name, _sign, False))
    setattr(Host, f"__r{_name}__", _combine(_name, _sign, True))
for _name, _sign in {"lt": "<", "le": "≤", "gt": ">", "ge": "≥", "eq": "=", "ne": "≠"}.items():
    setattr(Host, f"__{_name}__", _compare(_name, _sign))
for _name, _sign in {"neg": "-", "pos": "+", "abs": "abs "}.items():
    setattr(Host, f"__{_name}__", _alone(getattr(operator, _name), _sign))
