"""Schedules on disk: what is read is what was written, and is of the graph that asks for it."""

import sys
from dataclasses import is_dataclass, replace

import numpy as np
import pytest

import weft as wf
from weft.compiler import pipeline
from weft.compiler.cache import schedules as stored
from weft.compiler.cache.disk import cache
from weft.compiler.cpu import routines
from weft.compiler.cpu.runtime.executable import NativeExecutable
from weft.compiler.cpu.target import CPU
from weft.compiler.ir.verify import verify
from weft.compiler.memory import plan
from weft.compiler.pipeline import lower
from weft.core import dtypes
from weft.core.origin import line_of

from ..passes.graphs import X, Y, traced
from ..schedules import by_rows, compare, optimised, scheduled


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "objects"))
    return tmp_path / "objects"


def attends(x, y):
    w = wf.softmax(x @ y.T, axis=-1)
    return (w @ y).sum(), wf.concat([x, y]), wf.fft.rfft(x).real, wf.where(x > 0, -0.0, np.inf)


def norm(x, y):
    return wf.nn.functional.layer_norm(x, (4,), y[0], y[1]) * wf.tensor(np.arange(4.0, dtype="f4"))


def classes(x, y):
    return wf.nn.functional.cross_entropy(x, wf.tensor([1, 0, 3]))


def taken(x, y):
    return x[wf.tensor([0, 2, 2])] * wf.arange(4, dtype=wf.float32)


def anew(*arguments):
    raise AssertionError("a schedule was made again")


def lined(schedule):
    """The steps with the lines of the program that they are of; their instructions may differ."""

    def said(s):
        if hasattr(s, "origins"):
            return replace(s, origins=tuple(line_of(*o) for o in s.origins))
        return replace(s, origin=line_of(*s.origin))

    return [said(s) for s in schedule.steps]


@pytest.mark.parametrize("f", [attends, norm, classes, taken])
def test_a_schedule_comes_back_as_it_was(f, monkeypatch):
    graph = traced(f, X, Y)
    first, placed = lower(graph, {}, CPU)
    monkeypatch.setattr(pipeline, "optimise", anew)
    second, again = lower(traced(f, X, Y), {}, CPU)
    verify(second)
    assert str(second) == str(first) and again == placed == plan(first)
    assert second.buffers == first.buffers and lined(second) == lined(first)
    assert second.constants.keys() == first.constants.keys()
    for n, x in first.constants.items():
        y = second.constants[n]
        assert (y.dtype, y.shape, y.tobytes()) == (x.dtype, x.shape, x.tobytes())
    compare(NativeExecutable(second)([X, Y]), by_rows(graph, [X, Y]))


def test_places_in_the_program_are_those_of_the_graph_that_asks():
    def later(x, y):
        return wf.fft.rfft(x).real

    def earlier(x, y):
        return wf.fft.rfft(x).real

    lower(traced(later, X, Y), {}, CPU)
    schedule, _ = lower(traced(earlier, X, Y), {}, CPU)
    lines = {s.line for s in schedule.steps if hasattr(s, "line")}
    assert lines == {f"test_stored.py:{earlier.__code__.co_firstlineno + 1}"}


def keys(*graphs, donated=({},)) -> set:
    return {stored.key_of(g, d, CPU.key) for g in graphs for d in donated}


def test_what_differs_has_another_key():
    def scaled(by):
        return lambda x, y: x * by + y

    graphs = [traced(scaled(by), X, Y) for by in (2.0, 2, -2.0, 0.0, -0.0, float("nan"))]
    graphs += [traced(scaled(2.0), X.astype("f8"), Y), traced(scaled(2.0), X[:2], Y[:2])]
    held = [np.full(4, 3.0, "f4"), np.full(4, 3.5, "f4"), np.full((1, 4), 3.0, "f4")]
    graphs += [traced(lambda x, y, c=c: x * wf.tensor(c), X, Y) for c in held]
    graphs += [traced(lambda x, y: y * 2.0 + x, X, Y), traced(lambda x, y: x + y, X, Y)]
    graphs += [traced(lambda x, y, a=a: wf.flip(x, axis=a), X, Y) for a in (0, 1)]
    assert len(keys(*graphs)) == len(graphs)
    assert keys(graphs[0]) == keys(traced(scaled(2.0), X, Y))
    assert len(keys(graphs[0], donated=({}, {0: 0}, {0: 1}))) == 3


def test_a_constant_that_is_repeated_is_read_once():
    one, row = np.float32(1), np.arange(3, dtype="f4")
    held = [(one, (1 << 50,)), (one, (1 << 49,)), (one + 1, (1 << 50,)), (one, (1 << 25, 1 << 25))]
    held += [(row, (3, 3)), (row[:, None], (3, 3)), (row, (4, 3)), (row[::-1], (3, 3))]
    texts = {stored._constant_text(np.broadcast_to(x, shape)) for x, shape in held}
    assert len(texts) == len(held)
    assert stored._constant_text(np.broadcast_to(row.copy(), (3, 3))) in texts


