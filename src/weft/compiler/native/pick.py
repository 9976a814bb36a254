"""Native code that picks elements of a list.

`self` is a NumPy array of words: a count, then positions. `weft_pick` takes a list that has all of
these positions, and returns a new one.
"""

from ..emit.code import LLModule, LLValue
from ..emit.control import (
    POINTER,
    WORD,
    behind,
    each,
    invoke,
    leave,
    leave_if,
    nothing,
    pointer,
    put,
    word,
)
from .layout import DATA, ITEMS


def write_pick(module: LLModule) -> None:
    """Emit the function `weft_pick`."""
    code = module.function("ptr", [POINTER, POINTER, WORD], "weft_pick")
    itself, arguments, _ = code.parameters
    head = code.load(POINTER, behind(itself, DATA), 8)
    given = pointer(behind(pointer(arguments, 0), ITEMS), 0)
    made = invoke(code, "PyList_New", "ptr", [word(head, 0)])
    leave_if(made.equals(nothing(code)), made)
    items = pointer(behind(made, ITEMS), 0)

    def one(i: LLValue) -> None:
        element = pointer(given, word(head, i + 1))
        invoke(code, "Py_IncRef", "void", [element])
        put(element, items, i)

    each(code, 0, word(head, 0), one)
    leave(code, made)
