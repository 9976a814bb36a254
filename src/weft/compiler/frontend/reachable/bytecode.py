"""The names in a code object: globals, attributes, modules that it imports."""

from dis import Instruction, get_instructions, hasjabs, hasjrel, stack_effect
from operator import attrgetter, methodcaller
from types import CodeType
from weakref import WeakKeyDictionary

from ....core.record import record

_GLOBALS = frozenset(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"))
_ATTRIBUTES = frozenset(
    ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "LOAD_SUPER_METHOD", "IMPORT_FROM")
)
_JUMPS = frozenset(hasjrel + hasjabs)
_OTHER_CALLS = frozenset(("KW_NAMES", "CALL_KW", "CALL_FUNCTION_EX"))
_BY_NAME = frozenset(("getattr", "hasattr"))  # functions whose second argument is a name
# Names that read attributes whose names may not be in the code.
_DYNAMIC = frozenset(("vars", "dir", "__dict__", "__getattribute__", "attrgetter", "methodcaller"))
DYNAMIC = (getattr, hasattr, vars, dir, attrgetter, methodcaller)  # under any name


@record
class Named:
    """The names in a code object.

    globals     variables of the module
    attributes  attributes, of any object
    stores      attributes that it assigns or deletes
    modules     modules that are imported when it runs
    dynamic     whether it can also read attributes by computed names
    """

    globals: frozenset[str]
    attributes: frozenset[str]
    stores: frozenset[str]
    modules: frozenset[str]
    dynamic: bool


_known: WeakKeyDictionary[CodeType, Named] = WeakKeyDictionary()


def find_names(code: CodeType) -> Named:
    """The names in a code object, without those of functions defined inside it."""
    found = _known.get(code)
    if found is None:
        found = _known[code] = _read(list(get_instructions(code)))
    return found


def _read(instructions: list[Instruction]) -> Named:
    variables, attributes, stores, modules = set(), set(), set(), set()
    dynamic = False
    for k, i in enumerate(instructions):
        if i.opname in _GLOBALS:
            variables.add(i.argval)
            if i.argval in _BY_NAME:
                name = _second_argument(instructions, k)
                dynamic = dynamic or name is None
                attributes.update(() if name is None else (name,))
        elif i.opname in _ATTRIBUTES:
            attributes.add(i.argval)
        elif i.opname in ("STORE_ATTR", "DELETE_ATTR"):
            stores.add(i.argval)
        elif i.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            variables.add(i.argval)
        elif i.opname == "IMPORT_NAME":
            modules.add(i.argval)
        elif i.opname == "LOAD_CONST" and _is_pattern(instructions, k):
            attributes.update(i.argval)
    dynamic = dynamic or bool(_DYNAMIC & (variables | attributes) or _BY_NAME & attributes)
    names = [frozenset(found) for found in (variables, attributes, stores, modules)]
    return Named(names[0], names[1], names[2], names[3], dynamic)


def _is_pattern(instructions: list[Instruction], k: int) -> bool:
    """Whether a constant is the attributes of a class pattern: `case Point(x=0)`."""
    following = instructions[k + 1].opname if k + 1 < len(instructions) else ""
    return following == "MATCH_CLASS"


def _second_argument(instructions: list[Instruction], k: int) -> str | None:
    """The second argument of a call of the global at k, if it is a constant string; else None.

    The stack depth is followed from the callee on: the second argument begins with the instruction
    that pushes a second value above it. It is a constant if that instruction loads one and no other
    changes it.
    """
    depth = 0  # values above the callee
    second = None
    for at in range(k + 1, len(instructions)):
        i = instructions[at]
        if i.opcode in _JUMPS or i.opname in _OTHER_CALLS:
            return None
        if i.opname in ("PRECALL", "CALL") and i.arg == depth:
            return second if depth in (2, 3) else None
        before, depth = depth, depth + stack_effect(i.opcode, i.arg)
        if depth == 2:
            second = i.argval if before == 1 and i.opname == "LOAD_CONST" else None
        if depth < 0:
            return None
    return None
