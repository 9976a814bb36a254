"""Constructors for the table's rows, one for each kind of rule."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

from ..core import dtypes
from ..core.aval import Aval, broadcast
from ..core.call import caller
from ..core.op import Caller, Derivative, Jvp, Linear, Op, Partials, enter
from .batching import pointwise

# A computation, a shape rule, or a part of a derivative.
Formula: TypeAlias = Callable[..., Any]
F = TypeVar("F", bound=Formula)
# One pull-back for each argument (None: no derivative), or one for all of any number.
Transpose: TypeAlias = Formula | Sequence[Formula | None]


def unbounded(partial: F) -> F:
    """Mark a partial that can be infinite: its product with a zero cotangent is zero."""
    partial.unbounded = True  # type: ignore[attr-defined]
    return partial


def times(product: F) -> F:
    """Mark a partial that is stated as its product with t: (t, y, *args, *static) -> ∂y/∂xᵢ·t."""
    product.times = True  # type: ignore[attr-defined]
    return product


def on_demand(pull: F) -> F:
    """Mark a pull-back of which some cotangents are functions: those that are wanted are called."""
    pull.on_demand = True  # type: ignore[attr-defined]
    return pull


def elementwise_shape(
    name: str, floating: bool, out: str = "same", integral: bool = False
) -> Callable[..., Aval]:
    """The shape rule of broadcasting operations; `out` is same, real or bool."""

    def shape(*args):
        avals = [a for a in args if isinstance(a, Aval)]
        shape = broadcast(name, *(a.shape for a in avals))
        arrays = [a for a in avals if a.device is not None] or avals
        if out == "bool":
            return Aval(shape, dtypes.bool_, arrays[0].device)
        dtype = dtypes.promote_all(a.dtype for a in arrays)
        for a in avals:  # an aval without a device is a Python scalar's
            if a.device is None and dtypes.rank(a.dtype) > dtypes.rank(dtype):
                dtype = dtypes.scalar_result(a.dtype, dtype)
        if floating and not dtypes.is_inexact(dtype):
            dtype = dtypes.default_float()
        elif integral and dtype is dtypes.bool_:
            dtype = dtypes.int8
        if out == "real":
            dtype = dtypes.to_real(dtype)
        return Aval(shape, dtype, arrays[0].device)

    return shape


def elementwise(
    name: str,
    d: Sequence[Derivative | None] | None,
    *,
    arity: int | None = None,
    compute: Formula | None = None,
    floating: bool = False,
    integral: bool = False,
    keep: Formula | None = None,
    out: str = "same",
    promote: tuple[int, ...] | None = None,
    **row: Any,
) -> Caller:
    """A broadcasting row: `d[i]` is ∂y/∂xᵢ as a function of (y, *args, *static)."""
    n = len(d) if d is not None else arity or 1
    row.setdefault("batch", pointwise)
    rule = None
    if d is not None:
        strong = tuple(getattr(p, "unbounded", False) for p in d)
        rule = Partials(tuple(d), strong, keep)
    op = Op(
        name,
        compute,
        elementwise_shape(name, floating, out, integral),
        rule,
        n,
        promote=tuple(range(n)) if promote is None else promote,
        floating=floating,
        integral=integral,
        recast=out != "same",
        **row,
    )
    return caller(enter(op))


# A broadcasting row that autocast computes in float32: its values or its slopes leave the range of
# half types, or lose the digits that matter.
single: partial[Caller] = partial(elementwise, precision="single")


def linear(
    name: str,
    *,
    shape: Formula,
    transpose: Transpose,
    compute: Formula | None = None,
    joint: bool = False,
    **row: Any,
) -> Caller:
    """A row linear in each argument, or in all of them together (`joint`)."""
    each = (transpose,) if callable(transpose) else tuple(transpose)
    count = None if callable(transpose) else len(each)
    row.setdefault("promote", None if count is None else ())
    return caller(enter(Op(name, compute, shape, Linear(each, joint), count, **row)))


def general(
    name: str,
    *,
    shape: Formula,
    push: Formula,
    arity: int | None,
    pull: Formula | None = None,
    keep: Formula | None = None,
    unread: tuple[int, ...] = (),
    compute: Formula | None = None,
    **row: Any,
) -> Caller:
    """A row with a push-forward (and, where that pays, a pull-back) of its own."""
    return caller(enter(Op(name, compute, shape, Jvp(push, pull, keep, unread), arity, **row)))


def undifferentiated(
    name: str, *, shape: Formula, arity: int | None = 1, compute: Formula | None = None, **row: Any
) -> Caller:
    """A row without a derivative: integer or boolean results, or none known."""
    return caller(enter(Op(name, compute, shape, None, arity, **row)))
