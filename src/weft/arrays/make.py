"""Making tensors: from data of any kind, and from nothing."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, isfinite
from typing import TYPE_CHECKING, Any, Never

import numpy as np

from .. import errors
from ..backend.device import canonical_device, namespace_for, place
from ..core import dispatch, dtypes
from ..core.aval import integer_in
from ..core.backends import BACKENDS, PYTHON_SCALARS
from ..core.box import BOXED, readable
from ..core.numbers import plain
from ..core.settings import current
from ..core.value import TENSORS, made, wrap
from ..ops import structural
from . import foreign

if TYPE_CHECKING:
    from .tensor import Tensor
    from .types import ArrayLike, Device, DTypeLike, Shape, SupportsDLPack


def tensor(
    data: ArrayLike,
    requires_grad: bool = False,
    dtype: DTypeLike | None = None,
    device: Device | None = None,
) -> Tensor:
    """A new tensor with a copy of `data`.

    Python floats become the default float (float32), NumPy data keeps its dtype.

    >>> import weft as wf
    >>> wf.tensor([1.0, 2.0], requires_grad=True)
    tensor([1., 2.], requires_grad=True)
    """
    t = asarray(data, dtype=dtype, device=device, copy=True)
    t = t.detach() if t.requires_grad and type(data) in TENSORS else t
    return t.requires_grad_() if requires_grad else t


def asarray(
    obj: Any,
    /,
    *,
    dtype: DTypeLike | None = None,
    device: Device | None = None,
    copy: bool | None = None,
) -> Tensor:
    """`obj` as a tensor, sharing memory where possible.

    Tensors keep their graph, torch tensors stay on torch's device.
    """
    dtype = None if dtype is None else dtypes.canonical(dtype)
    if type(obj) in TENSORS:
        return _from_tensor(obj, dtype, device, copy)
    if hasattr(type(obj), "__weft_tensor__"):  # it stands for a tensor
        return _from_tensor(obj.__weft_tensor__(), dtype, device, copy)
    if hasattr(type(obj), "__weft_number__"):  # one that is not known yet
        return _from_tensor(obj.__weft_number__(dtype), dtype, device, False)
    raw = foreign.raw_of(obj, dtype)
    if raw is None:
        return _stacked(obj, dtype or foreign.common_dtype(obj), device)
    xp = BACKENDS[type(raw)]
    if dtype is not None and xp.dtype_of(raw) != dtype:
        _refuse_copy(copy, "changes the dtype")
        foreign.refuse_imaginary("asarray", xp.dtype_of(raw), dtype)
        raw = xp.cast(raw, dtype)
    elif copy:
        raw = xp.copy(raw)
    if device is not None:
        moved = place(raw, device)
        if moved is not raw:
            _refuse_copy(copy, "moves to another device")
        raw = moved
    return made(wrap(raw))


def _from_tensor(x, dtype, device, copy) -> Any:
    if dtype is not None and x.dtype != dtype:
        _refuse_copy(copy, "changes the dtype")
        foreign.refuse_imaginary("asarray", x.dtype, dtype)
        x, copy = structural.cast(x, dtype), False
    if device is not None and canonical_device(device) != x.device:
        _refuse_copy(copy, "moves to another device")
        x, copy = x.to(device), False
    return structural.copy(x) if copy else x


def _refuse_copy(copy, why: str) -> None:
    if copy is False:
        raise errors.ArgumentError(f"asarray: copy=False, but the call {why}")


def _stacked(obj, dtype, device):
    """Nested sequences of tensors, stacked so that the gradient is kept.

    Numbers go where the tensors are; tensors on different devices are an error of `stack`.
    """
    held = [o for o in foreign.leaves(obj) if type(o) in TENSORS or foreign.is_torch(o)]
    there = asarray(held[0]).device if device is None else device
    return _stack_of(obj, dtype, device, there)


def _stack_of(obj, dtype, device, there):
    if isinstance(obj, list | tuple):
        return structural.stack([_stack_of(o, dtype, device, there) for o in obj], 0)
    return asarray(obj, dtype=dtype, device=there if type(obj) in PYTHON_SCALARS else device)


def from_dlpack(
    x: SupportsDLPack, /, *, device: Device | None = None, copy: bool | None = None
) -> Tensor:
    """A tensor over memory another library exports; CPU memory lands on `cpu`."""
    if type(x) in TENSORS:
        return asarray(x, device=device, copy=copy)
    raw = foreign.of_dlpack(x)
    on_host = BACKENDS[type(raw)].device_of(raw) in ("cpu", "torch")
    return asarray(place(raw, "cpu") if on_host else raw, device=device, copy=copy)


def _shape(name: str, shape, more: tuple = ()) -> tuple[int, ...]:
    if more:
        given = ", ".join([repr(n) for n in (shape, *more)])
        raise errors.ArgumentError(f"{name}({given}): the shape is one argument: {name}(({given}))")
    try:
        dims = tuple(shape)
    except TypeError:
        dims = (shape,)
    dims = tuple([integer_in(name, "shape", d) for d in dims])
    if any(d < 0 for d in dims):
        raise errors.ShapeError(f"{name}: shape {dims} has a negative size")
    return dims


def full(
    shape: Shape,
    fill_value: ArrayLike,
    *,
    dtype: DTypeLike | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor with one value everywhere; the gradient of a tensor's value is kept."""
    shape = _shape("full", shape)
    value = asarray(fill_value, dtype=dtype, device=device)
    if value.shape:
        raise errors.ShapeError(f"full: fill_value has the shape {value.shape}, expected a number")
    if value.__class__ in BOXED or (value.requires_grad and current.get().grad):
        return structural.broadcast_to(value, shape)
    return _filled(shape, value.item(), value.dtype, value.device, requires_grad)


