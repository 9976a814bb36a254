"""Arithmetic beyond operators: fused multiply-add, selection, rare cases, calls of C functions."""

from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_

from .code import LLModule, LLValue, Type, lanes_of


def fma(a: LLValue, b: LLValue | float, c: LLValue | float) -> LLValue:
    """a·b + c, rounded once."""
    return a.intrinsic("fma", b, c)


def horner(x: LLValue, coefficients: Sequence[float]) -> LLValue:
    """c₀ + c₁x + … by nested products; coefficients from the constant one up."""
    y = x.same(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        y = fma(y, x, c)
    return y


def smaller(a: LLValue, b: LLValue | float) -> LLValue:
    """b where b < a, else a: NaN in `a` propagates, NaN in `b` is ignored."""
    b = a.same(b)
    return (b < a).choose(b, a)


def larger(a: LLValue, b: LLValue | float) -> LLValue:
    """b where b > a, else a: NaN in `a` propagates, NaN in `b` is ignored."""
    b = a.same(b)
    return (b > a).choose(b, a)


def size(x: LLValue) -> LLValue:
    """|x| of a float."""
    return x.intrinsic("fabs")


def copy_sign(x: LLValue, by: LLValue) -> LLValue:
    """|x| with the sign of `by`."""
    return x.intrinsic("copysign", by)


def root(x: LLValue) -> LLValue:
    """√x, correctly rounded."""
    return x.intrinsic("sqrt")


def widen(x: LLValue) -> LLValue:
    """float32 as float64."""
    return x.cast("fpext", "double")


def narrow(x: LLValue) -> LLValue:
    """float64 as float32, rounded to the nearest."""
    return x.cast("fptrunc", "float")


def anywhere(mask: LLValue) -> LLValue:
    """Whether a condition holds in any lane."""
    if mask.type.lanes == 1:
        return mask
    if "units" in mask.code.module.features:  # predicates are no bits of a register
        one, lanes = lanes_of("i1"), range(mask.type.lanes)
        parts = [mask.code.emit(one, f"extractelement {mask.type} {mask}, i32 {n}") for n in lanes]
        return reduce(or_, parts)
    kind = lanes_of(f"i{mask.type.lanes}")
    whole = mask.code.emit(kind, f"bitcast {mask.type.text} {mask.name} to {kind.text}")
    return whole.compare("ne", 0)


def rarely(mask: LLValue, usual: LLValue, other: Callable[[], LLValue]) -> LLValue:
    """`usual`, but `other()` in the lanes of the mask; `other` runs only if any lane needs it."""
    return rarely_all(mask, [usual], lambda: [other()])[0]


def rarely_all(
    mask: LLValue, usual: Sequence[LLValue], other: Callable[[], Sequence[LLValue]]
) -> list[LLValue]:
    """The same for several values."""
    code = mask.code
    if code.doubts is not None:
        code.doubts.append(mask)
        return list(usual)
    before, slow, after = code.block, code.label(), code.label()
    code.go_if(anywhere(mask), slow, after, rarely=True)
    code.start(slow)
    mended = [mask.choose(y, x) for x, y in zip(usual, other(), strict=True)]
    end = code.block
    code.go(after)
    code.start(after)
    joined = [code.phi(x.type) for x in usual]
    for phi, x, y in zip(joined, usual, mended, strict=True):
        phi.add(x, before)
        phi.add(y, end)
    return [phi.value for phi in joined]


def by_lanes(symbol: str, args: Sequence[LLValue]) -> LLValue:
    """A scalar C function, called for every lane in turn."""
    kind = args[0].type
    code = args[0].code
    one = lanes_of(kind.element)
    if kind.lanes == 1:
        return code.call(symbol, kind, args)
    key = ("by_lanes", symbol, kind.text)
    name = code.module.once(key, lambda m: _lane_loop(m, symbol, kind, one, len(args)))
    inside = ", ".join(f"{a.type.text} {a.name}" for a in args)
    return code.emit(kind, f"call {kind.text} @{name}({inside})")


def _lane_loop(module: LLModule, symbol: str, kind: Type, one: Type, count: int) -> str:
    """Emit a function that keeps its arguments in memory and loops over the lanes."""
    code = module.function(kind.text, [kind] * count)
    code.result = kind.text
    buffers = [code.local(kind) for _ in range(count)]
    align = one.width // 8
    for buffer, p in zip(buffers, code.parameters, strict=True):
        code.store(p, buffer, 64)
    loop, after, index = code.label(), code.label(), lanes_of("i64")
    before = code.block
    code.go(loop)
    code.start(loop)
    i = code.phi(index)
    i.add(code.constant(index, 0), before)
    places = [code.address(b, i.value, one.element) for b in buffers]
    y = code.call(symbol, one, [code.load(one, p, align) for p in places])
    code.store(y, places[0], align)
    following = i.value + 1
    i.add(following, code.block)
    code.go_if(following < kind.lanes, loop, after)
    code.start(after)
    y = code.load(kind, buffers[0], 64)
    code.do(f"ret {kind.text} {y.name}")
    return code.name
