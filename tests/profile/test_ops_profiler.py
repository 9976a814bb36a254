"""The profiler of operations: times that add up, counts that others make too, results unchanged."""

import gc
import os
import threading
import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from eager_programs import Program

import weft as wf
from weft.compiler import timing
from weft.compiler.ir.schedule import LibraryStep
from weft.compiler.native.allocations import handler, name_of
from weft.compiler.native.words import WordArray
from weft.core.backends import GUARDS, KERNELS, guard, unguard
from weft.core.op import TABLE
from weft.optim import walk
from weft.profile import OpProfiler, ops
from weft.profile.page import nested
from weft.transform.modes import reverse

SOAK = os.environ.get("WEFT_SOAK") == "1"
DOMAIN = tracemalloc.DomainFilter(inclusive=True, domain=np.lib.tracemalloc_domain)


def _run(seed: int, steps: int, scale: int = 2000) -> list[np.ndarray]:
    """What a random program has made at its end."""
    program = Program(seed, scale)
    for _ in range(steps):
        program.step()
    return [np.array(v.detach()) for v in (*program.values, *program.parameters)]


def _check_times(profiler: OpProfiler) -> None:
    """Nothing takes less than nothing, and all of a thread together no more than the block."""
    by_thread: dict[str, float] = {}
    for e in profiler.events:
        assert 0 <= e.self_seconds <= e.seconds + 1e-12
        assert 0 <= e.start and e.start + e.seconds <= profiler.seconds + 1e-9
        by_thread[e.thread] = by_thread.get(e.thread, 0.0) + e.self_seconds
    assert all(own <= profiler.seconds + 1e-9 for own in by_thread.values())
    # The self times are those of the outermost events, divided up.
    roots = sum(e.seconds for e, depth in nested(profiler.events) if depth == 0)
    assert sum(by_thread.values()) == pytest.approx(roots, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("seed", range(120 if SOAK else 6))
def test_random_programs(seed):
    steps = 100 if SOAK else 25
    want = _run(seed, steps)
    with OpProfiler(memory=seed % 2 == 0) as profiler:
        got = _run(seed, steps)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(want, got, strict=True))
    _check_times(profiler)
    assert profiler.events
    table = profiler.table("op and line")
    assert sum(r.calls for r in table.rows) == len(profiler.events)
    assert all(e.line.startswith("eager_programs.py:") for e in profiler.events)


def _hooks() -> tuple[int, ...]:
    found = GUARDS.get(None, ()), reverse.OBSERVERS, walk.AROUND, timing._observers
    return tuple(len(hooks) for hooks in found)


def test_nothing_is_left_when_it_is_off():
    x = wf.ones((4, 4), requires_grad=True)
    with OpProfiler():
        wf.tanh(x @ x).sum().backward()
        assert _hooks() == (1, 1, 1, 1)
        assert isinstance(KERNELS[TABLE["tanh"]][np.ndarray].__self__, WordArray)
    assert _hooks() == (0, 0, 0, 0)
    wf.tanh(x @ x).sum().backward()
    for row in ("tanh", "matmul", "sum"):
        kernel = KERNELS[TABLE[row]][np.ndarray]
        assert not isinstance(getattr(kernel, "__self__", None), WordArray)


def test_an_error_in_the_block_ends_it():
    profiler = OpProfiler()
    with pytest.raises(wf.errors.ShapeError), profiler:
        wf.exp(wf.ones(3))
        wf.ones((2, 3)) @ wf.ones((2, 3))
    assert _hooks() == (0, 0, 0, 0)
    assert [e.name for e in profiler.events] == ["exp"]
    with pytest.raises(wf.errors.ArgumentError, match="start"):
        profiler.stop()
    with pytest.raises(wf.errors.ArgumentError, match="after the `with` block"):
        OpProfiler().table()
    with pytest.raises(wf.errors.ArgumentError, match="op and line"):
        profiler.table("ops")


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_of_the_gpu_leaves_nothing(failing, monkeypatch):
    """What the GPU was given before or in the block may fail when that is waited for."""
    allocator, calls = name_of(handler()), iter(range(2))

    def wait():
        if next(calls) == failing:
            raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr(ops.gpu, "wait", wait)
    with pytest.raises(RuntimeError, match="illegal"), OpProfiler():
        pass
    assert _hooks() == (0, 0, 0, 0) and name_of(handler()) == allocator


