"""Guards: a value that is believed only if a flag is true."""

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
    """What a guard says of indices that are not all from `least` to n − 1."""
    flat = np.asarray(seen).reshape(-1)
    low, high = int(flat.min()), int(flat.max())
    wrong = flat[(flat < least) | (flat >= n)]
    first = wrong[0] if wrong.size else low  # a loop that was left early has noted none
    return message.format(index=high if high >= n else low, first=first, low=low, high=high)


def _batch(call, size, mapped, args, static):
    """It holds for a batch if it holds for all of it."""
    x, flag, *seen = args
    if mapped[1]:
        flag = caller(TABLE["all"])(flag, (0,), False)
    if not mapped[0]:
        x = caller(TABLE["broadcast_to"])(x, (size, *x.shape))
    return call(x, flag, *seen, *static)


# x, if the flag (one bool) is true; otherwise an error with the message. It is no row of the table,
# since no user's program has it: expansions put it where a kernel would have checked its operands,
# and loops where they have to have ended.
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
# message has `{index}`, `{first}`, `{low}` or `{high}`, and right ones are from `least` to n − 1.
WITHIN = Op(
    name="guard",
    compute=_within,
    shape=lambda x, flag, seen, message, least, n: x,
    rule=LinearRule((lambda g, x, flag, seen, *_: g, None, None), reads=((False,),) * 3),
    arity=3,
    static=True,
    batch=_batch,
)
