"""Random variates from Philox words, in arithmetic that every backend rounds alike.

Written once for NumPy and PyTorch: integers stay inside int64, and floats meet only + - * /
and sqrt, one at a time, which IEEE 754 rounds correctly everywhere (a library's log or sin is
not, and a fused multiply-add would differ). So the backends agree bit for bit.
"""

from collections.abc import Callable, Sequence
from math import prod
from types import ModuleType
from typing import Any

import numpy as np

from ...core import dtypes
from ...core.counter import MASK, WORD, WORDS_PER_BLOCK, ReservedBlocks, block_words, high_low
from ...core.record import record
from .types import Raw, Shape, Words


@record
class VariatesTarget:
    """Where variates are made: the array library, its device, and the chunk sizes."""

    xp: ModuleType
    device: Any
    cast: Callable[[Raw, np.dtype], Raw]
    sqrt: Callable[[Raw], Raw]  # correctly rounded
    order: Callable[[Raw], Raw]  # the stable argsort
    chunk: int  # blocks at a time: the temporaries should stay in the cache
    few: int  # up to this many blocks Python's integers are faster than arrays


def words(at: VariatesTarget, draw: ReservedBlocks, start: int, blocks: int) -> Words:
    """Four int64 arrays: the words of `blocks` blocks."""
    if 0 < blocks <= at.few:
        rows = [block_words(draw, start, i) for i in range(blocks)]
        return at.xp.asarray(rows, dtype=at.xp.int64, device=at.device).T
    index = at.xp.arange(blocks, dtype=at.xp.int64, device=at.device)
    return block_words(draw, start, index)


