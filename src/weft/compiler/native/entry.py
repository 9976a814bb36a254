"""The native entry point that Python calls as a built-in function: bind arrays, run the steps.

`self` is a NumPy array of words, the frame, from which everything else is reached. Arguments are
NumPy arrays, each of which must pass its check: the very dtype object, sizes, flags. Then the
addresses of their data are stored where steps read them. The result is an integer: 0 for success; i
+ 1 if argument i fails its check; count + 1 + i if a written argument shares memory with argument
i; −1 for a wrong number of arguments; −2 − i if task i is a guard whose flag is false, and the
tasks after it do not run. Nor do they once a signal handler has raised an exception, which the call
then raises.
"""

from enum import IntEnum
from functools import partial

from ..emit.code import LLModule, LLValue, lanes_of
from ..emit.control import (
    HALF_WORD,
    POINTER,
    WORD,
    address,
    behind,
    each,
    forever,
    invoke,
    invoke_at,
    leave,
    leave_if,
    nothing,
    pointer,
    publish,
    put,
    swap,
    when,
    word,
)
from .layout import DATA, DESCR, DIMENSIONS, FLAGS, NDIM, TYPE
from .signals import WatchWords


class Frame(IntEnum):
    """The words of a frame: counts of records, and their addresses."""

    POOL = 0
    TYPE = 1  # NumPy's array type
    ARGUMENTS = 2
    CHECKS = 3
    WRITTEN = 4
    WRITES = 5
    BINDINGS = 6
    PLACES = 7
    STEPS = 8
    CODE = 9
    RELEASE = 10  # whether the GIL is released meanwhile
    QUIET = 11  # 0, or the words that keep BLAS to one thread
    COMPARED = 12  # arguments that may overlap written ones: the inputs, if any is written
    APART = 13  # their addresses at the last call without overlap
    WATCH = 14  # the words of `watch`
    LOOKS = 15  # whether signals are polled meanwhile
    FINISHED = 16  # where to record that all tasks are done
    TIMES = 17  # 0, or where to record when the tasks begin, and when each ends
    SIZE = 18


class ArgumentCheck(IntEnum):
    """What an argument is checked for."""

    DESCR = 0
    NDIM = 1
    DIMENSIONS = 2  # address of its sizes
    FLAGS = 3  # the sizes it must have
    BYTES = 4
    SIZE = 5


class Binding(IntEnum):
    """Where the address of an argument's element is stored."""

    PLACE = 0
    ARGUMENT = 1
    OFFSET = 2  # in bytes
    SIZE = 3


class StepTask(IntEnum):
    """A step: function(arrays, begin, end) over `count` units, by threads if more than `chunk`.

    Without a function it is a guard: the first of its arrays is a flag. A step with a watch can be
    interrupted.
    """

    FUNCTION = 0
    ARRAYS = 1
    COUNT = 2
    CHUNK = 3
    WATCH = 4  # 0: not divided among threads
    LOOK = 5  # whether signals are polled after it
    SIZE = 6


class Quiet(IntEnum):
    """Limits BLAS to one thread while any native code multiplies."""

    LOCK = 0
    HOLDERS = 1
    BEFORE = 2
    ASK = 3  # its functions that get and set the number of threads
    TELL = 4
    SIZE = 5


def write_entry(module: LLModule) -> None:
    """Emit the functions `weft_call`, `weft_lock`, `weft_unlock`."""
    _write_locks(module)
    check, apart = _write_check(module), _write_apart(module, _write_overlap(module))
    run = _write_run(module)
    code = module.function("ptr", [POINTER, POINTER, WORD], "weft_call")
    itself, arguments, count = code.parameters
    frame = code.load(POINTER, behind(itself, DATA), 8)

    def result(value: LLValue) -> None:
        leave(code, invoke(code, "PyLong_FromLongLong", "ptr", [value]))

    wrong = count.compare("ne", word(frame, Frame.ARGUMENTS))
    when(wrong, lambda: result(code.constant(WORD, -1)), rarely=True)
    watch = pointer(frame, Frame.WATCH)
    for test in (check, apart):
        verdict = invoke(code, test, "i64", [frame, arguments])
        when(verdict.compare("ne", 0), partial(result, verdict), rarely=True)
    _bind(frame, arguments)

    looks = word(frame, Frame.LOOKS).compare("ne", 0)
    when(looks, lambda: invoke(code, "weft_begin", "void", [watch]))

    def done(verdict: LLValue) -> None:
        fine = verdict.equals(0)
        when(fine, lambda: put(code.constant(WORD, 1), pointer(frame, Frame.FINISHED), 0))
        stopped = looks & word(watch, WatchWords.STOPPED).compare("ne", 0)
        when(stopped, lambda: leave(code, nothing(code)), rarely=True)
        result(verdict)

    def released() -> None:
        state = invoke(code, "PyEval_SaveThread", "ptr", [])
        put(state, watch, WatchWords.STATE)
        verdict = invoke(code, run, "i64", [frame])
        put(code.constant(WORD, 0), watch, WatchWords.STATE)
        invoke(code, "PyEval_RestoreThread", "void", [state])
        done(verdict)

    when(word(frame, Frame.RELEASE).compare("ne", 0), released)
    done(invoke(code, run, "i64", [frame]))


