"""Public elementwise functions: the table's rows under their public names, with `out=`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import errors
from ..core import dtypes
from ..core.backends import PYTHON_SCALARS
from ..core.call import caller
from ..core.numbers import unwrapped
from ..core.op import TABLE, Op
from ..core.value import TENSORS
from ..ops import complex_, elementwise, logic, special  # noqa: F401  (they fill the table)
from .arguments import boxed, boxed_beside
from .inplace import into
from .make import asarray

if TYPE_CHECKING:
    from collections.abc import Callable

    from .tensor import Tensor
    from .types import ArrayLike


def public(op: Op) -> Any:
    """The function users call for a row: tensors of whatever comes, and `out=`."""
    function: Any = (_unary, _binary, _ternary)[(op.arity or 1) - 1](op, caller(op, public=True))
    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = f"`{op.name}`, element by element; `out=` writes into a tensor's memory."
    function.op = op
    return function


def _unary(op: Op, call: Callable[..., Any]) -> Callable[..., Any]:
    def function(x, /, *, out=None):
        return call(x) if out is None else into(op, (x,), out)

    return function


def _binary(op: Op, call: Callable[..., Any]) -> Callable[..., Any]:
    def function(x, y, /, *, out=None):
        return call(x, y) if out is None else into(op, (x, y), out)

    return function


def _ternary(op: Op, call: Callable[..., Any]) -> Callable[..., Any]:
    def function(x, y, z, /, *, out=None):
        return call(x, y, z) if out is None else into(op, (x, y, z), out)

    return function


FUNCTIONS: dict[str, Any] = {op.name: public(op) for op in TABLE.values() if op.public == "weft"}
FUNCTIONS |= {s: f for f in list(FUNCTIONS.values()) for s in f.op.spell}

sqrt: Callable[..., Tensor] = FUNCTIONS["sqrt"]
exp: Callable[..., Tensor] = FUNCTIONS["exp"]


def pow(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """xʸ; the derivative of x⁰ at 0 is 0, and x² has the second derivative 2 there."""
    if out is not None:
        return into(TABLE["pow"], (x, y), out)
    y = y if type(y) in TENSORS else unwrapped(y)
    if type(y) in PYTHON_SCALARS and type(x) not in PYTHON_SCALARS:
        return elementwise.power_scalar(boxed(x), y)
    return elementwise.pow_(boxed(x), y)


def where(condition: ArrayLike, x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """x1 where the condition holds, x2 elsewhere; the branch not taken gets an exact zero."""
    given: Any = condition
    if type(given) in TENSORS and given._data.dtype is dtypes.bool_:
        if type(x1) in TENSORS:
            return elementwise.where(given, x1, x2)
    scalar = type(x1) in PYTHON_SCALARS and type(x2) in PYTHON_SCALARS
    condition = boxed(condition)
    if condition.dtype is not dtypes.bool_:
        raise errors.DTypeError(
            f"where: a condition of {condition.dtype}, expected bool: write condition != 0"
        )
    return elementwise.where(condition, asarray(x1, device=condition.device) if scalar else x1, x2)


def clip(
    x: ArrayLike,
    /,
    min: ArrayLike | None = None,
    max: ArrayLike | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """x limited to [min, max]; at a bound the gradient passes."""
    if out is None:
        return elementwise.clip(boxed(x), min, max)
    for row, bound in ((elementwise.clip_lower, min), (elementwise.clip_upper, max)):
        x = x if bound is None else into(row.op, (x, bound), out)
    return out if x is out else out.copy_(x)


clamp = clip


def isclose(
    a: ArrayLike,
    b: ArrayLike,
    /,
    *,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
) -> Tensor:
    """|a − b| ≤ atol + rtol·|b|, element by element."""
    a = boxed_beside(b, a).detach() if type(b) in TENSORS else boxed(a).detach()
    b = boxed_beside(a, b).detach()
    near = abs_(a - b) <= atol + rtol * abs_(b)
    near = near | (a == b)
    return near | (FUNCTIONS["isnan"](a) & FUNCTIONS["isnan"](b)) if equal_nan else near


abs_ = FUNCTIONS["abs"]


def allclose(
    a: ArrayLike,
    b: ArrayLike,
    /,
    *,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
) -> bool:
    """Whether all elements are close."""
    return bool(isclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan).all())


def stop_gradient(x: ArrayLike) -> Tensor:
    """x as a constant: no gradient flows through the result."""
    return boxed(x).detach() if type(x) in TENSORS else asarray(x)