def fill(
    at: VariatesTarget,
    draw: ReservedBlocks,
    shape: Shape,
    per_block: int,
    transform: Callable[[Words], Raw],
) -> Raw:
    """An array of variates; transform turns the words of n blocks into n·per_block of them."""
    count = prod(shape)
    blocks = -(-count // per_block)
    out = flat = None
    for start in range(0, max(blocks, 1), at.chunk):
        part = transform(words(at, draw, start, min(at.chunk, blocks - start))).reshape(-1)
        if flat is None:
            out = at.xp.empty(shape, dtype=part.dtype, device=at.device)
            flat = out.reshape(-1)
        first = start * per_block
        flat[first : first + at.chunk * per_block] = part[: count - first]
    return out


def _side_by_side(at: VariatesTarget, columns: Sequence[Raw], dtype: Any) -> Raw:
    """The columns as the last axis of one array: the variates of a block are neighbours."""
    out = at.xp.empty((*columns[0].shape, len(columns)), dtype=dtype, device=at.device)
    for j, column in enumerate(columns):
        out[..., j] = column
    return out


def uniform(
    at: VariatesTarget,
    draw: ReservedBlocks,
    shape: Shape,
    dtype: np.dtype,
    low: float,
    high: float,
    last: float,
) -> Raw:
    """Uniform in [low, high), for which `last` is the largest value below high.

    The unit uniform is a multiple of 2⁻²⁴ (2⁻⁵³ in double precision). Half types are drawn in
    float32, then rounded.
    """
    xp, double = at.xp, dtypes.to_real(dtype) == dtypes.float64
    plain = (low, high) == (0.0, 1.0) and dtype not in dtypes.HALF

    def transform(w):
        if double:
            u = _side_by_side(
                at, [_join_words(w[0], w[1], 53), _join_words(w[2], w[3], 53)], xp.float64
            )
            u *= 2.0**-53
        else:
            u = _side_by_side(at, [plane >> 8 for plane in w], xp.float32)
            u *= 2.0**-24
        if not plain:
            u *= high - low
            u += low
            u = xp.clip(u, None, last)
        return at.cast(u, dtype) if dtype in dtypes.HALF else _pair_variates(xp, u, dtype)

    return fill(at, draw, shape, WORDS_PER_BLOCK // words_per(dtype), transform)


def words_per(dtype: np.dtype) -> int:
    """How many words a real or complex variate takes."""
    return max(1, dtype.itemsize // 4)


def _join_words(low: Raw, high: Raw, bits: int) -> Raw:
    """The top `bits` bits of the 64-bit number high·2³² + low."""
    return (high << (bits - 32)) | (low >> (64 - bits))


def _pair_variates(xp: ModuleType, x: Raw, dtype: np.dtype) -> Raw:
    return x.view(getattr(xp, dtype.name)) if dtype in dtypes.COMPLEX else x


@record
class Format:
    """A floating format, and approximations that are good to its precision.

    sine: sin(πt/2)/t in powers of t², for |t| ≤ 1. log: -2·log((1+s)/(1-s))/s in powers of s²,
    for |s| ≤ (√2-1)/(√2+1). Both minimax in the relative error (Remez).
    """

    real: str
    integer: str
    fraction: int  # stored bits of the significand
    root_half: int  # the bit pattern of √½
    radius: int  # bits of the uniform number that the radius is made from
    sine: tuple[float, ...]
    log: tuple[float, ...]


# Relative errors of the approximations: sine 5.3e-9, log 6.9e-10.
_SINGLE = Format(
    real="float32",
    integer="int32",
    fraction=23,
    root_half=0x3F3504F3,
    radius=32,
    sine=(
        1.570796318447811,
        -0.6459637105979242,
        0.07968967893774823,
        -0.0046737665973024395,
        0.00015148512358710228,
    ),
    log=(-3.999999997242696, -1.3333363190071483, -0.7994958988402254, -0.5985130138487887),
)
# Relative errors of the approximations: sine 2.6e-19, log 1.2e-18.
_DOUBLE = Format(
    real="float64",
    integer="int64",
    fraction=52,
    root_half=0x3FE6A09E667F3BCD,
    radius=53,
    sine=(
        1.5707963267948966,
        -0.6459640975062462,
        0.07969262624616544,
        -0.004681754135302642,
        0.0001604411847068219,
        -3.5988430072083722e-06,
        5.6921348726826666e-08,
        -6.684321718481313e-10,
        5.8706109294446865e-12,
    ),
    log=(
        -4.0,
        -1.333333333333353,
        -0.7999999999859777,
        -0.5714285752269239,
        -0.4444439397655587,
        -0.3636727018670591,
        -0.3062488753295589,
        -0.29621059670519373,
    ),
)
FORMATS: dict[str, Format] = {f.real: f for f in (_SINGLE, _DOUBLE)}
MINUS_TWO_LOG_2 = -1.3862943611198906


def normal(
    at: VariatesTarget,
    draw: ReservedBlocks,
    shape: Shape,
    dtype: np.dtype,
    mean: complex,
    std: float,
) -> Raw:
    """Normal with this mean and E|x - mean|² = std², by Box and Muller's transform.

    A point on a half circle of radius √(-2 log u), with a random sign: both coordinates are
    standard normal. Half types are computed in float32, then rounded.
    """
    fmt = _DOUBLE if dtypes.to_real(dtype) == dtypes.float64 else _SINGLE
    scale = std * 0.5**0.5 if dtype in dtypes.COMPLEX else std

    def transform(w):
        radius, angle, sign = _polar(at, fmt, w)
        x = _radii(at, fmt, radius)
        x *= sign
        angle *= 2.0**-fmt.fraction
        angle -= 1.0
        z = _side_by_side(at, [x * _sine(1.0 - abs(angle), fmt), x * _sine(angle, fmt)], x.dtype)
        if scale != 1.0:
            z *= scale
        z = _pair_variates(at.xp, z, dtype)
        if mean:
            z += mean
        return at.cast(z, dtype) if dtype in dtypes.HALF else z

    return fill(at, draw, shape, WORDS_PER_BLOCK // words_per(dtype), transform)


def _polar(at: VariatesTarget, fmt: Format, w: Words) -> tuple[Raw, Raw, Raw]:
    """Per point: an integer in [0, 2^radius), an odd one in (0, 2^(fraction+1)), a sign ±1."""
    w0, w1, w2, w3 = w
    if fmt is _DOUBLE:
        radius, angle, sign = [_join_words(w0, w1, 53)], [_join_words(w2, w3, 52)], [w2 & 1]
    else:
        radius, angle, sign = [w0, w2], [w1 >> 9, w3 >> 9], [w1 & 1, w3 & 1]
    real = getattr(at.xp, fmt.real)
    radius, angle, sign = (_side_by_side(at, c, real) for c in (radius, angle, sign))
    angle *= 2.0
    angle += 1.0
    sign *= -2.0
    sign += 1.0
    return radius, angle, sign


def _radii(at: VariatesTarget, fmt: Format, k: Raw) -> Raw:
    """√(-2 log u) for u = (k + ½)/2^radius; takes k's memory.

    k + ½ = m·2^e with m in [√½, √2), and log m = 2 artanh((m-1)/(m+1)).
    """
    k += 0.5
    bits = k.view(getattr(at.xp, fmt.integer))
    e = bits - fmt.root_half
    e >>= fmt.fraction
    bits -= e << fmt.fraction
    s = k - 1.0
    k += 1.0
    s /= k
    square = s * s
    s *= _polynomial(square, fmt.log)
    square[...] = e
    square -= float(fmt.radius)
    square *= MINUS_TWO_LOG_2
    s += square
    return at.sqrt(s)


def _sine(t: Raw, fmt: Format) -> Raw:
    """sin(πt/2) for |t| ≤ 1."""
    out = _polynomial(t * t, fmt.sine)
    out *= t
    return out


def _polynomial(x: Raw, coefficients: tuple[float, ...]) -> Raw:
    """Horner's rule, a rounding after each operation."""
    *rest, last = coefficients
    out = x * last
    for c in reversed(rest[1:]):
        out += c
        out *= x
    out += rest[0]
    return out


def integers(
    at: VariatesTarget, draw: ReservedBlocks, shape: Shape, dtype: np.dtype, low: int, n: int
) -> Raw:
    """low + ⌊x·n/2^b⌋, with x of b = 64 random bits for n < 2³², else of 128.

    A value's probability differs from 1/n by less than 2⁻ᵇ, a relative bias of n/2ᵇ < 2⁻³²: there
    is no rejection, so that the words a draw takes are known before.
    """
    wide = n >= WORD
    digits = [n & MASK, (n >> 32) & MASK, n >> 64] if wide else [n]
    # Sums are modulo 2⁶⁴, so that the upper half of uint64 passes through int64.
    low = (low + 2**63) % 2**64 - 2**63

    def transform(w):
        if wide:
            out = _whole(_multiply_high(w, digits), 0)
        else:
            pair = [_multiply_high(w[i : i + 2], digits)[0] for i in (0, 2)]
            out = _side_by_side(at, pair, at.xp.int64)
        out += low
        return at.cast(out, dtype)

    return fill(at, draw, shape, WORDS_PER_BLOCK // words_per_integer(n), transform)


def words_per_integer(n: int) -> int:
    """How many words an integer from a range of n takes."""
    return 2 if n < WORD else 4


def _multiply_high(limbs: Words, digits: list[int]) -> list[Raw]:
    """The words of ⌊x·n/2^b⌋, lowest first, for b-bit x and n given by their words."""
    columns: list[Any] = [0] * (len(limbs) + len(digits) + 1)
    for i, limb in enumerate(limbs):
        for j, digit in enumerate(digits):
            high, low = high_low(limb, digit)
            columns[i + j] = columns[i + j] + low
            columns[i + j + 1] = columns[i + j + 1] + high
    for i in range(len(columns) - 1):
        columns[i + 1] = columns[i + 1] + (columns[i] >> 32)
        columns[i] = columns[i] & MASK
    return columns[len(limbs) :]


def _whole(w: Words, i: int) -> Raw:
    """Words i and i + 1 as one 64-bit pattern, the first word lowest, in int64."""
    return w[i] | (w[i + 1] << 32)


def bits(at: VariatesTarget, draw: ReservedBlocks, shape: Shape) -> Raw:
    """Random words, as int64."""
    return fill(at, draw, shape, 4, lambda w: _side_by_side(at, w, at.xp.int64))


def below(at: VariatesTarget, draw: ReservedBlocks, shape: Shape, threshold: int | Raw) -> Raw:
    """True with probability threshold/2³², for a number or a float64 array that fits the shape."""
    if not isinstance(threshold, int):
        return bits(at, draw, shape) < threshold

    def transform(w):
        return _side_by_side(at, [word < threshold for word in w], at.xp.bool)

    return fill(at, draw, shape, 4, transform)


def order(at: VariatesTarget, draw: ReservedBlocks, n: int) -> Raw:
    """A permutation of 0 … n-1: the stable order of n 64-bit keys, as int64.

    Two keys are equal, and then in their old order, with probability below n²/2⁶⁵.
    """

    def transform(w):
        return _side_by_side(at, [_whole(w, 0), _whole(w, 2)], at.xp.int64)

    return at.order(fill(at, draw, (n,), 2, transform))
