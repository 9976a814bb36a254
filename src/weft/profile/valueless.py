"""Tensors without values, which take no memory, and plans for GPUs that are not there."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backend.device import namespace_for
from ..compiler.pipeline import using
from ..core import dtypes
from ..core.record import record
from ..core.value import wrap

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from ..arrays.types import DTypeLike

# What plans are made for where there is no GPU: ten times its compute capability.
ASSUMED = 90


def valueless(shape: Sequence[int], dtype: DTypeLike, device: str) -> Tensor:
    """A tensor with shape and dtype whose memory is not there: it may be traced, not computed with.

    shape, dtype, device  its own

    >>> from weft.profile.valueless import valueless
    >>> valueless((1 << 20, 1 << 12), "bfloat16", "cpu").nbytes
    8589934592
    """
    kind = dtypes.canonical(dtype)
    if device != "cpu":
        one = namespace_for(device).full((), 0, kind, device)
        return wrap(one.expand(tuple(shape)))
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    # Nothing writes to it, so the system gives it no memory.
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    memory = np.frombuffer(mmap.mmap(-1, max(size, 1), flags=flags), np.uint8)
    return wrap(memory[:size].view(kind).reshape(tuple(shape)))


@record
class _Described:
    """A GPU of which plans need no more than this."""

    name: str
    sm: int


def device_of_plan(device: str) -> str:
    """Where valueless tensors of a plan for a device are: PyTorch's CPU if there is no such GPU.

    device  Weft's name of it

    >>> from weft.profile.valueless import device_of_plan
    >>> device_of_plan("cpu")
    'cpu'
    """
    return "torch" if device.startswith("cuda") and not has_gpu() else device


def has_gpu() -> bool:
    """Whether PyTorch finds a GPU.

    >>> from weft.profile.valueless import has_gpu
    >>> has_gpu() in (True, False)
    True
    """
    import torch

    return torch.cuda.is_available()


def planned_on(device: str) -> AbstractContextManager[Any]:
    """A block in which programs are planned for a device, also where there is no such GPU.

    device  Weft's name of it

    >>> from weft.profile.valueless import planned_on
    >>> with planned_on("cpu"):
    ...     pass
    """
    if device_of_plan(device) == device:
        return nullcontext()
    from ..compiler.cuda.target import Cuda

    gpu: Any = _Described(device, ASSUMED)
    return using(Cuda(gpu))
