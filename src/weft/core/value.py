"""A value at the ground level, before the array layer gives it methods."""

from typing import Any

from . import dtypes
from .aval import Aval
from .backends import BACKENDS, PYTHON_SCALARS

_new = object.__new__


class Value:
    """A backend's array (`_data`) and the node that made it (`_node`), or None.

    `_grad` is set on leaves only: what `backward()` has accumulated.
    """

    __slots__ = ("__weakref__", "_data", "_grad", "_node")


# The one class operations return, and the classes they take as its equals. Both are filled
# by the array layer when it defines Tensor.
GROUND: set[type] = set()
RESULT: list[Any] = [Value]


def install(cls: type, *subclasses: type) -> None:
    """Name the class of tensors that operations return, and those they take as its equals."""
    RESULT[0] = cls
    GROUND.update((cls, *subclasses))


def wrap(data, node=None) -> Any:
    """A tensor around a raw array."""
    t = _new(RESULT[0])
    t._data = data
    t._node = node
    return t


def aval_of(x) -> Aval:
    """The abstract value of a tensor, a raw array or a Python scalar."""
    raw = x._data if type(x) in GROUND else x
    if type(raw) in PYTHON_SCALARS:
        return Aval((), dtypes.with_scalar(dtypes.bool_, raw), None)
    xp = BACKENDS[type(raw)]
    return Aval(tuple(raw.shape), xp.dtype_of(raw), xp.device_of(raw))
