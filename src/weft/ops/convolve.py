"""Rows: convolution, in the three forms that are each other's derivatives.

Arrays are x (n, c, *size), weights w (o, c / groups, *kernel) and results y (n, o, *counts). Sizes
fit exactly (see backend/shared/window_sizes.py): the last window ends where the padding ends.
"""

from collections.abc import Sequence
from typing import Any

from ..backend.shared.window_sizes import counts_of, kernel_of, size_of
from ..core import dtypes
from ..core.aval import Aval
from ..core.op import Caller
from ..core.record import record
from ..core.types import Array, Static
from ..errors import ShapeError
from .axes import floating
from .batching import rank, spread
from .complex_ import conj
from .rows import general, joins_gradients, linear, on_demand
from .samples import convolve as samples
from .slicing import narrow
from .structural import broadcast_to, permute, reshape, sum_

# The axes in front: images, channels of the array, channels of the result.
_AXES = {"x": "nc", "w": "oc", "y": "no"}


def _blocks(role: str, axis: str, groups: int) -> int:
    """How many groups an axis of channels has; weights have the channels of one group."""
    return groups if axis == "o" or (axis == "c" and role == "x") else 1


def _fold_batch(x, role: str, axis: str, blocks: int):
    """x with its leading batch axis folded into another axis, within each block."""
    k = 1 + _AXES[role].index(axis)
    size, n = x.shape[0], x.shape[k]
    apart = reshape(x, (*x.shape[:k], blocks, n // blocks, *x.shape[k + 1 :]))
    order = (*range(1, k + 1), 0, *range(k + 1, len(apart.shape)))
    return reshape(permute(apart, order), (*x.shape[1:k], size * n, *x.shape[k + 1 :]))


def _unfold_batch(y, role: str, axis: str, blocks: int, size: int):
    """The opposite of `_fold_batch`."""
    k = _AXES[role].index(axis)
    n = y.shape[k] // size
    apart = reshape(y, (*y.shape[:k], blocks, size, n // blocks, *y.shape[k + 1 :]))
    order = (k + 1, *range(k + 1), *range(k + 2, len(apart.shape)))
    return reshape(permute(apart, order), (size, *y.shape[:k], n, *y.shape[k + 1 :]))


@record
class GroupedBatching:
    """A batch of one argument joins an axis that the other lacks; a batch of both, the groups."""

    roles: tuple[str, str]
    result: str

    def __call__(
        self, call: Caller, size: int, mapped: Sequence[bool], args: Sequence[Array], static: Static
    ) -> Array:
        *geometry, groups = static
        ranks = [rank(a) - m for a, m in zip(args, mapped, strict=True)]
        if ranks[0] != ranks[1] or groups < 1:
            raise ValueError("the batch would pass for an axis")  # the shape rule says why
        if not size:
            return _none(call, mapped, args, static)
        if all(mapped):
            moved = [_fold_batch(a, r, _own(r), 1) for a, r in zip(args, self.roles, strict=True)]
            y = call(*moved, *geometry, groups * size)
            return _unfold_batch(y, self.result, _own(self.result), 1, size)
        k = mapped.index(True)
        role, other = self.roles[k], self.roles[1 - k]
        (axis,) = set(_AXES[role]) - set(_AXES[other])
        moved = list(args)
        moved[k] = _fold_batch(args[k], role, axis, _blocks(role, axis, groups))
        y = call(*moved, *static)
        return _unfold_batch(y, self.result, axis, _blocks(self.result, axis, groups), size)


def _none(call, mapped, args, static):
    """The results of an empty batch: those of zeros, repeated 0 times."""
    zeros = [sum_(a, (0,), False) if m else a for m, a in zip(mapped, args, strict=True)]
    y = call(*zeros, *static)
    return narrow(reshape(y, (1, *y.shape)), 0, 0, 0)


def _own(role: str) -> str:
    """The axis that groups divide."""
    return "c" if role == "x" else "o"


def _ranks(name: str, a: Aval, b: Aval, groups: int) -> None:
    if a.ndim != b.ndim or a.ndim < 3:
        raise ShapeError(
            f"{name}: {a.shape} and {b.shape}; expected two axes for images or channels and then "
            "as many axes to slide along in both"
        )
    if groups < 1:
        raise ShapeError(f"{name}: {groups} groups; expected at least one")


def _divide(name: str, what: str, n: int, groups: int) -> int:
    if n % groups:
        raise ShapeError(f"{name}: {n} {what} in {groups} groups: {groups} must divide {n}")
    return n // groups


def _equal(name: str, what: str, a: int, b: int) -> None:
    if a != b:
        raise ShapeError(f"{name}: {a} ≠ {b} {what}")


def _result_aval(a: Aval, b: Aval, shape) -> Aval:
    return a.like(shape, floating(dtypes.promote(a.dtype, b.dtype)))


def _convolution_shape(x: Aval, w: Aval, stride, padding, dilation, groups: int) -> Aval:
    name = f"convolution: {x.shape} by weights {w.shape}"
    _ranks(name, x, w, groups)
    each = _divide(name, "channels of the array", x.shape[1], groups)
    _divide(name, "channels of the result", w.shape[0], groups)
    _equal(name, "channels of the array in each group", each, w.shape[1])
    counts = counts_of(x.shape[2:], w.shape[2:], stride, padding, dilation)
    return _result_aval(x, w, (x.shape[0], w.shape[0], *counts))


def _transposed_shape(y: Aval, w: Aval, stride, padding, dilation, groups: int) -> Aval:
    name = f"convolution_transposed: {y.shape} by weights {w.shape}"
    _ranks(name, y, w, groups)
    _divide(name, "channels", w.shape[0], groups)
    _equal(name, "channels", y.shape[1], w.shape[0])
    size = size_of(y.shape[2:], w.shape[2:], stride, padding, dilation)
    return _result_aval(y, w, (y.shape[0], w.shape[1] * groups, *size))


def _weight_shape(x: Aval, y: Aval, stride, padding, dilation, groups: int) -> Aval:
    name = f"convolution_weight: {x.shape} and {y.shape}"
    _ranks(name, x, y, groups)
    _equal(name, "images", x.shape[0], y.shape[0])
    each = _divide(name, "channels of the array", x.shape[1], groups)
    _divide(name, "channels of the result", y.shape[1], groups)
    kernel = kernel_of(x.shape[2:], y.shape[2:], stride, padding, dilation)
    return _result_aval(x, y, (y.shape[1], each, *kernel))


_ROW: dict[str, Any] = {"promote": (0, 1), "floating": True, "static": True, "precision": "half"}

convolution: Caller = linear(
    "convolution",
    shape=_convolution_shape,
    transpose=[
        lambda g, x, w, *how: convolution_transposed(g, w, *how),
        lambda g, x, w, *how: convolution_weight(x, g, *how),
    ],
    reads=("w", "x"),
    at_once=lambda g, x, w, *how: convolution_gradient(g, x, w, *how),
    batch=GroupedBatching(("x", "w"), "y"),
    sample=samples("convolutions"),
    **_ROW,
)

convolution_transposed: Caller = linear(
    "convolution_transposed",
    shape=_transposed_shape,
    transpose=[
        lambda g, y, w, *how: convolution(g, w, *how),
        lambda g, y, w, *how: convolution_weight(g, y, *how),
    ],
    reads=("w", "y"),
    batch=GroupedBatching(("y", "w"), "x"),
    sample=samples("transposed"),
    **_ROW,
)

convolution_weight: Caller = linear(
    "convolution_weight",
    shape=_weight_shape,
    transpose=[
        lambda g, x, y, *how: convolution_transposed(y, g, *how),
        lambda g, x, y, *how: convolution(x, g, *how),
    ],
    reads=("y", "x"),
    batch=GroupedBatching(("x", "y"), "w"),
    sample=samples("weights"),
    **_ROW,
)


def _gradient_shape(g: Aval, x: Aval, w: Aval, *how):
    y = _convolution_shape(x, w, *how)
    if g.shape != y.shape:
        raise ShapeError(f"convolution_gradient: a cotangent {g.shape}; expected {y.shape}")
    return tuple(_result_aval(g, v, v.shape) for v in (x, w))


def _sum_of(*terms):
    """The sum of the terms that are not None; None if there are none."""
    given = [t for t in terms if t is not None]
    return given[0] + given[1] if len(given) > 1 else given[0] if given else None


def _gradient_push(tangents, results, g, x, w, *how):
    tg, tx, tw = tangents
    found = (
        _sum_of(
            None if tg is None else convolution_transposed(tg, w, *how),
            None if tw is None else convolution_transposed(g, tw, *how),
        ),
        _sum_of(
            None if tg is None else convolution_weight(x, tg, *how),
            None if tx is None else convolution_weight(tx, g, *how),
        ),
    )
    return tuple(z * 0 if t is None else t for t, z in zip(found, results, strict=True))


def _gradient_batch(call, size, mapped, args, static):
    """By the two rows, whose batching has no axis in common."""
    g, x, w = (a if m else spread(a, size) for a, m in zip(args, mapped, strict=True))
    both = (True, True)
    by_input, by_weight = GroupedBatching(("y", "w"), "x"), GroupedBatching(("x", "y"), "w")
    dx = by_input(convolution_transposed, size, both, (g, w), static)
    return dx, by_weight(convolution_weight, size, both, (x, g), static)


# The cotangents of x and of the weights, which libraries have as one call.
convolution_gradient: Caller = general(
    "convolution_gradient",
    shape=_gradient_shape,
    push=_gradient_push,
    arity=3,
    outputs=2,
    tracked=(0, 1),
    batch=_gradient_batch,
    sample=samples("convolution_gradients"),
    promote=(0, 1, 2),
    floating=True,
    static=True,
)


def _biased_shape(x: Aval, w: Aval, b: Aval, *how) -> Aval:
    y = _convolution_shape(x, w, *how)
    if b.shape != y.shape[1:2]:
        raise ShapeError(
            f"convolution: a bias of shape {b.shape}; expected {y.shape[1:2]}, one number for each "
            "channel of the result"
        )
    return y.like(dtype=floating(dtypes.promote_all([x.dtype, w.dtype, b.dtype])))


def _per_channel(b, ndim: int):
    """(…, o) with axes of length 1 appended, to broadcast to results of `ndim` axes."""
    return reshape(b, (*b.shape[:-1], 1, b.shape[-1], *(1,) * (ndim - 2)))


def _biased_push(tangents, y, x, w, b, *how):
    tx, tw, tb = tangents
    terms = [
        *([] if tx is None else [convolution(tx, w, *how)]),
        *([] if tw is None else [convolution(x, tw, *how)]),
        *([] if tb is None else [broadcast_to(_per_channel(tb, len(y.shape)), y.shape)]),
    ]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


@on_demand
def _biased_pull(g, y, x, w, b, *how):
    def chosen(asked):
        others = (0, *range(2, len(g.shape)))
        if asked[0] and asked[1] and joins_gradients(g):
            return *convolution_gradient(g, x, w, *how), lambda: sum_(g, others, False)
        return (
            lambda: convolution_transposed(g, conj(w), *how),
            lambda: convolution_weight(conj(x), g, *how),
            lambda: sum_(g, others, False),
        )

    return chosen


def _biased_batch(call, size, mapped, args, static):
    (x, w, b), by_row = args, convolution.op.batch
    ndim = len(x.shape) - mapped[0]
    if mapped[0] or mapped[1]:
        y = by_row(convolution, size, mapped[:2], (x, w), static)  # pyright: ignore[reportOptionalCall]
    else:
        y = convolution(x, w, *static)
    return y + _per_channel(b, ndim)


_BIASED: dict[str, Any] = {**_ROW, "promote": (0, 1, 2)}
# The bias is added to each tile while it is in the cache.
convolution_biased: Caller = general(
    "convolution_biased",
    shape=_biased_shape,
    push=_biased_push,
    pull=_biased_pull,
    reads="x w",
    arity=3,
    batch=_biased_batch,
    sample=samples("biased_convolutions"),
    **_BIASED,
)
