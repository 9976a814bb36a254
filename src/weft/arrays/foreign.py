"""Reading foreign data: Python's numbers, NumPy's and PyTorch's arrays."""

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import errors
from ..backend.device import namespace_for
from ..core import dtypes
from ..core.backends import BACKENDS, PYTHON_SCALARS
from ..core.numbers import plain
from ..core.value import TENSORS, aval_of

_ARRAYS = ("__array__", "__array_interface__")
_NUMBERS = ("__float__", "__index__", "__complex__", *_ARRAYS)


def raw_of(obj: Any, dtype: np.dtype | None) -> Any:
    """The raw array of foreign data; None for a sequence with tensors in it."""
    if isinstance(obj, np.ndarray | np.generic):
        return _native(obj)
    obj = plain(obj)
    if type(obj) in PYTHON_SCALARS:
        return of_python(obj, dtype)
    if is_torch(obj):
        return of_torch(obj)
    if isinstance(obj, list | tuple | range):
        return _of_sequence(obj, dtype)
    kind = type(obj)
    if _has(kind, _ARRAYS) or _exports_buffer(obj):
        return _native(np.asarray(obj))
    if hasattr(kind, "__dlpack__"):
        return of_dlpack(obj)
    if hasattr(kind, "__len__") and hasattr(kind, "__getitem__") and kind not in (str, dict):
        return raw_of(list(obj), dtype)
    raise errors.DTypeError(
        f"asarray: got {kind.__name__}, expected a number, an array or nested lists of them"
    )


def _has(kind: type, names) -> bool:
    return any(hasattr(kind, name) for name in names)


def _exports_buffer(obj) -> bool:
    """Whether the object supports the buffer protocol (no public test before Python 3.12)."""
    try:
        memoryview(obj)
    except TypeError:
        return False
    return True


def is_torch(obj: object) -> bool:
    """Whether this is a torch tensor; torch itself is not loaded to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(obj, torch.Tensor)


def _native(obj) -> np.ndarray:
    """A NumPy array in the machine's byte order, if its dtype is one of ours."""
    if isinstance(obj, np.ndarray) and hasattr(type(obj), "filled"):
        raise errors.InterchangeError(
            "asarray: a masked array would lose its mask; pass x.filled(value) or x.compressed()"
        )
    a = np.asarray(obj)
    if not a.dtype.isnative:
        a = a.astype(a.dtype.newbyteorder("="))
    if a.dtype not in dtypes.KIND:
        if a.dtype == object and any(hasattr(type(v), "__weft_number__") for v in a.flat):
            raise errors.StagingError(
                "asarray: a function is being compiled, and NumPy made an array of objects of a "
                "number that differs from call to call; use wf.stack([wf.tensor(number), …]), or "
                "dtype=float in NumPy's function, for which the program is made anew for each value"
            )
        raise errors.DTypeError(
            f"asarray: NumPy dtype {a.dtype} has no tensor: convert the data to one of "
            f"{dtypes.names(dtypes.ALL)} first"
        )
    return a


def of_python(obj: Any, dtype: Any) -> np.ndarray:
    """Python numbers: floats are the default float, integers int64."""
    if obj.__class__ is int and dtype is dtypes.bfloat16:  # which takes no large integers
        dtypes.check_holds("asarray", dtype, obj)
        obj = float(obj)
    a = _numpy_array(obj, dtype)
    if dtype is not None:
        return a
    if a.dtype == object:  # integers beyond all of NumPy's
        for value in leaves([obj]):
            dtypes.check_holds("asarray", dtypes.uint64, value)
    if a.dtype == dtypes.float64:
        return a.astype(dtypes.default_float())
    return a.astype(dtypes.default_complex()) if a.dtype == dtypes.complex128 else _native(a)


def _numpy_array(obj, dtype) -> np.ndarray:
    try:
        return np.asarray(obj, dtype=dtype)
    except OverflowError as e:
        for value in leaves([obj]):
            dtypes.check_holds("asarray", dtype or dtypes.int64, value)
        raise _impossible(errors.IntegerOutOfRange, dtype, e) from None
    except (ValueError, TypeError) as e:
        fault = errors.DTypeError if isinstance(e, TypeError) else errors.ArgumentError
        raise _impossible(fault, dtype, e) from None


