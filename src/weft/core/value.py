"""A value at the ground level, before the array layer gives it methods."""

from typing import Any

from . import dtypes
from .aval import Aval
from .backends import BACKENDS, PYTHON_SCALARS
from .box import BOXES, Box, install_box
from .settings import current
from .types import Array, Raw

_new = object.__new__
_SCALARS = frozenset(d.type for d in dtypes.ALL)


class Value:
    """A backend's array (`_data`) and its node in the recorded graph (`_node`), or None.

    `_grad` is set on leaves only: the gradient that `backward()` accumulates. `_share` links a
    view with its base (see `core.share`).
    """

    __slots__ = ("__weakref__", "_data", "_grad", "_node", "_share")
    _data: Any
    _grad: Any
    _node: Any
    _share: Any


# The tensor classes at the ground level, and the one of them that operations return. The array
# layer fills both when it defines Tensor.
GROUND: set[Any] = set()
RESULT: list[Any] = [Value]
# All tensor classes, at the ground and at levels; and the same with the kinds of box.
TENSORS: set[Any] = set()
HIGHER: set[Any] = set()


def install(cls: type, *subclasses: type) -> None:
    """Register the tensor class that operations return, and those treated as its equals."""
    RESULT[0] = cls
    GROUND.update((cls, *subclasses))
    TENSORS.update(GROUND)
    HIGHER.update(GROUND)


def install_level(kind: type[Box], tensor: type) -> None:
    """Register a kind of box with the tensor class that holds it."""
    install_box(kind, tensor)
    TENSORS.add(tensor)
    HIGHER.update((kind, tensor))


def wrap(data: Raw, node: Any = None) -> Any:
    """A tensor around a raw array or a box; a NumPy scalar becomes a 0-d array."""
    cls = data.__class__
    if cls in BOXES:
        t = _new(BOXES[cls])
    else:
        t = _new(RESULT[0])
        if cls in _SCALARS:
            data = BACKENDS[cls].whole(data)
    t._data = data
    t._node = node
    t._share = None
    return t


def as_seen_by_trace(x: Any) -> Any:
    """A tensor as a value of the running trace; unchanged if none is running."""
    staging = current.get().staging
    return x if staging is None or x.__class__ not in GROUND else staging.of(x)


def read(x: Any) -> Any:
    """A tensor whose values are read now; a running trace allows that for constants only."""
    staging = current.get().staging
    return x if staging is None or x.__class__ not in GROUND else staging.read(x)


def as_new_constant(x: Any) -> Any:
    """A new tensor that was computed from no other; a running trace records it as a constant."""
    staging = current.get().staging
    if staging is not None:
        staging.note(x)
    return x


def aval_of(x: Array) -> Aval:
    """The abstract value of a tensor, a raw array or a Python scalar."""
    raw = x._data if type(x) in TENSORS else x
    if type(raw) in PYTHON_SCALARS:
        return Aval((), dtypes.with_scalar(dtypes.bool_, raw), None)
    xp = BACKENDS[type(raw)]
    return Aval(tuple(raw.shape), xp.dtype_of(raw), xp.device_of(raw))
