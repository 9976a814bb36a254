"""NumPy's data allocator in native code, with counts of live bytes and a limit on them.

NumPy asks the current handler for the memory of arrays, a context variable (NEP 49); an array
remembers the handler that it came from. A handler here is a record of words: what NumPy reads of
it, then its counters. It belongs to the record of the block around it, if there is one: memory
counts in all records up to the outermost. Before each block of memory is a line with its size,
since NumPy does not say the old size of memory that it reallocates, and says another one than was
allocated when it frees an array without elements. The second word of that line says where the
array was made, if a record asks for it: `ORIGIN_BITS` with the number of a place in the program,
whose live bytes are counted too, and above them when it was.

The record is freed with its capsule, which every array of it references.
"""

import ctypes
import sys
from collections.abc import Callable
from enum import IntEnum
from functools import lru_cache, partial
from importlib import import_module
from typing import Any

from numpy._core.multiarray import get_handler_name

from ..emit.code import Code, LLModule, LLValue
from ..emit.control import (
    HALF_WORD,
    POINTER,
    WORD,
    address,
    behind,
    forever,
    increase,
    invoke,
    invoke_at,
    leave,
    leave_if,
    load_atomic,
    nothing,
    pointer,
    put,
    replace_if,
    when,
    word,
)
from .machine import Loaded
from .objects import PROVIDERS, load_written

# Bits of the number of a place; 0 is no place.
ORIGIN_BITS = 16
# Bytes before an array's data; a cache line keeps the alignment that the C library gives.
HEAD = 64
UNLIMITED = (1 << 63) - 1
# No size is larger: sums of two do not overflow.
_LARGEST = 1 << 61
# NumPy asks for huge pages from this size on, with Linux's advice MADV_HUGEPAGE.
_HUGE, _PAGE, _ADVICE = 1 << 22, 4096, 14
_NAME = b"mem_handler"  # that NumPy demands of a handler's capsule
_HANDLER = b"weft_counter"  # our handlers' own name

EXPORTS = ["weft_allocate", "weft_clear", "weft_resize", "weft_free", "weft_forget"]


class Record(IntEnum):
    """The words of a record: NumPy's PyDataMem_Handler, then ours."""

    NAME = 0  # 127 bytes, and one for the version
    CONTEXT = 16  # the record itself
    ALLOCATE = 17
    CLEAR = 18
    RESIZE = 19
    FREE = 20
    CAPSULE = 22  # the name of the capsule
    OUTER = 24  # the record of the block around, or 0
    HOLD = 25  # the capsule of that
    LIVE = 32  # bytes that are allocated
    PEAK = 33
    COUNT = 34  # how many allocations there were
    LIMIT = 35
    PRESSURE = 36  # function(bytes) -> whether to try again; 0: none
    ORIGIN = 37  # function(bytes) -> where and when; 0: nobody asks
    SMALLEST = 38  # the bytes from which on it is called
    SIZE = 40


def write_allocations(module: LLModule, linux: bool) -> None:
    """Emit the functions of a handler, and the destructor of its capsule.

    linux  whether the system takes Linux's advice on pages
    """
    release, charge = _write_release(module), _write_charge(module)
    reserve, note = _write_reserve(module, release), _write_note(module)
    _write_allocate(module, reserve, release, charge, note, linux)
    _write_clear(module, reserve, release, charge, note)
    _write_resize(module, reserve, release, charge)
    _write_free(module, release)
    _write_forget(module)


def _each_record(code: Code, record: LLValue, body: Callable[[LLValue], None]) -> None:
    """Emit body(record) for a record and those around it."""
    at = code.local(POINTER)
    code.store(record, at, 8)

    def one(out: str) -> None:
        here = code.load(POINTER, at, 8)
        when(here.equals(nothing(code)), lambda: code.go(out))
        body(here)
        code.store(pointer(here, Record.OUTER), at, 8)

    forever(code, one)


