"""Threads that make a process's first uses of native code at the same moment."""

import os
import subprocess
import sys
import threading

import pytest

from weft.core.once import once

SOAK = bool(os.environ.get("WEFT_SOAK"))
THREADS, RUNS = ((2, 4, 8), 5) if SOAK else ((4,), 1)
PROGRAM = """
import sys, threading
import numpy as np
import weft as wf

kinds, count = sys.argv[1].split(","), int(sys.argv[2])
rng = np.random.default_rng(0)
x, a = rng.standard_normal(300_000), rng.standard_normal((256, 256)).astype(np.float32)


def compiled():
    return wf.compile(lambda x: x * 2)(wf.asarray(x)), x * 2


def product():
    return wf.compile(lambda a: a @ a.mT)(wf.asarray(a)), a @ a.T


def gradient():
    f = wf.compile(wf.grad(lambda a: (a @ a.mT).sum()))
    return f(wf.asarray(a)), np.broadcast_to(2 * a.sum(0), a.shape)


def kernel():
    return wf.silu(wf.asarray(x)), x / (1 + np.exp(-x))


def step():
    p = wf.Parameter(x)
    optimizer = wf.optim.SGD([p], lr=0.5)
    (p * p).sum().backward()
    optimizer.step()
    return p.detach(), 0 * x


def profiled():
    sys.setprofile(lambda *event: None)
    try:
        return compiled()
    finally:
        sys.setprofile(None)


def padded():
    f = wf.compile(lambda x: (x * x).sum(), dynamic={"x": [0]})
    for n in (100, 90, 80):
        got = f(wf.asarray(x[:n]))
    return got, (x[:80] * x[:80]).sum()


def work(kind):
    start.wait()
    got, expected = globals()[kind]()
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-3, atol=1e-3)
    finished.append(kind)


start, finished = threading.Barrier(count), []
threads = [threading.Thread(target=work, args=(kinds[i % len(kinds)],)) for i in range(count)]
[t.start() for t in threads]
[t.join() for t in threads]
assert len(finished) == count, finished
"""
KINDS = ["compiled", "product", "gradient", "kernel", "step", "profiled", "padded"]


@pytest.mark.parametrize("run", range(RUNS))
@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("kinds", [*KINDS, ",".join(KINDS)])
def test_threads_begin_together(kinds, threads, run, tmp_path):
    # Every second run compiles anew what the others load from disk.
    env = dict(os.environ, **({"WEFT_CACHE_DIR": str(tmp_path)} if run % 2 else {}))
    command = [sys.executable, "-c", PROGRAM, kinds, str(8 if "," in kinds else threads)]
    made = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)
    assert made.returncode == 0, made.stderr[-3000:]


def test_one_thread_builds_and_the_others_wait():
    built, start = [], threading.Barrier(8)

    @once
    def build(k: int) -> object:
        built.append(k)
        threading.Event().wait(0.02)
        return object()

    def ask():
        start.wait()
        results.append([build(k) for k in (1, 2)])

    results: list[list[object]] = []
    assert not build.built()
    threads = [threading.Thread(target=ask) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(built) == [1, 2]
    assert all(r == results[0] for r in results) and build.built()


def test_it_may_call_itself_and_a_fault_leaves_nothing():
    @once
    def factorial(n: int) -> int:
        return n * factorial(n - 1) if n else 1

    @once
    def fail() -> None:
        raise ZeroDivisionError

    assert factorial(5) == 120
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            fail()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_forked_during_a_build_can_build():
    begun, go_on = threading.Event(), threading.Event()

    @once
    def build() -> int:
        begun.set()
        go_on.wait()
        return 3

    thread = threading.Thread(target=build)
    thread.start()
    begun.wait()
    child = os.fork()
    if not child:
        go_on.set()
        os._exit(build())
    go_on.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
