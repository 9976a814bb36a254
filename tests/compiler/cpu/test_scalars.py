"""Programs of numbers and of small arrays: straight lines of code, beside NumPy and JAX."""

import random
from ctypes import CFUNCTYPE, c_int64, c_void_p
from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import weft as wf
from weft.compiler.cpu.functions import functions_of
from weft.compiler.cpu.routines.straight import Straight
from weft.compiler.cpu.routines.thin import Thin
from weft.compiler.ir.schedule import NativeStep
from weft.compiler.native.words import words

from ..passes.graphs import traced
from ..schedules import Machine, by_rows, compare, compiled

RNG = np.random.default_rng(5)
TILT = [-1.2, 0.4, 1.1, -0.7, 0.2, 0.9, -0.3]
LENGTHS = [0.36, 0.1, 0.42, 0.05, 0.4, 0.02, 0.126]


@pytest.fixture(autouse=True)
def doubles():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def arm(xp, q):
    """The place of a robot's hand: seven joints, each a matrix that is put together by numbers."""
    number = lambda v: xp.asarray(v, dtype=q.dtype)  # noqa: E731
    pose, zero, one = number(np.eye(4)), number(0.0), number(1.0)
    for k in range(7):
        c, s = xp.cos(q[k]), xp.sin(q[k])
        ca, sa = float(np.cos(TILT[k])), float(np.sin(TILT[k]))
        rows = [
            [c, -s * ca, s * sa, zero],
            [s, c * ca, -c * sa, zero],
            [zero, number(sa), number(ca), number(LENGTHS[k])],
            [zero, zero, zero, one],
        ]
        pose = pose @ xp.stack([xp.stack(row) for row in rows])
    return xp.concat([pose[:3, 3], xp.reshape(pose[:3, :3], (9,))])


def lines(compiled) -> list:
    """The steps of the latest program, all of which are straight lines."""
    steps = compiled._last().executable.schedule.steps
    assert {type(s) for s in steps} == {NativeStep}
    assert {type(s.routine) for s in steps} == {Straight}
    return steps


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_arm_is_one_line(dtype):
    q = RNG.uniform(-2, 2, 7).astype(dtype)
    hand = wf.compile(lambda q: arm(wf, q))
    found = hand(wf.asarray(q)).numpy()
    assert len(lines(hand)) == 1 and found.dtype == dtype
    np.testing.assert_allclose(found, arm(jnp, jnp.asarray(q)), atol=8 * np.finfo(dtype).eps)


@pytest.mark.parametrize("mode", ["auto", "forward", "reverse"])
def test_the_jacobian_of_an_arm(mode):
    q = RNG.uniform(-2, 2, 7)
    jacobian = wf.compile(wf.jacobian(lambda q: arm(wf, q), mode=mode))
    want = jax.jacobian(lambda q: arm(jnp, q))(jnp.asarray(q))
    np.testing.assert_allclose(jacobian(wf.asarray(q)).numpy(), want, atol=1e-14)


def test_an_element_that_is_read_twice_has_the_gradients_of_both():
    q = RNG.normal(size=3)
    f = lambda xp: lambda q: xp.sum(xp.stack([xp.sin(q[k]) * xp.cos(q[k]) for k in range(3)]))  # noqa: E731
    found = wf.compile(wf.grad(f(wf)))(wf.asarray(q))
    np.testing.assert_allclose(found.numpy(), jax.grad(f(jnp))(q), rtol=1e-14)
    rows = RNG.normal(size=(3, 2))
    f = lambda xp: lambda x: xp.sum(x[0] * x[1] + xp.sin(x[0]) * x[2])  # noqa: E731
    found = wf.compile(wf.grad(f(wf)))(wf.asarray(rows))
    np.testing.assert_allclose(found.numpy(), jax.grad(f(jnp))(rows), rtol=1e-14)


# -- random programs -------------------------------------------------------------------------

BINARY = ("add", "subtract", "multiply", "maximum", "minimum")
UNARY = ("sin", "cos", "exp", "tanh", "square", "negative", "abs", "sqrt", "log1p")