def test_one_inside_of_another():
    x = wf.ones((50, 50))
    with OpProfiler() as outer:
        wf.exp(x)
        with OpProfiler() as inner:
            wf.sin(x)
        wf.cos(x)
    assert [e.name for e in outer.events] == ["exp", "sin", "cos"]
    assert [e.name for e in inner.events] == ["sin"]


def test_threads_have_tracks_of_their_own():
    x = wf.ones((200, 200), requires_grad=True)

    def work():
        for _ in range(20):
            wf.tanh(x @ x).sum().backward()

    with OpProfiler() as profiler:
        threads = [threading.Thread(target=work, name=f"worker {k % 2}") for k in range(4)]
        for k, t in enumerate(threads):
            t.start()
            if k < 2:  # a later thread may get its identifier
                t.join()
        for t in threads:
            t.join()
    tracks = {e.thread for e in profiler.events}
    assert len(tracks) == 4, tracks
    for track in tracks:
        names = [e.name for e in profiler.events if e.thread == track]
        assert names.count("tanh") == names.count("tanh backward") == 20
    _check_times(profiler)


def test_a_backward_pass_counts_at_its_forward_line():
    w = wf.ones((30, 30), requires_grad=True)
    with OpProfiler() as profiler:
        y = wf.tanh(w)
        z = y @ y
        loss = z.sum()
        loss.backward()
    lines = {e.name: e.line for e in profiler.events if e.kind != "backward"}
    back = {e.name: e.line for e in profiler.events if e.kind == "backward"}
    assert back["tanh backward"] == lines["tanh"]
    assert back["sum backward"] == lines["sum"]
    inside = [e for e in profiler.events if e.name == "matmul" and e.back]
    assert len(inside) == 2 and {e.line for e in inside} == {back["matmul backward"]}
    rows = {r.name for r in profiler.table("line").rows}
    assert not any(line.endswith(f":{_line_of_backward()}") for line in rows)


def _line_of_backward() -> int:
    source = test_a_backward_pass_counts_at_its_forward_line.__code__
    return source.co_firstlineno + 6


def test_wrappers_of_kernels_are_removed_in_any_order():
    seen = []

    def noting(name):
        def bound(op, kernel):
            def call(*args):
                seen.append(name)
                return kernel(*args)

            return call

        return bound

    one, two = noting("one"), noting("two")
    guard(np.ndarray, one)
    guard(None, two)
    wf.exp(wf.ones(3))
    unguard(np.ndarray, one)
    wf.exp(wf.ones(3))
    unguard(None, two)
    wf.exp(wf.ones(3))
    assert seen == ["two", "one", "two"]


def test_a_kernel_that_is_bound_while_wrappers_change():
    """Another thread may end a profile between the wrapping of a kernel and its storing."""

    def bound(op, kernel):
        unguard(None, bound)
        return lambda *args: pytest.fail("a wrapper that was removed")

    guard(None, bound)
    wf.exp(wf.ones(3))
    wf.exp(wf.ones(3))


# -- compiled functions ----------------------------------------------------------------------


def _network(rng):
    d = int(rng.integers(8, 60))
    layers = [wf.nn.Linear(d, 2 * d), wf.nn.GELU(), wf.nn.LayerNorm(2 * d), wf.nn.Linear(2 * d, 5)]
    return wf.nn.Sequential(*layers), wf.tensor(rng.standard_normal((40, d)), dtype="float32")


