"""The dtypes and how they promote, in NumPy's dtype vocabulary for every backend."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from ..errors import DTypeError, IntegerOutOfRange
from .settings import refuse_while_staging

bool_: np.dtype = np.dtype("bool")
int8: np.dtype = np.dtype("int8")
int16: np.dtype = np.dtype("int16")
int32: np.dtype = np.dtype("int32")
int64: np.dtype = np.dtype("int64")
uint8: np.dtype = np.dtype("uint8")
uint16: np.dtype = np.dtype("uint16")
uint32: np.dtype = np.dtype("uint32")
uint64: np.dtype = np.dtype("uint64")
float16: np.dtype = np.dtype("float16")
bfloat16: np.dtype = np.dtype(ml_dtypes.bfloat16)
float32: np.dtype = np.dtype("float32")
float64: np.dtype = np.dtype("float64")
complex64: np.dtype = np.dtype("complex64")
complex128: np.dtype = np.dtype("complex128")

SIGNED = (int8, int16, int32, int64)
UNSIGNED = (uint8, uint16, uint32, uint64)
REAL = (float16, bfloat16, float32, float64)
COMPLEX = (complex64, complex128)
HALF = (float16, bfloat16)
ALL = (bool_, *SIGNED, *UNSIGNED, *REAL, *COMPLEX)

KIND: dict[np.dtype, str] = {bool_: "bool"}
KIND.update(dict.fromkeys(SIGNED, "signed integer"))
KIND.update(dict.fromkeys(UNSIGNED, "unsigned integer"))
KIND.update(dict.fromkeys(REAL, "real floating"))
KIND.update(dict.fromkeys(COMPLEX, "complex floating"))

_RANK = {"bool": 0, "unsigned integer": 1, "signed integer": 1}
_RANK.update({"real floating": 2, "complex floating": 3})
_DEFAULT = [float32]


def default_float() -> np.dtype:
    """The dtype of new floats where none is given."""
    return _DEFAULT[0]


def default_complex() -> np.dtype:
    """The complex dtype of the default float's precision."""
    return to_complex(_DEFAULT[0])


def set_default_dtype(dtype: Any) -> None:
    """Make `dtype` the dtype of new floats, for the whole process.

    dtype  a real floating dtype; the default is float32

    >>> import weft as wf
    >>> wf.set_default_dtype("float64")
    >>> wf.zeros(2).dtype
    dtype('float64')
    >>> wf.set_default_dtype("float32")
    """
    dtype = canonical(dtype)
    if dtype not in REAL:
        raise DTypeError(f"set_default_dtype: got {dtype}, expected one of {names(REAL)}")
    refuse_while_staging("the default dtype is set")
    _DEFAULT[0] = dtype


def names(dtypes: Iterable[np.dtype]) -> str:
    """`float32, float64` for an error message."""
    return ", ".join(d.name for d in dtypes)


# The dtype that each name, type and dtype stands for; a backend adds its own. Python's types mean
# what they mean to NumPy: a float is float64, whatever the default float is.
SPELLED: dict[Any, np.dtype] = {d.name: d for d in ALL} | {bool: bool_, int: int64, float: float64}
SPELLED[complex] = complex128
SPELLED |= {d: d for d in ALL} | {d.type: d for d in ALL}


def canonical(dtype: Any) -> np.dtype:
    """The dtype that a name or another library's dtype stands for.

    dtype  a name, a Python type, a dtype of NumPy or of PyTorch

    >>> import weft as wf
    >>> wf.canonical_dtype("float32")
    dtype('float32')
    >>> wf.canonical_dtype(float)
    dtype('float64')
    """
    try:
        found = SPELLED.get(dtype)
    except TypeError:
        found = None
    if found is not None:
        return found
    name = str(dtype).removeprefix("torch.")
    if name in SPELLED:
        return SPELLED[name]
    raise DTypeError(f"dtype: got {dtype!r}, expected one of {names(ALL)}")


def kind(dtype: np.dtype) -> str:
    """`bool`, `signed integer`, `unsigned integer`, `real floating` or `complex floating`."""
    return KIND[dtype]


def is_inexact(dtype: np.dtype) -> bool:
    """Whether values of this dtype can carry a derivative."""
    return dtype in REAL or dtype in COMPLEX


# The inexact, complex and boolean dtypes of raw arrays; a backend adds its own.
RAW_INEXACT: set[Any] = {*REAL, *COMPLEX}
RAW_COMPLEX: set[Any] = set(COMPLEX)
RAW_BOOLEANS: set[Any] = {bool_}


def is_complex(dtype: Any) -> bool:
    """Whether a dtype, ours or a backend's own, is complex."""
    return dtype in RAW_COMPLEX


