"""Threads in native code: every unit once, the same bits for any number, sleep, fork and exit."""

import os
import subprocess
import sys
import textwrap
import time
from ctypes import CDLL, CFUNCTYPE, c_int64, c_void_p
from threading import Event, Thread, get_ident, get_native_id
from threading import enumerate as enumerate_threads

import numpy as np
import pytest

from weft.compiler.cpu.emit_kernel import native
from weft.compiler.cpu.runtime import thread_pool as threads
from weft.compiler.cpu.runtime.executable import NativeExecutable
from weft.compiler.ir.kernel import FoldStep, Kernel, Operand, Result, Step
from weft.compiler.ir.schedule import KernelStep
from weft.compiler.native.driver import driver
from weft.compiler.native.thread_pool import PoolWords
from weft.compiler.native.words import words
from weft.graph.graph import Literal

from ..programs import F32, Program

_share = CFUNCTYPE(c_int64, c_void_p, c_void_p, c_void_p, c_int64, c_int64, c_void_p)


@pytest.fixture(autouse=True)
def pool():
    before = threads.width()
    yield
    threads.resize(before)


@pytest.fixture(scope="module")
def increment():
    """A kernel that adds 1 to each of 4096 integers, and its pointers."""
    kind = np.dtype(np.int64)
    step = Step("add", (0, Literal(1)), kind)
    kernel = Kernel((4096,), (Operand(kind, (1,)),), (step,), (Result(1, (1,)),))
    return native(kernel)


def share(function, counts: np.ndarray, count: int, chunk: int) -> None:
    pointers = words(3)
    pointers[:2] = counts.ctypes.data
    address = c_void_p.from_buffer(function.call).value
    call = _share(driver().addresses["weft_share"])
    call(threads.address(), address, pointers.ctypes.data, count, chunk, None)


@pytest.mark.parametrize("width", [1, 2, 4])
def test_every_unit_is_done_once(increment, width):
    threads.resize(width)
    rng = np.random.default_rng(width)
    counts = np.zeros(4096, np.int64)
    for turn in range(1, 1001):
        share(increment, counts, 4096, int(rng.integers(1, 9)) * increment.image.grain * 8)
        assert counts.min() == counts.max() == turn


def test_callers_at_once_do_not_disturb_each_other(increment):
    """One has the pool, the others do their work themselves."""
    threads.resize(3)
    lines = [np.zeros(4096, np.int64) for _ in range(3)]

    def call(line: np.ndarray) -> None:
        for _ in range(300):
            share(increment, line, 4096, 256)

    callers = [Thread(target=call, args=(line,)) for line in lines]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert all((line == 300).all() for line in lines)
    assert threads._pool[PoolWords.BUSY] == 0


def test_a_worker_that_sleeps_costs_nothing_and_wakes_up(increment):
    threads.resize(2)
    counts = np.zeros(4096, np.int64)
    share(increment, counts, 4096, 256)
    deadline = time.monotonic() + 10
    while threads._pool[PoolWords.SLEEPERS] < len(threads._threads):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    before = time.process_time()
    time.sleep(0.2)
    assert time.process_time() - before < 0.02
    for _ in range(100):
        share(increment, counts, 4096, 256)
    assert (counts == 101).all()


def test_each_thread_has_a_stretch_of_its_own():
    """Who calls begins at the front, the other at the back; they meet wherever they do."""
    threads.resize(2)
    taken: dict[int, list[int]] = {}

    @CFUNCTYPE(None, c_void_p, c_int64, c_int64)
    def piece(_, begin, end):
        assert end == min(begin + 3, 100)
        taken.setdefault(get_ident(), []).append(begin)
        deadline = time.monotonic() + 10
        while len(taken) < 2 and time.monotonic() < deadline:
            time.sleep(1e-4)

    call = _share(driver().addresses["weft_share"])
    call(threads.address(), piece, None, 100, 3, None)
    front = taken.pop(get_ident())
    (back,) = taken.values()
    pieces = list(range(0, 100, 3))
    assert front == pieces[: len(front)] and back == pieces[: len(front) - 1 : -1]
    assert len(front) + len(back) == len(pieces)


linux = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="a thing of Linux")


def workers() -> list[int]:
    """The system's numbers of the workers."""
    found = [t.native_id for t in enumerate_threads() if t.name.startswith("weft_native_")]
    return [n for n in found if n is not None]


