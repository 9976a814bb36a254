"""Public elementwise functions: the table's rows under their public names, with `out=`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import errors
from ..core import dtypes
from ..core.backends import PYTHON_SCALARS
from ..core.call import caller
from ..core.numbers import unwrap_number
from ..core.op import TABLE, Op
from ..core.value import TENSORS
from ..ops import complex_, elementwise, logic, special  # noqa: F401  (they fill the table)
from .arguments import as_tensor, boxed_beside
from .inplace import into
from .make import asarray

if TYPE_CHECKING:
    from collections.abc import Callable

    from .tensor import Tensor
    from .types import ArrayLike


_ARGUMENTS = (
    "x    an array or a number; the function is applied to each element\nout  ",
    "x, y  arrays or numbers, which broadcast; the function is applied to each pair\nout   ",
    "x, y, z  arrays or numbers, which broadcast; it is applied to each triple\nout      ",
)


def public(op: Op, home: str = "wf") -> Any:
    """The function users call for a row: tensors of whatever comes, and `out=`."""
    arity = op.arity or 1
    function: Any = (_unary, _binary, _ternary)[arity - 1](op, caller(op, public=True))
    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = _docstring(op, home, _ARGUMENTS[arity - 1])
    function.op = op
    return function


def _docstring(op: Op, home: str, arguments: str) -> str:
    """The row's `doc` with the arguments, and its example as a doctest."""
    text, _, example = op.doc.partition("\n")
    call, rounded, result = example.partition(" ≈ ")
    if not rounded:
        call, _, result = example.partition(" = ")
    shown = f"{home}.{call}.tolist()"
    shown = f"[round(v, 4) for v in {shown}]" if rounded else shown
    spelled = f"\n\nAlso spelled {', '.join(op.spell)}." if op.spell else ""
    return (
        f"{text}{spelled}\n\n{arguments}a tensor that the result is written into\n\n"
        f">>> import weft as wf\n>>> {shown}\n{result}\n"
    )


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
    """xʸ; NaN for negative x and a y that is not whole.

    x, y  arrays or numbers, which broadcast; integers stay integers if y is not negative
    out   a tensor that the result is written into

    The derivative of x⁰ at 0 is 0, and x² has the second derivative 2 there.

    >>> import weft as wf
    >>> wf.pow([2.0, 3.0], 2).tolist()
    [4.0, 9.0]
    >>> wf.pow(2.0, [3.0, -1.0]).tolist()
    [8.0, 0.5]
    """
    if out is not None:
        return into(TABLE["pow"], (x, y), out)
    y = y if type(y) in TENSORS else unwrap_number(y)
    if type(y) in PYTHON_SCALARS and type(x) not in PYTHON_SCALARS:
        return elementwise.power_scalar(as_tensor(x), y)
    return elementwise.pow_(as_tensor(x), y)


def where(condition: ArrayLike, x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """x1 where the condition holds, x2 elsewhere.

    condition  booleans
    x1, x2     arrays or numbers; all three broadcast

    What is not taken gets an exact zero as its gradient, through whole compositions: an infinite or
    NaN derivative there does not spread.

    >>> import weft as wf
    >>> x = wf.tensor([0.0, 4.0], requires_grad=True)
    >>> y = wf.where(x > 0, wf.sqrt(x), 0.0)
    >>> y.tolist(), y.sum().backward()[x].tolist()
    ([0.0, 2.0], [0.0, 0.25])
    """
    given: Any = condition
    if type(given) in TENSORS and given._data.dtype is dtypes.bool_:
        if type(x1) in TENSORS:
            return elementwise.where(given, x1, x2)
    scalar = type(x1) in PYTHON_SCALARS and type(x2) in PYTHON_SCALARS
    condition = as_tensor(condition)
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
    """min(max(x, min), max): x limited to [min, max]. Also spelled clamp.

    x         an array, or anything `wf.asarray` accepts
    min, max  the bounds, arrays or numbers, which broadcast; None: no bound; max wins if min >
              max
    out       a tensor that the result is written into

    The derivative is 1 inside and at the bounds, 0 outside.

    >>> import weft as wf
    >>> wf.clip([-2.0, 0.5, 3.0], 0.0, 1.0).tolist()
    [0.0, 0.5, 1.0]
    """
    if out is None:
        return elementwise.clip(as_tensor(x), min, max)
    for row, bound in ((elementwise.clip_lower, min), (elementwise.clip_upper, max)):
        x = x if bound is None else into(row.op, (x, bound), out, "clip")
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
    """Whether |a − b| ≤ atol + rtol·|b|, element by element.

    a, b       arrays or numbers, which broadcast; b is the reference
    rtol       the relative tolerance
    atol       the absolute tolerance
    equal_nan  whether NaN is close to NaN

    Equal infinities are close.

    >>> import weft as wf
    >>> wf.isclose([1.0, 2.0], [1.000001, 2.1]).tolist()
    [True, False]
    """
    a = boxed_beside(b, a).detach() if type(b) in TENSORS else as_tensor(a).detach()
    b = boxed_beside(a, b).detach()
    near = _abs(a - b) <= atol + rtol * _abs(b)
    near = near | (a == b)
    return near | (FUNCTIONS["isnan"](a) & FUNCTIONS["isnan"](b)) if equal_nan else near


_abs = FUNCTIONS["abs"]


def allclose(
    a: ArrayLike,
    b: ArrayLike,
    /,
    *,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
) -> bool:
    """Whether |a − b| ≤ atol + rtol·|b| for all elements, as a Python bool.

    a, b        arrays or numbers, which broadcast; b is the reference
    rtol, atol  the tolerances
    equal_nan   whether NaNs count as equal

    >>> import weft as wf
    >>> wf.allclose([1.0, 2.0], [1.0, 2.1], rtol=0.1)
    True
    """
    return bool(isclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan).all())


def stop_gradient(x: ArrayLike) -> Tensor:
    """x as a constant: the same value, through which no gradient flows.

    x  an array, or anything `wf.asarray` accepts

    >>> import weft as wf
    >>> x = wf.tensor(3.0, requires_grad=True)
    >>> (x * wf.stop_gradient(x)).backward()[x].item()
    3.0
    """
    return as_tensor(x).detach() if type(x) in TENSORS else asarray(x)
