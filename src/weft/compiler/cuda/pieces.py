"""Kernels that also fold columns, over pieces of some rows: a block for each piece.

Where the rows are not folded themselves, the rows of a piece are an axis like others, and the
kernel one with folds. Else the threads of a line own its columns: each goes over the rows of the
piece with its parts of the folds in registers.
"""

from dataclasses import replace

from ...core.record import record
from ..emit.code import LLValue, Type
from ..emit.convert import cast, register_type
from ..emit.folds import accumulator_dtype, combine, identity
from ..ir.axes import Axis, axes_of
from ..ir.kernel import FoldStep, Kernel
from .arrays import GridArrays, Point, dtypes_of, index_type
from .flat import most_lanes, pick_lanes
from .folds import (
    FoldPlan,
    LineWalk,
    fit_columns,
    fit_lines,
    power_of_two,
    shorter,
    spread_columns,
    words_held,
)
from .machine import WARP, Machine
from .steps import fold_rounds
from .sweeps import SweepEmitter, Turn, both, changes
from .teams import Partial, Rows, fold_columns, fold_neighbours

# Threads of a block that has several lines, and its bytes of shared memory.
BLOCK, SHARED = 128, 48 << 10
# Registers of a multiprocessor, and those of a thread beside what it holds.
REGISTERS, BESIDE = 65_536, 32