def asleep() -> None:
    """Wait until all workers sleep."""
    end = time.monotonic() + 10
    while threads._pool[PoolWords.SLEEPERS] < len(workers()) and time.monotonic() < end:
        time.sleep(0.001)


@linux
def test_a_worker_that_is_awake_may_run_everywhere(increment):
    """Waking it, the caller keeps it from its own processor, and only as long as it sleeps."""
    threads.resize(3)
    allowed, counts = os.sched_getaffinity(0), np.zeros(4096, np.int64)
    for turn in range(1, 21):
        asleep()
        share(increment, counts, 4096, 64)
        end = time.monotonic() + 10
        states = threads._pool[PoolWords.ASLEEP : PoolWords.PROCESSORS]
        while (states == 2).any() and time.monotonic() < end:
            time.sleep(0.001)
        assert (counts == turn).all()
        asleep()
        assert [os.sched_getaffinity(n) for n in workers()] == [allowed] * len(workers())


@linux
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor")
def test_a_worker_does_not_wake_where_the_caller_is():
    """What the caller says before it wakes them; nobody sleeps in this pool."""
    memory = words(PoolWords.SIZE)
    libc = CDLL(None)
    at = memory.ctypes.data
    libc.pthread_mutex_init(c_void_p(at + 8 * PoolWords.MUTEX), None)
    libc.pthread_cond_init(c_void_p(at + 8 * PoolWords.CONDITION), None)
    ready, done = Event(), Event()
    found: list[int] = []

    def wait() -> None:
        found.append(get_native_id())
        ready.set()
        done.wait()

    stand_in = Thread(target=wait)
    stand_in.start()
    ready.wait()
    allowed = os.sched_getaffinity(0)
    try:
        memory[PoolWords.THREADS], memory[PoolWords.ASLEEP] = found[0], 1
        CFUNCTYPE(None, c_void_p)(driver().addresses["weft_wake"])(at)
        others = os.sched_getaffinity(found[0])
        assert memory[PoolWords.ASLEEP] == 2 and len(allowed - others) == 1 and others < allowed
        memory[PoolWords.ASLEEP] = 0  # one that is awake is left alone
        os.sched_setaffinity(found[0], allowed)
        CFUNCTYPE(None, c_void_p)(driver().addresses["weft_wake"])(at)
        assert os.sched_getaffinity(found[0]) == allowed
    finally:
        done.set()
        stand_in.join()


@linux
def test_one_processor_for_all():
    done = script(
        """
        import os
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        import numpy as np, time
        from weft.compiler.cpu.runtime import thread_pool as threads
        import weft as wf
        threads.resize(3)
        f = wf.compile(lambda x: wf.exp(x) + wf.tanh(x))
        x = wf.tensor(np.zeros(300_000, np.float32))
        for _ in range(5):
            time.sleep(0.01)
            assert float(f(x).sum()) == 300_000
        print("done")
        """
    )
    assert done.stdout.strip() == "done", done.stderr


@linux
def test_a_thread_with_a_small_stack_is_refused():
    """Native code keeps blocks of arrays there: without a word the process would end."""
    done = script(
        """
        import threading
        import numpy as np
        import weft as wf

        x = wf.tensor(np.ones((256, 512), np.float32))
        programs = {
            "product": wf.compile(lambda x: x @ x.T),
            "rows": wf.compile(lambda x: wf.softmax(x, -1)),
            "routine": wf.compile(lambda x: wf.cumsum(x, axis=-1)),
        }
        said = []

        def call(f):
            try:
                f(x)
                said.append("done")
            except wf.errors.StackTooSmall as e:
                said.append("refused" if "stack of 256 kB" in str(e) else str(e))

        for size in (256 << 10, 4 << 20):
            threading.stack_size(size)  # the workers have more all the same
            for f in programs.values():
                thread = threading.Thread(target=call, args=(f,))
                thread.start()
                thread.join()
        for f in programs.values():
            call(f)
        print(*said)
        """
    )
    assert done.stdout.split() == ["refused"] * 3 + ["done"] * 6, (done.stdout, done.stderr)


def test_threads_come_and_go(increment):
    threads.resize(3)
    assert len(threads._threads) >= 2 and threads.width() == 3
    threads.stop_workers()
    assert threads.width() == 1 and not threads._threads
    counts = np.zeros(4096, np.int64)
    share(increment, counts, 4096, 256)
    threads.resize(2)
    share(increment, counts, 4096, 256)
    assert (counts == 2).all()


