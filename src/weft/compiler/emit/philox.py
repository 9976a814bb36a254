"""Philox4x32-10 (Salmon, Moraes, Dror and Shaw, SC11) in lanes: a block of four words in each."""

from .code import Code, LLValue, lanes_of
from .lanes_in_memory import splat

LANES = 16
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_INCREMENTS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def halves(x: LLValue) -> tuple[LLValue, LLValue]:
    """The low and the high word of 64-bit numbers."""
    return x.cast("trunc", "i32"), x.logical_shift(32).cast("trunc", "i32")


def _product(x: LLValue, by: int) -> tuple[LLValue, LLValue]:
    """The high and the low word of a product."""
    whole = x.cast("zext", "i64") * by
    low, high = halves(whole)
    return high, low


def philox(key: tuple[LLValue, LLValue], counter: list[LLValue]) -> list[LLValue]:
    """The four words of the blocks with these counters, lowest words first."""
    k0, k1 = key
    c0, c1, c2, c3 = counter
    for r in range(_ROUNDS):
        high0, low0 = _product(c0, _MULTIPLIERS[0])
        high1, low1 = _product(c2, _MULTIPLIERS[1])
        steps = [_wrap(r * w) for w in _INCREMENTS]
        c0, c1 = high1 ^ c1 ^ (k0 + steps[0]), low1
        c2, c3 = high0 ^ c3 ^ (k1 + steps[1]), low0
    return [c0, c1, c2, c3]


def _wrap(x: int) -> int:
    """A word as LLVM writes it, with a sign."""
    x &= 0xFFFFFFFF
    return x - (1 << 32) if x >> 31 else x


def from_zero(code: Code, lanes: int = LANES) -> LLValue:
    """0, 1, 2, … as 64-bit numbers."""
    numbers = ", ".join(f"i64 {i}" for i in range(lanes))
    return LLValue(code, lanes_of("i64", lanes), f"<{numbers}>")


def stream_words(
    key: LLValue, position: LLValue, nonce: LLValue, lanes: int = LANES
) -> list[LLValue]:
    """The words of a stream's blocks from a position on, a block in each lane."""
    place = position
    if lanes > 1:
        place = splat(position, lanes) + from_zero(key.code, lanes)
    counter = [*halves(place), *(splat(w, lanes) for w in halves(nonce))]
    k0, k1 = (splat(w, lanes) for w in halves(key))
    return philox((k0, k1), counter)


def interleave(columns: list[LLValue]) -> LLValue:
    """Interleave the lanes of two or four values."""
    while len(columns) > 1:
        half = len(columns) // 2
        # The first with the first of the second half, so that all end up in order.
        columns = [_interleave_pair(columns[i], columns[i + half]) for i in range(half)]
    return columns[0]


def _interleave_pair(a: LLValue, b: LLValue) -> LLValue:
    kind, code = a.type, a.code
    if kind.lanes == 1:
        pair = lanes_of(kind.element, 2)
        one = code.emit(pair, f"insertelement {pair} poison, {kind} {a}, i32 0")
        return code.emit(pair, f"insertelement {pair} {one}, {kind} {b}, i32 1")
    picks = ", ".join(f"i32 {i}, i32 {i + kind.lanes}" for i in range(kind.lanes))
    mask = f"<{2 * kind.lanes} x i32> <{picks}>"
    text = f"shufflevector {kind.text} {a.name}, {kind.text} {b.name}, {mask}"
    return code.emit(lanes_of(kind.element, 2 * kind.lanes), text)
