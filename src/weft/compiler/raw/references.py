"""Whether others hold the memory of PyTorch's tensors: native code reads the counts of references.

Where they are is found by comparing with what PyTorch says of some tensors. If it is not as
expected, there is no such function, and PyTorch is asked about each tensor.
"""

import ctypes
from collections.abc import Callable
from typing import Any

import torch

from ...core.once import once
from ..emit.code import LLModule, LLValue
from ..emit.control import (
    HALF_WORD,
    POINTER,
    WORD,
    behind,
    each,
    invoke,
    leave,
    nothing,
    pointer,
    when,
    word,
)
from ..native import layout
from ..native.builtin import make_builtin
from ..native.layout import DATA, ITEMS, SIZE, TYPE
from ..native.machine import Loaded
from ..native.objects import load_written
from ..native.words import words

_COUNT = 8  # bytes before the count of what PyTorch counts references of: 32 bits


@once
def alone_check() -> Callable[[list[Any]], bool] | None:
    """A function: whether nobody else holds the memory of the tensors in a list, which may be None.

    False where only PyTorch can tell: Python has had an object of the storage.
    """
    tensor, storage = tensor_offset(), _storage_offset()
    if tensor is None or storage is None or not _counts_are_right(storage):
        return None
    records = words(4)
    records[:] = [tensor, storage, id(None), id(torch.Tensor)]
    return make_builtin(_functions().addresses["weft_alone"], records)


@once
def tensor_offset() -> int | None:
    """The offset (bytes) of PyTorch's tensor in Python's; None if it is not the only place."""
    sample = torch.empty(3)
    return only_place(id(sample), sample._cdata, object.__basicsize__, torch.Tensor.__basicsize__)


def _storage_offset() -> int | None:
    """The same of the storage in a tensor of PyTorch's, whose first fields these are."""
    sample = torch.empty(3)
    return only_place(sample._cdata, sample.untyped_storage()._cdata, 8, 64)


def _counts_are_right(storage: int) -> bool:
    """Whether the counts are those that PyTorch tells of."""
    sample: Any = torch.empty(3)
    held, right = [], []
    for hold in (list, sample.detach, sample.__dlpack__, sample.untyped_storage, sample.numpy):
        held.append(hold())
        at, place = sample._cdata, word_at(sample._cdata + storage)
        right.append(_half(at + _COUNT) == sample._use_count())
        right.append(_half(place + _COUNT) == torch._C._storage_Use_Count(place))
    return all(right)


def only_place(begin: int, value: int, first: int, end: int) -> int | None:
    """The offset (bytes) of a word in an object; None if it is not the only one."""
    places = [at for at in range(first, end, 8) if word_at(begin + at) == value]
    return places[0] if len(places) == 1 else None


def word_at(address: int) -> int:
    """The 64-bit word at an address."""
    return ctypes.c_int64.from_address(address).value


def _half(address: int) -> int:
    return ctypes.c_int32.from_address(address).value


@once
def _functions() -> Loaded:
    layout.verify_layout()
    return load_written("references", (TYPE, DATA), _write_alone, ["weft_alone"])


def _write_alone(module: LLModule) -> None:
    """Emit the function `weft_alone`, of a list."""
    code = module.function("ptr", [POINTER, POINTER, WORD, POINTER], "weft_alone")
    itself, arguments, _, _ = code.parameters
    head = code.load(POINTER, behind(itself, DATA), 8)
    held = pointer(arguments, 0)
    items = pointer(behind(held, ITEMS), 0)

    def tell(alone: int) -> None:
        leave(code, invoke(code, "PyBool_FromLong", "ptr", [code.constant(WORD, alone)]))

    def differs(at: LLValue) -> LLValue:
        return code.load(HALF_WORD, behind(at, _COUNT), 4).compare("ne", 1)

    def look(x: LLValue) -> None:
        when(word(behind(x, TYPE), 0).compare("ne", word(head, 3)), lambda: tell(0))
        tensor = pointer(behind(x, word(head, 0)), 0)
        when(differs(tensor), lambda: tell(0))
        storage = pointer(behind(tensor, word(head, 1)), 0)
        when(storage.equals(nothing(code)), lambda: tell(0))
        when(differs(storage), lambda: tell(0))

    def one(i: LLValue) -> None:
        x = pointer(items, i)
        when(x.compare("ne", pointer(head, 2)), lambda: look(x))

    each(code, 0, word(behind(held, SIZE), 0), one)
    tell(1)
