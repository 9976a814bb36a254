"""The memory profiler: measured deltas, lines, the census, and leaks that are named or absent."""

import gc
import os
import sys
import tracemalloc
from collections import deque
from random import Random
from types import ModuleType

import numpy as np
import pytest

import weft as wf
from weft.profile import Counter, GradientMemoryProfiler, census, origins

SOAK = os.environ.get("WEFT_SOAK") == "1"
ITERATIONS = 1000  # of loops that must give no alarm


class Net(wf.nn.Module):
    """A small network with dropout, batch normalization and a skip connection."""

    def __init__(self):
        super().__init__()
        self.first, self.second = wf.nn.Linear(16, 32), wf.nn.Linear(32, 16)
        self.norm, self.drop = wf.nn.BatchNorm1d(32), wf.nn.Dropout(0.1)

    def forward(self, x):
        return x + self.second(self.drop(wf.tanh(self.norm(self.first(x)))))


def here(offset: int = 0) -> str:
    """This file and the caller's line."""
    frame = sys._getframe(1)
    return f"{os.path.basename(__file__)}:{frame.f_lineno + offset}"


@pytest.fixture(autouse=True)
def collected():
    gc.collect()


# -- checkpoints ---------------------------------------------------------------------------------


def test_deltas_are_measured_bytes():
    with GradientMemoryProfiler() as profiler:
        profiler.record_checkpoint("a")
        x = np.zeros((256, 1024), np.float32)
        profiler.record_checkpoint("b")
        y = np.zeros((256, 1024))
        del x
        profiler.record_checkpoint("c")
        assert profiler.live_bytes == y.nbytes
    assert profiler.get_memory_delta("a", "b") == 1.0
    assert profiler.get_memory_delta("b", "c") == 1.0
    assert profiler.get_memory_delta("c", "b") == -1.0
    assert [c.live for c in profiler.timeline] == [0, 1 << 20, 2 << 20]
    assert profiler.timeline[2].peak == profiler.peak_bytes == 3 << 20
    times = [c.seconds for c in profiler.timeline]
    assert times == sorted(times)


def test_of_names_used_again_the_latest_count():
    kept = []
    with GradientMemoryProfiler() as profiler:
        for size in (1, 2, 3):
            profiler.record_checkpoint("before")
            kept.append(np.zeros((size, 1 << 20), np.uint8))
            profiler.record_checkpoint("after")
    assert profiler.get_memory_delta("before", "after") == 3.0
    assert profiler.get_memory_delta("after", "before") == 0.0
    assert profiler.checkpoint("before").live == 3 << 20


def test_misuse_is_refused():
    profiler = GradientMemoryProfiler()
    with pytest.raises(wf.errors.ArgumentError, match=r"start_profiling\(\) first"):
        profiler.record_checkpoint("a")
    with pytest.raises(wf.errors.ArgumentError, match=r"start_profiling\(\) first"):
        profiler.stop_profiling()
    with profiler:
        with pytest.raises(wf.errors.ArgumentError, match="already"):
            profiler.start_profiling()
        profiler.record_checkpoint("known")
    with pytest.raises(wf.errors.ArgumentError, match="'b'; recorded are 'known'"):
        profiler.get_memory_delta("known", "b")


def test_the_profile_agrees_with_tracemalloc():
    """A training step, its live bytes and its peak: within 1 % of what tracemalloc has."""
    net, x = wf.nn.Linear(512, 512), wf.randn((2048, 512))

    def step():
        loss = (wf.tanh(net(x)) ** 2).mean()
        loss.backward()
        return loss

    step()
    domain = tracemalloc.DomainFilter(inclusive=True, domain=np.lib.tracemalloc_domain)
    tracemalloc.start()
    with GradientMemoryProfiler() as profiler:
        kept = step()
        point = profiler.record_checkpoint("step")
    peak = tracemalloc.get_traced_memory()[1]
    live = sum(t.size for t in tracemalloc.take_snapshot().filter_traces((domain,)).traces)
    tracemalloc.stop()
    assert point.live == live and abs(point.peak - peak) <= 0.01 * peak and kept.requires_grad


# -- lines ---------------------------------------------------------------------------------------


