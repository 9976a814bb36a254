"""Native code around a kernel that writes down when it began and ended, where, on what arrays.

`weft_span` is a built-in function of Python in the place of a kernel: `self` is a NumPy array of
words (`Kernel`). What it writes are words (`SpanWords`), one record after another; Python makes
sense of them later (`profile/tape.py`). Calls that it does not understand it leaves to functions
of Python: `Kernel.GENERAL` in its own place, `Kernel.RECORD` to record a call that was made.
"""

from enum import IntEnum
from time import CLOCK_MONOTONIC

from ..emit.code import Code, LLModule, LLValue
from ..emit.control import (
    HALF_WORD,
    POINTER,
    WORD,
    address,
    behind,
    each,
    forever,
    invoke,
    leave,
    leave_if,
    load_atomic,
    nothing,
    pointer,
    put,
    swap,
    when,
    word,
)
from . import allocations
from .layout import BASE, DATA, DESCR, DIMENSIONS, ITEMS, NDIM, SIZE, TUPLE_ITEMS, TYPE
from .places import PlaceEntry, Slot, place_finder, slot_finder

DTYPES = 32  # so many are known at most
AXES = 64  # of an array, at most
PIECE = 1 << 16  # words of a piece of memory; a record takes half of them at most


class Kernel(IntEnum):
    """The words of one kernel."""

    FUNCTION = 0
    GENERAL = 1  # in the place of this whole function
    RECORD = 2  # function(result, arguments)
    TAPE = 3  # the words of the recorder
    OP = 4  # its number
    ARITY = 5  # −1: the first argument is a sequence of arrays
    VIEWS = 6  # whether the result may be a view of the first argument
    NOTES = 7  # whether arrays that it makes belong to the user's line
    ODD = 8  # whether all its calls are recorded by Python
    SIZE = 9


class Tape(IntEnum):
    """The words of a recorder."""

    PLACES = 0  # the head of the tables of places
    MEMORY = 1  # where the next record is written
    AT = 2  # words that are written there
    ROOM = 3
    MORE = 4  # function(): another piece of memory
    COUNT = 5  # records so far
    COUNTER = 6  # the record of the memory counter, or 0
    MOST = 7  # the largest peak so far
    PEAKED = 8  # function(), after a larger one
    WRITTEN = 9  # the context variable with the line that operations belong to, and None
    NONE = 10
    ARRAY = 11  # types
    LIST = 12
    TUPLE = 13
    SCALAR = 14  # NumPy's
    SCALARS = 15  # a list for them
    NUMBERS = 16  # Python's, and that of None
    DTYPES = 21
    SIZE = DTYPES + DTYPES


class SpanWords(IntEnum):
    """A record: these words, then operands and results."""

    LENGTH = 0
    OP = 1
    START = 2
    STOP = 3
    CODE = 4
    INSTRUCTION = 5
    BACK = 6
    THREAD = 7  # `Slot.SERIAL`
    LIVE = 8
    PEAK = 9
    OPERANDS = 10  # how many
    RESULTS = 11  # −1: the result is a view
    SIZE = 12


class Value(IntEnum):
    """How an operand or a result begins."""

    NUMBER = 0  # one of Python, or None: nothing follows
    ARRAY = 1  # its dtype's position, the number of axes, their sizes
    SCALAR = 2  # its position in the list


def write_spans(module: LLModule) -> None:
    """Emit the function `weft_span`."""
    slot_of, locate, finish = slot_finder(module), _write_locate(module), _write_finish(module)
    code = module.function("ptr", [POINTER, POINTER, WORD, POINTER], "weft_span")
    itself, arguments, count, names = code.parameters
    own = code.load(POINTER, behind(itself, DATA), 8)

    def call(function: Kernel) -> LLValue:
        given = [pointer(own, function), arguments, count, names]
        return invoke(code, "PyObject_Vectorcall", "ptr", given)

    def general() -> None:
        leave(code, call(Kernel.GENERAL))

    slot = invoke(code, slot_of, "ptr", [pointer(pointer(own, Kernel.TAPE), Tape.PLACES)])
    when(slot.equals(nothing(code)), general, rarely=True)
    place = code.local(WORD, _Place.SIZE)
    found = invoke(code, locate, "i64", [own, slot, arguments, count, place])
    when(found.equals(0), general)
    before = word(slot, Slot.NUMBER)
    put(word(place, _Place.NUMBER), slot, Slot.NUMBER)
    start = _now(code)
    made = call(Kernel.FUNCTION)
    stop = _now(code)
    put(before, slot, Slot.NUMBER)
    leave_if(made.equals(nothing(code)), made)
    where = [word(place, at) for at in (_Place.CODE, _Place.INSTRUCTION, _Place.BACK)]
    for field, value in enumerate((start, stop, *where), Slot.START):
        put(value, slot, field)
    done = invoke(code, finish, "i64", [own, slot, made, arguments, count])

    def fail() -> None:
        invoke(code, "Py_DecRef", "void", [made])
        leave(code, nothing(code))

    when(done.equals(0), fail, rarely=True)
    leave(code, made)


