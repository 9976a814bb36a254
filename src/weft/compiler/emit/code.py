"""Emitting LLVM IR: typed values in static single assignment form, all names generated.

A value has one or more lanes, and the same arithmetic works on either; Python numbers beside a
value become constants of its type. The IR is text, since llvmlite's builder creates several objects
per instruction.
"""

import struct
from collections.abc import Callable, Collection, Hashable, Sequence
from ctypes import c_float
from functools import lru_cache
from typing import Any

FLOATS = ("half", "bfloat", "float", "double")
INTEGER_OF = {"half": "i16", "bfloat": "i16", "float": "i32", "double": "i64"}
WIDTH = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "half": 16, "float": 32, "double": 64}
WIDTH["bfloat"] = 16
_MANGLED = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64", "ptr": "p0"}


class Type:
    """An LLVM type: an element and a number of lanes; from `lanes_of`, compared by identity."""

    element: str
    lanes: int
    text: str
    is_float: bool
    width: int

    __slots__ = ("element", "is_float", "lanes", "text", "width")

    def __init__(self, element: str, lanes: int):
        self.element, self.lanes = element, lanes
        self.text = element if lanes == 1 else f"<{lanes} x {element}>"
        self.is_float = element in FLOATS
        self.width = WIDTH.get(element, 64)

    def __str__(self) -> str:
        return self.text

    @property
    def mangled(self) -> str:
        """How names of intrinsics spell this type."""
        element = _MANGLED.get(self.element, self.element)
        return element if self.lanes == 1 else f"v{self.lanes}{element}"

    def of(self, element: str) -> "Type":
        """The type with another element and as many lanes."""
        return lanes_of(element, self.lanes)


def lanes_of(element: str, lanes: int = 1) -> Type:
    """The type with this element and number of lanes."""
    return _make_type(element, lanes)


@lru_cache(maxsize=None)
def _make_type(element: str, lanes: int) -> Type:
    return Type(element, lanes)


@lru_cache(maxsize=4096)
def _literal(element: str, text: str) -> str:
    if element not in FLOATS:
        return text
    value = c_float(float(text)).value if element == "float" else float(text)
    return "0x" + struct.pack(">d", value).hex().upper()


