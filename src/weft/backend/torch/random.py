"""PyTorch as a place where random variates are made, on the CPU and on CUDA."""

import numpy as np
import torch

from ..shared.variates import VariatesTarget
from . import namespace as torch_


def random_target(device: str) -> VariatesTarget:
    """How variates are made on this device."""
    where = torch_.torch_device(device)
    if where.type == "cpu":
        return VariatesTarget(torch, where, torch_.cast, _sqrt_on_cpu, _order, chunk=8192, few=48)
    # A launch costs more than the work on a small chunk; the temporaries of 2²² blocks take a
    # few hundred MiB.
    return VariatesTarget(torch, where, torch_.cast, torch.sqrt, _order, chunk=1 << 22, few=48)


def _sqrt_on_cpu(x: torch.Tensor) -> torch.Tensor:
    # torch.sqrt is MKL's there, which is off by one unit in the last place now and then.
    return torch.from_numpy(np.sqrt(x.numpy()))


def _order(keys: torch.Tensor) -> torch.Tensor:
    return torch.sort(keys, stable=True).indices
