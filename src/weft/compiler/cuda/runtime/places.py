"""Whether tensors are where they were: the same objects, with the same memory and layout.

Native code asks PyTorch by the functions of its stable C interface, some nanoseconds for each; by
Python's methods it would be 100 ns for each. A user may give a tensor other memory or another
layout without another object (`x.data = y`, `x.set_`, `x.t_()`), so all of it is compared.
"""

import ctypes
from collections.abc import Callable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, Protocol
from weakref import ref

import numpy as np
import torch

from ....core.aval import Shape
from ....core.once import once
from ...emit.code import LLModule, LLValue
from ...emit.control import (
    POINTER,
    WORD,
    address,
    behind,
    each,
    invoke,
    invoke_at,
    leave,
    leave_if,
    nothing,
    pointer,
    when,
    word,
)
from ...native import layout
from ...native.builtin import make_builtin
from ...native.layout import DATA, ITEMS
from ...native.machine import Loaded
from ...native.objects import load_written
from ...native.words import WordArray, words
from ...raw.arrays import RawArrays
from ...raw.references import only_place, tensor_offset, word_at

Kind = tuple[Shape, np.dtype]


class Places(Protocol):
    """The tensors of some positions as they were recorded."""

    def moved(self, values: list[Any], /) -> list[int]:
        """The positions of tensors that are not as recorded, also of those that never were."""
        ...

    def record(self, i: int, x: Any, at: int) -> None:
        """Record a tensor of the right shape and dtype that lies row by row, at this address."""
        ...

    def forget(self, i: int) -> None:
        """Record nothing."""
        ...

    def held(self, i: int) -> Any:
        """The recorded tensor, if it still exists."""
        ...


def make_places(kinds: Sequence[Kind], arrays: RawArrays) -> Places:
    """Places of tensors of these shapes and dtypes."""
    known = _interface()
    return PythonPlaces(kinds, arrays) if known is None else NativePlaces(kinds, arrays, known)


class PythonPlaces:
    """Places that Python's methods compare."""

    def __init__(self, kinds: Sequence[Kind], arrays: RawArrays):
        self._address = arrays.address
        self._kinds = [(shape, arrays.raw_dtype(dtype)) for shape, dtype in kinds]
        self._refs: list[Callable[[], Any]] = [_nothing] * len(kinds)
        self._at = [0] * len(kinds)

    def moved(self, values: list[Any], /) -> list[int]:
        return [i for i in range(len(self._refs)) if not self._stays(i, values[i])]

    def _stays(self, i: int, x: Any) -> bool:
        if x is None or x is not self._refs[i]() or self._address(x) != self._at[i]:
            return False
        shape, dtype = self._kinds[i]
        return x.dtype is dtype and x.shape == shape and x.is_contiguous() and not x.is_conj()

    def record(self, i: int, x: Any, at: int) -> None:
        self._refs[i], self._at[i] = ref(x), at

    def forget(self, i: int) -> None:
        self._refs[i] = _nothing

    def held(self, i: int) -> Any:
        return self._refs[i]()


def _nothing() -> None:
    """No tensor."""


class Head(IntEnum):
    """The words before the entries."""

    HOW_MANY = 0
    TENSOR = 1  # offset in bytes of PyTorch's tensor in Python's
    OBJECT = 2  # of a weak reference's object in it
    NONE = 3  # Python's None
    ADDRESS = 4  # PyTorch's functions, from here on
    DTYPE = 5
    NDIM = 6
    SIZES = 7
    STRIDES = 8
    SIZE = 9


class Entry(IntEnum):
    """The words of a tensor; then its sizes and its strides."""

    REFERENCE = 0  # a weak reference, or 0
    ADDRESS = 1
    DTYPE = 2
    NDIM = 3
    SIZE = 4


class NativePlaces:
    """Places that native code compares."""

    def __init__(self, kinds: Sequence[Kind], arrays: RawArrays, known: "TensorInterface"):
        head = [len(kinds), known.tensor, known.object, id(None), *known.functions]
        numbers, self._entries = head, []
        for shape, dtype in kinds:
            self._entries.append(len(numbers))
            # PyTorch may conjugate complex tensors where they are read: those never are the same.
            code = -1 if dtype.kind == "c" else known.dtype_code(arrays.raw_dtype(dtype))
            numbers += [0, 0, code, len(shape), *shape, *_strides(shape)]
        self._refs: list[Any] = [None] * len(kinds)
        self._words: WordArray = words(len(numbers), self._refs)
        self._words[:] = numbers
        self._tensor = known.tensor
        self.moved: Callable[[list[Any]], list[int]] = make_builtin(
            _functions().addresses["weft_moved"], self._words
        )

    def record(self, i: int, x: Any, at: int) -> None:
        if word_at(id(x) + self._tensor) != x._cdata:
            return self.forget(i)
        entry, made = self._entries[i], ref(x)
        self._words[entry] = 0  # until all of it is there
        self._refs[i] = made
        self._words[entry + Entry.ADDRESS] = at
        self._words[entry] = id(made)

    def forget(self, i: int) -> None:
        self._words[self._entries[i]] = 0
        self._refs[i] = None

    def held(self, i: int) -> Any:
        made = self._refs[i]
        return None if made is None else made()


def _strides(shape: Shape) -> list[int]:
    """The strides of an array that lies row by row, in elements."""
    found, step = [], 1
    for n in reversed(shape):
        found.append(step)
        step *= n
    return found[::-1]


# -- PyTorch's interface ---------------------------------------------------------------------


_NAMES = ("data_ptr", "dtype", "dim", "sizes", "strides")


