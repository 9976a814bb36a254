"""Native code that says at which line of the user's program a thread is.

It walks out of the library along Python's frames. What it needs to know is in tables of words that
Python fills (`profile/origins.py`): of each code object whether it is the user's, and of each place
(code object and instruction) its number. Where something is not in the tables, Python is asked.
`weft_note` is the function that the allocator calls (`allocations.py`).
"""

from enum import IntEnum

from ..emit.code import Code, LLModule, LLValue
from ..emit.control import (
    POINTER,
    WORD,
    address,
    each,
    forever,
    invoke,
    leave,
    leave_if,
    nothing,
    pointer,
    when,
    word,
)
from .allocations import ORIGIN_BITS

ROOM = 2**14  # entries of each table, a power of two
MOST = 3 * ROOM // 4  # so many are used at most
SLOTS = 4096  # threads at once
AT_SWEEP = 1  # no address


class Tables(IntEnum):
    """The words of the head."""

    CODES = 0  # addresses of the tables
    PLACES = 1
    SLOTS = 2
    USED = 3  # how many slots are in use, or were
    FIND = 4  # function() -> the number of the place, in Python
    CLOCK = 5  # the iterator that numbers recorded operations, and arrays
    SIZE = 6


class CodeEntry(IntEnum):
    """An entry of the table of code objects."""

    CODE = 0
    KIND = 1
    SIZE = 2


class CodeKind(IntEnum):
    """Whose a code object is; 0 is unknown."""

    LIBRARY = 1
    SWEEP = 2  # the loop of a sweep
    USER = 3


class PlaceEntry(IntEnum):
    """An entry of the table of places."""

    CODE = 0
    INSTRUCTION = 1
    NUMBER = 2  # −1: it has none yet
    SIZE = 4


class Slot(IntEnum):
    """What native code knows of a thread."""

    THREAD = 0  # its identifier; 0: the slot is free
    NUMBER = 1  # the place that arrays belong to; 0: the frames are looked at
    SWEEP = 2  # that of the node that its innermost sweep is at; 0: Python is asked
    SERIAL = 3  # the number of the thread among all that there were
    CODE = 4  # the place of the node, if operations belong to it; 0: they do not
    INSTRUCTION = 5
    START = 6  # from here on: the span that has just ended, for functions of Python
    STOP = 7
    AT_CODE = 8
    AT_INSTRUCTION = 9
    BACK = 10
    LIVE = 11
    PEAK = 12
    SIZE = 16


def hash_of(code: int, instruction: int) -> int:
    """Where an entry of a table is, or the first place after it that was free."""
    return ((code >> 4) ^ (code >> 13) ^ instruction) & (ROOM - 1)


def _hash(code: LLValue, instruction: LLValue) -> LLValue:
    return ((code >> 4) ^ (code >> 13) ^ instruction) & (ROOM - 1)


def write_places(module: LLModule) -> None:
    """Emit the function `weft_note`: where an array is made, and when, as one word."""
    slot_of, number_of = slot_finder(module), _write_number(module)
    code = module.function("i64", [WORD], "weft_note")
    head = LLValue(code, POINTER, f"@{module.elsewhere('weft_places')}")
    state = invoke(code, "PyGILState_Ensure", "i32", [])
    slot, result = invoke(code, slot_of, "ptr", [head]), code.local(WORD)
    number = invoke(code, number_of, "i64", [head, slot])
    code.store(number, result, 8)

    def stamp() -> None:
        tick = invoke(code, "PyIter_Next", "ptr", [pointer(head, Tables.CLOCK)])
        time = 0 - invoke(code, "PyLong_AsLongLong", "i64", [tick])
        invoke(code, "Py_DecRef", "void", [tick])
        code.store((time << ORIGIN_BITS) | number, result, 8)

    when(number.compare("ne", 0), stamp)
    invoke(code, "PyGILState_Release", "void", [state])
    leave(code, code.load(WORD, result, 8))


def _write_number(module: LLModule) -> str:
    """Emit number(head, slot): that of the place where an array is made; slot may be null."""
    find, ask = place_finder(module), _write_ask(module)
    code = module.function("i64", [POINTER, POINTER])
    head, slot = code.parameters
    known = slot.compare("ne", nothing(code))

    def leave_if_told(field: Slot) -> None:
        number = word(slot, field)
        when(number.compare("ne", 0), lambda: leave(code, number))

    when(known, lambda: leave_if_told(Slot.NUMBER))
    found = invoke(code, find, "i64", [head, code.constant(WORD, 1)])
    when(known & found.equals(AT_SWEEP), lambda: leave_if_told(Slot.SWEEP))

    def enter() -> None:
        number = word(found.cast("inttoptr", "ptr"), PlaceEntry.NUMBER)
        when(number.compare("ne", -1), lambda: leave(code, number))

    when(found > AT_SWEEP, enter)
    leave(code, invoke(code, ask, "i64", [head]))
    return code.name


