"""An emulator of grids: the code of a grid kernel's thread as a coroutine on the processor.

A thread is suspended at every barrier and exchange; LLVM splits its function there. Warps, and the
threads of each, go on in turn, ascending or descending, as far as they can without the others, so
that what one reads before another has written it shows. Shared memory is filled with NaN before
each block, and registers that live across barriers lie in memory that is filled, too. Every access
is compared with the ends of its array, and with the alignment that it claims.
"""

from ctypes import CFUNCTYPE, c_int32, c_int64, c_void_p
from dataclasses import dataclass

import llvmlite.binding as llvm
import numpy as np

from weft.compiler.cuda.kernels import emit_grid, plan_grid
from weft.compiler.cuda.stage import Stage
from weft.compiler.emit.code import LLModule, LLValue, Type, lanes_of
from weft.compiler.emit.elementary import PREFIX, address_of
from weft.compiler.ir.kernel import Kernel
from weft.compiler.native import machine as native
from weft.compiler.native.shielded import shielded

WORD, LONG, POINTER_TYPE = lanes_of("i32"), lanes_of("i64"), lanes_of("ptr")
# Words of the record that a block's threads share with the driver.
VERDICT, STATE, SIZE, SHARED, SLOTS, ENDS = range(6)


class HostMachine:
    """The processor as a GPU: see `weft.compiler.cuda.machine.Machine`.

    `faults` plants mistakes: barriers, by number, at which nobody waits.
    """

    def __init__(self, module: LLModule, arrays: int, faults: frozenset[int] = frozenset()):
        kinds = [POINTER_TYPE, POINTER_TYPE, POINTER_TYPE, WORD, WORD]
        self.code = module.function("ptr", kinds, "grid")
        frame, table, self.record, self._block, self._thread = self.code.parameters
        self.faults, self.waits, self.barriers, self.room = faults, 0, 0, 0
        self.final = self.code.label()
        self._begin(frame)
        self.pointers = [self._word(table, i, POINTER_TYPE) for i in range(arrays)]

    def _word(self, table: LLValue, i: int, kind: Type) -> LLValue:
        return self.code.load(kind, self.code.address(table, i, "i64"), 8)

    def _begin(self, frame: LLValue) -> None:
        code = self.code
        for line in (
            "token @llvm.coro.id(i32, ptr, ptr, ptr)",
            "i64 @llvm.coro.size.i64()",
            "ptr @llvm.coro.begin(token, ptr)",
            "i8 @llvm.coro.suspend(token, i1)",
            "void @llvm.coro.end(ptr, i1, token)",
        ):
            code.module._declared[line] = f"declare {line}"
        code.do("%id = call token @llvm.coro.id(i32 64, ptr null, ptr null, ptr null)")
        size = code.emit(LONG, "call i64 @llvm.coro.size.i64()")
        code.store(size, code.address(self.record, SIZE, "i64"), 8)
        code.do(f"%frame = call ptr @llvm.coro.begin(token %id, ptr {frame})")
        self._suspend()

    def _suspend(self, last: bool = False) -> None:
        code, after = self.code, self.code.label()
        ending = "true" if last else "false"
        kind = code.emit(
            lanes_of("i8"), f"call i8 @llvm.coro.suspend(token none, i1 {ending})"
        ).name
        code.do(f"switch i8 {kind}, label %leave [i8 0, label %{after} i8 1, label %leave]")
        code.start(after)

    def thread(self) -> LLValue:
        return self._thread

    def block(self) -> LLValue:
        return self._block

    def barrier(self) -> None:
        self.barriers += 1
        if self.barriers - 1 not in self.faults:
            self._wait()

    def _wait(self, of_warp: bool = False) -> None:
        """Wait for all threads, or for those of the warp."""
        self.waits += 1
        state = self.code.address(self.record, STATE, "i64")
        self.code.store(self.code.constant(LONG, 2 * self.waits + of_warp), state, 8)
        self._suspend()

    def exchange(self, word: LLValue, distance: int) -> LLValue:
        code = self.code
        slots = self._word(self.record, SLOTS, POINTER_TYPE)
        mine = self._thread.cast("zext", "i64")
        code.store(word, code.address(slots, mine, "i32"), 4)
        self._wait(of_warp=True)
        other = code.load(WORD, code.address(slots, mine ^ distance, "i32"), 4)
        self._wait(of_warp=True)
        return other

    def shared(self, kind: Type, count: int) -> LLValue:
        at, size = self.room, count * kind.lanes * kind.width // 8
        self.room += -(-size // 64) * 64
        base = self._word(self.record, SHARED, POINTER_TYPE)
        return self.code.address(base, at, "i8")

    def access(self, array: int | LLValue, pointer: LLValue, size: int, align: int) -> None:
        code = self.code
        ends = self._word(self.record, ENDS, POINTER_TYPE)
        number = code.constant(LONG, array) if isinstance(array, int) else array.cast("zext", "i64")
        low, high = (code.load(LONG, code.address(ends, number * 2 + k, "i64"), 8) for k in (0, 1))
        at = code.emit(LONG, f"ptrtoint ptr {pointer} to i64")
        bad, good = code.label(), code.label()
        outside = at.compare("lt", low, False) | (at + size).compare("gt", high, False)
        outside = outside | (at & (align - 1)).compare("ne", 0)
        code.go_if(outside, bad, good, rarely=True)
        code.start(bad)
        verdict = code.address(self.record, VERDICT, "i64")
        code.store(number + 1, verdict, 8)
        code.go(self.final)
        code.start(good)

    def finish(self) -> None:
        code = self.code
        code.go(self.final)
        code.start(self.final)
        self._suspend(last=True)
        code.do("unreachable")
        code.start("leave")
        code.do("call void @llvm.coro.end(ptr null, i1 false, token none)")
        code.do("ret ptr %frame")


# Runs blocks, with threads in the order of `step` from `first`, and blocks likewise. A warp goes on
# until it is at a barrier, whatever the others do; its threads go on in turn, from exchange to
# exchange. The threads of a warp must always be suspended at the same place, or done; at a barrier,
# so must all warps.
DRIVER = """
declare void @llvm.coro.resume(ptr)
declare i1 @llvm.coro.done(ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define void @probe(ptr %frame, ptr %table, ptr %record) {
  %h = call ptr @grid(ptr %frame, ptr %table, ptr %record, i32 0, i32 0)
  ret void
}

; Resume 32 threads once; where they are suspended then, 0 if they are done, -1 if they differ.
define i64 @turn(ptr %frames, i64 %slot, ptr %record, i32 %first, i32 %step) {
entry:
  %state = getelementptr i64, ptr %record, i64 1
  br label %turn
turn:
  %i = phi i32 [0, %entry], [%i.next, %next]
  %t = phi i32 [%first, %entry], [%t.next, %next]
  %seen = phi i64 [-9, %entry], [%now, %next]
  %t.wide = zext i32 %t to i64
  %t.at = mul i64 %t.wide, %slot
  %frame = getelementptr i8, ptr %frames, i64 %t.at
  call void @llvm.coro.resume(ptr %frame)
  %done = call i1 @llvm.coro.done(ptr %frame)
  %where = load i64, ptr %state
  %now = select i1 %done, i64 0, i64 %where
  %new = icmp eq i64 %seen, -9
  %same = icmp eq i64 %seen, %now
  %good = or i1 %new, %same
  br i1 %good, label %next, label %differ
next:
  %i.next = add i32 %i, 1
  %t.next = add i32 %t, %step
  %more = icmp slt i32 %i.next, 32
  br i1 %more, label %turn, label %end
differ:
  ret i64 -1
end:
  ret i64 %now
}

define void @blocks(ptr %frames, i64 %slot, ptr %table, ptr %record, i64 %room,
                    i32 %count, i32 %threads, i32 %first, i32 %step) {
entry:
  %verdict = getelementptr i64, ptr %record, i64 0
  %shared.at = getelementptr ptr, ptr %record, i64 3
  %shared = load ptr, ptr %shared.at
  %wide = zext i32 %threads to i64
  %all = mul i64 %wide, %slot
  %warps = lshr i32 %threads, 5
  %jump = mul i32 %step, 32
  br label %block
block:
  %b = phi i32 [0, %entry], [%b.next, %block.end]
  %down = icmp slt i32 %step, 0
  %b.last = sub i32 %count, 1
  %b.back = sub i32 %b.last, %b
  %number = select i1 %down, i32 %b.back, i32 %b
  call void @llvm.memset.p0.i64(ptr %shared, i8 -1, i64 %room, i1 false)
  call void @llvm.memset.p0.i64(ptr %frames, i8 -51, i64 %all, i1 false)
  br label %make
make:
  %m = phi i32 [0, %block], [%m.next, %make]
  %m.wide = zext i32 %m to i64
  %m.at = mul i64 %m.wide, %slot
  %m.frame = getelementptr i8, ptr %frames, i64 %m.at
  %h = call ptr @grid(ptr %m.frame, ptr %table, ptr %record, i32 %number, i32 %m)
  %m.next = add i32 %m, 1
  %m.more = icmp slt i32 %m.next, %threads
  br i1 %m.more, label %make, label %round
round:
  br label %warp
warp:
  %w = phi i32 [0, %round], [%w.next, %warp.end]
  %lead = phi i32 [%first, %round], [%lead.next, %warp.end]
  %seen = phi i64 [-9, %round], [%now, %warp.end]
  br label %go
go:
  %now = call i64 @turn(ptr %frames, i64 %slot, ptr %record, i32 %lead, i32 %step)
  %v = load i64, ptr %verdict
  %fine = icmp eq i64 %v, 0
  br i1 %fine, label %look, label %end
look:
  %odd = and i64 %now, 1
  %exchange = icmp eq i64 %odd, 1
  %differ = icmp eq i64 %now, -1
  br i1 %differ, label %diverged, label %look.on
look.on:
  br i1 %exchange, label %go, label %waits
waits:
  %new = icmp eq i64 %seen, -9
  %same = icmp eq i64 %seen, %now
  %good = or i1 %new, %same
  br i1 %good, label %warp.end, label %diverged
warp.end:
  %w.next = add i32 %w, 1
  %lead.next = add i32 %lead, %jump
  %w.more = icmp slt i32 %w.next, %warps
  br i1 %w.more, label %warp, label %round.end
round.end:
  %going = icmp ne i64 %now, 0
  br i1 %going, label %round, label %block.end
block.end:
  %b.next = add i32 %b, 1
  %b.more = icmp slt i32 %b.next, %count
  br i1 %b.more, label %block, label %end
diverged:
  store i64 -1, ptr %verdict
  br label %end
end:
  ret void
}
"""
_PROBE = CFUNCTYPE(None, c_void_p, c_void_p, c_void_p)
_BLOCKS = CFUNCTYPE(
    *(None, c_void_p, c_int64, c_void_p, c_void_p, c_int64, c_int32, c_int32, c_int32, c_int32)
)
# Bytes for the first coroutine, whose size is not known.
_FIRST = 1 << 18


class AccessOutside(AssertionError):
    """An access outside of an array, or threads that wait in different places."""


@shielded
def _compile(text: str) -> bytes:
    """Compile by LLVM's own pipeline, which splits coroutines."""
    with native._lock:
        machine = native._machine(native.host())
        parsed = llvm.parse_assembly(text)
        parsed.triple, parsed.data_layout = machine.triple, str(machine.target_data)
        parsed.verify()
        tuning = llvm.create_pipeline_tuning_options(speed_level=1)
        builder = llvm.create_pass_builder(machine, tuning)
        builder.getModulePassManager().run(parsed, builder)
        return machine.emit_object(parsed)


@dataclass
class Emulated:
    """A grid kernel, or a stage of a routine, that runs on the processor."""

    kernel: Kernel | Stage
    aligned: int = 16
    faults: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        kernel, self.plan = self.kernel, self.kernel
        module = LLModule("presplitcoroutine", ("freestanding",))
        if isinstance(kernel, Kernel):
            form, self.plan = plan_grid(kernel, self.aligned)
            arrays = len(kernel.operands) + len(kernel.results)
            machine = HostMachine(module, arrays, self.faults)
            emit_grid(form, self.plan, machine, self.aligned)
        else:
            machine = HostMachine(module, len(kernel.arrays), self.faults)
            kernel.emit(machine)
        self.barriers, self.room = machine.barriers, machine.room
        symbols = {s: address_of(s.removeprefix(PREFIX)) for s in module.symbols if PREFIX in s}
        image = _compile(str(module) + DRIVER)
        self._loaded = native.load(image, ["probe", "blocks"], symbols)
        self._probe = _PROBE(self._loaded.addresses["probe"])
        self._blocks = _BLOCKS(self._loaded.addresses["blocks"])

    def run(self, *arrays: np.ndarray, down: bool = False) -> None:
        """Run all blocks on arrays; threads in turn, or in the opposite order."""
        if not self.plan.grid:
            return
        table = np.array([a.ctypes.data for a in arrays], np.int64)
        self.go(table, [np.lib.array_utils.byte_bounds(a) for a in arrays], down)

    def go(self, table: np.ndarray, bounds: list, down: bool = False) -> None:
        """The same, of addresses, and where the arrays begin and end."""
        threads, ends = self.plan.block, np.array(bounds, np.int64)
        shared, slots = np.zeros(self.room + 64, np.uint8), np.zeros(threads, np.int32)
        base = -(-shared.ctypes.data // 64) * 64
        record = np.array([0, 0, 0, base, slots.ctypes.data, ends.ctypes.data], np.int64)
        frame = np.zeros(_FIRST + 64, np.uint8)
        self._probe(_aligned(frame), table.ctypes.data, record.ctypes.data)
        size = -(-int(record[SIZE]) // 64) * 64
        assert size <= _FIRST
        frames = np.zeros(size * threads + 64, np.uint8)
        first, step = (threads - 1, -1) if down else (0, 1)
        self._blocks(
            *(_aligned(frames), size, table.ctypes.data, record.ctypes.data, self.room),
            *(self.plan.grid, threads, first, step),
        )
        verdict = int(record[VERDICT])
        if verdict:
            what = f"array {verdict - 1} was left" if verdict > 0 else "threads wait elsewhere"
            raise AccessOutside(f"{what}: {self.kernel}")


def _aligned(memory: np.ndarray) -> int:
    return -(-memory.ctypes.data // 64) * 64