@pytest.mark.parametrize("seed", range(20 if SOAK else 2))
def test_steps_of_compiled_functions(seed):
    results = []
    for profiled in (False, True):
        wf.random.seed(seed)
        rng = np.random.default_rng(seed)
        model, x = _network(rng)
        optimizer = wf.optim.Adam(model.parameters(), lr=1e-2)

        @wf.compile
        def step(x, model=model, optimizer=optimizer):
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        made = [step(x)]
        profiler = OpProfiler()
        if profiled:
            profiler.start()
        made += [step(x), step(x)]
        if profiled:
            profiler.stop()
        made.append(step(x))
        results.append([np.array(v.detach()) for v in (*made, *model.parameters())])
    assert all(a.tobytes() == b.tobytes() for a, b in zip(*results, strict=True))
    native = [s for s in step._last().executable.schedule.steps if not isinstance(s, LibraryStep)]
    steps = [e for e in profiler.events if e.kind == "step"]
    assert len(steps) == 2 * len(native)
    assert sum(e.kind == "program" for e in profiler.events) == 2
    _check_times(profiler)
    for program in [e for e in profiler.events if e.kind == "program"]:
        inside = [e for e in steps if program.start <= e.start < program.start + program.seconds]
        assert sum(e.seconds for e in inside) == pytest.approx(program.seconds, abs=1e-8)
        assert all(a.start <= b.start for a, b in pairwise(inside))
    products = [e for e in steps if e.name.startswith("product")]
    assert products and all(e.flops and e.nbytes for e in products)


def test_library_calls_between_native_segments():
    @wf.compile
    def f(x):
        q, r = wf.linalg.qr(x @ x)
        return wf.tanh(q @ r)

    x = wf.tensor(np.random.default_rng(0).standard_normal((20, 20)))
    want = f(x)
    with OpProfiler() as profiler:
        got = f(x)
    assert np.array_equal(want, got)
    assert [e.name for e in profiler.events if e.kind == "op"] == ["qr"]
    (qr,) = [e for e in profiler.events if e.name == "qr"]
    assert int(qr.line.split(":")[1]) == f.__wrapped__.__code__.co_firstlineno + 2
    assert sum(e.kind == "program" for e in profiler.events) == 2
    _check_times(profiler)


def test_a_guard_that_fails_while_profiled():
    @wf.compile
    def f(x, i):
        return (x * 2)[i]

    x = wf.arange(10.0)
    f(x, wf.tensor([1, 2]))
    with OpProfiler() as profiler:
        with pytest.raises(wf.errors.IndexingError):
            f(x, wf.tensor([1, 99]))
        assert f(x, wf.tensor([1, 3])).tolist() == [2.0, 6.0]
    assert sum(e.kind == "program" for e in profiler.events) == 1
    assert f(x, wf.tensor([1, 4])).tolist() == [2.0, 8.0]


def test_a_function_that_is_compiled_in_the_block():
    with OpProfiler() as profiler:
        f = wf.compile(lambda x: wf.tanh(x) * 2)
        f(wf.ones(1000))
        f(wf.ones(1000))
    assert sum(e.kind == "program" for e in profiler.events) == 2


# -- counts ----------------------------------------------------------------------------------

CONTRACTIONS = {"matmul", "linear", "linear_gradient", "convolution", "convolution_transposed"}
CONTRACTIONS |= {"convolution_weight", "attention", "attention_gradient", "einsum"}


def _mlp(draw):
    sizes = draw.integers(2, 40, 4)
    shapes = [(int(b), int(a)) for a, b in pairwise(sizes)]

    def weft(x, *ws):
        for w in ws:
            x = wf.tanh(wf.nn.functional.linear(x, w))
        return x

    def torch_(x, *ws):
        from torch.nn.functional import linear

        for w in ws:
            x = linear(x, w).tanh()
        return x

    return weft, torch_, (int(draw.integers(1, 30)), int(sizes[0])), shapes


def _cnn(draw):
    c = [int(n) for n in draw.integers(1, 6, 3)]
    k = [int(n) for n in draw.integers(1, 4, 2)]
    stride = int(draw.integers(1, 3))
    shapes = [(c[1], c[0], k[0], k[0]), (c[2], c[1], k[1], k[1])]

    def weft(x, v, w):
        x = wf.tanh(wf.nn.functional.conv2d(x, v, stride=stride))
        return wf.nn.functional.conv2d(x, w)

    def torch_(x, v, w):
        from torch.nn.functional import conv2d

        return conv2d(conv2d(x, v, stride=stride).tanh(), w)

    return weft, torch_, (2, c[0], 11, 13), shapes


