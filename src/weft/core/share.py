"""Aliasing: which tensors are views, and which tensor is their base.

Tensors are values, so a write into a view does not reach its base; it is refused while the base or
another view of it is alive. `Value._share` is one list that a base (which holds it in a tuple) and
all its views refer to: its reference count says how many of them are alive. The list holds the
lines of the user's program at which the base moved to other memory.
"""

import sys
from typing import Any

from .. import errors
from .origin import here

# The values of `Op.views` for rows whose results are views to a user. Other rows' results are
# copies in NumPy, or an argument of a function under a new name.
LENT = frozenset(("always", "sometimes"))
_ALONE = 3  # the tensor's own reference, a local variable and the argument of `getrefcount`


def lend(x: Any, view: Any) -> None:
    """Record that `view` is a view of x."""
    share = x._share
    if share is None:
        share = []
        x._share = (share,)
    elif share.__class__ is tuple:
        share = share[0]
    view._share = share


def is_aliased(x: Any) -> bool:
    """Whether x is a view, and another tensor that shares, or shared, its memory is alive."""
    share = x._share
    return share.__class__ is list and sys.getrefcount(share) > _ALONE


def refuse_view(x: Any, what: str) -> None:
    """Refuse to assign to a view while its base, or another view of it, is alive."""
    if is_aliased(x):
        raise errors.ViewAssignment(
            f"{what}: the tensor is a view of another one (by an index, reshape, transpose, …), "
            "which would not change, since tensors are values; assign to the base itself, as in "
            "y[0, 1:] = v for b = y[0]; b[1:] = v, or to a copy: b = y[0].clone()"
        )


def leave(x: Any) -> None:
    """Record that x moves to memory of its own; views of the old memory keep the old values."""
    share = x._share
    if share.__class__ is tuple:
        if sys.getrefcount(share[0]) > _ALONE - 1:  # no local variable holds it
            share[0].append(here())
    else:
        x._share = None


def refuse_left(x: Any, what: str) -> None:
    """Refuse to write into the memory of a view whose base has left it."""
    share = x._share
    if share.__class__ is list and share and sys.getrefcount(share) > _ALONE:
        raise errors.ViewAssignment(
            f"{what}: the tensor is a view of another one, to which was assigned since (at "
            f"{share[-1]}) and which would not change; take the view again"
        )
