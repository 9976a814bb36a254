"""The backward pass of attention tile by tile: weights are recomputed from their logarithms.

A unit is a group: keys and values with all heads that they serve. Blocks of keys come one after the
other, and accumulate their own gradients on the stack; those of the queries accumulate in memory.
The order of all sums is fixed.
"""

from collections.abc import Mapping
from math import inf

from ....core import dtypes
from ....core.record import record
from ....graph.graph import Equation, Graph, Literal
from ...emit.code import LLValue, lanes_of
from ...emit.control import WORD, each
from ...emit.exponentials import exp
from ...emit.folds import across
from ...emit.lanes_in_memory import splat
from ...ir.routine import RoutineArray, array
from ...ir.views import View
from ..tiles import PanelLayout, padded_product, pieces, product
from .gather import move
from .heads import Heads, Mask, heads_of, in_lines, mask_of, seeds_of, spread
from .registry import native
from .routine import STACK, NativeRoutine, RoutineBody
from .scatter import fill_zeros
from .weights import (
    BLOCKS,
    ROWS,
    AttentionEmitter,
    least,
    ravel,
    round_up_to_lanes,
    start_of,
    unravel,
)


@record
class AttentionGradient(NativeRoutine):
    """The cotangents of queries, keys and values from g and h, those of result and logarithms.

    Results are (…, length, heads, width) each; if `together`, the parts of one array (…, length, 3,
    heads, width).
    """

    it: Heads
    g: tuple[int, ...]  # strides of the batch, heads and queries
    h: tuple[int, ...] | None
    out: tuple[int, ...]
    lse: tuple[int, ...]
    q: tuple[int, ...]
    k: tuple[int, ...]
    v: tuple[int, ...]
    mask: Mask | None
    seeds: tuple[int, ...] | None  # strides of the batch and heads
    together: bool

    @property
    def operands(self) -> tuple[RoutineArray, ...]:
        it = self.it
        of_queries = (*it.lead, it.heads, it.queries)
        of_keys = (*it.lead, it.groups, it.keys)
        given = [
            (self.g, of_queries, it.depth),
            (self.h, of_queries, 0),
            (self.out, of_queries, it.depth),
            (self.lse, of_queries, 0),
            (self.q, of_queries, it.width),
            (self.k, of_keys, it.width),
            (self.v, of_keys, it.depth),
        ]
        found = [
            RoutineArray(it.dtype, (*shape, n) if n else shape, (*strides, 1) if n else strides)
            for strides, shape, n in given
            if strides is not None
        ]
        if self.mask is not None:
            found.append(RoutineArray(self.mask.dtype, self.mask.shape, self.mask.strides))
        if self.seeds is not None:
            found.append(RoutineArray(dtypes.int64, (*it.lead, it.heads), self.seeds))
        return tuple(found)

    @property
    def results(self) -> tuple[RoutineArray, ...]:
        it = self.it
        if self.together:
            return (array(it.dtype, (*it.lead, it.queries, 3, it.heads, it.width)),)
        return (
            array(it.dtype, (*it.lead, it.queries, it.heads, it.width)),
            array(it.dtype, (*it.lead, it.keys, it.groups, it.width)),
            array(it.dtype, (*it.lead, it.keys, it.groups, it.depth)),
        )

    @property
    def block(self) -> int:
        """The keys of a block; 0 if none fits the stack."""
        fitting = [n for n in BLOCKS[1:] if self.stack(n) <= STACK]
        enough = [n for n in fitting if n >= self.it.keys]
        return enough[-1] if enough else fitting[0] if fitting else 0

    def stack(self, block: int) -> int:
        """Bytes of the stack."""
        it = self.it
        return (2 * block * (it.width + it.depth + ROWS) + 2 * ROWS) * it.dtype.itemsize

    @property
    def count(self) -> int:
        return self.it.batch * self.it.groups

    @property
    def cost(self) -> float:
        return self.it.cost(5.0)

    @property
    def flops(self) -> int:
        return self.it.flops(3, 2)

    def body(self, b: RoutineBody) -> None:
        _BackwardEmitter(self, b).write()