def numbers(seed: int, count: int):
    """A program of numbers as a function of a namespace and of what it reads."""
    pick = random.Random(seed)
    plan = [(pick.random(), pick.randrange(99), pick.randrange(99)) for _ in range(count)]

    def f(xp, x):
        known = [x[k] for k in range(6)]
        for kind, a, b in plan:
            a, b = known[-1 - a % min(len(known), 20)], known[b % len(known)]
            if kind < 0.3:
                name = UNARY[int(kind * 30)]
                a = xp.abs(a) if name in ("sqrt", "log1p") else a
                known.append(xp.tanh(getattr(xp, name)(xp.tanh(a))))
            elif kind < 0.8:
                known.append(getattr(xp, BINARY[int((kind - 0.3) * 10)])(a, b) * 0.5)
            elif kind < 0.9:
                known.append(xp.where(a > b, a - 0.25, b))
            else:
                known.append(a / (b * b + 1.0))
        return xp.stack(known[-7:])

    return f


@pytest.mark.parametrize("seed", range(6))
def test_programs_of_numbers(seed, monkeypatch):
    monkeypatch.setenv("WEFT_CHECK_BOUNDS", "1")
    f, x = numbers(seed, 150), RNG.normal(size=6)
    run = wf.compile(lambda x: f(wf, x))
    np.testing.assert_allclose(run(wf.asarray(x)).numpy(), f(np, x), rtol=1e-9, atol=1e-9)
    assert len(lines(run)) == 1


def test_a_very_long_program_is_cut_into_lines(monkeypatch):
    monkeypatch.setattr(import_module("weft.compiler.cpu.passes.scalarise"), "LONGEST", 60)
    f, x = numbers(40, 400), RNG.normal(size=6)
    run = wf.compile(lambda x: f(wf, x))
    np.testing.assert_allclose(run(wf.asarray(x)).numpy(), f(np, x), rtol=1e-9, atol=1e-9)
    assert len(lines(run)) > 3


def small_arrays(seed: int):
    """A program that takes small arrays apart, multiplies them and puts them together."""
    pick = random.Random(seed)
    plan = [(pick.randrange(12), pick.randrange(99), pick.randrange(99)) for _ in range(14)]
    moves = [
        lambda xp, a, b: a @ b,
        lambda xp, a, b: xp.stack([a[0], b[1], a[2] * 0.5]),
        lambda xp, a, b: xp.concat([a[:, 1:], b[:, :1]], axis=1),
        lambda xp, a, b: xp.permute_dims(a, (1, 0)) - b,
        lambda xp, a, b: xp.sin(a) * xp.sum(b, axis=0),
        lambda xp, a, b: xp.flip(a, axis=0) + xp.max(b, axis=1, keepdims=True),
        lambda xp, a, b: xp.broadcast_to(xp.mean(a), (3, 3)) * b,
        lambda xp, a, b: xp.reshape(xp.reshape(a, (9,))[::-1], (3, 3)),
        lambda xp, a, b: xp.where(a > b, a, b[1]),
        lambda xp, a, b: xp.reshape(xp.concat([a[1:, :], b[:1, :]]), (3, 3)),
        lambda xp, a, b: xp.tanh(a @ b[:, 0])[:, None] * b,
        lambda xp, a, b: xp.stack([a[1, 1], b[0, 2], a[2, 0]]) + a,
    ]

    def f(xp, x, y):
        known = [x, y]
        for kind, a, b in plan:
            made = moves[kind](xp, known[a % len(known)], known[b % len(known)])
            known.append(xp.tanh(made) if kind == 0 else made * 0.7)
        return known[-1], known[-2][0], xp.sum(known[-3])

    return f


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("seed", range(12))
def test_programs_of_small_arrays(seed, dtype, monkeypatch):
    monkeypatch.setenv("WEFT_CHECK_BOUNDS", "1")
    f, x, y = small_arrays(seed), *RNG.normal(size=(2, 3, 3)).astype(dtype)
    run = wf.compile(lambda x, y: f(wf, x, y))
    for got, want in zip(run(wf.asarray(x), wf.asarray(y)), f(np, x, y), strict=True):
        np.testing.assert_allclose(got.numpy(), want, rtol=0, atol=2e5 * np.finfo(dtype).eps)


