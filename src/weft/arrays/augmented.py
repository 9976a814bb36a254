"""Augmented assignment: `x += v` rebinds the value of x, for all holders of x."""

import operator
import sys
from collections.abc import Callable
from typing import Any

from .. import errors
from ..core import dtypes
from ..core.value import TENSORS
from ..ops.structural import cast
from .indexing import become, check_assignable

_SYMBOLS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "truediv": "/",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
    "matmul": "@",
    "and_": "&",
    "or_": "|",
    "xor": "^",
    "lshift": "<<",
    "rshift": ">>",
}


class _AssignmentProbe:
    """Counts the references to itself in an augmented assignment."""

    count: int

    def __iadd__(self, other):
        _AssignmentProbe.count = sys.getrefcount(self)
        return self


def _references_to_a_temporary() -> int:
    """What an operator counts for `y[i]` in `y[i] += v`, which then assigns to y[i]."""
    named = _AssignmentProbe()
    named += 1
    return _AssignmentProbe.count - 1


_TEMPORARY = _references_to_a_temporary()


def _in_place_operator(symbol: str, compute):
    def assign(self, other):
        """What `x = x op v` computes, assigned to the tensor itself."""
        if self._share.__class__ is list and sys.getrefcount(self) <= _TEMPORARY:
            return compute(self, other)  # y[i] += v, where y is assigned to next
        check_assignable(self, f"x {symbol}= v", f"x = x {symbol} v")
        new = compute(self, other)
        if new.__class__ not in TENSORS:
            return new  # another library's object handled it
        become(self, _fit(self, new, symbol))
        return self

    return assign


def _fit(x, new, symbol: str):
    """A new value for x, cast to its dtype; another shape or kind is refused."""
    if new.shape != x.shape:
        raise errors.ShapeError(
            f"x {symbol}= v: the result has the shape {new.shape}, x has {x.shape}, which does not "
            f"change; write x = x {symbol} v"
        )
    if new.dtype == x.dtype:
        return new
    if _rank(new.dtype) > _rank(x.dtype):
        raise errors.DTypeError(
            f"x {symbol}= v: the result is {new.dtype}, x is {x.dtype}, which does not change; "
            f"write x = x {symbol} v"
        )
    return cast(new, x.dtype)


_RANKS = ("bool", "unsigned integer", "signed integer", "real floating", "complex floating")


def _rank(dtype) -> int:
    return _RANKS.index(dtypes.kind(dtype))


METHODS: dict[str, Callable[[Any, Any], Any]] = {
    f"__i{name.rstrip('_')}__": _in_place_operator(symbol, getattr(operator, name))
    for name, symbol in _SYMBOLS.items()
}
