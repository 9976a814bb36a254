"""What native code records of operations and arrays is what Python records."""

import gc
import threading
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
from eager_programs import Program

import weft as wf
from weft.compiler.native.observers import tables
from weft.compiler.native.places import Slot, Tables
from weft.compiler.native.spans import AXES, PIECE
from weft.core.backends import KERNELS, guard, unguard
from weft.core.op import TABLE
from weft.core.origin import written_at
from weft.profile import GradientMemoryProfiler, OpProfiler, origins, recorder


@contextmanager
def by_python():
    """Native code finds nothing in its tables: it asks Python for everything."""
    codes, head = tables().codes.words, tables().head.words
    before, used, known = codes.tolist(), head[Tables.USED], set(origins._kinds)
    for k in range(len(codes)):
        codes[k] = 0
    head[Tables.USED] = 0
    try:
        yield
    finally:
        head[Tables.USED] = used
        for k, word in enumerate(before):
            codes[k] = word
        for code in set(origins._kinds) - known:
            del origins._kinds[code]


def _events(seed: int) -> tuple[list[tuple], int]:
    """What a random program does, without times, and how many of it native code has recorded."""
    program = Program(seed, 3000)
    for _ in range(5):
        program.step()
    gc.collect()
    with OpProfiler() as profiler:
        for _ in range(20):
            program.step()
    fields = "name kind line back sizes dtype flops nbytes live peak".split()
    native = len(profiler._recorder._tape.spans())
    return [tuple(getattr(e, f) for f in fields) for e in profiler.events], native


@pytest.mark.parametrize("seed", range(6))
def test_spans_are_those_of_python(seed):
    _events(seed)  # what is compiled or loaded at first
    with by_python():
        want, none = _events(seed)
    got, native = _events(seed)
    assert got == want
    ops = sum(e[1] == "op" for e in got)
    assert native > 0.9 * ops and not none


def _places(seed: int) -> list[dict]:
    gc.collect()
    program = Program(seed, 20_000)
    with GradientMemoryProfiler() as profiler:
        for _ in range(15):
            program.step()
            gc.collect()
            profiler.record_checkpoint("step")
    return [c.by_place for c in profiler.timeline]


@pytest.mark.parametrize("seed", range(6))
def test_places_of_arrays_are_those_of_python(seed, monkeypatch):
    _places(seed)
    asked = []
    monkeypatch.setattr(origins.SweepPlaces, "begin_node", lambda self, node, g: None)
    with by_python():
        want = _places(seed)
    monkeypatch.undo()
    kind_of = origins._kind_of
    monkeypatch.setattr(origins, "_kind_of", lambda frame: asked.append(1) or kind_of(frame))
    assert _places(seed) == want and any(want)
    assert not asked  # Python was not needed


# -- what only Python describes ----------------------------------------------------------------


