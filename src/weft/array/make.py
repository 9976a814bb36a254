"""Making tensors: from data of any kind, and from nothing."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import errors
from ..backend.device import canonical_device, namespace_for, place
from ..core import dispatch, dtypes
from ..core.backends import BACKENDS, PYTHON_SCALARS
from ..core.value import GROUND, wrap
from ..ops import structural


def tensor(data, requires_grad: bool = False, dtype=None, device=None):
    """A new tensor with a copy of `data`.

    Python floats become the default float (float32), NumPy data keeps its dtype.

    >>> import weft as wf
    >>> wf.tensor([1.0, 2.0], requires_grad=True)
    tensor([1., 2.], requires_grad=True)
    """
    t = asarray(data, dtype=dtype, device=device, copy=True)
    t = t.detach() if t.requires_grad and type(data) in GROUND else t
    return t.requires_grad_() if requires_grad else t


def asarray(obj, /, *, dtype=None, device=None, copy: bool | None = None):
    """`obj` as a tensor, sharing memory where possible.

    Tensors keep their graph, torch tensors stay on torch's device.
    """
    dtype = None if dtype is None else dtypes.canonical(dtype)
    if type(obj) in GROUND:
        return _from_tensor(obj, dtype, device, copy)
    raw = _raw_of(obj, dtype, device)
    if raw is None:
        return _stacked(obj, dtype, device)
    xp = BACKENDS[type(raw)]
    if dtype is not None and xp.dtype_of(raw) != dtype:
        _refuse_copy(copy, "changes the dtype")
        raw = xp.cast(raw, dtype)
    elif copy:
        raw = xp.copy(raw)
    if device is not None:
        moved = place(raw, device)
        if moved is not raw:
            _refuse_copy(copy, "moves to another device")
        raw = moved
    return wrap(raw)


def _from_tensor(x, dtype, device, copy):
    if dtype is not None and x.dtype != dtype:
        _refuse_copy(copy, "changes the dtype")
        x, copy = structural.cast(x, dtype), False
    if device is not None and canonical_device(device) != x.device:
        _refuse_copy(copy, "moves to another device")
        x, copy = x.to(device), False
    return structural.copy(x) if copy else x


def _refuse_copy(copy, why: str) -> None:
    if copy is False:
        raise errors.ArgumentError(f"asarray: copy=False, but the call {why}")


def _raw_of(obj, dtype, device):
    """The raw array of foreign data, or None for a sequence with tensors in it."""
    if isinstance(obj, np.ndarray | np.generic):
        return _native(np.asarray(obj))
    if type(obj) in PYTHON_SCALARS:
        return _of_python(obj, dtype)
    if type(obj).__module__.partition(".")[0] == "torch":
        return _of_torch(obj)
    if isinstance(obj, list | tuple | range):
        kinds = _leaf_kinds(obj)
        if "tensor" in kinds:
            return None
        return _native(np.asarray(obj)) if "numpy" in kinds else _of_python(obj, dtype)
    if not _readable(obj):
        raise errors.DTypeError(f"cannot make a tensor of {type(obj).__name__}")
    return _native(np.asarray(obj))


_PROTOCOLS = ("__array__", "__array_interface__", "__buffer__", "__dlpack__", "__len__")


def _readable(obj) -> bool:
    """Whether NumPy has a way to read the object."""
    if isinstance(obj, bytes | bytearray | memoryview):
        return True
    return any(name in dir(type(obj)) for name in _PROTOCOLS) and not isinstance(obj, str | dict)


def _native(a: np.ndarray) -> np.ndarray:
    """The array in the machine's byte order, if its dtype is one of ours."""
    if not a.dtype.isnative:
        a = a.astype(a.dtype.newbyteorder("="))
    return a if a.dtype in dtypes.KIND else _refuse_dtype(a.dtype)


def _refuse_dtype(dtype):
    raise errors.DTypeError(
        f"NumPy dtype {dtype} has no tensor: convert the data to one of "
        f"{dtypes.names(dtypes.ALL)} first"
    )


def _of_python(obj, dtype) -> np.ndarray:
    """Python numbers: floats are the default float, integers int64."""
    if dtype is not None:
        return _python_array(obj, dtype)
    a = _python_array(obj, None)
    if a.dtype == object or a.dtype not in dtypes.KIND:
        _refuse_dtype(a.dtype)
    if a.dtype == dtypes.float64:
        return a.astype(dtypes.default_float())
    return a.astype(dtypes.default_complex()) if a.dtype == dtypes.complex128 else a


def _python_array(obj, dtype) -> np.ndarray:
    try:
        return np.asarray(obj, dtype=dtype)
    except (ValueError, TypeError, OverflowError) as e:
        raise errors.ArgumentError(f"cannot make a tensor of this data: {e}") from e


def _of_torch(x):
    """A torch tensor, which must not be part of torch's own graph."""
    if x.requires_grad:
        raise errors.InterchangeError(
            f"asarray: the torch tensor requires a gradient in torch, which Weft cannot follow; "
            f"pass x.detach()"
        )
    BACKENDS[type(x)]
    return x


def _leaf_kinds(obj) -> set[str]:
    """What nested sequences hold: python, numpy or tensor."""
    if isinstance(obj, list | tuple):
        return set().union(*map(_leaf_kinds, obj)) if obj else {"python"}
    if type(obj) in GROUND or type(obj).__module__.partition(".")[0] == "torch":
        return {"tensor"}
    return {"numpy"} if isinstance(obj, np.ndarray | np.generic) else {"python"}


