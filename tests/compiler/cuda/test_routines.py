"""Routines of a GPU: programs that use them, their records, and their PTX."""

import sys
from dataclasses import is_dataclass, replace

import numpy as np
import pytest

import weft as wf
from weft.compiler.cache import schedules
from weft.compiler.cpu.target import CPU
from weft.compiler.cuda.routines.draws import GridDraw
from weft.compiler.cuda.routines.gather import GridTake, GridTakeAlong
from weft.compiler.cuda.routines.pools import GridMaxPool, GridPoolPut, Windows
from weft.compiler.cuda.routines.routine import GridRoutine
from weft.compiler.cuda.routines.running import GridRunning
from weft.compiler.cuda.routines.scatter import GridScatterSum, GridSegmentSum
from weft.compiler.cuda.routines.table import ROWS
from weft.compiler.cuda.routines.writes import GridIndexPut, GridLastWrites
from weft.compiler.cuda.stage import build_stage
from weft.compiler.emit.variates import Below, Integers, Normal, Uniform, Words
from weft.compiler.ir.schedule import LibraryStep, NativeStep
from weft.compiler.pipeline import using
from weft.core import dtypes

from ..cpu import test_routines as cpu_rows
from ..cpu import test_routines_running as cpu_running
from ..routines import steps_of
from .assembler import assemble, needs_ptxas
from .emulated_target import EMULATED

RNG = np.random.default_rng(3)


def results(f, arrays) -> list[np.ndarray]:
    wf.random.seed(7)
    made = f(*map(wf.tensor, arrays))
    return [x.detach().numpy() for x in (made if isinstance(made, tuple) else (made,))]


