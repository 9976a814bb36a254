"""Padding: margins of constants, of the edges continued, and of ramps and statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .. import errors
from ..core import dtypes
from ..core.settings import current
from ..core.value import TENSORS
from ..ops import arrange, structural
from . import make, manipulation, reductions, selection
from .arguments import as_tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .tensor import Tensor
    from .types import ArrayLike

Mode = Literal[
    "constant", "edge", "reflect", "symmetric", "wrap", "linear_ramp", "maximum", "mean", "median",
    "minimum", "empty",
]  # fmt: skip

_STATISTICS = {
    "maximum": reductions.max,
    "minimum": reductions.min,
    "mean": reductions.mean,
    "median": selection.median,
}
_CONTINUED = ("edge", "reflect", "symmetric", "wrap")


def pad(
    x: ArrayLike,
    pad_width: int | Sequence[Any],
    /,
    mode: Mode = "constant",
    *,
    constant_values: ArrayLike = 0.0,
    end_values: ArrayLike = 0.0,
    stat_length: int | Sequence[Any] | None = None,
    reflect_type: Literal["even", "odd"] = "even",
) -> Tensor:
    """x with margins at its ends.

    x                an array, or anything `wf.asarray` accepts
    pad_width        a number, (before, after), or one such pair for each axis
    mode             constant, edge, reflect, symmetric, wrap, linear_ramp, maximum, mean,
                     median, minimum or empty (zeros), as in NumPy
    constant_values  the margins of mode constant: a number, (before, after), or a pair for each
                     axis; tensors among them keep their gradient
    end_values       the same for the ends of linear_ramp
    stat_length      how many elements at the edge a statistic is taken of (None: all)
    reflect_type     of reflect and symmetric: even, or odd, which is 2·edge less the even one

    >>> import weft as wf
    >>> wf.pad([1.0, 2.0], (1, 2)).tolist()
    [0.0, 1.0, 2.0, 0.0, 0.0]
    >>> wf.pad([1.0, 2.0], (1, 2), "linear_ramp", end_values=(0.0, 4.0)).tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0]
    """
    x = as_tensor(x)
    widths = _pairs_of_widths(x, pad_width)
    if mode == "empty" or (mode == "constant" and _is_number(constant_values)):
        value = 0.0 if mode == "empty" else make.number("pad", "constant_values", constant_values)
        return arrange.pad(x, widths, value)
    if mode in _CONTINUED:
        return _continue_beyond(x, widths, mode, reflect_type)
    if mode == "constant":
        values = _pairs("constant_values", constant_values, x.ndim)
        return _axis_by_axis(x, widths, lambda x, axis, end, n: _fill_end(x, axis, n, values, end))
    _refuse_integers(x, mode)
    if mode == "linear_ramp":
        ends = _pairs("end_values", end_values, x.ndim)
        return _axis_by_axis(x, widths, lambda x, axis, end, n: _ramp(x, axis, n, ends, end))
    if mode in _STATISTICS:
        lengths = _pairs("stat_length", stat_length, x.ndim)
        take = _STATISTICS[mode]
        return _axis_by_axis(
            x, widths, lambda x, axis, end, n: _statistic(x, axis, n, lengths, end, take)
        )
    known = ", ".join(("constant", "empty", "linear_ramp", *_CONTINUED, *_STATISTICS))
    raise errors.ArgumentError(f"pad: mode {mode!r}, expected one of {known}")


def _refuse_integers(x, mode: str) -> None:
    if not dtypes.is_inexact(x.dtype) and mode in ("linear_ramp", "mean", "median"):
        raise errors.DTypeError(
            f"pad: mode {mode!r} of {x.dtype}: its margins are fractions; make x a float first, "
            "x.to('float64')"
        )


def _is_number(v) -> bool:
    """Whether there is one value for all margins, and it is a constant."""
    if type(v) in TENSORS:
        recorded = v.requires_grad and current.get().grad
        return v.shape == () and not recorded and type(v._data) is np.ndarray
    return np.ndim(v) == 0 if not isinstance(v, tuple | list) else False


def _pairs_of_widths(x, pad_width) -> tuple[tuple[int, int], ...]:
    if isinstance(pad_width, dict):
        widths = np.zeros((x.ndim, 2), int)
        for axis, width in pad_width.items():
            widths[axis] = width
        pad_width = widths
    widths = np.asarray(pad_width)
    if widths.dtype.kind not in "iu" or widths.shape not in ((), (1,), (2,), (1, 2), (x.ndim, 2)):
        raise errors.ArgumentError(
            f"pad: widths {pad_width!r} for the shape {x.shape}; expected an integer, (before, "
            "after), or one such pair for each axis"
        )
    return tuple((int(a), int(b)) for a, b in np.broadcast_to(widths, (x.ndim, 2)))


def _pairs(what: str, values, ndim: int) -> list[tuple]:
    """(before, after) for each axis out of a number, a pair, or a pair for each axis."""
    if type(values) in TENSORS and values.ndim:
        values = [list(v) if v.ndim else v for v in values]
    elif isinstance(values, np.ndarray):
        values = values.tolist()
    if not isinstance(values, list | tuple):
        return [(values, values)] * ndim
    if not any(isinstance(v, list | tuple) for v in values) and 1 <= len(values) <= 2:
        return [(values[0], values[-1])] * ndim
    pairs = [tuple(v) if isinstance(v, list | tuple) else (v, v) for v in values]
    pairs = [p * 2 if len(p) == 1 else p for p in pairs]
    pairs = pairs * ndim if len(pairs) == 1 else pairs
    if len(pairs) != ndim or any(len(p) != 2 for p in pairs):
        raise errors.ArgumentError(
            f"pad: {what} {values!r}; expected a number, (before, after), or one such pair for "
            f"each of {ndim} axes"
        )
    return pairs


def _axis_by_axis(x, widths, margin: Callable[..., Any]):
    """x padded one axis after the other, each from the result so far, as in NumPy.

    margin  of (x, axis, end, width): the elements before (end 0) or after (end 1)
    """
    for axis, (before, after) in enumerate(widths):
        parts = [margin(x, axis, 0, before)] if before else []
        parts.append(x)
        parts += [margin(x, axis, 1, after)] if after else []
        x = manipulation.concat(parts, axis=axis) if len(parts) > 1 else x
    return x


def _broadcast(x, axis: int, n: int, value):
    shape = tuple(n if k == axis else d for k, d in enumerate(x.shape))
    return structural.broadcast_to(value, shape)


def _beside(x, value):
    """A margin's value as a tensor of x's dtype and device, with its gradient."""
    return make.asarray(value, dtype=x.dtype, device=x.device)


def _fill_end(x, axis: int, n: int, values, end: int):
    return _broadcast(x, axis, n, _beside(x, values[axis][end]))


def _edge(x, axis: int, end: int, length: int = 1):
    n = x.shape[axis]
    start, stop = (0, length) if end == 0 else (n - length, n)
    return structural.narrow(x, axis, start, stop)


def _ramp(x, axis: int, n: int, ends, end: int):
    if not x.shape[axis]:
        raise errors.ShapeError(
            f"pad: axis {axis} of {x.shape} is empty; mode 'linear_ramp' needs an edge"
        )
    last = _beside(x, ends[axis][end])
    along = tuple(n if k == axis else 1 for k in range(x.ndim))
    share = make.arange(n, dtype=dtypes.to_real(x.dtype), device=x.device) / n
    share = (share if end == 0 else manipulation.flip(share)).reshape(along)
    return last + (_edge(x, axis, end) - last) * share


def _statistic(x, axis: int, n: int, lengths, end: int, take: Callable[..., Any]):
    length = lengths[axis][end]
    if length is not None and length < 1:
        raise errors.ArgumentError(f"pad: stat_length {length}, expected 1 or more")
    size = x.shape[axis]
    part = x if length is None else _edge(x, axis, end, min(int(length), size))
    return _broadcast(x, axis, n, take(part, axis=axis, keepdims=True))


def _continue_beyond(x, widths, mode: str, reflect_type: str):
    if reflect_type not in ("even", "odd"):
        raise errors.ArgumentError(f"pad: reflect_type={reflect_type!r}, expected 'even' or 'odd'")
    if mode not in ("reflect", "symmetric") or reflect_type == "even":
        return arrange.pad_by(x, widths, mode)
    for axis, width in enumerate(widths):
        x = _odd(x, axis, width, mode) if any(width) else x
    return x


def _odd(x, axis: int, width: tuple[int, int], mode: str):
    """The reflections at the edges, which are points of symmetry: 2·edge less what is there."""
    (left, right), skipped = width, mode == "reflect"
    period = x.shape[axis] - skipped
    if not period:
        return arrange.pad_by(x, _only(x, axis, width), "edge")
    while left or right:
        room = (x.shape[axis] - skipped) // period * period  # whole reflections, as in NumPy
        now = (min(left, room), min(right, room))
        even = arrange.pad_by(x, _only(x, axis, now), mode)
        n, parts = x.shape[axis], [x]
        if now[0]:
            parts.insert(0, 2 * _edge(x, axis, 0) - structural.narrow(even, axis, 0, now[0]))
        if now[1]:
            after = structural.narrow(even, axis, now[0] + n, sum(now) + n)
            parts.append(2 * _edge(x, axis, 1) - after)
        x = manipulation.concat(parts, axis=axis)
        left, right = left - now[0], right - now[1]
    return x


def _only(x, axis: int, width: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    return tuple(width if k == axis else (0, 0) for k in range(x.ndim))
