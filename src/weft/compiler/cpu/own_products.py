"""Matrix products by our own code, and when it is faster than BLAS."""

import numpy as np

from ...core.once import once
from ..native.machine import Loaded, host
from ..native.objects import PROVIDERS, load_written
from .register_products import PAIR, REGISTER, write_multiply

# The functions, by their names.
ELEMENTS = {"weft_sgemm": "float", "weft_dgemm": "double"}
_NAMES = {np.dtype(np.float32): "weft_sgemm", np.dtype(np.float64): "weft_dgemm"}
# OpenBLAS has another algorithm for products up to this many multiplications, unless b is
# transposed. In float64 there is little difference; which one is faster depends on the processor.
SMALL = 1_000_000
# The least number of rows, and the largest share of empty columns in panels.
LEAST, EMPTY = 8, 0.1


@once
def able() -> bool:
    """Whether the processor has the instructions that the code uses."""
    return all(map(host().has, ("avx512f", "avx512vl", "avx512bw", "avx512dq")))


def own_name(m: int, n: int, k: int, turned_b: bool, dtype: np.dtype) -> str | None:
    """The function for a product op(a)·op(b) of m×k and k×n; None where BLAS is faster."""
    panel = PAIR * REGISTER // dtype.itemsize
    full = n >= (1 - EMPTY) * -(-n // panel) * panel
    large = m * n * k > SMALL and dtype.itemsize == 4
    worth = m >= LEAST and k > 0 and (turned_b or large)
    return _NAMES[dtype] if full and worth and able() else None


def own_function(name: str) -> int:
    """The address of a function."""
    return _load(name).addresses[name]


@once
def _load(name: str) -> Loaded:
    """A function, loaded for the lifetime of the process."""
    return load_written("multiply", (name,), lambda m: write_multiply(m, ELEMENTS[name]), [name])


PROVIDERS.append(lambda symbol: own_function(symbol) if symbol in ELEMENTS else None)