def test_a_default_dtype_has_another_key():
    before = keys(traced(lambda x, y: x + y, X, Y))
    wf.set_default_dtype(wf.float64)
    try:
        assert before.isdisjoint(keys(traced(lambda x, y: x + y, X, Y)))
    finally:
        wf.set_default_dtype(wf.float32)


def test_a_large_constant_is_the_graphs_own(folder):
    big = np.arange(1 << 18, dtype=np.float32)
    f = lambda x: (x * wf.tensor(big)).sum()  # noqa: E731
    lower(traced(f, big), {}, CPU)
    assert sum(p.stat().st_size for p in folder.iterdir()) < 1 << 14
    schedule, _ = lower(traced(f, big), {}, CPU)
    assert any(x.tobytes() == big.tobytes() for x in schedule.constants.values())


def test_a_large_constant_of_a_pass_is_kept(monkeypatch):
    big = np.arange(1 << 18, dtype=np.float32)
    f = lambda x: (x * (wf.tensor(big) + 1)).sum()  # noqa: E731
    first, placed = lower(traced(f, big), {}, CPU)
    monkeypatch.setattr(pipeline, "optimise", anew)
    second, again = lower(traced(f, big), {}, CPU)
    assert again == placed and any(x.nbytes == big.nbytes for x in first.constants.values())
    assert all(x.tobytes() == second.constants[n].tobytes() for n, x in first.constants.items())


def random_constant(rng):
    shape = tuple(int(n) for n in rng.integers(0, 5, rng.integers(0, 4)))
    names = "float32 float64 int32 int64 uint8 bool complex64 bfloat16".split()
    x = rng.integers(0, 9, shape).astype(dtypes.canonical(names[rng.integers(len(names))]))
    kind = rng.integers(0, 4)
    if kind == 1:
        return np.broadcast_to(x, (3, *shape))
    if kind == 2 and x.ndim:
        return np.broadcast_to(x[..., :1], shape) if shape[-1] else x
    return x.T if kind == 3 else x


@pytest.mark.parametrize("seed", range(40))
def test_constants_of_every_form_come_back(seed):
    """Also after others, so that their bytes begin anywhere; what comes back is aligned."""
    rng = np.random.default_rng(seed)
    graph = traced(norm, X, Y)
    schedule, placed = pipeline.lower_anew(graph, {}, CPU)
    constants = {n: random_constant(rng) for n in range(6)}
    stored.keep(graph, "key", replace(schedule, constants=constants), placed)
    kept = stored.fetch("key")
    assert kept is not None
    found = stored.read(graph, kept)[0].constants
    for n, x in constants.items():
        y = found[n]
        assert (y.dtype, y.shape, y.tobytes()) == (x.dtype, x.shape, x.tobytes())
        assert y.flags.aligned and stored._constant_text(y) == stored._constant_text(x)


def test_many_bytes_of_new_constants_are_not_kept(folder, monkeypatch):
    monkeypatch.setattr(stored, "CONSTANTS", 0)
    first, _ = lower(traced(classes, X, Y), {}, CPU)
    assert first.constants and not folder.exists()


def test_a_users_own_operation_is_not_kept(folder):
    class Outside(wf.CustomOp):
        def forward(self, inputs):
            return wf.asarray(inputs[0].numpy() ** 3)

        def backward(self, grad_output, inputs):
            return [wf.asarray(grad_output.numpy() * 3 * inputs[0].numpy() ** 2)]

    op = Outside()
    compiled = wf.compile(lambda x: op(x))
    assert compiled(wf.tensor([2.0])).item() == 8.0
    assert not folder.exists()


def test_a_damaged_entry_is_made_anew(folder):
    graph = traced(norm, X, Y)
    first, _ = lower(graph, {}, CPU)
    (entry,) = folder.iterdir()
    entry.write_bytes(entry.read_bytes()[:-1] + b"?")
    second, _ = lower(graph, {}, CPU)
    assert str(second) == str(first)


def test_without_a_cache_nothing_is_looked_for(monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", "")
    assert cache().folder is None
    monkeypatch.setattr(stored, "_GraphTexts", anew)
    schedule, _ = lower(traced(norm, X, Y), {}, CPU)
    assert str(schedule) == str(scheduled(optimised(traced(norm, X, Y))))


def test_no_two_classes_of_entries_have_one_name():
    """Entries call them by it."""
    folder = routines.__name__
    modules = [m for name, m in sys.modules.items() if name.startswith(f"{folder}.")]
    made = {k for m in modules for k in vars(m).values() if isinstance(k, type) and is_dataclass(k)}
    own = {k for k in made if k.__module__.startswith(folder)}
    names = [k.__name__ for k in own | {*stored._CLASSES, *stored._STEPS}]
    assert len(own) > 10 and sorted(names) == sorted(set(names))
