"""Constructors for the table's rows, one for each kind of rule."""

from collections.abc import Callable, Sequence
from functools import partial
from inspect import CO_VARARGS
from typing import Any, TypeAlias, TypeVar

from ..core import dtypes
from ..core.aval import Aval, broadcast
from ..core.backends import BACKENDS
from ..core.call import caller
from ..core.op import (
    Caller,
    Derivative,
    Jvp,
    LinearRule,
    Op,
    Partials,
    Reads,
    enter,
    states_product,
)
from ..core.value import HIGHER
from .batching import pointwise

# A computation, a shape rule, or part of a derivative.
Formula: TypeAlias = Callable[..., Any]
F = TypeVar("F", bound=Formula)
# One pull-back for each argument (None: no derivative), or one for all of any number.
Transpose: TypeAlias = Formula | Sequence[Formula | None]


def mark_unbounded(partial: F) -> F:
    """Mark a partial that can be infinite: its product with a zero cotangent is zero."""
    partial.unbounded = True  # type: ignore[attr-defined]
    return partial


def times(product: F) -> F:
    """Mark a partial that is stated as its product with t: (t, y, *args, *static) -> ∂y/∂xᵢ·t."""
    product.times = True  # type: ignore[attr-defined]
    return product


def fused(kernel: str, product: Formula) -> Formula:
    """A product with t, as `times` states it, that a backend may have as one kernel.

    kernel  its name there: (t, y, x), of raw arrays of real numbers, to the product
    """
    kernels: dict[type[Any], Formula | None] = {}

    def choose(t: Any, y: Any, x: Any) -> Any:
        kind = t.__class__
        if kind not in kernels:
            raw = kind in BACKENDS and kind not in HIGHER
            kernels[kind] = getattr(BACKENDS[kind], kernel, None) if raw else None
        found = kernels[kind]
        if found is None or t.dtype in dtypes.RAW_COMPLEX:
            return product(t, y, x)
        alike = all([v is None or v.__class__ is kind for v in (y, x)])
        return found(t, y, x) if alike else product(t, y, x)

    return times(choose)


def joins_gradients(g: Any) -> bool:
    """Whether g is a raw array of real numbers, where one call for several gradients is quicker."""
    if g.__class__ in HIGHER or g.dtype in dtypes.RAW_COMPLEX:
        return False
    return getattr(BACKENDS[g.__class__], "joins_gradients", False)


def on_demand(pull: F) -> F:
    """Mark a pull-back that returns thunks for some cotangents; only those needed are called."""
    pull.on_demand = True  # type: ignore[attr-defined]
    return pull


def _flags(name: str, f: Formula, skip: int, reads: str) -> Reads:
    """Which parameters of a rule's function `reads` names; the first `skip` are not counted."""
    code = f.__code__
    names = code.co_varnames[skip : code.co_argcount + bool(code.co_flags & CO_VARARGS)]
    if not names or not set(reads.split()) <= set(names):
        raise ValueError(f"{name}: reads={reads!r}, but the rule's function takes {names}")
    return tuple([parameter in reads.split() for parameter in names])


def _flags_of_each(
    name: str, functions: Sequence[Any], reads: Any, skip: Callable[[Any], int]
) -> tuple[Reads, ...] | None:
    """The flags of partials or transposes: `reads` names the same for all, or is one for each."""
    if reads is None:
        return None
    each = reads if isinstance(reads, tuple) else (reads,) * len(functions)
    pairs = zip(functions, each, strict=True)
    return tuple([_flags(name, f, skip(f), r) if callable(f) else () for f, r in pairs])


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
        for a in avals:  # a Python scalar has an aval without a device
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
    reads: str | tuple[str | None, ...] | None = None,
    **row: Any,
) -> Caller:
    """A broadcasting row: `d[i]` is ∂y/∂xᵢ as a function of (y, *args, *static).

    `reads` names the parameters among y and the arguments that the partials read, as in "y x", or
    is a tuple of such names for each; None: all of them. Others are not saved for a backward pass.
    """
    n = len(d) if d is not None else arity or 1
    row.setdefault("batch", pointwise)
    row.setdefault("public", "weft")
    rule = None
    if d is not None:
        strong = tuple(getattr(p, "unbounded", False) for p in d)
        rule = Partials(tuple(d), strong, keep, _flags_of_each(name, d, reads, states_product))
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


# A broadcasting row that is not public by itself.
private: partial[Caller] = partial(elementwise, public="")
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
    reads: str | tuple[str | None, ...] | None = None,
    at_once: Formula | None = None,
    **row: Any,
) -> Caller:
    """A row linear in each argument, or in all of them together (`joint`).

    `reads` names the arguments that transposes read, for all of them or in a tuple for each;
    `at_once` is a row that gives what all transposes give.
    """
    each = (transpose,) if callable(transpose) else tuple(transpose)
    count = None if callable(transpose) else len(each)
    row.setdefault("promote", None if count is None else ())
    # Of (g, *args) g takes the place of y, of (g, i, *args) i does.
    flags = _flags_of_each(name, each, reads, lambda f: int(count is None))
    rule = LinearRule(each, joint, flags, at_once)
    return caller(enter(Op(name, compute, shape, rule, count, **row)))


def general(
    name: str,
    *,
    shape: Formula,
    push: Formula,
    arity: int | None,
    pull: Formula | None = None,
    keep: Formula | None = None,
    unread: tuple[int, ...] = (),
    reads: str | None = None,
    compute: Formula | None = None,
    **row: Any,
) -> Caller:
    """A row with a push-forward (and, where that pays, a pull-back) of its own.

    `reads` names the parameters of the pull-back (else of the push-forward) that are saved for it.
    """
    flags = None if reads is None else _flags(name, pull or push, 1, reads)
    rule = Jvp(push, pull, keep, unread, flags)
    return caller(enter(Op(name, compute, shape, rule, arity, **row)))


def row_without_derivative(
    name: str, *, shape: Formula, arity: int | None = 1, compute: Formula | None = None, **row: Any
) -> Caller:
    """A row without a derivative: integer or boolean results, or none known."""
    return caller(enter(Op(name, compute, shape, None, arity, **row)))
