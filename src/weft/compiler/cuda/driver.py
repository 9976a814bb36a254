"""NVIDIA's driver: assembling, loading and launching kernels in PyTorch's context."""

import ctypes
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
import torch

from ...errors import DeviceError
from .kernels import GridKernel

# The oldest driver whose graphs and assembler do all that is asked of them, as it spells versions.
_OLDEST = 12000
_FIX = "or run without wf.compile"


@lru_cache(maxsize=1)
def _driver() -> Any:
    """The bindings of the driver's functions."""
    try:
        found = import_module("cuda.bindings.driver")
    except ImportError as e:
        raise DeviceError(
            f"compile: NVIDIA's cuda-bindings are missing, by which kernels are launched ({e}): "
            f"pip install cuda-bindings, {_FIX}"
        ) from None
    try:
        version = _checked(found.cuDriverGetVersion(), "asking for its version", found)
    except RuntimeError as e:
        raise DeviceError(
            f"compile: there is no driver of NVIDIA's ({e}): install one, {_FIX}"
        ) from None
    if version < _OLDEST:
        raise DeviceError(
            f"compile: the driver knows CUDA {version // 1000}.{version % 1000 // 10}, and 12.0 is "
            f"the oldest that compiled functions run with: update it, {_FIX}"
        )
    return found


_NO_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT


def _checked(result: tuple[Any, ...], what: str, driver: Any = None) -> Any:
    """What a function of the driver gave; an error if it failed."""
    code, *values = result
    if int(code):
        driver = driver or _driver()
        _, text = driver.cuGetErrorString(code)
        said = text.decode() if text else str(code)
        raise DeviceError(f"compile: {what} failed on the GPU: {said} ({code.name})")
    return values[0] if values else None


def version() -> int:
    """The version of CUDA that the driver knows, as it spells it: 12040 is 12.4."""
    return _checked(_driver().cuDriverGetVersion(), "asking for its version")


@lru_cache(maxsize=None)
def compute_capability(index: int) -> int:
    """Ten times the compute capability of a GPU; those that kernels do not run on are refused."""
    if index >= torch.cuda.device_count():
        raise DeviceError(
            f"compile: PyTorch finds {torch.cuda.device_count()} GPUs, and a tensor is on "
            f"'cuda:{index}': is there a driver of NVIDIA's, and a PyTorch with CUDA?"
        )
    major, minor = torch.cuda.get_device_capability(index)
    if major < 8:
        raise DeviceError(
            f"compile: GPU {index} has compute capability {major}.{minor}, and kernels are made "
            f"for 8.0 and later: choose another one, {_FIX}"
        )
    _driver()
    return 10 * major + minor


def context(index: int) -> Any:
    """A GPU's context, PyTorch's too."""
    driver = _driver()
    device = _checked(driver.cuDeviceGet(index), "finding it")
    return _checked(driver.cuDevicePrimaryCtxRetain(device), "asking for the context")


def enter(within: Any) -> None:
    """Make a context the current one of this thread."""
    _checked(_driver().cuCtxSetCurrent(within), "choosing a context")


