"""AVX-512 instructions that extract and scale exponents; elsewhere that takes several.

Other processors do without them; the results have the same bits.
"""

from collections.abc import Callable

from .code import LLValue, lanes_of

# Bits of the narrowest and of the widest registers.
LEAST, REGISTER = 128, 512
_NAMES = {"float": "ps", "double": "pd"}
# As is, without a mask: round to nearest, exceptions suppressed.
_CURRENT = 4
# Mantissa between ¾ and 3/2; NaN for negative numbers.
_THREE_QUARTERS = 0b1011


def available(x: LLValue) -> bool:
    """Whether these instructions are available for a value."""
    return x.code.module.wide and x.type.element in _NAMES


def scale_by_power(y: LLValue, n: LLValue) -> LLValue:
    """y·2ⁿ for a whole float n, rounded once."""
    return _by_registers(lambda a, b: _call("scalef", [a, b]), y, n)


def exponent(x: LLValue) -> LLValue:
    """⌊log₂|x|⌋ as a float: −∞ for zero, ∞ for infinities, NaN for NaN."""
    return _by_registers(lambda a: _call("getexp", [a]), x)


def mantissa(x: LLValue) -> LLValue:
    """x/2ⁿ between ¾ and 3/2: ±1 for ±0 and ∞, NaN for NaN and negative numbers."""
    return _by_registers(lambda a: _call("getmant", [a], _THREE_QUARTERS), x)


def reciprocal(x: LLValue) -> LLValue:
    """1/x to within 2⁻¹⁴."""
    return _by_registers(lambda a: _call("rcp14", [a]), x)


def _call(name: str, values: list[LLValue], choice: int | None = None) -> LLValue:
    """Call an intrinsic on one register."""
    kind, code = values[0].type, values[0].code
    bits = kind.lanes * kind.width
    mask = lanes_of(f"i{max(kind.lanes, 8)}")
    args = list(values)
    if choice is not None:
        args.append(code.constant(lanes_of("i32"), choice))
    args += [LLValue(code, kind, "zeroinitializer"), code.constant(mask, -1)]
    if bits == REGISTER and name != "rcp14":
        args.append(code.constant(lanes_of("i32"), _CURRENT))
    name = name if name == "rcp14" else f"mask.{name}"
    return code.call(f"llvm.x86.avx512.{name}.{_NAMES[kind.element]}.{bits}", kind, args)


def _by_registers(f: Callable[..., LLValue], *values: LLValue) -> LLValue:
    """Apply f to each register of some values."""
    kind = values[0].type
    least = LEAST // kind.width
    if kind.lanes < least:  # some lanes are unused
        return _part(f(*(_part(v, 0, least) for v in values)), 0, kind.lanes)
    if kind.lanes * kind.width <= REGISTER:
        return f(*values)
    half = kind.lanes // 2
    parts = [_by_registers(f, *(_part(v, start, half) for v in values)) for start in (0, half)]
    return _join_lanes(parts[0], parts[1])


def _picks(start: int, count: int) -> str:
    return f"<{count} x i32> <{', '.join(f'i32 {start + i}' for i in range(count))}>"


def _part(value: LLValue, start: int, count: int) -> LLValue:
    """Some neighbouring lanes; those beyond the last are unspecified."""
    kind, made = value.type, lanes_of(value.type.element, count)
    if kind.lanes == 1:
        text = f"insertelement {made.text} poison, {kind.text} {value.name}, i32 0"
    elif count == 1:
        text = f"extractelement {kind.text} {value.name}, i32 {start}"
    else:
        picks = _picks(start, count)
        text = f"shufflevector {kind.text} {value.name}, {kind.text} poison, {picks}"
    return value.code.emit(made, text)


def _join_lanes(a: LLValue, b: LLValue) -> LLValue:
    """The lanes of one value, then those of another."""
    kind, lanes = a.type, 2 * a.type.lanes
    text = f"shufflevector {kind.text} {a.name}, {kind.text} {b.name}, {_picks(0, lanes)}"
    return a.code.emit(lanes_of(kind.element, lanes), text)
