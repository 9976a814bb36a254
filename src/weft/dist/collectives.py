"""Arrays of all processes joined: the table's collective rows on the world's group.

All ranks call the same functions in the same order. All but `barrier` differentiate: the gradient
is that of the sum of all ranks' losses with respect to all ranks' arrays. So arrays require a
gradient on all ranks or on none, and all ranks' losses depend on what they have called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from .. import errors
from ..arrays.arguments import as_tensor
from ..core import dtypes
from ..core.aval import axis_in
from ..core.communicator import Communicator, is_recorded
from ..core.op import Caller
from ..ops import collective as rows
from ..ops.structural import moveaxis, reshape
from ..transform.modes.backward import is_grad_enabled
from .world import world

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from ..arrays.types import ArrayLike

_OPS = ("sum", "mean", "max", "min")


def _joined(row: Caller, x: Tensor, group: Communicator, *static: Any) -> Any:
    """A row's result; ranks that record it and ranks that do not are told apart."""
    token = is_recorded.set(x.requires_grad and is_grad_enabled())
    try:
        return row(x, group.name, group.size, *static)
    finally:
        is_recorded.reset(token)


def all_reduce(x: ArrayLike, op: Literal["sum", "mean", "max", "min"] = "sum") -> Tensor:
    """Combine the arrays of all ranks elementwise: y = Σᵣ xᵣ, their mean, maximum or minimum.

    x   this rank's array; all ranks' have one shape and dtype
    op  how they are combined; a sum of booleans counts

    >>> import weft as wf
    >>> group = wf.dist.init()  # of one process, where no launcher started several
    >>> wf.dist.all_reduce([1.0, 2.0], op="mean").tolist()
    [1.0, 2.0]
    >>> wf.dist.finalize()
    """
    group, x = world(), as_tensor(x)
    if op not in _OPS:
        raise errors.ArgumentError(
            f"all_reduce: op={op!r}; expected one of {', '.join(map(repr, _OPS))}"
        )
    if op in ("max", "min"):
        if dtypes.is_complex(x.dtype):
            raise errors.DTypeError(
                f"all_reduce: the {op} of {x.dtype} arrays: complex numbers have no order; reduce "
                "their real and imaginary parts, or their absolute values"
            )
        held = x.to(dtypes.uint8) if x.dtype == dtypes.bool_ else x  # which all engines order
        return _joined(rows.all_extreme, held, group, op).to(x.dtype)
    if x.dtype == dtypes.bool_:
        x = x.to(dtypes.int64)
    if op == "mean" and x.dtype in dtypes.HALF:  # whose sums may leave their range
        return _joined(rows.all_reduce, x / group.size, group)
    total = _joined(rows.all_reduce, x, group)
    return total if op == "sum" else total / group.size


def all_gather(x: ArrayLike, axis: int | None = None) -> Tensor:
    """The arrays of all ranks, in their order.

    x     this rank's array; all ranks' have one shape and dtype
    axis  the axis along which they are joined; None: a new first one, y[r] = xᵣ

    >>> import weft as wf
    >>> group = wf.dist.init()
    >>> wf.dist.all_gather([1.0, 2.0]).shape
    (1, 2)
    >>> wf.dist.finalize()
    """
    group, x = world(), as_tensor(x)
    y = _joined(rows.all_gather, x, group)
    if axis is None:
        return y
    k = axis_in("all_gather", axis, x.ndim)
    shape = (*x.shape[:k], group.size * x.shape[k], *x.shape[k + 1 :])
    return reshape(moveaxis(y, (0,), (k,)), shape)


def reduce_scatter(
    x: ArrayLike, op: Literal["sum", "mean"] = "sum", axis: int | None = None
) -> Tensor:
    """This rank's part of the sum, or the mean, of all ranks' arrays: y = Σᵣ xᵣ[rank].

    x     this rank's array; all ranks' have one shape and dtype
    op    how they are combined; a sum of booleans counts
    axis  the axis that is cut into one part for each rank; None: the first one has a row for each

    >>> import weft as wf
    >>> group = wf.dist.init()
    >>> wf.dist.reduce_scatter([[1.0, 2.0]]).tolist()
    [1.0, 2.0]
    >>> wf.dist.finalize()
    """
    group, own = world(), as_tensor(x)
    if op not in ("sum", "mean"):
        raise errors.ArgumentError(f"reduce_scatter: op={op!r}; expected 'sum' or 'mean'")
    if axis is not None:
        k = axis_in("reduce_scatter", axis, own.ndim)
        if own.shape[k] % group.size:
            raise errors.ShapeError(
                f"reduce_scatter: axis {axis} has length {own.shape[k]}, which {group.size} ranks "
                f"do not divide; pad it to a multiple"
            )
        parts = (*own.shape[:k], group.size, own.shape[k] // group.size, *own.shape[k + 1 :])
        own = moveaxis(reshape(own, parts), (k,), (0,))
    elif own.shape[:1] != (group.size,):
        raise errors.ShapeError(
            f"reduce_scatter: an array of shape {own.shape} for {group.size} ranks; its first axis "
            "must have a row for each of them, or give axis="
        )
    if own.dtype == dtypes.bool_:
        own = own.to(dtypes.int64)
    y = _joined(rows.reduce_scatter, own, group)
    return y if op == "sum" else y / group.size


def broadcast(x: ArrayLike, root: int = 0) -> Tensor:
    """The array of one rank, on all of them.

    x     this rank's array; all ranks' have one shape and dtype
    root  the rank whose array it is

    >>> import weft as wf
    >>> group = wf.dist.init()
    >>> wf.dist.broadcast([1.0, 2.0]).tolist()
    [1.0, 2.0]
    >>> wf.dist.finalize()
    """
    group, x = world(), as_tensor(x)
    if type(root) is not int or root not in range(group.size):
        raise errors.ArgumentError(
            f"broadcast: root={root!r} of {group.size} ranks; expected 0 to {group.size - 1}"
        )
    return _joined(rows.broadcast_from, x, group, int(root))


def barrier() -> None:
    """Return when all ranks have called it.

    >>> import weft as wf
    >>> group = wf.dist.init()
    >>> wf.dist.barrier()
    >>> wf.dist.finalize()
    """
    world().barrier()