class LLValue:
    """A value of a function that is being emitted."""

    code: "Code"
    type: Type
    name: str

    __slots__ = ("code", "name", "type")

    def __init__(self, code: "Code", type: Type, name: str):
        self.code, self.type, self.name = code, type, name

    def __str__(self) -> str:
        return self.name

    def same(self, value: "LLValue | float") -> "LLValue":
        """A number as a constant of this type; values are returned unchanged."""
        if isinstance(value, LLValue):
            return value
        return self.code.constant(self.type, value)

    def _two(self, op: str, other: "LLValue | float", flipped: bool = False) -> "LLValue":
        a, b = self, self.same(other)
        if flipped:
            a, b = b, a
        return self.code.emit(self.type, f"{op} {self.type.text} {a.name}, {b.name}")

    def __add__(self, other: "LLValue | float") -> "LLValue":
        return self._two("fadd" if self.type.is_float else "add", other)

    __radd__ = __add__

    def __sub__(self, other: "LLValue | float") -> "LLValue":
        return self._two("fsub" if self.type.is_float else "sub", other)

    def __rsub__(self, other: "LLValue | float") -> "LLValue":
        return self._two("fsub" if self.type.is_float else "sub", other, True)

    def __mul__(self, other: "LLValue | float") -> "LLValue":
        return self._two("fmul" if self.type.is_float else "mul", other)

    __rmul__ = __mul__

    def contractible(self, verb: str, other: "LLValue | float") -> "LLValue":
        """A sum or product of floats that LLVM may contract into a fused multiply-add."""
        flag = " contract" if self.type.is_float else ""
        return self._two(f"f{verb}{flag}" if self.type.is_float else verb, other)

    def __truediv__(self, other: "LLValue | float") -> "LLValue":
        return self._two("fdiv", other)

    def __rtruediv__(self, other: "LLValue | float") -> "LLValue":
        return self._two("fdiv", other, True)

    def __and__(self, other: "LLValue | float") -> "LLValue":
        return self._two("and", other)

    def __or__(self, other: "LLValue | float") -> "LLValue":
        return self._two("or", other)

    def __xor__(self, other: "LLValue | float") -> "LLValue":
        return self._two("xor", other)

    def __lshift__(self, other: "LLValue | float") -> "LLValue":
        return self._two("shl", other)

    def __rshift__(self, other: "LLValue | float") -> "LLValue":
        """The arithmetic shift."""
        return self._two("ashr", other)

    def logical_shift(self, other: "LLValue | float") -> "LLValue":
        """The shift to the right that fills with zeros."""
        return self._two("lshr", other)

    def divide(self, other: "LLValue | float", signed: bool) -> "LLValue":
        """The quotient of integers, towards zero."""
        return self._two("sdiv" if signed else "udiv", other)

    def modulo(self, other: "LLValue | float", signed: bool) -> "LLValue":
        """The remainder of `divide`."""
        return self._two("srem" if signed else "urem", other)

    def __neg__(self) -> "LLValue":
        if self.type.is_float:
            return self.code.emit(self.type, f"fneg {self.type.text} {self.name}")
        return 0 - self

    def __invert__(self) -> "LLValue":
        return self ^ -1

    def compare(self, predicate: str, other: "LLValue | float", signed: bool = True) -> "LLValue":
        """`eq ne lt le gt ge` (ordered, but for ne) or LLVM's own `uno` and the like."""
        if self.type.is_float:
            verb = "fcmp " + (
                predicate
                if predicate in ("uno", "ord")
                else ("u" if predicate == "ne" else "o") + predicate
            )
        else:
            sign = "" if predicate in ("eq", "ne") else "s" if signed else "u"
            verb = f"icmp {sign}{predicate}"
        other = self.same(other)
        kind = self.type.of("i1")
        return self.code.emit(kind, f"{verb} {self.type.text} {self.name}, {other.name}")

    def __lt__(self, other: "LLValue | float") -> "LLValue":
        return self.compare("lt", other)

    def __le__(self, other: "LLValue | float") -> "LLValue":
        return self.compare("le", other)

    def __gt__(self, other: "LLValue | float") -> "LLValue":
        return self.compare("gt", other)

    def __ge__(self, other: "LLValue | float") -> "LLValue":
        return self.compare("ge", other)

    def equals(self, other: "LLValue | float") -> "LLValue":
        return self.compare("eq", other)

    def is_nan(self) -> "LLValue":
        return self.compare("uno", self)

    def choose(self, yes: "LLValue | float", no: "LLValue | float") -> "LLValue":
        """`yes` where this is true, else `no`; one of them may be a number."""
        like = yes if yes.__class__ is LLValue else no
        yes, no, kind = like.same(yes), like.same(no), like.type  # type: ignore[union-attr]
        condition = f"select {self.type.text} {self.name}"
        return self.code.emit(kind, f"{condition}, {kind.text} {yes.name}, {kind.text} {no.name}")

    def cast(self, verb: str, element: str) -> "LLValue":
        """Convert by LLVM's instruction of that name."""
        kind = self.type.of(element)
        if kind is self.type:
            return self
        return self.code.emit(kind, f"{verb} {self.type.text} {self.name} to {kind.text}")

    @property
    def bits(self) -> "LLValue":
        """The same bits as an integer."""
        return self.cast("bitcast", INTEGER_OF[self.type.element])

    def as_float(self, element: str) -> "LLValue":
        """The float that has these bits."""
        return self.cast("bitcast", element)

    def intrinsic(self, name: str, *more: "LLValue | float") -> "LLValue":
        """An intrinsic whose arguments and result are all of this type."""
        args = [self, *map(self.same, more)]
        return self.code.call(f"llvm.{name}.{self.type.mangled}", self.type, args)