class _Place(IntEnum):
    """Words of a call: where it was made, and the place that its arrays belong to."""

    CODE = 0
    INSTRUCTION = 1
    BACK = 2
    NUMBER = 3
    SIZE = 4


class _View(IntEnum):
    """Some objects: the address of the first pointer, and how many."""

    FIRST = 0
    COUNT = 1
    SIZE = 2


def _now(code: Code) -> LLValue:
    """Nanoseconds."""
    time = code.local(WORD, 2)
    invoke(code, "clock_gettime", "i32", [code.constant(HALF_WORD, CLOCK_MONOTONIC), time])
    return word(time, 0) * 1_000_000_000 + word(time, 1)


def _type_of(x: LLValue) -> LLValue:
    return word(behind(x, TYPE), 0)


# -- before the call -----------------------------------------------------------------------------


def _write_locate(module: LLModule) -> str:
    """Emit locate(kernel, slot, arguments, count, place): whether this is a call for native code.

    It says where the call is, too: at the forward line of a node, or at the user's own.
    """
    find, views, kind = place_finder(module), _operands(module), _kind(module)
    code = module.function("i64", [POINTER, POINTER, POINTER, WORD, POINTER])
    own, slot, arguments, count, place = code.parameters
    no, yes, tape = code.constant(WORD, 0), code.constant(WORD, 1), pointer(own, Kernel.TAPE)
    view, written = code.local(WORD, _View.SIZE), code.local(POINTER)
    leave_if(invoke(code, views, "i64", [own, arguments, count, view]).equals(0), no)
    first = pointer(pointer(view, _View.FIRST), 0)  # a GPU's arrays need its clock
    leave_if(invoke(code, kind, "i64", [tape, first]).equals(0), no)
    fields = Slot.CODE, Slot.INSTRUCTION, Slot.NUMBER
    for at, field in zip((_Place.CODE, _Place.INSTRUCTION, _Place.NUMBER), fields, strict=True):
        put(word(slot, field), place, at)
    put(yes, place, _Place.BACK)
    leave_if(word(slot, Slot.CODE).compare("ne", 0), yes)
    put(no, place, _Place.BACK)
    var = [pointer(tape, Tape.WRITTEN), nothing(code), written]
    leave_if(invoke(code, "PyContextVar_Get", "i32", var).compare("ne", 0), no)
    told = code.load(POINTER, written, 8)
    invoke(code, "Py_DecRef", "void", [told])
    leave_if(told.compare("ne", pointer(tape, Tape.NONE)), no)
    found = invoke(code, find, "i64", [pointer(tape, Tape.PLACES), no])
    leave_if(found.equals(0), no)
    entry = found.cast("inttoptr", "ptr")
    put(word(entry, PlaceEntry.CODE), place, _Place.CODE)
    put(word(entry, PlaceEntry.INSTRUCTION), place, _Place.INSTRUCTION)

    def note() -> None:
        leave_if(word(entry, PlaceEntry.NUMBER).equals(-1), no)
        put(word(entry, PlaceEntry.NUMBER), place, _Place.NUMBER)

    when(word(own, Kernel.NOTES).compare("ne", 0), note)
    leave(code, yes)
    return code.name


def _operands(module: LLModule) -> str:
    """The name of operands(kernel, arguments, count, view): the arrays; 0 if there are none."""
    return module.once(("operands",), _write_operands)