def _write_check(module: LLModule) -> str:
    """check(frame, arguments): the first argument that fails its check, from 1, or 0."""
    code = module.function("i64", [POINTER, POINTER])
    frame, arguments = code.parameters
    checks, kind = pointer(frame, Frame.CHECKS), pointer(frame, Frame.TYPE)

    def one(i: LLValue) -> None:
        argument = pointer(arguments, i)
        check = address(checks, i * ArgumentCheck.SIZE.value)
        refused = i + 1
        leave_if(code.load(POINTER, behind(argument, TYPE), 8).compare("ne", kind), refused)
        descr = code.load(POINTER, behind(argument, DESCR), 8)
        other = descr.compare("ne", pointer(check, ArgumentCheck.DESCR))
        flags = code.load(HALF_WORD, behind(argument, FLAGS), 4).cast("zext", "i64")
        needed = word(check, ArgumentCheck.FLAGS)
        ndim = code.load(HALF_WORD, behind(argument, NDIM), 4).cast("zext", "i64")
        bad = (flags & needed).compare("ne", needed) | ndim.compare(
            "ne", word(check, ArgumentCheck.NDIM)
        )
        leave_if(other | bad, refused)
        sizes = code.load(POINTER, behind(argument, DIMENSIONS), 8)
        wanted = pointer(check, ArgumentCheck.DIMENSIONS)
        each(
            *(code, 0, ndim),
            lambda a: leave_if(word(sizes, a).compare("ne", word(wanted, a)), refused),
        )

    each(code, 0, word(frame, Frame.ARGUMENTS), one)
    leave(code, code.constant(WORD, 0))
    return code.name


def _start(arguments: LLValue, i: LLValue) -> LLValue:
    """The address of an argument's data."""
    return arguments.code.load(WORD, behind(pointer(arguments, i), DATA), 8)


def _write_apart(module: LLModule, overlap: str) -> str:
    """apart(frame, arguments): overlap(frame, arguments), unless no address has changed."""
    code = module.function("i64", [POINTER, POINTER])
    frame, arguments = code.parameters
    count, known = word(frame, Frame.COMPARED), pointer(frame, Frame.APART)

    def compare(i: LLValue) -> None:
        def look() -> None:
            verdict = invoke(code, overlap, "i64", [frame, arguments])
            leave_if(verdict.compare("ne", 0), verdict)
            each(code, 0, count, lambda k: put(_start(arguments, k), known, k))
            leave(code, code.constant(WORD, 0))

        when(_start(arguments, i).compare("ne", word(known, i)), look, rarely=True)

    each(code, 0, count, compare)
    leave(code, code.constant(WORD, 0))
    return code.name


def _write_overlap(module: LLModule) -> str:
    """overlap(frame, arguments): the first that shares memory with a written one, or 0."""
    code = module.function("i64", [POINTER, POINTER])
    frame, arguments = code.parameters
    checks, writes = pointer(frame, Frame.CHECKS), pointer(frame, Frame.WRITES)
    count = word(frame, Frame.ARGUMENTS)

    def ends(i: LLValue) -> tuple[LLValue, LLValue]:
        start = _start(arguments, i)
        return start, start + word(checks, i * ArgumentCheck.SIZE.value + ArgumentCheck.BYTES.value)

    def one(k: LLValue) -> None:
        written = word(writes, k)
        start, stop = ends(written)

        def beside(i: LLValue) -> None:
            first, last = ends(i)
            meet = first.compare("lt", stop, False) & start.compare("lt", last, False)
            leave_if(meet & i.compare("ne", written), count + 1 + i)

        each(code, 0, word(frame, Frame.COMPARED), beside)

    each(code, 0, word(frame, Frame.WRITTEN), one)
    leave(code, code.constant(WORD, 0))
    return code.name


def _bind(frame: LLValue, arguments: LLValue) -> None:
    code, places = frame.code, pointer(frame, Frame.PLACES)

    def one(i: LLValue) -> None:
        binding = address(places, i * Binding.SIZE.value)
        argument = pointer(arguments, word(binding, Binding.ARGUMENT))
        data = code.load(POINTER, behind(argument, DATA), 8)
        put(behind(data, word(binding, Binding.OFFSET)), pointer(binding, Binding.PLACE), 0)

    each(code, 0, word(frame, Frame.BINDINGS), one)


