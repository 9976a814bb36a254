"""Matrix products by BLAS: SciPy's functions, and the record of words that describes a product."""

import os
import struct
import time
from ctypes import CFUNCTYPE, c_void_p, cast
from math import prod
from typing import Any

import numpy as np

from ...backend.shared.blas import thread_count_functions
from ...core.once import once
from ...core.record import record
from ..ir.schedule import GemmStep
from ..native.driver import driver
from ..native.entry import Quiet
from ..native.objects import BLAS, place_of
from ..native.products import ProductRecord, VectorProduct
from ..native.words import WordArray, address, words
from .own_products import able, own_name

# Flops from which on a product is split into tiles, and flops up to which a tile is not split
# again while there are fewer tiles than processors. After that only a tile with a long side is
# split: packing both halves costs BLAS 1 to 3 per cent at sides of 512, and 10 at 256, the least;
# our own code packs little, and is fastest at 512. Sides are multiples of 64.
FIRST, AGAIN = 1 << 22, 1 << 26
PROCESSORS = max(os.cpu_count() or 1, 2)
VECTOR = 1 << 19  # flops of a tile of a product with a vector
SIDE, LEAST = 64, 256
LONG = 512 if able() else 1024
_LETTER: dict[np.dtype, str] = {np.dtype(np.float32): "s", np.dtype(np.float64): "d"}
PRODUCT_DTYPES: tuple[np.dtype, ...] = tuple(_LETTER)
_LARGEST = 2**31 - 1


@once
def quiet() -> WordArray | None:
    """The words by which native code limits BLAS to one thread; None if BLAS cannot be limited."""
    found = thread_count_functions("scipy")
    if found is None:
        return None
    memory = words(Quiet.SIZE)
    functions: tuple[Any, Any] = found
    for at, function in zip((Quiet.ASK, Quiet.TELL), functions, strict=True):
        memory[at] = cast(function, c_void_p).value
    return memory


# -- forks: OpenBLAS has locks, and a thread that holds one does not exist in the child ------------

# Seconds that a fork waits for running products.
_PATIENCE = 1.0


# Whether a fork is in progress, which keeps new products from starting.
_closed = False


def _native(name: str, memory: WordArray) -> None:
    CFUNCTYPE(None, c_void_p)(driver().addresses[name])(address(memory))


def _before_fork() -> None:
    """Wait until no product is running, and keep new ones from starting."""
    global _closed
    memory = quiet() if quiet.built() else None
    if memory is None:
        return
    end = time.monotonic() + _PATIENCE
    _native("weft_lock", memory)
    while memory[Quiet.HOLDERS] and time.monotonic() < end:
        _native("weft_unlock", memory)
        time.sleep(1e-4)
        _native("weft_lock", memory)
    _closed = True


def _after_fork() -> None:
    global _closed
    memory = quiet() if _closed else None
    if memory is not None:
        _closed = False
        _native("weft_unlock", memory)


def _in_child() -> None:
    """Reset the state of products that ran in the parent."""
    memory, known = quiet() if _closed else None, thread_count_functions("scipy")
    if memory is not None and known is not None and memory[Quiet.HOLDERS]:
        known[1](int(memory[Quiet.BEFORE]))
        memory[Quiet.HOLDERS] = 0
    _after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)


def tile_rule() -> tuple[int, ...]:
    """What `tile_of` depends on beside the sizes; part of cache keys."""
    return PROCESSORS, FIRST, AGAIN, SIDE, LEAST, LONG


