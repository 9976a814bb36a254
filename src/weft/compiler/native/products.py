"""Native code that passes matrix and vector products to BLAS, tile by tile of the result.

Tiles have a fixed size, and BLAS runs on one thread in each, so that results do not depend on the
number of threads. BLAS stores matrices by columns: it computes the transposed product.
"""

from enum import IntEnum

from ..emit.code import LLModule, LLValue
from ..emit.control import (
    HALF_WORD,
    POINTER,
    WORD,
    address,
    behind,
    each,
    invoke,
    invoke_at,
    leave,
    pointer,
    word,
)


class ProductRecord(IntEnum):
    """The words of a product c ← α·op(a)·op(b) + β·c; distances are in bytes."""

    A = 0
    B = 1
    C = 2
    OFFSETS = 3  # for each index of the batch, the offsets of a, b and c from the first one
    M = 4
    N = 5
    K = 6
    ROWS = 7  # of a tile
    COLUMNS = 8
    LDA = 9
    LDB = 10
    LDC = 11
    TRANSPOSE_A = 12  # a letter
    TRANSPOSE_B = 13
    ALPHA = 14
    BETA = 15
    A_STEP = 16  # to the next row of the result
    B_STEP = 17  # to its next column
    C_STEP = 18
    ITEM = 19
    FUNCTION = 20
    TILES_DOWN = 21
    TILES_ACROSS = 22
    SIZE = 23


def write_product(module: LLModule) -> None:
    """Emit weft_product(product, begin, end): the tiles from begin to end."""
    code = module.function("void", [POINTER, WORD, WORD], "weft_product")
    product, begin, end = code.parameters
    down, across = (
        word(product, ProductRecord.TILES_DOWN),
        word(product, ProductRecord.TILES_ACROSS),
    )
    sizes = {
        w: word(product, w)
        for w in (ProductRecord.M, ProductRecord.N, ProductRecord.ROWS, ProductRecord.COLUMNS)
    }
    m, n = code.local(HALF_WORD), code.local(HALF_WORD)
    fixed = {
        w: _narrow(product, w)
        for w in (ProductRecord.K, ProductRecord.LDA, ProductRecord.LDB, ProductRecord.LDC)
    }

    def tile(u: LLValue) -> None:
        index = u.divide(down * across, True)
        row = u.divide(across, True).modulo(down, True) * sizes[ProductRecord.ROWS]
        column = u.modulo(across, True) * sizes[ProductRecord.COLUMNS]
        code.store(_least(sizes[ProductRecord.M] - row, sizes[ProductRecord.ROWS]), m, 4)
        code.store(_least(sizes[ProductRecord.N] - column, sizes[ProductRecord.COLUMNS]), n, 4)
        offsets = address(pointer(product, ProductRecord.OFFSETS), index * 3)
        far = (
            word(offsets, 0) + row * word(product, ProductRecord.A_STEP),
            word(offsets, 1) + column * word(product, ProductRecord.B_STEP),
            word(offsets, 2)
            + (
                row * word(product, ProductRecord.C_STEP)
                + column * word(product, ProductRecord.ITEM)
            ),
        )
        first = (ProductRecord.A, ProductRecord.B, ProductRecord.C)
        a, b, c = (behind(pointer(product, w), o) for w, o in zip(first, far, strict=True))
        letters = [
            address(product, w) for w in (ProductRecord.TRANSPOSE_B, ProductRecord.TRANSPOSE_A)
        ]
        scales = [address(product, w) for w in (ProductRecord.ALPHA, ProductRecord.BETA)]
        k, lda, ldb, ldc = fixed.values()
        called = [*letters, n, m, k, scales[0], b, ldb, a, lda, scales[1], c, ldc]
        invoke_at(pointer(product, ProductRecord.FUNCTION), "void", called)

    each(code, begin, end, tile)
    leave(code)


class Tiled(IntEnum):
    """The words after those of a product whose tiles have an epilogue.

    Then come the kernels, one for each column of tiles: the function's address, and its record.
    """

    MULTIPLY = ProductRecord.SIZE  # units of a kernel are rows of the result times this,
    DIVIDE = ProductRecord.SIZE + 1  # divided by this
    WORDS = ProductRecord.SIZE + 2  # of one kernel
    KERNELS = ProductRecord.SIZE + 3


