"""Kernels for large NumPy arrays, compiled into one pass each.

NumPy reads an array some twenty times for an activation, and holds the GIL each time.
"""

from collections.abc import Callable, Sequence
from ctypes import addressof, c_void_p
from functools import lru_cache, partial, wraps
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backend.numpy import namespace as numpy_
from ...backend.numpy.types import Unary
from ...backend.shared import threads
from ...core.aval import Aval
from ...core.dtypes import float32, float64
from ...graph.graph import Literal
from ..cpu.runtime.stack import require
from .flat import MOST, FlatKernel

if TYPE_CHECKING:
    from ..cpu.emit_kernel import LoadedKernel

ACTIVATIONS = (
    *("gelu", "gelu_slope", "gelu_tanh", "gelu_tanh_slope", "silu", "silu_slope", "softplus"),
)
# The least number of elements for compiled kernels and for several threads; those of a chunk.
LARGE, SHARED, PIECE = 1 << 16, 1 << 18, 1 << 17
# The least length of a line for a kernel that vectorises along it, not across lines.
LINE = 32
_DTYPES = frozenset((float32, float64))


def _fits(*arrays: np.ndarray) -> bool:
    """Whether arrays are large, and share a dtype that kernels compute in."""
    dtype = arrays[0].dtype
    return arrays[0].size >= LARGE and dtype in _DTYPES and all(a.dtype is dtype for a in arrays)


def _run(native: "LoadedKernel", arrays: Sequence[np.ndarray], units: int, step: int) -> None:
    """Run the units of a kernel over contiguous arrays, `step` at a time, on the thread pool."""
    pointers = (c_void_p * (len(arrays) + 1))(*[a.ctypes.data for a in arrays])
    place = addressof(pointers)

    def do(start: int) -> None:
        require()
        native.call(place, start, min(start + step, units))

    enough = threads.ENOUGH if arrays[0].size >= SHARED else 0
    threads.share(range(0, units, step), lambda: do, enough)


def _activation(row: str, kernel: Unary) -> Unary:
    """Wrap the kernel of an elementwise row of one array."""

    @wraps(kernel)
    def call(x):
        if not _fits(x):
            return kernel(x)
        native, x = _by_element(row, x.dtype), np.ascontiguousarray(x)
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


@lru_cache(maxsize=256)
def _by_element(row: str, dtype: np.dtype) -> FlatKernel:
    """The compiled kernel of an elementwise row, for arrays of any length."""
    from .lowering import lower  # slow to load, and few programs need it

    return FlatKernel(lower([Aval((MOST,), dtype, "cpu")], lambda b, x: [b.emit(row, x)]))


@lru_cache(maxsize=256)
def _by_lines(
    write: Callable[..., Sequence[int]], n: int, dtype: np.dtype, eps: float, *operands: str
) -> "LoadedKernel":
    """A kernel that folds lines of n elements; its units are the lines.

    operands  "lines": many lines; "each": one number per line; "line": one line
    """
    from ..cpu.emit_kernel import native  # slow to load, and few programs need it
    from .lowering import lower

    shapes = {"lines": (MOST // n, n), "each": (MOST // n, 1), "line": (n,)}
    avals = [Aval(shapes[what], dtype, "cpu") for what in operands]
    kernel = native(lower(avals, partial(write, eps)))
    assert (kernel.image.count, kernel.image.grain) == (MOST // n, 1)
    return kernel


def _mean(b: Any, x: int) -> int:
    return b.emit("mean", x, (1,), True)


def _normalise(eps: float, b: Any, x: int, w: int, bias: int) -> tuple[int, ...]:
    """The results of `layer_norm`: the output, the normalised x, and the variance."""
    d = b.emit("subtract", x, _mean(b, x))
    variance = _mean(b, b.emit("multiply", d, d))
    y = b.emit("multiply", d, _rate(b, variance, eps))
    return b.emit("add", b.emit("multiply", y, w), bias), y, variance


def _project(eps: float, b: Any, g: int, y: int, variance: int, w: int) -> tuple[int, ...]:
    """The cotangent of x: h = g·w, projected orthogonally to the constants and to y, scaled."""
    h = b.emit("multiply", g, w)
    centred = b.emit("subtract", h, _mean(b, h))
    along = b.emit("multiply", y, _mean(b, b.emit("multiply", h, y)))
    return (b.emit("multiply", b.emit("subtract", centred, along), _rate(b, variance, eps)),)


def _rate(b: Any, variance: int, eps: float) -> int:
    return b.emit("rsqrt", b.emit("add", variance, Literal(eps)))


def _layer_norm(kernel: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(kernel)
    def call(x, w, b, eps, dtype):
        if w.size < LINE or not _fits(x, w, b) or dtype != x.dtype:
            return kernel(x, w, b, eps, dtype)
        n = w.size
        x, w, b = map(np.ascontiguousarray, (x, w, b))
        variances = (*x.shape[: x.ndim - w.ndim], *(1,) * w.ndim)
        results = [np.empty(shape, x.dtype) for shape in (x.shape, x.shape, variances)]
        native = _by_lines(_normalise, n, x.dtype, eps, "lines", "line", "line")
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
        native = _by_lines(_project, n, y.dtype, eps, "lines", "lines", "each", "line")
        _run(native, (g, y, variance, w, dx), y.size // n, max(1, PIECE // n))
        lines = g.reshape(-1, n)
        dw, db = (numpy_.sum(z, (0,), False) for z in (lines * y.reshape(-1, n), lines))
        return dx, dw.reshape(w.shape), db.reshape(w.shape)

    return call


def install() -> None:
    """Replace the NumPy kernels by these."""
    for row in ACTIVATIONS:
        numpy_.improve(row, partial(_activation, row))
    numpy_.improve("layer_norm", _layer_norm)
    numpy_.improve("layer_norm_gradient", _layer_norm_gradient)