@pytest.mark.parametrize("seed", range(4))
def test_gradients_of_small_arrays(seed):
    f, x, y = small_arrays(20 + seed), *RNG.normal(size=(2, 3, 3))
    total = lambda xp: lambda x, y: sum(xp.sum(v) for v in f(xp, x, y))  # noqa: E731
    found = wf.compile(wf.grad(total(wf), (0, 1)))(wf.asarray(x), wf.asarray(y))
    want = jax.grad(total(jnp), (0, 1))(x, y)
    for g, w in zip(found, want, strict=True):
        np.testing.assert_allclose(g.numpy(), w, rtol=1e-9, atol=1e-10)


# -- exactly ---------------------------------------------------------------------------------


def of(f, *arrays):
    """The schedule of a function, whose values are found to be the function's."""
    graph = traced(f, *arrays)
    schedule = compiled(graph)
    compare(Machine(schedule, arrays).run(), by_rows(graph, arrays))
    return schedule


def test_a_product_with_zero_stays():
    def f(x):
        a = wf.stack([wf.stack([x[0], x[1]]), wf.stack([x[2], x[3]])])
        return a @ wf.asarray([[0.0, 1.0], [1.0, 0.0]]) @ a

    x = np.array([np.inf, -0.0, np.nan, 2.0])
    found = wf.compile(f)(wf.asarray(x)).numpy()
    with np.errstate(invalid="ignore"):
        a = x.reshape(2, 2)
        want = a @ np.array([[0.0, 1.0], [1.0, 0.0]]) @ a
    np.testing.assert_array_equal(found, want)


def test_signs_of_zeros():
    def f(x):
        return wf.stack([x[0] * 0.0, x[1] * -0.0, x[2] + 0.0, x[2] - 0.0, -x[2], x[2] * 1.0])

    found = wf.compile(f)(wf.asarray([1.0, 1.0, -0.0])).numpy()
    assert np.signbit(found).tolist() == [False, True, False, True, False, True]


def test_kernels_that_differ_in_the_sign_of_a_zero_are_two():
    x, y = wf.asarray(np.ones(100)), wf.asarray(np.ones(100))
    a, b = wf.compile(lambda x, y: (x * 0.0, y * -0.0))(x, y)
    assert not np.signbit(a.numpy()).any() and np.signbit(b.numpy()).all()


@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool", "float16", "bfloat16", "int64"])
def test_other_dtypes(dtype):
    def f(x, y):
        rows = wf.stack([x[0], y[1], x[2], wf.where(x[0] > y[0], x[0], y[2])])
        joined = wf.concat([rows, x, wf.flip(y)])
        return wf.reshape(joined[1:9], (2, 4)), wf.sum(joined), wf.stack([x, y, rows[1:]])

    x, y = (wf.asarray(v).astype(getattr(wf, dtype, bool)) for v in ([1, 0, 3], [1, 1, 0]))
    run = wf.compile(f)
    for got, want in zip(run(x, y), f(x, y), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got.numpy().astype(float), want.numpy().astype(float))
    assert len(lines(run)) == 1


def test_a_line_is_what_its_equations_were():
    def f(x, y):
        parts = [x[k] @ y for k in range(2)] + [y @ x[0], wf.stack([x[0, 0], y[1], y[2]])]
        whole = wf.stack(parts)
        return whole.at[1:3, 0].set(whole[0, 0]), wf.mean(whole, axis=0), wf.prod(whole)

    schedule = of(f, RNG.normal(size=(2, 3, 3)), RNG.normal(size=(3, 3)))
    assert {type(s) for s in schedule.steps} == {NativeStep}


def test_inputs_that_lie_anyhow_are_read_where_they_are():
    x = RNG.normal(size=(40, 60))
    run = wf.compile(lambda x: arm(wf, x[3::5, 11][:7] + x[5, 9:2:-1]))
    found = run(wf.asarray(x)).numpy()
    np.testing.assert_allclose(found, arm(np, x[3::5, 11][:7] + x[5, 9:2:-1]), atol=1e-14)


