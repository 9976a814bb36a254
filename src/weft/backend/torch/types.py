"""The types of the PyTorch kernels' arguments, for annotations only."""

from collections.abc import Callable
from typing import Any

import torch

from ..shared.types import Axes, Function, Index, Padding, Shape, Sizes  # noqa: F401 (exported)

Array = torch.Tensor
Operand = Any  # a tensor, or a Python number beside one
# Kernels that are no functions of their own.
Unary = Callable[[Array], Array]
Binary = Callable[[Operand, Operand], Array]
OfOrder = Callable[[Array, int], Array]
