"""Batching rules: the few that most rows share.

A rule is called as (call, size, mapped, args, static): `args[i]` has a leading batch axis of
length `size` where `mapped[i]`, and the results must all have one.
"""

from collections.abc import Callable, Sequence
from typing import Any

from ..core.aval import Aval
from ..core.backends import PYTHON_SCALARS
from ..core.op import TABLE, Caller
from ..core.record import record
from ..core.types import Array, Static
from ..core.value import aval_of


def _row(name: str) -> Caller:
    """A row by name, for rows that import this module."""
    from ..core.call import caller  # rows import this module

    return caller(TABLE[name])


def rank(x: Array) -> int:
    """The number of axes; Python scalars have none."""
    return 0 if type(x) in PYTHON_SCALARS else len(x.shape)


def spread(x: Array, size: int) -> Array:
    """x with a leading batch axis along which it does not change."""
    if type(x) in PYTHON_SCALARS:
        return x
    return _row("broadcast_to")(x, (size, *x.shape))


def all_spread(size: int, mapped: Sequence[bool], args: Sequence[Array]) -> list[Array]:
    """The arguments, each with a leading batch axis."""
    return [a if m else spread(a, size) for m, a in zip(mapped, args, strict=True)]


def align_batch(x: Array, ndim: int) -> Array:
    """x, which has a batch axis, with axes of length 1 inserted after it, to `ndim` axes."""
    missing = ndim - len(x.shape)
    if missing <= 0:
        return x
    return _row("reshape")(x, (x.shape[0], *(1,) * missing, *x.shape[1:]))


@record
class Pointwise:
    """Broadcasting rows: the batch is one more axis in front."""

    def __call__(
        self, call: Caller, size: int, mapped: Sequence[bool], args: Sequence[Array], static: Static
    ) -> Array:
        ndim = 1 + max([rank(a) - m for m, a in zip(mapped, args, strict=True)])
        moved = [align_batch(a, ndim) if m else a for m, a in zip(mapped, args, strict=True)]
        return call.op.call(call, moved, static)


pointwise: Pointwise = Pointwise()


def _elements(mapped: Sequence[bool], args: Sequence[Array]) -> list[Aval]:
    """The avals of the arguments for one element of the batch."""
    avals = [aval_of(a) for a in args]
    return [v.like(v.shape[m:]) for m, v in zip(mapped, avals, strict=True)]


@record
class Stacked:
    """Rows that act on the last axes and broadcast over stacks of them.

    core  the number of trailing axes that belong to each argument; None: 1 or 2, as for matmul
    """

    core: tuple[int, ...]

    def __call__(
        self, call: Caller, size: int, mapped: Sequence[bool], args: Sequence[Array], static: Static
    ) -> Array:
        stacks = [rank(a) - m - c for a, m, c in zip(args, mapped, self.core, strict=True)]
        most = max(stacks)
        if min(stacks) < 0:  # the batch axis would be taken for an axis that the argument lacks
            call.op.shape(*_elements(mapped, args), *static)
        moved = [
            align_batch(a, 1 + most + c) if m else a
            for a, m, c in zip(args, mapped, self.core, strict=True)
        ]
        return call(*moved, *static)


@record
class Along:
    """Rows whose static parameters name axes: each axis is shifted by one.

    axes  the positions among the static parameters of an axis or a tuple of axes (all ≥ 0)
    """

    axes: tuple[int, ...] = (0,)

    def __call__(
        self, call: Caller, size: int, mapped: Sequence[bool], args: Sequence[Array], static: Static
    ) -> Array:
        moved = [_shift_axis(s) if k in self.axes else s for k, s in enumerate(static)]
        return call.op.call(call, all_spread(size, mapped, args), moved)


@record
class Stated:
    """Rows of one array whose static parameters have an entry for each axis.

    static  (size, *static) -> the static parameters for the batch
    """

    static: Callable[..., tuple[Any, ...]]

    def __call__(
        self, call: Caller, size: int, mapped: Sequence[bool], args: Sequence[Array], static: Static
    ) -> Array:
        return call(*args, *self.static(size, *static))


def _shift_axis(axis: Any):
    return tuple(a + 1 for a in axis) if isinstance(axis, tuple) else axis + 1
