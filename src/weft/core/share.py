"""Who lies in whose memory: views, and the tensors that they are views of.

Tensors are values, so a write into a view cannot reach what it is a view of; it is refused while
somebody could look there. `Value._share` is a list that a view has in common with the tensor it is
a view of (which holds it in a tuple) and with all other views of that one: how many of them are
alive is the count of references to it. In it are the lines where one of them left the memory.
"""

import sys
from typing import Any

from .. import errors
from .origin import here

# What `Op.views` says of rows whose results are views to a user. Of the others' NumPy makes copies,
# or they give a function's argument a new name.
LENT = frozenset(("always", "sometimes"))
_ALONE = 3  # the tensor's own reference, a local variable and the argument of `getrefcount`


def lend(x: Any, view: Any) -> None:
    """Note that `view` is a view of x."""
    share = x._share
    if share is None:
        share = []
        x._share = (share,)
    elif share.__class__ is tuple:
        share = share[0]
    view._share = share


def is_seen(x: Any) -> bool:
    """Whether x is a view, and another tensor that lies, or lay, in its memory is alive."""
    share = x._share
    return share.__class__ is list and sys.getrefcount(share) > _ALONE


def refuse_view(x: Any, what: str) -> None:
    """Refuse to assign to a view while somebody could look for that in its base."""
    if is_seen(x):
        raise errors.ViewAssignment(
            f"{what}: the tensor is a view of another one (by an index, reshape, transpose, …), "
            "which would not change, since tensors are values; assign to the base itself, as in "
            "y[0, 1:] = v for b = y[0]; b[1:] = v, or to a copy: b = y[0].clone()"
        )


def leave(x: Any) -> None:
    """x gets memory of its own; what was a view of its memory keeps the old values."""
    share = x._share
    if share.__class__ is tuple:
        if sys.getrefcount(share[0]) > _ALONE - 1:  # no local variable holds it
            share[0].append(here())
    else:
        x._share = None


def refuse_left(x: Any, what: str) -> None:
    """Refuse to write into the memory of a view whose base does not lie there any more."""
    share = x._share
    if share.__class__ is list and share and sys.getrefcount(share) > _ALONE:
        raise errors.ViewAssignment(
            f"{what}: the tensor is a view of another one, to which was assigned since (at "
            f"{share[-1]}) and which would not change; take the view again"
        )
