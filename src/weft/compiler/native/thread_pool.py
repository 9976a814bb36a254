"""The thread pool's native code: workers and the caller share the units of a kernel.

One job runs at a time. Threads take its pieces one by one: half of them, the caller among them,
from the front, the others from the back, until they meet. So each thread covers a contiguous range,
and about the same one in the next job, whose data may still be in its cache. Taking a piece
increments the word STATE: the job's number in its high half, then 16 bits that count the pieces
taken from the back and 16 for those from the front. A late worker finds another number or no piece
left, so nothing waits for it. While a job is being described, the low half of STATE is CLOSED,
which no number of pieces reaches: a piece that was taken belongs to the description that was read
before.
"""

from enum import IntEnum

from ..emit.code import Code, LLModule, LLValue
from ..emit.control import (
    HALF_WORD,
    POINTER,
    WORD,
    address,
    each,
    forever,
    increase,
    invoke,
    invoke_at,
    leave,
    leave_if,
    load_atomic,
    nothing,
    pause,
    publish,
    put,
    replace_if,
    swap,
    when,
    word,
)

# The low half of STATE; a job has fewer pieces than 16 bits count.
CLOSED, SIDE = (1 << 32) - 1, 16
# Spins, some 20 ns each, before a worker goes to sleep, or a caller yields.
PATIENCE = 2000
# And the spins of a worker that had to be woken, which takes longer than many jobs: it waits for
# the next one, since otherwise it would come too late to each.
WOKEN = 10 * PATIENCE


class PoolWords(IntEnum):
    """The words of the pool's memory; words that different threads write are 128 bytes apart."""

    BUSY = 0  # whether a job is running
    STATE = 16
    DONE = 32  # how many pieces are finished
    FUNCTION = 48  # the job: function(arrays, begin, end) on `count` units, `chunk` a piece
    ARRAYS = 49
    COUNT = 50
    CHUNK = 51
    PIECES = 52
    SLEEPERS = 64  # workers that are asleep
    WIDTH = 65  # how many threads may take part, the caller included
    STOP = 66
    MAIN = 67  # the id of the main thread, which alone handles signals
    MUTEX = 80  # POSIX's mutex and condition, with room to spare: 128 bytes each
    CONDITION = 96
    THREADS = 112  # the system's ids of the first workers
    ASLEEP = 120  # whether each sleeps: 1, or 2 if it may not wake on the caller's processor
    PROCESSORS = 128  # the processors that the caller may run on, a bit each
    SIZE = 144


# Workers whose affinity is set while they sleep, and words of a processor set.
_PLACED = PoolWords.ASLEEP - PoolWords.THREADS
_SET = PoolWords.SIZE - PoolWords.PROCESSORS


def write_thread_pool(module: LLModule, processor: str, linux: bool) -> None:
    """Emit the functions `weft_share`, `weft_work`, `weft_wake`.

    linux  whether the system has Linux's affinity functions
    """
    pieces = _write_pieces(module)
    _write_wake(module, linux)
    _write_share(module, processor, pieces)
    _write_work(module, processor, linux, pieces)


def _constant(code: Code, value: int) -> LLValue:
    return code.constant(WORD, value)


def _write_pieces(module: LLModule) -> str:
    """Emit pieces(pool, job, side, watch): take pieces of a job as long as there are any.

    From the front if side is 0, from the back if it is 1. If the watch says that the call must
    stop, the remaining pieces are taken, but not run.
    """
    code = module.function("void", [POINTER, WORD, WORD, POINTER])
    pool, job, side, watch = code.parameters
    last = side.compare("ne", 0)
    one = last.choose(_constant(code, 1 << SIDE), _constant(code, 1))
    mine = code.local(WORD)
    code.store(_constant(code, 0), mine, 8)

    def take(out: str) -> None:
        state = load_atomic(pool, PoolWords.STATE)
        function, arrays = (_pointer(pool, at) for at in (PoolWords.FUNCTION, PoolWords.ARRAYS))
        sizes = (PoolWords.COUNT, PoolWords.CHUNK, PoolWords.PIECES)
        count, chunk, pieces = (load_atomic(pool, at, "monotonic") for at in sizes)
        front, back = state & ((1 << SIDE) - 1), (state & CLOSED).logical_shift(SIDE)
        none = (front + back).compare("ge", pieces)
        when(state.logical_shift(32).compare("ne", job) | none, lambda: code.go(out))
        piece = last.choose(pieces - 1 - back, front)
        taken = replace_if(pool, PoolWords.STATE, state, state + one)

        def work() -> None:
            begin = piece * chunk
            end = begin + chunk
            end = (end < count).choose(end, count)
            invoke_at(function, "void", [arrays, begin, end])
            code.store(code.load(WORD, mine, 8) + 1, mine, 8)
            stopped = invoke(code, "weft_look", "i64", [watch]).compare("ne", 0)
            when(stopped, lambda: forever(code, lambda out: drop(out, pieces)), rarely=True)

        when(taken, work)

    def drop(out: str, pieces: LLValue) -> None:
        state = load_atomic(pool, PoolWords.STATE)
        left = pieces - (state & ((1 << SIDE) - 1)) - (state & CLOSED).logical_shift(SIDE)

        def count() -> None:
            code.store(code.load(WORD, mine, 8) + left, mine, 8)
            code.go(out)

        when(replace_if(pool, PoolWords.STATE, state, state + left), count)

    forever(code, take)
    total = code.load(WORD, mine, 8)
    when(total > 0, lambda: increase(pool, PoolWords.DONE, total))
    leave(code)
    return code.name


