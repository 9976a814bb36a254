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
from ..core.value import TENSORS, as_new_constant, wrap
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
    """A new tensor with a copy of `data`, cut off from any graph.

    data           a number, nested lists, an array of NumPy, PyTorch or JAX, or a tensor
    requires_grad  whether it is a leaf to differentiate by
    dtype          None: Python floats become the default float (float32), arrays keep their
                   dtype
    device         where it is: "cpu", "cuda", …; None: where the data is

    `wf.asarray` shares memory where it can, `wf.array` copies and keeps the gradient.

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

    obj     a number, nested lists, an array of NumPy, PyTorch or JAX, or a tensor, which keeps
            its graph
    dtype   None: Python floats become the default float (float32), arrays keep their dtype
    device  where it is to be; None: where it is, so that torch tensors stay on torch's device
    copy    True always copies, False is an error where that is needed, None copies if it must

    >>> import weft as wf
    >>> import numpy as np
    >>> a = np.array([1.0, 2.0])
    >>> x = wf.asarray(a)
    >>> a[0] = 5.0
    >>> x.tolist()
    [5.0, 2.0]
    """
    dtype = None if dtype is None else dtypes.canonical(dtype)
    if type(obj) in TENSORS:
        return _from_tensor(obj, dtype, device, copy)
    if hasattr(type(obj), "__weft_tensor__"):  # a stand-in for a tensor
        return _from_tensor(obj.__weft_tensor__(), dtype, device, copy)
    if hasattr(type(obj), "__weft_number__"):  # a host scalar, not known yet
        return _from_tensor(obj.__weft_number__(dtype), dtype, device, None)
    raw = foreign.raw_of(obj, dtype)
    if raw is None:
        return _stack_nested(obj, dtype or foreign.common_dtype(obj), device)
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
    return as_new_constant(wrap(raw))


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


def _stack_nested(obj, dtype, device):
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


def array(
    object: Any,
    dtype: DTypeLike | None = None,
    *,
    copy: bool | None = True,
    ndmin: int = 0,
    device: Device | None = None,
) -> Tensor:
    """A tensor of `object`, copied: NumPy's and MLX's spelling.

    object  a number, nested lists, an array of NumPy, PyTorch or JAX, or a tensor, whose gradient
            flows through the copy
    dtype   None: Python floats become the default float (float32), arrays keep their dtype
    copy    True always copies, False is an error where that is needed, None copies if it must
    ndmin   how many axes the result has at least; new ones of length 1 come first
    device  where it is to be; None: where the data is

    `wf.tensor` always copies, cuts tensors off from their graph and makes leaves to differentiate
    by; `wf.asarray` shares memory where it can.

    >>> import weft as wf
    >>> wf.array([1, 2], float)
    tensor([1., 2.], dtype=float64)
    >>> wf.grad(lambda x: wf.array([x, x * x]).sum())(wf.tensor(3.0)).item()
    7.0
    """
    t = asarray(object, dtype=dtype, device=device, copy=copy)
    if t.ndim < integer_in("array", "ndmin", ndmin):
        t = structural.reshape(t, (1,) * (ndmin - t.ndim) + t.shape)
    return t


def from_dlpack(
    x: SupportsDLPack, /, *, device: Device | None = None, copy: bool | None = None
) -> Tensor:
    """A tensor over memory that another library exports by DLPack.

    x       an object with `__dlpack__`; CPU memory lands on "cpu", whichever library it is from
    device  where the tensor is to be; None: where the memory is
    copy    True always copies, False is an error where that is needed, None copies if it must

    >>> import weft as wf
    >>> import numpy as np
    >>> wf.from_dlpack(np.array([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """
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
    """A tensor with one value everywhere.

    shape          an integer or a tuple
    fill_value     a number; of a tensor the gradient is kept
    dtype          None: that of the value
    device         where the result is: "cpu", "cuda", … ; None for the default
    requires_grad  whether the result is a leaf to differentiate by

    >>> import weft as wf
    >>> wf.full((2, 2), 7.0).tolist()
    [[7.0, 7.0], [7.0, 7.0]]
    """
    shape = _shape("full", shape)
    value = asarray(fill_value, dtype=dtype, device=device)
    if value.shape:
        raise errors.ShapeError(f"full: fill_value has the shape {value.shape}, expected a number")
    if value.__class__ in BOXED or (value.requires_grad and current.get().grad):
        return structural.broadcast_to(value, shape)
    return _fill(shape, value.item(), value.dtype, value.device, requires_grad)