class Phi:
    """A value that depends on the predecessor block; `add` as the blocks become known."""

    value: LLValue

    def __init__(self, value: LLValue, line: int):
        self.value, self._line, self._ways = value, line, []

    def add(self, value: LLValue, block: str) -> None:
        self._ways.append(f"[ {value.name}, %{block} ]")
        code, kind = self.value.code, self.value.type
        code.lines[self._line] = f"  {self.value.name} = phi {kind.text} {', '.join(self._ways)}"


class LLModule:
    """Functions that are compiled together, and the symbols that they import.

    `features` names what the machine has and emitters may use: "bfloat", conversions of bfloat16;
    "contract", sums that round a product and the sum once; "freestanding", no C library, so that
    nothing may call it; "units", the special-function units of NVIDIA's GPUs.
    """

    def __init__(self, attributes: str = "", features: Collection[str] = ()):
        self.attributes, self.features = attributes, frozenset(features)
        self.wide: bool = '"prefer-vector-width"="512"' in attributes  # AVX-512
        self._declared: dict[str, str] = {}
        self._functions: list[Code] = []
        self._made: dict[tuple[Hashable, ...], str] = {}
        self.symbols: set[str] = set()
        self.exports: list[str] = []

    def function(self, result: str, parameters: Sequence[Type], public: str = "") -> "Code":
        """A new function, exported under the name `public` if one is given."""
        code = Code(self, public or f"f{len(self._functions)}", result, parameters, bool(public))
        self._functions.append(code)
        if public:
            self.exports.append(public)
        return code

    def once(self, key: tuple[Hashable, ...], make: Callable[["LLModule"], str]) -> str:
        """The name of a helper function, emitted on first use."""
        if key not in self._made:
            self._made[key] = make(self)
        return self._made[key]

    def data(self, content: bytes) -> str:
        """The name of constant bytes."""

        def make(module: "LLModule") -> str:
            name = f"data{len(module._made)}"
            text = "".join([f"\\{byte:02X}" for byte in content])
            kind = f"private unnamed_addr constant [{len(content)} x i8]"
            module._declared[name] = f'@{name} = {kind} c"{text}", align 64'
            return name

        return self.once(("data", content), make)

    def shared(self, kind: Type, count: int) -> str:
        """The name of memory that the threads of a block share on a GPU."""
        name = f"shared{len(self._declared)}"
        text = f"internal addrspace(3) global [{count} x {kind.text}] undef"
        self._declared[name] = f"@{name} = {text}, align 16"
        return name

    def shared_by_launch(self) -> str:
        """The same of memory whose size a launch says."""
        name = "shared_by_launch"
        self._declared[name] = f"@{name} = external addrspace(3) global [0 x i8], align 16"
        return name

    def elsewhere(self, name: str) -> str:
        """The name of external memory."""
        self._declared.setdefault(name, f"@{name} = external global i8")
        self.symbols.add(name)
        return name

    def declare(
        self, name: str, result: Type | str, kinds: Sequence[Type | str], pure: bool = True
    ) -> None:
        """Declare an external function; unless it is an intrinsic, its symbol is imported.

        `pure`: it has no effect but its value, which depends on its arguments alone.
        """
        if name in self._declared or any(f.name == name for f in self._functions):
            return
        self._declared[name] = f"declare {result} @{name}({', '.join(map(str, kinds))})"
        if not name.startswith("llvm."):
            self.symbols.add(name)
            self._declared[name] += " nounwind willreturn memory(none)" if pure else " nounwind"

    def __str__(self) -> str:
        functions = [f.text(self.attributes) for f in self._functions]
        return "\n".join([*self._declared.values(), *functions, ""])


