"""Interchange with other libraries: NumPy's protocols, DLPack, the buffer protocol, copying."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import errors
from ..backend.device import as_numpy
from ..core.backends import BACKENDS
from ..core.box import readable
from ..core.node import Leaf, Node
from ..core.value import read
from . import make, numpy_calls

if TYPE_CHECKING:
    from .tensor import Tensor


def to_array(
    self: Tensor, dtype: np.dtype[Any] | type | None = None, copy: bool | None = None
) -> np.ndarray[Any, np.dtype[np.generic]]:
    """NumPy's `__array__`: refused where it would drop a gradient or move between devices."""
    out = self.numpy()
    if dtype is not None and out.dtype != dtype:
        if copy is False:
            raise ValueError(f"cannot give {self.dtype} as {dtype} without a copy")
        return out.astype(dtype)
    return out.copy() if copy else out


def dlpack(
    self: Tensor,
    *,
    stream: Any = None,
    max_version: Any = None,
    dl_device: Any = None,
    copy: Any = None,
) -> Any:
    """Export the memory by DLPack; refused where it would drop a gradient."""
    given = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
    options = {k: v for k, v in given.items() if v is not None}
    raw = readable(read(self), "__dlpack__")
    xp = BACKENDS[type(raw)]
    # Consumers like torch ignore read-only flags, and would write into other gradients.
    apart = xp.is_frozen(raw) and copy is not False
    raw = xp.copy(raw) if apart else raw
    if self.device == "cpu":
        if raw.dtype.kind == "V":
            raise errors.InterchangeError(
                f"__dlpack__: NumPy does not export {self.dtype}; use x.torch() or x.to('float32')"
            )
        # Consumers that support read-only memory get the flag; others copy or write.
        told = max_version is not None and max_version >= (1, 0)
        raw = self.numpy() if told and not apart else raw
    return raw.__dlpack__(**options)


def dlpack_device(self: Tensor) -> tuple[int, int]:
    return readable(read(self)._data, "__dlpack__").__dlpack_device__()


def buffer(self: Tensor, flags: int) -> memoryview:
    """The buffer protocol (Python ≥ 3.12), read-only."""
    values: Any = self.numpy()  # a buffer, though NumPy says so from Python 3.12 on only
    return memoryview(values)


def rebuild(cls: type, array: np.ndarray, device: str, requires_grad: bool) -> Any:
    """Make a copied or unpickled tensor."""
    t = make.asarray(array, device=device)
    return t.requires_grad_(requires_grad) if cls is type(t) else cls(t, requires_grad)


def reduce_(self: Tensor) -> tuple[Any, ...]:
    """How `copy.deepcopy` and `pickle` take a tensor apart: values, device, requires_grad."""
    if self._node.__class__ is Node:
        raise errors.InterchangeError(
            f"a tensor made by {self._node.name} (at {self._node.line}) cannot be copied with its "
            f"graph; copy x.detach(), or x.clone() to stay connected"
        )
    if self._node.__class__ is Leaf and self._node.tensor is None:
        raise errors.InterchangeError(
            "a copy of a tensor that a function is being differentiated by would be a leaf of its "
            "own, without the gradient; use x.clone() to stay connected, or copy x.detach()"
        )
    array = np.array(as_numpy(read(self)._data))
    return rebuild, (type(self), array, self.device, self.requires_grad)


def torch_tensor(self: Tensor) -> Any:
    """The values as a torch tensor, sharing memory where possible.

    >>> import weft as wf
    >>> wf.tensor([1.0, 2.0]).torch()
    tensor([1., 2.])
    """
    raw = readable(read(self), "torch()")
    xp = BACKENDS[type(raw)]
    raw = xp.copy(raw) if xp.is_frozen(raw) else raw
    if self.device != "cpu":
        return raw
    torch_ = make.namespace_for("torch")
    return torch_.from_numpy(raw) if raw.dtype.kind != "V" else torch_.from_any(raw, "torch")


PROTOCOLS: dict[str, Callable[..., Any]] = {
    "__array__": to_array,
    "__array_ufunc__": numpy_calls.ufunc,
    "__array_function__": numpy_calls.function,
    "__dlpack__": dlpack,
    "__dlpack_device__": dlpack_device,
    "__buffer__": buffer,
    "__reduce__": reduce_,
    "torch": torch_tensor,
}