def _write_operands(module: LLModule) -> str:
    items = _items(module)
    code = module.function("i64", [POINTER, POINTER, WORD, POINTER])
    own, arguments, count, view = code.parameters
    arity = word(own, Kernel.ARITY)
    leave_if(count.equals(0), count)

    def sequence() -> None:
        given = [pointer(own, Kernel.TAPE), pointer(arguments, 0), view]
        leave(code, invoke(code, items, "i64", given))

    when(arity < 0, sequence)
    some = (arity < count).choose(arity, count)
    put(arguments, view, _View.FIRST)
    put(some, view, _View.COUNT)
    leave(code, some)
    return code.name


def _items(module: LLModule) -> str:
    """The name of items(tape, sequence, view): those of a list or a tuple, and how many."""
    return module.once(("items",), _write_items)


def _write_items(module: LLModule) -> str:
    code = module.function("i64", [POINTER, POINTER, POINTER])
    tape, sequence, view = code.parameters
    kind, size = _type_of(sequence), word(behind(sequence, SIZE), 0)
    put(size, view, _View.COUNT)

    def listed() -> None:
        put(pointer(behind(sequence, ITEMS), 0), view, _View.FIRST)
        leave(code, size)

    when(kind.equals(word(tape, Tape.LIST)), listed)
    leave_if(kind.compare("ne", word(tape, Tape.TUPLE)), code.constant(WORD, 0))
    put(behind(sequence, TUPLE_ITEMS), view, _View.FIRST)
    leave(code, size)
    return code.name


def _kind(module: LLModule) -> str:
    """The name of kind(tape, object): one more than its `Value`, or 0."""
    return module.once(("kind",), _write_kind)


def _write_kind(module: LLModule) -> str:
    dtype_of = _dtype(module)
    code = module.function("i64", [POINTER, POINTER])
    tape, x = code.parameters
    kind, no = _type_of(x), code.constant(WORD, 0)

    def array() -> None:
        known = invoke(code, dtype_of, "i64", [tape, x]) >= 0
        leave(code, known.choose(code.constant(WORD, 1 + Value.ARRAY), no))

    when(kind.equals(word(tape, Tape.ARRAY)), array)
    number = code.constant(WORD, 1 + Value.NUMBER)
    for at in range(Tape.NUMBERS, Tape.DTYPES):
        leave_if(kind.equals(word(tape, at)), number)
    both = [kind.cast("inttoptr", "ptr"), pointer(tape, Tape.SCALAR)]
    scalar = invoke(code, "PyType_IsSubtype", "i32", both).compare("ne", 0)
    leave(code, scalar.choose(code.constant(WORD, 1 + Value.SCALAR), no))
    return code.name


def _dtype(module: LLModule) -> str:
    """The name of dtype(tape, array): its position among those that are known, or −1."""
    return module.once(("dtype",), _write_dtype)


def _write_dtype(module: LLModule) -> str:
    code = module.function("i64", [POINTER, POINTER])
    tape, array = code.parameters
    dtype = word(behind(array, DESCR), 0)
    each(code, 0, DTYPES, lambda i: leave_if(word(address(tape, Tape.DTYPES), i).equals(dtype), i))
    leave(code, code.constant(WORD, -1))
    return code.name


# -- after the call ------------------------------------------------------------------------------