def test_all_kinds_of_operands():
    x = wf.ones((3, 4))
    many = [wf.ones((2,)) for _ in range(PIECE // AXES)]
    for _ in range(2):  # known places are recorded by native code
        with OpProfiler() as profiler:
            y = 2.0 - x
            wf.einsum("ij,kj->ik", x, x)
            wf.concat([x, x, x])
            wf.concat(many)
            wf.linalg.svd(x)
            wf.sum(y)
            x.mT.reshape(12)
            KERNELS[TABLE["exp"]][np.ndarray](np.ones(3, np.longlong))
    found = {e.name: e for e in profiler.events}
    assert found["subtract"].sizes.split(", ")[1] == "3×4"
    assert found["einsum"].flops == 2 * 3 * 3 * 4
    sizes = [e.sizes for e in profiler.events if e.name == "concat"]
    assert sizes == ["3×4, 3×4, 3×4", ", ".join(["2"] * len(many))]
    assert found["sum"].nbytes == 4 * 12 + 4
    assert found["permute"].nbytes == 0
    assert (found["exp"].dtype, found["exp"].sizes) == (str(np.dtype(np.longlong)), "3")


def test_more_operations_than_one_piece_of_memory_holds():
    x, count = wf.ones((2, 3)), 6000
    with OpProfiler() as profiler:
        for _ in range(count):
            wf.exp(x)
    assert len(profiler._recorder._tape._memories) > 1
    assert len(profiler.events) == count
    assert {e.sizes for e in profiler.events} == {"2×3"}
    starts = [e.start for e in profiler.events]
    assert starts == sorted(starts)


def test_an_error_of_a_kernel_is_raised_and_the_next_line_is_right():
    x = wf.ones((100, 100))
    for _ in range(2):
        kept = y = None
        with OpProfiler() as profiler:
            with pytest.raises(wf.errors.ShapeError):
                x @ wf.ones((3, 3))
            kept = np.ones((100, 100))
            y = wf.exp(x)
    names = {str(name).split(" at ")[0] for name in profiler.peak_contents}
    assert names >= {"an array", "exp"} and kept.shape == y.shape


def test_an_error_while_the_peak_is_noted(monkeypatch):
    """Ctrl-C may come in what Python does after a kernel."""
    x = wf.ones((100, 100))
    with OpProfiler():
        wf.exp(x)

    def interrupted(self, live, peak):
        raise KeyboardInterrupt

    with OpProfiler() as profiler:
        kept = [wf.exp(x)]
        monkeypatch.setattr(recorder.Recorder, "_note_peak", interrupted)
        with pytest.raises(KeyboardInterrupt):
            kept.append(wf.exp(x))
        monkeypatch.undo()
        kept.append(wf.exp(x))
    assert len(kept) == 2 and profiler.events[-1].live == 2 * 40_000


def test_arguments_by_name_reach_a_kernel():
    seen = []

    def bound(op, kernel):
        def call(*args, **named):
            seen.append(named)
            return kernel(*args)

        return call

    guard(np.ndarray, bound)
    try:
        with OpProfiler():
            for _ in range(2):
                KERNELS[TABLE["exp"]][np.ndarray](np.ones(3), where=1)
    finally:
        unguard(np.ndarray, bound)
    assert seen == [{"where": 1}] * 2


# -- sweeps and hooks --------------------------------------------------------------------------


@pytest.mark.parametrize("leaf", [False, True])
def test_arrays_of_hooks_belong_to_their_lines(leaf):
    x = wf.ones((100, 100), requires_grad=True)
    kept = []

    def hook(g):
        kept.append(np.ones((100, 100)))
        return g

    for _ in range(2):
        kept.clear()
        with GradientMemoryProfiler() as profiler:
            y = wf.tanh(x)
            (x if leaf else y).register_hook(hook)
            y.sum().backward()
            point = profiler.record_checkpoint("end")
    line = f"test_native_records.py:{hook.__code__.co_firstlineno + 1}"
    assert point.by_line[line] == sum(a.nbytes for a in kept)


def test_a_sweep_inside_of_a_pull_back():
    """After the inner sweep, operations belong to the outer node again."""
    x = wf.ones((100, 100), requires_grad=True)
    kept = []

    def inner(g):
        z = wf.ones((100, 100), requires_grad=True)
        wf.sin(z).sum().backward()
        kept.append(z.grad)
        return g

    for _ in range(2):
        kept.clear()
        with OpProfiler() as profiler:
            y = x @ x
            y.register_hook(inner)
            wf.tanh(y).sum().backward()
    found = {e.name: e for e in profiler.events if e.kind == "backward"}
    order = "tanh", "sum", "sin", "matmul"
    assert [e.name.split()[0] for e in found.values()][-3:] == ["tanh", "sin", "matmul"]
    assert set(found) == {f"{name} backward" for name in order}
    first = inner.__code__.co_firstlineno
    assert found["sin backward"].line.endswith(f":{first + 2}")
    assert found["matmul backward"].seconds > found["sin backward"].seconds
    products = [e for e in profiler.events if e.name == "matmul"]
    assert [e.back for e in products] == [False, True, True]
    assert {e.line for e in products} == {found["matmul backward"].line}


def test_the_sweep_that_arrays_belong_to():
    x = wf.ones(3, requires_grad=True)
    y = wf.tanh(x)
    z = wf.exp(y)
    places = origins.SweepPlaces()
    slot = places._running.slot

    def number():
        return slot.words[slot.at + Slot.SWEEP]

    places.begin_sweep()
    places.begin_node(z._node, None)
    outer = number()
    places.begin_sweep()
    assert outer and number() == 0
    places.begin_node(y._node, None)
    assert number() not in (0, outer)
    places.end_sweep()
    assert number() == outer
    places.end_sweep()
    assert number() == 0


def test_bytes_at_the_end_of_each_pull_back():
    x = wf.ones((200, 200), requires_grad=True)
    for _ in range(2):
        x.grad = None
        with OpProfiler() as profiler, wf.profile.Counter() as counter:
            wf.tanh(wf.sin(x)).sum().backward()
        assert profiler.peak_bytes == counter.peak == max(e.peak for e in profiler.events)
        back = [e for e in profiler.events if e.kind == "backward"]
        assert x.grad.nbytes <= counter.live <= back[-1].live <= counter.live + 64  # the loss, too
        assert all(e.peak >= e.live >= x.nbytes for e in profiler.events)
        assert profiler.peak_event.kind == "backward"


def test_lines_that_operations_are_attributed_to():
    x, place = wf.ones(3), (_events.__code__, 0)
    for _ in range(2):
        with OpProfiler() as profiler:
            for inside in (False, True):
                with written_at(place) if inside else nullcontext():
                    wf.exp(x)
    here, there = (e.line.split(":")[1] for e in profiler.events)
    assert int(there) == _events.__code__.co_firstlineno != int(here)


# -- threads -----------------------------------------------------------------------------------


def test_slots_of_threads_that_end_are_used_again():
    x = wf.ones((4, 4), requires_grad=True)
    names = []

    def work():
        names.append(threading.current_thread().name)
        wf.tanh(x).sum().backward()

    with OpProfiler() as profiler:
        for k in range(50):
            thread = threading.Thread(target=work, name=f"short {k}")
            thread.start()
            thread.join()
    for name in ("tanh", "tanh backward"):
        assert [e.thread for e in profiler.events if e.name == name] == names
    gc.collect()
    head, words = tables().head.words, tables().threads.words
    assert head[Tables.USED] < 40
    idents = {t.ident for t in threading.enumerate()}
    used = [words[k * Slot.SIZE + Slot.THREAD] for k in range(head[Tables.USED])]
    assert {ident for ident in used if ident} <= idents
