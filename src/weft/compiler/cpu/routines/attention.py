"""Attention tile by tile: scores of some queries and keys at a time, with an online softmax.

After Milakov and Gimelshein (2018) and Dao et al. (2022). A unit is a head and a span of queries;
keys come in blocks, transposed once for all queries of the span. Operands may have any strides as
long as the rows of a head are contiguous, such as a part of one projection to queries, keys and
values.
"""

from collections.abc import Mapping
from math import inf

from ....core import dtypes
from ....core.record import record
from ....graph.graph import Equation, Graph
from ...emit.code import LLValue, lanes_of
from ...emit.control import WORD, each, when
from ...emit.exponentials import exp
from ...emit.folds import across
from ...emit.lanes_in_memory import splat
from ...emit.logarithms import log
from ...ir.routine import RoutineArray, array
from ...ir.views import View
from ..tiles import PanelLayout, padded_product, pieces, product
from .heads import Heads, Mask, heads_of, in_lines, mask_of, seeds_of, spread
from .registry import native
from .routine import STACK, NativeRoutine, RoutineBody
from .scatter import fill_zeros
from .weights import (
    BLOCKS,
    ROWS,
    AttentionEmitter,
    least,
    most,
    ravel,
    round_up_to_lanes,
    start_of,
    unravel,
)

SPAN = 256  # queries of a unit, at most


