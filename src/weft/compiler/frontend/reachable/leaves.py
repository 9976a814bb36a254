"""Leaves of a walk, and how they are compared: numbers, strings, tensors, arrays."""

import array
import ctypes
import datetime
import decimal
import fractions
import pathlib
import re
import sys
import uuid
from collections.abc import Callable
from enum import Enum
from types import CodeType, ModuleType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from .... import errors
from ....arrays.foreign import is_torch
from ....core.aval import Shape
from ....core.backends import BACKENDS
from ....core.exact import exact
from ....core.node import Leaf
from ....core.value import TENSORS, Value, aval_of

LARGEST = 2**20  # bytes of an array whose contents are compared at each call

# What extensions hide from Python, and functions of theirs are bound to: the same if identical.
_CAPSULE = type(datetime.datetime_CAPI)
# Immutable types: two values are the same if they are equal and of the same type.
_EQUAL = frozenset(
    (
        *(int, str, bytes, bool, type(None), type(...), type(NotImplemented)),
        *(CodeType, _CAPSULE, fractions.Fraction, re.Pattern, datetime.timedelta),
    )
)


def _time_fields(x: Any) -> tuple[Any, ...]:
    """The fields of a date or time as bytes, with `fold`, and the time zone."""
    return x.__reduce_ex__(4)[1]  # of these classes themselves, not of a user's


# Immutable types whose equal values may differ (`range(0)` and `range(1, 1)`, 1.0 and 1.00, one
# moment in two time zones): the parts by which two of them are compared.
_FIELDS: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    range: lambda x: (x.start, x.stop, x.step),
    slice: lambda x: (x.start, x.stop, x.step),
    decimal.Decimal: lambda x: (*x.as_tuple()[::2], *x.as_tuple()[1]),
    uuid.UUID: lambda x: (x.int, x.is_safe),
    datetime.date: _time_fields,
    datetime.time: _time_fields,
    datetime.datetime: _time_fields,
    datetime.timezone: lambda x: x.__getinitargs__(),
    pathlib.PosixPath: lambda x: (str(x),),
    pathlib.WindowsPath: lambda x: (str(x),),
    pathlib.PurePosixPath: lambda x: (str(x),),
    pathlib.PureWindowsPath: lambda x: (str(x),),
}
# Immutable types of PyTorch, by name: it need not be loaded.
_FOREIGN = frozenset((("torch", n) for n in ("dtype", "device", "layout", "memory_format")))
_FLOATS = (float, complex)  # 0.0 == -0.0, but they differ; a NaN equals itself here
_BUFFERS = (
    *(bytearray, memoryview, array.array),
    *(ctypes._SimpleCData, ctypes.Structure, ctypes.Union, ctypes.Array),
)


class Facts(NamedTuple):
    """The properties of a tensor that a program can depend on without reading its values."""

    kind: type
    shape: Shape
    dtype: Any
    device: Any
    tracking: str


class UnreadTensor(NamedTuple):
    """A tensor that a program does not read: its facts, and its number."""

    facts: Facts
    which: int


class ReadTensor:
    """A tensor that a program reads at each call: it is compared by identity."""

    def __init__(self, tensor: Value):
        self.tensor = tensor

    def __eq__(self, other: Any) -> bool:
        return other.__class__ is ReadTensor and other.tensor is self.tensor

    __hash__: ClassVar[None]  # type: ignore[assignment]  # as Python makes it beside __eq__

    def __repr__(self) -> str:
        a = aval_of(self.tensor)
        return f"a tensor of {a.dtype}{list(a.shape)}"


class Content(NamedTuple):
    """The contents of an array.

    layout  how its elements lie in memory, whether they may be written, where they are
    """

    kind: type
    shape: Shape
    dtype: str
    data: bytes
    layout: tuple[Any, ...] = ()

    def __repr__(self) -> str:
        return f"an array of {self.dtype}{list(self.shape)}"


def facts_of(tensor: Value) -> Facts:
    """The facts of a tensor."""
    a, node = aval_of(tensor), tensor._node
    tracking = "" if node is None else node.__class__.__name__
    if isinstance(node, Leaf):
        tracking += " asked for" * node.requested
    return Facts(tensor.__class__, a.shape, a.dtype, a.device, tracking)


