"""Axes whose length changes from call to call, and arrays that are padded along them."""

from typing import NamedTuple

import numpy as np


class Span(NamedTuple):
    """An axis of outer · (length + offset) · inner elements: other axes may have been joined to it.

    Of each of the `outer` parts, the first (length + offset) · inner elements are a call's own, and
    what is behind them up to the bucket's length is padding.
    """

    outer: int = 1
    offset: int = 0
    inner: int = 1

    def size(self, length: int) -> int:
        """How long the axis is."""
        return self.outer * (length + self.offset) * self.inner

    @property
    def factor(self) -> int:
        """By how much the axis grows with the length."""
        return self.outer * self.inner

    @property
    def plain(self) -> bool:
        """Whether nothing was joined to the axis: its elements are positions."""
        return self.outer == self.inner == 1


# For each axis of a value its span; None for one whose length is always the same.
Spans = tuple[Span | None, ...]


def is_ragged(spans: Spans) -> bool:
    return any([s is not None for s in spans])


def shape_at(shape: tuple[int, ...], spans: Spans, length: int) -> tuple[int, ...]:
    """A shape with its spans for another length."""
    return tuple([n if s is None else s.size(length) for n, s in zip(shape, spans, strict=True)])


def _apart(shape: tuple[int, ...], spans: Spans, length: int) -> tuple[int, ...]:
    """The shape with each span taken apart into three axes."""
    parts = []
    for n, s in zip(shape, spans, strict=True):
        parts += [n] if s is None else [s.outer, length + s.offset, s.inner]
    return tuple(parts)


def _own(shape: tuple[int, ...], spans: Spans, length: int) -> tuple[slice, ...]:
    """Which part of an array that was taken apart is a call's own."""
    whole, parts = slice(None), []
    for s in spans:
        parts += [whole] if s is None else [whole, slice(0, length + s.offset), whole]
    return tuple(parts)


def pad_array(array: np.ndarray, spans: Spans, length: int, bucket: int) -> np.ndarray:
    """The array with zeros behind each span, as long as for the bucket's length."""
    if length == bucket:
        return array
    large = np.zeros(_apart(array.shape, spans, bucket), array.dtype)
    large[_own(array.shape, spans, length)] = array.reshape(_apart(array.shape, spans, length))
    return large.reshape(shape_at(array.shape, spans, bucket))


def cut(array: np.ndarray, spans: Spans, length: int, bucket: int) -> np.ndarray:
    """The call's own part of an array, in memory of its own."""
    if length == bucket:
        return array
    parts = array.reshape(_apart(array.shape, spans, bucket))
    own = np.ascontiguousarray(parts[_own(array.shape, spans, length)])
    own = own if own.flags.owndata else own.copy()
    shape = shape_at(array.shape, spans, length)
    return own if own.shape == shape else own.reshape(shape).copy()


def reshape_spans(spans: Spans, old: tuple[int, ...], new: list[int | Span]) -> Spans | None:
    """The spans of an array that is reshaped; None where a span would be torn apart.

    old  the shape before
    new  for each axis afterwards its length, or a span whose factors count together only
    """
    groups, between = [1], []  # what lies before, between and behind the spans
    for n, s in zip(old, spans, strict=True):
        if s is None:
            groups[-1] *= n
        else:
            groups[-1] *= s.outer
            between.append(s.offset)
            groups.append(s.inner)
    if not all(groups):
        return None
    made: list[Span | None] = []
    k, left = 0, groups[0]
    for axis in new:
        if isinstance(axis, int):
            if left % axis:
                return None
            made.append(None)
            left //= axis
            continue
        if k == len(between) or between[k] != axis.offset:
            return None
        outer, count = left, axis.factor
        if count % outer or groups[k + 1] % (count // outer):
            return None
        made.append(Span(outer, axis.offset, count // outer))
        k, left = k + 1, groups[k + 1] // (count // outer)
    return tuple(made) if k == len(between) and left == 1 else None


def span_between(small: tuple[int, int], large: tuple[int, int]) -> Span | None:
    """What grows like (length, size) at two lengths, if the size grows with the length at all.

    How factors lie around the length is not known; a span has them all behind it.
    """
    (m, a), (n, b) = small, large
    factor, rest = divmod(b - a, n - m)
    offset, odd = divmod(a, factor or 1)
    return None if rest or odd or factor < 1 else Span(1, offset - m, factor)
