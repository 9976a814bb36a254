"""Random numbers: the words of a stream's blocks, and variates of them.

The same operations in the same order as `backend.variates`, so that every bit is equal to eager
mode's. A unit is sixteen blocks.
"""

from abc import abstractmethod
from math import prod

import numpy as np

from ....backend.shared.variates import FORMATS, MINUS_TWO_LOG_2, Format
from ....core import dtypes
from ....core.counter import WORD as WORDS
from ....core.record import record
from ....graph.graph import Equation, Graph, Literal
from ...emit.arithmetic import root, size
from ...emit.code import LLValue
from ...emit.control import behind, each, when, word
from ...emit.convert import cast, memory_type, round_to_half, to_memory
from ...emit.philox import LANES, interleave, stream_words
from ...ir.routine import RoutineArray, array
from .gather import move
from .registry import native
from .routine import NativeRoutine, RoutineBody

_BLOCK = 5.0  # nanoseconds


@record
class Draw(NativeRoutine):
    """`size` variates of a dtype for each of some streams, (key, position, nonce) each."""

    dtype: np.dtype
    streams: int
    size: int

    @property
    def draws(self) -> bool:
        return True

    @property
    def operands(self) -> tuple[RoutineArray, ...]:
        return (array(np.dtype(np.uint64), (self.streams, 3)),)

    @property
    def results(self) -> tuple[RoutineArray, ...]:
        return (array(self.dtype, (self.streams, self.size)),)

    @property
    @abstractmethod
    def per_block(self) -> int:
        """How many variates the four words of a block make."""

    @abstractmethod
    def variates(self, words: list[LLValue]) -> LLValue:
        """Variates of the words of sixteen blocks, in registers."""

    @property
    def groups(self) -> int:
        """The number of units of a stream."""
        return -(-self.size // (LANES * self.per_block))

    @property
    def count(self) -> int:
        return self.streams * self.groups

    @property
    def cost(self) -> float:
        return _BLOCK * LANES * self.count

    def body(self, b: RoutineBody) -> None:
        code, (states, out) = b.code, b.arrays
        item, some = self.dtype.itemsize, LANES * self.per_block
        kind = memory_type(self.dtype, some)
        last, rest = code.local(kind), self.size % some

        def unit(u: LLValue) -> None:
            stream = u.divide(self.groups, False)
            group = u.modulo(self.groups, False)
            state = behind(states, stream * 24)
            key, position, nonce = (word(state, i) for i in range(3))
            words = stream_words(key, position + group * LANES, nonce)
            made = to_memory(self.variates(words), self.dtype)
            target = behind(out, (stream * self.size + group * some) * item)
            if not rest:
                code.store(made, target, item)
                return
            whole = group < self.groups - 1
            when(whole, lambda: code.store(made, target, item))

            def end() -> None:
                code.store(made, last, 64)
                move(code, target, last, rest * item)

            when(whole ^ True, end)

        each(code, b.begin, b.end, unit)


def _join_words(low: LLValue, high: LLValue, bits: int) -> LLValue:
    """The top bits of 64-bit numbers given by their words."""
    low, high = low.cast("zext", "i64"), high.cast("zext", "i64")
    return (high << (bits - 32)) | low.logical_shift(64 - bits)


@record
class Words(Draw):
    """The words themselves in int64, or if `wide` the numbers of 64 bits that pairs make."""

    wide: bool

    @property
    def per_block(self) -> int:
        return 2 if self.wide else 4

    def variates(self, words: list[LLValue]) -> LLValue:
        w0, w1, w2, w3 = (w.cast("zext", "i64") for w in words)
        return interleave([w0 | (w1 << 32), w2 | (w3 << 32)] if self.wide else [w0, w1, w2, w3])


@record
class Below(Draw):
    """Bernoulli draws: whether each random 32-bit word is below a threshold."""

    threshold: int

    @property
    def per_block(self) -> int:
        return 4

    def variates(self, words: list[LLValue]) -> LLValue:
        flat = interleave(words)
        if self.threshold >= WORDS:
            return flat.code.constant(flat.type.of("i1"), True)
        limit = self.threshold - (WORDS if self.threshold >> 31 else 0)
        return flat.compare("lt", limit, signed=False)


@record
class Float(Draw):
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

    def variates(self, words: list[LLValue]) -> LLValue:
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

    def variates(self, words: list[LLValue]) -> LLValue:
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
class Integers(Draw):
    """low + ⌊x·n/2ᵇ⌋ for x of b = 64 random bits if n is below 2³², else of 128."""

    low: int
    n: int

    @property
    def per_block(self) -> int:
        return 2 if self.n < WORDS else 1

    def variates(self, words: list[LLValue]) -> LLValue:
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


def _sizes(graph: Graph, e: Equation) -> tuple[int, int] | None:
    """The number of streams, and of variates of each; None if there are none."""
    (state,) = e.inputs
    out = graph.avals[e.outputs[0]].shape
    if isinstance(state, Literal) or 0 in out:
        return None
    streams = prod(graph.avals[state].shape[:-1])
    return streams, prod(out) // streams


_NOTHING = "there is nothing to draw"


@native("draw_words")
def _words(graph, views, e) -> NativeRoutine | str:
    sizes, (_, wide) = _sizes(graph, e), e.static
    return Words(dtypes.int64, *sizes, wide) if sizes else _NOTHING


@native("draw_below")
def _below(graph, views, e) -> NativeRoutine | str:
    sizes, (_, threshold) = _sizes(graph, e), e.static
    return Below(dtypes.bool_, *sizes, int(threshold)) if sizes else _NOTHING


@native("draw_uniform")
def _uniform(graph, views, e) -> NativeRoutine | str:
    _, dtype, *bounds = e.static
    dtype, sizes = dtypes.canonical(dtype), _sizes(graph, e)
    if dtype not in _REAL:
        return f"numbers of {dtype} are drawn by the backend"
    low, high, last = map(float, bounds)
    return Uniform(dtype, *sizes, low, high, last) if sizes else _NOTHING


@native("draw_normal")
def _normal(graph, views, e) -> NativeRoutine | str:
    _, dtype, mean, std = e.static
    dtype, sizes = dtypes.canonical(dtype), _sizes(graph, e)
    if dtype not in _REAL or isinstance(mean, complex):
        return f"numbers of {dtype} are drawn by the backend"
    return Normal(dtype, *sizes, float(mean), float(std)) if sizes else _NOTHING


@native("draw_integers")
def _integers(graph, views, e) -> NativeRoutine | str:
    _, dtype, low, n = e.static
    dtype, sizes = dtypes.canonical(dtype), _sizes(graph, e)
    low = (int(low) + 2**63) % 2**64 - 2**63
    return Integers(dtype, *sizes, low, int(n)) if sizes else _NOTHING
