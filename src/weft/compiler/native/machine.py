"""The host machine: optimise LLVM IR for it, and load the objects."""

import os
from collections.abc import Callable
from ctypes import CDLL, string_at
from functools import lru_cache
from itertools import count
from threading import RLock
from typing import Any
from weakref import ref

import llvmlite.binding as llvm
from llvmlite.binding import ffi

from ...core.once import once
from ...core.record import record
from ..emit.code import LLModule
from .shielded import shielded

# LLVM's global context is shared by all threads.
_lock = RLock()
_NAMES = count()


def _free_lock() -> None:
    """Replace the lock in a forked child, where a thread that held it does not exist."""
    global _lock
    _lock = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_lock)


@record
class Processor:
    """A processor: its name and features, and the system, as LLVM spells them.

    The system is empty for the one that runs this program.
    """

    cpu: str
    features: str
    system: str = ""

    def has(self, feature: str) -> bool:
        """Whether the processor has a feature such as `avx512f`."""
        return f"+{feature}" in self.features.split(",")

    @property
    def attributes(self) -> str:
        """The attributes that name a function's processor."""
        width = 512 if self.has("avx512vl") and self.has("avx512bw") else 256
        return f'"prefer-vector-width"="{width}" "min-legal-vector-width"="{width}"'


@once
@shielded
def triple() -> str:
    """LLVM's name of the kind of machine and system."""
    return llvm.get_process_triple()


@once
@shielded
def host() -> Processor:
    """The processor that runs this program."""
    return Processor(llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())


@lru_cache(maxsize=None)  # called with the lock only
def _machine(target: Processor, level: int = 3) -> llvm.TargetMachine:
    """LLVM's code generator for a processor, at a level of optimisation."""
    return _new_machine(target, level)


def _new_machine(target: Processor, level: int = 3) -> llvm.TargetMachine:
    """The same as an object of its own; with the lock."""
    if target.system:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        system = llvm.Target.from_triple(target.system)
        return system.create_target_machine(cpu=target.cpu, features=target.features, opt=level)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_triple(triple()).create_target_machine(
        cpu=target.cpu, features=target.features, opt=level, reloc="pic", codemodel="small"
    )


def _parse(
    module: LLModule, machine: llvm.TargetMachine, context: llvm.ContextRef | None = None
) -> llvm.ModuleRef:
    """The module parsed and verified by LLVM."""
    parsed = llvm.parse_assembly(str(module), context)
    parsed.triple = machine.triple
    parsed.data_layout = str(machine.target_data)
    parsed.verify()
    return parsed


_Run = Callable[[llvm.FunctionPassManager, llvm.ValueRef, llvm.PassBuilder], Any]


def _optimise(
    parsed: llvm.ModuleRef,
    machine: llvm.TargetMachine,
    run: _Run = llvm.FunctionPassManager.run,
) -> llvm.ModuleRef:
    """The module after a few of LLVM's passes.

    Kernels are emitted with their lanes, blocks and accumulators, so only these passes of the level
    3 pipeline find anything to do; they take a sixth of its time and leave the same code.
    """
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    builder = llvm.create_pass_builder(machine, tuning)
    passes = llvm.create_new_function_pass_manager()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.add_new_gvn_pass()
    passes.add_dead_code_elimination_pass()
    for function in parsed.functions:
        if not function.is_declaration:
            run(passes, function, builder)
    return parsed


@shielded
def compile_module(
    module: LLModule, target: Processor | None = None, quickly: bool = False
) -> bytes:
    """Compile a module to an object file; `quickly` skips optimisation: a tenth of the time."""
    target = target or host()
    with _lock:
        if quickly:
            machine = _machine(target, 0)
            return machine.emit_object(_parse(module, machine))
        machine = _machine(target)
        return machine.emit_object(_optimise(_parse(module, machine), machine))


@shielded
def assembly(module: LLModule, target: Processor | None = None) -> str:
    """A module as the processor's assembly; several threads may call this at the same time.

    What takes long is done without locks. So it has a context and a code generator of its own.
    """
    target = target or host()
    with _lock:
        machine = _new_machine(target)
        parsed = _parse(module, machine, llvm.create_context())
    _optimise(parsed, machine, _unlocked("LLVMPY_RunNewFunctionPassManager"))
    with ffi.OutputString() as failure:
        made = _unlocked("LLVMPY_TargetMachineEmitToMemory")(machine, parsed, 0, failure)
        if not made:
            raise RuntimeError(str(failure))
    try:
        start, size = ffi.lib.LLVMPY_GetBufferStart(made), ffi.lib.LLVMPY_GetBufferSize(made)
        return string_at(start, size).decode()
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(made)


@once
def _unlocked(name: str) -> Any:
    """A function of llvmlite's library without the lock that lets one thread at a time call it."""
    locked, function = getattr(ffi.lib, name), getattr(CDLL(ffi.lib._name), name)
    function.argtypes, function.restype = locked.argtypes, locked.restype
    return function


# Objects that one linker loads.
_OBJECTS = 16


class _Linkers:
    """JITLink, which lays out an object in one piece: a new linker after every few objects.

    LLVM's older linker puts code and constants wherever there is room, and aborts the process if
    they are more than 2 GiB apart, which happens in processes with much memory. A linker keeps 10
    kB of each unloaded object, and is slow to create; it is freed with the last of its objects.
    """

    def __init__(self):
        self._linker: Any = None
        self._objects = 0

    def next(self) -> Any:
        """The linker for the next object."""
        if self._objects % _OBJECTS == 0:
            self._linker = llvm.create_lljit_compiler(_machine(host()), use_jit_link=True)
        self._objects += 1
        return self._linker


_linkers = _Linkers()


@record
class Loaded:
    """An object in memory: its functions stay callable as long as this lives."""

    addresses: dict[str, int]


# What LLVM frees once nobody uses it. A destructor would do that in the thread that drops the last
# reference, maybe the main thread; this is done by the next one to load an object.
_trackers: list[tuple[ref[Loaded], Any]] = []


@shielded
def load(image: bytes, exports: list[str], symbols: dict[str, int]) -> Loaded:
    """Link an object file: `exports` are its functions, `symbols` the addresses that it imports."""
    with _lock:
        _trackers[:] = [(weak, hold) for weak, hold in _trackers if weak() is not None]
        builder = llvm.JITLibraryBuilder().add_object_img(image).add_current_process()
        for name in exports:
            builder.export_symbol(name)
        for name, address in symbols.items():
            builder.import_symbol(name, address)
        hold = builder.link(_linkers.next(), f"weft{next(_NAMES)}")
        loaded = Loaded({name: hold[name] for name in exports})
        _trackers.append((ref(loaded), hold))
    return loaded