class _BackwardEmitter(AttentionEmitter):
    """Emits the backward pass; the state of the current unit is in attributes."""

    def __init__(self, routine: AttentionGradient, b: RoutineBody):
        super().__init__(b, routine.it, routine.block, routine.mask)
        it, self.routine = routine.it, routine
        self.turned_keys = self.local(self.block * it.width)
        self.turned_values = self.local(self.block * it.depth)
        self.to_keys = self.local(self.block * it.width)
        self.to_values = self.local(self.block * it.depth)
        self.weights, self.slopes = self.local(self.block * ROWS), self.local(self.block * ROWS)
        self.means = self.local(ROWS)
        names = ("g", "h", "out", "lse", "q", "k", "v")
        given = [n for n in names if n != "h" or routine.h is not None]
        self.bases = dict(zip(given, b.arrays, strict=False))
        self.mask_base = b.arrays[len(given)]
        self.targets = b.arrays[len(routine.operands) :]

    def write(self) -> None:
        each(self.code, self.b.begin, self.b.end, self._unit)

    def _unit(self, u: LLValue) -> None:
        it, code = self.it, self.code
        *self.lead, self.group = unravel(u, (*it.lead, it.groups))
        self.batch = ravel(self.lead, it.lead) if self.lead else code.constant(WORD, 0)
        self.keys, self.values = (self._place(x, self.group) for x in ("k", "v"))
        per_group = it.heads // it.groups
        self.first_head = self.group * per_group

        def clear(n: LLValue) -> None:
            head, i = self.first_head + n.divide(it.queries, False), n.modulo(it.queries, False)
            fill_zeros(code, self._target(0, i, head), it.width * self.item)

        each(code, 0, per_group * it.queries, clear)
        each(code, 0, it.keys, self._block, self.block)

    def _place(self, name: str, head: LLValue) -> LLValue:
        """The address of a head."""
        strides = getattr(self.routine, name)
        return start_of([*self.lead, head], self.bases[name], strides[:-1], self.element)

    def _target(self, which: int, row: LLValue, head: LLValue) -> LLValue:
        """A row of one of the results."""
        it = self.it
        length = it.queries if which == 0 else it.keys
        at = self.batch * length + row
        if self.routine.together:
            at = (at * 3 + which) * it.heads + head
            return self.at(self.targets[0], at * it.width)
        at = at * (it.groups if which else it.heads) + head
        return self.at(self.targets[which], at * (it.depth if which == 2 else it.width))

    @property
    def query_step(self) -> int:
        """The stride from one query's gradient to the next."""
        return self.it.heads * self.it.width * (3 if self.routine.together else 1)

    def _block(self, j: LLValue) -> None:
        it, code, routine = self.it, self.code, self.routine
        count = least(it.keys - j, self.block)
        self.block_keys = self.at(self.keys, j * routine.k[-1])
        values = self.at(self.values, j * routine.v[-1])
        self.transpose_rows(self.turned_keys, self.block_keys, routine.k[-1], count, it.width)
        self.transpose_rows(self.turned_values, values, routine.v[-1], count, it.depth)
        fill_zeros(code, self.to_keys, count * (it.width * self.item))
        fill_zeros(code, self.to_values, count * (it.depth * self.item))
        start = code.constant(WORD, 0)
        if it.causal:  # queries before the block attend to none of it
            start = least(j, it.queries)

        def head(n: LLValue) -> None:
            self._head(self.first_head + n)
            each(code, start, it.queries, lambda i: self._tile(i, j, count), ROWS)

        each(code, 0, it.heads // it.groups, head)

        def put(r: LLValue) -> None:
            pairs = (1, self.to_keys, it.width), (2, self.to_values, it.depth)
            for which, source, width in pairs:
                target = self._target(which, j + r, self.group)
                move(code, target, self.at(source, r * width), width * self.item)

        each(code, 0, count, put)

    def _head(self, head: LLValue) -> None:
        """Compute the addresses of a head's arrays."""
        self.head = head
        self.starts = {x: self._place(x, head) for x in self.bases if x not in "kv"}
        self.place_mask(self.mask_base, [*self.lead, head])
        last = self.b.arrays[len(self.routine.operands) - 1]
        self.find_seed(last, [*self.lead, head], self.routine.seeds)

    def _tile(self, i: LLValue, j: LLValue, count: LLValue) -> None:
        """Queries from i on by keys from j on."""
        it, code, routine, block = self.it, self.code, self.routine, self.block
        rows, ahead = least(it.queries - i, ROWS), i - j
        seen = self.visible_keys(ahead, rows, count)
        wide = round_up_to_lanes(seen, self.lanes)
        queries = self.at(self.starts["q"], i * routine.q[-1])
        g = self.at(self.starts["g"], i * routine.g[-1])
        how = PanelLayout(routine.q[-1], 1, block, block, False)
        args = (queries, self.turned_keys, self.weights, rows, wide)
        padded_product(code, self.element, how, *args, it.width)
        how = PanelLayout(routine.g[-1], 1, block, block, False)
        args = (g, self.turned_values, self.slopes, rows, wide)
        padded_product(code, self.element, how, *args, it.depth)
        each(code, 0, rows, lambda r: self._row(i, r, ahead, seen, wide, j))
        how = PanelLayout(1, block, routine.g[-1], it.depth)
        args = (self.weights, g, self.to_values, seen, rows)
        product(code, self.element, how, it.depth, *args)
        how = PanelLayout(1, block, routine.q[-1], it.width)
        args = (self.slopes, queries, self.to_keys, seen, rows)
        product(code, self.element, how, it.width, *args)
        how = PanelLayout(block, 1, routine.k[-1], self.query_step)
        args = (self.slopes, self.block_keys, self._target(0, i, self.head), rows, seen)
        product(code, self.element, how, it.width, *args)

    def _row(
        self, i: LLValue, r: LLValue, ahead: LLValue, seen: LLValue, wide: LLValue, j: LLValue
    ) -> None:
        """One query's weights, and the cotangents of its scores times the scale."""
        code, at = self.code, i + r
        line, slope = (self.at(x, r * self.block) for x in (self.weights, self.slopes))
        columns = self.columns(ahead, r, seen)
        lse = self.load(self.starts["lse"], at * self.routine.lse[-1])
        # Where all keys are masked, all weights are exp(−∞) = 0.
        shift = splat(lse.equals(-inf).choose(lse.same(inf), lse), self.lanes)
        mean = splat(self._mean(at), self.lanes)

        def some(c: LLValue) -> None:
            w, factor = exp(self.score(line, c, columns, at, j) - shift), self.factor(c)
            code.store(w if factor is None else w * factor, self.at(line, c), self.item)
            place = self.at(slope, c)
            s = code.load(self.vector, place, self.item)
            s = s if factor is None else s * factor
            code.store((s - mean) * w * self.it.scale, place, self.item)

        self.drop(at, j, wide)
        self.over(wide, some)

    def _mean(self, at: LLValue) -> LLValue:
        """g·out, less h."""
        code, routine = self.code, self.routine
        g = self.at(self.starts["g"], at * routine.g[-1])
        out = self.at(self.starts["out"], at * routine.out[-1])
        total = None
        for start, count in pieces(self.it.depth, self.lanes):
            kind = lanes_of(self.element, count)
            x, y = (code.load(kind, self.at(p, start), self.item) for p in (g, out))
            total = self._join_sums(total, x * y)
        assert total is not None
        if routine.h is None:
            return total
        return total - self.load(self.starts["h"], at * routine.h[-1])

    def _join_sums(self, total: LLValue | None, part: LLValue) -> LLValue:
        """Add the lanes of a part to a sum."""
        kind, code = part.type, self.code
        if kind.lanes & (kind.lanes - 1):  # not a power of two: padded with zeros
            wide = lanes_of(self.element, self.lanes)
            picks = [f"i32 {min(n, kind.lanes)}" for n in range(self.lanes)]
            mask = f"<{self.lanes} x i32> <{', '.join(picks)}>"
            text = f"shufflevector {kind.text} {part.name}, {kind.text} zeroinitializer, {mask}"
            part = code.emit(wide, text)
        one = across("sum", part, self.it.dtype)
        return one if total is None else total + one


def _may_be_strided(e: Equation, position: int, view: View) -> bool:
    """h and the logarithms are read one by one; the mask follows the values."""
    if position in (1, 3):
        return True
    return in_lines(e, position - 4, view)


@native("attention_gradient_by_positions", "attention_gradient_together", strided=_may_be_strided)
def _gradient(graph: Graph, views: Mapping[int, View], e: Equation) -> NativeRoutine | str:
    g, h, out, lse, q, k, v, mask, seeds = e.inputs
    together = e.op.name == "attention_gradient_together"
    lead = graph.avals[e.outputs[0]].shape[: -4 if together else -3]
    it = heads_of(graph, (q, k, v), lead, e.static)
    if 0 in (*lead, it.heads, it.queries, it.keys, it.width, it.depth):
        return "there is nothing to attend to"
    g, out, q, k, v = (spread(views[x], lead, 3)[:-1] for x in (g, out, q, k, v))
    h = None if isinstance(h, Literal) else spread(views[h], lead, 2)
    more = mask_of(graph, views, mask, lead), seeds_of(views, seeds, lead), together
    lse = spread(views[lse], lead, 2)
    routine = AttentionGradient(it, g, h, out, lse, q, k, v, *more)
    return routine if routine.block else "heads are too wide for the stack"