def tile_of(m: int, n: int, k: int, batch: int = 1) -> tuple[int, int]:
    """The rows and columns of a tile.

    A function of the sizes and the machine alone, never of the number of threads.
    """
    rows, columns = max(m, 1), max(n, 1)
    if quiet() is None:  # BLAS has threads of its own, which cannot be limited
        return rows, columns
    while 2 * rows * columns * k > (FIRST if (rows, columns) == (m, n) else AGAIN):
        side, count = max(rows, columns), batch * -(-m // rows) * -(-n // columns)
        half = -(-side // (2 * SIDE)) * SIDE
        if half >= side or (half < LEAST and (rows, columns) != (m, n)):
            break
        if count >= PROCESSORS and side <= LONG:
            break
        rows, columns = (half, columns) if rows >= columns else (rows, half)
    return rows, columns


def tile_sizes(step: GemmStep) -> tuple[int, int]:
    """Rows and columns of a product's tiles."""
    return tile_of(step.m, step.n, step.k, prod(step.batch))


def tiles(step: GemmStep, tile: tuple[int, int] | None = None) -> tuple[int, int, int]:
    """The number of tiles: in the batch, down, across."""
    rows, columns = tile or tile_sizes(step)
    return prod(step.batch), -(-step.m // rows), -(-step.n // columns)


def is_vector(step: GemmStep) -> bool:
    """Whether one of the factors is a vector, for which BLAS has gemv."""
    return bool(step.k) and 1 in (step.m, step.n)


@record
class BlasCall:
    """Native code for `count` tiles, called as function(record, begin, end).

    symbol   the name of the function that computes a tile: BLAS's, or ours
    places   the buffers whose addresses are the first words of the record
    offsets  memory whose address is in the record
    """

    function: int
    symbol: str
    places: tuple[int, int, int]
    record: tuple[int, ...]
    offsets: WordArray
    count: int


def call_of(step: GemmStep, dtype: np.dtype, tile: tuple[int, int] | None = None) -> BlasCall:
    """A product as calls of BLAS's gemm or gemv, or of our own function.

    tile  the rows and columns of one call; None: as `tile_sizes` says
    """
    leading = [max(ld, sizes[-1], 1) for ld, sizes in _leading(step)]
    if max(step.m, step.n, step.k, *leading) > _LARGEST:
        raise OverflowError(f"a product of {step.m}×{step.k}×{step.n}: BLAS counts to {_LARGEST}")
    if is_vector(step):
        return _vector_call(step, dtype, leading)
    item = dtype.itemsize
    rows, columns = tile or tile_sizes(step)
    _, down, across = tiles(step, tile)
    own = own_name(rows, columns, step.k, step.transpose_b, dtype)
    symbol = own or f"{BLAS}{_LETTER[dtype]}gemm"
    fields = {
        **{ProductRecord.M: step.m, ProductRecord.N: step.n, ProductRecord.K: step.k},
        **{ProductRecord.ROWS: rows, ProductRecord.COLUMNS: columns},
        **dict(
            zip((ProductRecord.LDA, ProductRecord.LDB, ProductRecord.LDC), leading, strict=True)
        ),
        ProductRecord.TRANSPOSE_A: ord("T" if step.transpose_a else "N"),
        ProductRecord.TRANSPOSE_B: ord("T" if step.transpose_b else "N"),
        ProductRecord.ALPHA: _bits(step.alpha, dtype),
        ProductRecord.BETA: _bits(step.beta, dtype),
        ProductRecord.A_STEP: item * (1 if step.transpose_a else leading[0]),
        ProductRecord.B_STEP: item * (leading[1] if step.transpose_b else 1),
        ProductRecord.C_STEP: item * leading[2],
        ProductRecord.ITEM: item,
        ProductRecord.FUNCTION: place_of(symbol),
        **{ProductRecord.TILES_DOWN: down, ProductRecord.TILES_ACROSS: across},
    }
    strides = (step.a_strides, step.b_strides, step.c_strides)
    offsets = _offsets(step.batch, strides, item)
    record = _record(fields, ProductRecord.SIZE, offsets)
    function, places = driver().addresses["weft_product"], (step.a, step.b, step.c)
    return BlasCall(function, symbol, places, record, offsets, prod(tiles(step, tile)))


def _vector_call(step: GemmStep, dtype: np.dtype, leading: list[int]) -> BlasCall:
    """A product with a vector as gemv; if both factors are vectors, the right one is the vector.

    A matrix stored by rows is to BLAS the transposed matrix, stored by columns.
    """
    item, (lda, ldb, ldc) = dtype.itemsize, leading
    places = (step.a, step.b, step.c)
    strides = (step.a_strides, step.b_strides, step.c_strides)
    if step.n == 1:
        turned, ld, incx = not step.transpose_a, lda, 1 if step.transpose_b else ldb
        count, incy = step.m, ldc
    else:
        turned, ld, incx = step.transpose_b, ldb, lda if step.transpose_a else 1
        count, incy = step.n, 1
        places, strides = (step.b, step.a, step.c), (strides[1], strides[0], strides[2])
    tile = max(VECTOR // (2 * step.k) // SIDE, 1) * SIDE if quiet() is not None else count
    across, symbol = -(-count // tile), f"{BLAS}{_LETTER[dtype]}gemv"
    V = VectorProduct
    fields = {
        **{V.COUNT: count, V.TERMS: step.k},
        **{V.TILE: tile, V.TILES: across},
        V.TRANSPOSE: ord("T" if turned else "N"),
        **{V.LDA: ld, V.INCX: incx, V.INCY: incy},
        V.ALPHA: _bits(step.alpha, dtype),
        V.BETA: _bits(step.beta, dtype),
        V.A_STEP: item * (ld if turned else 1),
        V.Y_STEP: item * incy,
        V.FUNCTION: place_of(symbol),
    }
    offsets = _offsets(step.batch, strides, item)
    record = _record(fields, V.SIZE, offsets)
    function = driver().addresses["weft_vector_product"]
    return BlasCall(function, symbol, places, record, offsets, prod(step.batch) * across)


def _record(fields: dict, size: int, offsets: WordArray) -> tuple[int, ...]:
    """The words of a product; missing fields are 0."""
    known = {ProductRecord.OFFSETS: address(offsets), **fields}
    return tuple([known.get(at, 0) for at in range(size)])


def _offsets(batch: tuple[int, ...], strides: tuple, item: int) -> WordArray:
    """For each index of the batch, the byte offsets of three arrays."""
    offsets = words(3 * prod(batch))
    for j, steps in enumerate(strides):
        far = np.zeros((), np.int64)
        for size, stride in zip(batch, steps, strict=True):
            far = far[..., None] + item * stride * np.arange(size)
        offsets[j::3] = far.reshape(-1)
    return offsets


def _leading(step: GemmStep):
    """The leading dimensions and stored sizes of a, b and c."""
    for (_, sizes, _), ld in zip(step.accesses(), (step.lda, step.ldb, step.ldc), strict=True):
        yield ld, sizes


def _bits(value: float, dtype: np.dtype) -> int:
    """A number of the dtype, in the low bytes of a word."""
    if dtype.itemsize == 4:
        return struct.unpack("<i", struct.pack("<f", value))[0]
    return struct.unpack("<q", struct.pack("<d", value))[0]