def test_bytes_by_line_and_operation():
    x = wf.zeros((128, 128), requires_grad=True)
    with GradientMemoryProfiler() as profiler:
        y = wf.exp(x)
        made = here(-1)
        z = y @ y
        point = profiler.record_checkpoint("forward")
        (z * y).sum().backward()
        after = profiler.record_checkpoint("backward")
    lines = {(p.line, p.op, p.back): n for p, n in point.by_place.items()}
    assert lines[made, "exp", False] == y.nbytes
    assert sorted(p.op for p in point.by_place) == ["exp", "matmul"]
    assert sum(point.by_place.values()) == point.live
    assert point.by_op == {"exp": y.nbytes, "matmul": z.nbytes} and point.by_line[made] == y.nbytes
    (back,) = [p for p in after.by_place if p.back]
    assert back.op == "exp" and back.line == made and after.by_place[back] == x.nbytes
    assert f"backward of exp at {made}" in profiler.report()
    del y, z, x
    assert not {p.op for p in origins.live_by_place()} & {"exp", "matmul"}


def test_noting_lines_keeps_nothing_alive():
    """Looking into frames must not prolong the life of what they hold."""

    def measured(profile):
        x = wf.ones((64, 1024), requires_grad=True)
        with Counter() as counter:
            if profile:
                profile.start_profiling()
            h = x
            for _ in range(6):
                h = wf.tanh(h * 2 + 1)
            h.sum().backward()
            if profile:
                profile.detect_leaks()
                profile.stop_profiling()
            del h
            live = counter.live
        return live, counter.peak

    measured(None)
    assert measured(GradientMemoryProfiler()) == measured(None)


# -- the census ----------------------------------------------------------------------------------


def test_the_census_says_what_each_array_is():
    weight = wf.Parameter(wf.ones((50, 70)))
    optimizer = wf.optim.Adam([weight], lr=0.1)
    (weight * weight).sum().backward()
    optimizer.step()
    leaf = wf.ones((33, 3), requires_grad=True)
    saved = wf.exp(leaf)
    view = wf.zeros((44, 4))[1:]
    kept = [wf.zeros((17, 3))]
    found = {}
    for a in census().arrays:
        found.setdefault(a.shape, []).append(a)
    roles = sorted(a.role for a in found[50, 70])
    assert roles == ["gradient", "optimizer state", "optimizer state", "parameter"]
    assert {a.holder for a in found[50, 70]} > {
        "`weight` of function test_the_census_says_what_each_array_is (test_memory_profiler.py)",
        "exp_sum, state of Adam",
    }
    roles = {a.role: a for a in found[33, 3]}
    assert set(roles) == {"leaf", "saved"} and "`leaf`" in roles["leaf"].holder
    assert roles["saved"].holder.startswith("saved by exp at test_memory_profiler.py:")
    (part,) = found[43, 4]
    assert part.nbytes == 44 * 4 * 4 and "`view`" in part.holder
    assert found[17, 3][0].role == "tensor" and str(census()).count("\n") > 5
    del saved, view, kept


def test_the_census_knows_lines_of_what_was_profiled():
    with GradientMemoryProfiler():
        big = wf.zeros((100, 777))
        line = here(-1)
    (found,) = [a for a in census().arrays if a.shape == (100, 777)]
    assert found.line == line and census().by_line[line] == found.nbytes == big.nbytes


def test_the_census_counts_memory_once():
    x = wf.zeros((123, 321))
    views = [x[i:] for i in range(20)]
    assert sum(a.nbytes == x.nbytes for a in census().arrays) == 1 and len(views) == 20


# -- leaks ---------------------------------------------------------------------------------------


class Holder:
    pass


def _leaks(step, iterations=12, tick=None):
    with GradientMemoryProfiler() as profiler:
        for i in range(iterations):
            step(i)
            if tick:
                profiler.record_checkpoint(tick)
        return profiler.detect_leaks()


def _loss(x):
    return (wf.tanh(x) * x).sum()


LOSS = f"{os.path.basename(__file__)}:{_loss.__code__.co_firstlineno + 1}"


