"""What PyTorch says of its GPU: bytes, and waiting for its work. Without a GPU there are none."""

import sys
from typing import Any


def _cuda() -> Any:
    """PyTorch's CUDA, if this program uses it; nothing is loaded or started here."""
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_initialized() else None


def live(device: str | None = None) -> int:
    """Bytes that are allocated now on a GPU; None: the current one."""
    cuda = _cuda()
    return 0 if cuda is None else cuda.memory_allocated(device)


def peak(device: str | None = None) -> int:
    """The most since `reset_peak`."""
    cuda = _cuda()
    return 0 if cuda is None else cuda.max_memory_allocated(device)


def reset_peak() -> None:
    cuda = _cuda()
    if cuda is not None:
        cuda.reset_peak_memory_stats()


def wait() -> None:
    """Wait until the GPU has done what it was given."""
    cuda = _cuda()
    if cuda is not None:
        cuda.synchronize()
