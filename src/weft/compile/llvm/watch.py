"""Native code that sees whether Python's places hold the objects that they held.

`self` is a NumPy array of words, in which records follow one another: a kind, the place, and the
addresses of what it held, where 0 stands for a value that does not count, or for none. Python's
lock is held meanwhile, nothing is called but functions that look into dicts, and so no code of
anybody's runs. The result is a bool. A dict whose version is that of the last time holds what it
held; after another look the version is noted in the record.
"""

from collections.abc import Callable
from enum import IntEnum

from .code import Code, Module, Value
from .control import (
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
    ALIKE = 5  # key, how many, dicts that have one object under it


def write_watch(module: Module) -> None:
    """The function `weft_watch`."""
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
        when(kind.equals(which), lambda name=name: code.store(
            invoke(code, name, "i64", [record.value]), following, 8
        ))  # fmt: skip
    size = code.load(WORD, following, 8)
    when(size.equals(0), lambda: _tell(code, 0))
    record.add(address(record.value, size), code.block)
    code.go(inside)


def _tell(code: Code, holds: int) -> None:
    leave(code, invoke(code, "PyBool_FromLong", "ptr", [code.constant(WORD, holds)]))


def _test(module: Module, body: Callable[[Code, Value, Value], Value]) -> str:
    """A function of a record: its words, or 0 if it does not hold."""
    code = module.function("i64", [POINTER])
    (record,) = code.parameters
    leave(code, body(code, record, code.constant(WORD, 0)))
    return code.name


def _write_table(module: Module) -> str:
    def body(code: Code, record: Value, wrong: Value) -> Value:
        held, count = pointer(record, 1), word(record, 3)
        size = count + count + 4
        version = None if VERSION is None else word(behind(held, VERSION), 0)
        if version is not None:
            leave_if(version.equals(word(record, 2)), size)
        leave_if(invoke(code, "PyDict_Size", "i64", [held]).compare("ne", count), wrong)
        at, key, value = code.local(WORD), code.local(POINTER), code.local(POINTER)
        code.store(wrong, at, 8)

        def one(i: Value) -> None:
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


def _write_name(module: Module) -> str:
    def body(code: Code, record: Value, wrong: Value) -> Value:
        arguments = [pointer(record, 1), pointer(record, 2)]
        found = invoke(code, "PyDict_GetItemWithError", "ptr", arguments)
        leave_if(found.compare("ne", pointer(record, 3)), wrong)
        return code.constant(WORD, 4)

    return _test(module, body)


def _write_list(module: Module) -> str:
    def body(code: Code, record: Value, wrong: Value) -> Value:
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


def _write_word(module: Module) -> str:
    def body(code: Code, record: Value, wrong: Value) -> Value:
        leave_if(word(pointer(record, 1), 0).compare("ne", word(record, 2)), wrong)
        return code.constant(WORD, 3)

    return _test(module, body)


def _write_alike(module: Module) -> str:
    def body(code: Code, record: Value, wrong: Value) -> Value:
        key, count, dicts = pointer(record, 1), word(record, 2), address(record, 3)
        found = code.local(POINTER)
        code.store(nothing(code), found, 8)

        def one(i: Value) -> None:
            value = invoke(code, "PyDict_GetItemWithError", "ptr", [pointer(dicts, i), key])
            differs = value.compare("ne", code.load(POINTER, found, 8))
            leave_if(value.equals(nothing(code)) | (differs & i.compare("ne", 0)), wrong)
            code.store(value, found, 8)

        each(code, 0, count, one)
        return count + 3

    return _test(module, body)
