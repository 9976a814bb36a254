"""Products by our own code: beside NumPy, in any layout, and never outside of the arrays."""

import subprocess
import sys
from ctypes import (
    CFUNCTYPE,
    addressof,
    c_char,
    c_double,
    c_float,
    c_int32,
    c_void_p,
)
from dataclasses import dataclass

import numpy as np
import pytest

import weft as wf
from weft.compiler.cpu import blas
from weft.compiler.cpu import own_products as multiply
from weft.compiler.cpu.register_products import FEW, ROWS, TERMS
from weft.compiler.cpu.runtime.executable import NativeExecutable
from weft.compiler.ir.schedule import GemmStep

from ..programs import Program

pytestmark = pytest.mark.skipif(not multiply.able(), reason="the processor has no AVX-512")
RNG = np.random.default_rng(5)
NAMES = {np.float32: "weft_sgemm", np.float64: "weft_dgemm"}
PROTOTYPE = CFUNCTYPE(None, *[c_void_p] * 13)


@dataclass
class Matrix:
    """A matrix as it is stored: perhaps turned, in the first columns of a wider array."""

    memory: np.ndarray
    turned: bool
    shape: tuple[int, int]

    @classmethod
    def of(cls, rows: int, columns: int, dtype, turned=False, wider=0):
        size = (columns, rows) if turned else (rows, columns)
        memory = RNG.normal(size=(size[0], size[1] + wider)).astype(dtype)
        memory[:, size[1] :] = np.nan  # which would show
        return cls(memory, turned, (rows, columns))

    @property
    def value(self) -> np.ndarray:
        rows, columns = self.shape
        stored = self.memory[:, : rows if self.turned else columns]
        return stored.T if self.turned else stored

    @property
    def leading(self) -> int:
        return self.memory.shape[1]


def call(a: Matrix, b: Matrix, c: Matrix, alpha=1.0, beta=0.0) -> None:
    """c ← α·a·b + β·c by our own code."""
    dtype = a.memory.dtype.type
    (m, k), n = a.shape, b.shape[1]
    number = c_float if dtype is np.float32 else c_double
    letters = [c_char(b"T" if x.turned else b"N") for x in (b, a)]
    sizes = [c_int32(x) for x in (n, m, k)]
    leading = [c_int32(x.leading) for x in (b, a, c)]
    scales = number(alpha), number(beta)
    pointers = [x.memory.ctypes.data for x in (b, a, c)]
    given = [*map(addressof, (*letters, *sizes)), addressof(scales[0])]
    given += [pointers[0], addressof(leading[0]), pointers[1], addressof(leading[1])]
    given += [addressof(scales[1]), pointers[2], addressof(leading[2])]
    PROTOTYPE(multiply.own_function(NAMES[dtype]))(*given)


def check(m, n, k, dtype, turned=(False, False), wider=(0, 0, 0), alpha=1.0, beta=0.0):
    a = Matrix.of(m, k, dtype, turned[0], wider[0])
    b = Matrix.of(k, n, dtype, turned[1], wider[1])
    c = Matrix.of(m, n, dtype, False, wider[2])
    exact = alpha * (a.value.astype(np.float64) @ b.value.astype(np.float64)) + beta * c.value
    sizes = np.abs(a.value).astype(np.float64) @ np.abs(b.value) + np.abs(c.value)
    if beta == 0:
        c.value[...] = np.nan  # is not read
    behind = c.memory[:, n:].copy()
    call(a, b, c, alpha, beta)
    bound = np.finfo(dtype).eps * (4 + np.sqrt(k)) * max(abs(alpha), 1) * sizes
    assert (np.abs(c.value - exact) <= bound).all()
    np.testing.assert_array_equal(c.memory[:, n:], behind)
    return a, b, c


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
def test_sizes_by_chance(turned, dtype):
    """Rows, columns and terms around the sizes of strips, registers, panels and blocks."""
    odd = [1, 2, 3, 7, 8, 11, 12, 13, 15, 16, 17, 31, 32, 33, 47, 64, 65, 100]
    long = [*odd, TERMS - 1, TERMS, TERMS + 1, 2 * TERMS + 5]
    wide = [*odd, 255, 256, 257, 511, 512, 513, 700]
    for _ in range(60):
        m, n, k = int(RNG.choice(odd)), int(RNG.choice(wide)), int(RNG.choice(long))
        wider = tuple(int(x) for x in RNG.integers(0, 20, 3))
        alpha, beta = [(1, 0), (1, 1), (0.5, 0), (-2, 0.25)][RNG.integers(4)]
        check(m, n, k, dtype, turned, wider, alpha, beta)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_many_rows(dtype):
    """From some number on, b is copied however it lies."""
    for m in (FEW, FEW + 1, FEW + 2 * ROWS[0] + 5):
        check(m, 96, 40, dtype)
        check(m, 90, 300, dtype, (True, False))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_element_does_not_depend_on_the_others(dtype):
    """The same bits, of whatever rows and columns it is a part."""
    a, b, c = check(300, 160, 2 * TERMS + 9, dtype)
    for rows, columns in ((7, 32), (12, 160), (FEW, 64), (33, 5)):
        part = Matrix.of(rows, columns, dtype)
        left = Matrix(a.memory[:rows].copy(), False, (rows, a.shape[1]))
        right = Matrix(np.ascontiguousarray(b.memory[:, :columns].T), True, (b.shape[0], columns))
        call(left, right, part)
        np.testing.assert_array_equal(part.value, c.value[:rows, :columns])