def _write_run(module: LLModule) -> str:
    """run(frame): the tasks, with BLAS limited to one thread if there are products."""
    hold, drop = _write_hold(module), _write_drop(module)
    tasks, timed = _write_tasks(module), _write_tasks(module, timed=True)
    code = module.function("i64", [POINTER])
    (frame,) = code.parameters
    quiet = pointer(frame, Frame.QUIET)
    loud = word(frame, Frame.QUIET).compare("ne", 0)
    # Python may change it while this runs without the GIL: it is read once.
    times = pointer(frame, Frame.TIMES)

    def go(function: str, *given: LLValue) -> None:
        when(loud, lambda: invoke(code, hold, "void", [quiet]))
        verdict = invoke(code, function, "i64", [frame, *given])
        when(loud, lambda: invoke(code, drop, "void", [quiet]))
        leave(code, verdict)

    when(times.compare("ne", nothing(code)), lambda: go(timed, times), rarely=True)
    go(tasks)
    return code.name


def _write_tasks(module: LLModule, timed: bool = False) -> str:
    """tasks(frame): run in order; 0, or −2 − i if it stops at task i.

    That is a guard whose flag is false, or the task after which a signal handler raised. Timed,
    it is tasks(frame, times).
    """
    code = module.function("i64", [POINTER, POINTER] if timed else [POINTER])
    frame, *times = code.parameters
    pool, tasks = pointer(frame, Frame.POOL), pointer(frame, Frame.CODE)

    def note(i: LLValue | int) -> None:
        for place in times:
            put(invoke(code, "weft_now", "i64", []), place, i)

    def one(i: LLValue) -> None:
        task = address(tasks, i * StepTask.SIZE.value)
        function, arrays = pointer(task, StepTask.FUNCTION), pointer(task, StepTask.ARRAYS)
        count, chunk = word(task, StepTask.COUNT), word(task, StepTask.CHUNK)
        guard, call, whole, shared, after = (code.label() for _ in range(5))
        code.go_if(word(task, StepTask.FUNCTION).equals(0), guard, call)
        code.start(guard)
        flag = code.load(lanes_of("i8"), pointer(arrays, 0), 1)
        leave_if(flag.equals(0), -2 - i)
        code.go(after)
        code.start(call)
        code.go_if(count <= chunk, whole, shared)
        code.start(whole)
        invoke_at(function, "void", [arrays, code.constant(WORD, 0), count])
        code.go(after)
        code.start(shared)
        watch = pointer(task, StepTask.WATCH)
        invoke(code, "weft_share", "i64", [pool, function, arrays, count, chunk, watch])
        code.go(after)
        code.start(after)
        note(i + 1)
        when(word(task, StepTask.LOOK).compare("ne", 0), lambda: look(i, task), rarely=True)

    def look(i: LLValue, task: LLValue) -> None:
        watch = pointer(task, StepTask.WATCH)

        def stop() -> None:
            put(i + 1, watch, WatchWords.STOPPED)
            leave(code, -2 - i)

        when(invoke(code, "weft_look", "i64", [watch]).compare("ne", 0), stop, rarely=True)

    note(0)
    each(code, 0, word(frame, Frame.STEPS), one)
    leave(code, code.constant(WORD, 0))
    return code.name


def _write_hold(module: LLModule) -> str:
    """hold(quiet): the first holder sets BLAS to one thread."""
    code = module.function("void", [POINTER])
    (quiet,) = code.parameters
    _lock(quiet)
    holders = word(quiet, Quiet.HOLDERS)

    def first() -> None:
        before = invoke_at(pointer(quiet, Quiet.ASK), "i32", []).cast("zext", "i64")
        put(before, quiet, Quiet.BEFORE)
        _tell(quiet, code.constant(WORD, 1))

    when(holders.equals(0), first)
    put(holders + 1, quiet, Quiet.HOLDERS)
    _unlock(quiet)
    leave(code)
    return code.name


def _write_drop(module: LLModule) -> str:
    """drop(quiet): the last holder restores the number of threads."""
    code = module.function("void", [POINTER])
    (quiet,) = code.parameters
    _lock(quiet)
    holders = word(quiet, Quiet.HOLDERS) - 1
    put(holders, quiet, Quiet.HOLDERS)
    when(holders.equals(0), lambda: _tell(quiet, word(quiet, Quiet.BEFORE)))
    _unlock(quiet)
    leave(code)
    return code.name


def _tell(quiet: LLValue, count: LLValue) -> None:
    invoke_at(pointer(quiet, Quiet.TELL), "void", [count.cast("trunc", "i32")])


def _lock(quiet: LLValue) -> None:
    invoke(quiet.code, "weft_lock", "void", [quiet])


def _unlock(quiet: LLValue) -> None:
    invoke(quiet.code, "weft_unlock", "void", [quiet])


def _write_locks(module: LLModule) -> None:
    """weft_lock(quiet) and weft_unlock(quiet): exclusive access to BLAS's number of threads."""
    code = module.function("void", [POINTER], "weft_lock")
    (quiet,) = code.parameters
    one = code.constant(WORD, 1)

    def attempt(out: str) -> None:
        when(swap(one, quiet, Quiet.LOCK).equals(0), lambda: code.go(out))
        invoke(code, "sched_yield", "i32", [])

    forever(code, attempt)
    leave(code)
    code = module.function("void", [POINTER], "weft_unlock")
    (quiet,) = code.parameters
    publish(code.constant(WORD, 0), quiet, Quiet.LOCK)
    leave(code)
