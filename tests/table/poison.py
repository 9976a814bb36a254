"""NumPy's new memory filled with a byte, so that what is read before it is written shows."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import llvmlite.binding as llvm

from weft.compiler.native.allocations import use_handler

# The functions of NumPy's PyDataMem_Handler (NEP 49) around the C library's; their first argument
# is the byte.
_CODE = """
declare ptr @malloc(i64)
declare ptr @calloc(i64, i64)
declare ptr @realloc(ptr, i64)
declare void @free(ptr)
declare ptr @memset(ptr, i32, i64)

define ptr @filled(ptr %byte, i64 %size) {
  %some = add i64 %size, 1
  %at = call ptr @malloc(i64 %some)
  %word = ptrtoint ptr %byte to i64
  %value = trunc i64 %word to i32
  %same = call ptr @memset(ptr %at, i32 %value, i64 %some)
  ret ptr %at
}
define ptr @zeroed(ptr %byte, i64 %count, i64 %size) {
  %some = add i64 %count, 1
  %at = call ptr @calloc(i64 %some, i64 %size)
  ret ptr %at
}
define ptr @resized(ptr %byte, ptr %old, i64 %size) {
  %some = add i64 %size, 1
  %at = call ptr @realloc(ptr %old, i64 %some)
  ret ptr %at
}
define void @freed(ptr %byte, ptr %at, i64 %size) {
  call void @free(ptr %at)
  ret void
}
"""
_FUNCTIONS = ("filled", "zeroed", "resized", "freed")


class _Handler(ctypes.Structure):
    _fields_ = (
        *(("name", ctypes.c_char * 127), ("version", ctypes.c_uint8)),
        *(("byte", ctypes.c_void_p), ("functions", ctypes.c_void_p * len(_FUNCTIONS))),
    )


@lru_cache
def _engine() -> llvm.ExecutionEngine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    return llvm.create_mcjit_compiler(llvm.parse_assembly(_CODE), machine)


@lru_cache
def _capsule(byte: int) -> tuple[object, _Handler]:
    """Kept to the end: arrays may outlive a test."""
    functions = (ctypes.c_void_p * 4)(*map(_engine().get_function_address, _FUNCTIONS))
    made = _Handler(b"poison", 1, byte, functions)
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    capsule = new(("PyCapsule_New", ctypes.pythonapi))(ctypes.addressof(made), NAME, None)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(capsule))
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
    return capsule, made


NAME = b"mem_handler"  # which NumPy demands of a handler's capsule; a capsule does not copy it


@contextmanager
def poisoned(byte: int) -> Iterator[None]:
    """Within the block, new arrays' bytes are `byte` until somebody writes them."""
    before = use_handler(_capsule(byte)[0])
    try:
        yield
    finally:
        use_handler(before)