def test_no_threads_is_refused():
    with pytest.raises(ValueError, match="0 threads, expected at least 1"):
        threads.resize(0)


def softmax(m: int, n: int) -> KernelStep:
    def step(row, *inputs):
        return Step(row, inputs, F32)

    steps = (
        FoldStep("max", 0, F32),
        step("subtract", 0, 1),
        step("exp", 2),
        FoldStep("sum", 3, F32),
    )
    steps = (*steps, step("divide", 3, 4))
    return Kernel((m, n), (Operand(F32, (n, 1)),), steps, (Result(5, (n, 1)),), (1,))


def model(m: int, n: int):
    """A product, an activation, a softmax, a sum over all: everything that is shared."""
    p = Program()
    x, w = p.buffer("input", m, n), p.buffer("input", n, n)
    h, a, s = (p.buffer("scratch", m, n) for _ in range(3))
    y, total = p.buffer("output", m, n), p.buffer("output")
    p.product(x, w, h)
    p.row("tanh", (h,), a)
    p.row("exp", (a,), s)
    p.steps.append(KernelStep(softmax(m, n), (s,), (y,)))
    fold = (FoldStep("sum", 0, F32),)
    whole = Kernel((m * n,), (Operand(F32, (1,)),), fold, (Result(1, (0,)),), (0,))
    p.steps.append(KernelStep(whole, (y,), (total,)))
    return p.schedule(y, total)


@pytest.mark.parametrize("size", [(300, 300), (257, 1023)], ids=str)
def test_the_same_bits_for_any_number_of_threads(monkeypatch, size):
    m, n = size
    rng = np.random.default_rng(0)
    x = rng.standard_normal((m, n)).astype(F32)
    w = (rng.standard_normal((n, n)) / n).astype(F32)
    run = NativeExecutable(model(m, n))
    assert "4 of them by threads" in " ".join(run.explain())
    found = set()
    for width in (1, 2, 3, 2, 1):
        monkeypatch.setattr(threads.blas, "available", lambda width=width: width)
        y, total = run([x, w])
        assert threads.width() == width
        found.add((y.tobytes(), total.tobytes()))
    assert len(found) == 1
    e = np.exp(np.tanh(x.astype(float) @ w))
    expected = np.exp(e) / np.exp(e).sum(1, keepdims=True)
    np.testing.assert_allclose(y, expected, rtol=1e-4)


def script(text: str, **environment: str) -> subprocess.CompletedProcess:
    """Run a program of its own, which uses the model above by two threads."""
    head = """
    import numpy as np, os, sys, time
    from tests.compiler.cpu.test_threads_native import model, NativeExecutable, threads
    run = NativeExecutable(model(400, 400))
    x = np.ones((400, 400), np.float32)
    w = np.ones((400, 400), np.float32) / 400
    expected = run([x, w])[0].copy()
    def use():
        for _ in range(20):
            assert (run([x, w])[0] == expected).all()
    """
    import os

    env = {**os.environ, "OPENBLAS_NUM_THREADS": "2", **environment}
    code = textwrap.dedent(head) + textwrap.dedent(text)
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)


def test_the_interpreter_ends_while_threads_wait():
    for text in ("use()", "use(); time.sleep(0.1)", "use(); raise SystemExit(0)"):
        done = script("assert threads.width() == 2\n" + text)
        assert (done.returncode, done.stderr) == (0, "")


def test_work_when_the_interpreter_is_ending():
    done = script("import atexit; atexit.register(use); use()")
    assert (done.returncode, done.stderr) == (0, "")
    done = script(
        """
        import atexit
        atexit.unregister(threads._end)
        atexit.register(use)
        atexit.register(threads._end)
        use()
        """
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_forked_child_has_threads_of_its_own():
    done = script(
        """
        use()
        for _ in range(5):
            child = os.fork()
            if child == 0:
                assert threads.width() == 1
                use()
                assert threads.width() == 2
                sys.stdout.flush()
                sys.exit(0)
            use()
            assert os.waitpid(child, 0)[1] == 0
        """
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_fork_while_another_thread_computes():
    done = script(
        """
        from threading import Thread, get_ident
        busy = Thread(target=lambda: [use() for _ in range(10)])
        busy.start()
        for _ in range(5):
            child = os.fork()
            if child == 0:
                use()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        busy.join()
        """
    )
    assert (done.returncode, done.stderr) == (0, "")
