"""Matrix products on processors with AVX-512, in place of BLAS's `gemm`.

Block by block, a part of op(b) is packed on the stack into panels of two registers a row, padded
with zeros, and then, a dozen at a time, so are rows of op(a). The outer products of a panel's two
registers and a dozen numbers accumulate in registers, and go to c when all terms of a block are in.
An element of c is summed in the order of its terms, blocks of `TERMS` each by itself: it does not
depend on the size of c, or on the whole that c is a part of.
"""

from functools import partial

from ..emit.code import LLModule, LLValue, lanes_of
from ..emit.control import HALF_WORD, POINTER, WORD, each, invoke, leave, when
from ..emit.lanes_in_memory import splat
from .lanes import (
    broadcast,
    least,
    loop_carrying,
    masked_load,
    multiply_add,
    transpose_lanes,
    within,
)

BYTES = {"float": 4, "double": 8}
LETTER = {"float": "s", "double": "d"}
# Rows that are computed at once; the remaining rows are split into the smaller numbers.
ROWS = (12, 4, 2, 1)
# Bytes of a register, and registers in a row of a panel.
REGISTER, PAIR = 64, 2
# Up to this many rows of c, b is read in place.
FEW = 256
# Terms of a block, and bytes of its rows: half a megabyte, which fits the second-level cache.
TERMS, WIDE = 256, 2048


def write_multiply(module: LLModule, element: str) -> str:
    """Emit c ← α·op(a)·op(b) + β·c; returns the name of the function.

    It has the arguments of `gemm`, which stores by columns what we store by rows: first the letters
    that say whether b and a are transposed; then columns, rows, terms; α, b, a, β, c, each matrix
    with its leading dimension. All are pointers, to 32-bit integers and numbers.
    """
    return _ProductEmitter(module, element).write()


