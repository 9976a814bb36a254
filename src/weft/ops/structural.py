"""Rows: the shape of arrays, whatever their elements are."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from math import prod

from ..core import dtypes
from ..core.aval import Aval, Shape, axes_in, axis_in, broadcast, reduced_shape
from ..core.op import Caller
from ..core.types import Array
from ..core.value import TENSORS
from ..errors import ArgumentError, AxisError, ShapeError
from .batching import Along, Stated, align_batch, pointwise
from .rows import linear, private
from .samples import structural as samples
from .slicing import along, narrow, slice_

cast: Caller = linear(
    "cast",
    reads="",
    shape=lambda x, dtype: x.like(dtype=dtypes.canonical(dtype)),
    transpose=[lambda g, x, dtype: cast(g, x.dtype)],
    recast=True,
    cost="light",
    moves="values",
    batch=pointwise,
    sample=samples("casts"),
)

# The same value with a node of its own, to differentiate with respect to it.
alias: Caller = linear(
    "alias",
    reads="",
    compute=lambda xp, x: x,
    shape=lambda x: x,
    transpose=[lambda g, x: g],
    cost="light",
    moves="strides",
    views="unseen",
    batch=pointwise,
    sample=samples("arrays"),
)

# The same value without a derivative, in traced programs.
detach: Caller = private(
    "detach",
    [0],
    compute=lambda xp, x: x,
    promote=(),
    cost="light",
    moves="strides",
    views="always",
    sample=samples("constants"),
)

copy: Caller = linear(
    "copy",
    reads="",
    shape=lambda x: x,
    transpose=[lambda g, x: g],
    cost="light",
    moves="strides",
    batch=pointwise,
    sample=samples("arrays"),
)


def _reshape_shape(x: Aval, shape) -> Aval:
    if prod(x.shape) != prod(shape):
        raise ShapeError(
            f"reshape: {x.shape} has {prod(x.shape)} elements, {tuple(shape)} has {prod(shape)}"
        )
    return x.like(shape)


reshape: Caller = linear(
    "reshape",
    reads="",
    shape=_reshape_shape,
    transpose=[lambda g, x, shape: reshape(g, x.shape)],
    moves="strides",
    views="sometimes",
    batch=Stated(lambda size, shape: ((size, *shape),)),
    sample=samples("reshapes"),
)


def _permute_shape(x: Aval, axes) -> Aval:
    if sorted(axes) != list(range(x.ndim)):
        raise AxisError(f"permute: {tuple(axes)} does not name each of {x.ndim} axes once")
    return x.like([x.shape[a] for a in axes])


@lru_cache(maxsize=256)
def inverse(axes: tuple[int, ...]) -> tuple[int, ...]:
    """The inverse of a permutation of axes."""
    return tuple(sorted(range(len(axes)), key=axes.__getitem__))


permute: Caller = linear(
    "permute",
    reads="",
    shape=_permute_shape,
    transpose=[lambda g, x, axes: permute(g, inverse(axes))],
    moves="strides",
    views="always",
    batch=Stated(lambda size, axes: ((0, *[a + 1 for a in axes]),)),
    sample=samples("permutes"),
)


def _broadcast_shape(x: Aval, shape) -> Aval:
    if broadcast("broadcast_to", x.shape, shape) != tuple(shape):
        raise ShapeError(f"broadcast_to: {x.shape} is larger than {tuple(shape)}")
    return x.like(shape)


def _batch_broadcast(call, size, mapped, args, static):
    (x,), (shape,) = args, static
    return call(align_batch(x, 1 + len(shape)), (size, *shape))


broadcast_to: Caller = linear(
    "broadcast_to",
    reads="",
    shape=_broadcast_shape,
    transpose=[lambda g, x, shape: unbroadcast(g, x.shape)],
    moves="strides",
    views="always",
    batch=_batch_broadcast,
    sample=samples("broadcasts"),
)


def _sum_shape(x: Aval, axes, keepdims: bool) -> Aval:
    axes_in("sum", axes, x.ndim)
    return x.like(reduced_shape(x.shape, axes, keepdims), dtypes.sum_dtype(x.dtype))


def _spread(g, x, axes, keepdims):
    shape = x.shape
    if not keepdims and len(axes) != len(shape):
        g = reshape(g, reduced_shape(shape, axes, True))
    return broadcast_to(g, shape)


sum_: Caller = linear(
    "sum",
    reads="",
    shape=_sum_shape,
    transpose=[_spread],
    precision="single",
    moves="sums",
    folds="sum",
    batch=Along(),
    sample=samples("sums"),
)


@lru_cache(maxsize=1024)
def _spread_axes(shape, narrower) -> tuple[tuple[int, ...], bool]:
    """The axes along which `narrower` broadcasts to `shape`, and whether all of them are new."""
    new = len(shape) - len(narrower)
    grown = [i + new for i, n in enumerate(narrower) if n == 1 != shape[i + new]]
    return (*range(new), *grown), not grown


def unbroadcast(g: Array, shape: Shape) -> Array:
    """g summed over the axes along which an argument of `shape` was broadcast."""
    have = g.shape
    if have == shape:
        return g
    axes, new = _spread_axes(tuple(have), tuple(shape))
    if new:
        return sum_(g, axes, False)
    g = sum_(g, axes, True)
    return g if len(have) == len(shape) else reshape(g, tuple(shape))


def mT(x: Array) -> Array:
    """x with its last two axes exchanged."""
    return permute(x, _matrices_turned(len(x.shape)))


@lru_cache(maxsize=64)
def _matrices_turned(ndim: int) -> tuple[int, ...]:
    return (*range(ndim - 2), ndim - 1, ndim - 2)


def swapaxes(x: Array, a: int, b: int) -> Array:
    """x with axes a and b exchanged."""
    return permute(x, _exchanged(len(x.shape), a, b))


@lru_cache(maxsize=256)
def _exchanged(ndim: int, a: int, b: int) -> tuple[int, ...]:
    axes = list(range(ndim))
    axes[a], axes[b] = b, a
    return tuple(axes)


def moveaxis(x: Array, source: tuple[int, ...], target: tuple[int, ...]) -> Array:
    """x with the axes `source` moved to the places `target`; the others keep their order."""
    rest = iter([i for i in range(len(x.shape)) if i not in source])
    placed = dict(zip(target, source, strict=True))
    return permute(x, tuple(placed[i] if i in placed else next(rest) for i in range(len(x.shape))))


def squeeze(x: Array, axes: tuple[int, ...]) -> Array:
    """x without the axes of length 1 named."""
    shape = x.shape
    for a in axes:
        if shape[axis_in("squeeze", a, len(shape))] != 1:
            raise ShapeError(
                f"squeeze: axis {a} of {tuple(shape)} has length {shape[a]}, expected 1; "
                "select an element of it instead"
            )
    return reshape(x, reduced_shape(shape, axes, False))


def expand_dims(x: Array, axes: tuple[int, ...]) -> Array:
    """x with new axes of length 1, which will have the numbers `axes` in the result."""
    ndim = len(x.shape) + len(axes)
    axes = axes_in("expand_dims", axes, ndim)
    rest = iter(x.shape)
    return reshape(x, tuple(1 if i in axes else next(rest) for i in range(ndim)))


def _flip_shape(x: Aval, axes) -> Aval:
    axes_in("flip", axes, x.ndim)
    return x


flip: Caller = linear(
    "flip",
    reads="",
    shape=_flip_shape,
    transpose=[lambda g, x, axes: flip(g, axes)],
    moves="strides",
    views="always",
    batch=Along(),
    sample=samples("flips"),
)


def _roll_shape(x: Aval, shifts, axes) -> Aval:
    if len(shifts) != len(axes):
        raise ArgumentError(f"roll: {len(shifts)} shifts for {len(axes)} axes; give one for each")
    for a in axes:
        axis_in("roll", a, x.ndim)
    return x


roll: Caller = linear(
    "roll",
    reads="",
    shape=_roll_shape,
    transpose=[lambda g, x, shifts, axes: roll(g, tuple([-s for s in shifts]), axes)],
    moves="indices",
    batch=Along((1,)),
    sample=samples("rolls"),
)


def _common(name: str, avals: list[Aval]) -> Aval:
    if not avals:
        raise ArgumentError(f"{name}: got no arrays, expected at least one")
    return avals[0].like(dtype=dtypes.promote_all(a.dtype for a in avals))


def _concat_shape(avals: list[Aval], axis: int, ends) -> Aval:
    first = _common("concat", avals)
    axis_in("concat", axis, first.ndim)
    others = reduced_shape(first.shape, (axis,), True)
    for a in avals:
        if reduced_shape(a.shape, (axis,), True) != others:
            raise ShapeError(
                f"concat: {first.shape} and {a.shape} differ on an axis other than {axis}"
            )
    return first.like((*first.shape[:axis], ends[-1], *first.shape[axis + 1 :]))


def _piece(g, i, args, axis, ends):
    return narrow(g, axis, ends[i - 1] if i else 0, ends[i])


# `ends` are the cumulative lengths, since the pieces themselves are not saved.
_concat = linear(
    "concat",
    reads="",
    compute=lambda xp, xs, axis, ends: xp.concat(xs, axis),
    shape=_concat_shape,
    transpose=_piece,
    joint=True,
    moves="parts",
    batch=Along(),
    sample=samples("concats"),
)


def concat(xs: Sequence[Array], axis: int) -> Array:
    """Arrays one after the other along an axis they have."""
    total, ends = 0, []
    for x in xs:
        shape = x._data.shape if x.__class__ in TENSORS else x.shape
        if not 0 <= axis < len(shape):
            axis_in("concat", axis, len(shape))
        total += shape[axis]
        ends.append(total)
    return _concat(xs, axis, tuple(ends))


def _stack_shape(avals: list[Aval], axis: int) -> Aval:
    first = _common("stack", avals)
    axis_in("stack", axis, first.ndim + 1)
    for a in avals:
        if a.shape != first.shape:
            raise ShapeError(f"stack: {first.shape} and {a.shape} differ; all must be alike")
    return first.like((*first.shape[:axis], len(avals), *first.shape[axis:]))


stack: Caller = linear(
    "stack",
    reads="",
    compute=lambda xp, xs, axis: xp.stack(xs, axis),
    shape=_stack_shape,
    transpose=lambda g, i, args, axis: slice_(g, along(g.shape, axis, i)),
    joint=True,
    moves="parts",
    batch=Along(),
    sample=samples("stacks"),
)


def unstack(x: Array, axis: int) -> tuple[Array, ...]:
    """The slices of x along an axis, without that axis."""
    return tuple(slice_(x, along(x.shape, axis, i)) for i in range(x.shape[axis]))


def split(x: Array, ends: tuple[int, ...], axis: int) -> tuple[Array, ...]:
    """x split before each of the positions `ends` along an axis, as by NumPy's split."""
    n = x.shape[axis]
    cuts = [min(end, n) for end in (0, *ends, n)]
    return tuple(narrow(x, axis, a, max(a, b)) for a, b in pairwise(cuts))


def chunk(x: Array, count: int, axis: int) -> tuple[Array, ...]:
    """x cut into at most `count` pieces of one length, the last of which may be shorter."""
    size = max(1, -(-x.shape[axis] // count))
    return split(x, tuple(range(size, x.shape[axis], size)), axis)