def _write_release(module: LLModule) -> str:
    """Emit release(record, last, bytes): subtract them in each record before `last`."""
    code = module.function("void", [POINTER, POINTER, WORD])
    record, last, size = code.parameters

    def one(here: LLValue) -> None:
        leave_if(here.equals(last))
        increase(here, Record.LIVE, 0 - size)

    _each_record(code, record, one)
    leave(code)
    return code.name


def _write_charge(module: LLModule) -> str:
    """Emit charge(record): note an allocation that was made."""
    code = module.function("void", [POINTER])
    (record,) = code.parameters

    def one(here: LLValue) -> None:
        increase(here, Record.COUNT, 1)
        live, peak = load_atomic(here, Record.LIVE), address(here, Record.PEAK)
        code.emit(WORD, f"atomicrmw max ptr {peak.name}, i64 {live.name} seq_cst")

    _each_record(code, record, one)
    leave(code)
    return code.name


def _write_note(module: LLModule) -> str:
    """Emit note(record, block): where memory was allocated, if a record asks for that."""
    code = module.function("void", [POINTER, POINTER])
    record, block = code.parameters
    size = word(block, 0)
    put(code.constant(WORD, 0), block, 1)

    def one(here: LLValue) -> None:
        find = pointer(here, Record.ORIGIN)

        def ask() -> None:
            put(invoke_at(find, "i64", [size]), block, 1)
            _count_origin(code, block, size)
            leave(code)

        asks = find.compare("ne", nothing(code))
        when(asks & (size >= word(here, Record.SMALLEST)), ask)

    _each_record(code, record, one)
    leave(code)
    return code.name


def _count_origin(code: Code, block: LLValue, size: LLValue) -> None:
    """Add to the live bytes of the place where memory was allocated."""
    places = LLValue(code, POINTER, f"@{code.module.elsewhere('weft_origins')}")
    at = address(places, word(block, 1) & ((1 << ORIGIN_BITS) - 1))
    when(word(block, 1).compare("ne", 0), lambda: increase(at, 0, size))


def _write_reserve(module: LLModule, release: str) -> str:
    """Emit reserve(record, bytes): count them, if every limit allows it; whether it was done.

    Where a limit would be passed, its record's function is asked to make room.
    """
    code = module.function("i64", [POINTER, WORD])
    record, size = code.parameters
    no, yes = code.constant(WORD, 0), code.constant(WORD, 1)
    leave_if(size.compare("gt", _LARGEST, signed=False), no)

    def one(here: LLValue) -> None:
        def fail() -> None:
            invoke(code, release, "void", [record, here, size])
            leave(code, no)

        def ask() -> None:
            make_room = pointer(here, Record.PRESSURE)
            when(make_room.equals(nothing(code)), fail)
            answer = invoke_at(make_room, "i64", [size])
            when(answer.equals(0), fail)

        def attempt(out: str) -> None:
            live = load_atomic(here, Record.LIVE)
            fits = live + size <= load_atomic(here, Record.LIMIT)
            take, refuse = code.label(), code.label()
            code.go_if(fits, take, refuse)
            code.start(take)
            when(replace_if(here, Record.LIVE, live, live + size), lambda: code.go(out))
            again = code.label()
            code.go(again)
            code.start(refuse)
            ask()
            code.go(again)
            code.start(again)

        forever(code, attempt)

    _each_record(code, record, one)
    leave(code, yes)
    return code.name


def _finish(
    code: Code, record: LLValue, made: LLValue, size: LLValue, grown: LLValue, names: tuple
) -> LLValue:
    """Store the size of memory that the C library gave; its data. Return null if it gave none."""
    release, charge = names

    def fail() -> None:
        invoke(code, release, "void", [record, nothing(code), grown])
        leave(code, nothing(code))

    when(made.equals(nothing(code)), fail, rarely=True)
    put(size, made, 0)
    put(record.cast("ptrtoint", "i64"), made, 2)
    invoke(code, charge, "void", [record])
    return behind(made, HEAD)


