"""C functions that other modules export: SciPy's BLAS, and Cython's capsules."""

import ctypes
from functools import lru_cache
from importlib import import_module

from ...backend.shared.blas import openblas

_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype, _name.argtypes = ctypes.c_char_p, [ctypes.py_object]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


@lru_cache(maxsize=None)
def find_export(module: str, name: str) -> tuple[str, int] | None:
    """A function's signature and address; None if there is no such export."""
    capsule = import_module(module).__pyx_capi__.get(name)
    if capsule is None:
        return None
    signature = _name(capsule)
    return signature.decode(), _pointer(capsule, signature)


@lru_cache(maxsize=None)
def blas_function(name: str) -> int:
    """The address of SciPy's BLAS function: Fortran's conventions, 32-bit integers.

    The shared library is tried first, since importing `scipy.linalg` takes a tenth of a second.
    """
    function = getattr(openblas("scipy"), f"scipy_{name}_", None)
    if function is not None:
        return ctypes.cast(function, ctypes.c_void_p).value or 0
    found = find_export("scipy.linalg.cython_blas", name)
    if found is None:
        raise LookupError(f"SciPy's BLAS has no function {name}")
    return found[1]