def _products(draw):
    n, m, k = (int(n) for n in draw.integers(1, 20, 3))

    def weft(x, w, v):
        return wf.tanh(x @ w) @ v

    def torch_(x, w, v):
        return (x @ w).tanh() @ v

    return weft, torch_, (3, n, m), [(3, m, k), (3, k, n)]


@pytest.mark.parametrize("seed", range(60 if SOAK else 4))
@pytest.mark.parametrize("network", [_mlp, _cnn, _products])
def test_flops_are_those_of_torch(network, seed):
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    draw = np.random.default_rng(seed)
    ours, theirs, shape, shapes = network(draw)
    x, ws = draw.standard_normal(shape), [draw.standard_normal(s) for s in shapes]
    counter = FlopCounterMode(display=False)
    with counter:
        given = [torch.tensor(w, requires_grad=True) for w in ws]
        theirs(torch.tensor(x), *given).sum().backward()
    with OpProfiler() as profiler:
        given = [wf.tensor(w, requires_grad=True) for w in ws]
        ours(wf.tensor(x), *given).sum().backward()
    counted = [e for e in profiler.events if e.kind == "op" and e.name in CONTRACTIONS]
    assert sum(e.flops for e in counted) == counter.get_total_flops()


def test_flops_of_attention_are_those_of_torch():
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    draw = np.random.default_rng(0)
    q, k, v = (draw.standard_normal((2, 4, n, 8)).astype("f4") for n in (16, 24, 24))
    counter = FlopCounterMode(display=False)
    with counter, torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
        given = [torch.tensor(a, requires_grad=True) for a in (q, k, v)]
        torch.nn.functional.scaled_dot_product_attention(*given).sum().backward()
    # FlopCounterMode has no formula for the CPU's flash attention: then the definition is left.
    theirs = counter.get_total_flops() or 7 * 2 * (2 * 4 * 16 * 24 * 8)
    with OpProfiler() as profiler:
        given = [wf.tensor(a, requires_grad=True) for a in (q, k, v)]
        wf.nn.functional.scaled_dot_product_attention(*given).sum().backward()
    counted = [e for e in profiler.events if e.kind == "op" and e.name in CONTRACTIONS]
    assert sum(e.flops for e in counted) == theirs


@pytest.mark.parametrize("seed", range(20 if SOAK else 2))
def test_compiled_products_have_the_flops_of_eager_ones(seed):
    draw = np.random.default_rng(seed)
    ours, _, shape, shapes = _mlp(draw)
    x = wf.tensor(draw.standard_normal(shape))
    ws = [wf.tensor(draw.standard_normal(s)) for s in shapes]
    want = sum(2 * shape[0] * b * a for b, a in shapes)
    compiled = wf.compile(ours)
    compiled(x, *ws)
    with OpProfiler() as profiler:
        compiled(x, *ws)
    products = [e for e in profiler.events if e.name.startswith("product")]
    if len(products) == len(shapes):  # small ones become loops
        least = sum(e.flops for e in products)
        assert want <= least <= want + 4 * sum(shape[0] * b for b, _ in shapes)


def test_bytes_of_views_and_picked_elements():
    x = wf.ones((1000, 64))
    with OpProfiler() as profiler:
        assert x.mT.shape == (64, 1000)
        x.reshape(64, 1000)
        x[wf.tensor([1, 2, 3])]
        wf.exp(x)
    found = {e.name: (e.flops, e.nbytes) for e in profiler.events}
    assert found["permute"] == found["reshape"] == (0, 0)
    assert found["exp"] == (64000, 2 * 4 * 64000)
    (picked,) = [e for e in profiler.events if e.name not in ("permute", "reshape", "exp")]
    assert picked.nbytes == 2 * 4 * 3 * 64 + 3 * 8


@pytest.mark.parametrize("seed", range(20 if SOAK else 3))
def test_the_peak_is_that_of_tracemalloc(seed):
    for step in Program(0, 800_000).steps:  # load and compile what is not part of the measurement
        step()
    gc.collect()
    tracemalloc.start()
    profiler = OpProfiler()
    try:
        before = tracemalloc.get_traced_memory()[0]
        with profiler:
            program = Program(seed, scale=800_000)  # so that Python's own objects are few
            tracemalloc.reset_peak()
            for _ in range(20):
                program.step()
            peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert profiler.peak_bytes == pytest.approx(peak, rel=0.01)
    contents = profiler.peak_contents
    assert sum(contents.values()) == profiler.peak_bytes
    assert all(n > 0 for n in contents.values())
    assert max(e.peak for e in profiler.events) == profiler.peak_bytes


