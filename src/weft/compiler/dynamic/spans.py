"""Axes whose length changes from call to call, and arrays that are padded along them."""

from typing import NamedTuple

import numpy as np


class Span(NamedTuple):
    """An axis of outer · (length + offset) · inner elements: other axes may be joined to it.

    In each of the `outer` parts, the first (length + offset) · inner elements are the call's own;
    the others, up to the bucket's length, are padding.
    """

    outer: int = 1
    offset: int = 0
    inner: int = 1

    def size(self, length: int) -> int:
        """The size of the axis at a length."""
        return self.outer * (length + self.offset) * self.inner

    @property
    def factor(self) -> int:
        """By how many elements the axis grows with the length."""
        return self.outer * self.inner

    @property
    def plain(self) -> bool:
        """Whether no other axis is joined to it: its elements are positions."""
        return self.outer == self.inner == 1


# The span of each axis of a value; None for an axis of fixed length.
Spans = tuple[Span | None, ...]


def is_ragged(spans: Spans) -> bool:
    return any([s is not None for s in spans])


def shape_at(shape: tuple[int, ...], spans: Spans, length: int) -> tuple[int, ...]:
    """A shape with its spans at another length."""
    return tuple([n if s is None else s.size(length) for n, s in zip(shape, spans, strict=True)])


def _apart(shape: tuple[int, ...], spans: Spans, length: int) -> tuple[int, ...]:
    """The shape with each span split into three axes."""
    parts = []
    for n, s in zip(shape, spans, strict=True):
        parts += [n] if s is None else [s.outer, length + s.offset, s.inner]
    return tuple(parts)


def _own(shape: tuple[int, ...], spans: Spans, length: int) -> tuple[slice, ...]:
    """The index of the call's own part of an array whose spans are split."""
    whole, parts = slice(None), []
    for s in spans:
        parts += [whole] if s is None else [whole, slice(0, length + s.offset), whole]
    return tuple(parts)


def pad_array(array: np.ndarray, spans: Spans, length: int, bucket: int) -> np.ndarray:
    """The array, padded with zeros along each span to the bucket's length."""
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
    """The spans of a reshaped array; None where a span would be split.

    old  the shape before
    new  for each axis afterwards its length, or a span of which only outer · inner is known
    """
    groups, between = [1], []  # the factors before, between and after the spans
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
    """The span with these (length, size) pairs; None if the size does not grow with the length.

    The order of the factors around the length is not known; the span has them all in `inner`.
    """
    (m, a), (n, b) = small, large
    factor, rest = divmod(b - a, n - m)
    offset, odd = divmod(a, factor or 1)
    return None if rest or odd or factor < 1 else Span(1, offset - m, factor)
