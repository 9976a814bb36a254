"""Random variates of the words of a stream's blocks.

The same operations in the same order as `backend.variates`, so that every bit is equal to eager
mode's.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ...backend.shared.variates import FORMATS, MINUS_TWO_LOG_2, Format
from ...core import dtypes
from ...core.counter import WORD as WORDS
from ...core.record import record
from ...graph.graph import Equation, Graph, Literal
from .arithmetic import root, size
from .code import LLValue
from .convert import cast, round_to_half
from .philox import interleave


@record
class Variates(ABC):
    """What is made of the words of a block."""

    dtype: np.dtype

    @property
    @abstractmethod
    def per_block(self) -> int:
        """How many variates the four words of a block make."""

    @abstractmethod
    def of(self, words: list[LLValue]) -> LLValue:
        """Variates of the words of some blocks, a block in each lane, in registers."""

    def describe(self, streams: int, size: int) -> list[str]:
        """What a routine that draws them does, for reports."""
        name = type(self).__name__
        return [f"{name}(dtype={self.dtype.name}, streams={streams}, size={size})"]


def _join_words(low: LLValue, high: LLValue, bits: int) -> LLValue:
    """The top bits of 64-bit numbers given by their words."""
    low, high = low.cast("zext", "i64"), high.cast("zext", "i64")
    return (high << (bits - 32)) | low.logical_shift(64 - bits)


@record
class Words(Variates):
    """The words themselves in int64, or if `wide` the numbers of 64 bits that pairs make."""

    wide: bool

    @property
    def per_block(self) -> int:
        return 2 if self.wide else 4

    def of(self, words: list[LLValue]) -> LLValue:
        w0, w1, w2, w3 = (w.cast("zext", "i64") for w in words)
        return interleave([w0 | (w1 << 32), w2 | (w3 << 32)] if self.wide else [w0, w1, w2, w3])


@record
class Below(Variates):
    """Bernoulli draws: whether each random 32-bit word is below a threshold."""

    threshold: int

    @property
    def per_block(self) -> int:
        return 4

    def of(self, words: list[LLValue]) -> LLValue:
        flat = interleave(words)
        if self.threshold >= WORDS:
            return flat.code.constant(flat.type.of("i1"), True)
        limit = self.threshold - (WORDS if self.threshold >> 31 else 0)
        return flat.compare("lt", limit, signed=False)


@record
class Float(Variates):
    """A number in floating point of each word, or of two if it is float64."""

    @property
    def per_block(self) -> int:
        return 2 if self.dtype == dtypes.float64 else 4


@record
class Uniform(Float):
    """Numbers from low to last, the largest below high; half types are drawn in float32."""

    low: float
    high: float
    last: float

    def of(self, words: list[LLValue]) -> LLValue:
        w0, w1, w2, w3 = words
        if self.dtype == dtypes.float64:
            whole = interleave([_join_words(w0, w1, 53), _join_words(w2, w3, 53)])
            u = whole.cast("uitofp", "double") * 2.0**-53
        else:
            u = interleave(words).logical_shift(8).cast("uitofp", "float") * 2.0**-24
        if (self.low, self.high) != (0.0, 1.0) or self.dtype in dtypes.HALF:
            u = u * (self.high - self.low) + self.low
            u = (u > self.last).choose(u.same(self.last), u)
        return round_to_half(u, self.dtype)


@record
class Normal(Float):
    """Normal numbers by Box and Muller's transform; half types are computed in float32."""

    mean: float
    std: float

    def of(self, words: list[LLValue]) -> LLValue:
        w0, w1, w2, w3 = words
        if self.dtype == dtypes.float64:
            fmt = FORMATS["float64"]
            radius, angle, sign = _join_words(w0, w1, 53), _join_words(w2, w3, 52), w2 & 1
            points = [_point(fmt, "double", radius, angle, sign)]
        else:
            fmt = FORMATS["float32"]
            pairs = ((w0, w1), (w2, w3))
            points = [_point(fmt, "float", r, a.logical_shift(9), a & 1) for r, a in pairs]
        z = interleave([x for point in points for x in point])
        if self.std != 1.0:
            z = z * self.std
        if self.mean:
            z = z + self.mean
        return round_to_half(z, self.dtype)


def _point(
    fmt: Format, element: str, radius: LLValue, angle: LLValue, sign: LLValue
) -> list[LLValue]:
    """Both coordinates of points with these random bits."""
    k, angle, sign = (x.cast("uitofp", element) for x in (radius, angle, sign))
    angle, sign = angle * 2.0 + 1.0, sign * -2.0 + 1.0
    x = _radii(fmt, k) * sign
    angle = angle * 2.0**-fmt.fraction - 1.0
    return [x * _sine(fmt, 1.0 - size(angle)), x * _sine(fmt, angle)]


