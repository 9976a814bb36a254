"""The counter of live bytes agrees with tracemalloc, and its limit is kept."""

import gc
import os
import re
import subprocess
import sys
import threading
import tracemalloc
from contextvars import copy_context
from pathlib import Path
from random import Random

import numpy as np
import pytest
from eager_programs import Program

import weft as wf
from weft.compiler.native import allocations
from weft.profile import Counter

SOAK = os.environ.get("WEFT_SOAK") == "1"
DOMAIN = tracemalloc.DomainFilter(inclusive=True, domain=np.lib.tracemalloc_domain)


@pytest.fixture
def traced():
    """tracemalloc's bytes of NumPy's arrays, by a function."""
    for scale in (10, 800_000):  # load and compile what is not part of the measurement
        for step in Program(0, scale).steps:
            step()
    gc.collect()
    tracemalloc.start()

    def live() -> int:
        snapshot = tracemalloc.take_snapshot().filter_traces((DOMAIN,))
        return sum(t.size for t in snapshot.traces)

    yield live
    tracemalloc.stop()


@pytest.mark.parametrize("seed", range(200 if SOAK else 6))
def test_live_bytes_are_those_of_tracemalloc(seed, traced):
    before = traced()
    with Counter() as counter:
        program = Program(seed, scale=(50, 1000, 60_000)[seed % 3])
        for _ in range(200 if SOAK else 50):
            program.step()
            assert counter.live == traced() - before
    for _ in range(3):  # what was made in the block counts after it
        left = counter.live
        del program.values[::2]
        assert counter.live == traced() - before
        assert counter.live <= left
    del program
    gc.collect()
    assert counter.live == traced() - before


@pytest.mark.parametrize("seed", range(40 if SOAK else 4))
def test_peak_is_that_of_tracemalloc(seed, traced):
    with Counter() as counter:
        program = Program(seed, scale=800_000)  # so that Python's own objects are few
        gc.collect()
        for _ in range(60 if SOAK else 12):
            objects = tracemalloc.get_traced_memory()[0] - traced()
            tracemalloc.reset_peak()
            counter.reset_peak()
            program.step()
            peak = tracemalloc.get_traced_memory()[1] - objects
            assert abs(counter.peak - peak) <= 0.01 * peak


def test_a_compiled_program_is_counted(traced):
    @wf.compile
    def step(x):
        return (wf.tanh(x @ x.mT) ** 2).sum(axis=0)

    before = traced()
    with Counter() as counter:
        x = wf.ones((200, 300))
        step(x)
        y = step(x)
        assert counter.live == traced() - before
        assert counter.live >= x.nbytes + y.nbytes + 200 * 200 * 4  # its arena


