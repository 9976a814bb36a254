"""Batching rules of linear algebra: products, and systems of equations."""

from collections.abc import Sequence
from math import prod

from ..core.op import Caller
from ..core.record import record
from ..core.types import Array, Static
from .batching import Stacked, align_batch
from .structural import mT, permute, reshape


def _rows_joined(x):
    """(…, m, n) as (…·m, n)."""
    return x if len(x.shape) == 2 else reshape(x, (prod(x.shape[:-1]), x.shape[-1]))


def _move_to_front(x, axis: int):
    """x with an axis moved to the front."""
    return permute(x, (axis, *range(axis), *range(axis + 1, len(x.shape))))


def batch_matmul(
    call: Caller, size: int, mapped: Sequence[bool], args: Sequence[Array], static: Static
) -> Array:
    """Vectors and matrices; a batch of rows beside one matrix is one product."""
    a, b = args
    if not all([len(x.shape) > m for m, x in zip(mapped, args, strict=True)]):
        raise ValueError("the batch would pass for an axis")  # the row's shape rule says why
    if all(mapped):
        return _each_product(call, a, b)
    return _shared_right(call, a, b) if mapped[0] else _shared_left(call, a, b)


def _each_product(call, a, b):
    row, column = len(a.shape) == 2, len(b.shape) == 2
    a = reshape(a, (a.shape[0], 1, a.shape[1])) if row else a
    b = reshape(b, (*b.shape, 1)) if column else b
    ndim = max(len(a.shape), len(b.shape))
    y = call(align_batch(a, ndim), align_batch(b, ndim))
    if not row and not column:
        return y
    *stack, m, n = y.shape
    return reshape(y, (*stack, *(() if row else (m,)), *(() if column else (n,))))


def _shared_right(call, a, b):
    if len(b.shape) <= 2:
        y = call(_rows_joined(a), b)
        return y if len(a.shape) == 2 else reshape(y, (*a.shape[:-1], *b.shape[1:]))
    if len(a.shape) == 2:  # vectors, the rows of one matrix
        return _move_to_front(call(a, b), len(b.shape) - 2)
    return call(align_batch(a, 1 + len(b.shape)), b)


def _shared_left(call, a, b):
    if len(a.shape) == 1:
        return call(b, a) if len(b.shape) == 2 else call(a, b)
    if len(a.shape) == 2 and len(b.shape) == 3 and b.shape[2] == 1:  # columns of one matrix
        y = call(reshape(b, b.shape[:2]), mT(a))
        return reshape(y, (*y.shape, 1))
    if len(b.shape) > 2:
        return call(a, align_batch(b, 1 + len(a.shape)))
    if len(a.shape) == 2:
        return call(b, mT(a))
    return _move_to_front(call(a, mT(b)), len(a.shape) - 1)


_each_system = Stacked((2, 2))


@record
class RightSides:
    """Systems (a, b): with one a, a batch of right sides is one system with more columns."""

    def __call__(
        self, call: Caller, size: int, mapped: Sequence[bool], args: Sequence[Array], static: Static
    ) -> Array:
        a, b = args
        if mapped[0]:
            return _each_system(call, size, mapped, args, static)
        *stack, n, k = b.shape[1:]
        last = len(b.shape) - 1
        joined = reshape(permute(b, (*range(1, last), 0, last)), (*stack, n, size * k))
        x = call(a, joined, *static)
        return _move_to_front(reshape(x, (*x.shape[:-1], size, k)), len(x.shape) - 1)