def _write_allocate(
    module: LLModule, reserve: str, release: str, charge: str, note: str, linux: bool
) -> None:
    code = module.function("ptr", [POINTER, WORD], "weft_allocate")
    record, size = code.parameters
    leave_if(invoke(code, reserve, "i64", [record, size]).equals(0), nothing(code))
    made = invoke(code, "malloc", "ptr", [size + HEAD])
    data = _finish(code, record, made, size, size, (release, charge))
    invoke(code, note, "void", [record, made])
    if linux:
        when(size.compare("ge", _HUGE), lambda: _advise(code, data, size))
    leave(code, data)


def _advise(code: Code, data: LLValue, size: LLValue) -> None:
    """Ask for huge pages, as NumPy does: without them, fresh memory costs twice as much."""
    begin = data.cast("ptrtoint", "i64")
    first = (begin + (_PAGE - 1)) & -_PAGE
    length = size - (first - begin)
    pages, advice = first.cast("inttoptr", "ptr"), code.constant(HALF_WORD, _ADVICE)
    invoke(code, "madvise", "i32", [pages, length, advice])


def _write_clear(module: LLModule, reserve: str, release: str, charge: str, note: str) -> None:
    code = module.function("ptr", [POINTER, WORD, WORD], "weft_clear")
    record, count, each = code.parameters
    one = code.constant(WORD, 1)
    most = code.constant(WORD, _LARGEST).divide(each.equals(0).choose(one, each), signed=False)
    leave_if(count.compare("gt", most, signed=False), nothing(code))
    size = count * each
    leave_if(invoke(code, reserve, "i64", [record, size]).equals(0), nothing(code))
    made = invoke(code, "calloc", "ptr", [size + HEAD, one])
    data = _finish(code, record, made, size, size, (release, charge))
    invoke(code, note, "void", [record, made])
    leave(code, data)


def _write_resize(module: LLModule, reserve: str, release: str, charge: str) -> None:
    code = module.function("ptr", [POINTER, POINTER, WORD], "weft_resize")
    record, data, size = code.parameters
    first = data.equals(nothing(code))
    when(first, lambda: leave(code, invoke(code, "weft_allocate", "ptr", [record, size])))
    block, zero = behind(data, -HEAD), code.constant(WORD, 0)
    more = size - word(block, 0)
    grown = (more > 0).choose(more, zero)
    leave_if(invoke(code, reserve, "i64", [record, grown]).equals(0), nothing(code))
    made = invoke(code, "realloc", "ptr", [block, size + HEAD])
    moved = _finish(code, record, made, size, grown, (release, charge))
    _count_origin(code, made, more)
    invoke(code, release, "void", [record, nothing(code), grown - more])
    leave(code, moved)


def _write_free(module: LLModule, release: str) -> None:
    code = module.function("void", [POINTER, POINTER, WORD], "weft_free")
    record, data, _ = code.parameters
    leave_if(data.equals(nothing(code)))
    block = behind(data, -HEAD)
    invoke(code, release, "void", [record, nothing(code), word(block, 0)])
    _count_origin(code, block, 0 - word(block, 0))
    invoke(code, "free", "void", [block])
    leave(code)


def _write_forget(module: LLModule) -> None:
    """Emit weft_forget(capsule): its destructor."""
    code = module.function("void", [POINTER], "weft_forget")
    (capsule,) = code.parameters
    name = invoke(code, "PyCapsule_GetName", "ptr", [capsule])
    record = invoke(code, "PyCapsule_GetPointer", "ptr", [capsule, name])
    outer = pointer(record, Record.HOLD)
    invoke(code, "free", "void", [record])
    invoke(code, "Py_DecRef", "void", [outer])
    leave(code)


@lru_cache(maxsize=1)
def _functions() -> Loaded:
    """These functions. They are never unloaded: arrays are freed until the process ends."""
    write = partial(write_allocations, linux=sys.platform.startswith("linux"))
    loaded = load_written("allocations", (), write, EXPORTS, quickly=True)
    _keep(loaded)
    return loaded


