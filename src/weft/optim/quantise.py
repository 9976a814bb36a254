"""Numbers in 8 bits: blockwise dynamic quantisation, and Adam with its moments kept that way.

A block of numbers is divided by its largest magnitude, and each is replaced by the nearest entry
of a table of 256. The table is dynamic: it has seven decades, and each holds twice as many numbers
as the one below it, so that small and large numbers keep some digits each (Dettmers et al., 8-bit
Optimizers via Block-wise Quantization, 2022).
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from ..backend.device import place
from ..core import dtypes
from ..core.value import TENSORS, aval_of, wrap
from ..ops.arrange import pad
from ..ops.complex_ import abs_
from ..ops.elementwise import maximum
from ..ops.index import take
from ..ops.order import searchsorted
from ..ops.reduce import amax
from ..ops.slicing import narrow
from ..ops.structural import cast, reshape
from .rules import Array, Arrays, Number, adam, adamw

DECADES = 7
_TINY = float(np.finfo(np.float32).tiny)


@lru_cache(maxsize=None)
def dynamic_table(signed: bool) -> np.ndarray:
    """The 256 values, in order, that a number between −1 (or 0) and 1 is rounded to."""
    values = [0.0, 1.0]
    for decade in range(DECADES):
        count = 2**decade if signed else 2 ** (decade + 1)
        edges = np.linspace(0.1, 1.0, count + 1)
        centres = (edges[:-1] + edges[1:]) / 2 * 10.0 ** (decade - DECADES + 1)
        values += [*centres, *(-centres if signed else ())]
    return np.sort(np.asarray(values, np.float32))


@lru_cache(maxsize=None)
def boundaries(signed: bool) -> np.ndarray:
    """Where rounding goes from one entry of the table to the next.

    Only zero becomes the unsigned zero: a second moment rounded to zero beside a first moment that
    is not would make an unbounded step.
    """
    table = dynamic_table(signed).astype(np.float64)
    between = ((table[:-1] + table[1:]) / 2).astype(np.float32)
    if not signed:
        between[0] = 0.0
    return between


def quantise(x: Array, signed: bool, block: int) -> tuple[Array, Array]:
    """Codes of the elements of a flat array, and the scale of each block of them."""
    (n,) = x.shape
    count = -(-n // block)
    if aval_of(x).dtype != dtypes.float32:
        x = cast(x, dtypes.float32)
    if count * block != n:
        x = pad(x, ((0, count * block - n),), 0.0)
    rows = reshape(x, (count, block))
    scale = amax(abs_(rows), (1,), True)
    codes = _nearest(rows / maximum(scale, _TINY), signed)
    return narrow(reshape(codes, (count * block,)), 0, 0, n), reshape(scale, (count,))


def dequantise(codes: Array, scale: Array, signed: bool, block: int) -> Array:
    """The flat array that codes and scales stand for."""
    (n,), count = codes.shape, scale.shape[0]
    values = _looked_up(dynamic_table(signed), codes)
    if count * block != n:
        values = pad(values, ((0, count * block - n),), 0.0)
    rows = reshape(values, (count, block)) * reshape(scale, (count, 1))
    return narrow(reshape(rows, (count * block,)), 0, 0, n)


def _nearest(x: Array, signed: bool) -> Array:
    """The code of the table's entry that is nearest to each element."""
    if type(x) is np.ndarray:
        return _nearest_by_bits(x, signed)
    found = searchsorted(_beside(x, boundaries(signed)), x, False)
    return cast(found, dtypes.uint8)


@lru_cache(maxsize=None)
def _codes_by_bits(signed: bool) -> tuple[np.ndarray, np.ndarray]:
    """For the upper half of a float32's bits, the least code of such a number; the boundaries.

    At most one boundary lies among the numbers that share an upper half: bfloat16 is finer than
    the table.
    """
    upper = np.arange(1 << 16, dtype=np.uint32) << 16
    ends = [(upper | low).view(np.float32) for low in (0, 0xFFFF)]
    least = np.fmin(*ends)  # NaN counts as larger than all numbers
    codes = np.searchsorted(boundaries(signed), least).astype(np.uint8)
    return codes, np.append(boundaries(signed), np.float32(np.inf))


def _nearest_by_bits(x: np.ndarray, signed: bool) -> np.ndarray:
    """`searchsorted` by table look-up, some forty times as fast in NumPy."""
    least, bounds = _codes_by_bits(signed)
    upper = x.view(np.uint32) >> 16
    codes = least.take(upper, mode="wrap")
    codes += x > bounds.take(codes)
    return codes


def _looked_up(table: np.ndarray, codes: Array) -> Array:
    if type(codes) is np.ndarray:
        return table.take(codes)
    return take(_beside(codes, table), cast(codes, dtypes.int64), 0)


def _beside(x: Array, constant: np.ndarray) -> Array:
    """A constant on the device of x, as a tensor if x is one."""
    raw = place(constant, aval_of(x).device)
    return wrap(raw) if type(x) in TENSORS else raw


def adam8bit(
    p: Array, g: Array, m: Array, m_scale: Array, v: Array, v_scale: Array, *, lr: Number,
    beta1: float, beta2: float, eps: float, weight_decay: float, maximize: bool, block_size: int,
    t: Number
) -> Arrays:  # fmt: skip
    """Adam; the moments come and go as codes and scales."""
    rates = {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps}
    return _in_eight_bits(
        lambda p, g, m, v: adam(
            p, g, m, v, **rates, weight_decay=weight_decay, maximize=maximize, t=t
        ),
        (p, g),
        (m, m_scale, v, v_scale),
        block_size,
    )


def adamw8bit(
    p: Array, g: Array, m: Array, m_scale: Array, v: Array, v_scale: Array, *, lr: Number,
    beta1: float, beta2: float, eps: float, weight_decay: float, maximize: bool, block_size: int,
    t: Number
) -> Arrays:  # fmt: skip
    """AdamW; the moments come and go as codes and scales."""
    rates = {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": weight_decay}
    return _in_eight_bits(
        lambda p, g, m, v: adamw(p, g, m, v, **rates, correct_bias=True, maximize=maximize, t=t),
        (p, g),
        (m, m_scale, v, v_scale),
        block_size,
    )


def _in_eight_bits(
    update: Callable[..., Arrays], columns: tuple[Array, Array], state: Arrays, block: int
) -> Arrays:
    """The step on flat columns, as the moments are; a compiled step has a parameter's own shape."""
    m, m_scale, v, v_scale = state
    shape, flat = columns[0].shape, [reshape(x, m.shape) for x in columns]
    moments = dequantise(m, m_scale, True, block), dequantise(v, v_scale, False, block)
    p, m, v = update(*flat, *moments)
    return reshape(p, shape), *quantise(m, True, block), *quantise(v, False, block)
