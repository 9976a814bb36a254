"""Emitting attention: what the forward and the backward pass have in common."""

from collections.abc import Callable
from math import inf

from ....core import dtypes
from ...emit.code import Code, LLValue, Type, lanes_of
from ...emit.control import WORD, each, when
from ...emit.lanes_in_memory import splat
from ...emit.philox import LANES, from_zero, halves, interleave, philox
from ..tiles import BYTES_OF
from .heads import Heads, Mask
from .routine import RoutineBody
from .scatter import fill_zeros

ROWS = 32  # of a tile of queries
BLOCKS = (256, 128, 64, 32)  # keys of a block


def round_up_to_lanes(n: LLValue, lanes: int) -> LLValue:
    """n rounded up to a multiple of a vector's lanes."""
    return (n + (lanes - 1)) & -lanes


def least(a: LLValue, b: LLValue | int) -> LLValue:
    b = a.same(b)
    return (a < b).choose(a, b)


def most(a: LLValue, b: LLValue | int) -> LLValue:
    b = a.same(b)
    return (a < b).choose(b, a)


def start_of(
    index: list[LLValue], base: LLValue, strides: tuple[int, ...], element: str
) -> LLValue:
    """The address Σ index·stride elements after a pointer."""
    far = None
    for i, s in zip(index, strides, strict=True):
        if s:
            far = i * s if far is None else far + i * s
    return base if far is None else base.code.address(base, far, element)


def unravel(u: LLValue, sizes: tuple[int, ...]) -> list[LLValue]:
    """Split an index of collapsed axes into an index of each."""
    found = []
    for n in reversed(sizes):
        found.append(u.code.constant(WORD, 0) if n == 1 else u.modulo(n, False))
        u = u if n == 1 else u.divide(n, False)
    return found[::-1]


def ravel(index: list[LLValue], sizes: tuple[int, ...]) -> LLValue:
    """Combine indices of axes into an index of the collapsed axis."""
    at = index[0]
    for i, n in zip(index[1:], sizes[1:], strict=True):
        at = at * n + i
    return at


