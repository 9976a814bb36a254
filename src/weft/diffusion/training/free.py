"""How much memory of a device is free."""

from __future__ import annotations

from pathlib import Path

from weft.profile.valueless import has_gpu

_GROUP = Path("/sys/fs/cgroup")


def free_bytes(device: str) -> int | None:
    """The bytes that are free on a device now; None: it is not here, or the system does not say.

    device  Weft's name of it

    >>> from weft.diffusion.training.free import free_bytes
    >>> found = free_bytes("cpu")
    >>> found is None or found > 0
    True
    """
    if device.startswith("cuda"):
        return _free_on_gpu(device) if has_gpu() else None
    found = [n for n in (_available(), _left_to_group()) if n is not None]
    return min(found, default=None)


def _free_on_gpu(device: str) -> int:
    import torch

    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def _available() -> int | None:
    """What Linux says that new programs may take."""
    file = Path("/proc/meminfo")
    if not file.exists():
        return None
    lines = dict(line.split(":", 1) for line in file.read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) << 10 if "MemAvailable" in lines else None


def _left_to_group() -> int | None:
    """What a limit of the process's group leaves."""
    most, now = _GROUP / "memory.max", _GROUP / "memory.current"
    if not (most.exists() and now.exists()) or most.read_text().strip() == "max":
        return None
    return max(int(most.read_text()) - int(now.read_text()), 0)