def _keep_in(kind, loss, local, owner, module):
    """Keep a value in one of several ways."""
    if kind == "closure":
        local.append(lambda: loss.item())
    elif kind == "dict":
        owner.by_step[len(owner.by_step)] = loss
    else:
        {"list": local, "global": module.kept, "attribute": owner.history}[kind].append(
            loss if kind != "list" else (1, loss)
        )


HELD = {
    "list": "a tuple in list `local` of function test_a_kept_loss_is_named_by_its_line",
    "global": "list `kept` in module made_by_a_test",
    "attribute": "list `.history` of Holder",
    "dict": "dict `.by_step` of Holder",
    "closure": "closure of function <lambda> (test_memory_profiler.py:",
}


@pytest.mark.parametrize("backward", [True, False])
@pytest.mark.parametrize("kind", HELD)
def test_a_kept_loss_is_named_by_its_line(kind, backward, monkeypatch):
    module = ModuleType("made_by_a_test")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    local, owner, module.kept = [], Holder(), []
    owner.history, owner.by_step = [], {}
    x = wf.ones((100, 100), requires_grad=True)

    def step(i):
        loss = _loss(x)
        if backward:
            loss.backward()
        _keep_in(kind, loss, local, owner, module)

    report = _leaks(step, tick=None if backward else "step")
    (leak,) = report.leaks
    assert report.num_suspicious == 1 and leak.place.op == "sum" and leak.place.line == LOSS
    assert leak.count == 12 and f"held by {HELD[kind]}" in leak.reason
    assert leak.nbytes >= (48 if backward else 12 * 40_000) and LOSS in str(report)


def test_a_graph_that_grows_is_named():
    x, total = wf.ones((50, 50), requires_grad=True), [0.0]

    def step(i):
        loss = _loss(x)
        loss.backward()
        total[0] = total[0] + loss

    (leak,) = _leaks(step).leaks
    line = step.__code__.co_firstlineno + 3
    assert (leak.place.op, leak.place.line) == ("add", f"{os.path.basename(__file__)}:{line}")
    assert "graph reaches back" in leak.reason and "list `total`" in leak.reason


def test_a_hidden_state_that_is_not_detached_is_named():
    w, state = wf.ones((8, 8), requires_grad=True), Holder()
    state.hidden = wf.ones((8, 8))

    def step(i):
        state.hidden = wf.tanh(state.hidden @ w)

    (leak,) = _leaks(step, tick="step").leaks
    assert leak.place.op == "tanh" and "graph reaches back" in leak.reason
    assert "`.hidden` of Holder" in leak.reason


def test_large_values_without_a_graph_are_named():
    kept = []

    def step(i):
        with wf.no_grad():
            kept.append(wf.exp(wf.zeros((200, 200))))

    (leak,) = _leaks(step, tick="step").leaks
    assert leak.place.op == "exp" and leak.count == 12 and leak.nbytes == 12 * 160_000
    assert "list `kept`" in leak.reason


def test_kept_states_of_one_chain_are_one_leak():
    """The operations behind kept values are not leaks of their own."""
    w, states = wf.ones((8, 8), requires_grad=True), [wf.ones((8, 8))]

    def step(i):
        states.append(wf.tanh(wf.sin(states[-1]) @ w))

    (leak,) = _leaks(step, tick="step").leaks
    assert leak.place.op == "tanh" and leak.count == 12 and "list `states`" in leak.reason


def test_a_few_values_without_a_graph_are_no_leak():
    kept = []
    assert _leaks(lambda i: kept.append(wf.zeros(5000)), tick="step").num_suspicious == 0


def test_gradients_that_come_one_by_one_are_no_leak():
    """They stay, but they belong to parameters."""
    weights = [wf.Parameter(wf.ones((256, 256))) for _ in range(12)]
    x = wf.ones((256, 256))
    assert _leaks(lambda i: (weights[i] * x).sum().backward()).num_suspicious == 0
    assert sum(w.grad.nbytes for w in weights) == 12 << 18


def test_kept_numbers_of_a_compiled_function_are_named():
    w, kept = wf.Parameter(wf.ones((30, 30))), []

    @wf.compile
    def step(x):
        loss = wf.tanh(x @ w).mean()
        loss.backward()
        return loss

    x = wf.ones((30, 30))
    (leak,) = _leaks(lambda i: kept.append(step(x)), 20, tick="step").leaks
    assert leak.count == 20 and "list `kept`" in leak.reason and leak.place.op == "mean"


