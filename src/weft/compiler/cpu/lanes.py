"""Building blocks of routines: loops that carry values, masked loads, transposes of lanes."""

from collections.abc import Callable, Sequence

import numpy as np

from ..emit.code import Code, LLValue, lanes_of
from ..emit.control import WORD
from ..emit.lanes_in_memory import first, splat
from ..native.machine import host

ELEMENT: dict[np.dtype, str] = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}
_INDEX = "i32"


def widest(dtype: np.dtype) -> int:
    """The lanes that fill a register of this processor."""
    return _register() // dtype.itemsize


def lanes_along(count: int, dtype: np.dtype) -> int:
    """The lanes for a line of results: no more than needed, if that is less than half."""
    lanes = widest(dtype)
    while lanes > 2 and lanes // 2 >= count:
        lanes //= 2
    return lanes


def accumulators() -> int:
    """How many registers hold sums while others hold factors."""
    return 24 if _register() == 64 else 12


def _register() -> int:
    return 64 if host().has("avx512f") else 32


def loop_carrying(
    code: Code,
    count: int | LLValue,
    values: Sequence[LLValue],
    body: Callable[[LLValue, list[LLValue]], Sequence[LLValue]],
) -> list[LLValue]:
    """values = body(i, values) for i below count, which is at least 1; returns the last values."""
    if isinstance(count, int) and count == 1:
        return list(body(code.constant(WORD, 0), list(values)))
    stop = code.constant(WORD, count) if isinstance(count, int) else count
    inside, after, before = code.label(), code.label(), code.block
    code.go(inside)
    code.start(inside)
    i, phis = code.phi(WORD), [code.phi(v.type) for v in values]
    i.add(code.constant(WORD, 0), before)
    for phi, value in zip(phis, values, strict=True):
        phi.add(value, before)
    made = list(body(i.value, [phi.value for phi in phis]))
    following = i.value + 1
    i.add(following, code.block)
    for phi, value in zip(phis, made, strict=True):
        phi.add(value, code.block)
    code.go_if(following < stop, inside, after)
    code.start(after)
    return made


def multiply_add(a: LLValue, b: LLValue, c: LLValue) -> LLValue:
    """a·b + c, rounded once."""
    return a.intrinsic("fma", b, c)


def broadcast(code: Code, pointer: LLValue, element: str, lanes: int) -> LLValue:
    """One number from memory, broadcast to all lanes."""
    one = lanes_of(element)
    return splat(code.load(one, pointer, one.width // 8), lanes)


def least(a: LLValue, b: LLValue | int) -> LLValue:
    """The smaller of two integers."""
    return (a < b).choose(a, a.same(b))


def within(code: Code, start: LLValue, step: int, lanes: int, limit: LLValue) -> LLValue:
    """The lanes in which 0 ≤ start + step · lane < limit; both fit 31 bits."""
    kind = lanes_of(_INDEX, lanes)
    steps = ", ".join(f"{_INDEX} {step * k}" for k in range(lanes))
    places = splat(start.cast("trunc", _INDEX), lanes) + LLValue(code, kind, f"<{steps}>")
    return places.compare("lt", splat(limit.cast("trunc", _INDEX), lanes), signed=False)


def masked_load(
    code: Code, pointer: LLValue, element: str, lanes: int, mask: LLValue, rest: float = 0
) -> LLValue:
    """Load the lanes of a mask; the others hold a number."""
    kind = lanes_of(element, lanes)
    align = code.constant(lanes_of("i32"), kind.width // 8)
    name = f"llvm.masked.load.{kind.mangled}.p0"
    return code.call(name, kind, [pointer, align, mask, code.constant(kind, rest)])


def load(code: Code, pointer: LLValue, element: str, lanes: int, count: int) -> LLValue:
    """Load the first `count` of `lanes` contiguous elements; zeros in the others."""
    if count == lanes:
        kind = lanes_of(element, lanes)
        return code.load(kind, pointer, kind.width // 8)
    return masked_load(code, pointer, element, lanes, first(code, lanes, count))


def shuffle(a: LLValue, b: LLValue, picks: Sequence[int]) -> LLValue:
    """Lanes of a and b concatenated, selected by number."""
    code, kind = a.code, lanes_of(a.type.element, len(picks))
    chosen = ", ".join(f"i32 {k}" for k in picks)
    mask = f"<{len(picks)} x i32> <{chosen}>"
    text = f"shufflevector {a.type.text} {a.name}, {b.type.text} {b.name}, {mask}"
    return code.emit(kind, text)


def join_vectors(parts: Sequence[LLValue]) -> LLValue:
    """Concatenate vectors; a power of two of them."""
    while len(parts) > 1:
        n = parts[0].type.lanes
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [shuffle(a, b, range(2 * n)) for a, b in pairs]
    return parts[0]


def transpose_lanes(rows: Sequence[LLValue]) -> list[LLValue]:
    """Transpose a square of lanes: each stage swaps blocks twice as large."""
    made, n = list(rows), len(rows)
    step = 1
    while step < n:
        for i in range(n):
            if i & step:
                continue
            a, b = made[i], made[i | step]
            low = [k if not k & step else n + (k ^ step) for k in range(n)]
            high = [k ^ step if not k & step else n + k for k in range(n)]
            made[i], made[i | step] = shuffle(a, b, low), shuffle(a, b, high)
        step *= 2
    return made