class Code:
    """A function that is being emitted, at the end of its current block."""

    module: LLModule
    name: str
    result: str
    public: bool
    lines: list[str]
    block: str
    parameters: list[LLValue]

    def __init__(
        self, module: LLModule, name: str, result: str, parameters: Sequence[Type], public: bool
    ):
        self.module, self.name, self.result, self.public = module, name, result, public
        self.lines = []
        self.block = "entry"
        self._count = 0
        self.parameters = [LLValue(self, kind, self._fresh()) for kind in parameters]
        self._entry: list[str] = []
        self._hidden: dict[str, LLValue] = {}
        # Conditions under which what is being emitted is wrong, if that is put right elsewhere.
        self.doubts: list[LLValue] | None = None
        # What emitters found for a value, by its name, and use again.
        self.memo: dict[tuple[str, str], Any] = {}

    def _fresh(self) -> str:
        self._count += 1
        return f"%v{self._count}"

    def emit(self, kind: Type, text: str) -> LLValue:
        """Emit an instruction, and return its value."""
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {text}")
        return LLValue(self, kind, name)

    def do(self, text: str) -> None:
        """Emit an instruction without a value."""
        self.lines.append(f"  {text}")

    def constant(self, kind: Type, value: float | int | bool) -> LLValue:
        """A number, in every lane."""
        if kind.element == "i1":
            text = "true" if value else "false"
        else:
            text = _literal(kind.element, repr(float(value) if kind.is_float else int(value)))
        if kind.lanes > 1:
            text = f"splat ({kind.element} {text})"
        return LLValue(self, kind, text)

    def call(self, name: str, result: Type, args: Sequence[LLValue]) -> LLValue:
        """A call of an intrinsic, a symbol or a function of this module."""
        self.module.declare(name, result, [a.type for a in args])
        inside = ", ".join(f"{a.type.text} {a.name}" for a in args)
        return self.emit(result, f"call {result.text} @{name}({inside})")

    # -- blocks -------------------------------------------------------------------------------

    def label(self) -> str:
        """The name of a block to be started later."""
        self._count += 1
        return f"b{self._count}"

    def start(self, label: str) -> None:
        """Start a new block, and continue there."""
        self.lines.append(f"{label}:")
        self.block = label

    def go(self, label: str) -> None:
        self.do(f"br label %{label}")

    def go_if(self, condition: LLValue, yes: str, no: str, rarely: bool = False) -> None:
        """Branch; `rarely` says that the condition is almost never true."""
        weights = ', !prof !{!"branch_weights", i32 1, i32 100000}' if rarely else ""
        self.do(f"br i1 {condition.name}, label %{yes}, label %{no}{weights}")

    def phi(self, kind: Type) -> Phi:
        value = LLValue(self, kind, self._fresh())
        self.lines.append("")
        return Phi(value, len(self.lines) - 1)

    def local(self, kind: Type, count: int = 1) -> LLValue:
        """Stack memory of this call."""
        name = self._fresh()
        self._entry.append(f"  {name} = alloca [{count} x {kind.text}], align 64")
        return LLValue(self, lanes_of("ptr"), name)

    def hide_constant(self, kind: Type, value: int) -> LLValue:
        """A number that LLVM cannot see: it generates slow code for some constants."""
        key = f"{kind.text} {value}"
        if key not in self._hidden:
            place, name = self._fresh(), self._fresh()
            self._entry += [
                f"  {place} = alloca {kind.text}",
                f"  store volatile {key}, ptr {place}",
                f"  {name} = load volatile {kind.text}, ptr {place}",
            ]
            self._hidden[key] = LLValue(self, kind, name)
        return self._hidden[key]

    # -- memory -------------------------------------------------------------------------------

    def address(self, base: LLValue, index: LLValue | int, element: str) -> LLValue:
        """base + index, in elements."""
        shown = f"i64 {index}"
        text = f"getelementptr {element}, ptr {base.name}, {shown}"
        return self.emit(lanes_of("ptr"), text)

    def load(self, kind: Type, pointer: LLValue, align: int) -> LLValue:
        return self.emit(kind, f"load {kind.text}, ptr {pointer.name}, align {align}")

    def store(self, value: LLValue, pointer: LLValue, align: int) -> None:
        self.do(f"store {value.type.text} {value.name}, ptr {pointer.name}, align {align}")

    def text(self, attributes: str) -> str:
        inside = ", ".join(f"{p.type.text} {p.name}" for p in self.parameters)
        kind = "" if self.public else "internal "
        head = f"define {kind}{self.result} @{self.name}({inside}) nounwind {attributes} {{"
        return "\n".join([head, "entry:", *self._entry, *self.lines, "}"])