@pytest.mark.parametrize("every", [1, 3, 7])
def test_a_slow_leak_is_named(every):
    x, kept = wf.ones((20, 20), requires_grad=True), []

    def step(i):
        loss = _loss(x)
        loss.backward()
        if i % every == 0:
            kept.append(loss)

    (leak,) = _leaks(step, iterations=100).leaks
    assert leak.place.line == LOSS and leak.count == len(kept)


def _training(check):
    """A clean loop with what clean loops keep: state, averages, recent values, numbers."""
    net = Net()
    optimizer = wf.optim.Adam(net.parameters(), lr=1e-3)
    ema = wf.optim.EMA(net.parameters(), decay=0.9)
    data = [wf.randn((8, 16)) for _ in range(10)]
    recent, history, detached, best = deque(maxlen=20), [], [], None
    draw = Random(0)
    with GradientMemoryProfiler() as profiler:
        for i in range(ITERATIONS):
            x = data[i % 10]
            hidden = [x]
            for _ in range(3):
                hidden.append(net(hidden[-1]))
            loss = ((hidden[-1] - x) ** 2).mean()
            loss.backward()
            if i % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
                ema.update()
            recent.append(loss)
            history.append(loss.item())
            detached.append(loss.detach())
            if best is None or draw.random() < 0.01:
                best = [p.detach().clone() for p in net.parameters()]
            if check and i % 100 == 50:
                profiler.record_checkpoint("step")
                assert profiler.detect_leaks().num_suspicious == 0
        return profiler.detect_leaks()


def test_garbage_is_no_leak():
    """What only a cycle holds is freed when garbage is collected."""
    x = wf.ones((20, 20), requires_grad=True)
    gc.disable()

    def step(i):
        loss = _loss(x)
        loss.backward()
        cycle = [loss]
        cycle.append(cycle)

    report = _leaks(step)
    gc.enable()
    assert report.num_suspicious == 0


@pytest.mark.parametrize("check", [False, True])
def test_a_clean_loop_gives_no_alarm(check):
    report = _training(check)
    assert report.num_suspicious == 0, str(report)
    assert report.iterations >= ITERATIONS and "no leak" in str(report)


def test_a_clean_compiled_loop_gives_no_alarm_and_a_kept_result_is_named():
    w = wf.Parameter(wf.ones((300, 300)))
    optimizer = wf.optim.SGD([w], lr=1e-3)

    @wf.compile
    def step(x):
        y = wf.tanh(x @ w)
        (y * y).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        return y

    x, kept = wf.ones((300, 300)), []
    assert _leaks(lambda i: step(x), 50, tick="step").num_suspicious == 0
    (leak,) = _leaks(lambda i: kept.append(step(x)), 50, tick="step").leaks
    assert leak.count == 50 and "list `kept`" in leak.reason
    assert leak.place.line.startswith(os.path.basename(__file__))


@pytest.mark.parametrize("seed", range(60 if SOAK else 8))
def test_random_loops(seed):
    """Whichever of a step's values are kept, those lines are named, and no others."""
    draw = Random(seed)
    net = Net()
    keeps = [draw.random() < 0.3 for _ in range(3)]
    backward, ticks = draw.random() < 0.7, draw.random() < 0.5
    kept, x = [[] for _ in keeps], wf.randn((8, 16))

    def step(i):
        a = net(x)
        b = wf.exp(-wf.abs(a))
        c = (b * b).mean()
        if backward:
            c.backward()
        for keep, values, value in zip(keeps, kept, (a, b, c), strict=True):
            if keep:
                values.append(value)

    report = _leaks(step, draw.randrange(6, 40), tick="step" if ticks or not backward else None)
    first, file = step.__code__.co_firstlineno, os.path.basename(__file__)
    made = [Net.forward.__code__.co_firstlineno + 1, first + 2, first + 3]
    lines = {f"{file}:{line}" for line, keep in zip(made, keeps, strict=True) if keep}
    assert {leak.place.line for leak in report.leaks} == lines
