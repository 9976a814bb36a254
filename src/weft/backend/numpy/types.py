"""The types of the NumPy kernels' arguments, for annotations only."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..shared.types import Axes, Function, Index, Padding, Shape, Sizes  # noqa: F401 (exported)

Array = np.ndarray[Any, Any]  # of any shape, and any dtype, ml_dtypes' too
Operand = Any  # an array, or a Python number beside one
# Kernels that are no functions of their own.
Unary = Callable[[Array], Array]
Binary = Callable[[Operand, Operand], Array]
OfOrder = Callable[[Array, int], Array]