def test_what_is_not_finite_stays_where_it_is():
    a, b, c = (Matrix.of(20, 20, np.float32) for _ in range(3))
    a.memory[3, 5], b.memory[7, 9] = np.nan, np.inf
    call(a, b, c)
    with np.errstate(invalid="ignore"):
        want = a.memory @ b.memory
    np.testing.assert_array_equal(np.isnan(c.memory), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(c.memory), np.isinf(want))


OUTSIDE = """
import ctypes, mmap, sys
import numpy as np
from tests.compiler.cpu import test_multiply as T

libc = ctypes.CDLL(None)
PAGE = mmap.PAGESIZE

def guarded(shape, dtype, at_end):
    '''An array that begins behind a page, or ends before one, that nobody may touch.'''
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    pages = -(-nbytes // PAGE)
    held = mmap.mmap(-1, (pages + 2) * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(held))
    for far in (0, (pages + 1) * PAGE):
        assert libc.mprotect(ctypes.c_void_p(start + far), PAGE, 0) == 0
    offset = PAGE + (pages * PAGE - nbytes if at_end else 0)
    found = np.frombuffer(held, dtype, int(np.prod(shape)), offset).reshape(shape)
    HELD.append(held)
    return found

HELD = []
for dtype in (np.float32, np.float64):
    for at_end in (False, True):
        for turned in ((0, 0), (1, 0), (0, 1), (1, 1)):
            for m, n, k in ((13, 33, 17), (12, 32, 16), (5, 70, 300), (270, 40, 9), (31, 96, 260)):
                a, b, c = (T.Matrix.of(*s, dtype, t) for s, t in
                           (((m, k), turned[0]), ((k, n), turned[1]), ((m, n), False)))
                for x in (a, b, c):
                    memory = guarded(x.memory.shape, dtype, at_end)
                    memory[...] = x.memory
                    x.memory = memory
                want = a.value @ b.value + c.value
                T.call(a, b, c, 1.0, 1.0)
                np.testing.assert_allclose(c.value, want, rtol=1e-4, atol=1e-4)
print("inside")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks the system for pages by name")
def test_nothing_outside_of_the_arrays_is_touched():
    done = subprocess.run(
        [sys.executable, "-c", OUTSIDE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "inside" in done.stdout, done.stderr[-2000:]


# -- which products ------------------------------------------------------------------------------


def test_which_products_are_ours(monkeypatch):
    f32, f64 = np.dtype(np.float32), np.dtype(np.float64)
    assert multiply.own_name(256, 512, 784, False, f32) == "weft_sgemm"
    assert multiply.own_name(256, 512, 784, True, f64) == "weft_dgemm"
    assert multiply.own_name(256, 512, 784, False, f64) is None
    assert multiply.own_name(32, 64, 64, True, f32) == "weft_sgemm"
    assert multiply.own_name(32, 64, 64, False, f32) is None  # OpenBLAS is quicker
    assert multiply.own_name(256, 10, 1024, False, f32) is None  # panels would be empty
    assert multiply.own_name(4, 512, 512, True, f32) is None
    monkeypatch.setattr(multiply, "able", lambda: False)
    assert multiply.own_name(256, 512, 784, False, f32) is None


def product(m: int, n: int, k: int, **more):
    p = Program()
    a, b = p.buffer("input", m, k), p.buffer("input", k, n)
    c = p.buffer("output", m, n)
    p.product(a, b, c, **more)
    return p.schedule(c)


@pytest.mark.parametrize("ours", [True, False])
def test_products_of_programs(monkeypatch, ours):
    """By our code and by BLAS, as the processor is able."""
    monkeypatch.setattr(multiply, "able", lambda: ours)
    schedule = product(300, 256, 200)
    (step,) = schedule.steps
    assert isinstance(step, GemmStep)
    symbol = blas.call_of(step, np.dtype(np.float32)).symbol
    assert symbol == ("weft_sgemm" if ours else "blas_sgemm")
    a, b = RNG.normal(size=(300, 200)), RNG.normal(size=(200, 256))
    (got,) = NativeExecutable(schedule)([a.astype(np.float32), b.astype(np.float32)])
    np.testing.assert_allclose(got, a @ b, rtol=1e-5, atol=1e-4)


def test_products_in_loops():
    w = wf.tensor(RNG.normal(size=(128, 128)).astype(np.float32) / 12)
    x = wf.tensor(RNG.normal(size=(5, 128, 128)).astype(np.float32))

    def f(w, x):
        step = lambda h, x: (wf.tanh(h @ w.T + x @ w), None)  # noqa: E731
        return wf.scan(step, wf.zeros((128, 128)), x)[0]

    g = wf.compile(wf.grad(lambda w, x: f(w, x).sum()))
    want = wf.grad(lambda w, x: f(w, x).sum())(w, x).numpy()
    np.testing.assert_allclose(g(w, x).numpy(), want, rtol=1e-4, atol=1e-5 * np.abs(want).max())
    routine = g._made[-1].program.executable.schedule.steps
    assert "weft_sgemm" in repr(routine)
