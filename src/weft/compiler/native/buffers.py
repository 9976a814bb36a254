"""Native code that finds gradient arrays that nothing else references, to be overwritten.

`self` is a NumPy array of words: a head (`Room`), then for each array the address of the place
where a tensor keeps its gradient, or 0, the node that the gradient must have, and its position
among a program's outputs.

`weft_room` returns a list of the arrays, with None for one that is referenced elsewhere, is not
plain, or has no place; and after them whether every gradient that has a place is there. `weft_kept`
returns whether a list of outputs are the gradients already.
"""

from enum import IntEnum

from ..emit.code import LLModule, LLValue
from ..emit.control import (
    POINTER,
    WORD,
    address,
    behind,
    each,
    invoke,
    leave,
    leave_if,
    nothing,
    pointer,
    put,
    when,
    word,
)
from .layout import COUNT, DATA, ITEMS, TYPE


class Room(IntEnum):
    """The words of the head."""

    HOW_MANY = 0
    KIND = 1  # the class of gradients
    ARRAY = 2  # offset in bytes of a tensor's array
    NODE = 3
    SHARE = 4
    NONE = 5  # Python's None
    SIZE = 6


def write_room(module: LLModule) -> None:
    """The function `weft_room`."""
    alone = _write_alone(module)
    code = module.function("ptr", [POINTER, POINTER, WORD], "weft_room")
    itself, _, _ = code.parameters
    head = code.load(POINTER, behind(itself, DATA), 8)
    count, none = word(head, Room.HOW_MANY), pointer(head, Room.NONE)
    made = invoke(code, "PyList_New", "ptr", [count + 1])
    leave_if(made.equals(nothing(code)), made)
    items, complete = pointer(behind(made, ITEMS), 0), code.local(WORD)
    code.store(code.constant(WORD, 1), complete, 8)

    def take(i: LLValue) -> None:
        entry = _entry(head, i)
        array = invoke(code, alone, "ptr", [head, entry])
        held = array.equals(nothing(code))
        when(held & word(entry, 0).compare("ne", 0),
             lambda: code.store(code.constant(WORD, 0), complete, 8))  # fmt: skip
        found = held.choose(none, array)
        invoke(code, "Py_IncRef", "void", [found])
        put(found, items, i)

    each(code, 0, count, take)
    flag = invoke(code, "PyBool_FromLong", "ptr", [code.load(WORD, complete, 8)])
    put(flag, items, count)
    leave(code, made)


def write_kept(module: LLModule) -> None:
    """The function `weft_kept`."""
    code = module.function("ptr", [POINTER, POINTER, WORD], "weft_kept")
    itself, arguments, _ = code.parameters
    head = code.load(POINTER, behind(itself, DATA), 8)
    items = pointer(behind(pointer(arguments, 0), ITEMS), 0)

    def differs() -> None:
        leave(code, invoke(code, "PyBool_FromLong", "ptr", [code.constant(WORD, 0)]))

    def compare(i: LLValue) -> None:
        place = pointer(_entry(head, i), 0)
        when(place.compare("ne", nothing(code)), lambda: held(_entry(head, i), place))

    def held(entry: LLValue, place: LLValue) -> None:
        gradient = pointer(place, 0)
        when(gradient.equals(nothing(code)), differs)
        for at, expected in (
            (code.constant(WORD, TYPE), word(head, Room.KIND)),
            (word(head, Room.NODE), word(entry, 1)),
            (word(head, Room.ARRAY), word(items, word(entry, 2))),
        ):
            when(word(behind(gradient, at), 0).compare("ne", expected), differs)

    each(code, 0, word(head, Room.HOW_MANY), compare)
    leave(code, invoke(code, "PyBool_FromLong", "ptr", [code.constant(WORD, 1)]))


def _entry(head: LLValue, i: LLValue) -> LLValue:
    return address(head, i + i + i + Room.SIZE)


def _write_alone(module: LLModule) -> str:
    """Emit a function of the head and an entry: the array, or null."""
    code = module.function("ptr", [POINTER, POINTER])
    head, entry = code.parameters
    place, held = pointer(entry, 0), nothing(code)
    leave_if(place.equals(held), held)
    gradient = pointer(place, 0)
    leave_if(gradient.equals(held), held)
    leave_if(word(behind(gradient, COUNT), 0).compare("ne", 1), held)
    leave_if(word(behind(gradient, TYPE), 0).compare("ne", word(head, Room.KIND)), held)
    node, share = behind(gradient, word(head, Room.NODE)), behind(gradient, word(head, Room.SHARE))
    leave_if(word(node, 0).compare("ne", word(entry, 1)), held)
    leave_if(word(share, 0).compare("ne", word(head, Room.NONE)), held)
    array = pointer(behind(gradient, word(head, Room.ARRAY)), 0)
    leave_if(array.equals(held), held)
    leave_if(word(behind(array, COUNT), 0).compare("ne", 1), held)
    leave(code, array)
    return code.name
