"""NumPy as a place where random variates are made."""

import numpy as np

from ..shared.variates import VariatesTarget
from . import namespace as numpy_


def _order(keys: np.ndarray) -> np.ndarray:
    return np.argsort(keys, kind="stable")


# 16384 blocks: a round's int64 temporaries, 128 KiB each, stay in the second-level cache.
_CPU = VariatesTarget(np, "cpu", numpy_.cast, np.sqrt, _order, chunk=16384, few=16)


def random_target(device: str) -> VariatesTarget:
    """How variates are made on this device."""
    return _CPU
