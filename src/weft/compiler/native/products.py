"""Native code that hands products of matrices and vectors to BLAS, tile by tile of the result.

Tiles have a fixed size, and BLAS keeps to one thread in each, so that products do not depend on the
number of threads. BLAS stores matrices by columns: it is asked for the transposed product.
"""

from enum import IntEnum

from ..emit.code import Module, Value
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


class Product(IntEnum):
    """The words of a product c ← α·op(a)·op(b) + β·c; distances are in bytes."""

    A = 0
    B = 1
    C = 2
    OFFSETS = 3  # for each index of the batch, how far a, b and c are from the first one
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


def write_product(module: Module) -> None:
    """weft_product(product, begin, end): the tiles from begin to end."""
    code = module.function("void", [POINTER, WORD, WORD], "weft_product")
    product, begin, end = code.parameters
    down, across = word(product, Product.TILES_DOWN), word(product, Product.TILES_ACROSS)
    sizes = {w: word(product, w) for w in (Product.M, Product.N, Product.ROWS, Product.COLUMNS)}
    m, n = code.local(HALF_WORD), code.local(HALF_WORD)
    fixed = {w: _narrow(product, w) for w in (Product.K, Product.LDA, Product.LDB, Product.LDC)}

    def tile(u: Value) -> None:
        index = u.divided(down * across, True)
        row = u.divided(across, True).modulo(down, True) * sizes[Product.ROWS]
        column = u.modulo(across, True) * sizes[Product.COLUMNS]
        code.store(_least(sizes[Product.M] - row, sizes[Product.ROWS]), m, 4)
        code.store(_least(sizes[Product.N] - column, sizes[Product.COLUMNS]), n, 4)
        offsets = address(pointer(product, Product.OFFSETS), index * 3)
        far = (
            word(offsets, 0) + row * word(product, Product.A_STEP),
            word(offsets, 1) + column * word(product, Product.B_STEP),
            word(offsets, 2)
            + (row * word(product, Product.C_STEP) + column * word(product, Product.ITEM)),
        )
        first = (Product.A, Product.B, Product.C)
        a, b, c = (behind(pointer(product, w), o) for w, o in zip(first, far, strict=True))
        letters = [address(product, w) for w in (Product.TRANSPOSE_B, Product.TRANSPOSE_A)]
        scales = [address(product, w) for w in (Product.ALPHA, Product.BETA)]
        k, lda, ldb, ldc = fixed.values()
        called = [*letters, n, m, k, scales[0], b, ldb, a, lda, scales[1], c, ldc]
        invoke_at(pointer(product, Product.FUNCTION), "void", called)

    each(code, begin, end, tile)
    leave(code)


class Tiled(IntEnum):
    """The words behind those of a product whose tiles are gone over by kernels.

    Then come the kernels, one for each column of tiles: where the function is, and its record.
    """

    MULTIPLY = Product.SIZE  # units of a kernel are rows of the result times this,
    DIVIDE = Product.SIZE + 1  # divided by this
    WORDS = Product.SIZE + 2  # of one kernel
    KERNELS = Product.SIZE + 3


def write_tiles(module: Module) -> None:
    """weft_tiles(product, begin, end): the tiles from begin to end, each gone over at once."""
    code = module.function("void", [POINTER, WORD, WORD], "weft_tiles")
    product, begin, end = code.parameters
    down, across = word(product, Product.TILES_DOWN), word(product, Product.TILES_ACROSS)
    m, rows = word(product, Product.M), word(product, Product.ROWS)
    multiply, divide = word(product, Tiled.MULTIPLY), word(product, Tiled.DIVIDE)

    def units(row: Value) -> Value:
        return (row * multiply).divided(divide, True)

    def tile(u: Value) -> None:
        invoke(code, "weft_product", "void", [product, u, u + 1])
        row = u.divided(across, True).modulo(down, True) * rows
        above = u.divided(down * across, True) * m
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
    OFFSETS = 3  # for each index of the batch, how far a, x and y are from the first one
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
    A_STEP = 14  # to what the next element of y needs
    Y_STEP = 15
    FUNCTION = 16
    SIZE = 17


def write_vector_product(module: Module) -> None:
    """weft_vector_product(product, begin, end): the tiles from begin to end."""
    code = module.function("void", [POINTER, WORD, WORD], "weft_vector_product")
    product, begin, end = code.parameters
    tiles, tile = word(product, VectorProduct.TILES), word(product, VectorProduct.TILE)
    strides = (VectorProduct.LDA, VectorProduct.INCX, VectorProduct.INCY)
    terms = _narrow(product, VectorProduct.TERMS)
    lda, incx, incy = (_narrow(product, w) for w in strides)
    count = code.local(HALF_WORD)
    letter = address(product, VectorProduct.TRANSPOSE)
    transposed = word(product, VectorProduct.TRANSPOSE).equals(ord("T"))

    def one(u: Value) -> None:
        start = u.modulo(tiles, True) * tile
        code.store(_least(word(product, VectorProduct.COUNT) - start, tile), count, 4)
        offsets = address(pointer(product, VectorProduct.OFFSETS), u.divided(tiles, True) * 3)
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


def _narrow(product: Value, at: int) -> Value:
    """A word as one of the 32-bit integers that BLAS wants pointers to."""
    code = product.code
    cell = code.local(HALF_WORD)
    code.store(word(product, at).cast("trunc", "i32"), cell, 4)
    return cell


def _least(a: Value, b: Value) -> Value:
    return (a < b).choose(a, b).cast("trunc", "i32")