def _pointer(pool: LLValue, at: int) -> LLValue:
    """A pointer in the description of a job, which may be changing."""
    return load_atomic(pool, at, "monotonic").cast("inttoptr", "ptr")


def _write_wake(module: LLModule, linux: bool) -> None:
    """Emit weft_wake(pool): wake all sleeping workers."""
    part = _write_part(module) if linux else ""
    code = module.function("void", [POINTER], "weft_wake")
    (pool,) = code.parameters
    mutex, condition = address(pool, PoolWords.MUTEX), address(pool, PoolWords.CONDITION)
    invoke(code, "pthread_mutex_lock", "i32", [mutex])
    if part:
        invoke(code, part, "void", [pool])
    invoke(code, "pthread_cond_broadcast", "i32", [condition])
    invoke(code, "pthread_mutex_unlock", "i32", [mutex])
    leave(code)


def _write_part(module: LLModule) -> str:
    """Emit part(pool): keep the first sleeping workers from waking on the caller's processor.

    On small machines Linux wakes a thread where it ran last, even if another thread is running
    there, and leaves both there for milliseconds: the job then runs on one processor. A worker that
    is awake may run everywhere again. The caller holds the mutex.
    """
    code = module.function("void", [POINTER])
    (pool,) = code.parameters
    able, nobody = address(pool, PoolWords.PROCESSORS), code.constant(HALF_WORD, 0)
    size = _constant(code, 8 * _SET)
    here = invoke(code, "sched_getcpu", "i32", []).cast("sext", "i64")
    failed = invoke(code, "sched_getaffinity", "i32", [nobody, size, able]).compare("ne", 0)
    leave_if(failed | here.compare("ge", 64 * _SET, signed=False))
    total, others = code.local(WORD), code.local(WORD, _SET)
    code.store(_constant(code, 0), total, 8)

    def copy(k: LLValue) -> None:
        bits = word(able, k)
        put(bits, others, k)
        code.store(code.load(WORD, total, 8) + bits.intrinsic("ctpop"), total, 8)

    each(code, 0, _SET, copy)
    leave_if(code.load(WORD, total, 8) < 2)
    at = here.logical_shift(6)
    put(word(others, at) & ~(_constant(code, 1) << (here & 63)), others, at)

    def place(k: LLValue) -> None:
        number, state = word(pool, k + PoolWords.THREADS.value), k + PoolWords.ASLEEP.value

        def tell() -> None:
            thread = number.cast("trunc", "i32")
            invoke(code, "sched_setaffinity", "i32", [thread, size, others])
            put(_constant(code, 2), pool, state)

        when(number.compare("ne", 0) & word(pool, state).equals(1), tell)

    each(code, 0, _PLACED, place)
    leave(code)
    return code.name


def _write_share(module: LLModule, processor: str, take_pieces: str) -> None:
    """Emit weft_share(pool, function, arrays, count, chunk, watch): run all units, by the pool.

    The result says whether the call must stop, as `weft_look`'s does: then not all units ran.
    """
    kinds = [POINTER, POINTER, POINTER, WORD, WORD, POINTER]
    code = module.function("i64", kinds, "weft_share")
    pool, function, arrays, count, chunk, watch = code.parameters
    zero, one = _constant(code, 0), _constant(code, 1)

    def whole() -> None:
        invoke_at(function, "void", [arrays, zero, count])
        leave(code, zero)

    def alone() -> None:
        def piece(k: LLValue) -> None:
            begin = k * chunk
            end = begin + chunk
            end = (end < count).choose(end, count)
            invoke_at(function, "void", [arrays, begin, end])
            verdict = invoke(code, "weft_look", "i64", [watch])
            leave_if(verdict.compare("ne", 0), verdict)

        each(code, 0, (count + (chunk - 1)).divide(chunk, True), piece)
        leave(code, zero)

    when(count <= chunk, whole)
    when(load_atomic(pool, PoolWords.WIDTH) < 2, alone)
    when(swap(one, pool, PoolWords.BUSY).compare("ne", 0), alone)
    before = load_atomic(pool, PoolWords.STATE)
    swap(before | CLOSED, pool, PoolWords.STATE)
    pieces = (count + (chunk - 1)).divide(chunk, True)
    job = (before.logical_shift(32) + 1) & CLOSED
    places = {PoolWords.FUNCTION: function, PoolWords.ARRAYS: arrays}
    sizes = {
        PoolWords.COUNT: count,
        PoolWords.CHUNK: chunk,
        PoolWords.PIECES: pieces,
        PoolWords.DONE: zero,
    }
    for at, value in places.items():
        publish(value.cast("ptrtoint", "i64"), pool, at, "monotonic")
    for at, value in sizes.items():
        publish(value, pool, at, "monotonic")
    swap(job << 32, pool, PoolWords.STATE)
    asleep = load_atomic(pool, PoolWords.SLEEPERS, "seq_cst") > 0
    when(asleep, lambda: invoke(code, "weft_wake", "void", [pool]))
    invoke(code, take_pieces, "void", [pool, job, zero, watch])

    def wait(out: str) -> None:
        each(code, 0, _constant(code, PATIENCE), look(out))
        invoke(code, "sched_yield", "i32", [])

    def look(out: str):
        def turn(_: LLValue) -> None:
            when(load_atomic(pool, PoolWords.DONE).equals(pieces), lambda: code.go(out))
            pause(code, processor)

        return turn

    forever(code, wait)
    publish(zero, pool, PoolWords.BUSY)
    leave(code, invoke(code, "weft_look", "i64", [watch]))


