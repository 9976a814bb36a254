"""Signals that come while native code runs: soon, and with everything as before or as after."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import weft as wf
from weft.compiler.cpu.runtime import thread_pool as threads
from weft.compiler.ir.verify import MalformedSchedule, verify
from weft.compiler.native.thread_pool import PoolWords

from .interrupted import PURE, TRAINING

SCRIPT = Path(__file__).with_name("interrupted.py")
SOAK = os.environ.get("WEFT_SOAK") == "1"
# Far more than it takes (bench/interrupts.py says how long that is): the machine may be busy.
SOON = 10.0
TIMES = {"small step": 300, "compiling": 40}


@pytest.mark.parametrize("name", [*PURE, *TRAINING])
def test_interruptions_at_random_moments(name):
    times = 200 if SOAK else TIMES.get(name, 5)
    command = [sys.executable, str(SCRIPT), name, str(times)]
    pipes = {"capture_output": True, "text": True}
    # Without a cache on disk, so that signals come while LLVM compiles, too.
    env = os.environ | {"WEFT_CACHE_DIR": ""}
    done = subprocess.run(command, **pipes, env=env, timeout=600)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found["took"]) == times and max(found["took"]) < SOON
    assert found["progress"] > 10  # another thread ran meanwhile


def run(source: str, timeout: float = 120.0) -> str:
    """What a program prints; none of its processes outlives it."""
    command = [sys.executable, "-c", textwrap.dedent(source)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, start_new_session=True, **pipes) as process:
        try:
            told, errors = process.communicate(timeout=timeout)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, errors
    return told


ENDLESS = """
import os, signal, sys, threading, time
import numpy as np
import weft as wf

def endless(x):
    return wf.while_loop(lambda s: s.sum() > 0, lambda s: s * 1.0, x)

ENDLESS, ONES = wf.compile(endless), wf.ones((3,))
"""


def test_ctrl_c_ends_an_endless_loop():
    told = run(
        ENDLESS
        + """
def press():
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGINT)

for _ in range(3):
    threading.Thread(target=press).start()
    try:
        ENDLESS(ONES)
    except KeyboardInterrupt:
        print("interrupted")
print(wf.compile(lambda x: x + 1)(ONES).tolist())
"""
    )
    assert told.split("\n")[:4] == ["interrupted"] * 3 + ["[2.0, 2.0, 2.0]"]


def test_handlers_run_while_a_loop_does_and_may_compute_with_it():
    """A handler that does not raise lets the loop go on, and may call the same function."""
    told = run(
        ENDLESS
        + """
seen = []

def until(x, n):
    return wf.while_loop(lambda s: s[0] < n, lambda s: s + 1.0, x)

UNTIL = wf.compile(until)
N = wf.tensor(3e8)

def look(*_):
    seen.append(UNTIL(wf.zeros((3,)), wf.tensor(1000.0)).tolist())
    if len(seen) == 5:
        raise TimeoutError

UNTIL(wf.zeros((3,)), wf.tensor(5.0))
signal.signal(signal.SIGALRM, look)
signal.setitimer(signal.ITIMER_REAL, 0.1, 0.05)
try:
    while True:
        UNTIL(wf.zeros((3,)), N)
except TimeoutError:
    signal.setitimer(signal.ITIMER_REAL, 0)
print(all(s == [1000.0] * 3 for s in seen), len(seen))
"""
    )
    assert told.split() == ["True", "5"]


def test_a_loop_in_another_thread_leaves_the_main_thread_free():
    """Ctrl-C is the main thread's; it comes there, and the exit is clean."""
    told = run(
        ENDLESS
        + """
loop = threading.Thread(target=ENDLESS, args=(ONES,), daemon=True)
loop.start()
time.sleep(0.3)
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted", loop.is_alive())
pid = os.fork()
if not pid:
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        ENDLESS(ONES)
    except KeyboardInterrupt:
        print("in a child")
        sys.stdout.flush()
    os._exit(0)
os.waitpid(pid, 0)
del ENDLESS
import gc
gc.collect()
print(loop.is_alive())
"""
    )
    assert sorted(told.split("\n")) == ["", "True", "in a child", "interrupted True"]