@lru_cache(maxsize=1)
def origin_bytes() -> Any:
    """The live bytes of each place, by its number; it lives as long as the process."""
    places = (ctypes.c_int64 * (1 << ORIGIN_BITS))()
    _keep(places)
    return places


PROVIDERS.append(
    lambda symbol: ctypes.addressof(origin_bytes()) if symbol == "weft_origins" else None
)

# -- from Python -----------------------------------------------------------------------------


def _python(name: str, result: Any, *arguments: Any) -> Any:
    """A function of Python's C interface."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_pointer_of = _python("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_new = _python(
    *("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
)
_keep = _python("Py_IncRef", None, ctypes.py_object)
_calloc = ctypes.CDLL(None).calloc
_calloc.restype, _calloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t, ctypes.c_size_t]
# Positions in the table of NumPy's C interface, which never change.
_SET, _GET = 304, 305


@lru_cache(maxsize=None)
def _numpy(position: int, *arguments: Any) -> Any:
    """A function of NumPy's C interface that returns an object."""
    module = import_module("numpy._core._multiarray_umath")
    table = _pointer_of(module._ARRAY_API, None)
    function: Any = ctypes.c_void_p.from_address(table + 8 * position).value
    return ctypes.PYFUNCTYPE(ctypes.py_object, *arguments)(function)


def handler() -> Any:
    """The capsule of the handler that NumPy allocates with in this context."""
    return _numpy(_GET)()


def use_handler(capsule: Any) -> Any:
    """Let NumPy allocate with a handler in this context; the one before."""
    return _numpy(_SET, ctypes.py_object)(capsule)


def record_of(capsule: Any) -> Any:
    """The words of a handler's record, which live as long as the capsule; None: not of ours."""
    at = _pointer_of(capsule, _NAME)
    kind = ctypes.c_int64 * Record.SIZE
    functions = kind.from_address(at)[Record.ALLOCATE : Record.FREE + 1]
    mine = _functions().addresses
    return kind.from_address(at) if functions == [mine[n] for n in EXPORTS[:-1]] else None


def origin_word(array: Any) -> int:
    """Where and when the memory of an array was allocated; 0 if nobody asked then.

    array  a NumPy array that owns its memory, from a handler of ours
    """
    return ctypes.c_int64.from_address(array.ctypes.data - HEAD + 8).value


def records_of(array: Any) -> list[int]:
    """The addresses of the records that the memory of an array counts in, the innermost first.

    array  a NumPy array that owns its memory
    """
    found: list[int] = []
    if get_handler_name(array) == _HANDLER.decode():
        at = ctypes.c_int64.from_address(array.ctypes.data - HEAD + 16).value
        while at:
            found.append(at)
            at = (ctypes.c_int64 * Record.SIZE).from_address(at)[Record.OUTER]
    return found


def name_of(capsule: Any) -> str:
    """The name of a handler, NumPy's or another library's."""
    return ctypes.string_at(_pointer_of(capsule, _NAME)).decode()


def make_handler(outer: Any = None) -> Any:
    """A capsule of a new record; what it counts also counts in that of the capsule `outer`."""
    code = _functions().addresses
    at = _calloc(Record.SIZE, 8)
    if at is None:
        raise MemoryError("no memory for the counters of a memory counter")
    words = (ctypes.c_int64 * Record.SIZE).from_address(at)
    ctypes.memmove(at, _HANDLER, len(_HANDLER))
    ctypes.memmove(at + 127, b"\1", 1)
    ctypes.memmove(at + 8 * Record.CAPSULE, _NAME, len(_NAME))
    words[Record.CONTEXT], words[Record.LIMIT] = at, UNLIMITED
    words[Record.ALLOCATE : Record.FREE + 1] = [code[n] for n in EXPORTS[:-1]]
    if outer is not None:
        words[Record.OUTER], words[Record.HOLD] = _pointer_of(outer, _NAME), id(outer)
        _keep(outer)
    return _new(at, at + 8 * Record.CAPSULE, code["weft_forget"])