def write_tiles(module: LLModule) -> None:
    """Emit weft_tiles(product, begin, end): the tiles from begin to end, each with its epilogue."""
    code = module.function("void", [POINTER, WORD, WORD], "weft_tiles")
    product, begin, end = code.parameters
    down, across = (
        word(product, ProductRecord.TILES_DOWN),
        word(product, ProductRecord.TILES_ACROSS),
    )
    m, rows = word(product, ProductRecord.M), word(product, ProductRecord.ROWS)
    multiply, divide = word(product, Tiled.MULTIPLY), word(product, Tiled.DIVIDE)

    def units(row: LLValue) -> LLValue:
        return (row * multiply).divide(divide, True)

    def tile(u: LLValue) -> None:
        invoke(code, "weft_product", "void", [product, u, u + 1])
        row = u.divide(across, True).modulo(down, True) * rows
        above = u.divide(down * across, True) * m
        below = row + rows
        below = (below < m).choose(below, m)
        column = u.modulo(across, True) * word(product, Tiled.WORDS)
        kernel = address(product, column + Tiled.KERNELS.value)
        called = [address(kernel, 1), units(above + row), units(above + below)]
        invoke_at(pointer(kernel, 0), "void", called)

    each(code, begin, end, tile)
    leave(code)


class VectorProduct(IntEnum):
    """The words of a product y ← α·op(a)·x + β·y, with a stored by columns; steps are in bytes."""

    A = 0
    X = 1
    Y = 2
    OFFSETS = 3  # for each index of the batch, the offsets of a, x and y from the first one
    COUNT = 4  # of y
    TERMS = 5  # of x
    TILE = 6  # of y
    TILES = 7
    TRANSPOSE = 8  # a letter
    LDA = 9
    INCX = 10
    INCY = 11
    ALPHA = 12
    BETA = 13
    A_STEP = 14  # to the part of a for the next element of y
    Y_STEP = 15
    FUNCTION = 16
    SIZE = 17


def write_vector_product(module: LLModule) -> None:
    """Emit weft_vector_product(product, begin, end): the tiles from begin to end."""
    code = module.function("void", [POINTER, WORD, WORD], "weft_vector_product")
    product, begin, end = code.parameters
    tiles, tile = word(product, VectorProduct.TILES), word(product, VectorProduct.TILE)
    strides = (VectorProduct.LDA, VectorProduct.INCX, VectorProduct.INCY)
    terms = _narrow(product, VectorProduct.TERMS)
    lda, incx, incy = (_narrow(product, w) for w in strides)
    count = code.local(HALF_WORD)
    letter = address(product, VectorProduct.TRANSPOSE)
    transposed = word(product, VectorProduct.TRANSPOSE).equals(ord("T"))

    def one(u: LLValue) -> None:
        start = u.modulo(tiles, True) * tile
        code.store(_least(word(product, VectorProduct.COUNT) - start, tile), count, 4)
        offsets = address(pointer(product, VectorProduct.OFFSETS), u.divide(tiles, True) * 3)
        far = (
            word(offsets, 0) + start * word(product, VectorProduct.A_STEP),
            word(offsets, 1),
            word(offsets, 2) + start * word(product, VectorProduct.Y_STEP),
        )
        first = (VectorProduct.A, VectorProduct.X, VectorProduct.Y)
        a, x, y = (behind(pointer(product, w), o) for w, o in zip(first, far, strict=True))
        sizes = [transposed.choose(terms, count), transposed.choose(count, terms)]
        scales = [address(product, w) for w in (VectorProduct.ALPHA, VectorProduct.BETA)]
        called = [letter, *sizes, scales[0], a, lda, x, incx, scales[1], y, incy]
        invoke_at(pointer(product, VectorProduct.FUNCTION), "void", called)

    each(code, begin, end, one)
    leave(code)


def _narrow(product: LLValue, at: int) -> LLValue:
    """A word as a pointer to a 32-bit integer, as BLAS takes it."""
    code = product.code
    cell = code.local(HALF_WORD)
    code.store(word(product, at).cast("trunc", "i32"), cell, 4)
    return cell


def _least(a: LLValue, b: LLValue) -> LLValue:
    return (a < b).choose(a, b).cast("trunc", "i32")
