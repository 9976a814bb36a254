"""Loops and branches as grid routines in the emulator: the same results as eager."""

import sys
from collections import Counter
from dataclasses import is_dataclass

import numpy as np
import pytest

import weft as wf
from weft import errors
from weft.compiler.cache import keys, schedules
from weft.compiler.cuda.routines import control
from weft.compiler.cuda.routines.control import ControlRoutine, GridScan
from weft.compiler.cuda.runtime.executable import CudaExecutable
from weft.compiler.ir.schedule import LibraryStep, NativeStep
from weft.compiler.pipeline import using
from weft.compiler.raw.arrays import arrays_on

from ..test_loops import PROGRAMS, C, alike, drawing, t
from .emulated_gpu import emulated_target
from .loops import GRIDS, emulated

# Programs of which some loop has no form on a grid, and why.
REASONS = {
    "loops in loops": "a GPU has no sin",
    "gradient of loops in loops": "a GPU has no sin",
    "loop in cond": "a GPU has no sin",
    "a sort": "prepared_sort",
    "a decomposition": "solve",
    "complex numbers": "kernels do not hold complex128",
}


def compiled_steps(f, *args):
    """The results of a compiled function on grids, and its steps."""
    compiled = wf.compile(f)
    with using(GRIDS):
        made = compiled(*args)
        return made, compiled._last().executable.schedule.steps


def routines_of(steps) -> list[ControlRoutine]:
    native = [s.routine for s in steps if isinstance(s, NativeStep)]
    return [r for r in native if isinstance(r, ControlRoutine)]


@pytest.mark.parametrize("shared", [control.SHARED, 0])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_eager(name, shared, monkeypatch, tmp_path):
    monkeypatch.setattr(control, "SHARED", shared)
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))  # sizes of scratch memory are stored
    f, *args = PROGRAMS[name]
    args = [t(a) for a in args]
    made, steps = compiled_steps(f, *args)
    alike(f(*args), made)
    loops = [
        s for s in steps if isinstance(s, LibraryStep) and s.op.name in ("scan", "cond", "while")
    ]
    assert bool(loops) == (name in REASONS)
    assert all(REASONS[name] in s.reason or "library for" in s.reason for s in loops)


# -- a recurrent cell ------------------------------------------------------------------------------

STEPS, BATCH, WIDTH = 6, 32, 64


def cell_loss(w, u, b, xs, h):
    def step(h, x):
        h = wf.tanh(h @ w.T + x @ u.T + b)
        return h, h

    _, ys = wf.scan(step, h, xs)
    return (ys * ys).mean()


def cell_gradient(*args):
    return wf.value_and_grad(cell_loss, (0, 1, 2))(*args)


def cell_arrays(dtype="f4", batch=BATCH) -> list:
    rng = np.random.default_rng(0)
    shapes = ((WIDTH, WIDTH), (WIDTH, WIDTH), (WIDTH,), (STEPS, batch, WIDTH), (batch, WIDTH))
    return [t((rng.standard_normal(s) / 8).astype(dtype)) for s in shapes]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_a_recurrent_cell_and_its_gradient_are_two_kernels(dtype):
    args = cell_arrays(dtype)
    made, steps = compiled_steps(cell_gradient, *args)
    alike(cell_gradient(*args), made)
    forward, backward = routines_of(steps)
    assert not any(isinstance(s, LibraryStep) for s in steps)
    for routine in (forward, backward):
        assert isinstance(routine, GridScan) and routine.near
        assert routine.blocks == BATCH  # a row each
        products = [line for line in routine.describe() if "product" in line]
        assert products == [f"product 1×{WIDTH} · {WIDTH}×{WIDTH}"]
        assert len(routine.carries) == 1  # the gradients of weights are summed up outside
        assert sum(c.waits for c in routine.block.calls) == 1


def test_blocks_have_scratch_memory_of_their_own(monkeypatch, tmp_path):
    monkeypatch.setattr(control, "SHARED", 0)
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    _, steps = compiled_steps(cell_gradient, *cell_arrays())
    for routine in routines_of(steps):
        (scratch,) = routine.scratch
        assert scratch.size == BATCH * routine.size and routine.size >= routine.block.scratch


def test_a_cell_of_one_row_is_in_one_block():
    args = cell_arrays(batch=1)
    made, steps = compiled_steps(cell_gradient, *args)
    alike(cell_gradient(*args), made)
    assert [r.blocks for r in routines_of(steps)] == [1, 1]


def stage_results(routine: ControlRoutine, down: bool, faults=frozenset()):
    """What a routine computes of some arrays; None if threads wait in different places."""
    rng = np.random.default_rng(1)
    whole = (*routine.operands, *routine.results, *routine.scratch)
    arrays = [np.full(a.shape, 77, a.dtype) for a in whole]
    for a in arrays[: len(routine.operands)]:
        a[...] = rng.standard_normal(a.shape) / 4
    (stage,) = routine.stages
    emulator = emulated(stage, faults)
    emulator.run(*[arrays[i] for i in stage.arrays], down=down)
    first = len(routine.operands)
    return emulator.barriers, arrays[first : first + len(routine.results)]