@pytest.mark.parametrize("count", [0, 1, 7, 8 << 20])
@pytest.mark.parametrize("make", [np.empty, np.zeros])
def test_every_way_of_allocating(make, count, traced):
    before = traced()
    with Counter() as counter:
        x = make((count,), np.uint8)
        assert counter.live == traced() - before
        x.resize(count + 5, refcheck=False)
        assert counter.live == traced() - before == count + 5
        x.resize(count // 2 + 1, refcheck=False)
        assert counter.live == traced() - before == count // 2 + 1
        assert counter.peak == count + 5
    del x
    assert counter.live == 0


def test_cleared_memory_is_zero():
    with Counter():
        for n in (1, 100, 10_000, 1 << 23):
            np.full(n, 7, np.uint8)
            assert not np.zeros(n, np.uint8).any()


def test_blocks_inside_count_in_those_around():
    with Counter() as outer:
        a = np.ones(10)
        with Counter() as inner:
            b = np.ones(20)
        c = np.ones(30)
        with Counter() as second:
            d = np.ones(40)
    assert (outer.live, inner.live, second.live) == (800, 160, 320)
    del outer  # the records around stay as long as arrays of them do
    gc.collect()
    del a, b, c
    assert (inner.live, second.live) == (0, 320)
    del d
    assert second.live == 0


def test_a_counter_goes_on():
    counter = Counter()
    with counter:
        a = np.zeros(10)
    b = np.zeros(10)
    with counter:
        c = np.zeros(10)
    assert counter.live == 160 and counter.allocations == 2 and not counter.is_counting
    with Counter(), pytest.raises(wf.errors.ArgumentError, match="another Counter"):
        counter.start()
    del a, b, c


def test_misuse_is_refused():
    counter = Counter()
    with pytest.raises(wf.errors.ArgumentError, match=r"start\(\) first"):
        counter.stop()
    with counter:
        with pytest.raises(wf.errors.ArgumentError, match="already"):
            counter.start()
        with Counter(), pytest.raises(wf.errors.ArgumentError, match="still counting"):
            counter.stop()
    with pytest.raises(wf.errors.ArgumentError, match="0 or more"):
        counter.limit(-1)


def test_an_exception_ends_the_block():
    with pytest.raises(ZeroDivisionError), Counter() as counter:
        kept = np.ones(3)
        raise ZeroDivisionError
    assert not counter.is_counting and counter.live == kept.nbytes
    assert allocations.name_of(allocations.handler()) == "default_allocator"


def test_threads_count_in_a_copy_of_the_context():
    kept, counts = [], 200

    def work():
        for _ in range(counts):
            kept.append(np.ones(50))

    with Counter() as counter:
        outside = threading.Thread(target=work)
        inside = [threading.Thread(target=copy_context().run, args=(work,)) for _ in range(4)]
        for thread in (outside, *inside):
            thread.start()
        for thread in (outside, *inside):
            thread.join()
        assert counter.live == 4 * counts * 400
    kept.clear()
    assert counter.live == 0


# -- the limit -----------------------------------------------------------------------------------


def test_a_limit_is_kept():
    with Counter() as counter:
        counter.limit(1000)
        a = np.zeros(100)
        for n in (26, 1000, 1 << 50):
            with pytest.raises(MemoryError):
                np.zeros(n)
        b = np.zeros(25)
        assert counter.live == counter.peak == 1000 and counter.failure is None
        with pytest.raises(MemoryError):
            a.resize(101, refcheck=False)
        assert counter.live == 1000 and a[99] == 0
        counter.limit(None)
        np.zeros(1000)
    del a, b


@pytest.mark.parametrize("seed", range(20 if SOAK else 3))
def test_pressure_frees_until_it_fits(seed):
    """Values are kept as long as possible, and never more than the limit."""
    draw, kept, asked = Random(seed), [], []

    def drop(size):
        asked.append(size)
        if kept:
            kept.pop(draw.randrange(len(kept)))
        return True

    with Counter() as counter:
        counter.limit(100_000, drop)
        for _ in range(500):
            kept.append(np.zeros(draw.randrange(3000)))
            assert counter.live == sum(x.nbytes or 1 for x in kept) <= 100_000
    assert counter.peak <= 100_000 and len(asked) > 100
    with counter, pytest.raises(MemoryError):  # nothing helps: it ends
        np.zeros(13_000)
    assert not kept


def test_limits_of_blocks_inside_one_another():
    kept = [], []
    with Counter() as outer:
        outer.limit(2000, lambda size: kept[0].clear() or True)
        kept[0].append(np.zeros(100))
        with Counter() as inner:
            inner.limit(1300, lambda size: kept[1].clear() or True)
            kept[1].append(np.zeros(100))
            a = np.zeros(160)  # both have to make room
            assert [len(k) for k in kept] == [0, 0]
            with pytest.raises(MemoryError):
                np.zeros(200)
            assert inner.live == a.nbytes and outer.live == a.nbytes


def test_exceptions_of_pressure_do_not_pass():
    def fail(size):
        raise KeyError(size)

    with Counter() as counter:
        counter.limit(100, fail)
        with pytest.raises(MemoryError):
            np.zeros(100)
        assert isinstance(counter.failure, KeyError) and counter.failure.args == (800,)


def test_pressure_may_allocate_but_not_beyond_the_limit():
    sizes = []

    def allocate(size):
        np.zeros(1)
        sizes.append(size)
        np.zeros(1000)  # fails, and does not ask again

    with Counter() as counter:
        counter.limit(100, allocate)
        with pytest.raises(MemoryError):
            np.zeros(100)
    assert sizes == [800] and isinstance(counter.failure, MemoryError) and counter.peak == 8


def test_pressure_arises_inside_of_operations():
    """In the middle of a kernel that holds Python's lock or not, with arrays freed meanwhile."""
    kept = []
    with Counter() as counter:
        x = wf.ones((300, 300), dtype="float64")
        counter.limit(4 * x.nbytes, lambda size: kept.clear() or True)
        for _ in range(20):
            kept.append(wf.exp(wf.sin(x) @ x) + 1)
        total = sum(v.nbytes for v in kept)
    assert counter.peak <= 4 * x.nbytes and total <= 3 * x.nbytes


def test_a_counter_that_is_gone_has_no_limit():
    context = copy_context()

    def begin():
        counter = Counter().start()
        counter.limit(100, lambda size: False)
        return np.zeros(3)

    kept = context.run(begin)
    gc.collect()
    assert context.run(lambda: np.zeros(1000)).size == 1000
    assert kept.size == 3


def test_positions_are_those_of_the_headers():
    """NumPy's table of C functions, as its own headers number them."""
    header = Path(np.get_include(), "numpy", "__multiarray_api.h").read_text()
    for name, position in (("Set", allocations._SET), ("Get", allocations._GET)):
        found = re.search(rf"define PyDataMem_{name}Handler.*?PyArray_API\[(\d+)\]", header, re.S)
        assert int(found[1]) == position


# -- the process ---------------------------------------------------------------------------------

ENDS = """
import os, sys, numpy as np
from weft.profile import Counter

class Kept:
    pass

counter = Counter().start()
Kept.array = np.ones(100_000)          # freed when the interpreter ends, or never
sys.kept = np.ones(1000)
import builtins
builtins.kept = [np.ones(10), counter]
kept = np.ones(5); cycle = [kept]; cycle.append(cycle)
if os.fork() == 0:
    before = counter.live
    more = np.ones(100)
    assert counter.live == before + 800
    counter.stop()
    sys.exit(0)
_, status = os.wait()
assert status == 0, status
assert counter.live == 8 * (100_000 + 1000 + 10 + 5)
{last}
"""


@pytest.mark.parametrize("last", ["counter.stop()", "del counter", "counter.limit(1)"])
def test_the_code_outlives_the_interpreter(last):
    done = subprocess.run(
        [sys.executable, "-c", ENDS.format(last=last)], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_records_are_freed():
    """A block leaves nothing behind, once its arrays are gone."""

    def blocks(count):
        for _ in range(count):
            with Counter() as outer, Counter() as inner:
                np.ones(3)
            assert (outer.live, inner.live) == (0, 0)

    tracemalloc.start()
    blocks(100)
    before = tracemalloc.get_traced_memory()[0]
    blocks(1000)
    assert tracemalloc.get_traced_memory()[0] - before < 8000
    tracemalloc.stop()