def fold_rows_of_pieces(kernel: Kernel) -> Kernel:
    """A kernel that folds columns only, as one with folds over the rows of each piece."""
    (rows, columns), steps, results = kernel.domain, list(kernel.steps), []
    piece = min(kernel.piece, rows)
    for r in kernel.results:
        down, along = r.strides
        if r.over_rows:
            steps.append(FoldStep(r.over_rows, r.value, kernel.dtypes[r.value]))
            value = len(kernel.operands) + len(steps) - 1
            r = replace(r, value=value, strides=(down, 0, along), over_rows="")
        else:
            r = replace(r, strides=(piece * down, down, along))
        results.append(r)
    operands = [replace(o, strides=(piece * o.strides[0], *o.strides)) for o in kernel.operands]
    domain = (-(-rows // piece), piece, columns)
    return Kernel(domain, tuple(operands), tuple(steps), tuple(results), (1,))


@record
class PiecePlan:
    """How threads share pieces: the plan of the lines of a block, and what lies about it.

    rows      the axis of rows of the arrays that are not folded over it
    pieces    the axis of pieces of the others
    together  the blocks whose registers a multiprocessor has room for
    """

    lines: FoldPlan
    rows: Axis
    pieces: Axis
    piece: int
    together: int

    @property
    def block(self) -> int:
        return self.lines.block

    @property
    def grid(self) -> int:
        return self.pieces.size


def plan_pieces(kernel: Kernel, aligned: int) -> PiecePlan:
    """The plan of a kernel that folds its rows, and columns over pieces."""
    down, lane = axes_of(kernel)
    over = [False] * len(kernel.operands) + [bool(r.over_rows) for r in kernel.results]
    pairs = list(zip(down.strides, over, strict=True))
    rows = Axis(down.size, tuple([0 if o else s for s, o in pairs]))
    pieces = Axis(-(-down.size // kernel.piece), tuple([s if o else 0 for s, o in pairs]))
    lanes = pick_lanes([down], lane, dtypes_of(kernel), aligned, most_lanes(kernel))
    groups = lane.size // lanes
    team, _, unrolled = fit_lines(kernel, groups, down.size, lanes)
    team = max(team, 1 if unrolled else WARP)
    lines = _lines(kernel, team, groups, lanes) if unrolled else 1
    plan = FoldPlan((rows,), (), lane, True, lanes, groups, team, lines, down.size, unrolled)
    held = words_held(kernel, plan.turns * lanes) if unrolled else 0
    together = max(REGISTERS // (plan.block * (held + BESIDE)), 1) if unrolled else 1
    return PiecePlan(plan, rows, pieces, kernel.piece, together)


def _lines(kernel: Kernel, team: int, groups: int, lanes: int) -> int:
    """The rows that a block has at the same time."""
    if team > WARP:
        return 1
    kinds = [kernel.dtypes[r.value] for r in kernel.results if r.over_rows]
    line = team * -(-groups // team) * lanes * sum(d.itemsize for d in kinds)
    fit = power_of_two(SHARED // max(line, 1) + 1) // 2
    return max(min(BLOCK // team, power_of_two(kernel.piece), fit), WARP // team)


@record(frozen=False, eq=False)
class _PieceEmitter:
    """Emits the rows of a piece."""

    kernel: Kernel
    plan: PiecePlan
    arrays: GridArrays

    def __post_init__(self) -> None:
        plan, machine, arrays = self.plan.lines, self.arrays.machine, self.arrays
        thread = machine.thread()
        self.line, self.member = (
            thread.divide(plan.team, False),
            thread.modulo(plan.team, False),
        )
        self.piece = arrays.wide(machine.block())
        self.base = len(self.kernel.operands)
        self.walk = LineWalk(arrays, plan, arrays.wide(self.member))
        self.over = [r for r, x in enumerate(self.kernel.results) if x.over_rows]
        self.start = arrays.advance(arrays.start, self.plan.pieces, self.piece)
        self.cells: dict[tuple[int, int], LLValue] = {}
        self.ahead: dict[tuple[int, int], tuple[LLValue, Type]] = {}
        self.row = arrays.number(0)
        if plan.unrolled:
            self._open()

    def _kind(self, r: int) -> str:
        return self.kernel.results[r].over_rows

    def _dtype(self, r: int):
        return accumulator_dtype(self._kind(r), self._own_dtype(r))

    def _own_dtype(self, r: int):
        return self.kernel.dtypes[self.kernel.results[r].value]

    def _open(self) -> None:
        code, lanes = self.arrays.code, self.plan.lines.lanes
        for r in self.over:
            for turn in range(self.plan.lines.turns):
                cell = code.local(register_type(self._dtype(r), lanes))
                code.store(identity(code, self._kind(r), self._dtype(r), lanes), cell, 64)
                self.cells[r, turn] = cell

    def write(self) -> None:
        arrays, plan = self.arrays, self.plan
        count = plan.rows.size
        first = arrays.times(self.piece, plan.piece)
        length = arrays.number(plan.piece)
        if count % plan.piece:
            length = shorter(arrays, first, plan.piece, count)
        lines = plan.lines.lines
        trips = arrays.plus(length, lines - 1).divide(lines, False) if lines > 1 else length
        stop = -(-plan.piece // lines) if count % plan.piece == 0 else trips
        emitter = self._emitter()
        rounds = fold_rounds(self.kernel)
        if plan.lines.unrolled:
            self._load_ahead(self._place(arrays.number(0), length)[0], first)

        def turn(i: LLValue) -> None:
            self._row(emitter, i, first, length)
            if rounds == 1 and plan.lines.team > WARP:  # shared memory is used again
                arrays.machine.barrier()

        arrays.loop(stop, 1, turn)
        if plan.lines.unrolled:
            self._close()

    def _emitter(self) -> SweepEmitter:
        plan, arrays = self.plan.lines, self.arrays
        return SweepEmitter(
            *(self.kernel, arrays, self.walk, plan.lanes, True, False),
            lambda parts: fold_neighbours(arrays, parts, plan.team),
            None if plan.team == 1 else self.member.equals(0),
            self._store,
        )

    def _place(self, i: LLValue, length: LLValue) -> tuple[LLValue, LLValue | None]:
        """The row of this line in a turn, or the piece's last; and whether there is one."""
        arrays, lines = self.arrays, self.plan.lines.lines
        if lines == 1:
            return i, None
        at = arrays.plus(arrays.times(i, lines), arrays.wide(self.line))
        inside = at < length
        return inside.choose(at, arrays.plus(length, -1)), inside

    def _site(self, first: LLValue, at: LLValue) -> Point:
        arrays = self.arrays
        return arrays.advance(self.start, self.plan.rows, arrays.plus(first, at))

    def _row(self, emitter: SweepEmitter, i: LLValue, first: LLValue, length: LLValue) -> None:
        """One row of each line of the block."""
        self.row, inside = self._place(i, length)
        site, fixed = self._site(first, self.row), dict[int, LLValue]()
        if self.plan.lines.unrolled:
            fixed = self._take(site)
            following, more = self._place(self.arrays.plus(i, 1), length)
            if more is None:
                last = self.arrays.plus(length, -1)
                following = (following < length).choose(following, last)
            self._load_ahead(following, first)
        emitter.site(site, inside, fixed)

    def _load_ahead(self, row: LLValue, first: LLValue) -> None:
        """Load what moves from row to row, while the row before it is computed."""
        arrays, lanes = self.arrays, self.plan.lines.lanes
        site = self._site(first, row)
        turns = LineWalk(arrays, self.plan.lines, self.walk.member).turns(site)
        for o in self._changing():
            if self.kernel.settled[o] < 0:
                self._keep((o, -1), arrays.fetch_words(o, site, 1))
                continue
            for number, turn in enumerate(turns):
                self._keep((o, number), arrays.fetch_words(o, turn.point, lanes))

    def _changing(self) -> list[int]:
        """The operands of this row that are others in the next one."""
        return [o for o in range(self.base) if o in self.kernel.live and changes(self.kernel, o)]

    def _keep(self, key: tuple[int, int], value: LLValue) -> None:
        code = self.arrays.code
        if key not in self.ahead:
            self.ahead[key] = code.local(value.type), value.type
        code.store(value, self.ahead[key][0], 64)

    def _take(self, site: Point) -> dict[int, LLValue]:
        """Give the turns of a row what was loaded for them; and what the whole row has."""
        arrays, fixed, turns = self.arrays, dict[int, LLValue](), self.walk.turns(site)
        for (o, number), (cell, kind) in self.ahead.items():
            words = arrays.code.load(kind, cell, 64)
            if number < 0:
                fixed[o] = arrays.unpack(o, words, 1)
            else:
                turns[number].words[o] = words
        return fixed

    def _store(self, r: int, turn: Turn, value: LLValue) -> None:
        if r not in self.over:
            self.arrays.write(self.base + r, turn.point, value)
            return
        kind, dtype, code = self._kind(r), self._dtype(r), self.arrays.code
        value = cast(value, self._own_dtype(r), dtype)
        if not self.cells:
            self._store_beyond(r, turn.point, value)
            return
        (turns,) = self.walk.kept.values()
        cell = self.cells[r, turns.index(turn)]
        before = code.load(value.type, cell, 64)
        code.store(combine(kind, before, value, dtype), cell, 64)

    def _store_beyond(self, r: int, point: Point, value: LLValue) -> None:
        """Combine with what this thread has stored for the rows before."""
        arrays, lanes = self.arrays, self.plan.lines.lanes
        kind, dtype = self._kind(r), self._own_dtype(r)
        there = cast(arrays.read(self.base + r, point, lanes), dtype, self._dtype(r))
        none = identity(arrays.code, kind, self._dtype(r), lanes)
        there = self.row.equals(0).choose(none, there)
        whole = combine(kind, there, value, self._dtype(r))
        arrays.write(self.base + r, point, cast(whole, self._dtype(r), dtype))

    def _close(self) -> None:
        """Combine the parts of the lines of a block, and store them."""
        arrays, plan = self.arrays, self.plan.lines
        keys = list(self.cells)
        parts = [
            Partial(
                self._kind(r),
                arrays.code.load(
                    register_type(self._dtype(r), plan.lanes), self.cells[r, turn], 64
                ),
                self._dtype(r),
            )
            for r, turn in keys
        ]
        rows = Rows(plan.team, plan.lines, self.member, self.line)
        values = dict(zip(keys, fold_columns(arrays, parts, rows), strict=True))
        turns: list[Turn] = []
        walk = LineWalk(arrays, plan, self.walk.member)
        walk.each(self.start, turns.extend)
        first = None if plan.lines == 1 else self.line.equals(0)
        for number, turn in enumerate(turns):

            def put(number: int = number, turn: Turn = turn) -> None:
                for r in self.over:
                    value = cast(values[r, number], self._dtype(r), self._own_dtype(r))
                    arrays.write(self.base + r, turn.point, value)

            arrays.when(both(first, turn.inside), put)


def emit_pieces(kernel: Kernel, plan: PiecePlan, machine: Machine, aligned: int) -> None:
    """Emit the function of one thread."""
    index = index_type(kernel, plan.grid * plan.block)
    steps = [plan.rows, plan.pieces]
    arrays = GridArrays(machine, kernel, plan.lines.lane, steps, aligned, index)
    _PieceEmitter(kernel, plan, arrays).write()
    machine.finish()


def plan_columns(kernel: Kernel, aligned: int) -> tuple[Kernel, FoldPlan]:
    """A kernel that folds columns only: what it is among kernels with folds, and its plan."""
    rows, folded = kernel.domain[0], fold_rows_of_pieces(kernel)
    pieces, down, lane = axes_of(folded)
    lanes = pick_lanes([pieces, down], lane, dtypes_of(folded), aligned, most_lanes(kernel))
    lanes = spread_columns(pieces.size * lane.size, lanes)
    count = pieces.size * (lane.size // lanes)
    team, lines, unrolled = fit_columns(folded, down.size, count, lanes)
    ragged = rows if rows % down.size else 0
    return folded, FoldPlan(
        *((pieces,), (down,), lane, False, lanes, down.size),
        *(team, lines, count, unrolled, ragged),
    )