def _radii(fmt: Format, k: LLValue) -> LLValue:
    """√(−2 log u) for u = (k + ½)/2^radius."""
    k = k + 0.5
    bits = k.bits
    e = (bits - fmt.root_half) >> fmt.fraction
    k = (bits - (e << fmt.fraction)).as_float(k.type.element)
    s = (k - 1.0) / (k + 1.0)
    s = s * _polynomial(s * s, fmt.log)
    whole = (e.cast("sitofp", k.type.element) - float(fmt.radius)) * MINUS_TWO_LOG_2
    return root(s + whole)


def _sine(fmt: Format, t: LLValue) -> LLValue:
    return _polynomial(t * t, fmt.sine) * t


def _polynomial(x: LLValue, coefficients: tuple[float, ...]) -> LLValue:
    """Horner's rule, a rounding after each operation."""
    *rest, last = coefficients
    y = x * last
    for c in reversed(rest[1:]):
        y = (y + c) * x
    return y + rest[0]


@record
class Integers(Variates):
    """low + ⌊x·n/2ᵇ⌋ for x of b = 64 random bits if n is below 2³², else of 128."""

    low: int
    n: int

    @property
    def per_block(self) -> int:
        return 2 if self.n < WORDS else 1

    def of(self, words: list[LLValue]) -> LLValue:
        limbs = [w.cast("zext", "i64") for w in words]
        if self.n < WORDS:
            whole = interleave([_multiply_high(limbs[i : i + 2], [self.n])[0] for i in (0, 2)])
        else:
            digits = [self.n & (WORDS - 1), self.n >> 32 & (WORDS - 1), self.n >> 64]
            low, high, *_ = _multiply_high(limbs, digits)
            whole = low | (high << 32)
        return cast(whole + self.low, np.dtype(np.int64), self.dtype)


def _multiply_high(limbs: list[LLValue], digits: list[int]) -> list[LLValue]:
    """The words of ⌊x·n/2ᵇ⌋, lowest first, for b-bit x and n given by their words."""
    columns = [limbs[0].same(0) for _ in range(len(limbs) + len(digits) + 1)]
    for i, limb in enumerate(limbs):
        for j, digit in enumerate(digits):
            product = limb * digit
            columns[i + j] = columns[i + j] + (product & (WORDS - 1))
            columns[i + j + 1] = columns[i + j + 1] + product.logical_shift(32)
    for i in range(len(columns) - 1):
        columns[i + 1] = columns[i + 1] + columns[i].logical_shift(32)
        columns[i] = columns[i] & (WORDS - 1)
    return columns[len(limbs) :]


# -- from equations --------------------------------------------------------------------------

_REAL = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)


def _elsewhere(dtype: np.dtype) -> str:
    return f"numbers of {dtype} are drawn by the backend"


def _words(shape: Any, wide: bool) -> Variates:
    return Words(dtypes.int64, wide)


def _below(shape: Any, threshold: int) -> Variates:
    return Below(dtypes.bool_, int(threshold))


def _uniform(shape: Any, dtype: Any, *bounds: float) -> Variates | str:
    dtype = dtypes.canonical(dtype)
    if dtype not in _REAL:
        return _elsewhere(dtype)
    low, high, last = map(float, bounds)
    return Uniform(dtype, low, high, last)


def _normal(shape: Any, dtype: Any, mean: Any, std: float) -> Variates | str:
    dtype = dtypes.canonical(dtype)
    if dtype not in _REAL or isinstance(mean, complex):
        return _elsewhere(dtype)
    return Normal(dtype, float(mean), float(std))


def _integers(shape: Any, dtype: Any, low: int, n: int) -> Variates:
    low = (int(low) + 2**63) % 2**64 - 2**63
    return Integers(dtypes.canonical(dtype), low, int(n))


# By rows: from an equation's static parameters, or the reason why the backend draws.
ROWS: dict[str, Callable[..., Variates | str]] = {
    "draw_words": _words,
    "draw_below": _below,
    "draw_uniform": _uniform,
    "draw_normal": _normal,
    "draw_integers": _integers,
}


def variates_of(graph: Graph, e: Equation) -> tuple[Variates, int, int] | str:
    """What an equation draws, for how many streams, and how many variates of each.

    A text is the reason why it is drawn by the backend.
    """
    (state,) = e.inputs
    out = graph.avals[e.outputs[0]].shape
    if isinstance(state, Literal) or 0 in out:
        return "there is nothing to draw"
    made = ROWS[e.op.name](*e.static)
    if isinstance(made, str):
        return made
    streams = prod(graph.avals[state].shape[:-1])
    return made, streams, prod(out) // streams