def _impossible(fault: type[errors.WeftError], dtype, cause: Exception) -> errors.WeftError:
    wanted = "a tensor" if dtype is None else f"a tensor of {dtype}"
    return fault(f"asarray: cannot make {wanted} of this data: {cause}")


def _of_sequence(obj, dtype):
    kinds = _leaf_types(obj)
    for kind in kinds - PYTHON_SCALARS:
        if not _has(kind, _NUMBERS):
            raise errors.DTypeError(f"asarray: got {kind.__name__} in the data, expected numbers")
        if hasattr(kind, "__weft_number__"):
            raise errors.StagingError(
                "asarray: a function is being compiled, and a list holds a number that differs "
                "from call to call; use wf.stack([wf.tensor(number), …])"
            )
    if any(kind in TENSORS or kind.__module__.partition(".")[0] == "torch" for kind in kinds):
        return None
    if any(issubclass(kind, np.ndarray | np.generic) for kind in kinds):
        return _native(_numpy_array(obj, common_dtype(obj) if dtype is None else dtype))
    return of_python(obj, dtype)


def _leaf_types(obj) -> set[type]:
    """The types of the leaves of nested lists and tuples."""
    if isinstance(obj, range):
        return {int}
    found = set(map(type, obj))
    nested = {kind for kind in found if issubclass(kind, list | tuple)}
    if nested:
        found = (found - nested).union(*[_leaf_types(o) for o in obj if type(o) in nested])
    return found


def leaves(obj: Any) -> Iterator[Any]:
    """What nested lists and tuples hold, in order."""
    for o in obj:
        if isinstance(o, list | tuple):
            yield from leaves(o)
        else:
            yield o


def common_dtype(obj: Any) -> np.dtype:
    """The dtype of nested sequences with arrays in them, which Python numbers do not widen."""
    held = list(leaves(obj))
    arrays = [o for o in held if type(o) not in PYTHON_SCALARS]
    out = dtypes.promote_all(
        [aval_of(o if type(o) in TENSORS else raw_of(o, None)).dtype for o in arrays]
    )
    for scalar in held:
        if type(scalar) in PYTHON_SCALARS:
            out = dtypes.with_scalar(out, scalar)
    return out


def of_torch(x: Any) -> Any:
    """A torch tensor, which must hold plain numbers and not be part of torch's own graph."""
    if x.requires_grad:
        raise errors.InterchangeError(
            "asarray: the torch tensor requires a gradient in torch, which Weft cannot follow; "
            "pass x.detach()"
        )
    xp = BACKENDS[type(x)]
    if x.dtype not in xp.FROM_TORCH or str(x.layout) != "torch.strided" or x.is_meta:
        raise errors.DTypeError(
            f"asarray: got a torch tensor of {x.dtype} with layout {x.layout} on {x.device}, "
            f"expected a dense one of {dtypes.names(dtypes.ALL)}"
        )
    return x if type(x) is xp.array_type else x.as_subclass(xp.array_type)


def of_dlpack(x: Any) -> Any:
    """An array over memory that another library exports."""
    if is_torch(x):
        return of_torch(x)
    if not hasattr(x, "__dlpack_device__"):
        raise errors.DTypeError(
            f"from_dlpack: got {type(x).__name__}, expected an array that has __dlpack__; "
            "asarray takes other data"
        )
    on_host = int(x.__dlpack_device__()[0]) == 1
    try:
        return np.from_dlpack(x) if on_host else namespace_for("cuda").from_dlpack(x)
    except (BufferError, RuntimeError) as e:
        raise errors.InterchangeError(f"from_dlpack: {e}") from None


def refuse_imaginary(what: str, own: np.dtype, dtype: np.dtype) -> None:
    """Raise where a complex value would lose its imaginary part."""
    if dtypes.is_complex(own) and not dtypes.is_complex(dtype):
        raise errors.DTypeError(
            f"{what}: {own} to {dtype} would drop the imaginary part; take wf.real(x) first"
        )