def _filled(shape, value, dtype, device, requires_grad: bool):
    device = canonical_device(device)
    t = made(wrap(namespace_for(device).full(shape, value, dtypes.canonical(dtype), device)))
    return t.requires_grad_() if requires_grad else t


def zeros(
    shape: Shape,
    *more: Never,
    dtype: DTypeLike | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of zeros."""
    dtype = dtypes.default_float() if dtype is None else dtype
    return _filled(_shape("zeros", shape, more), 0, dtype, device, requires_grad)


def ones(
    shape: Shape,
    *more: Never,
    dtype: DTypeLike | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of ones."""
    dtype = dtypes.default_float() if dtype is None else dtype
    return _filled(_shape("ones", shape, more), 1, dtype, device, requires_grad)


def empty(
    shape: Shape,
    *more: Never,
    dtype: DTypeLike | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor whose elements are not set."""
    dtype = dtypes.default_float() if dtype is None else dtypes.canonical(dtype)
    device = canonical_device(device)
    t = made(wrap(namespace_for(device).empty(_shape("empty", shape, more), dtype, device)))
    return t.requires_grad_() if requires_grad else t


def full_like(
    x: ArrayLike,
    /,
    fill_value: ArrayLike,
    *,
    dtype: DTypeLike | None = None,
    device: Device | None = None,
) -> Tensor:
    """`full` with the shape, dtype and device of x."""
    x = asarray(x)
    dtype = x.dtype if dtype is None else dtype
    return full(x.shape, fill_value, dtype=dtype, device=device or x.device)


def zeros_like(
    x: ArrayLike, /, *, dtype: DTypeLike | None = None, device: Device | None = None
) -> Tensor:
    """`zeros` with the shape, dtype and device of x."""
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(
    x: ArrayLike, /, *, dtype: DTypeLike | None = None, device: Device | None = None
) -> Tensor:
    """`ones` with the shape, dtype and device of x."""
    return full_like(x, 1, dtype=dtype, device=device)


def empty_like(
    x: ArrayLike, /, *, dtype: DTypeLike | None = None, device: Device | None = None
) -> Tensor:
    """`empty` with the shape, dtype and device of x."""
    x = asarray(x)
    return empty(x.shape, dtype=dtype or x.dtype, device=device or x.device)


def _on(raw: np.ndarray, device):
    return made(wrap(place(raw, canonical_device(device))))


def number(name: str, what: str, v: Any) -> Any:
    """A Python number of what the user gave as one."""
    if type(v) in TENSORS:
        if v.requires_grad:
            readable(v, name)  # which says why not
        v = v.item()
    v = v.item() if isinstance(v, np.generic | np.ndarray) and v.size == 1 else plain(v)
    if type(v) not in PYTHON_SCALARS:
        raise errors.DTypeError(f"{name}: {what} is a {type(v).__name__}, expected a number")
    return v


def arange(
    start: complex | Tensor,
    /,
    stop: complex | Tensor | None = None,
    step: complex | Tensor = 1,
    *,
    dtype: DTypeLike | None = None,
    device: Device | None = None,
) -> Tensor:
    """Evenly spaced values from `start` (or 0) up to but not including `stop`."""
    if stop is None:
        start, stop = 0, start
    named = {"start": start, "stop": stop, "step": step}
    numbers = [number("arange", k, v) for k, v in named.items()]
    low, high, by = numbers
    if any(isinstance(v, complex) for v in numbers):
        raise errors.DTypeError(f"arange: got complex numbers {numbers}, expected real ones")
    if by == 0 or not all(map(isfinite, numbers)):
        raise errors.ArgumentError(
            f"arange: start {low}, stop {high}, step {by}; expected finite numbers and a step "
            "other than 0"
        )
    floats = any(isinstance(v, float) for v in numbers)
    if dtype is None:
        dtype = dtypes.default_float() if floats else dtypes.int64
    dtype = dtypes.canonical(dtype)
    count = max(ceil((high - low) / by) if floats else -((low - high) // by), 0)
    exact = np.float64 if dtypes.is_inexact(dtype) else None
    raw = np.arange(low, high, by, dtype=exact)[:count]
    _check_range("arange", raw, dtype)
    return _on(raw.astype(dtype), device)


def _check_range(name: str, raw: np.ndarray, dtype) -> None:
    """Refuse integers that an integer dtype does not hold."""
    if raw.size and dtype.kind in "iu":
        limits, low, high = np.iinfo(dtype), raw.min(), raw.max()
        if low < limits.min or high > limits.max:
            raise errors.ArgumentError(f"{name}: {low} to {high} do not fit into {dtype}")


def linspace(
    start: complex | Tensor,
    stop: complex | Tensor,
    /,
    num: int,
    *,
    dtype: DTypeLike | None = None,
    device: Device | None = None,
    endpoint: bool = True,
) -> Tensor:
    """`num` evenly spaced values from `start` to `stop`; differentiable in both."""
    num = integer_in("linspace", "num", num)
    if num < 0:
        raise errors.ArgumentError(f"linspace: num {num}, expected 0 or more")
    if type(start) in TENSORS or type(stop) in TENSORS:
        return _between(start, stop, num, dtype, device, endpoint)
    first, last = number("linspace", "start", start), number("linspace", "stop", stop)
    raw = np.linspace(first, last, num, endpoint=endpoint)
    if dtype is None:
        dtype = dtypes.default_complex() if raw.dtype.kind == "c" else dtypes.default_float()
    dtype = dtypes.canonical(dtype)
    foreign.refuse_imaginary("linspace", raw.dtype, dtype)
    return _on(raw.astype(dtype), device)


def _between(start, stop, num: int, dtype, device, endpoint: bool):
    end = stop if type(stop) in TENSORS else start
    own = end.dtype if dtypes.is_inexact(end.dtype) else dtypes.default_float()
    place = end.device if device is None else device
    start, stop = (asarray(v, device=place) for v in (start, stop))
    if dtype is not None and dtypes.is_inexact(dtypes.canonical(dtype)):
        own = dtypes.promote_all((own, dtypes.canonical(dtype)))
        start, stop = start.to(own), stop.to(own)
    real = dtypes.to_real(own)
    t = linspace(0.0, 1.0, num, dtype=real, device=place, endpoint=endpoint)
    t = structural.reshape(t, (num, *(1,) * max(start.ndim, stop.ndim)))
    out = start * (1 - t) + stop * t
    return out if dtype is None else out.to(dtype)


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: DTypeLike | None = None,
    device: Device | None = None,
) -> Tensor:
    """Ones on the k-th diagonal, zeros elsewhere."""
    rows, columns = _shape("eye", (n_rows, n_rows if n_cols is None else n_cols))
    dtype = dtypes.default_float() if dtype is None else dtypes.canonical(dtype)
    return _on(np.eye(rows, columns, k=integer_in("eye", "k", k), dtype=dtype), device)


def from_vec(
    values: Sequence[Any], shape: Shape | None = None, device: Device | None = None
) -> Tensor:
    """A flat list of numbers as a tensor of the given shape."""
    t = tensor(list(values), device=device)
    return t if shape is None else structural.reshape(t, _shape("from_vec", shape))


def scalar(
    value: ArrayLike, device: Device | None = None, dtype: DTypeLike | None = None
) -> Tensor:
    """A number as a 0-d tensor."""
    t = tensor(value, dtype=dtype, device=device)
    if t.shape:
        raise errors.ShapeError(f"scalar: got the shape {t.shape}, expected one number")
    return t


dispatch.above.adopt = asarray
