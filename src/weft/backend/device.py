"""Device names, the backend each of them stands for, and moving between them."""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np

from .. import errors
from ..core.backends import BACKENDS
from .numpy import namespace as numpy_
from .shared.types import Device, Raw

CPU = "cpu"


def namespace_for(device: Device) -> ModuleType:
    """The backend that computes on a device."""
    return (
        numpy_
        if canonical_device(device) == CPU
        else import_module(f"{__package__}.torch.namespace")
    )


def canonical_device(device: Device) -> str:
    """The canonical name of a device: `cpu` (NumPy), `torch` (PyTorch on the CPU), `cuda:0`, …"""
    if device is None or (isinstance(device, str) and device == CPU):
        return CPU
    name = _torch_name(device) if is_torch_device(device) else str(device)
    kind, colon, index = name.partition(":")
    if name != "torch" and (kind != "cuda" or (colon and not index.isdigit())):
        raise errors.DeviceError(
            f"device {name!r}: expected 'cpu' (NumPy), 'torch' (PyTorch on the CPU), "
            "'cuda' or 'cuda:1'"
        )
    if find_spec("torch") is None:
        raise errors.DeviceError(f"device {name!r} needs PyTorch: pip install 'weft[torch]'")
    return import_module(f"{__package__}.torch.namespace").checked_device(name)


def is_torch_device(device: object) -> bool:
    """Whether this is one of torch's own device objects."""
    return f"{type(device).__module__}.{type(device).__name__}" == "torch.device"


def _torch_name(device: Any) -> str:
    """Weft's name for a torch device. Torch's CPU is "torch", since "cpu" means NumPy."""
    return "torch" if device.type == CPU else str(device)


def place(raw: Raw, device: Device) -> Raw:
    """The raw array on another device; the same object if it is there already."""
    device = canonical_device(device)
    xp = BACKENDS[type(raw)]
    if xp.device_of(raw) == device:
        return raw
    if device == CPU:
        return xp.to_numpy(raw)
    torch_ = import_module(f"{__package__}.torch.namespace")
    return torch_.from_any(raw, device)


def devices() -> list[str]:
    """The devices of this machine; torch's are listed once torch has been loaded."""
    found = [CPU]
    for cls, xp in BACKENDS.items():
        if xp is not numpy_ and cls is xp.array_type:
            found += xp.devices()
    return found


def as_numpy(raw: Raw) -> np.ndarray:
    """The raw array as a NumPy array in host memory."""
    return BACKENDS[type(raw)].to_numpy(raw)