def _write_work(module: LLModule, processor: str, linux: bool, take_pieces: str) -> None:
    """Emit weft_work(pool, number): take part in all jobs, until STOP is set."""
    code = module.function("void", [POINTER, WORD], "weft_work")
    pool, number = code.parameters
    known, patience, woken = (code.local(WORD) for _ in range(3))
    code.store(load_atomic(pool, PoolWords.STATE).logical_shift(32), known, 8)
    code.store(_constant(code, PATIENCE), patience, 8)
    code.store(_constant(code, 0), woken, 8)

    def news() -> tuple[LLValue, LLValue]:
        """The current job, and whether it is a new one."""
        leave_if(load_atomic(pool, PoolWords.STOP).compare("ne", 0))
        job = load_atomic(pool, PoolWords.STATE, "seq_cst").logical_shift(32)
        return job, job.compare("ne", code.load(WORD, known, 8))

    def look(_: LLValue) -> None:
        job, other = news()

        def take_part() -> None:
            code.store(job, known, 8)
            late = code.load(WORD, woken, 8).compare("ne", 0)
            code.store(late.choose(_constant(code, WOKEN), PATIENCE), patience, 8)
            code.store(_constant(code, 0), woken, 8)
            wanted, side = number + 1 < load_atomic(pool, PoolWords.WIDTH), (number & 1) ^ 1
            called = [pool, job, side, nothing(code)]
            when(wanted, lambda: invoke(code, take_pieces, "void", called))
            code.go(again)

        when(other, take_part)
        pause(code, processor)

    again = code.label()
    code.go(again)
    code.start(again)
    each(code, 0, code.load(WORD, patience, 8), look)
    _sleep(code, pool, known, number if linux else None)
    code.store(_constant(code, 1), woken, 8)
    code.go(again)


def _sleep(code: Code, pool: LLValue, known: LLValue, number: LLValue | None) -> None:
    """Sleep until there is another job, or STOP is set.

    number  of the worker, if its affinity may be set
    """
    mutex, condition = address(pool, PoolWords.MUTEX), address(pool, PoolWords.CONDITION)
    invoke(code, "pthread_mutex_lock", "i32", [mutex])
    increase(pool, PoolWords.SLEEPERS, 1)
    placed = None if number is None else number < _PLACED
    if number is not None and placed is not None:
        when(placed, lambda: put(_constant(code, 1), pool, number + PoolWords.ASLEEP.value))

    def wait(out: str) -> None:
        job = load_atomic(pool, PoolWords.STATE, "seq_cst").logical_shift(32)
        stop = load_atomic(pool, PoolWords.STOP).compare("ne", 0)
        when(stop | job.compare("ne", code.load(WORD, known, 8)), lambda: code.go(out))
        invoke(code, "pthread_cond_wait", "i32", [condition, mutex])

    forever(code, wait)
    increase(pool, PoolWords.SLEEPERS, -1)
    if number is not None and placed is not None:
        when(placed, lambda: _run_anywhere(pool, number + PoolWords.ASLEEP.value))
    invoke(code, "pthread_mutex_unlock", "i32", [mutex])


def _run_anywhere(pool: LLValue, state: LLValue) -> None:
    """Reset the affinity of a worker that woke up, if it was set."""
    code = pool.code

    def restore() -> None:
        nobody, size = code.constant(HALF_WORD, 0), _constant(code, 8 * _SET)
        able = address(pool, PoolWords.PROCESSORS)
        invoke(code, "sched_setaffinity", "i32", [nobody, size, able])

    when(word(pool, state).equals(2), restore)
    put(_constant(code, 0), pool, state)