def assemble(kernel: GridKernel, within: Any) -> bytes:
    """A kernel as machine code; in any thread, `within` a context."""
    driver = _driver()
    enter(within)
    log = bytes(8192)  # which the driver writes into
    options = driver.CUjit_option
    given = [options.CU_JIT_ERROR_LOG_BUFFER, options.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
    state = _checked(
        driver.cuLinkCreate(len(given), given, [log, len(log)]), "starting the assembler"
    )
    try:
        text = kernel.ptx.encode() + b"\0"
        kind = driver.CUjitInputType.CU_JIT_INPUT_PTX
        code, *_ = driver.cuLinkAddData(state, kind, text, len(text), b"", 0, None, None)
        if int(code):
            said = log.partition(b"\0")[0].decode(errors="replace").strip()
            raise DeviceError(f"compile: the driver does not assemble {kernel.name}: {said}")
        code, *made = driver.cuLinkComplete(state)
        address, size = _checked((code, tuple(made)), f"linking {kernel.name}")
        return ctypes.string_at(int(address), int(size))
    finally:
        driver.cuLinkDestroy(state)


class Function:
    """A loaded kernel; its code stays as long as this object lives."""

    def __init__(self, image: bytes, name: str):
        driver = _driver()
        self._module = _checked(driver.cuModuleLoadData(image), f"loading {name}")
        found = driver.cuModuleGetFunction(self._module, name.encode())
        self.handle: Any = _checked(found, f"finding {name}")
        self._launch = driver.cuLaunchKernel
        self._context = _checked(driver.cuCtxGetCurrent(), "asking for the context")

    def allow_shared(self, nbytes: int) -> None:
        """Allow blocks to have so much shared memory, which is more than the default."""
        driver = _driver()
        most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        share = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
        for attribute, value in ((most, nbytes), (share, 100)):  # percent
            made = driver.cuFuncSetAttribute(self.handle, attribute, value)
            _checked(made, "asking for shared memory")

    def launch(self, grid: int, block: int, shared: int, parameters: int, stream: int) -> None:
        """Launch it on a stream.

        parameters  the address of an array of the parameters' addresses
        """
        given = (self.handle, grid, 1, 1, block, 1, 1, shared, stream, parameters, 0)
        (code,) = self._launch(*given)
        if code == _NO_CONTEXT:  # a thread that has had nothing to do with the GPU so far
            enter(self._context)
            (code,) = self._launch(*given)
        if code:
            _checked((code,), f"launching {grid} blocks of {block} threads")


# A kernel that writes the words of its parameters to an address. The host's words are part of the
# launch, so that they may change as soon as it returns.
_MOST_WORDS = 256
_WRITER = """
.version 7.1
.target sm_80
.address_size 64
.visible .entry weft_write(.param .u64 to, .param .u32 count, .param .align 8 .b8 words[{nbytes}])
{{
    .reg .pred %p;
    .reg .b32 %t, %n;
    .reg .b64 %a, %b, %w, %d;
    mov.u32 %t, %tid.x;
    ld.param.u32 %n, [count];
    setp.ge.u32 %p, %t, %n;
    @%p ret;
    mul.wide.u32 %d, %t, 8;
    mov.b64 %a, words;
    add.u64 %a, %a, %d;
    ld.param.b64 %w, [%a];
    ld.param.u64 %b, [to];
    cvta.to.global.u64 %b, %b;
    add.u64 %b, %b, %d;
    st.global.b64 [%b], %w;
    ret;
}}
"""


class Writer:
    """Writes words of the host's into a GPU's memory, in the order of a stream."""

    def __init__(self) -> None:
        text = _WRITER.format(nbytes=8 * _MOST_WORDS).encode() + b"\0"
        self._function = Function(text, "weft_write")

    def to(self, address: int, count: int) -> tuple[Callable[[int], None], np.ndarray]:
        """A function of a stream that writes so many words, and the array that they are in."""
        parts = range(0, max(count, 1), _MOST_WORDS)
        words = np.zeros(len(parts) * _MOST_WORDS, np.uint64)  # each launch takes all of its part
        numbers = np.zeros((len(parts), 2), np.uint64)  # address, count
        tables = np.zeros((len(parts), 3), np.uint64)
        for k, begin in enumerate(parts):
            numbers[k] = address + 8 * begin, min(count - begin, _MOST_WORDS)
            at = numbers[k].ctypes.data
            tables[k] = at, at + 8, words.ctypes.data + 8 * begin
        launch, held = self._function.launch, (words, numbers, tables)
        addresses = [row.ctypes.data for row in tables]

        def write(stream: int, _held: Any = held) -> None:
            for at in addresses:
                launch(1, _MOST_WORDS, 0, at, stream)

        return write, words[:count]
