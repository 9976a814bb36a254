"""The linear layer, tables of embeddings and class indicators, as functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import errors
from ...arrays.arguments import as_tensor, boxed_beside
from ...core import dtypes
from ...core.autocast import cast_ahead
from ...core.backends import BACKENDS
from ...core.settings import current
from ...core.value import GROUND, wrap
from ...ops.affine import affine
from ...ops.contract import matmul
from ...ops.elementwise import where
from ...ops.index import one_hot as _one_hot
from ...ops.index import take
from ...ops.logic import equal, less
from ...ops.positions import within
from ...ops.structural import cast, mT, reshape

if TYPE_CHECKING:
    from ...arrays.tensor import Tensor
    from ...arrays.types import ArrayLike


_INTEGERS = frozenset(dtypes.SIGNED + dtypes.UNSIGNED)


def linear(input: ArrayLike, weight: ArrayLike, bias: ArrayLike | None = None) -> Tensor:
    """x·Wᵀ + b.

    input   x (…, in)
    weight  W (out, in), or (in,) for one output
    bias    b (out,); None: none

    >>> import weft as wf
    >>> wf.nn.functional.linear([1.0, 2.0], [[3.0, 4.0]], [5.0]).tolist()
    [16.0]
    """
    x, weight = as_tensor(input), as_tensor(weight)
    shape, table = x.shape, weight.shape
    if len(table) not in (1, 2) or not shape or shape[-1] != table[-1]:
        raise errors.ShapeError(
            f"linear: input {shape} and weight {table}; expected (…, in) and (out, in)"
        )
    if bias is not None and len(table) == 2:
        return affine(x, weight, as_tensor(bias))
    y = matmul(x, mT(cast_ahead(matmul, weight, x)) if len(table) == 2 else weight)
    return y if bias is None else y + as_tensor(bias)


def embedding(input: ArrayLike, weight: ArrayLike, padding_idx: int | None = None) -> Tensor:
    """The rows of a table that integers name.

    input        integers of any shape
    weight       the table (classes, width)
    padding_idx  a class whose row gets no gradient; negative ones count from the end

    >>> import weft as wf
    >>> wf.nn.functional.embedding([1, 0], [[1.0, 2.0], [3.0, 4.0]]).tolist()
    [[3.0, 4.0], [1.0, 2.0]]
    """
    weight = as_tensor(weight)
    i = boxed_beside(weight, input)
    if weight.ndim != 2:
        raise errors.ShapeError(
            f"embedding: weight of shape {weight.shape}, expected (classes, width)"
        )
    if i.dtype not in _INTEGERS:
        raise errors.DTypeError(
            f"embedding: input of dtype {i.dtype}, expected integers; cast with .to('int64')"
        )
    n = weight.shape[0]
    y = _rows(weight, i, n)
    if padding_idx is None:
        return y
    if not -n <= padding_idx < n:
        raise errors.ArgumentError(
            f"embedding: padding_idx {padding_idx} of {n} classes; expected -{n} to {n - 1}"
        )
    padded = reshape(equal(i, padding_idx % n), (*i.shape, 1))
    return where(padded, y.detach(), y)


def _rows(weight, i, n: int):
    """Rows of a table; negative indices, which `take` counts from the end, are refused."""
    at = i if i.dtype == dtypes.int64 else cast(i, dtypes.int64)  # a dtype that holds n
    message = (
        "embedding: indices from {low} to {high} are out of range; expected "
        f"0 to {n - 1}, the rows of the table"
    )
    if current.get().staging is not None:
        return take(weight, within(at, 0, n, message), 0)
    try:
        return take(weight, _beyond_if_negative(at, n), 0)
    except errors.IndexingError:
        if i.__class__ not in GROUND:
            raise
        raise errors.IndexingError(message.format(low=int(i.min()), high=int(i.max()))) from None


def _beyond_if_negative(i, n: int):
    """Integers with n in place of negative ones."""
    if i.__class__ not in GROUND:
        return where(less(i, 0), n, i)
    raw = i._data  # nothing is recorded of integers
    return wrap(BACKENDS[raw.__class__].where(raw < 0, n, raw))


def one_hot(tensor: ArrayLike, num_classes: int = -1) -> Tensor:
    """1 at the place of each class and 0 elsewhere, along a new last axis of int64.

    tensor       integers from 0 on
    num_classes  the length of the new axis; −1: one more than the largest class

    >>> import weft as wf
    >>> wf.nn.functional.one_hot(wf.tensor([0, 2])).tolist()
    [[1, 0, 0], [0, 0, 1]]
    """
    i = as_tensor(tensor)
    if i.dtype not in dtypes.SIGNED + dtypes.UNSIGNED:
        raise errors.DTypeError(f"one_hot: got {i.dtype}, expected integer classes")
    if num_classes == -1:
        if not i.size:
            raise errors.ArgumentError("one_hot: got no indices, so give num_classes")
        num_classes = int(i.max()) + 1
    if num_classes < 1:
        raise errors.ArgumentError(f"one_hot: num_classes={num_classes}, expected 1 or more")
    return _one_hot(i, num_classes, dtypes.int64)
