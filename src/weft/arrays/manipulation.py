"""Public functions that rearrange tensors."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, Literal, Never

import numpy as np

from .. import errors
from ..core.aval import axes_in, broadcast, integer_in
from ..ops import arrange, structural
from .arguments import as_tensor, axes_of, axis_of, flat_or_axis
from .keywords import checks_keywords, unexpected_keyword

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .tensor import Tensor
    from .types import ArrayLike, Axes, Shape


def _shape_from(x, shape) -> tuple[int, ...]:
    """A shape with at most one −1 filled in."""
    dims = shape if isinstance(shape, _SEQUENCE) else (shape,)
    dims = tuple([d if d.__class__ is int else integer_in("reshape", "shape", d) for d in dims])
    return _fill_dims(x._data.shape, dims)


_SEQUENCE = (tuple, list)


@lru_cache(maxsize=1024)
def _fill_dims(have: tuple[int, ...], dims: tuple[int, ...]) -> tuple[int, ...]:
    if all(d >= 0 for d in dims):
        return dims
    size, rest = prod(have), -prod(dims)
    if min(dims) < -1 or dims.count(-1) > 1 or rest == 0 or size % rest:
        raise errors.ShapeError(f"reshape: {size} elements cannot take the shape {dims}")
    return tuple(size // rest if d == -1 else d for d in dims)


def reshape(x: ArrayLike, /, shape: Shape, *more: int, copy: bool | None = None) -> Tensor:
    """x with another shape, its elements in the same order, row by row.

    x      an array, or anything `wf.asarray` accepts
    shape  an integer or a tuple; one size may be −1: what is left
    more   further sizes, in place of a tuple: `x.reshape(2, 3)`
    copy   True always copies; else the result may share memory

    >>> import weft as wf
    >>> wf.reshape(wf.arange(6), (2, -1)).tolist()
    [[0, 1, 2], [3, 4, 5]]
    """
    x = as_tensor(x)
    dims = _shape_from(x, (shape, *more) if more else shape)
    out = structural.reshape(x, dims)
    return structural.copy(out) if copy else out


def flatten(x: ArrayLike, /, **unknown: Never) -> Tensor:
    """x along one axis, row by row.

    x  an array, or anything `wf.asarray` accepts

    >>> import weft as wf
    >>> wf.flatten([[1, 2], [3, 4]]).tolist()
    [1, 2, 3, 4]
    """
    if unknown:
        raise unexpected_keyword(flatten, unknown)
    return reshape(x, (-1,))


def permute_dims(x: ArrayLike, /, axes: Axes = None, *more: int, **unknown: Never) -> Tensor:
    """x with its axes in another order: axis k of the result is axis axes[k] of x.

    x     an array, or anything `wf.asarray` accepts
    axes  the order; None: reversed
    more  further axes, in place of a tuple: `x.permute(1, 0)`

    >>> import weft as wf
    >>> wf.permute_dims(wf.zeros((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    if unknown:
        raise unexpected_keyword(permute_dims, unknown)
    x = as_tensor(x)
    order: Any = (axes, *more) if more else axes
    if order is None:
        return structural.permute(x, _REVERSED[len(x._data.shape)])
    return structural.permute(x, axes_of("permute_dims", x, order))


_REVERSED = [tuple(reversed(range(n))) for n in range(65)]


def transpose(x: ArrayLike, /, axes: Axes = None, *more: int, **unknown: Never) -> Tensor:
    """x with its axes in another order, as in NumPy: axis k of the result is axis axes[k] of x.

    x     an array, or anything `wf.asarray` accepts
    axes  the order; None: reversed
    more  further axes, in place of a tuple: `x.transpose(1, 0, 2)`

    Two axes are exchanged by `wf.swapaxes`; `x.transpose(0, 1)` in PyTorch's sense is refused.

    >>> import weft as wf
    >>> wf.transpose([[1, 2, 3], [4, 5, 6]]).tolist()
    [[1, 4], [2, 5], [3, 6]]
    """
    if unknown:
        raise unexpected_keyword(transpose, unknown)
    x, order = as_tensor(x), (axes, *more) if more else axes
    if more:
        _refuse_exchange(x, (axes, *more))
    return permute_dims(x, None if order is None else axes_of("transpose", x, order))


def _refuse_exchange(x, axes: tuple) -> None:
    """Refuse PyTorch's `x.transpose(0, 1)`, which in NumPy changes nothing."""
    if len(axes) != 2 or not all([isinstance(a, int) for a in axes]):
        return
    if x.ndim != 2 or [a % 2 for a in axes if -2 <= a < 2] == [0, 1]:
        raise errors.AxisError(
            f"transpose{axes} of shape {x.shape}: in PyTorch this exchanges two axes, in NumPy it "
            f"is the order of all; write wf.swapaxes(x, {axes[0]}, {axes[1]}) to exchange them, "
            "wf.permute_dims(x, axes) for an order"
        )


def matrix_transpose(x: ArrayLike, /) -> Tensor:
    """x with its last two axes exchanged: xᵀ for each matrix.

    x  an array with two axes or more

    >>> import weft as wf
    >>> wf.matrix_transpose([[1, 2], [3, 4]]).tolist()
    [[1, 3], [2, 4]]
    """
    x = as_tensor(x)
    if x.ndim < 2:
        raise errors.ShapeError(
            f"matrix_transpose: got shape {x.shape}, expected two dimensions or more"
        )
    return structural.mT(x)


def moveaxis(
    x: ArrayLike, source: int | Sequence[int], destination: int | Sequence[int], /
) -> Tensor:
    """x with some axes moved, the others in their order.

    x            an array, or anything `wf.asarray` accepts
    source       the axis or axes to move
    destination  where each of them goes

    >>> import weft as wf
    >>> wf.moveaxis(wf.zeros((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    x = as_tensor(x)
    source, destination = axes_of("moveaxis", x, source), axes_of("moveaxis", x, destination)
    if len(source) != len(destination):
        raise errors.AxisError(
            f"moveaxis: axes {source} to {destination}, expected as many of one as of the other"
        )
    return structural.moveaxis(x, source, destination)


def swapaxes(x: ArrayLike, a: int, b: int, /) -> Tensor:
    """x with the axes a and b exchanged.

    x     an array, or anything `wf.asarray` accepts
    a, b  two axes

    >>> import weft as wf
    >>> wf.swapaxes(wf.zeros((2, 3, 4)), 0, 2).shape
    (4, 3, 2)
    """
    x = as_tensor(x)
    return structural.swapaxes(x, axis_of("swapaxes", x, a), axis_of("swapaxes", x, b))


def squeeze(x: ArrayLike, /, axis: Axes = None, **unknown: Never) -> Tensor:
    """x without axes of length 1.

    x     an array, or anything `wf.asarray` accepts
    axis  the axis or axes to drop, each of length 1; None: all that are

    >>> import weft as wf
    >>> wf.squeeze(wf.zeros((1, 3, 1))).shape
    (3,)
    """
    if unknown:
        raise unexpected_keyword(squeeze, unknown)
    x = as_tensor(x)
    if axis is None:
        axis = tuple(i for i, n in enumerate(x.shape) if n == 1)
    return structural.squeeze(x, axes_of("squeeze", x, axis))


def expand_dims(
    x: ArrayLike, /, axis: int | tuple[int, ...] | list[int] = 0, **unknown: Never
) -> Tensor:
    """x with new axes of length 1.

    x     an array, or anything `wf.asarray` accepts
    axis  where the new axis, or each of several, is in the result

    >>> import weft as wf
    >>> wf.expand_dims(wf.zeros((2, 3)), axis=1).shape
    (2, 1, 3)
    """
    if unknown:
        raise unexpected_keyword(expand_dims, unknown)
    x = as_tensor(x)
    named = tuple(axis) if isinstance(axis, tuple | list) else (axis,)
    return structural.expand_dims(x, axes_in("expand_dims", named, x.ndim + len(named)))


def broadcast_to(x: ArrayLike, /, shape: Shape) -> Tensor:
    """x repeated along axes of length 1 and new leading axes to a larger shape, without a copy.

    x      an array, or anything `wf.asarray` accepts
    shape  the shape of the result

    >>> import weft as wf
    >>> wf.broadcast_to([1.0, 2.0], (3, 2)).tolist()
    [[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]]
    """
    single = not hasattr(shape, "__len__") or getattr(shape, "shape", None) == ()
    named: Any = (shape,) if single else shape
    dims = tuple([integer_in("broadcast_to", "shape", d) for d in named])
    if any(d < 0 for d in dims):
        raise errors.ShapeError(f"broadcast_to: shape {dims} has a negative size")
    return structural.broadcast_to(as_tensor(x), dims)


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that these shapes broadcast to.

    shapes  tuples of sizes

    >>> import weft as wf
    >>> wf.broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    return broadcast("broadcast_shapes", *map(tuple, shapes))


def broadcast_arrays(*arrays: ArrayLike) -> tuple[Tensor, ...]:
    """The tensors, each broadcast to their common shape, without copies.

    arrays  arrays whose shapes fit

    >>> import weft as wf
    >>> a, b = wf.broadcast_arrays([1.0, 2.0], [[3.0], [4.0]])
    >>> a.tolist(), b.tolist()
    ([[1.0, 2.0], [1.0, 2.0]], [[3.0, 3.0], [4.0, 4.0]])
    """
    boxes = [as_tensor(a) for a in arrays]
    shape = broadcast("broadcast_arrays", *(b.shape for b in boxes))
    return tuple([structural.broadcast_to(b, shape) for b in boxes])


def flip(x: ArrayLike, /, *, axis: Axes = None, **unknown: Never) -> Tensor:
    """x with the order along `axis` reversed.

    x     an array, or anything `wf.asarray` accepts
    axis  the axis or axes to reverse; None: all

    >>> import weft as wf
    >>> wf.flip([1, 2, 3]).tolist()
    [3, 2, 1]
    """
    if unknown:
        raise unexpected_keyword(flip, unknown)
    x = as_tensor(x)
    return structural.flip(x, axes_of("flip", x, axis))


@checks_keywords
def roll(x: ArrayLike, /, shift: int | tuple[int, ...] | list[int], *, axis: Axes = None) -> Tensor:
    """x shifted circularly: out[(i + shift) mod n] = x[i].

    x      an array, or anything `wf.asarray` accepts
    shift  how far, for each axis
    axis   the axis or axes; None: along the flattened tensor, whose shape stays

    >>> import weft as wf
    >>> wf.roll([1, 2, 3, 4], 1).tolist()
    [4, 1, 2, 3]
    """
    x = as_tensor(x)
    if axis is None:
        return structural.reshape(roll(reshape(x, (-1,)), shift, axis=0), x.shape)
    axes = tuple(axis) if isinstance(axis, tuple | list) else (axis,)
    shifts = tuple(shift) if isinstance(shift, tuple | list) else (shift,) * len(axes)
    axes = axes * len(shifts) if len(axes) == 1 else axes
    if len(shifts) != len(axes):
        raise errors.ArgumentError(
            f"roll: {len(shifts)} shifts for {len(axes)} axes; give one shift, or one for each axis"
        )
    named = tuple(axis_of("roll", x, a) for a in axes)
    shifts = tuple([integer_in("roll", "shift", s) for s in shifts])
    return structural.roll(x, shifts, named)


def _several(name: str, arrays) -> list:
    """The tensors of a sequence, of which there must be one at least."""
    if not hasattr(arrays, "__iter__"):
        got = type(arrays).__name__
        raise errors.DTypeError(f"{name}: got {got}, expected a sequence of tensors")
    boxes = [as_tensor(a) for a in arrays]
    if not boxes:
        raise errors.ArgumentError(f"{name}: needs at least one tensor")
    return boxes


def concat(
    arrays: Iterable[ArrayLike] | Tensor, /, *, axis: int | None = 0, **unknown: Never
) -> Tensor:
    """Tensors one after the other along an axis that they have.

    arrays  tensors whose shapes agree but for that axis
    axis    the axis; None: they are flattened first

    >>> import weft as wf
    >>> wf.concat([[1, 2], [3]]).tolist()
    [1, 2, 3]
    """
    if unknown:
        raise unexpected_keyword(concat, unknown)
    boxes = _several("concat", arrays)
    if axis is None:
        boxes, axis = [reshape(b, (-1,)) for b in boxes], 0
    return structural.concat(boxes, axis_of("concat", boxes[0], axis))


def stack(arrays: Iterable[ArrayLike] | Tensor, /, *, axis: int = 0, **unknown: Never) -> Tensor:
    """Tensors of one shape along a new axis.

    arrays  tensors of one shape
    axis    where the new axis is in the result

    >>> import weft as wf
    >>> wf.stack([[1, 2], [3, 4]], axis=1).tolist()
    [[1, 3], [2, 4]]
    """
    if unknown:
        raise unexpected_keyword(stack, unknown)
    boxes = _several("stack", arrays)
    return structural.stack(boxes, axis_of("stack", boxes[0], axis, extra=1))


def unstack(x: ArrayLike, /, *, axis: int = 0, **unknown: Never) -> tuple[Tensor, ...]:
    """The slices of x along an axis, as a tuple.

    x     an array, or anything `wf.asarray` accepts
    axis  the axis that the slices do not have

    >>> import weft as wf
    >>> [s.tolist() for s in wf.unstack([[1, 2], [3, 4]])]
    [[1, 2], [3, 4]]
    """
    if unknown:
        raise unexpected_keyword(unstack, unknown)
    x = as_tensor(x)
    return structural.unstack(x, axis_of("unstack", x, axis))


@checks_keywords
def split(x: ArrayLike, /, sections: int | Sequence[int], axis: int = 0) -> tuple[Tensor, ...]:
    """x cut into parts along an axis, as a tuple.

    x         an array, or anything `wf.asarray` accepts
    sections  how many equal parts (an integer), or the positions to cut at (a sequence)
    axis      the axis to cut

    >>> import weft as wf
    >>> [s.tolist() for s in wf.split([1, 2, 3, 4], 2)]
    [[1, 2], [3, 4]]
    >>> [s.tolist() for s in wf.split([1, 2, 3, 4], [1])]
    [[1], [2, 3, 4]]
    """
    x = as_tensor(x)
    k = axis_of("split", x, axis)
    n = x.shape[k]
    if not isinstance(sections, tuple | list | range):
        sections = integer_in("split", "sections", sections)
        if sections <= 0 or n % sections:
            raise errors.ArgumentError(
                f"split: {n} elements along axis {axis} do not divide into {sections} equal "
                f"parts; see chunk"
            )
        sections = [n // sections * i for i in range(1, sections)]
    return structural.split(x, tuple([integer_in("split", "position", s) for s in sections]), k)


@checks_keywords
def chunk(x: ArrayLike, /, chunks: int, axis: int = 0) -> tuple[Tensor, ...]:
    """x in at most `chunks` parts of length ⌈n/chunks⌉, of which the last may be shorter.

    x       an array, or anything `wf.asarray` accepts
    chunks  how many parts at most
    axis    the axis to cut

    >>> import weft as wf
    >>> [s.tolist() for s in wf.chunk([1, 2, 3, 4, 5], 2)]
    [[1, 2, 3], [4, 5]]
    """
    x = as_tensor(x)
    if integer_in("chunk", "chunks", chunks) < 1:
        raise errors.ArgumentError(f"chunk: {chunks} chunks, expected 1 or more")
    return structural.chunk(x, chunks, axis_of("chunk", x, axis))


def tile(x: ArrayLike, repetitions: int | tuple[int, ...] | list[int], /) -> Tensor:
    """x repeated as a whole along each axis.

    x            an array, or anything `wf.asarray` accepts
    repetitions  how often, for each axis; more numbers than axes make new leading axes

    >>> import weft as wf
    >>> wf.tile([1, 2], 2).tolist()
    [1, 2, 1, 2]
    """
    reps: Any = repetitions if hasattr(repetitions, "__len__") else (repetitions,)
    return arrange.tile(as_tensor(x), tuple([_count("tile", r) for r in reps]))


def _count(name: str, value) -> int:
    n = integer_in(name, "repetitions", value)
    if n < 0:
        raise errors.ArgumentError(f"{name}: {n} repetitions, expected 0 or more")
    return n


@checks_keywords
def repeat(
    x: ArrayLike, /, repeats: int | ArrayLike, *more: Never, axis: int | None = None
) -> Tensor:
    """Each element of x, or each slice along `axis`, several times.

    x        an array, or anything `wf.asarray` accepts
    repeats  how often: a number, or one for each element
    axis     the axis to repeat along; None: x is flattened first

    >>> import weft as wf
    >>> wf.repeat([1, 2], 2).tolist()
    [1, 1, 2, 2]
    >>> wf.repeat([1, 2], [3, 1]).tolist()
    [1, 1, 1, 2]
    """
    if more:
        raise errors.ArgumentError(
            f"repeat: {repeats}, {', '.join(map(str, more))} by position; give axis= to repeat "
            "each element along an axis, or wf.tile(x, repeats) for copies of the whole"
        )
    x, k = flat_or_axis("repeat", as_tensor(x), axis)
    counts = as_tensor(repeats)
    if not counts.ndim:
        return arrange.repeat(x, _count("repeat", repeats), k)
    return arrange.repeat(x, np.array([_count("repeat", r) for r in counts.tolist()], int), k)


def meshgrid(*arrays: ArrayLike, indexing: Literal["xy", "ij"] = "xy") -> tuple[Tensor, ...]:
    """The coordinates of a grid: array k holds the k-th coordinate of each point.

    arrays    coordinates along one axis each
    indexing  "xy": the first coordinate runs along the second axis; "ij": along the first

    >>> import weft as wf
    >>> [g.tolist() for g in wf.meshgrid([1, 2], [3, 4], indexing="ij")]
    [[[1, 1], [2, 2]], [[3, 4], [3, 4]]]
    """
    return tuple(arrange.meshgrid([as_tensor(a) for a in arrays], indexing))


def diag(x: ArrayLike, /, offset: int = 0, **unknown: Never) -> Tensor:
    """A matrix's diagonal, or the matrix that has a vector as its diagonal.

    x       a matrix or a vector
    offset  0 is the main diagonal, above it are positive numbers, below it negative ones

    >>> import weft as wf
    >>> wf.diag([[1, 2], [3, 4]]).tolist()
    [1, 4]
    >>> wf.diag([1, 2]).tolist()
    [[1, 0], [0, 2]]
    """
    if unknown:
        raise unexpected_keyword(diag, unknown)
    return arrange.diag(as_tensor(x), integer_in("diag", "offset", offset))


def diagonal(
    x: ArrayLike, /, *, offset: int = 0, axis1: int = 0, axis2: int = 1, **unknown: Never
) -> Tensor:
    """The diagonals xᵢᵢ over two axes, along a new last axis.

    x             an array, or anything `wf.asarray` accepts
    offset        0 is the main diagonal, above it are positive numbers, below it negative ones
    axis1, axis2  the axes of the rows and of the columns

    >>> import weft as wf
    >>> wf.diagonal([[1, 2], [3, 4]]).tolist()
    [1, 4]
    """
    if unknown:
        raise unexpected_keyword(diagonal, unknown)
    x = as_tensor(x)
    return arrange.diagonal(x, offset, *axes_of("diagonal", x, (axis1, axis2)))


def diagflat(x: ArrayLike, /, offset: int = 0, **unknown: Never) -> Tensor:
    """The matrix with all elements of x on a diagonal and zeros elsewhere.

    x       an array, which is flattened
    offset  0 is the main diagonal, above it are positive numbers, below it negative ones

    >>> import weft as wf
    >>> wf.diagflat([1, 2]).tolist()
    [[1, 0], [0, 2]]
    """
    if unknown:
        raise unexpected_keyword(diagflat, unknown)
    return arrange.diagflat(as_tensor(x), integer_in("diagflat", "offset", offset))


def diag_embed(x: ArrayLike, /, offset: int = 0, **unknown: Never) -> Tensor:
    """Matrices with the last axis of x on a diagonal and zeros elsewhere.

    x       an array, or anything `wf.asarray` accepts
    offset  0 is the main diagonal, above it are positive numbers, below it negative ones

    >>> import weft as wf
    >>> wf.diag_embed([[1, 2], [3, 4]]).tolist()
    [[[1, 0], [0, 2]], [[3, 0], [0, 4]]]
    """
    if unknown:
        raise unexpected_keyword(diag_embed, unknown)
    return arrange.diag_embed(as_tensor(x), offset)


def tril(x: ArrayLike, /, *, k: int = 0, **unknown: Never) -> Tensor:
    """The lower triangle of x: zeros above the k-th diagonal.

    x  an array whose last two axes are matrices
    k  0 is the main diagonal, above it are positive numbers, below it negative ones

    >>> import weft as wf
    >>> wf.tril([[1, 2], [3, 4]]).tolist()
    [[1, 0], [3, 4]]
    """
    if unknown:
        raise unexpected_keyword(tril, unknown)
    return arrange.tril(as_tensor(x), integer_in("tril", "k", k))


def triu(x: ArrayLike, /, *, k: int = 0, **unknown: Never) -> Tensor:
    """The upper triangle of x: zeros below the k-th diagonal.

    x  an array whose last two axes are matrices
    k  0 is the main diagonal, above it are positive numbers, below it negative ones

    >>> import weft as wf
    >>> wf.triu([[1, 2], [3, 4]]).tolist()
    [[1, 2], [0, 4]]
    """
    if unknown:
        raise unexpected_keyword(triu, unknown)
    return arrange.triu(as_tensor(x), integer_in("triu", "k", k))


@checks_keywords
def sliding_window(x: ArrayLike, /, size: int, *, step: int = 1, axis: int = -1) -> Tensor:
    """Overlapping windows along `axis`: their number in its place, their length at the end.

    x     an array, or anything `wf.asarray` accepts
    size  the length of a window
    step  how far apart windows begin
    axis  the axis to run along

    >>> import weft as wf
    >>> wf.sliding_window([1, 2, 3, 4], 3).tolist()
    [[1, 2, 3], [2, 3, 4]]
    """
    x = as_tensor(x)
    size, step = (integer_in("sliding_window", k, v) for k, v in (("size", size), ("step", step)))
    if size < 1 or step < 1:
        raise errors.ArgumentError(f"sliding_window: size {size}, step {step}; expected 1 or more")
    return arrange.windows(x, size, step, axis_of("sliding_window", x, axis))


def clone(x: ArrayLike, /) -> Tensor:
    """A copy of x with memory of its own, through which gradients flow.

    x  an array, or anything `wf.asarray` accepts

    >>> import weft as wf
    >>> x = wf.tensor([1.0, 2.0], requires_grad=True)
    >>> wf.clone(x).sum().backward()[x].tolist()
    [1.0, 1.0]
    """
    return structural.copy(as_tensor(x))
