"""Moving a module's tensors to a device, and casting them to a dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import errors
from ..arrays.parameter import Parameter
from ..backend.device import is_torch_device
from ..core import dtypes

if TYPE_CHECKING:
    from ..arrays.types import Device, DTypeLike
    from .module import Module


def convert(
    module: Module,
    targets: tuple[Any, ...],
    device: Device | None,
    dtype: DTypeLike | None,
) -> None:
    """Move every tensor of a module and cast the floating-point ones.

    Parameters stay the objects that they are, so that optimizers still know them. Buffers may
    be tensors that somebody else uses: they are replaced.
    """
    for target in targets:
        named = isinstance(target, str) and target.partition(":")[0] in ("cpu", "cuda", "torch")
        if named or is_torch_device(target):
            device = target
        else:
            dtype = target
    dtype = None if dtype is None else dtypes.canonical(dtype)
    if dtype is not None and not dtypes.is_inexact(dtype):
        raise errors.DTypeError(f"to: {dtype} for a module; expected a floating-point dtype")
    buffers: dict[int, Any] = {}
    for part in module.modules():
        for name, x in part._parameters.items():
            if type(x) is Parameter:
                _become(x, _convert(x.detach(), device, dtype), device, dtype)
            elif x is not None:  # a tensor in place of a parameter, inside a transformation
                part._parameters[name] = _convert(x, device, dtype)
        for name, x in part._buffers.items():
            if x is not None:
                new = buffers[id(x)] if id(x) in buffers else _convert(x, device, dtype)
                part._buffers[name] = buffers[id(x)] = buffers[id(new)] = new


def _convert(x, device, dtype):
    x = x if device is None else x.to(device)
    return x if dtype is None or not dtypes.is_inexact(x.dtype) else x.to(dtype)


def _become(p: Parameter, value, device, dtype) -> None:
    """Give a parameter new memory, and convert its gradient too."""
    if value._data is p._data:
        return
    tracked, gradient = p.requires_grad, p.grad
    p._data, p._node = value._data, None
    if tracked:
        p.requires_grad_()
        p.grad = None if gradient is None else _convert(gradient.detach(), device, dtype)
