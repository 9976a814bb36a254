"""Loading and storing lanes: contiguous, backwards, broadcast or strided."""

import numpy as np

from .code import Code, LLValue, lanes_of
from .convert import from_memory, memory_type, to_memory


def splat(value: LLValue, lanes: int) -> LLValue:
    """One number in every lane; a value with lanes is returned unchanged."""
    kind = value.type
    if kind.lanes == lanes:
        return value
    code, wide = value.code, lanes_of(kind.element, lanes)
    one = code.emit(wide, f"insertelement {wide.text} poison, {kind.text} {value.name}, i32 0")
    zeros = f"<{lanes} x i32> zeroinitializer"
    return code.emit(wide, f"shufflevector {wide.text} {one.name}, {wide.text} poison, {zeros}")


def first(code: Code, lanes: int, count: int) -> LLValue:
    """A mask of the first `count` lanes."""
    bits = ", ".join("i1 true" if i < count else "i1 false" for i in range(lanes))
    return LLValue(code, lanes_of("i1", lanes), f"<{bits}>")


def opaque_first(code: Code, lanes: int, count: int) -> LLValue:
    """The same, where the processor has mask registers, but opaque to LLVM.

    LLVM turns a zero-filling load under a known mask into an expansion, which takes eighty cycles;
    and a load with a single known lane sends its code generator into an endless loop.
    """
    mask = first(code, lanes, count)
    if not code.module.wide or lanes not in (8, 16, 32, 64):
        return mask
    bits = code.hide_constant(lanes_of(f"i{lanes}"), (1 << count) - 1)
    return code.emit(mask.type, f"bitcast {bits.type.text} {bits.name} to {mask.type.text}")


def lane_numbers(code: Code, lanes: int, stride: int) -> LLValue:
    """0, stride, 2·stride, …"""
    places = ", ".join(f"i64 {i * stride}" for i in range(lanes))
    return LLValue(code, lanes_of("i64", lanes), f"<{places}>")


def _reverse_lanes(value: LLValue) -> LLValue:
    kind = value.type
    picks = ", ".join(f"i32 {i}" for i in reversed(range(kind.lanes)))
    mask = f"<{kind.lanes} x i32> <{picks}>"
    text = f"shufflevector {kind.text} {value.name}, {kind.text} poison, {mask}"
    return value.code.emit(kind, text)


def _places(code: Code, pointer: LLValue, element: str, lanes: int, stride: int) -> LLValue:
    kind = lanes_of("ptr", lanes)
    steps = lane_numbers(code, lanes, stride)
    text = f"getelementptr {element}, ptr {pointer.name}, {steps.type.text} {steps.name}"
    return code.emit(kind, text)


def read(
    code: Code, pointer: LLValue, dtype: np.dtype, lanes: int, stride: int, count: int
) -> LLValue:
    """Load the first `count` of `lanes` elements that are `stride` apart; zeros in the others."""
    one = memory_type(dtype)
    align = max(one.width // 8, 1)
    if lanes == 1:
        return from_memory(code.load(one, pointer, align), dtype)
    if stride == 0:
        return splat(from_memory(code.load(one, pointer, align), dtype), lanes)
    kind = memory_type(dtype, lanes)
    if count == lanes and stride == 1:
        return from_memory(code.load(kind, pointer, align), dtype)
    if count == lanes and stride == -1:
        start = code.address(pointer, 1 - lanes, one.element)
        return from_memory(_reverse_lanes(code.load(kind, start, align)), dtype)
    mask = opaque_first(code, lanes, count) if count == 1 else first(code, lanes, count)
    rest = LLValue(code, kind, "zeroinitializer")
    name, place = f"llvm.masked.load.{kind.mangled}.p0", pointer
    if stride != 1:
        name = f"llvm.masked.gather.{kind.mangled}.v{lanes}p0"
        place = _places(code, pointer, one.element, lanes, stride)
    unit = code.constant(lanes_of("i32"), align)
    return from_memory(code.call(name, kind, [place, unit, mask, rest]), dtype)


def write(
    code: Code, value: LLValue, pointer: LLValue, dtype: np.dtype, stride: int, count: int
) -> None:
    """Store the first `count` lanes of a value to elements that are `stride` apart."""
    value = to_memory(value, dtype)
    one, lanes = memory_type(dtype), value.type.lanes
    align = max(one.width // 8, 1)
    if lanes == 1 or (count == lanes and stride == 1):
        code.store(value, pointer, align)
        return
    if count == lanes and stride == -1:
        code.store(_reverse_lanes(value), code.address(pointer, 1 - lanes, one.element), align)
        return
    mask, unit = first(code, lanes, count), code.constant(lanes_of("i32"), align)
    name, place = f"llvm.masked.store.{value.type.mangled}.p0", pointer
    if stride != 1:
        name = f"llvm.masked.scatter.{value.type.mangled}.v{lanes}p0"
        place = _places(code, pointer, one.element, lanes, stride)
    args = [value, place, unit, mask]
    code.module.declare(name, "void", [a.type for a in args])
    inside = ", ".join(f"{a.type.text} {a.name}" for a in args)
    code.do(f"call void @{name}({inside})")