def _write_finish(module: LLModule) -> str:
    """Emit finish(kernel, slot, result, arguments, count): record the call; 0 if that raises."""
    sample, operands, room = _write_sample(module), _operands(module), _write_room(module)
    results, plain, tuples = _write_results(module), _write_plain(module), _write_odd(module)
    record = _write_record(module)
    code = module.function("i64", [POINTER, POINTER, POINTER, POINTER, WORD])
    own, slot, made, arguments, count = code.parameters
    no, tape = code.constant(WORD, 0), pointer(own, Kernel.TAPE)
    leave_if(invoke(code, sample, "i64", [tape, slot]).equals(0), no)
    inputs, outputs = code.local(WORD, _View.SIZE), code.local(WORD, _View.SIZE)
    held = code.local(POINTER)
    code.store(made, held, 8)
    invoke(code, operands, "i64", [own, arguments, count, inputs])
    invoke(code, results, "void", [own, held, inputs, outputs])
    fits = invoke(code, plain, "i64", [tape, inputs]) & invoke(code, plain, "i64", [tape, outputs])
    shown = word(outputs, _View.COUNT)
    values = word(inputs, _View.COUNT) + (shown > 0).choose(shown, no)
    wanted = values * (AXES + 3) + SpanWords.SIZE.value
    odd = fits.equals(0) | word(own, Kernel.ODD).compare("ne", 0) | (wanted > PIECE // 2)
    when(odd, lambda: leave(code, invoke(code, tuples, "i64", [own, made, arguments, count])))
    leave_if(invoke(code, room, "i64", [tape, wanted]).equals(0), no)
    leave(code, invoke(code, record, "i64", [own, slot, inputs, outputs]))
    return code.name


def _write_sample(module: LLModule) -> str:
    """Emit sample(tape, slot): store the live bytes, and the most since the last time."""
    code = module.function("i64", [POINTER, POINTER])
    tape, slot = code.parameters
    yes, counter = code.constant(WORD, 1), pointer(tape, Tape.COUNTER)
    put(code.constant(WORD, 0), slot, Slot.LIVE)
    put(code.constant(WORD, 0), slot, Slot.PEAK)
    leave_if(counter.equals(nothing(code)), yes)
    live = load_atomic(counter, allocations.Record.LIVE)
    most = swap(live, counter, allocations.Record.PEAK)
    peak = (most > live).choose(most, live)
    put(live, slot, Slot.LIVE)
    put(peak, slot, Slot.PEAK)
    leave_if(peak <= word(tape, Tape.MOST), yes)
    leave(code, _ask(code, pointer(tape, Tape.PEAKED)))
    return code.name


def _ask(code: Code, function: LLValue) -> LLValue:
    """Call a function of Python; whether it did not raise."""
    answer = invoke(code, "PyObject_CallNoArgs", "ptr", [function])
    leave_if(answer.equals(nothing(code)), code.constant(WORD, 0))
    invoke(code, "Py_DecRef", "void", [answer])
    return code.constant(WORD, 1)


def _write_results(module: LLModule) -> str:
    """Emit results(kernel, held, inputs, view): what a kernel returned; −1 in a view if it is one.

    held  where the pointer to it is
    """
    items = _items(module)
    code = module.function("void", [POINTER, POINTER, POINTER, POINTER])
    own, held, inputs, view = code.parameters
    tape, made, one = pointer(own, Kernel.TAPE), pointer(held, 0), code.constant(WORD, 1)
    put(held, view, _View.FIRST)
    put(one, view, _View.COUNT)
    several = _type_of(made).equals(word(tape, Tape.TUPLE))
    when(several, lambda: invoke(code, items, "i64", [tape, made, view]))
    leave_if(word(own, Kernel.VIEWS).equals(0) | word(view, _View.COUNT).equals(0))
    result, x = pointer(pointer(view, _View.FIRST), 0), pointer(pointer(inputs, _View.FIRST), 0)
    array = word(tape, Tape.ARRAY)
    leave_if(_type_of(result).compare("ne", array) | _type_of(x).compare("ne", array))
    base = word(behind(result, BASE), 0)
    address_of_x = x.cast("ptrtoint", "i64")
    lies = base.equals(address_of_x) | base.equals(word(behind(x, BASE), 0))
    lies = result.equals(x) | (base.compare("ne", 0) & lies)
    when(lies, lambda: put(code.constant(WORD, -1), view, _View.COUNT))
    leave(code)
    return code.name


def _write_plain(module: LLModule) -> str:
    """Emit plain(tape, view): whether all of these objects are of known kinds."""
    kind = _kind(module)
    code = module.function("i64", [POINTER, POINTER])
    tape, view = code.parameters
    first, no = pointer(view, _View.FIRST), code.constant(WORD, 0)
    each(
        *(code, 0, word(view, _View.COUNT)),
        lambda i: leave_if(invoke(code, kind, "i64", [tape, pointer(first, i)]).equals(0), no),
    )
    leave(code, code.constant(WORD, 1))
    return code.name


def _write_odd(module: LLModule) -> str:
    """Emit odd(kernel, result, arguments, count): let Python record a call; 0 if that raises."""
    code = module.function("i64", [POINTER, POINTER, POINTER, WORD])
    own, made, arguments, count = code.parameters
    no, given = code.constant(WORD, 0), code.local(POINTER, 2)
    held = invoke(code, "PyTuple_New", "ptr", [count])
    leave_if(held.equals(nothing(code)), no)

    def one(i: LLValue) -> None:
        x = pointer(arguments, i)
        invoke(code, "Py_IncRef", "void", [x])
        invoke(code, "PyTuple_SetItem", "i32", [held, i, x])

    each(code, 0, count, one)
    put(made, given, 0)
    put(held, given, 1)
    call = [pointer(own, Kernel.RECORD), given, code.constant(WORD, 2), nothing(code)]
    answer = invoke(code, "PyObject_Vectorcall", "ptr", call)
    invoke(code, "Py_DecRef", "void", [held])
    leave_if(answer.equals(nothing(code)), no)
    invoke(code, "Py_DecRef", "void", [answer])
    leave(code, code.constant(WORD, 1))
    return code.name


def _write_room(module: LLModule) -> str:
    """Emit room(tape, words): see that so many can be written; 0 if that raises."""
    code = module.function("i64", [POINTER, WORD])
    tape, wanted = code.parameters

    def attempt(out: str) -> None:
        fits = word(tape, Tape.AT) + wanted <= word(tape, Tape.ROOM)
        leave_if(fits, code.constant(WORD, 1))
        _ask(code, pointer(tape, Tape.MORE))  # meanwhile other threads may use it up

    forever(code, attempt)
    leave(code, code.constant(WORD, 0))
    return code.name


def _write_record(module: LLModule) -> str:
    """Emit record(kernel, slot, inputs, outputs): no function of Python runs in between."""
    value = _write_value(module)
    code = module.function("i64", [POINTER, POINTER, POINTER, POINTER])
    own, slot, inputs, outputs = code.parameters
    tape, at = pointer(own, Kernel.TAPE), code.local(WORD)
    record = address(pointer(tape, Tape.MEMORY), word(tape, Tape.AT))
    code.store(code.constant(WORD, SpanWords.SIZE), at, 8)
    for view in (inputs, outputs):
        first = pointer(view, _View.FIRST)

        def one(i: LLValue, first: LLValue = first) -> None:
            here = address(record, code.load(WORD, at, 8))
            size = invoke(code, value, "i64", [tape, pointer(first, i), here])
            leave_if(size.equals(0), size)
            code.store(code.load(WORD, at, 8) + size, at, 8)

        each(code, 0, word(view, _View.COUNT), one)
    length = code.load(WORD, at, 8)
    span = [word(slot, f) for f in range(Slot.START, Slot.BACK + 1)]
    memory = [word(slot, f) for f in (Slot.SERIAL, Slot.LIVE, Slot.PEAK)]
    head = [length, word(own, Kernel.OP), *span, *memory]
    for i, x in enumerate((*head, word(inputs, _View.COUNT), word(outputs, _View.COUNT))):
        put(x, record, i)
    put(word(tape, Tape.AT) + length, tape, Tape.AT)
    put(word(tape, Tape.COUNT) + 1, tape, Tape.COUNT)
    leave(code, length)
    return code.name


def _write_value(module: LLModule) -> str:
    """Emit value(tape, object, place): write down what an object is; the words, or 0."""
    kind_of, dtype_of = _kind(module), _dtype(module)
    code = module.function("i64", [POINTER, POINTER, POINTER])
    tape, x, at = code.parameters
    kind = invoke(code, kind_of, "i64", [tape, x]) - 1
    put(kind, at, 0)
    leave_if(kind.equals(Value.NUMBER), code.constant(WORD, 1))

    def array() -> None:
        ndim = code.load(HALF_WORD, behind(x, NDIM), 4).cast("zext", "i64")
        put(invoke(code, dtype_of, "i64", [tape, x]), at, 1)
        put(ndim, at, 2)
        sizes = code.load(POINTER, behind(x, DIMENSIONS), 8)
        each(code, 0, ndim, lambda a: put(word(sizes, a), at, a + 3))
        leave(code, ndim + 3)

    when(kind.equals(Value.ARRAY), array)
    scalars = pointer(tape, Tape.SCALARS)
    put(word(behind(scalars, SIZE), 0), at, 1)
    failed = invoke(code, "PyList_Append", "i32", [scalars, x]).compare("ne", 0)
    leave(code, failed.choose(code.constant(WORD, 0), code.constant(WORD, 2)))
    return code.name