class _ProductEmitter:
    """Emits the functions for one element type."""

    def __init__(self, module: LLModule, element: str):
        self.module, self.element, self.item = module, element, BYTES[element]
        self.lanes = REGISTER // self.item
        self.panel = PAIR * self.lanes
        self.columns = WIDE // self.item
        # Distance of rows in a's copy: not a power of two, or all would map to the same cache set.
        self.row = TERMS + self.lanes
        self.one, self.kind = lanes_of(element), lanes_of(element, self.lanes)

    def write(self) -> str:
        code = self.module.function("void", [POINTER] * 13, f"weft_{LETTER[self.element]}gemm")
        letter_b, letter_a, *sizes, alpha, b, ldb, a, lda, beta, c, ldc = code.parameters
        n, m, k, ldb, lda, ldc = map(_integer, (*sizes, ldb, lda, ldc))
        alpha, beta = (code.load(self.one, p, self.item) for p in (alpha, beta))
        across_b, across_a = map(_is_turned, (letter_b, letter_a))
        panels = code.local(self.one, TERMS * self.columns)
        rows = code.local(self.one, ROWS[0] * self.row)
        few = across_b.equals(0) & (m <= FEW)

        def some_rows(count: int, block: tuple, top: LLValue) -> None:
            left, first, columns, terms, scale, *right = block
            source = self._at(a, top, first, lda, across_a)
            given = [source, lda, across_a, code.constant(WORD, count), terms, rows]
            invoke(code, self._once(self._write_rows), "void", given)
            target = code.address(c, top * ldc + left, self.element)
            given = [rows, *right, target, ldc, columns, terms, alpha, scale]
            invoke(code, self._once(self._write_strip, count), "void", given)

        def block(left: LLValue, first: LLValue) -> None:
            columns, terms = least(n - left, self.columns), least(k - first, TERMS)
            source = self._at(b, first, left, ldb, across_b)
            given = [source, ldb, across_b, columns, terms, panels]
            direct = few & columns.modulo(self.panel, False).equals(0)
            copy = partial(invoke, code, self._once(self._write_panels), "void", given)
            when(direct ^ True, copy)
            right = (
                direct.choose(source, panels),
                direct.choose(ldb, self.panel),
                direct.choose(ldb.same(1), TERMS),
            )
            scale = first.equals(0).choose(beta, code.constant(self.one, 1.0))
            done = code.constant(WORD, 0)
            for count in ROWS:
                end = m - (m - done).modulo(count, False)
                each(
                    *(code, done, end),
                    partial(some_rows, count, (left, first, columns, terms, scale, *right)),
                    count,
                )
                done = end

        def blocks(left: LLValue) -> None:
            each(code, 0, k, partial(block, left), TERMS)

        each(code, 0, n, blocks, self.columns)
        leave(code)
        return code.name

    def _once(self, write, *more: int) -> str:
        """A function that is emitted on first use."""
        return self.module.once((write.__name__, self.element, *more), lambda _: write(*more))

    def _at(
        self, base: LLValue, row: LLValue, column: LLValue, leading: LLValue, across: LLValue
    ) -> LLValue:
        """An element of op(x)."""
        far = across.equals(0).choose(row * leading + column, column * leading + row)
        return base.code.address(base, far, self.element)

    # -- copies ------------------------------------------------------------------------------------

    def _write_panels(self) -> str:
        """panels(b, ldb, across, columns, terms, to): pack panels, each with a row per term."""
        code = self.module.function("void", [POINTER, WORD, WORD, WORD, WORD, POINTER])
        b, ldb, across, columns, terms, to = code.parameters

        def register(left: LLValue) -> None:
            panel = left - left.modulo(self.panel, False)
            target = code.address(to, panel * TERMS + (left - panel), self.element)
            mask = self._mask(columns - left)

            def straight() -> None:
                def term(t: LLValue) -> None:
                    x = self._load(code.address(b, t * ldb + left, self.element), mask)
                    code.store(x, code.address(target, t * self.panel, self.element), REGISTER)

                each(code, 0, terms, term)

            def turn() -> None:
                def square(t: LLValue) -> None:
                    source = code.address(b, left * ldb + t, self.element)
                    found = self._square(source, ldb, columns - left, terms - t)
                    for r, x in enumerate(found):  # blocks of terms are a multiple of registers
                        place = code.address(target, (t + r) * self.panel, self.element)
                        code.store(x, place, REGISTER)

                each(code, 0, terms, square, self.lanes)

            _either(across.equals(0), straight, turn)

        whole = columns + (self.panel - 1)
        each(code, 0, whole - whole.modulo(self.panel, False), register, self.lanes)
        leave(code)
        return code.name

    def _write_rows(self) -> str:
        """rows(a, lda, across, count, terms, to): pack rows, a fixed distance apart."""
        code = self.module.function("void", [POINTER, WORD, WORD, WORD, WORD, POINTER])
        a, lda, across, count, terms, to = code.parameters

        def straight() -> None:
            def row(r: LLValue) -> None:
                source = code.address(a, r * lda, self.element)
                target = code.address(to, r * self.row, self.element)

                def register(t: LLValue) -> None:
                    x = self._load(code.address(source, t, self.element), self._mask(terms - t))
                    code.store(x, code.address(target, t, self.element), REGISTER)

                each(code, 0, terms, register, self.lanes)

            each(code, 0, count, row)

        def turn() -> None:
            def square(t: LLValue) -> None:
                def some(first: LLValue) -> None:
                    source = code.address(a, t * lda + first, self.element)
                    target = code.address(to, first * self.row + t, self.element)
                    for r, x in enumerate(self._square(source, lda, terms - t, count - first)):
                        store = partial(code.store, x, self._row(target, r), REGISTER)
                        when(count > first + r, store)

                each(code, 0, count, some, self.lanes)

            each(code, 0, terms, square, self.lanes)

        _either(across.equals(0), straight, turn)
        leave(code)
        return code.name

    def _row(self, base: LLValue, r: int) -> LLValue:
        return base.code.address(base, r * self.row, self.element)

    def _square(
        self, source: LLValue, leading: LLValue, rows: LLValue, columns: LLValue
    ) -> list[LLValue]:
        """A transposed square of lanes; zeros beyond the last row or column."""
        code = source.code
        mask, none = self._mask(columns), self._mask(code.constant(WORD, 0))
        places = [code.address(source, leading * r, self.element) for r in range(self.lanes)]
        return transpose_lanes(
            [self._load(p, (rows > r).choose(mask, none)) for r, p in enumerate(places)]
        )

    # -- sums --------------------------------------------------------------------------------------

    def _write_strip(self, rows: int) -> str:
        """strip(rows of a, b, down, along, c, ldc, columns, terms, α, β): some rows of c.

        A term of b is `down` after the one before, a panel `along` times its columns.
        """
        kinds = [POINTER, POINTER, WORD, WORD, POINTER, WORD, WORD, WORD, self.one, self.one]
        code = self.module.function("void", kinds)
        a, b, down, along, c, ldc, columns, terms, alpha, beta = code.parameters
        fresh = beta.equals(0.0)
        alpha, beta = splat(alpha, self.lanes), splat(beta, self.lanes)

        def panel(left: LLValue) -> None:
            right = code.address(b, left * along, self.element)

            def term(t: LLValue, sums: list[LLValue]) -> list[LLValue]:
                pair = [
                    code.load(self.kind, self._register(right, t * down, i), self.item)
                    for i in range(PAIR)
                ]
                column, made = code.address(a, t, self.element), []
                for r in range(rows):
                    x = broadcast(code, self._row(column, r), self.element, self.lanes)
                    made += [multiply_add(x, y, sums[PAIR * r + i]) for i, y in enumerate(pair)]
                return made

            target, room = code.address(c, left, self.element), columns - left
            cut = room < self.panel  # part of a panel is computed in scratch, and copied
            place, step = cut.choose(beside, target), cut.choose(ldc.same(self.panel), ldc)
            when(cut, lambda: self._copy(rows, room, target, ldc, beside, ldc.same(self.panel)))
            sums = loop_carrying(code, terms, [code.constant(self.kind, 0.0)] * (PAIR * rows), term)
            places = [self._register(place, step * r, i) for r in range(rows) for i in range(PAIR)]

            def put() -> None:
                for s, at in zip(sums, places, strict=True):
                    code.store(s * alpha, at, self.item)

            def add() -> None:
                for s, at in zip(sums, places, strict=True):
                    old = code.load(self.kind, at, self.item)
                    code.store(multiply_add(s, alpha, old * beta), at, self.item)

            _either(fresh, put, add)
            when(cut, lambda: self._copy(rows, room, beside, ldc.same(self.panel), target, ldc))

        beside = code.local(self.one, rows * self.panel)
        each(code, 0, columns, panel, self.panel)
        leave(code)
        return code.name

    def _copy(
        self, rows: int, columns: LLValue, a: LLValue, lda: LLValue, b: LLValue, ldb: LLValue
    ) -> None:
        """Copy the first columns of a panel."""
        code = columns.code
        masks = [self._mask(columns - i * self.lanes) for i in range(PAIR)]

        def row(r: LLValue) -> None:
            for i, mask in enumerate(masks):
                x = self._load(self._register(a, r * lda, i), mask)
                self._store(x, self._register(b, r * ldb, i), mask)

        each(code, 0, rows, row)

    def _register(self, base: LLValue, at: LLValue, i: int) -> LLValue:
        """The address of register i of a row."""
        return base.code.address(base, at + i * self.lanes, self.element)

    # -- lanes -------------------------------------------------------------------------------------

    def _mask(self, count: LLValue) -> LLValue:
        """A mask of the first lanes."""
        zero = count.same(0)
        return within(count.code, zero, 1, self.lanes, (count > 0).choose(count, zero))

    def _load(self, place: LLValue, mask: LLValue) -> LLValue:
        return masked_load(place.code, place, self.element, self.lanes, mask)

    def _store(self, x: LLValue, place: LLValue, mask: LLValue) -> None:
        align = place.code.constant(HALF_WORD, self.item)
        name = f"llvm.masked.store.{x.type.mangled}.p0"
        invoke(place.code, name, "void", [x, place, align, mask])


def _integer(pointer: LLValue) -> LLValue:
    return pointer.code.load(HALF_WORD, pointer, 4).cast("sext", "i64")


def _is_turned(letter: LLValue) -> LLValue:
    """1 if a letter says that the matrix is transposed, else 0."""
    return letter.code.load(lanes_of("i8"), letter, 1).equals(ord("T")).cast("zext", "i64")


def _either(condition: LLValue, yes, no) -> None:
    when(condition, yes)
    when(condition ^ True, no)
