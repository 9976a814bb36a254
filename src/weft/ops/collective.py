"""Rows: the arrays of several processes joined.

Each rank has arrays and a loss of its own, and what is differentiated is the sum of all losses with
respect to all ranks' arrays: pull-backs are collectives too, which all ranks take part in. Static
parameters are the group's name, the number of its ranks, and what else a collective takes.
"""

from ..core.aval import Aval
from ..core.communicator import connected
from ..core.op import Caller
from ..core.types import Array
from ..errors import ShapeError
from .batching import pointwise
from .elementwise import divide, multiply, where
from .logic import equal, logical_not
from .rows import general, linear
from .samples import collective as samples
from .structural import cast, moveaxis

# The elementwise sum of all ranks' arrays.
all_reduce: Caller = linear(
    "all_reduce",
    reads="",
    compute=lambda xp, x, group, size: connected(group, size).all_reduce(xp.whole(x)),
    shape=lambda x, group, size: x,
    transpose=[lambda g, x, group, size: all_reduce(g, group, size)],
    collective=True,
    batch=pointwise,
    sample=samples("arrays"),
)


def _share(y: Array, x: Array, group: str, size: int) -> Array:
    """One over the number of ranks that attain the extreme y (by a NaN, if y is one), else zero."""
    attains = where(equal(y, y), equal(x, y), logical_not(equal(x, x)))
    owns = cast(attains, x.dtype)
    return divide(owns, all_reduce(owns, group, size))


def _extreme_push(tangents, y, x, group, size, kind):
    return all_reduce(multiply(tangents[0], _share(y, x, group, size)), group, size)


def _extreme_pull(g, y, x, group, size, kind):
    return (multiply(all_reduce(g, group, size), _share(y, x, group, size)),)


# The elementwise maximum or minimum of all ranks' arrays; `kind` is "max" or "min".
all_extreme: Caller = general(
    "all_extreme",
    compute=lambda xp, x, group, size, kind: connected(group, size).all_reduce(xp.whole(x), kind),
    shape=lambda x, group, size, kind: x,
    push=_extreme_push,
    pull=_extreme_pull,
    arity=1,
    collective=True,
    batch=pointwise,
    sample=samples("extremes"),
)


def _batch_gathered(call, size, mapped, args, static):
    return moveaxis(call(*args, *static), (0,), (1,))


# All ranks' arrays along a new first axis.
all_gather: Caller = linear(
    "all_gather",
    reads="",
    compute=lambda xp, x, group, size: connected(group, size).all_gather(xp.whole(x)),
    shape=lambda x, group, size: x.like((size, *x.shape)),
    transpose=[lambda g, x, group, size: reduce_scatter(g, group, size)],
    collective=True,
    batch=_batch_gathered,
    sample=samples("arrays"),
)


def _scattered_shape(x: Aval, group: str, size: int) -> Aval:
    if not x.ndim or x.shape[0] != size:
        raise ShapeError(
            f"reduce_scatter: an array of shape {x.shape} for {size} ranks; its first axis must "
            f"have a part for each of them"
        )
    return x.like(x.shape[1:])


def _batch_scattered(call, size, mapped, args, static):
    return call(moveaxis(args[0], (0,), (1,)), *static)


# This rank's part, along the first axis, of the sum of all ranks' arrays.
reduce_scatter: Caller = linear(
    "reduce_scatter",
    reads="",
    compute=lambda xp, x, group, size: connected(group, size).reduce_scatter(xp.whole(x)),
    shape=_scattered_shape,
    transpose=[lambda g, x, group, size: all_gather(g, group, size)],
    collective=True,
    batch=_batch_scattered,
    sample=samples("parts"),
)

# The array of the rank `root`, on all of them.
broadcast_from: Caller = linear(
    "broadcast_from",
    reads="",
    compute=lambda xp, x, group, size, root: connected(group, size).broadcast(xp.whole(x), root),
    shape=lambda x, group, size, root: x,
    transpose=[lambda g, x, group, size, root: reduce_onto(g, group, size, root)],
    collective=True,
    batch=pointwise,
    sample=samples("rooted"),
)


def _reduce_onto(xp, x, group, size, root):
    found = connected(group, size)
    total = found.all_reduce(xp.whole(x))
    return total if found.rank == root else xp.zeros_like(total)


# The sum of all ranks' arrays on the rank `root`, zeros on the others.
reduce_onto: Caller = linear(
    "reduce_onto",
    reads="",
    compute=_reduce_onto,
    shape=lambda x, group, size, root: x,
    transpose=[lambda g, x, group, size, root: broadcast_from(g, group, size, root)],
    collective=True,
    batch=pointwise,
    sample=samples("rooted"),
)


def _compare(xp, x, group, size, what):
    connected(group, size).compare(what)
    return xp.copy(xp.whole(x))


# The array itself, once all ranks have compared a text: what the program is about to do.
compare: Caller = linear(
    "compare_ranks",
    reads="",
    compute=_compare,
    shape=lambda x, group, size, what: x,
    transpose=[lambda g, x, group, size, what: g],
    collective=True,
    batch=pointwise,
    sample=samples("compared"),
)