@pytest.mark.parametrize(
    "look",
    [
        lambda x: x[None][1:].reshape(-1),
        lambda x: wf.broadcast_to(x[None], (300, 4, 4)).max(0),
    ],
)
def test_looks_at_small_arrays_come_behind_them(look):
    def f(x):
        y = x.reshape((1, 4, 4))
        rows = [y[0, k] * (k + 1.0) for k in range(4)]
        return wf.concat([*rows, look(y[0]).reshape(-1), y.reshape(-1)])

    x = np.arange(16.0, dtype=np.float32).reshape(4, 4)
    np.testing.assert_array_equal(wf.compile(f)(wf.tensor(x)), f(wf.tensor(x)))


def test_large_arrays_stay_in_loops():
    run = wf.compile(lambda x: wf.stack([wf.sum(x), wf.max(x), wf.mean(x), wf.sum(x * x)]))
    x = RNG.normal(size=1000)
    found = run(wf.asarray(x)).numpy()
    np.testing.assert_allclose(found, [x.sum(), x.max(), x.mean(), (x * x).sum()], rtol=1e-13)


# -- products with a short inner axis --------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("m, k, n", [(130, 1, 37), (129, 8, 33), (64, 3, 100), (66, 7, 64)])
def test_thin_products(m, k, n, dtype, monkeypatch):
    monkeypatch.setenv("WEFT_CHECK_BOUNDS", "1")
    a, b = RNG.normal(size=(m, k)).astype(dtype), RNG.normal(size=(k, n)).astype(dtype)
    forms = [
        (lambda a, b: a @ b, a, b),
        (lambda a, b: a.T @ b, a.T.copy(), b),
        (lambda a, b: a @ b.T, a, b.T.copy()),
        (lambda a, b: a[::-1] @ b, a[::-1].copy(), b),
    ]
    want = a.astype(np.float64) @ b.astype(np.float64)
    for f, x, y in forms:
        run = wf.compile(f)
        found = run(wf.asarray(x), wf.asarray(y)).numpy()
        np.testing.assert_allclose(found, want, atol=20 * np.finfo(dtype).eps, rtol=0)
        assert "Thin" in str([s for s in run._last().executable.schedule.steps])


def placed(x: np.ndarray, at: int, room: int = 4096) -> np.ndarray:
    """A copy whose address is `at` more than a multiple of a page, with NaN around it."""
    line = np.full((x.nbytes + 3 * room) // x.itemsize, np.nan, x.dtype)
    start = ((at - line.ctypes.data) % room + room) // x.itemsize
    view = line[start : start + x.size].reshape(x.shape)
    view[...] = x
    return view


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [64, 83])
def test_thin_products_wherever_their_result_lies(n, dtype):
    """Rows go by cache lines, forwards or backwards: all elements once more, and no others."""
    m, k, dtype = 8, 3, np.dtype(dtype)
    thin = Thin(dtype, m, n, k, (k, 1), n)
    call = CFUNCTYPE(None, c_void_p, c_int64, c_int64)
    made = functions_of([(thin, False)])
    a, b = RNG.normal(size=(m, k)).astype(dtype), placed(RNG.normal(size=(k, n)).astype(dtype), 0)
    c, found = np.full((m, n), np.nan, dtype), set()
    pointers = words(3)
    for at in (*range(0, 256, dtype.itemsize), 2040, 2048, 2056, *range(3840, 4096, 8)):
        out = placed(c, at)
        pointers[:] = [x.ctypes.data for x in (a, b, out)]
        call(made.addresses[thin, False])(pointers.ctypes.data, 0, thin.count)
        found.add(out.tobytes())
        assert np.isfinite(out.base).sum() == out.size
    assert len(found) == 1
    np.testing.assert_allclose(out, a @ b, atol=20 * np.finfo(dtype).eps)


def test_transposes_go_behind_what_products_read():
    def f(x, s, y):
        return wf.sin(x.T * s * 0.5 + 1.0) @ y

    x, s, y = RNG.normal(size=(50, 30)), RNG.normal(size=50), RNG.normal(size=(50, 20))
    (step, _) = of(f, x, s, y).steps
    assert step.kernel.domain == (50, 30)
