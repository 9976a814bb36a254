"""Kernels for large NumPy arrays, compiled into one pass each.

NumPy goes over an array some twenty times for an activation, and takes Python's lock each time.
"""

from collections.abc import Callable, Sequence
from ctypes import addressof, c_void_p
from functools import lru_cache, partial, wraps
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backend.numpy import namespace as numpy_
from ...backend.numpy.types import Unary
from ...backend.shared import threads
from ...core.dtypes import float32, float64
from ...graph.graph import Literal
from ..cpu.runtime.stack import require
from ..ir.kernel import Fold, Kernel, Operand, Result, Step
from .flat import MOST, flat

if TYPE_CHECKING:
    from ..cpu.emit_kernel import Native

# Of a kernel: the mean of a value over its line, or a row and its inputs.
Said = int | tuple[str, tuple[int | Literal, ...]]

ACTIVATIONS = (
    *("gelu", "gelu_slope", "gelu_tanh", "gelu_tanh_slope", "silu", "silu_slope", "softplus"),
)
# Elements from which on it pays to compile, and to call a second thread; and those of a piece.
LARGE, SHARED, PIECE = 1 << 16, 1 << 18, 1 << 17
# Elements of a line from which on a kernel goes along it, and not along the first of many lines.
LINE = 32
_DTYPES = frozenset((float32, float64))


@lru_cache(maxsize=256)
def _compiled(kernel: Kernel) -> "Native":
    from ..cpu.emit_kernel import native  # takes a while to load, and few programs get here

    return native(kernel)


def _fits(*arrays: np.ndarray) -> bool:
    """Whether arrays are large, and alike in a dtype that is computed as it is."""
    dtype = arrays[0].dtype
    return arrays[0].size >= LARGE and dtype in _DTYPES and all(a.dtype is dtype for a in arrays)


def _run(native: "Native", arrays: Sequence[np.ndarray], units: int, step: int) -> None:
    """The units of a kernel over contiguous arrays, `step` of them at a time."""
    pointers = (c_void_p * (len(arrays) + 1))(*[a.ctypes.data for a in arrays])
    place = addressof(pointers)

    def do(start: int) -> None:
        require()
        native.call(place, start, min(start + step, units))

    enough = threads.ENOUGH if arrays[0].size >= SHARED else 0
    threads.share(range(0, units, step), lambda: do, enough)


def _activation(row: str, kernel: Unary) -> Unary:
    """An elementwise row of one array."""

    @wraps(kernel)
    def call(x):
        if not _fits(x):
            return kernel(x)
        native, x = flat(1, 0, x.dtype, (Step(row, (0,), x.dtype),), (1,)), np.ascontiguousarray(x)
        y = np.empty(x.shape, x.dtype)
        lines = x.reshape(-1), y.reshape(-1)
        whole = x.size // native.grain * native.grain
        do = native.over(lines)
        enough = threads.ENOUGH if x.size >= SHARED else 0
        pieces = [(at, min(at + PIECE, whole)) for at in range(0, whole, PIECE)]
        threads.share(pieces, lambda: lambda piece: do(*piece), enough)
        if whole < x.size:
            native.rest(lines, whole, x.size)
        return y

    return call


def _step(said: Said, dtype: np.dtype) -> Fold | Step:
    """The mean of a value over its line, or a row of the table applied to values."""
    if isinstance(said, int):
        return Fold("mean", said, dtype)
    return Step(*said, dtype)


def _by_lines(
    n: int,
    dtype: np.dtype,
    operands: Sequence[str],
    steps: Sequence[Said],
    results: Sequence[tuple[int, str]],
) -> "Native":
    """A kernel that folds lines of n elements, whose units are the lines.

    Operands and results by what they have: "lines", one number for "each" line, or one line.
    """
    strides = {"lines": (n, 1), "each": (1, 0), "line": (0, 1)}
    native = _compiled(
        Kernel(
            (MOST // n, n),
            tuple([Operand(dtype, strides[what]) for what in operands]),
            tuple([_step(s, dtype) for s in steps]),
            tuple([Result(value, strides[what]) for value, what in results]),
            (1,),
        )
    )
    assert (native.image.count, native.image.grain) == (MOST // n, 1)
    return native


@lru_cache(maxsize=256)
def _normalising(n: int, dtype: np.dtype, eps: float) -> "Native":
    steps = (
        *(0, ("subtract", (0, 3)), ("multiply", (4, 4)), 5),  # the mean is 3, the variance 6
        *(("add", (6, Literal(eps))), ("rsqrt", (7,)), ("multiply", (4, 8))),
        *(("multiply", (9, 1)), ("add", (10, 2))),
    )
    results = (11, "lines"), (9, "lines"), (6, "each")
    return _by_lines(n, dtype, ("lines", "line", "line"), steps, results)


@lru_cache(maxsize=256)
def _projecting(n: int, dtype: np.dtype, eps: float) -> "Native":
    steps = (
        *(("multiply", (0, 3)), 4, ("multiply", (4, 1)), 6),  # h = g·w, and the means of h and hy
        *(("subtract", (4, 5)), ("multiply", (1, 7)), ("subtract", (8, 9))),
        *(("add", (2, Literal(eps))), ("rsqrt", (11,)), ("multiply", (10, 12))),
    )
    operands = "lines", "lines", "each", "line"
    return _by_lines(n, dtype, operands, steps, ((13, "lines"),))


def _layer_norm(kernel: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(kernel)
    def call(x, w, b, eps, dtype):
        if w.size < LINE or not _fits(x, w, b) or dtype != x.dtype:
            return kernel(x, w, b, eps, dtype)
        n = w.size
        x, w, b = map(np.ascontiguousarray, (x, w, b))
        variances = (*x.shape[: x.ndim - w.ndim], *(1,) * w.ndim)
        results = [np.empty(shape, x.dtype) for shape in (x.shape, x.shape, variances)]
        native = _normalising(n, x.dtype, eps)
        _run(native, (x, w, b, *results), x.size // n, max(1, PIECE // n))
        return tuple(results)

    return call


def _layer_norm_gradient(kernel: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(kernel)
    def call(g, y, variance, w, eps):
        if w.size < LINE or not _fits(y, g, variance, w):
            return kernel(g, y, variance, w, eps)
        n = w.size
        g, y, variance, w = map(np.ascontiguousarray, (g, y, variance, w))
        dx = np.empty(y.shape, y.dtype)
        native = _projecting(n, y.dtype, eps)
        _run(native, (g, y, variance, w, dx), y.size // n, max(1, PIECE // n))
        lines = g.reshape(-1, n)
        dw, db = (numpy_.sum(z, (0,), False) for z in (lines * y.reshape(-1, n), lines))
        return dx, dw.reshape(w.shape), db.reshape(w.shape)

    return call


def install() -> None:
    """Put these kernels in the place of NumPy's."""
    for row in ACTIVATIONS:
        numpy_.improve(row, partial(_activation, row))
    numpy_.improve("layer_norm", _layer_norm)
    numpy_.improve("layer_norm_gradient", _layer_norm_gradient)