def _fill(shape, value, dtype, device, requires_grad: bool):
    device = canonical_device(device)
    t = as_new_constant(
        wrap(namespace_for(device).full(shape, value, dtypes.canonical(dtype), device))
    )
    return t.requires_grad_() if requires_grad else t


def zeros(
    shape: Shape,
    *more: Never,
    dtype: DTypeLike | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of zeros.

    shape          an integer or a tuple
    dtype          None: the default float
    device         where the result is: "cpu", "cuda", … ; None for the default
    requires_grad  whether the result is a leaf to differentiate by

    >>> import weft as wf
    >>> wf.zeros((2, 3)).tolist()
    [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    dtype = dtypes.default_float() if dtype is None else dtype
    return _fill(_shape("zeros", shape, more), 0, dtype, device, requires_grad)


def ones(
    shape: Shape,
    *more: Never,
    dtype: DTypeLike | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of ones.

    shape          an integer or a tuple
    dtype          None: the default float
    device         where the result is: "cpu", "cuda", … ; None for the default
    requires_grad  whether the result is a leaf to differentiate by

    >>> import weft as wf
    >>> wf.ones(3, dtype="int64").tolist()
    [1, 1, 1]
    """
    dtype = dtypes.default_float() if dtype is None else dtype
    return _fill(_shape("ones", shape, more), 1, dtype, device, requires_grad)


def empty(
    shape: Shape,
    *more: Never,
    dtype: DTypeLike | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor whose elements are not set: whatever the memory holds.

    shape          an integer or a tuple
    dtype          None: the default float
    device         where the result is: "cpu", "cuda", … ; None for the default
    requires_grad  whether the result is a leaf to differentiate by

    >>> import weft as wf
    >>> wf.empty((2, 3)).shape
    (2, 3)
    """
    dtype = dtypes.default_float() if dtype is None else dtypes.canonical(dtype)
    device = canonical_device(device)
    t = as_new_constant(
        wrap(namespace_for(device).empty(_shape("empty", shape, more), dtype, device))
    )
    return t.requires_grad_() if requires_grad else t


def full_like(
    x: ArrayLike,
    /,
    fill_value: ArrayLike,
    *,
    dtype: DTypeLike | None = None,
    device: Device | None = None,
) -> Tensor:
    """A tensor with the shape of x and one value everywhere.

    x              an array whose shape, dtype and device are taken
    fill_value     a number; of a tensor the gradient is kept
    dtype, device  None: those of x

    >>> import weft as wf
    >>> wf.full_like(wf.zeros((2, 2)), 7.0).tolist()
    [[7.0, 7.0], [7.0, 7.0]]
    """
    x = asarray(x)
    dtype = x.dtype if dtype is None else dtype
    return full(x.shape, fill_value, dtype=dtype, device=device or x.device)


def zeros_like(
    x: ArrayLike, /, *, dtype: DTypeLike | None = None, device: Device | None = None
) -> Tensor:
    """A tensor of zeros with the shape of x.

    x              an array whose shape, dtype and device are taken
    dtype, device  None: those of x

    >>> import weft as wf
    >>> wf.zeros_like([1, 2, 3]).tolist()
    [0, 0, 0]
    """
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(
    x: ArrayLike, /, *, dtype: DTypeLike | None = None, device: Device | None = None
) -> Tensor:
    """A tensor of ones with the shape of x.

    x              an array whose shape, dtype and device are taken
    dtype, device  None: those of x

    >>> import weft as wf
    >>> wf.ones_like([1, 2, 3]).tolist()
    [1, 1, 1]
    """
    return full_like(x, 1, dtype=dtype, device=device)


def empty_like(
    x: ArrayLike, /, *, dtype: DTypeLike | None = None, device: Device | None = None
) -> Tensor:
    """A tensor with the shape of x, whose elements are not set.

    x              an array whose shape, dtype and device are taken
    dtype, device  None: those of x

    >>> import weft as wf
    >>> wf.empty_like(wf.zeros((2, 3))).shape
    (2, 3)
    """
    x = asarray(x)
    return empty(x.shape, dtype=dtype or x.dtype, device=device or x.device)


def _on(raw: np.ndarray, device):
    return as_new_constant(wrap(place(raw, canonical_device(device))))


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
    """The values start, start + step, start + 2·step, … before `stop`.

    start   the first value; with one argument that is `stop`, and the first value 0
    stop    the end, which is not among the values
    step    the distance of neighbours, also negative
    dtype   None: int64 for integers, else the default float
    device  where the result is: "cpu", "cuda", … ; None for the default

    >>> import weft as wf
    >>> wf.arange(3).tolist(), wf.arange(1, 6, 2).tolist()
    ([0, 1, 2], [1, 3, 5])
    """
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
    """`num` evenly spaced values start + i·(stop − start)/(num − 1).

    start, stop  the first and the last value; tensors keep their gradient
    num          how many values
    dtype        None: the default float, or that of the tensors
    device       where the result is: "cpu", "cuda", … ; None for the default
    endpoint     whether `stop` is among the values; if not, the distance is (stop − start)/num

    >>> import weft as wf
    >>> wf.linspace(0.0, 1.0, 5).tolist()
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    num = integer_in("linspace", "num", num)
    if num < 0:
        raise errors.ArgumentError(f"linspace: num={num}, expected 0 or more")
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
    """A matrix with ones on the k-th diagonal and zeros elsewhere.

    n_rows  how many rows
    n_cols  how many columns; None: as many as rows
    k       0 is the main diagonal, above it are positive numbers, below it negative ones
    dtype   None: the default float
    device  where the result is: "cpu", "cuda", … ; None for the default

    >>> import weft as wf
    >>> wf.eye(2, 3, k=1).tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    rows, columns = _shape("eye", (n_rows, n_rows if n_cols is None else n_cols))
    dtype = dtypes.default_float() if dtype is None else dtypes.canonical(dtype)
    return _on(np.eye(rows, columns, k=integer_in("eye", "k", k), dtype=dtype), device)


def from_vec(
    values: Sequence[Any], shape: Shape | None = None, device: Device | None = None
) -> Tensor:
    """A flat list of numbers as a tensor of the given shape.

    values  a sequence of numbers, row by row
    shape   a tuple; None: one axis
    device  where the result is: "cpu", "cuda", … ; None for the default

    >>> import weft as wf
    >>> wf.Tensor.from_vec([1.0, 2.0, 3.0, 4.0], (2, 2)).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    t = tensor(list(values), device=device)
    return t if shape is None else structural.reshape(t, _shape("from_vec", shape))


def scalar(
    value: ArrayLike, device: Device | None = None, dtype: DTypeLike | None = None
) -> Tensor:
    """A number as a tensor without axes.

    value   a number
    device  where the result is: "cpu", "cuda", … ; None for the default
    dtype   None: the default float for a Python float

    >>> import weft as wf
    >>> wf.Tensor.scalar(2.5)
    tensor(2.5)
    """
    t = tensor(value, dtype=dtype, device=device)
    if t.shape:
        raise errors.ShapeError(f"scalar: got the shape {t.shape}, expected one number")
    return t


dispatch.above.adopt = asarray