def compare(f, arrays, names: set[str], units: float = 16) -> None:
    """What eager mode gives, by these routines."""
    want = results(f, arrays)
    with using(EMULATED):
        g = wf.compile(f)
        got = results(g, arrays)
        steps = steps_of(g)
    for a, b in zip(got, want, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        eps = np.finfo(a.dtype).eps if a.dtype.kind == "f" else 0
        top = np.abs(b[np.isfinite(b)], dtype=np.float64).max(initial=0)
        np.testing.assert_allclose(a, b, rtol=units * eps, atol=units * eps * top)
    found = {type(s.routine).__name__ for s in steps if isinstance(s, NativeStep)}
    assert found >= names, found
    library = {s.op.name for s in steps if isinstance(s, LibraryStep)}
    assert not library & {*ROWS}, library


@pytest.mark.parametrize("name", cpu_rows.ROWS)
def test_rows_and_gradients(name):
    f, arrays = cpu_rows.ROWS[name]
    for g in (f, cpu_rows.gradient(f)):
        compare(g, arrays, set())


@pytest.mark.parametrize("name", cpu_running.FUNCTIONS)
def test_running(name):
    for shape, axis in (((3, 70), 1), ((70, 3), 0), ((2, 5, 4), 1)):
        f = cpu_running.FUNCTIONS[name]
        x = RNG.standard_normal(shape).astype(np.float32)
        compare(lambda x, f=f, axis=axis: f(x, axis), [x], {"GridRunning"}, 512)


def test_an_embedding_and_its_gradient():
    table, i = RNG.standard_normal((50, 24)).astype(np.float32), RNG.integers(0, 50, (4, 9))

    def step(table, i):
        table = table.detach().requires_grad_()
        y = wf.nn.functional.embedding(i, table)
        return y, (y * y).sum().backward()[table]

    compare(step, [table, i], {"GridTake", "GridSegmentSum"})


def test_dropout_noise_and_writes():
    x, i = RNG.standard_normal((5, 40)).astype(np.float32), np.array([1, 3, 1])

    def step(x, i):
        y = wf.nn.functional.dropout(x, 0.4) + wf.random.randn((5, 40))
        y = y * wf.random.uniform(-1.0, 2.0, (5, 40)) + wf.random.randint(0, 9, (5, 40))
        y[i] = x[:3]
        return y, wf.random.permutation(10)

    compare(step, [x, i], {"GridDraw", "GridIndexPut"}, 4)


def test_indices_outside_are_refused_before_they_are_used():
    with using(EMULATED):
        f = wf.compile(lambda x, i: x[i])
        with pytest.raises(wf.errors.IndexingError, match="index 9 is out of range"):
            f(wf.ones(7), wf.tensor([2, 9]))


# -- records ---------------------------------------------------------------------------------


def test_schedules_with_routines_are_stored_and_come_back(monkeypatch):
    f = wf.compile(lambda x, i: wf.cumulative_sum(x[i], axis=1) + wf.random.randn((3, 70)))
    x, i = RNG.standard_normal((4, 70)).astype(np.float32), np.array([0, 3, 3])
    with using(EMULATED):
        first = results(f, [x, i])
        variant = f._last()
        schedule, plan = variant.executable.schedule, variant.executable.plan
        graph = variant.graph
    key = schedules.key_of(graph, {}, ("some target",))
    schedules.keep(graph, key, schedule, plan)
    kept = schedules.fetch(key)
    assert kept is not None
    again, placed = schedules.read(graph, kept)
    assert placed == plan and len(first) == 1
    ours = [s.routine for s in schedule.steps if isinstance(s, NativeStep)]
    assert [s.routine for s in again.steps if isinstance(s, NativeStep)] == ours
    assert {type(r) for r in ours} == {GridTake, GridRunning, GridDraw}


def test_no_two_records_of_the_targets_have_one_name():
    assert CPU.key  # its routines are loaded
    ours = tuple(name for name in schedules.ROUTINES if name.startswith("weft."))
    names = [name for name in sys.modules if name.startswith(ours)]
    made = {k for n in names for k in vars(sys.modules[n]).values() if isinstance(k, type)}
    own = [k.__name__ for k in made if is_dataclass(k) and k.__module__ in names]
    others = [k.__name__ for k in (*schedules._CLASSES, *schedules._STEPS)]
    assert len(own) > 40 and len({*own, *others}) == len(own) + len(others)


# -- PTX -------------------------------------------------------------------------------------

F, B, L = dtypes.float32, dtypes.bfloat16, dtypes.int64
SUMS = ("cumsum", "cumprod", "logcumsumexp", "linear_recurrence")
VARIATES = [
    *(Words(L, wide) for wide in (False, True)),
    Below(dtypes.bool_, 1 << 31),
    *(Uniform(d, 0.0, 1.0, 0.99) for d in dtypes.REAL),
    *(Normal(d, 0.5, 2.0) for d in dtypes.REAL),
    *(Integers(d, 5, n) for d in (dtypes.int8, L, dtypes.uint64) for n in (11, 2**40)),
]
IMAGES = Windows(64, (112, 112), (56, 56), 64, (3, 3), (2, 2), (1, 1), (1, 1))
LINE = Windows(6, (1, 9), (1, 7), 1, (1, 2), (1, 1), (0, 0), (1, 2))
ROUTINES: list[GridRoutine] = [
    *(GridMaxPool(d, dtypes.uint8, w) for d in dtypes.REAL for w in (IMAGES, LINE)),
    *(GridPoolPut(d, dtypes.uint8, w) for d in dtypes.REAL for w in (IMAGES, LINE)),
    *(GridDraw(v, streams, size) for v in VARIATES for streams, size in ((1, 1 << 20), (3, 1001))),
    *(GridTake(d, L, 1, 50257, 8192, 768) for d in (F, B, dtypes.complex128, dtypes.bool_)),
    *(GridTake(F, dtypes.uint8, 3, 7, 5, 5), GridTake(B, L, 1, 1 << 20, 1 << 20, 4096)),
    *(GridTakeAlong(F, L, 8192, 50257, 1, 1), GridTakeAlong(B, dtypes.int16, 3, 7, 5, 9)),
    *(GridSegmentSum(F, L, 1, 50257, n, 768) for n in (100, 8192, 1 << 20)),
    *(GridSegmentSum(d, L, 3, 7, 5000, 5) for d in (dtypes.float64, dtypes.int8)),
    GridSegmentSum(dtypes.complex64, L, 3, 7, 5000, 5),
    *(GridScatterSum(F, L, 8192, 50257, 1, 1), GridScatterSum(F, L, 1, 100, 5000, 1)),
    *(GridIndexPut(d, L, 2, 100, 50, 64, one) for d in (F, B) for one in (False, True)),
    GridLastWrites(L, 100, 5000),
    *(GridRunning(k, F, 64, n, r) for k in SUMS for n, r in ((40, 1), (4096, 1), (9, 8))),
    *(GridRunning(k, d, 64, 4096, 1) for k in ("cummax", "cummin") for d in (F, dtypes.int8)),
    *(GridRunning("cumsum", d, 64, 4096, 1) for d in (dtypes.float64, dtypes.int16)),
    *(GridRunning(k, F, 1, 1 << 20, 1) for k in ("cumsum", "cummax", "logcumsumexp")),
]


@needs_ptxas
@pytest.mark.parametrize("sm", [90, 80])
def test_every_stage_is_assembled_and_spills_nothing(sm, tmp_path):
    stages = {stage for routine in ROUTINES for stage in routine.stages}
    ways = (16, 8) if sm == 90 else (16,)
    built = [build_stage(replace(s, aligned=a), sm) for s in stages for a in ways]
    assert len({k.name for k in built}) == len(built)
    figures = assemble(built, tmp_path, sm)
    print(
        f"sm_{sm}: {len(built)} stages, registers {sorted(f.registers for f in figures.values())}"
    )
    assert not [name for name, found in figures.items() if found.spilled]


def test_wide_accesses_where_rows_allow_them():
    (take,) = GridTake(F, L, 1, 1000, 64, 768).stages
    for aligned, text in ((16, "ld.global.v4.b32"), (4, "ld.global.b32")):
        assert text in build_stage(replace(take, aligned=aligned), 90).ptx
    *_, total = GridSegmentSum(F, L, 1, 1000, 64, 768).stages
    assert "ld.global.v4.b32" in build_stage(total, 90).ptx
    (draw,) = GridDraw(Normal(F, 0.0, 1.0), 1, 4096).stages
    assert "st.global.v4.b32" in build_stage(draw, 90).ptx


def test_equal_stages_have_equal_names():
    routine = GridSegmentSum(F, L, 1, 50257, 32768, 768)
    again = replace(routine)
    assert routine.stages == again.stages and hash(routine.stages) == hash(again.stages)
    names = [build_stage(s, 90).name for s in routine.stages]
    assert names == [build_stage(s, 90).name for s in again.stages]
    kinds = [type(s).__name__ for s in routine.stages]
    assert kinds == ["StartStage", *["CountStage", "OrderStage"] * 4, "EndsStage", "SumStage"]
    # Every pass has the same code, on other arrays.
    assert len(set(names)) == 5 and routine.stages[1].arrays != routine.stages[3].arrays
    few = replace(routine, indices=8192)
    assert [type(s).__name__ for s in few.stages] == ["StartStage", "RankStage", "SumStage"]
