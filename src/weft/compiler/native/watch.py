"""Native guards: whether Python's variables still hold the objects that they held.

`self` is a NumPy array of words, a sequence of records: a kind, the place, and the addresses of the
objects it held; 0 stands for a value that does not matter, or for none. The GIL is held meanwhile,
and only functions that look into dicts are called, so no user code runs. The result is a bool. A
dict whose version equals the recorded one is unchanged; after a full comparison the new version is
recorded.

`weft_count` stores one object under one key of several dicts. For those whose versions were as
recorded, it records the new versions, so that the next guard finds them unchanged.
"""

from collections.abc import Callable
from enum import IntEnum

from ..emit.code import Code, LLModule, LLValue
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
from .layout import DATA, ITEMS, SIZE, VERSION


class Record(IntEnum):
    """The kinds of records, and the words that follow."""

    END = 0
    TABLE = 1  # dict, its version or 0, how many, (key, value or 0) for each, in order
    NAME = 2  # dict, key, value or 0
    LIST = 3  # list, how many, values
    WORD = 4  # address, what is there
    ALIKE = 5  # key, how many, (dict, its version or 0) for those that have one object under it


class DictCount(IntEnum):
    """The head of `weft_count`; then each dict, and the addresses of its recorded versions."""

    DICTS = 0  # how many
    NOTES = 1  # of each
    SIZE = 2


def write_watch(module: LLModule) -> None:
    """Emit the function `weft_watch`."""
    tests = {
        Record.TABLE: _write_table(module),
        Record.NAME: _write_name(module),
        Record.LIST: _write_list(module),
        Record.WORD: _write_word(module),
        Record.ALIKE: _write_alike(module),
    }
    code = module.function("ptr", [POINTER, POINTER, WORD], "weft_watch")
    itself, _, _ = code.parameters
    start = code.load(POINTER, behind(itself, DATA), 8)
    inside, before = code.label(), code.block
    code.go(inside)
    code.start(inside)
    record = code.phi(POINTER)
    record.add(start, before)
    kind = word(record.value, 0)
    when(kind.equals(Record.END), lambda: _tell(code, 1))
    following = code.local(WORD)
    for which, name in tests.items():
        when(kind.equals(which), lambda name=name: code.store(  # type: ignore[misc]
            invoke(code, name, "i64", [record.value]), following, 8
        ))  # fmt: skip
    size = code.load(WORD, following, 8)
    when(size.equals(0), lambda: _tell(code, 0))
    record.add(address(record.value, size), code.block)
    code.go(inside)


def _tell(code: Code, holds: int) -> None:
    leave(code, invoke(code, "PyBool_FromLong", "ptr", [code.constant(WORD, holds)]))


def _test(module: LLModule, body: Callable[[Code, LLValue, LLValue], LLValue]) -> str:
    """Emit a function of a record: its length in words, or 0 if it does not hold."""
    code = module.function("i64", [POINTER])
    (record,) = code.parameters
    leave(code, body(code, record, code.constant(WORD, 0)))
    return code.name


def _write_table(module: LLModule) -> str:
    def body(code: Code, record: LLValue, wrong: LLValue) -> LLValue:
        held, count = pointer(record, 1), word(record, 3)
        size = count + count + 4
        version = None if VERSION is None else _version(held)
        if version is not None:
            leave_if(version.equals(word(record, 2)), size)
        leave_if(invoke(code, "PyDict_Size", "i64", [held]).compare("ne", count), wrong)
        at, key, value = code.local(WORD), code.local(POINTER), code.local(POINTER)
        code.store(wrong, at, 8)

        def one(i: LLValue) -> None:
            found = invoke(code, "PyDict_Next", "i32", [held, at, key, value])
            leave_if(found.equals(0), wrong)
            expected = address(record, i + i + 4)
            leave_if(code.load(WORD, key, 8).compare("ne", word(expected, 0)), wrong)
            counts = word(expected, 1)
            differs = code.load(WORD, value, 8).compare("ne", counts)
            leave_if(differs & counts.compare("ne", 0), wrong)

        each(code, 0, count, one)
        if version is not None:
            put(version, record, 2)
        return size

    return _test(module, body)


def _write_name(module: LLModule) -> str:
    def body(code: Code, record: LLValue, wrong: LLValue) -> LLValue:
        arguments = [pointer(record, 1), pointer(record, 2)]
        found = invoke(code, "PyDict_GetItemWithError", "ptr", arguments)
        leave_if(found.compare("ne", pointer(record, 3)), wrong)
        return code.constant(WORD, 4)

    return _test(module, body)


