"""Control flow and memory in native code: conditions, loops, words, atomics, calls."""

from collections.abc import Callable, Sequence

from .code import Code, LLValue, lanes_of

WORD, HALF_WORD, POINTER = lanes_of("i64"), lanes_of("i32"), lanes_of("ptr")
BYTES = 8  # bytes of a word and of a pointer


def _has_ended(code: Code) -> bool:
    """Whether the current block has its terminator."""
    return bool(code.lines) and code.lines[-1].startswith(("  ret", "  br", "  unreachable"))


def when(condition: LLValue, body: Callable[[], object], rarely: bool = False) -> None:
    """Emit body() under a condition; it may return from the function."""
    code = condition.code
    inside, after = code.label(), code.label()
    code.go_if(condition, inside, after, rarely)
    code.start(inside)
    body()
    if not _has_ended(code):
        code.go(after)
    code.start(after)


def leave_if(condition: LLValue, result: LLValue | None = None) -> None:
    """Return from the function, if a condition holds."""
    when(condition, lambda: leave(condition.code, result))


def leave(code: Code, result: LLValue | None = None) -> None:
    """Return from the function."""
    code.do("ret void" if result is None else f"ret {result.type.text} {result.name}")


def each(
    code: Code,
    start: LLValue | int,
    stop: LLValue | int,
    body: Callable[[LLValue], None],
    step: int = 1,
) -> None:
    """Emit body(i) for start ≤ i < stop, by steps."""
    stop = code.constant(WORD, stop) if isinstance(stop, int) else stop
    first = code.constant(WORD, start) if isinstance(start, int) else start
    inside, after, before = code.label(), code.label(), code.block
    code.go_if(first < stop, inside, after)
    code.start(inside)
    i = code.phi(WORD)
    i.add(first, before)
    body(i.value)
    following = i.value + step
    i.add(following, code.block)
    code.go_if(following < stop, inside, after)
    code.start(after)


def forever(code: Code, body: Callable[[str], None]) -> None:
    """Emit body(exit label) as an endless loop, until it branches to the label or returns."""
    inside, after = code.label(), code.label()
    code.go(inside)
    code.start(inside)
    body(after)
    if not _has_ended(code):
        code.go(inside)
    code.start(after)


def nothing(code: Code) -> LLValue:
    """The null pointer."""
    return LLValue(code, POINTER, "null")


def address(base: LLValue, words: LLValue | int) -> LLValue:
    """The pointer so many words after a pointer."""
    return base.code.address(base, words, "i64")


def behind(base: LLValue, count: LLValue | int) -> LLValue:
    """The pointer so many bytes after a pointer."""
    return base.code.address(base, count, "i8")


def word(base: LLValue, at: LLValue | int) -> LLValue:
    """Load the integer so many words after a pointer."""
    return base.code.load(WORD, address(base, at), BYTES)


def pointer(base: LLValue, at: LLValue | int) -> LLValue:
    """Load the pointer so many words after a pointer."""
    return base.code.load(POINTER, address(base, at), BYTES)


def put(value: LLValue, base: LLValue, at: LLValue | int) -> None:
    """Store a word or a pointer, so many words after a pointer."""
    base.code.store(value, address(base, at), BYTES)


def load_atomic(base: LLValue, at: int, order: str = "acquire") -> LLValue:
    """Load a word that other threads write (acquire)."""
    place = address(base, at)
    return base.code.emit(WORD, f"load atomic i64, ptr {place.name} {order}, align 8")


def publish(value: LLValue, base: LLValue, at: int, order: str = "release") -> None:
    """Store a word that other threads read (release)."""
    place = address(base, at)
    base.code.do(f"store atomic i64 {value.name}, ptr {place.name} {order}, align 8")


def swap(value: LLValue, base: LLValue, at: int) -> LLValue:
    """Atomically store a word, and return the old one."""
    place = address(base, at)
    return base.code.emit(WORD, f"atomicrmw xchg ptr {place.name}, i64 {value.name} seq_cst")


def increase(base: LLValue, at: int, by: LLValue | int) -> LLValue:
    """Atomically add to a word, and return the old one."""
    place = address(base, at)
    return base.code.emit(WORD, f"atomicrmw add ptr {place.name}, i64 {by} seq_cst")


def replace_if(base: LLValue, at: int, old: LLValue, new: LLValue) -> LLValue:
    """Atomically replace a word if it is still the old one; whether it was."""
    code, place = base.code, address(base, at)
    pair = code.label()
    code.do(f"%{pair} = cmpxchg ptr {place.name}, i64 {old.name}, i64 {new.name} acq_rel acquire")
    return code.emit(lanes_of("i1"), f"extractvalue {{ i64, i1 }} %{pair}, 1")


def invoke(code: Code, name: str, result: str, args: Sequence[LLValue]) -> LLValue:
    """Call a function of this module, or an external one that has effects."""
    code.module.declare(name, result, [a.type for a in args], pure=False)
    return _call(code, f"@{name}", result, args)


def invoke_at(target: LLValue, result: str, args: Sequence[LLValue]) -> LLValue:
    """Call a function through a pointer."""
    return _call(target.code, target.name, result, args)


def _call(code: Code, target: str, result: str, args: Sequence[LLValue]) -> LLValue:
    inside = ", ".join(f"{a.type.text} {a.name}" for a in args)
    if result == "void":
        code.do(f"call void {target}({inside})")
        return LLValue(code, WORD, "poison")
    return code.emit(lanes_of(result), f"call {result} {target}({inside})")


# The intrinsics of spin-wait hints, and their arguments.
_WAITING = {"x86_64": ("llvm.x86.sse2.pause", ()), "aarch64": ("llvm.aarch64.isb", (15,))}


def pause(code: Code, processor: str) -> None:
    """Emit a spin-wait hint, where the processor has one."""
    if processor in _WAITING:
        name, args = _WAITING[processor]
        invoke(code, name, "void", [code.constant(HALF_WORD, a) for a in args])