class AttentionEmitter:
    """The base of the emitters of the forward and the backward pass."""

    b: RoutineBody
    code: Code
    it: Heads
    block: int
    mask: Mask | None
    element: str
    item: int
    lanes: int
    number: Type
    vector: Type
    # Dropout decisions of a line: for as many keys as sixteen blocks of words.
    kept: LLValue | None

    def __init__(self, b: RoutineBody, it: Heads, block: int, mask: Mask | None):
        self.b, self.code, self.it, self.block, self.mask = b, b.code, it, block, mask
        self.element, self.item, self.lanes = it.element, BYTES_OF[it.element], it.lanes
        self.number, self.vector = lanes_of(self.element), lanes_of(self.element, self.lanes)
        self.mask_at: LLValue | None = None
        self.kept = self.code.local(lanes_of("i8"), max(block, 4 * LANES)) if it.p else None
        self.seed: tuple[LLValue, LLValue] | None = None

    def at(self, base: LLValue, index: LLValue | int) -> LLValue:
        return self.code.address(base, index, self.element)

    def load(self, base: LLValue, index: LLValue | int) -> LLValue:
        return self.code.load(self.number, self.at(base, index), self.item)

    def store(self, value: LLValue, base: LLValue, index: LLValue | int) -> None:
        self.code.store(value, self.at(base, index), self.item)

    def local(self, count: int) -> LLValue:
        return self.code.local(self.number, count)

    def transpose_rows(
        self, target: LLValue, rows: LLValue, stride: int, count: LLValue, width: int
    ) -> None:
        """Transpose `count` rows into columns of a block, and zero the columns after them."""
        code, size = self.code, self.block * width * self.item
        when(count < self.block, lambda: fill_zeros(code, target, size))

        def row(j: LLValue) -> None:
            source, place = self.at(rows, j * stride), self.at(target, j)

            def one(d: LLValue) -> None:
                self.store(self.load(source, d), place, d * self.block)

            each(code, 0, width, one)

        each(code, 0, count, row)

    def visible_keys(self, first: LLValue, rows: LLValue, count: LLValue) -> LLValue:
        """How many of a block's keys any of the queries attends to; `first` is query less key."""
        return least(count, first + rows) if self.it.causal else count

    def columns(self, first: LLValue, row: LLValue, count: LLValue) -> LLValue:
        """How many of a block's keys one query attends to."""
        if not self.it.causal:
            return count
        return least(most(first + row + 1, 0), count)

    def before(self, c: LLValue, columns: LLValue) -> LLValue:
        """The lanes in which c, c + 1, … are below a number of columns."""
        numbers = ", ".join(f"i32 {i}" for i in range(self.lanes))
        counting = LLValue(self.code, lanes_of("i32", self.lanes), f"<{numbers}>")
        return counting < splat((columns - c).cast("trunc", "i32"), self.lanes)

    def place_mask(self, base: LLValue, index: list[LLValue]) -> None:
        """Compute the address of a head's part of the mask."""
        if self.mask is not None:
            kind = "i8" if self.mask.dtype == dtypes.bool_ else self.element
            self.mask_at = start_of(index, base, self.mask.strides[:-2], kind)

    def score(
        self, line: LLValue, c: LLValue, columns: LLValue, query: LLValue, key: LLValue
    ) -> LLValue:
        """Scaled scores from column c on, −∞ where a key is masked."""
        code = self.code
        s = code.load(self.vector, self.at(line, c), self.item) * self.it.scale
        valid = self.before(c, columns)
        if self.mask is not None:
            s, valid = self._apply_mask(s, valid, query, key + c)
        return valid.choose(s, s.same(-inf))

    def _apply_mask(
        self, s: LLValue, valid: LLValue, query: LLValue, key: LLValue
    ) -> tuple[LLValue, LLValue]:
        mask, place = self.mask, self.mask_at
        assert mask is not None and place is not None
        kind = "i8" if mask.dtype == dtypes.bool_ else self.element
        far = query * mask.strides[-2] + key * mask.strides[-1]
        place, code = self.code.address(place, far, kind), self.code
        wide, align = lanes_of(kind, self.lanes), lanes_of(kind).width // 8
        if mask.strides[-1] == 0:
            value = splat(code.load(lanes_of(kind), place, align), self.lanes)
        else:
            name, rest = (
                f"llvm.masked.load.{wide.mangled}.p0",
                LLValue(code, wide, "zeroinitializer"),
            )
            unit = code.constant(lanes_of("i32"), align)
            value = code.call(name, wide, [place, unit, valid, rest])
        if kind == "i8":
            return s, valid & value.compare("ne", 0)
        return s + value, valid

    def find_seed(
        self, base: LLValue, index: list[LLValue], strides: tuple[int, ...] | None
    ) -> None:
        """Load the seed of a head."""
        if strides is not None:
            seed = self.code.load(WORD, start_of(index, base, strides, "i64"), 8)
            low, high = halves(seed)
            self.seed = splat(low, LANES), splat(high, LANES)

    def drop(self, query: LLValue, key: LLValue, stop: LLValue) -> None:
        """Draw which weights of a query and a block of keys are kept.

        A pair's word is a function of the seed, the query and the key, as in `backend.attention`.
        """
        if self.kept is None:
            return
        code, kept = self.code, self.kept
        assert self.seed is not None
        seed, row = self.seed, splat(query.cast("trunc", "i32"), LANES)

        def some(c: LLValue) -> None:
            first = splat((key + c).logical_shift(2), LANES) + from_zero(code)
            blocks = first.cast("trunc", "i32")
            words = interleave(philox(seed, [blocks, row, row.same(0), row.same(0)]))
            limit = round(self.it.p * 2**32)
            limit -= 1 << 32 if limit >> 31 else 0
            flags = words.compare("ge", limit, signed=False).cast("zext", "i8")
            code.store(flags, code.address(kept, c, "i8"), 1)

        each(code, 0, stop, some, 4 * LANES)

    def factor(self, c: LLValue) -> LLValue | None:
        """The factor of dropout on weights from column c on; None without dropout."""
        if self.kept is None:
            return None
        kind = lanes_of("i8", self.lanes)
        flags = self.code.load(kind, self.code.address(self.kept, c, "i8"), 1).compare("ne", 0)
        many = self.code.constant(self.vector, 1 / (1 - self.it.p))
        return flags.choose(many, many.same(0.0))

    def over(self, stop: LLValue, body: Callable[[LLValue], None]) -> None:
        """body(c) for each vector of a line."""
        each(self.code, 0, stop, body, self.lanes)

    def cell(self, start: float) -> LLValue:
        """A vector in memory that LLVM promotes to a register."""
        cell = self.code.local(self.vector)
        self.code.store(self.code.constant(self.vector, start), cell, 64)
        return cell