def _write_ask(module: LLModule) -> str:
    """Emit ask(head): the number of the place, by Python."""
    code = module.function("i64", [POINTER])
    (head,) = code.parameters
    find = pointer(head, Tables.FIND)
    answer = invoke(code, "PyObject_CallNoArgs", "ptr", [find])

    def fail() -> None:
        invoke(code, "PyErr_WriteUnraisable", "void", [find])
        leave(code, code.constant(WORD, 0))

    when(answer.equals(nothing(code)), fail, rarely=True)
    number = invoke(code, "PyLong_AsLongLong", "i64", [answer])
    invoke(code, "Py_DecRef", "void", [answer])
    leave(code, number)
    return code.name


def slot_finder(module: LLModule) -> str:
    """The name of slot(head): that of this thread, or null."""
    return module.once(("slot",), _write_slot)


def _write_slot(module: LLModule) -> str:
    code = module.function("ptr", [POINTER])
    (head,) = code.parameters
    me, slots = invoke(code, "PyThread_get_thread_ident", "i64", []), pointer(head, Tables.SLOTS)

    def one(i: LLValue) -> None:
        slot = address(slots, i * Slot.SIZE.value)
        leave_if(word(slot, Slot.THREAD).equals(me), slot)

    each(code, 0, word(head, Tables.USED), one)
    leave(code, nothing(code))
    return code.name


def place_finder(module: LLModule) -> str:
    """The name of find(head, stops): the entry of the place where the user's program is.

    It is 0 if a frame or the place is not in the tables, and `AT_SWEEP` if `stops` and the
    innermost frame that counts is that of a sweep.
    """
    return module.once(("find",), _write_find)


def _write_find(module: LLModule) -> str:
    kind_of, entry_of = _write_kind(module), _write_entry(module)
    code = module.function("i64", [POINTER, WORD])
    head, stops = code.parameters
    unknown, at = code.constant(WORD, 0), code.local(POINTER)
    state = invoke(code, "PyThreadState_Get", "ptr", [])
    code.store(invoke(code, "PyThreadState_GetFrame", "ptr", [state]), at, 8)

    def one(out: str) -> None:
        frame = code.load(POINTER, at, 8)
        leave_if(frame.equals(nothing(code)), unknown)
        run = invoke(code, "PyFrame_GetCode", "ptr", [frame])
        invoke(code, "Py_DecRef", "void", [run])  # the frame has it
        kind = invoke(code, kind_of, "i64", [head, run])
        sweep = kind.equals(CodeKind.SWEEP)

        def arrive() -> None:
            last = invoke(code, "PyFrame_GetLasti", "i32", [frame]).cast("sext", "i64")
            invoke(code, "Py_DecRef", "void", [frame])
            leave_if(sweep, code.constant(WORD, AT_SWEEP))
            leave_if(kind.compare("ne", CodeKind.USER), unknown)
            leave(code, invoke(code, entry_of, "i64", [head, run, last]))

        passes = kind.equals(CodeKind.LIBRARY) | (sweep & stops.equals(0))
        when(passes.equals(0), arrive)
        code.store(invoke(code, "PyFrame_GetBack", "ptr", [frame]), at, 8)
        invoke(code, "Py_DecRef", "void", [frame])

    forever(code, one)
    leave(code, unknown)
    return code.name


def _write_kind(module: LLModule) -> str:
    """Emit kind(head, code object)."""
    code = module.function("i64", [POINTER, POINTER])
    head, run = code.parameters
    key = run.cast("ptrtoint", "i64")

    def same(entry: LLValue) -> None:
        leave_if(word(entry, CodeEntry.CODE).equals(key), word(entry, CodeEntry.KIND))

    first = _hash(key, code.constant(WORD, 0))
    _probe(code, pointer(head, Tables.CODES), CodeEntry.SIZE, first, same)
    return code.name


def _write_entry(module: LLModule) -> str:
    """Emit entry(head, code object, instruction): the address of the entry, or 0."""
    code = module.function("i64", [POINTER, POINTER, WORD])
    head, run, instruction = code.parameters
    key = run.cast("ptrtoint", "i64")

    def same(entry: LLValue) -> None:
        found = word(entry, PlaceEntry.CODE).equals(key)
        found &= word(entry, PlaceEntry.INSTRUCTION).equals(instruction)
        leave_if(found, entry.cast("ptrtoint", "i64"))

    first = _hash(key, instruction)
    _probe(code, pointer(head, Tables.PLACES), PlaceEntry.SIZE, first, same)
    return code.name


def _probe(code: Code, table: LLValue, size: int, first: LLValue, same) -> None:
    """Emit same(entry) for the entries where one may be; return 0 at the first that is free."""
    at = code.local(WORD)
    code.store(first, at, 8)

    def one(out: str) -> None:
        i = code.load(WORD, at, 8)
        entry = address(table, i * int(size))
        leave_if(word(entry, 0).equals(0), code.constant(WORD, 0))
        same(entry)
        code.store((i + 1) & (ROOM - 1), at, 8)

    forever(code, one)
    leave(code, code.constant(WORD, 0))