def to_complex(dtype: np.dtype) -> np.dtype:
    """The complex dtype of the same precision."""
    return complex128 if dtype in (float64, complex128) else complex64


def to_real(dtype: np.dtype) -> np.dtype:
    """The dtype of the real part."""
    return {complex64: float32, complex128: float64}.get(dtype, dtype)


def accumulator(dtype: np.dtype) -> np.dtype:
    """The dtype in which sums of this dtype are accumulated."""
    return float32 if dtype in HALF else dtype


def sum_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype of sums and products: 64 bits for integers."""
    if dtype in UNSIGNED:
        return uint64
    return dtype if is_inexact(dtype) else int64


@lru_cache(maxsize=None)
def promote(a: np.dtype, b: np.dtype) -> np.dtype:
    """The Array API's promotion; between kinds the higher kind wins and keeps its width."""
    if a == b:
        return a
    ka, kb = KIND[a], KIND[b]
    if _RANK[ka] > _RANK[kb]:
        a, b, ka, kb = b, a, kb, ka
    if ka == kb:
        return _within_kind(a, b)
    if ka == "bool":
        return b
    if kb == "complex floating":
        return b if ka != "real floating" else _complex_with(a, b)
    if kb == "real floating":
        return b
    return _mixed_integers(a, b)


def _within_kind(a, b):
    if {a, b} == set(HALF):
        return float32
    return a if a.itemsize > b.itemsize else b


def _complex_with(real, cplx):
    return complex128 if real == float64 else cplx


def _mixed_integers(a, b):
    unsigned, signed = (a, b) if a in UNSIGNED else (b, a)
    for candidate in SIGNED:
        if candidate.itemsize > unsigned.itemsize and candidate.itemsize >= signed.itemsize:
            return candidate
    raise DTypeError(
        f"{unsigned} and {signed} have no common integer type: cast one of them with .to()"
    )


def promote_all(dtypes: Iterable[np.dtype]) -> np.dtype:
    """`promote` over any number of dtypes."""
    it = iter(dtypes)
    out = next(it)
    for d in it:
        out = promote(out, d)
    return out


def rank(dtype: np.dtype) -> int:
    """bool < integers < real floats < complex floats."""
    return _RANK[KIND[dtype]]


def scalar_result(scalar: np.dtype, dtype: np.dtype) -> np.dtype:
    """The dtype of an array beside a Python scalar of a higher kind."""
    example = {1: 1, 2: 1.0, 3: 1j}[rank(scalar)]
    return with_scalar(dtype, example)


def with_scalar(dtype: np.dtype, scalar: bool | int | float | complex) -> np.dtype:
    """The dtype of an array combined with a Python scalar, which never widens it."""
    rank = _RANK[KIND[dtype]]
    if isinstance(scalar, bool):
        return dtype
    if isinstance(scalar, int):
        return dtype if rank else int64
    if isinstance(scalar, float):
        return dtype if rank >= 2 else default_float()
    return dtype if rank == 3 else to_complex(dtype if rank == 2 else default_float())


@lru_cache(maxsize=None)
def bounds(dtype: np.dtype) -> tuple[int, int]:
    """The smallest and the largest Python integer that may be combined with this dtype."""
    if dtype in SIGNED or dtype in UNSIGNED:
        info = np.iinfo(dtype)
        return int(info.min), int(info.max)
    return -_LARGEST, _LARGEST


_LARGEST = int(np.finfo(np.float64).max)


def holds(dtype: np.dtype, value: Any) -> bool:
    """Whether a Python number is no integer, or one within the `bounds` of this dtype."""
    if value.__class__ is not int:
        return True
    least, most = bounds(dtype)
    return least <= value <= most


def check_holds(what: str, dtype: np.dtype, value: Any) -> None:
    """Refuse a Python integer beside an array whose dtype does not hold it."""
    if holds(dtype, value):
        return
    shown = str(value) if value.bit_length() < 128 else f"of {value.bit_length()} bits"
    least, most = bounds(dtype)
    wide = [d for d in (*SIGNED, uint64) if holds(d, value) and holds(d, least) and holds(d, most)]
    if wide:
        remedy = f'{wide[0]} holds it; convert with .to("{wide[0]}"), or ask for that dtype'
    else:
        remedy = "no dtype holds it" if is_inexact(dtype) else "compute in floating point"
    limits = f"±{np.finfo(np.float64).max:.2g}" if is_inexact(dtype) else f"{least} to {most}"
    raise IntegerOutOfRange(
        f"{what}: Python integer {shown} out of bounds for {dtype} ({limits}): {remedy}"
    )