def test_workers_are_ready_for_the_next_job():
    before = threads.width()
    threads.resize(2)
    try:
        f = wf.compile(lambda x: wf.sin(wf.exp(-x * x)) + wf.softmax(x, 1))
        x = wf.tensor(np.random.default_rng(0).standard_normal((2000, 2000)).astype("float32"))
        wanted = f(x).numpy()

        def interrupt(*_):
            raise InterruptedError

        old = signal.signal(signal.SIGALRM, interrupt)
        try:
            for k in range(6):
                with pytest.raises(InterruptedError):
                    signal.setitimer(signal.ITIMER_REAL, 0.005 + 0.01 * k)
                    while True:
                        f(x)
        finally:
            signal.signal(signal.SIGALRM, old)
        assert threads._pool[PoolWords.BUSY] == 0
        np.testing.assert_array_equal(f(x).numpy(), wanted)
    finally:
        threads.resize(before)


def test_loops_come_before_what_is_written_in_place():
    """Though a loop reads what is written: it reads a copy, which is brought there at the end."""
    p, q = wf.tensor([1.0, 2.0]), wf.tensor([0.0, 0.0])

    @wf.compile
    def f():
        p.copy_(p * 2.0)
        q.copy_(wf.while_loop(lambda s: s.sum() < 100.0, lambda s: s + p, p))

    f()
    assert p.tolist() == [2.0, 4.0] and q.tolist() == [34.0, 68.0]
    schedule = f._last().executable.schedule
    kinds = [any(schedule.buffers[i].takes is not None for i in s.writes) for s in schedule.steps]
    loop = [getattr(s, "routine", None) is not None for s in schedule.steps].index(True)
    assert not any(kinds[: loop + 1]) and sum(kinds) == 2


def test_the_verifier_refuses_other_orders():
    p = wf.tensor([1.0, 2.0])

    @wf.compile
    def f(x):
        p.copy_(p * 2.0)
        return wf.while_loop(lambda s: s.sum() < 100.0, lambda s: s + 1.0, x)

    f(wf.ones((2,)))
    schedule = f._last().executable.schedule
    verify(schedule)
    with pytest.raises(MalformedSchedule, match="after an input is written"):
        verify(replace(schedule, steps=schedule.steps[::-1]))


def test_locks_are_free_in_a_child():
    """Though another thread was in a call of the same function when the process forked."""
    told = run(
        """
        import os, threading, time
        import weft as wf

        p = wf.zeros((3,))

        @wf.compile
        def f(n):
            p.copy_(p + wf.while_loop(lambda s: s < n, lambda s: s + 1.0, wf.zeros_like(n)))

        f(wf.tensor(2.0))
        other = threading.Thread(target=f, args=(wf.tensor(1e9),), daemon=True)
        other.start()
        time.sleep(0.3)
        pid = os.fork()
        if not pid:
            f(wf.tensor(3.0))
            print(p.tolist(), flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
        """
    )
    assert told == "[5.0, 5.0, 5.0]\n"


def test_other_threads_go_on():
    """A thread that computes in Python goes on while a program runs."""
    f = wf.compile(lambda n: wf.while_loop(lambda s: s < n, lambda s: s + 1.0, wf.zeros_like(n)))
    f(wf.tensor(2.0))
    over, turns = [], [0]

    def count() -> None:
        while not over:
            turns[0] += 1

    other = threading.Thread(target=count)
    other.start()
    began = time.perf_counter()
    while time.perf_counter() - began < 0.2:
        before = turns[0]
        f(wf.tensor(1e7))
        assert turns[0] > before
    over.append(True)
    other.join()
