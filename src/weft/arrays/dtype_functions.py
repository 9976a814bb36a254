"""The namespace's functions about dtypes, and its description of itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

import ml_dtypes
import numpy as np

from .. import errors
from ..backend.device import devices
from ..core import dtypes
from ..core.backends import PYTHON_SCALARS
from ..core.value import TENSORS
from ..ops import structural
from . import make
from .foreign import refuse_imaginary

if TYPE_CHECKING:
    from .tensor import Tensor
    from .types import ArrayLike, Device, DTypeLike

_GROUPS = {
    "bool": ("bool",),
    "signed integer": ("signed integer",),
    "unsigned integer": ("unsigned integer",),
    "integral": ("signed integer", "unsigned integer"),
    "real floating": ("real floating",),
    "complex floating": ("complex floating",),
    "numeric": ("signed integer", "unsigned integer", "real floating", "complex floating"),
}


def astype(
    x: ArrayLike, dtype: DTypeLike, /, *, copy: bool = True, device: Device | None = None
) -> Tensor:
    """x in another dtype; float to float keeps the gradient.

    x       an array, or anything `wf.asarray` accepts
    dtype   the dtype to convert to; floats are cut off to integers, complex to real is refused
    copy    whether x is copied where nothing changes
    device  where the result is to be; None: where x is

    >>> import weft as wf
    >>> wf.astype([1.5, -1.5], wf.int64).tolist()
    [1, -1]
    """
    x = make.asarray(x)
    dtype = dtypes.canonical(dtype)
    refuse_imaginary("astype", x.dtype, dtype)
    out = x if x.dtype == dtype else structural.cast(x, dtype)
    out = structural.copy(out) if copy and out is x else out
    return out if device is None else out.to(device)


def _dtype_of(x) -> np.dtype:
    if type(x) in TENSORS:
        return x.dtype
    return dtypes.canonical(x if isinstance(x, type) else getattr(x, "dtype", x))


# A dtype, the name of a kind of them, or several.
Kind: TypeAlias = "DTypeLike | tuple[DTypeLike, ...]"


def can_cast(from_: DTypeLike | Tensor, to: DTypeLike, /) -> bool:
    """Whether type promotion leads from one dtype to the other.

    from_  a dtype, or an array
    to     a dtype

    >>> import weft as wf
    >>> wf.can_cast("int32", "int64"), wf.can_cast("float64", "float32")
    (True, False)
    """
    a, b = _dtype_of(from_), dtypes.canonical(to)
    try:
        return dtypes.promote(a, b) == b
    except errors.DTypeError:
        return False


def isdtype(dtype: DTypeLike, kind: Kind) -> bool:
    """Whether a dtype is of a kind.

    dtype  a dtype
    kind   a dtype, or "bool", "signed integer", "unsigned integer", "integral", "real
           floating", "complex floating" or "numeric"; or a tuple of these, of which one must
           fit

    >>> import weft as wf
    >>> wf.isdtype(wf.float32, "real floating"), wf.isdtype(wf.int8, ("bool", "integral"))
    (True, True)
    """
    dtype = dtypes.canonical(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str) and kind in _GROUPS:
        return dtypes.kind(dtype) in _GROUPS[kind]
    if isinstance(kind, str) and kind not in {d.name for d in dtypes.ALL}:
        raise errors.ArgumentError(
            f"isdtype: kind {kind!r}, expected a dtype or one of {', '.join(_GROUPS)}"
        )
    return dtype == dtypes.canonical(kind)


def result_type(*arrays_and_dtypes: DTypeLike | ArrayLike) -> np.dtype[Any]:
    """The dtype that an operation on these has, by the Array API's promotion.

    arrays_and_dtypes  arrays, dtypes and Python scalars, which never widen an array of their
                       kind

    >>> import weft as wf
    >>> wf.result_type(wf.float32, wf.float64)
    dtype('float64')
    >>> wf.result_type(wf.float32, 2.0)
    dtype('float32')
    """
    scalars: list[Any] = [v for v in arrays_and_dtypes if type(v) in PYTHON_SCALARS]
    rest = [_dtype_of(v) for v in arrays_and_dtypes if type(v) not in PYTHON_SCALARS]
    if not rest:
        raise errors.ArgumentError("result_type: needs at least one array or dtype")
    out = dtypes.promote_all(rest)
    for s in scalars:
        out = dtypes.with_scalar(out, s)
    return out


def finfo(type_: DTypeLike | ArrayLike, /) -> SimpleNamespace:
    """The limits of a floating dtype: bits, eps, max, min, smallest_normal and others.

    type_  a real or complex floating dtype, or an array of one

    >>> import weft as wf
    >>> wf.finfo("float32").eps == 2**-23
    True
    """
    dtype = _dtype_of(type_)
    if not dtypes.is_inexact(dtype):
        raise errors.DTypeError(f"finfo: {dtype} is not a floating dtype; see iinfo")
    info = ml_dtypes.finfo(dtypes.to_real(dtype))
    return SimpleNamespace(
        bits=int(info.bits),
        eps=float(info.eps),
        max=float(info.max),
        min=float(info.min),
        tiny=float(info.tiny),
        smallest_normal=float(info.smallest_normal),
        smallest_subnormal=float(info.smallest_subnormal),
        resolution=float(info.resolution),
        dtype=dtypes.to_real(dtype),
    )


def iinfo(type_: DTypeLike | ArrayLike, /) -> SimpleNamespace:
    """The limits of an integer dtype: bits, max and min.

    type_  an integer dtype, or an array of one

    >>> import weft as wf
    >>> wf.iinfo("int8").min, wf.iinfo("int8").max
    (-128, 127)
    """
    dtype = _dtype_of(type_)
    if dtypes.kind(dtype) not in _GROUPS["integral"]:
        raise errors.DTypeError(f"iinfo: {dtype} is not an integer dtype; see finfo")
    info = np.iinfo(dtype)
    return SimpleNamespace(bits=info.bits, max=int(info.max), min=int(info.min), dtype=dtype)


class NamespaceInfo:
    """What `__array_namespace_info__()` answers."""

    def capabilities(self) -> dict[str, bool | int]:
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        return "cpu"

    def default_dtypes(self, *, device: Device | None = None) -> dict[str, np.dtype[Any]]:
        return {
            "real floating": dtypes.default_float(),
            "complex floating": dtypes.default_complex(),
            "integral": dtypes.int64,
            "indexing": dtypes.int64,
        }

    def dtypes(
        self, *, device: Device | None = None, kind: Kind | None = None
    ) -> dict[str, np.dtype[Any]]:
        standard = [d for d in dtypes.ALL if d not in dtypes.HALF]
        return {d.name: d for d in standard if kind is None or isdtype(d, kind)}

    def devices(self) -> tuple[str, ...]:
        return tuple(devices())


def __array_namespace_info__() -> NamespaceInfo:
    """The Array API's inspection object: its default dtypes, devices and capabilities.

    >>> import weft as wf
    >>> wf.__array_namespace_info__().default_dtypes()["real floating"]
    dtype('float32')
    """
    return NamespaceInfo()
