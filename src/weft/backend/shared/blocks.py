"""Computing into given memory piece by piece, so that temporaries stay small."""

from collections.abc import Callable, Sequence
from math import prod

from .types import Raw


def write(
    kernel: Callable[..., Raw],
    args: Sequence[Raw],
    out: Raw,
    overwrite: Callable[[Raw, Raw], None],
    block: int,
) -> None:
    """out ← kernel(*args) for an elementwise kernel, at most about `block` elements at a time."""
    size = prod(out.shape)
    if size <= block:
        overwrite(out, kernel(*args))
        return
    n, ndim = out.shape[0], len(out.shape)
    rows = block * n // size
    places = range(n) if not rows else [slice(i, i + rows) for i in range(0, n, rows)]
    for place in places:
        parts = [_part(a, place, ndim) for a in args]
        write(kernel, parts, out[place], overwrite, block)


def _part(a: Raw, place: int | slice, ndim: int) -> Raw:
    """The part of an argument, which may broadcast, for a slice of the result's first axis."""
    if not hasattr(a, "shape") or len(a.shape) < ndim:
        return a
    if a.shape[0] == 1:
        return a if isinstance(place, slice) else a[0]
    return a[place]