def _stacked(obj, dtype, device):
    """Nested sequences of tensors, stacked so that the gradient is kept."""
    parts = [asarray(o, device=device) for o in obj]
    out = structural.stack(parts, 0)
    return out if dtype is None or out.dtype == dtype else structural.cast(out, dtype)


def from_dlpack(x, /, *, device=None, copy: bool | None = None):
    """A tensor over memory another library exports; CPU memory lands on `cpu`."""
    if type(x) in GROUND:
        return asarray(x, device=device, copy=copy)
    kind = int(x.__dlpack_device__()[0])
    if kind == 1:
        raw = np.from_dlpack(x)
    else:
        torch_ = namespace_for("cuda")
        raw = torch_.from_dlpack(x)
    if copy:
        raw = BACKENDS[type(raw)].copy(raw)
    return asarray(raw, device=device, copy=False if copy is False else None)


def _shape(shape) -> tuple[int, ...]:
    dims = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
    dims = tuple(int(d) for d in dims)
    if any(d < 0 for d in dims):
        raise errors.ShapeError(f"shape {dims} has a negative size")
    return dims


def full(shape, fill_value, *, dtype=None, device=None, requires_grad: bool = False):
    """A tensor with one value everywhere."""
    if type(fill_value) in GROUND:
        fill_value = fill_value.item()
    if dtype is None:
        dtype = _of_python(fill_value, None).dtype if type(fill_value) in PYTHON_SCALARS else None
    dtype = np.asarray(fill_value).dtype if dtype is None else dtypes.canonical(dtype)
    device = canonical_device(device)
    raw = namespace_for(device).full(_shape(shape), fill_value, dtype, device)
    t = wrap(raw)
    return t.requires_grad_() if requires_grad else t


def zeros(shape, *, dtype=None, device=None, requires_grad: bool = False):
    """A tensor of zeros."""
    dtype = dtypes.default_float() if dtype is None else dtype
    return full(shape, 0, dtype=dtype, device=device, requires_grad=requires_grad)


def ones(shape, *, dtype=None, device=None, requires_grad: bool = False):
    """A tensor of ones."""
    dtype = dtypes.default_float() if dtype is None else dtype
    return full(shape, 1, dtype=dtype, device=device, requires_grad=requires_grad)


def empty(shape, *, dtype=None, device=None, requires_grad: bool = False):
    """A tensor whose elements are not set."""
    dtype = dtypes.default_float() if dtype is None else dtypes.canonical(dtype)
    device = canonical_device(device)
    t = wrap(namespace_for(device).empty(_shape(shape), dtype, device))
    return t.requires_grad_() if requires_grad else t


def full_like(x, /, fill_value, *, dtype=None, device=None):
    """`full` with the shape, dtype and device of x."""
    x = asarray(x)
    dtype = x.dtype if dtype is None else dtype
    return full(x.shape, fill_value, dtype=dtype, device=device or x.device)


def zeros_like(x, /, *, dtype=None, device=None):
    """`zeros` with the shape, dtype and device of x."""
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(x, /, *, dtype=None, device=None):
    """`ones` with the shape, dtype and device of x."""
    return full_like(x, 1, dtype=dtype, device=device)


def empty_like(x, /, *, dtype=None, device=None):
    """`empty` with the shape, dtype and device of x."""
    x = asarray(x)
    return empty(x.shape, dtype=dtype or x.dtype, device=device or x.device)


def _on(raw: np.ndarray, device):
    return wrap(place(raw, canonical_device(device)))


def arange(start, /, stop=None, step=1, *, dtype=None, device=None):
    """Evenly spaced values from `start` (or 0) up to but not including `stop`."""
    if stop is None:
        start, stop = 0, start
    if step == 0:
        raise errors.ArgumentError(f"arange: step must not be 0")
    if dtype is None:
        floats = any(isinstance(v, float | np.floating) for v in (start, stop, step))
        dtype = dtypes.default_float() if floats else dtypes.int64
    count = max(math.ceil((stop - start) / step), 0)
    dtype = dtypes.canonical(dtype)
    exact = np.float64 if dtypes.is_inexact(dtype) else None
    raw = np.arange(start, stop, step, dtype=exact)[:count].astype(dtype)
    return _on(raw, device)


def linspace(start, stop, /, num: int, *, dtype=None, device=None, endpoint: bool = True):
    """`num` evenly spaced values from `start` to `stop`."""
    if dtype is None:
        is_complex = isinstance(start, complex) or isinstance(stop, complex)
        dtype = dtypes.default_complex() if is_complex else dtypes.default_float()
    raw = np.linspace(start, stop, num, endpoint=endpoint)
    return _on(raw.astype(dtypes.canonical(dtype)), device)


def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype=None, device=None):
    """Ones on the k-th diagonal, zeros elsewhere."""
    dtype = dtypes.default_float() if dtype is None else dtypes.canonical(dtype)
    return _on(np.eye(n_rows, n_cols, k=k, dtype=dtype), device)


def from_vec(values: Sequence[Any], shape=None, device=None):
    """A flat list of numbers as a tensor of the given shape."""
    t = tensor(list(values), device=device)
    return t if shape is None else structural.reshape(t, _shape(shape))


dispatch.above.adopt = asarray
