"""Native code as a built-in function of Python: a call takes 20 ns, through ctypes 300 ns."""

from collections.abc import Callable, Sequence
from ctypes import Structure, addressof, c_char_p, c_int, c_void_p, py_object, pythonapi
from typing import Any

from ...core.once import once
from .driver import driver
from .words import WordArray, words

_FASTCALL = 0x80  # METH_FASTCALL: function(self, arguments, how many)
_KEYWORDS = 0x2  # METH_KEYWORDS: and the names of the last ones


class _Definition(Structure):
    """Python's PyMethodDef."""

    _fields_ = [
        ("name", c_char_p),
        ("function", c_void_p),
        ("flags", c_int),
        ("doc", c_char_p),
    ]


@once
def _definition(name: str) -> _Definition:
    return _Definition(b"call", driver().addresses[name], _FASTCALL, None)


@once
def _definition_at(function: int) -> _Definition:
    return _Definition(b"call", function, _FASTCALL | _KEYWORDS, None)


_new = pythonapi.PyCFunction_NewEx
_new.restype, _new.argtypes = py_object, [c_void_p, py_object, py_object]


def builtin(frame: WordArray) -> Callable[..., int]:
    """The steps of a frame (`native.entry`) as a function of the arrays that it binds."""
    return _new(addressof(_definition("weft_call")), frame, None)


def make_watch(records: WordArray) -> Callable[[], bool]:
    """A function: whether all places hold what the records (`native.watch`) say."""
    return _new(addressof(_definition("weft_watch")), records, None)


def make_buffer_finder(records: WordArray) -> Callable[[], list[Any]]:
    """A function: the gradient arrays that nothing else references (`native.buffers`)."""
    return _new(addressof(_definition("weft_room")), records, None)


def make_kept_check(records: WordArray) -> Callable[[list[Any]], bool]:
    """A function: whether the gradients are these outputs already (`native.buffers`)."""
    return _new(addressof(_definition("weft_kept")), records, None)


def make_counter(records: WordArray) -> Callable[[Any, Any], bool]:
    """A function that stores a value under a key of the dicts in the records (`native.watch`)."""
    return _new(addressof(_definition("weft_count")), records, None)


def make_picker(positions: Sequence[int]) -> Callable[[list[Any]], list[Any]]:
    """A function from a list to its elements at these positions."""
    records = words(1 + len(positions))
    records[:] = [len(positions), *positions]
    return _new(addressof(_definition("weft_pick")), records, None)


def make_builtin(function: int, records: WordArray) -> Callable[..., Any]:
    """A function of any arguments; the native one, which is never unloaded, is at this address."""
    return _new(addressof(_definition_at(function)), records, None)