def _write_list(module: LLModule) -> str:
    def body(code: Code, record: LLValue, wrong: LLValue) -> LLValue:
        held, count = pointer(record, 1), word(record, 2)
        leave_if(word(behind(held, SIZE), 0).compare("ne", count), wrong)
        items, expected = pointer(behind(held, ITEMS), 0), address(record, 3)
        each(
            code,
            0,
            count,
            lambda i: leave_if(word(items, i).compare("ne", word(expected, i)), wrong),
        )
        return count + 3

    return _test(module, body)


def _write_word(module: LLModule) -> str:
    def body(code: Code, record: LLValue, wrong: LLValue) -> LLValue:
        leave_if(word(pointer(record, 1), 0).compare("ne", word(record, 2)), wrong)
        return code.constant(WORD, 3)

    return _test(module, body)


def _write_alike(module: LLModule) -> str:
    def body(code: Code, record: LLValue, wrong: LLValue) -> LLValue:
        key, count, dicts = pointer(record, 1), word(record, 2), address(record, 3)
        found, changed = code.local(POINTER), code.local(WORD)
        size = count + count + 3
        if VERSION is not None:
            code.store(wrong, changed, 8)
            each(code, 0, count, lambda i: when(
                _version(pointer(dicts, i + i)).compare("ne", word(dicts, i + i + 1)),
                lambda: code.store(code.constant(WORD, 1), changed, 8),
            ))  # fmt: skip
            leave_if(code.load(WORD, changed, 8).equals(0), size)
        code.store(nothing(code), found, 8)

        def one(i: LLValue) -> None:
            value = invoke(code, "PyDict_GetItemWithError", "ptr", [pointer(dicts, i + i), key])
            differs = value.compare("ne", code.load(POINTER, found, 8))
            leave_if(value.equals(nothing(code)) | (differs & i.compare("ne", 0)), wrong)
            code.store(value, found, 8)

        each(code, 0, count, one)
        if VERSION is not None:
            each(code, 0, count, lambda i: put(_version(pointer(dicts, i + i)), dicts, i + i + 1))
        return size

    return _test(module, body)


def _version(held: LLValue) -> LLValue:
    """The version tag of a dict, which every change renews."""
    assert VERSION is not None
    return word(behind(held, VERSION), 0)


def write_count(module: LLModule) -> None:
    """Emit the function `weft_count`, of a key and a value."""
    code = module.function("ptr", [POINTER, POINTER, WORD], "weft_count")
    itself, arguments, _ = code.parameters
    head = code.load(POINTER, behind(itself, DATA), 8)
    count, notes = word(head, DictCount.DICTS), word(head, DictCount.NOTES)
    known, failed = code.local(WORD), code.local(WORD)
    code.store(code.constant(WORD, 0), failed, 8)

    def each_note(entry: LLValue, body: Callable[[LLValue], None]) -> None:
        each(code, 1, notes + 1, lambda j: body(pointer(entry, j)))

    def write(entry: LLValue) -> None:
        held = pointer(entry, 0)
        code.store(code.constant(WORD, 1), known, 8)
        if VERSION is not None:
            before = _version(held)
            each_note(entry, lambda note: when(
                word(note, 0).compare("ne", before),
                lambda: code.store(code.constant(WORD, 0), known, 8),
            ))  # fmt: skip
        key, value = pointer(arguments, 0), pointer(arguments, 1)
        written = invoke(code, "PyDict_SetItem", "i32", [held, key, value])
        when(written.compare("ne", 0), lambda: code.store(code.constant(WORD, 1), failed, 8))
        if VERSION is not None:
            note_if_known(entry, _version(held))

    def note_if_known(entry: LLValue, version: LLValue) -> None:
        was = code.load(WORD, known, 8).compare("ne", 0)
        when(was, lambda: each_note(entry, lambda note: put(version, note, 0)))

    def forget(entry: LLValue) -> None:
        each_note(entry, lambda note: put(code.constant(WORD, 0), note, 0))

    def each_entry(body: Callable[[LLValue], None]) -> None:
        each(code, 0, count, lambda i: body(address(head, i * (notes + 1) + DictCount.SIZE)))

    each_entry(write)
    broken = code.load(WORD, failed, 8).compare("ne", 0)

    def give_up() -> None:
        each_entry(forget)
        leave(code, nothing(code))

    when(broken, give_up)
    _tell(code, 1)
