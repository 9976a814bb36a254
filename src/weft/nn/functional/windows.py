"""Reading the arguments of functions that slide windows: sizes, steps and padding for each axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...core.aval import integer_in
from ...errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    from ...arrays.tensor import Tensor

Sizes = tuple[int, ...]
Padding = tuple[tuple[int, int], ...]
# Sizes of a result; None leaves an axis as it is.
OutputSize = int | None | Sequence[int | None]


def each(name: str, what: str, value: Any, axes: int, least: int) -> Sizes:
    """An integer for all axes or one for each, none smaller than `least`."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        found = tuple([integer_in(name, what, v) for v in value])
        found = found * axes if len(found) == 1 else found
    else:
        found = (integer_in(name, what, value),) * axes
    if len(found) != axes:
        raise ArgumentError(
            f"{name}: {what} {tuple(value)} has {len(found)} numbers; give one, or {axes}"
        )
    if min(found) < least:
        raise ArgumentError(f"{name}: {what} {value}; expected at least {least}")
    return found


def layout(name: str, x: Tensor, axes: int, channels: bool = True) -> Sizes:
    """The sizes of the axes that windows slide along, after checking how many there are."""
    shape = tuple(x.shape)
    if len(shape) not in (axes + 1, axes + 2):
        letters = ", ".join("DHW"[3 - axes :] if axes > 1 else "L")
        raise ShapeError(
            f"{name}: an input of shape {shape}; expected (N, C, {letters}) or (C, {letters})"
        )
    return shape[-axes:]


def reach(kernel: Sizes, dilation: Sizes) -> Sizes:
    """How many elements a window spans."""
    return tuple([d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)])


def exact(name: str, size: Sizes, spans: Sizes, stride: Sizes, padding: Padding) -> Padding:
    """The padding without what windows do not reach at the ends."""
    found = []
    for n, span, s, (a, b) in zip(size, spans, stride, padding, strict=True):
        room = n + a + b - span
        if room < 0:
            raise ShapeError(
                f"{name}: windows span {span} elements, an axis of {n} padded by {a} and {b} has "
                f"{n + a + b}; pad more, or take a smaller kernel or dilation"
            )
        found.append((a, b - room % s))
    return tuple(found)


def rounded_up(name: str, size: Sizes, spans: Sizes, stride: Sizes, padding: Padding) -> Padding:
    """The padding with what the last windows reach beyond it; they start before its end."""
    found = []
    for n, span, s, (a, b) in zip(size, spans, stride, padding, strict=True):
        count = -(-(n + a + b - span) // s) + 1
        if (count - 1) * s >= n + a:
            count -= 1
        if count < 1:
            raise ShapeError(
                f"{name}: windows span {span} elements and an axis of {n} padded by {a} and {b} "
                "has no place for one; pad more, or take a smaller kernel or dilation"
            )
        found.append((a, (count - 1) * s + span - n - a))
    return tuple(found)
