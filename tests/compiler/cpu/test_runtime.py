"""Executables: steps against NumPy, arguments of all kinds, memory, guards, many callers."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest

from weft import errors
from weft.compiler.cpu.runtime import tasks
from weft.compiler.cpu.runtime.executable import NativeExecutable
from weft.compiler.ir.kernel import FoldStep, Kernel, MalformedKernel, Operand, Result, Step
from weft.compiler.ir.schedule import GuardStep, KernelStep, LibraryStep
from weft.compiler.ir.verify import MalformedSchedule
from weft.compiler.memory import MemoryPlan
from weft.core.op import TABLE
from weft.core.origin import origin
from weft.graph.graph import Literal

from ..programs import F32, F64, Program, chain

X = np.linspace(-2, 2, 100).astype(F32)


def close(got, expected, dtype=F32):
    np.testing.assert_allclose(got, expected, rtol=8 * np.finfo(dtype).eps, atol=0)


def test_kernels_in_a_row():
    run = NativeExecutable(chain(100, "tanh", "exp", "square"))
    (y,) = run([X])
    close(y, np.exp(np.tanh(X)) ** 2)
    assert y.flags.owndata and y.flags.writeable


def test_results_are_new_at_each_call():
    run = NativeExecutable(chain(100, "tanh"))
    (first,) = run([X])
    kept = first.copy()
    run([X + 1])
    assert (first == kept).all()


def test_numbers_without_axes():
    p = Program()
    x, y = p.buffer("input"), p.buffer("output")
    p.row("exp", (x,), y)
    (got,) = NativeExecutable(p.schedule(y))([np.array(1.5, F32)])
    assert got.shape == ()
    close(got, np.exp(F32.type(1.5)))


def test_nothing_to_compute():
    (y,) = NativeExecutable(chain(0, "tanh", "exp"))([np.empty(0, F32)])
    assert y.shape == (0,) and y.dtype == F32


def test_a_program_without_steps_gives_back_its_inputs():
    p = Program()
    x = p.buffer("input", 3)
    a = np.zeros(3, F32)
    (y,) = NativeExecutable(p.schedule(x))([a])
    assert y is a


def test_half_precision():
    dtype = np.dtype(ml_dtypes.bfloat16)
    x = X.astype(dtype)
    (y,) = NativeExecutable(chain(100, "tanh", "square", dtype=dtype))([x])
    expected = np.tanh(x.astype(F32)).astype(dtype).astype(F32) ** 2
    np.testing.assert_allclose(y.astype(F32), expected, rtol=2**-7)


# -- buffers -------------------------------------------------------------------------------------


def test_views_as_operands_and_outputs():
    p = Program()
    x = p.buffer("input", 4, 5)
    y = p.buffer("output", 4, 5)
    p.row("exp", (x,), y)
    turned = p.view(y, (5, 4), (1, 5))
    part = p.view(y, (2, 5), (-10, 1), 15)
    a = np.random.default_rng(0).standard_normal((4, 5)).astype(F32)
    whole, transposed, backwards = NativeExecutable(p.schedule(y, turned, part))([a])
    close(whole, np.exp(a))
    assert (transposed == whole.T).all() and (backwards == whole[3::-2]).all()
    assert np.shares_memory(whole, transposed)


def test_a_constant_that_is_a_result_is_a_copy():
    p = Program()
    value = np.arange(3.0, dtype=F32)
    run = NativeExecutable(p.schedule(p.constant(value)))
    (y,) = run([])
    y[:] = 7
    assert (run([])[0] == [0, 1, 2]).all() and (value == [0, 1, 2]).all()


def test_constants_are_copied_when_the_program_is_made():
    p = Program()
    value = np.arange(3.0, dtype=F32)
    c, y = p.constant(value), p.buffer("output", 3)
    p.row("square", (c,), y)
    run = NativeExecutable(p.schedule(y))
    value[:] = 9
    assert (run([])[0] == [0, 1, 4]).all()


def test_outputs_in_any_order_and_twice():
    p = Program()
    x, y, z = p.buffer("input", 100), p.buffer("output", 100), p.buffer("output", 100)
    p.row("exp", (x,), y)
    p.row("square", (x,), z)
    a, b, c, d = NativeExecutable(p.schedule(z, y, z, x))([X])
    close(b, np.exp(X))
    assert a is c and d is X
    close(a, X**2)


def test_an_arena_that_is_too_small_is_refused():
    schedule = chain(100, "tanh", "exp")
    with pytest.raises(MalformedSchedule, match="b1 is at 0 of 64 bytes"):
        NativeExecutable(schedule, MemoryPlan({1: 0}, 64, 64))
    with pytest.raises(MalformedSchedule, match="b1 is at 3"):
        NativeExecutable(schedule, MemoryPlan({1: 3}, 640, 640))


def test_memory_goes_with_the_program():
    run = NativeExecutable(chain(1000, "tanh", "exp"))
    run([np.zeros(1000, F32)])
    arena = weakref.ref(run._idle[0].arena)
    first = run._idle[0].first
    del run
    gc.collect()
    assert arena() is not None, "a function that is held needs its memory"
    del first
    gc.collect()
    assert arena() is None


# -- arguments -----------------------------------------------------------------------------------


def misaligned(x: np.ndarray) -> np.ndarray:
    memory = np.empty(x.nbytes + 1, np.uint8)
    made = memory[1:].view(x.dtype)
    made[:] = x
    return made


class Sub(np.ndarray):
    pass


ODD = {
    "not laid out row by row": lambda x: np.repeat(x, 2)[::2],
    "misaligned": misaligned,
    "a Sub": lambda x: x.view(Sub),
    "backwards": lambda x: x[::-1].copy()[::-1],
}


@pytest.mark.parametrize("kind", ODD)
def test_inputs_that_have_to_be_copied(kind):
    run = NativeExecutable(chain(100, "tanh"))
    x = ODD[kind](X)
    (y,) = run([x])
    close(y, np.tanh(X))
    reason = "not laid out row by row" if kind == "backwards" else kind
    assert run.copies[0].count == 1 and reason in run.copies[0].reason
    assert any("input 0 was copied at 1 calls" in line for line in run.explain())
    run([X])
    assert run.copies[0].count == 1


def test_read_only_inputs_are_read():
    x = X.copy()
    x.flags.writeable = False
    run = NativeExecutable(chain(100, "tanh"))
    close(run([x])[0], np.tanh(X))
    assert not run.copies


@pytest.mark.parametrize(
    ("inputs", "error", "match"),
    [
        ([X, X], errors.ArgumentError, "2 inputs, expected 1"),
        ([], errors.ArgumentError, "0 inputs, expected 1"),
        ([X.astype(F64)], errors.DTypeError, "input 0 is float64, expected float32"),
        ([X.astype(">f4")], errors.DTypeError, "input 0 is >f4, expected float32"),
        ([X[:5]], errors.ShapeError, r"input 0 has shape \(5,\), expected \(100,\)"),
        ([X[None]], errors.ShapeError, r"input 0 has shape \(1, 100\)"),
        ([[1.0]], errors.DTypeError, "input 0 is a list, expected an array"),
        ([None], errors.DTypeError, "input 0 is a NoneType"),
    ],
)
def test_inputs_that_do_not_fit(inputs, error, match):
    run = NativeExecutable(chain(100, "tanh"))
    with pytest.raises(error, match=match):
        run(inputs)
    close(run([X])[0], np.tanh(X))


# -- donated memory ------------------------------------------------------------------------------


def update() -> Program:
    """p ← p − g·0.5 in the memory of p."""
    p = Program()
    old, g = p.buffer("input", 100), p.buffer("input", 100)
    half, new = p.buffer("scratch", 100), p.buffer("output", 100, takes=old)
    p.row("multiply", (g, 0.5), half)
    p.row("subtract", (old, half), new)
    return p


def test_donated_memory_is_written():
    run = NativeExecutable(update().schedule(3))
    p = X.copy()
    (new,) = run([p, X])
    assert new is p
    close(p, X * 0.5)


def test_donated_memory_of_another_shape():
    p = Program()
    old = p.buffer("input", 4, 25)
    new = p.buffer("output", 100, takes=old)
    p.row("exp", (old,), new)
    x = X.reshape(4, 25).copy()
    (y,) = NativeExecutable(p.schedule(new))([x])
    assert y.shape == (100,) and np.shares_memory(x, y)
    close(y, np.exp(X))


def test_donated_memory_that_is_read_only_is_not_written():
    run = NativeExecutable(update().schedule(3))
    p = X.copy()
    p.flags.writeable = False
    (new,) = run([p, X])
    assert (p == X).all()
    close(new, X * 0.5)
    assert run.copies[0].reason == "its memory is read-only"


def test_an_input_in_donated_memory_is_copied_first():
    run = NativeExecutable(update().schedule(3))
    p = X.copy()
    (new,) = run([p, p])
    close(new, X * 0.5)
    assert new is p and "shares memory" in run.copies[1].reason
    wide = np.zeros(150, F32)
    wide[:100] = X
    expected = wide[:100] - wide[50:] * F32.type(0.5)
    close(run([wide[:100], wide[50:]])[0], expected)


def test_neighbours_are_not_copied():
    run = NativeExecutable(update().schedule(3))
    wide = np.concatenate([X, X])
    run([wide[:100], wide[100:]])
    assert not run.copies


def test_two_inputs_that_are_written_may_not_share_memory():
    p = Program()
    a, b = p.buffer("input", 100), p.buffer("input", 100)
    c, d = p.buffer("output", 100, takes=a), p.buffer("output", 100, takes=b)
    p.row("exp", (a,), c)
    p.row("square", (b,), d)
    run = NativeExecutable(p.schedule(c, d))
    x, y = X.copy(), X.copy()
    run([x, y])
    kept = x.copy()
    for _ in range(2):  # what lay apart, or was refused, is known by all of its addresses
        with pytest.raises(errors.ArgumentError, match=r"inputs \[0, 1\] are written and share"):
            run([x, x])
    assert (x == kept).all()
    close(run([x, y])[1], X**4)


# -- memory that is brought for outputs -----------------------------------------------------------


def test_outputs_in_memory_that_is_brought():
    p = Program()
    x = p.buffer("input", 100)
    y, z = p.buffer("output", 100), p.buffer("output", 100)
    p.row("exp", (x,), y)
    p.row("square", (x,), z)
    run = NativeExecutable(p.schedule(z, y, z))
    room = np.zeros(100, F32)
    squares, powers, again = run([X], [room, np.zeros(100, F32)])
    assert powers is room and squares is again and squares is not room
    close(powers, np.exp(X))
    close(squares, X**2)
    assert [run.written_last(k) for k in range(3)] == [(1, 1), (0, 0), (1, 1)]


READ_ONLY = np.zeros(100, F32)
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    "room",
    [
        np.zeros(99, F32),
        np.zeros((100, 1), F32),
        np.zeros(100, F64),
        np.zeros(200, F32)[::2],
        np.zeros(200, F32)[:100],
        np.frombuffer(bytearray(400), F32),
        np.zeros(100, F32).view(np.recarray),
        READ_ONLY,
        "nothing of the kind",
    ],
    ids=["size", "axes", "dtype", "strides", "part", "bytes", "kind", "read-only", "text"],
)
def test_memory_that_does_not_do_is_not_written(room):
    run = NativeExecutable(chain(100, "tanh"))
    (y,) = run([X], [room])
    close(y, np.tanh(X))
    assert y is not room and y.flags.owndata
    assert isinstance(room, str) or not room.any()
    assert not run.copies


@pytest.mark.parametrize("after_library", [False, True])
def test_which_outputs_are_written_when_nothing_can_fail_any_more(after_library):
    p = guarded(after_library)
    early, late = p.buffer("output", 5), p.buffer("output", 5)
    p.row("square", (0,), late)
    p.row("square", (0,), early)
    p.steps.insert(0, p.steps.pop())
    run = NativeExecutable(p.schedule(early, 2, late, 0))
    wanted = [None, None, None, None] if after_library else [None, (0, 4), (2, 5), None]
    assert [run.written_last(k) for k in range(4)] == wanted


# -- library calls and guards --------------------------------------------------------------------


def sorting() -> Program:
    p = Program()
    x, e, s, y = (p.buffer(role, 100) for role in ("input", "scratch", "scratch", "output"))
    p.row("negative", (x,), e)
    p.steps.append(LibraryStep(TABLE["sort"], (e,), (0, False), (s,), origin(), "no kernel sorts"))
    p.row("square", (s,), y)
    return p


def test_library_calls_between_segments():
    p = sorting()
    run = NativeExecutable(p.schedule(3))
    x = np.random.default_rng(0).standard_normal(100).astype(F32)
    close(run([x])[0], np.sort(-x) ** 2)
    told = run.explain()
    assert sum("native segment: 1 steps" in line for line in told) == 2
    assert any("library call sort at test_runtime.py" in line for line in told)
    assert any("no kernel sorts" in line for line in told)


def test_a_library_call_of_inputs_views_and_numbers_into_an_output():
    p = Program()
    x, y = p.buffer("input", 6, dtype=F64), p.buffer("output", 3, dtype=F64)
    some = p.view(x, (3,), (2,), 1)
    inputs = (some, Literal(2.0))
    p.steps.append(LibraryStep(TABLE["multiply"], inputs, (), (y,), origin()))
    (got,) = NativeExecutable(p.schedule(y))([np.arange(6.0)])
    assert (got == [2, 6, 10]).all()


def test_errors_of_library_calls_name_the_line_of_the_operation():
    p = Program()
    x, y = p.buffer("input", 2, 2, dtype=F64), p.buffer("output", 2, 2, dtype=F64)
    here = origin()
    p.steps.append(LibraryStep(TABLE["cholesky"], (x,), (False,), (y,), here))
    run = NativeExecutable(p.schedule(y))
    line = p.steps[0].line
    with pytest.raises(np.linalg.LinAlgError, match=rf"\(at {line}\)$"):
        run([-np.eye(2)])
    close(run([4 * np.eye(2)])[0], 2 * np.eye(2), F64)


def guarded(after_library: bool) -> Program:
    """y ← exp x only if all of x is positive."""
    p = Program()
    x, good, y = p.buffer("input", 5), p.buffer("scratch", 5, dtype=bool), p.buffer("output", 5)
    flag = p.buffer("scratch", dtype=bool)
    copied = p.buffer("scratch", 5)
    if after_library:
        p.steps.append(LibraryStep(TABLE["copy"], (x,), (), (copied,), origin()))
    p.row("greater", (x, 0.0), good)
    fold = FoldStep("all", 0, np.dtype(bool))
    kernel = Kernel((5,), (Operand(np.dtype(bool), (1,)),), (fold,), (Result(1, (0,)),), (0,))
    p.steps.append(KernelStep(kernel, (good,), (flag,)))
    p.steps.append(GuardStep(flag, errors.IndexingError, "x must be positive", origin()))
    p.row("exp", (x,), y)
    return p


@pytest.mark.parametrize("after_library", [False, True])
def test_guards(after_library):
    p = guarded(after_library)
    run = NativeExecutable(p.schedule(2))
    close(run([np.ones(5, F32)])[0], np.exp(np.ones(5, F32)))
    x = np.array([1, 2, -1, 3, 4], F32)
    with pytest.raises(IndexError, match=r"^x must be positive \(at test_runtime.py:\d+\)$"):
        run([x])
    close(run([np.ones(5, F32)])[0], np.exp(np.ones(5, F32)))


def test_what_is_behind_a_guard_is_not_done():
    p = guarded(False)
    y = p.buffer("output", 5, takes=0)
    p.row("exp", (0,), y)
    run = NativeExecutable(p.schedule(2, y))
    x = -np.ones(5, F32)
    with pytest.raises(IndexError):
        run([x])
    assert (x == -1).all()


# -- checks, callers -----------------------------------------------------------------------------


def test_checked_kernels_compute_the_same():
    rng = np.random.default_rng(0)
    x = rng.standard_normal(100).astype(F32)
    schedule = chain(100, "tanh", "exp", "square")
    assert (
        NativeExecutable(schedule, checked=True)([x])[0] == NativeExecutable(schedule)([x])[0]
    ).all()


def test_an_access_outside_is_reported(monkeypatch):
    """The verifier finds it first; here the native check is told a smaller extent."""
    monkeypatch.setattr(tasks, "extents_of", lambda schedule, step: ((0, 100), (0, 99)))
    run = NativeExecutable(chain(100, "tanh"), checked=True)
    with pytest.raises(MalformedKernel, match="array 1 was left"):
        run([X])


def test_the_environment_asks_for_checks(monkeypatch):
    for value, expected in (("1", True), ("0", False), ("", False)):
        monkeypatch.setenv("WEFT_CHECK_BOUNDS", value)
        assert NativeExecutable(chain(10, "exp")).checked is expected


def test_a_kernel_outside_its_buffers_is_refused():
    p = Program()
    x, y = p.buffer("input", 10), p.buffer("output", 10)
    step = Step("exp", (0,), F32)
    kernel = Kernel((11,), (Operand(F32, (1,)),), (step,), (Result(1, (1,)),))
    p.steps.append(KernelStep(kernel, (x,), (y,)))
    with pytest.raises(MalformedKernel, match="read from 0 to 11"):
        NativeExecutable(p.schedule(y))


def test_many_callers_at_once():
    """Calls long enough to give Python's lock back: each has its own memory."""
    n = 40_000
    run = NativeExecutable(chain(n, "tanh", "exp", "square", "tanh"))

    def call(seed: int) -> bool:
        x = np.full(n, seed / 100, F32)
        expected = np.tanh(np.exp(np.tanh(x[:1])) ** 2)
        return bool(np.allclose(run([x])[0], expected, rtol=1e-5))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(call, range(200)))
    assert len(run._idle) <= 8


def test_equal_kernels_are_compiled_once():
    p = Program()
    last = p.buffer("input", 100)
    for role in ("scratch", "scratch", "output"):
        made = p.buffer(role, 100)
        p.row("tanh", (last,), made)
        last = made
    run = NativeExecutable(p.schedule(last))
    assert len(run.code.addresses) == 1
    close(run([X])[0], np.tanh(np.tanh(np.tanh(X))))


def test_functions_from_scipy_are_linked():
    x = np.linspace(0.5, 3, 9)
    from scipy.special import gammaln

    close(NativeExecutable(chain(9, "gammaln", dtype=F64))([x])[0], gammaln(x), F64)
