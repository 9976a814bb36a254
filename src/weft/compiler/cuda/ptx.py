"""PTX: what LLVM generates for NVIDIA's GPUs."""

import re

from ...errors import WeftError
from ..emit.code import LLModule
from ..native.machine import Processor, assembly

# What emitters may use on a GPU (see `LLModule`).
FEATURES = ("bfloat", "contract", "freestanding", "units")
_SYSTEM = "nvptx64-nvidia-cuda"
# The version of the language: the oldest that knows the instructions of these processors.
_VERSION = {80: 71, 86: 71, 89: 78, 90: 78}
# A store of fewer bits than its registers have: %rd of 64, %r of 32.
_STORE = re.compile(
    r"^(?P<before>\s*(?:@\S+\s+)?st\S*\.b(?P<bits>8|16|32)\s+\[[^]]+\],\s*)(?P<from>[^;]+);",
    re.MULTILINE,
)
_EXTREME = re.compile(r"\b(?:min|max)\.s(?:16|32)\b")
_NEGATED = re.compile(
    r"(?:neg\.s(?P<bits>16|32)\s+|sub\.s(?P<of>16|32)\s+(?=%\w+, 0,))"
    r"(?P<made>%\w+), (?:0, )?(?P<x>%\w+);"
)
# What takes a register of 32 bits apart, and what chooses between such registers.
_PARTS = re.compile(
    r"\b(?:prmt\.b32\s+%\w+, (%r\d+), 0,|mov\.b32\s+\{[^}]*\}, (%r\d+);"
    r"|cvt\.u16\.u32\s+%\w+, (%r\d+);)"
)
_CHOICE = re.compile(r"\bselp\.b32\s+(?P<made>%r\d+), (?P<a>%r\d+), (?P<b>%r\d+), (?P<if>%p\d+);")
_REGISTER = re.compile(r"%rd?(?=\d)")
# What is external, shared memory aside; and the names of functions.
_EXTERN = re.compile(r"\.extern\s+(?!\s|\.shared\b)")
_FUNCTIONS = re.compile(r"\.extern\s+\.func.*?(\w+)\s*(?:\(|;|$)", re.MULTILINE)


class NoPtx(WeftError, NotImplementedError):
    """Raised for code that does not exist on a GPU."""


def why_no_ptx(module: LLModule) -> str:
    """Why a module has no form in PTX; empty if it has one."""
    if module.symbols:
        return f"a GPU has no {', '.join(sorted(module.symbols))}"
    if " frem " in str(module):
        return "a GPU has no exact remainder of floats"
    return ""


def ptx_of(module: LLModule, sm: int) -> str:
    """A module as PTX for processors of compute capability `sm`/10.

    Code that calls external functions is refused; LLVM makes one of every unknown intrinsic.
    """
    reason = why_no_ptx(module)
    if reason:
        raise NoPtx(f"kernel for sm_{sm}: {reason}")
    version = _VERSION.get(sm, max(_VERSION.values()))
    text = assembly(module, Processor(f"sm_{sm}", f"+ptx{version}", _SYSTEM))
    if _EXTERN.search(text):
        names = ", ".join(sorted(set(_FUNCTIONS.findall(text)))) or "something external"
        raise NoPtx(f"kernel for sm_{sm}: a GPU has no {names}")
    if _EXTREME.search(text):
        text = _NEGATED.sub(_as_sum, text)
    return _STORE.sub(_with_low_bits, with_choices_by_bits(text))


def with_choices_by_bits(text: str) -> str:
    """The text with choices between registers that are also taken apart as (a^b)&m^b.

    NVIDIA's assembler (13.0) overwrites one of the two, if a condition holds, and takes it apart
    again after that, where it needs a part for the second time.
    """
    apart = {name for found in _PARTS.findall(text) for name in found if name}

    def by_bits(choice: re.Match[str]) -> str:
        made, a, b = choice["made"], choice["a"], choice["b"]
        if apart.isdisjoint((a, b)):
            return choice[0]
        lines = (
            ".reg .b32 %mask, %both;",
            f"selp.b32 \t%mask, -1, 0, {choice['if']};",
            f"xor.b32 \t%both, {a}, {b};",
            "and.b32 \t%both, %both, %mask;",
            f"xor.b32 \t{made}, %both, {b};",
        )
        return "\n\t".join(("{", *lines, "}"))

    return _CHOICE.sub(by_bits, text) if apart else text


def _as_sum(negated: re.Match[str]) -> str:
    """−x as ~x + 1.

    NVIDIA's assembler (13.0, for compute capability 9 and later) loses negations where it makes one
    instruction of two that give the larger or the smaller of signed integers.
    """
    bits, made, x = negated["bits"] or negated["of"], negated["made"], negated["x"]
    return f"not.b{bits} \t{made}, {x};\n\tadd.s{bits} \t{made}, {made}, 1;"


def _with_low_bits(store: re.Match[str]) -> str:
    """A store with its registers cut to their low bits first, if they have more.

    LLVM leaves that to the store. NVIDIA's assembler does not take the low bits then, if a register
    was computed as a float: it converts the number to an integer.
    """
    bits, lines, names = int(store["bits"]), [], []
    for n, name in enumerate(re.findall(r"%\w+", store["from"])):
        kind = _REGISTER.match(name)
        own = 0 if kind is None else 64 if kind[0] == "%rd" else 32
        least = max(bits, 16)  # there are no smaller registers
        if own <= least:
            names.append(name)
            continue
        lines += [f".reg .b{least} %low{n};", f"cvt.u{least}.u{own} \t%low{n}, {name};"]
        names.append(f"%low{n}")
    if not lines:
        return store[0]
    several = "{" in store["from"]
    stored = "{" + ", ".join(names) + "}" if several else names[0]
    return "\n".join(
        ["\t{", *[f"\t{line}" for line in lines], f"{store['before']}{stored};", "\t}"]
    )
