"""The machine that a grid kernel is emitted for: its threads, barriers and shared memory."""

from collections.abc import Sequence
from typing import Protocol

from ..emit.code import Code, LLModule, LLValue, Type, lanes_of

WORD = lanes_of("i32")
POINTER = lanes_of("ptr")
# Threads that run together, and can look at each other's registers.
WARP = 32
# Bytes of shared memory that a block has without a launch that asks for more.
STATIC = 48 << 10


class Machine(Protocol):
    """What a grid kernel is made of besides arithmetic."""

    @property
    def code(self) -> Code:
        """The function of one thread."""
        ...

    @property
    def pointers(self) -> Sequence[LLValue]:
        """The kernel's arrays."""
        ...

    def thread(self) -> LLValue:
        """The number of this thread in its block."""
        ...

    def block(self) -> LLValue:
        """The number of this block."""
        ...

    def barrier(self) -> None:
        """Wait until all threads of the block are here; what they wrote is visible then."""
        ...

    def exchange(self, word: LLValue, distance: int) -> LLValue:
        """The word of the thread of this warp whose number differs in the bit `distance`."""
        ...

    def shared(self, kind: Type, count: int) -> LLValue:
        """Memory of the block."""
        ...

    def access(self, array: int | LLValue, pointer: LLValue, size: int, align: int) -> None:
        """Say that some bytes of an array are going to be accessed, with some alignment."""
        ...

    def finish(self) -> None:
        """End the function."""
        ...


class PtxMachine:
    """A GPU: the entry point of a kernel in PTX.

    stops    whether there is one parameter more, a cell: unless it is 0, threads do nothing
    dynamic  bytes of shared memory that a launch must ask for
    """

    code: Code
    pointers: Sequence[LLValue]
    dynamic: int = 0
    _static: int = 0

    def __init__(self, module: LLModule, name: str, arrays: int, stops: bool = False):
        self.code = module.function("ptx_kernel void", [POINTER] * (arrays + stops), name)
        self.pointers = self.code.parameters[:arrays]
        if stops:
            self._stop_unless_zero(self.code.parameters[arrays])

    def _stop_unless_zero(self, cell: LLValue) -> None:
        code = self.code
        end, on = code.label(), code.label()
        code.go_if(code.load(WORD, cell, 4).compare("ne", 0), end, on, rarely=True)
        code.start(end)
        code.do("ret void")
        code.start(on)

    def thread(self) -> LLValue:
        return self.code.call("llvm.nvvm.read.ptx.sreg.tid.x", WORD, [])

    def block(self) -> LLValue:
        return self.code.call("llvm.nvvm.read.ptx.sreg.ctaid.x", WORD, [])

    def barrier(self) -> None:
        name = "llvm.nvvm.barrier.cta.sync.aligned.all"
        self.code.module.declare(name, "void", [WORD])
        self.code.do(f"call void @{name}(i32 0)")

    def exchange(self, word: LLValue, distance: int) -> LLValue:
        numbers = [self.code.constant(WORD, n) for n in (-1, distance, WARP - 1)]
        args = [numbers[0], word, *numbers[1:]]
        return self.code.call("llvm.nvvm.shfl.sync.bfly.i32", WORD, args)

    def shared(self, kind: Type, count: int) -> LLValue:
        nbytes = -(-count * kind.lanes * kind.width // 128) * 16
        fits = self._static + nbytes <= STATIC
        module = self.code.module
        name = module.shared(kind, count) if fits else module.shared_by_launch()
        pointer = self.code.emit(POINTER, f"addrspacecast ptr addrspace(3) @{name} to ptr")
        if fits:
            self._static += nbytes
            return pointer
        at, self.dynamic = self.dynamic, self.dynamic + nbytes
        return self.code.address(pointer, at, "i8") if at else pointer

    def access(self, array: int | LLValue, pointer: LLValue, size: int, align: int) -> None:
        pass

    def finish(self) -> None:
        self.code.do("ret void")