@record
class Attention(NativeRoutine):
    """softmax(scale·q·kᵀ + mask)·v as (…, queries, heads, depth), and logarithms of the sums."""

    it: Heads
    q: tuple[int, ...]  # strides of the batch, heads and queries
    k: tuple[int, ...]
    v: tuple[int, ...]
    mask: Mask | None = None
    seeds: tuple[int, ...] | None = None  # strides of the batch and heads

    @property
    def operands(self) -> tuple[RoutineArray, ...]:
        it, given = self.it, []
        for strides, heads, length, width in (
            (self.q, it.heads, it.queries, it.width),
            (self.k, it.groups, it.keys, it.width),
            (self.v, it.groups, it.keys, it.depth),
        ):
            given.append(RoutineArray(it.dtype, (*it.lead, heads, length, width), (*strides, 1)))
        if self.mask is not None:
            given.append(RoutineArray(self.mask.dtype, self.mask.shape, self.mask.strides))
        if self.seeds is not None:
            given.append(RoutineArray(dtypes.int64, (*it.lead, it.heads), self.seeds))
        return tuple(given)

    @property
    def results(self) -> tuple[RoutineArray, ...]:
        it = self.it
        out = array(it.dtype, (*it.lead, it.queries, it.heads, it.depth))
        return out, array(it.dtype, (*it.lead, it.heads, it.queries))

    @property
    def span(self) -> int:
        """The queries of a unit; their results are kept on the stack."""
        room = STACK // 4 // (self.it.depth * self.it.dtype.itemsize)
        return max(min(SPAN, self.it.queries, room // ROWS * ROWS), min(ROWS, self.it.queries))

    @property
    def block(self) -> int:
        """The keys of a block; 0 if none fits the stack."""
        it = self.it
        fitting = [n for n in BLOCKS if self.stack(n) <= STACK]
        enough = [n for n in fitting if n >= it.keys]
        return enough[-1] if enough else fitting[0] if fitting else 0

    def stack(self, block: int) -> int:
        """Bytes of the stack."""
        it = self.it
        numbers = block * (it.width + ROWS) + self.span * (it.depth + 2)
        return numbers * it.dtype.itemsize

    @property
    def count(self) -> int:
        return self.it.batch * self.it.heads * -(-self.it.queries // self.span)

    @property
    def cost(self) -> float:
        return self.it.cost(2.0)

    @property
    def flops(self) -> int:
        return self.it.flops(1, 1)

    def body(self, b: RoutineBody) -> None:
        _ForwardEmitter(self, b).write()


class _ForwardEmitter(AttentionEmitter):
    """Emits the forward pass; the state of the current unit is in attributes."""

    def __init__(self, routine: Attention, b: RoutineBody):
        super().__init__(b, routine.it, routine.block, routine.mask)
        self.routine, self.span = routine, routine.span
        self.turned_keys = self.local(self.block * self.it.width)
        self.scores = self.local(self.block * ROWS)
        self.mixed = self.local(self.span * self.it.depth)
        rows = -(-self.span // self.lanes) * self.lanes
        self.tops, self.totals = self.local(rows), self.local(rows)

    def write(self) -> None:
        each(self.code, self.b.begin, self.b.end, self._unit)

    def _unit(self, u: LLValue) -> None:
        it, routine, code = self.it, self.routine, self.code
        *lead, head, span = unravel(u, (*it.lead, it.heads, -(-it.queries // self.span)))
        group = head.divide(it.heads // it.groups, False)
        q, k, v, *rest = self.b.arrays
        self.first = span * self.span
        self.rows = least(it.queries - self.first, self.span)
        self.queries = start_of([*lead, head, self.first], q, routine.q, self.element)
        self.keys = start_of([*lead, group], k, routine.k[:-1], self.element)
        self.values = start_of([*lead, group], v, routine.v[:-1], self.element)
        self.place_mask(rest[0], [*lead, head])
        last = self.b.arrays[len(routine.operands) - 1]
        self.find_seed(last, [*lead, head], routine.seeds)
        self._clear()
        limit = code.constant(WORD, it.keys)
        limit = least(self.first + self.rows, limit) if it.causal else limit
        each(code, 0, limit, lambda j: self._block(j, least(limit - j, self.block)), self.block)
        at = ravel(lead, it.lead) if lead else code.constant(WORD, 0)
        place = (at * it.queries + self.first) * it.heads + head
        self._divide(self.at(rest[-2], place * it.depth))
        self._logarithms(self.at(rest[-1], (at * it.heads + head) * it.queries + self.first))

    def _clear(self) -> None:
        code = self.code
        low = code.constant(self.vector, -inf)

        def clear(i: LLValue) -> None:
            code.store(low, self.at(self.tops, i), self.item)
            code.store(low.same(0.0), self.at(self.totals, i), self.item)

        self.over(self.rows, clear)
        fill_zeros(code, self.mixed, self.rows * (self.it.depth * self.item))

    def _block(self, j: LLValue, count: LLValue) -> None:
        """Keys from j on, for all queries of the span."""
        code, step = self.code, self.routine.k[-1]
        self.transpose_rows(
            self.turned_keys, self.at(self.keys, j * step), step, count, self.it.width
        )
        start = code.constant(WORD, 0)
        if self.it.causal:  # queries before the block attend to none of it
            start = most(j - self.first, 0)
            start = start - start.modulo(ROWS, False)
        each(code, start, self.rows, lambda i: self._tile(i, j, count), ROWS)

    def _tile(self, i: LLValue, j: LLValue, count: LLValue) -> None:
        code, it, routine = self.code, self.it, self.routine
        rows, ahead = least(self.rows - i, ROWS), self.first + i - j
        seen = self.visible_keys(ahead, rows, count)
        wide = round_up_to_lanes(seen, self.lanes)
        how = PanelLayout(routine.q[-1], 1, self.block, self.block, False)
        queries = self.at(self.queries, i * routine.q[-1])
        args = (queries, self.turned_keys, self.scores, rows, wide)
        padded_product(code, self.element, how, *args, it.width)
        each(code, 0, rows, lambda r: self._row(i, r, ahead, seen, wide, j))
        how = PanelLayout(self.block, 1, routine.v[-1], it.depth)
        values, mixed = self.at(self.values, j * routine.v[-1]), self.at(self.mixed, i * it.depth)
        product(code, self.element, how, it.depth, self.scores, values, mixed, rows, seen)

    def _row(
        self, i: LLValue, r: LLValue, ahead: LLValue, seen: LLValue, wide: LLValue, j: LLValue
    ) -> None:
        """Turn one query's scores into weights, and update its sum and result."""
        code, line, at = self.code, self.at(self.scores, r * self.block), i + r
        columns, query = self.columns(ahead, r, seen), self.first + at
        peak = self.cell(-inf)

        def find(c: LLValue) -> None:
            s = self.score(line, c, columns, query, j)
            code.store(s, self.at(line, c), self.item)
            top = code.load(self.vector, peak, 64)
            code.store((s > top).choose(s, top), peak, 64)

        self.over(wide, find)
        old = self.load(self.tops, at)
        here = across("max", code.load(self.vector, peak, 64), self.it.dtype)
        top = (here > old).choose(here, old)
        shift = top.equals(-inf).choose(top.same(0.0), top)
        sums, many = self.cell(0.0), splat(shift, self.lanes)

        def weigh(c: LLValue) -> None:
            w = exp(code.load(self.vector, self.at(line, c), self.item) - many)
            factor = self.factor(c)
            code.store(w if factor is None else w * factor, self.at(line, c), self.item)
            code.store(code.load(self.vector, sums, 64) + w, sums, 64)

        self.drop(query, j, wide)
        self.over(wide, weigh)
        total = across("sum", code.load(self.vector, sums, 64), self.it.dtype)
        when(j > 0, lambda: self._rescale(at, exp(old - shift)))
        self.store(self.load(self.totals, at) + total, self.totals, at)
        self.store(top, self.tops, at)

    def _rescale(self, at: LLValue, by: LLValue) -> None:
        """Rescale what was accumulated so far to the new maximum."""
        code = self.code
        self.store(self.load(self.totals, at) * by, self.totals, at)
        for start, count in pieces(self.it.depth, self.lanes):
            kind, place = lanes_of(self.element, count), at * self.it.depth + start
            x = code.load(kind, self.at(self.mixed, place), self.item)
            code.store(x * splat(by, count), self.at(self.mixed, place), self.item)

    def _divide(self, out: LLValue) -> None:
        """Divide the results by the sums of their weights."""
        code, it = self.code, self.it

        def row(i: LLValue) -> None:
            total = self.load(self.totals, i)
            whole = total.equals(0.0).choose(total.same(1.0), total)
            for start, count in pieces(it.depth, self.lanes):
                kind = lanes_of(self.element, count)
                x = code.load(kind, self.at(self.mixed, i * it.depth + start), self.item)
                place = self.at(out, i * (it.heads * it.depth) + start)
                code.store(x / splat(whole, count), place, self.item)

        each(code, 0, self.rows, row)

    def _logarithms(self, lse: LLValue) -> None:
        code = self.code

        def some(i: LLValue) -> None:
            total = code.load(self.vector, self.at(self.totals, i), self.item)
            top = code.load(self.vector, self.at(self.tops, i), self.item)
            shift = top.equals(-inf).choose(top.same(0.0), top)
            code.store(log(total) + shift, self.at(self.totals, i), self.item)

        self.over(self.rows, some)
        each(code, 0, self.rows, lambda i: self.store(self.load(self.totals, i), lse, i))


@native("attention_by_positions", strided=in_lines)
def _attention(graph: Graph, views: Mapping[int, View], e: Equation) -> NativeRoutine | str:
    q, k, v, mask, seeds = e.inputs
    lead = graph.avals[e.outputs[1]].shape[:-2]
    it = heads_of(graph, (q, k, v), lead, e.static)
    if 0 in (*lead, it.heads, it.queries, it.keys, it.width, it.depth):
        return "there is nothing to attend to"
    q, k, v = (spread(views[x], lead, 3)[:-1] for x in (q, k, v))
    more = mask_of(graph, views, mask, lead), seeds_of(views, seeds, lead)
    routine = Attention(it, q, k, v, *more)
    return routine if routine.block else "heads are too wide for the stack"
