"""Guards: a value that is believed only if a flag is true."""

from ..core.call import caller
from ..core.op import TABLE, Linear, Op
from ..errors import IndexingError, WeftError


def _checked(xp, x, flag, message: str, error: type[WeftError] = IndexingError):
    if not bool(flag):
        raise error(message)
    return x


def _batched(call, size, mapped, args, static):
    """It holds for a batch if it holds for all of it."""
    x, flag = args
    if mapped[1]:
        flag = caller(TABLE["all"])(flag, (0,), False)
    if not mapped[0]:
        x = caller(TABLE["broadcast_to"])(x, (size, *x.shape))
    return call(x, flag, *static)


# x, if the flag (one bool) is true; otherwise an error with the message. It is no row of the table,
# since no user's program has it: expansions put it where a kernel would have checked its operands,
# and loops where they have to have ended.
GUARD = Op(
    name="guard",
    compute=_checked,
    shape=lambda x, flag, message, error=IndexingError: x,
    rule=Linear((lambda g, _x, _flag, message, error=IndexingError: g, None)),
    arity=2,
    static=True,
    batch=_batched,
)
