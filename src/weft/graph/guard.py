"""Guards as equations: a value passes only if a flag is true, else an error is raised."""

import numpy as np

from ..core.call import caller
from ..core.op import TABLE, LinearRule, Op
from ..core.types import Array
from ..errors import IndexingError, WeftError


def _check(xp, x, flag, message: str, error: type[WeftError] = IndexingError):
    if not bool(flag):
        raise error(message)
    return x


def _within(xp, x, flag, seen, message: str, least: int, n: int):
    if not bool(flag):
        raise IndexingError(index_message(message, seen, least, n))
    return x


def index_message(message: str, seen: Array, least: int, n: int) -> str:
    """The error message of a guard for indices that are not all from `least` to n − 1."""
    flat = np.asarray(seen).reshape(-1)
    low, high = int(flat.min()), int(flat.max())
    wrong = flat[(flat < least) | (flat >= n)]
    first = wrong[0] if wrong.size else low  # a loop that ended early has none
    return message.format(index=high if high >= n else low, first=first, low=low, high=high)


def _batch(call, size, mapped, args, static):
    """The guard of a batch passes if it passes for every element."""
    x, flag, *seen = args
    if mapped[1]:
        flag = caller(TABLE["all"])(flag, (0,), False)
    if not mapped[0]:
        x = caller(TABLE["broadcast_to"])(x, (size, *x.shape))
    return call(x, flag, *seen, *static)


# x, if the flag (one bool) is true; otherwise an error with the message. It is no row of the table,
# since users do not call it: expansions insert it where a kernel would have checked its operands,
# and loops where they must have ended.
GUARD = Op(
    name="guard",
    compute=_check,
    shape=lambda x, flag, message, error=IndexingError: x,
    rule=LinearRule(
        (lambda g, x, flag, message, error=IndexingError: g, None), reads=((False,),) * 2
    ),
    arity=2,
    static=True,
    batch=_batch,
)

# The same with the indices that the flag is about, so that the error can name one of them: its
# message has `{index}`, `{first}`, `{low}` or `{high}`; valid indices are from `least` to n − 1.
WITHIN = Op(
    name="guard",
    compute=_within,
    shape=lambda x, flag, seen, message, least, n: x,
    rule=LinearRule((lambda g, x, flag, seen, *_: g, None, None), reads=((False,),) * 3),
    arity=3,
    static=True,
    batch=_batch,
)
