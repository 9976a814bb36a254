"""Numbers in registers: how each dtype is represented, loaded, stored and cast.

Half types are held in float32, rounded; booleans in one bit. What NumPy leaves undefined, a float
that does not fit an integer, is what its C code gives on x86.
"""

import numpy as np

from ...core import dtypes
from .code import LLValue, Type, lanes_of

_HELD = {
    dtypes.bool_: "i1",
    **{d: f"i{8 * d.itemsize}" for d in (*dtypes.SIGNED, *dtypes.UNSIGNED)},
    dtypes.float16: "float",
    dtypes.bfloat16: "float",
    dtypes.float32: "float",
    dtypes.float64: "double",
}
_STORED = {**_HELD, dtypes.bool_: "i8", dtypes.float16: "half", dtypes.bfloat16: "i16"}
SUPPORTED: tuple[np.dtype, ...] = tuple(_HELD)


def register_type(dtype: np.dtype, lanes: int = 1) -> Type:
    """The type of a dtype in registers."""
    return lanes_of(_HELD[dtype], lanes)


def memory_type(dtype: np.dtype, lanes: int = 1) -> Type:
    """The type of a dtype in memory."""
    return lanes_of(_STORED[dtype], lanes)


def from_memory(value: LLValue, dtype: np.dtype) -> LLValue:
    """From the memory representation to the register's."""
    if dtype == dtypes.bool_:
        return value.compare("ne", 0)
    if dtype == dtypes.float16:
        return value.cast("fpext", "float")
    if value.type.element == "bfloat":
        return value.cast("fpext", "float")
    if dtype == dtypes.bfloat16:
        return (value.cast("zext", "i32") << 16).as_float("float")
    return value


def to_memory(value: LLValue, dtype: np.dtype) -> LLValue:
    """From the register representation to the memory's; half types are rounded already."""
    if dtype == dtypes.bool_:
        return value.cast("zext", "i8")
    if dtype == dtypes.float16:
        return value.cast("fptrunc", "half")
    if dtype == dtypes.bfloat16 and "bfloat" in value.code.module.features:
        return value.cast("fptrunc", "bfloat")
    if dtype == dtypes.bfloat16:
        return value.bits.logical_shift(16).cast("trunc", "i16")
    return value


def round_to_half(value: LLValue, dtype: np.dtype) -> LLValue:
    """Round a float32 value to a half type, ties to even; other dtypes are returned unchanged."""
    if dtype == dtypes.float16:
        return value.cast("fptrunc", "half").cast("fpext", "float")
    if dtype != dtypes.bfloat16:
        return value
    if "bfloat" in value.code.module.features:
        return value.cast("fptrunc", "bfloat").cast("fpext", "float")
    bits = value.bits
    up = (bits + ((bits.logical_shift(16) & 1) + 0x7FFF)) & -0x10000
    return value.is_nan().choose(value.same(float("nan")).bits, up).as_float("float")


def is_float(dtype: np.dtype) -> bool:
    return dtype in dtypes.REAL


def is_signed(dtype: np.dtype) -> bool:
    return dtype in dtypes.SIGNED


def cast(value: LLValue, source: np.dtype, target: np.dtype) -> LLValue:
    """A value of one dtype as another, like NumPy's `astype`."""
    if source == target:
        return value
    if target == dtypes.bool_:
        return value.compare("ne", 0)
    if is_float(source):
        return _from_float(value, source, target)
    if is_float(target):
        return _integer_to_float(value, source, target)
    verb = "zext" if source == dtypes.bool_ or not is_signed(source) else "sext"
    wider = register_type(target).width > value.type.width
    return value.cast(verb if wider else "trunc", _HELD[target])


def _integer_to_float(value: LLValue, source: np.dtype, target: np.dtype) -> LLValue:
    verb = "sitofp" if is_signed(source) else "uitofp"
    exact = source.itemsize <= 2
    if target == dtypes.float64 or target == dtypes.float32 or exact:
        return round_to_half(value.cast(verb, _HELD[target]), target)
    # A half type from wide integers: NumPy goes through float32 or float64, and so does this.
    return cast(value.cast(verb, "double"), dtypes.float64, target)


def _from_float(value: LLValue, source: np.dtype, target: np.dtype) -> LLValue:
    if not is_float(target):
        return _to_integer(value, target)
    if target == dtypes.float64:
        return value.cast("fpext", "double")
    if source != dtypes.float64:
        return round_to_half(value, target)
    if target == dtypes.float16:
        return round_to_half(_to_odd(value), target)
    return round_to_half(value.cast("fptrunc", "float"), target)


def _to_odd(value: LLValue) -> LLValue:
    """float64 to float32 with an odd last bit unless exact: rounding again then rounds once."""
    near = value.cast("fptrunc", "float")
    back = near.cast("fpext", "double")
    beyond = back.intrinsic("fabs") > value.intrinsic("fabs")
    bits = near.bits
    bits = beyond.choose(bits - 1, bits)
    inexact = (back > value) | (back < value)
    return inexact.choose(bits | 1, bits).as_float("float")


def _to_integer(value: LLValue, target: np.dtype) -> LLValue:
    """Truncate; what does not fit becomes the most negative number of the converted width."""
    element = _HELD[target]
    if target == dtypes.uint64:
        high = value >= 2.0**63
        low = _truncate(high.choose(value - 2.0**63, value), "i64")
        return high.choose(low ^ -(2**63), low)
    wide = "i64" if target in (dtypes.int64, dtypes.uint32) else "i32"
    whole = _truncate(value, wide)
    return whole if wide == element else whole.cast("trunc", element)


def _truncate(value: LLValue, element: str) -> LLValue:
    bound = 2.0 ** (int(element[1:]) - 1)
    fits = (value >= -bound) & (value < bound)
    whole = fits.choose(value, value.same(0.0)).cast("fptosi", element)
    return fits.choose(whole, whole.same(-int(bound)))