def test_memory_that_an_operation_frees_itself_counts():
    x = wf.ones((400, 400))
    with OpProfiler() as profiler, wf.profile.Counter() as counter:
        made = [wf.linalg.inv(x + 400 * wf.eye(400))]
    assert made[0].shape == (400, 400)
    assert profiler.peak_bytes == counter.peak > max(e.live for e in profiler.events)
    assert any(name.startswith("temporary, in ") for name in profiler.peak_contents)


def test_the_roofline_of_given_peaks():
    peaks = wf.profile.Peaks(flops={"float32": 1e9}, bandwidth=1e9)
    x = wf.ones((200, 200))
    with OpProfiler(peaks=peaks) as profiler:
        x @ x
        wf.exp(x)
    table = profiler.table()
    for name, least in (("matmul", 2 * 200**3 / 1e9), ("exp", 2 * 4 * 200**2 / 1e9)):
        row = table[name]
        assert row.roofline == pytest.approx(least / row.self_seconds)
        assert row.gflops_per_second == pytest.approx(row.flops / row.self_seconds / 1e9)
    with pytest.raises(KeyError, match=r"there is .*'matmul'"):
        table["sin"]
    assert "outside of operations" in str(table)


# -- the GPU ---------------------------------------------------------------------------------


class _Event:
    """PyTorch's event, of a GPU that does work 100 times as slowly as it gets it."""

    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        _Cuda.clock += 1
        self.at = _Cuda.clock

    def synchronize(self):
        pass

    def elapsed_time(self, other):
        return 100.0 * (other.at - self.at)  # in milliseconds


class _Cuda:
    clock = 0
    Event = _Event

    @staticmethod
    def current_device():
        return 1

    @staticmethod
    def synchronize(device=None):
        pass


def test_times_on_a_gpu_are_those_between_its_events(monkeypatch):
    torch = pytest.importorskip("torch")
    from weft.profile.clock import CudaClock
    from weft.profile.recorder import Recorder, now

    _Cuda.clock = 0

    def mark(self, x, begins=False):
        """As if PyTorch's arrays on the CPU were on a GPU."""
        x = x[0] if x.__class__ in (list, tuple) else x
        if not isinstance(x, torch.Tensor):
            return None
        if self.cuda is None:
            self.cuda = CudaClock(now)
            self.cuda._cuda = _Cuda
        return self.cuda.begin() if begins else self.cuda.mark()

    monkeypatch.setattr(Recorder, "_mark", mark)
    x = wf.tensor(torch.ones(4, 4), requires_grad=True)
    with OpProfiler(peaks=wf.profile.Peaks({"float32": 1e9}, 1e9)) as profiler:
        loss = wf.tanh(x @ x).sum()
        loss.backward()
    events = profiler.events
    device = [e for e in events if e.thread == "cuda:1"]
    launches = [e for e in events if e.kind == "launch"]
    assert len(device) == len(launches) > 0 and len(device) + len(launches) == len(events)
    forward = [e for e in device if not e.back]
    assert [e.name for e in forward] == ["matmul", "tanh", "sum"]
    # Each has an event after it, 0.1 s of this GPU later, and begins where the last one ended.
    assert all(e.seconds == pytest.approx(0.1) for e in forward)
    starts = [e.start for e in forward]
    assert np.allclose(np.diff(starts), 0.1)
    (pull,) = [e for e in device if e.name == "matmul backward"]
    inside = [e for e in device if e.back and e.name in ("matmul", "conj", "permute")]
    assert pull.self_seconds == pytest.approx(pull.seconds - sum(e.seconds for e in inside))
    table = profiler.table()
    assert table["tanh"].self_seconds == pytest.approx(0.1)
    assert "launch" not in {r.name for r in table.rows}
    assert table["matmul"].calls == 1 + sum(e.name == "matmul" for e in inside)