def test_a_missing_barrier_shows():
    _, steps = compiled_steps(cell_gradient, *cell_arrays())
    for routine in routines_of(steps):
        count, want = stage_results(routine, False)
        missed = []
        for k in range(count):
            runs = [stage_results(routine, down, frozenset([k]))[1] for down in (False, True)]
            same = [all(map(np.array_equal, want, run)) for run in runs]
            missed += [k] if all(same) else []
        # A thread of the backward loop reads only those of the first carries that it has copied.
        assert missed == ([0] if routine.reverse else [])


@pytest.mark.parametrize(
    "body, blocks",
    [
        (lambda h, x: wf.tanh(h + x), 6),
        (lambda h, x: wf.softmax(h * x, -1), 6),
        (lambda h, x: h - h.sum(-1, keepdims=True) + x, 6),
        (lambda h, x: wf.tanh(h @ t(np.eye(5)) + x), 6),
        (lambda h, x: h @ (x.T @ x), 6),  # what needs no carry may be of all rows
        (lambda h, x: h - h.sum(0), 1),
        (lambda h, x: wf.tanh(h @ h.T @ x), 1),
        (lambda h, x: wf.tanh(t(np.eye(6)) @ h) + x, 1),
        (lambda h, x: wf.flip(h, axis=0) * 0.9 + x, 1),
        (lambda h, x: wf.concat([h[1:], h[:1]], axis=0) * 0.5 + x, 1),
    ],
)
def test_rows_that_are_mixed_stay_together(body, blocks):
    rng = np.random.default_rng(0)
    h, xs = (t(rng.standard_normal(s)) for s in ((6, 5), (4, 6, 5)))

    def f(h, xs):
        return wf.scan(lambda h, x: (body(h, x), h * 2), h, xs)

    made, steps = compiled_steps(f, h, xs)
    alike(f(h, xs), made)
    assert [r.blocks for r in routines_of(steps)] == [blocks]


def test_a_body_with_too_much_work_says_so():
    x = t(np.ones((1, 1 << 22), "f4"))
    _, steps = compiled_steps(lambda x: wf.scan(lambda h, _: (h * 0.5, None), x, length=2)[0], x)
    (loop,) = [s for s in steps if isinstance(s, LibraryStep)]
    assert (
        loop.reason == "a step of its body has 4194304 elements and terms, too many for one block"
    )


# -- routines in bodies, and on disk ---------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"reverse": True}, {"segments": 2}], ids=str)
def test_draws_in_loops_are_those_of_eager(options):
    compiled = wf.compile(lambda c: drawing(c, **options))
    wf.random.seed(5)
    want = [drawing(t(C), **options) for _ in range(3)], wf.rand(2)
    wf.random.seed(5)
    with using(GRIDS):
        made = [compiled(t(C)) for _ in range(3)]
        steps = compiled._last().executable.schedule.steps
    alike(want, (made, wf.rand(2)))
    assert routines_of(steps) and all(r.draws for r in routines_of(steps))


def test_an_index_outside_in_a_loop_is_an_error_and_leaves_no_array():
    order = t(np.array([0, 3, 99, 2]))
    compiled = wf.compile(lambda c, i: wf.scan(lambda s, k: (s * c[k], None), c, i)[0])
    with using(GRIDS), pytest.raises(errors.IndexingError, match="99"):
        compiled(t(C), order)


@pytest.mark.parametrize("name", ["gradient", "cond in a loop", "while", "vmap of gradients"])
def test_a_loop_from_the_disk_is_the_same(name, monkeypatch, tmp_path):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    found = []
    read = schedules.read
    monkeypatch.setattr(schedules, "read", lambda *args: found.append(1) or read(*args))
    f, *args = PROGRAMS[name]
    first, second = (routines_of(compiled_steps(f, *map(t, args))[1]) for _ in range(2))
    assert found and first == second and list(map(hash, first)) == list(map(hash, second))
    texts = [[keys.digest("ptx", (s, 90)) for r in x for s in r.stages] for x in (first, second)]
    assert texts[0] == texts[1]


def test_records_of_routines_have_names_of_their_own():
    """Entries on disk name them: those of two targets must not be mistaken for each other."""
    packages = ("weft.compiler.cpu.routines", "weft.compiler.cuda.routines")
    known = [
        (k.__name__, k.__module__)
        for name, module in list(sys.modules.items())
        if name.startswith(packages)
        for k in vars(module).values()
        if isinstance(k, type) and is_dataclass(k) and k.__module__ == name
    ]
    names = Counter(name for name, _ in set(known))
    assert not {name for name, count in names.items() if count > 1}


# -- whole programs of the target ------------------------------------------------------------------


@pytest.mark.parametrize("batch", [BATCH, 1])
def test_a_cells_gradient_on_an_emulated_gpu(batch, monkeypatch):
    """By the target's own executable, at each call."""
    monkeypatch.setattr(arrays_on("torch"), "host_runtime", False)
    args = [a.to("torch") for a in cell_arrays(batch=batch)]
    want = cell_gradient(*args)
    compiled = wf.compile(cell_gradient)
    target = emulated_target()
    with using(target):
        for _ in range(3):
            alike(want, compiled(*args))
        executable = compiled._last().executable
    assert isinstance(executable, CudaExecutable)
    assert [r.split for r in routines_of(executable.schedule.steps)] == [batch, batch]
    assert not any(isinstance(s, LibraryStep) for s in executable.schedule.steps)