def content_of(x: Any) -> Content:
    """The contents of an array of numbers, of NumPy or another library."""
    if isinstance(x, _BUFFERS):
        with memoryview(x) as view:
            layout = view.strides, view.readonly
            return Content(type(x), tuple(view.shape or ()), view.format, view.tobytes(), layout)
    if isinstance(x, np.ndarray | np.void):
        data = np.ndarray.tobytes(x) if isinstance(x, np.ndarray) else x.tobytes()
        layout = x.strides, x.flags.num
        return Content(type(x), x.shape, str(x.dtype), data, layout)
    # PyTorch's tensors may be of any subclass, and of dtypes that NumPy does not have.
    a = BACKENDS[sys.modules["torch"].Tensor].to_numpy(x)
    layout = x.stride(), str(x.device), x.requires_grad, x.is_leaf
    return Content(type(x), a.shape, str(a.dtype), a.tobytes(), layout)


def layout_of(x: np.ndarray) -> Content:
    """How an array of objects lies in memory; its contents are visited one by one."""
    return Content(type(x), x.shape, str(x.dtype), b"", (x.strides, x.flags.num))


def is_array(x: object) -> bool:
    """Whether x is compared by its contents."""
    if isinstance(x, np.ndarray | np.void):
        return not x.dtype.hasobject
    return isinstance(x, _BUFFERS) or is_torch(x)


def _bytes(x) -> int:
    return memoryview(x).nbytes if isinstance(x, _BUFFERS) else x.nbytes


def is_large(x: Any) -> bool:
    """Whether an array is too large to be compared at each call."""
    return _bytes(x) > LARGEST


def refuse_large(x: Any, label: str) -> None:
    """Raise for an array that is too large to be compared."""
    if is_large(x):
        raise errors.StagingError(
            f"compile: {label} is a {type(x).__name__} of {_bytes(x):,} bytes, which would have to "
            f"be compared at each call (up to {LARGEST:,} are); pass it as an argument, or make it "
            "a tensor (wf.asarray), which is read at each call"
        )


def is_plain(x: object) -> bool:
    """Whether x is immutable, without parts or contents to compare."""
    kind = type(x)
    if kind in _EQUAL or kind in _FLOATS or isinstance(x, np.dtype | Enum):
        return True
    if kind in _FIELDS:
        return all(map(is_plain, _FIELDS[kind](x)))
    if isinstance(x, np.generic):  # of NumPy's own classes; np.void is memory that can be written
        return kind is x.dtype.type and kind is not np.void
    return _is_foreign(kind)


def _is_foreign(kind: type) -> bool:
    """Whether a class is an immutable one of PyTorch."""
    return (kind.__module__, kind.__qualname__) in _FOREIGN


def alike(a: Any, b: Any) -> bool:
    """Whether two leaves are the same to a program."""
    if a is b:
        return True
    kind = type(a)
    if kind is not type(b):
        return isinstance(a, Enum) and isinstance(b, Enum) and _same_member(a, b)
    if kind in _FLOATS:
        return exact(a) == exact(b)
    if isinstance(a, np.generic):
        return a.dtype == b.dtype and a.tobytes() == b.tobytes()
    if kind in _FIELDS:
        both = _FIELDS[kind](a), _FIELDS[kind](b)
        return len(both[0]) == len(both[1]) and all(map(alike, *both))
    equal = kind in _EQUAL or _is_foreign(kind) or isinstance(a, np.dtype)
    return (equal or kind in (UnreadTensor, ReadTensor, Content)) and a == b


def _same_member(a: Enum, b: Enum) -> bool:
    """Whether two members are the same, even if their class was defined again."""
    places = [(type(x).__module__, type(x).__qualname__, x.name) for x in (a, b)]
    return places[0] == places[1] and alike(a.value, b.value)


def describe_leaf(x: Any) -> str:
    """A text for a leaf."""
    if x.__class__ is UnreadTensor:
        a, _ = x
        return f"a tensor of {a.dtype}{list(a.shape)}" + f" ({a.tracking})" * bool(a.tracking)
    if isinstance(x, ModuleType | type) or callable(x):
        return getattr(x, "__qualname__", None) or repr(x)
    return repr(x)


def is_tensor(x: object) -> bool:
    """Whether x is a Weft tensor, at any level."""
    return x.__class__ in TENSORS
