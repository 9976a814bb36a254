"""Native code that observes every function call, and calls Python for those that are new.

`weft_profile` is a profile function of CPython: `self` is a NumPy array of words, a head
(`Profile`) and a hash table of addresses. A call of a code object, or of a built-in function by its
definition, whose address is in the table is skipped; for others the callback in the head is called
with the frame, and with the built-in function if it is one. If the callback returns True, the
address enters the table: the object must then stay alive and unchanged.
"""

from enum import IntEnum

from ..emit.code import LLModule
from ..emit.control import (
    HALF_WORD,
    POINTER,
    WORD,
    address,
    behind,
    forever,
    invoke,
    leave,
    leave_if,
    nothing,
    pointer,
    put,
    when,
    word,
)
from .layout import DATA, HEAD, TYPE

CALL, C_CALL = 0, 4  # CPython's numbers of events
ROOM = 2**13  # addresses
MOST = 3 * ROOM // 4


class Profile(IntEnum):
    """The words of the head."""

    FUNCTION = 0  # the callback
    TRUE = 1  # Python's True
    BUILTIN = 2  # the type of built-in functions
    COUNT = 3  # addresses in the table
    SIZE = 4


def write_profile(module: LLModule) -> None:
    """Emit the function `weft_profile`."""
    tell = _write_tell(module)
    code = module.function("i32", [POINTER, POINTER, HALF_WORD, POINTER], "weft_profile")
    itself, frame, what, argument = code.parameters
    head = code.load(POINTER, behind(itself, DATA), 8)

    def python() -> None:
        held = invoke(code, "PyFrame_GetCode", "ptr", [frame])
        invoke(code, "Py_DecRef", "void", [held])  # the frame has it
        leave(code, invoke(code, tell, "i32", [head, held, frame, nothing(code)]))

    def builtin() -> None:
        known = word(behind(argument, TYPE), 0).equals(word(head, Profile.BUILTIN))
        key = code.local(POINTER)
        code.store(nothing(code), key, 8)
        when(known, lambda: code.store(pointer(behind(argument, HEAD), 0), key, 8))
        definition = code.load(POINTER, key, 8)
        leave(code, invoke(code, tell, "i32", [head, definition, frame, argument]))

    when(what.equals(CALL), python)
    when(what.equals(C_CALL), builtin)
    leave(code, code.constant(HALF_WORD, 0))


def _write_tell(module: LLModule) -> str:
    """Emit a function of the head, an address or null, the frame and the built-in or null."""
    code = module.function("i32", [POINTER, POINTER, POINTER, POINTER])
    head, key, frame, argument = code.parameters
    fine, table = code.constant(HALF_WORD, 0), address(head, Profile.SIZE)
    number = code.emit(WORD, f"ptrtoint ptr {key.name} to i64")
    at = code.local(WORD)
    code.store(((number >> 4) ^ (number >> 13)) & (ROOM - 1), at, 8)

    def probe(out: str) -> None:
        i = code.load(WORD, at, 8)
        held = word(table, i)
        leave_if(held.equals(number) & number.compare("ne", 0), fine)
        after = code.label()
        code.go_if(held.equals(0), out, after)
        code.start(after)
        code.store((i + 1) & (ROOM - 1), at, 8)

    forever(code, probe)
    arguments = code.local(POINTER, 2)
    put(frame, arguments, 0)
    put(argument, arguments, 1)
    count = argument.equals(nothing(code)).choose(code.constant(WORD, 1), code.constant(WORD, 2))
    given = [pointer(head, Profile.FUNCTION), arguments, count, nothing(code)]
    answer = invoke(code, "PyObject_Vectorcall", "ptr", given)
    leave_if(answer.equals(nothing(code)), code.constant(HALF_WORD, -1))
    invoke(code, "Py_DecRef", "void", [answer])
    leave_if(answer.compare("ne", pointer(head, Profile.TRUE)), fine)
    filled = word(head, Profile.COUNT)
    leave_if(number.equals(0) | filled.compare("ge", MOST), fine)
    put(filled + 1, head, Profile.COUNT)
    put(number, table, code.load(WORD, at, 8))
    leave(code, fine)
    return code.name
