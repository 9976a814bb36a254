"""Rows: pairs of features turned by angles."""

from ..core import dtypes
from ..core.aval import Aval, broadcast
from ..core.op import Caller
from ..errors import ShapeError
from .batching import Stacked
from .rows import linear
from .samples import neural as samples
from .slicing import narrow, slice_
from .structural import concat, reshape, stack, unbroadcast


def _rotate_shape(x: Aval, turn: Aval, interleaved, back) -> Aval:
    if not x.ndim or x.shape[-1] % 2 or turn.shape[-1:] != x.shape[-1:]:
        raise ShapeError(
            f"rotate: features {x.shape} and turns {turn.shape}; expected the same even length on "
            "their last axis: the cosines of half as many angles, then the sines"
        )
    shape = broadcast("rotate", x.shape, turn.shape)
    return x.like(shape, dtypes.promote(x.dtype, turn.dtype))


def _halves(x):
    axis, half = len(x.shape) - 1, x.shape[-1] // 2
    return narrow(x, axis, 0, half), narrow(x, axis, half, 2 * half)


def _pair(x, interleaved: bool):
    """The two coordinates of the points that are turned."""
    if not interleaved:
        return _halves(x)
    lead, half = tuple((0, n, 1) for n in x.shape[:-1]), x.shape[-1] // 2
    return slice_(x, (*lead, (0, half, 2))), slice_(x, (*lead, (1, half, 2)))


def _unpair(a, b, interleaved: bool):
    axis = len(a.shape) - 1
    if not interleaved:
        return concat([a, b], axis)
    return reshape(stack([a, b], axis + 1), (*a.shape[:-1], 2 * a.shape[-1]))


def _to_turn(g, x, turn, interleaved, back):
    (p, q), (a, b) = _pair(g, interleaved), _pair(x, interleaved)
    sine = a * q - b * p
    turned = concat([a * p + b * q, -sine if back else sine], len(sine.shape) - 1)
    return unbroadcast(turned, turn.shape)


# Points (a, b), neighbouring features or features of the two halves, turned by angles whose
# cosines are the first half of `turn` and whose sines are the second: forth, or back.
rotate: Caller = linear(
    "rotate",
    shape=_rotate_shape,
    transpose=[
        lambda g, x, turn, interleaved, back: unbroadcast(
            rotate(g, turn, interleaved, not back), x.shape
        ),
        _to_turn,
    ],
    reads=("turn", "x"),
    promote=(0, 1),
    static=True,
    batch=Stacked((1, 1)),
    sample=samples("rotations"),
)
