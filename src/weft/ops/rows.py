"""Constructors for the table's rows, one for each kind of rule."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..core import dtypes
from ..core.aval import Aval, broadcast
from ..core.call import caller
from ..core.op import Jvp, Linear, Op, Partials, enter
from .batching import pointwise


def unbounded(partial: Callable) -> Callable:
    """Mark a partial that can be infinite: its product with a zero cotangent is zero."""
    partial.unbounded = True  # type: ignore[attr-defined]
    return partial


def times(product: Callable) -> Callable:
    """Mark a partial that is stated as its product with t: (t, y, *args, *static) -> ∂y/∂xᵢ·t."""
    product.times = True  # type: ignore[attr-defined]
    return product


def on_demand(pull: Callable) -> Callable:
    """Mark a pull-back of which some cotangents are functions: those that are wanted are called."""
    pull.on_demand = True  # type: ignore[attr-defined]
    return pull


def elementwise_shape(name: str, floating: bool, out: str = "same", integral: bool = False):
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
    d: Sequence[Any] | None,
    *,
    arity: int | None = None,
    compute: Callable | None = None,
    floating: bool = False,
    integral: bool = False,
    keep: Callable | None = None,
    out: str = "same",
    promote: tuple[int, ...] | None = None,
    **row,
) -> Any:
    """A broadcasting row: `d[i]` is ∂y/∂xᵢ as a function of (y, *args, *static)."""
    n = len(d) if d is not None else arity or 1
    row.setdefault("batch", pointwise)
    row.setdefault("public", "weft")
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


# A broadcasting row that users call through a function around it, or not at all.
private = partial(elementwise, public="")
# A broadcasting row that autocast computes in float32: its values or its slopes leave the range of
# half types, or lose the digits that matter.
single = partial(elementwise, precision="single")


def linear(name: str, *, shape, transpose, compute=None, joint=False, **row) -> Any:
    """A row linear in each argument, or in all of them together (`joint`)."""
    variadic = callable(transpose)
    transpose = (transpose,) if variadic else tuple(transpose)
    count = None if variadic else len(transpose)
    row.setdefault("promote", None if variadic else ())
    return caller(enter(Op(name, compute, shape, Linear(transpose, joint), count, **row)))


def general(name, *, shape, push, arity, pull=None, keep=None, unread=(), compute=None, **row):
    """A row with a push-forward (and, where that pays, a pull-back) of its own."""
    return caller(enter(Op(name, compute, shape, Jvp(push, pull, keep, unread), arity, **row)))


def undifferentiated(name: str, *, shape, arity: int | None = 1, compute=None, **row) -> Any:
    """A row without a derivative: integer or boolean results, or none known."""
    return caller(enter(Op(name, compute, shape, None, arity, **row)))
