"""Matrix products as steps: transposes become flags, batch axes become strides."""

from collections.abc import Collection, Sequence

import numpy as np

from ...core.aval import Aval, Shape
from ...core.record import record
from ...graph.graph import Equation, Literal
from .kernel import Strides
from .schedule import GemmStep
from .views import View

# Rows that are products of their last two operands: α·a·b, x + α·a·b in the memory of x, and
# f(α·a·b + bias) for an activation f, or none.
SCALED, ACCUMULATE, BIASED = "scaled_matmul", "accumulate", "biased_matmul"
ROWS = ("matmul", SCALED, ACCUMULATE, BIASED)


def is_product(e: Equation, avals: Sequence[Aval], dtypes: Collection[np.dtype]) -> bool:
    """Whether an equation is a matrix product that lowers to a `GemmStep`.

    dtypes  those that the target multiplies
    """
    if e.op.name not in ROWS or any(isinstance(x, Literal) for x in e.inputs):
        return False
    a, b = avals[-2:]
    alike = a.dtype == b.dtype and a.dtype in dtypes
    return alike and 0 not in (*a.shape, *b.shape)


def activation_of(e: Equation) -> str:
    """The row that a product applies to its result; empty for none."""
    return e.static[1] if e.op.name == BIASED else ""


def sizes_of(
    e: Equation, avals: Sequence[Aval], dtypes: Collection[np.dtype]
) -> tuple[int, int, int] | None:
    """The m, k and n of a product of two matrices; None if the equation is not one."""
    if not is_product(e, avals, dtypes) or [a.ndim for a in avals] != [2, 2]:
        return None
    m, k = avals[0].shape
    return m, k, avals[1].shape[1]


@record
class _Matrix:
    """Stored matrices: the leading dimension, and whether they are stored transposed."""

    transposed: bool
    leading: int


def _matrices(v: View, side: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape and strides of an operand; a vector is a row on the left, a column on the right."""
    if len(v.shape) > 1:
        return v.shape, v.strides
    return ((1, *v.shape), (0, *v.strides)) if side == 0 else ((*v.shape, 1), (*v.strides, 0))


def _readable_layout(shape: tuple[int, ...], strides: tuple[int, ...]) -> _Matrix | None:
    """How a product reads the matrices over the last two axes; None if it cannot."""
    (rows, columns), (down, along) = shape[-2:], strides[-2:]
    if (along == 1 or columns == 1) and (down >= columns or rows == 1):
        return _Matrix(False, max(down, columns) if rows > 1 else columns)
    if (down == 1 or rows == 1) and (along >= rows or columns == 1):
        return _Matrix(True, max(along, rows) if columns > 1 else rows)
    return None


def readable(v: View, side: int) -> bool:
    """Whether a product can read an operand in place, without a copy."""
    return _readable_layout(*_matrices(v, side)) is not None


def writable(c: View, factors: Sequence[View]) -> bool:
    """Whether a product of two matrices, or batches of them, can write its result to a view."""
    if any(len(v.shape) < 2 for v in factors) or min(c.strides) < 0:
        return False
    (rows, columns), (down, along) = c.shape[-2:], c.strides[-2:]
    return (along == 1 or columns == 1) and (down >= columns or rows == 1)


def gemm(
    e: Equation,
    a: View,
    b: View,
    c: View,
    buffers: tuple[int, int, int],
    bias: int | None = None,
) -> GemmStep:
    """The step of a product whose operands are readable; the result is a root, or is writable."""
    (a_shape, a_strides), (b_shape, b_strides) = _matrices(a, 0), _matrices(b, 1)
    left, right = _readable_layout(a_shape, a_strides), _readable_layout(b_shape, b_strides)
    assert left is not None and right is not None, "copies come before"
    m, k, n = a_shape[-2], a_shape[-1], b_shape[-1]
    batch, below = _broadcast(a_shape[:-2], b_shape[:-2]), n
    apart = _dense(batch, m * n)
    if not c.contiguous:
        apart, below = c.strides[:-2], max(c.strides[-2], n)
    axes = _BatchAxes(
        batch,
        _spread(a_shape[:-2], a_strides[:-2], batch),
        _spread(b_shape[:-2], b_strides[:-2], batch),
        apart,
    ).collapse()
    if len(axes.sizes) == 1 and not left.transposed and not axes.b[0]:
        # One matrix b for a whole batch whose rows are evenly spaced: a single product.
        even = axes.a[0] == m * left.leading and axes.c[0] == m * below
        if even or m == 1:
            leading, under = (axes.a[0], axes.c[0]) if m == 1 else (left.leading, below)
            if leading >= k and under >= n:
                left, below = _Matrix(False, leading), under
                m, axes = m * axes.sizes[0], _BatchAxes((), (), (), ())
    return GemmStep(
        *buffers,
        m=m,
        n=n,
        k=k,
        lda=left.leading,
        ldb=right.leading,
        ldc=below,
        transpose_a=left.transposed,
        transpose_b=right.transposed,
        batch=axes.sizes,
        a_strides=axes.a,
        b_strides=axes.b,
        c_strides=axes.c,
        alpha=e.static[0] if e.static else 1.0,
        beta=1.0 if e.op.name == ACCUMULATE else 0.0,
        bias=bias,
        activation=activation_of(e),
        origins=(e.origin,),
    )


@record
class _BatchAxes:
    """The batch axes, with the strides of a, b and c."""

    sizes: tuple[int, ...]
    a: tuple[int, ...]
    b: tuple[int, ...]
    c: tuple[int, ...]

    def collapse(self) -> "_BatchAxes":
        """Collapse neighbouring axes that are contiguous in all arrays; drop axes of length 1."""
        made: list[list[int]] = []
        for axis in zip(self.sizes, self.a, self.b, self.c, strict=True):
            if axis[0] == 1:
                continue
            if made and all(s == t * axis[0] for s, t in zip(made[-1][1:], axis[1:], strict=True)):
                made[-1] = [made[-1][0] * axis[0], *axis[1:]]
            else:
                made.append(list(axis))
        columns = zip(*made, strict=True) if made else ((), (), (), ())
        return _BatchAxes(*map(tuple, columns))


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    n = max(len(a), len(b))
    a, b = (1,) * (n - len(a)) + a, (1,) * (n - len(b)) + b
    return tuple(max(x, y) for x, y in zip(a, b, strict=True))


def _spread(shape: Shape, strides: Strides, batch: Shape) -> Strides:
    """Strides along the batch axes; 0 where an operand is broadcast."""
    pad = len(batch) - len(shape)
    pairs = zip(shape, strides, batch[pad:], strict=True)
    return (0,) * pad + tuple(s if n == size else 0 for n, s, size in pairs)


def _dense(batch: tuple[int, ...], size: int) -> tuple[int, ...]:
    strides = []
    for n in reversed(batch):
        strides.append(size)
        size *= n
    return tuple(reversed(strides))