class TensorInterface:
    """Where Python's tensors have PyTorch's, and its functions of those."""

    def __init__(self, tensor: int, reference: int, functions: list[Any]):
        self.tensor, self.object = tensor, reference
        self._functions = functions
        self.functions = [ctypes.cast(f, ctypes.c_void_p).value or 0 for f in functions]

    def dtype_code(self, dtype: torch.dtype) -> int:
        """PyTorch's number of a dtype."""
        return self.ask(1, torch.empty(0, dtype=dtype), ctypes.c_int32())

    def ask(self, which: int, x: torch.Tensor, room: Any) -> Any:
        """What a function says about a tensor; None if it fails."""
        given = ctypes.c_void_p(id(x) + self.tensor), ctypes.byref(room)
        return None if self._functions[which](*given) else room.value

    def is_right(self, x: torch.Tensor) -> bool:
        """Whether it says of a tensor what Python's methods say."""
        if word_at(id(x) + self.tensor) != x._cdata:
            return False
        sizes, strides = (self.ask(k, x, ctypes.c_void_p()) or 0 for k in (3, 4))
        return (
            self.ask(0, x, ctypes.c_void_p()) == x.data_ptr()
            and self.ask(2, x, ctypes.c_int64()) == x.ndim
            and tuple(word_at(sizes + 8 * k) for k in range(x.ndim)) == tuple(x.shape)
            and tuple(word_at(strides + 8 * k) for k in range(x.ndim)) == x.stride()
        )


@once
def _interface() -> TensorInterface | None:
    """The interface of this PyTorch; None if it is not as expected."""
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    if not library.exists():
        return None
    loaded = ctypes.CDLL(str(library))
    functions = [getattr(loaded, f"aoti_torch_get_{name}", None) for name in _NAMES]
    sample = torch.empty(3, 5)
    reference = ref(sample)
    tensor = tensor_offset()
    at = only_place(id(reference), id(sample), object.__basicsize__, ref.__basicsize__)
    if tensor is None or at is None or None in functions:
        return None
    found = TensorInterface(tensor, at, functions)
    others = sample.T, sample[1:, 2].double(), torch.empty(()), torch.nn.Parameter(sample)
    return found if all(map(found.is_right, (sample, *others))) else None


# -- native code -----------------------------------------------------------------------------


@once
def _functions() -> Loaded:
    layout.verify_layout()
    return load_written("places", (layout.TYPE, layout.DATA), _write_moved, ["weft_moved"])


def _write_moved(module: LLModule) -> None:
    """Emit the function `weft_moved`, of a list that has all positions."""
    stays = _write_stays(module)
    code = module.function("ptr", [POINTER, POINTER, WORD, POINTER], "weft_moved")
    itself, arguments, _, _ = code.parameters
    head = code.load(POINTER, behind(itself, DATA), 8)
    items = pointer(behind(pointer(arguments, 0), ITEMS), 0)
    made = invoke(code, "PyList_New", "ptr", [code.constant(WORD, 0)])
    leave_if(made.equals(nothing(code)), made)
    at = code.local(POINTER)
    code.store(address(head, Head.SIZE), at, 8)

    def compare(i: LLValue) -> None:
        entry = code.load(POINTER, at, 8)
        same = invoke(code, stays, "i64", [head, entry, pointer(items, i)])
        when(same.equals(0), lambda: note(i))
        ndim = word(entry, Entry.NDIM)
        code.store(address(entry, ndim + ndim + Entry.SIZE), at, 8)

    def note(i: LLValue) -> None:
        number = invoke(code, "PyLong_FromSsize_t", "ptr", [i])
        when(number.equals(nothing(code)), fail)
        failed = invoke(code, "PyList_Append", "i32", [made, number])
        invoke(code, "Py_DecRef", "void", [number])
        when(failed.compare("ne", 0), fail)

    def fail() -> None:
        invoke(code, "Py_DecRef", "void", [made])
        leave(code, nothing(code))

    each(code, 0, word(head, Head.HOW_MANY), compare)
    leave(code, made)


def _write_stays(module: LLModule) -> str:
    """Emit a function of the head, an entry and a Python object: 1 if it is as recorded, else 0."""
    code = module.function("i64", [POINTER, POINTER, POINTER])
    head, entry, x = code.parameters
    no = code.constant(WORD, 0)
    reference = pointer(entry, Entry.REFERENCE)
    leave_if(reference.equals(nothing(code)), no)
    held = pointer(behind(reference, word(head, Head.OBJECT)), 0)
    leave_if(held.compare("ne", x), no)
    leave_if(x.equals(pointer(head, Head.NONE)), no)  # what a dead reference holds
    tensor, room = behind(x, word(head, Head.TENSOR)), code.local(WORD)

    def ask(which: int) -> None:
        failed = invoke_at(pointer(head, which), "i32", [tensor, room])
        leave_if(failed.compare("ne", 0), no)

    ask(Head.ADDRESS)
    leave_if(code.load(WORD, room, 8).compare("ne", word(entry, Entry.ADDRESS)), no)
    code.store(no, room, 8)
    ask(Head.DTYPE)
    leave_if(word(room, 0).compare("ne", word(entry, Entry.DTYPE)), no)
    ndim = word(entry, Entry.NDIM)
    ask(Head.NDIM)
    leave_if(code.load(WORD, room, 8).compare("ne", ndim), no)
    ask(Head.SIZES)
    sizes = code.load(POINTER, room, 8)
    ask(Head.STRIDES)
    strides = code.load(POINTER, room, 8)

    def compare(k: LLValue) -> None:
        size = word(sizes, k)
        leave_if(size.compare("ne", word(entry, k + Entry.SIZE)), no)
        differs = word(strides, k).compare("ne", word(entry, k + ndim + Entry.SIZE))
        leave_if(differs & size.compare("gt", 1), no)

    each(code, 0, ndim, compare)
    leave(code, code.constant(WORD, 1))
    return code.name
