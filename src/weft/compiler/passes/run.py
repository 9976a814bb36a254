"""Running sums and sorting, in the dtype and along the axis that the routines take."""

from ...core import dtypes
from .expand import expands
from .guard import prepared_row
from .rewriting import Builder


def _wide(b: Builder, x: int, dtype=None) -> int:
    """x in a dtype; half types in float32."""
    dtype = dtypes.accumulator(b.dtype(x) if dtype is None else dtype)
    return x if b.dtype(x) == dtype else b.emit("cast", x, dtype)


@expands("cumsum")
def _cumsum(b: Builder, x, axis):
    return b.emit(prepared_row("cumsum"), _wide(b, x, dtypes.sum_dtype(b.dtype(x))), axis)


@expands("cumprod")
def _cumprod(b: Builder, x, axis):
    return b.emit(prepared_row("cumprod"), _wide(b, x, dtypes.sum_dtype(b.dtype(x))), axis)


@expands("logcumsumexp")
def _logcumsumexp(b: Builder, x, axis):
    dtype = b.dtype(x)
    dtype = dtype if dtypes.is_inexact(dtype) else dtypes.default_float()
    return b.emit(prepared_row("logcumsumexp"), _wide(b, x, dtype), axis)


@expands("linear_recurrence")
def _linear_recurrence(b: Builder, x, y, axis):
    dtype = dtypes.promote(b.dtype(x), b.dtype(y))
    return b.emit(prepared_row("linear_recurrence"), _wide(b, x, dtype), _wide(b, y, dtype), axis)


@expands("cummax")
def _cummax(b: Builder, x, axis):
    return b.emit(prepared_row("cummax"), _wide(b, x), axis)


@expands("cummin")
def _cummin(b: Builder, x, axis):
    return b.emit(prepared_row("cummin"), _wide(b, x), axis)


# -- sorting ---------------------------------------------------------------------------------


def _last(b: Builder, x: int, axis: int) -> tuple[int, tuple[int, ...] | None]:
    """x with an axis moved to the end, and the permutation that moves it back."""
    n = len(b.shape(x))
    if axis == n - 1:
        return x, None
    order = (*(a for a in range(n) if a != axis), axis)
    back = tuple(order.index(a) for a in range(n))
    return b.emit("permute", x, order), back


def _back(b: Builder, x: int, order: tuple[int, ...] | None) -> int:
    return x if order is None else b.emit("permute", x, order)


@expands("sort")
def _sort(b: Builder, x, axis, descending):
    x, back = _last(b, _wide(b, x), axis)
    return _back(b, b.emit(prepared_row("sort"), x, len(b.shape(x)) - 1, descending), back)


@expands("argsort")
def _argsort(b: Builder, x, axis, descending):
    x, back = _last(b, _wide(b, x), axis)
    return _back(b, b.emit(prepared_row("argsort"), x, len(b.shape(x)) - 1, descending), back)


@expands("topk")
def _topk(b: Builder, x, k, axis, largest):
    x, back = _last(b, _wide(b, x), axis)
    made = b.emit(prepared_row("topk"), x, k, len(b.shape(x)) - 1, largest)
    return tuple(_back(b, y, back) for y in made)
