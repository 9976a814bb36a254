"""Folds across the threads of a team: by exchanges in a warp, by shared memory beyond it.

A team is a power of two of neighbouring threads that fold one line, or the threads of a block that
have the same place in its rows. The order of the terms depends on the plan alone.
"""

from collections.abc import Sequence

import numpy as np

from ...core.record import record
from ..emit.code import LLValue, Type
from ..emit.folds import combine
from .arrays import GridArrays
from .machine import WARP, WORD, Machine


@record
class Partial:
    """A thread's part of a fold: its kind, what it has folded so far, and the dtype of that."""

    kind: str
    value: LLValue
    dtype: np.dtype

    def combined(self, other: LLValue) -> LLValue:
        return combine(self.kind, self.value, other, self.dtype)


def _words(value: LLValue) -> list[LLValue]:
    """A number as words."""
    kind = value.type
    if kind.is_float:
        value = value.bits
    if kind.width == 64:
        return [value.cast("trunc", "i32"), value.logical_shift(32).cast("trunc", "i32")]
    return [value.cast("zext", "i32")]


def _number(words: Sequence[LLValue], kind: Type) -> LLValue:
    """The number of these words."""
    if kind.width == 64:
        low, high = (w.cast("zext", "i64") for w in words)
        whole = low | (high << 32)
    else:
        whole = words[0].cast("trunc", f"i{kind.width}")
    return whole.as_float(kind.element) if kind.is_float else whole


def fold_neighbours(arrays: GridArrays, partials: Sequence[Partial], team: int) -> list[LLValue]:
    """Fold across teams of neighbouring threads; a team of several warps is the whole block."""
    machine = arrays.machine
    partials = fold_warp(machine, partials, min(team, WARP))
    if team > WARP:
        partials = fold_warp(machine, _gather(arrays, partials, team // WARP), team // WARP)
    return [p.value for p in partials]


def exchange_number(machine: Machine, value: LLValue, distance: int) -> LLValue:
    """The number of the thread of this warp whose number differs in the bit `distance`."""
    words = [machine.exchange(w, distance) for w in _words(value)]
    return _number(words, value.type)


def fold_warp(machine: Machine, partials: Sequence[Partial], width: int) -> list[Partial]:
    """Fold across `width` neighbours of a warp, by halves."""
    made = list(partials)
    distance = width // 2
    while distance:
        for k, p in enumerate(made):
            other = exchange_number(machine, p.value, distance)
            made[k] = Partial(p.kind, p.combined(other), p.dtype)
        distance //= 2
    return made


def _gather(arrays: GridArrays, partials: Sequence[Partial], warps: int) -> list[Partial]:
    """The parts of all warps, one in each thread of a warp."""
    machine, code = arrays.machine, arrays.code
    parts = [_words(p.value) for p in partials]
    count = sum(map(len, parts))
    room = machine.shared(WORD, count * warps)
    thread = machine.thread()
    warp, lane = thread.logical_shift(WARP.bit_length() - 1), thread & (WARP - 1)

    def place(word: int, number: LLValue) -> LLValue:
        at = (number + word * warps).cast("zext", "i64")
        return code.address(room, at, "i32")

    def put() -> None:
        for k, word in enumerate([w for words in parts for w in words]):
            code.store(word, place(k, warp), 4)

    arrays.when(lane.equals(0), put)
    machine.barrier()
    mine, made, k = thread & (warps - 1), [], 0
    for p, words in zip(partials, parts, strict=True):
        loaded = [code.load(WORD, place(k + n, mine), 4) for n in range(len(words))]
        made.append(Partial(p.kind, _number(loaded, p.value.type), p.dtype))
        k += len(words)
    return made


@record
class Rows:
    """Threads of a block in rows: this thread's place in its row of `width`, and its row."""

    width: int
    team: int
    place: LLValue
    member: LLValue


def fold_columns(arrays: GridArrays, partials: Sequence[Partial], rows: Rows) -> list[LLValue]:
    """Fold across the threads with the same place in their rows, from the first row on."""
    if rows.team == 1:
        return [p.value for p in partials]
    code = arrays.code
    rooms = [arrays.machine.shared(_stored(p), rows.team * rows.width) for p in partials]
    for p, room in zip(partials, rooms, strict=True):
        kind = _stored(p)
        value = p.value.cast("zext", "i8") if kind.element == "i8" else p.value
        code.store(value, _cell(rows, room, kind, rows.member), _align(kind))
    arrays.machine.barrier()
    return [_fold_cells(rows, p, room) for p, room in zip(partials, rooms, strict=True)]


def _fold_cells(rows: Rows, p: Partial, room: LLValue) -> LLValue:
    made: LLValue | None = None
    for t in range(rows.team):
        cell = _cell(rows, room, _stored(p), rows.member.same(t))
        part = room.code.load(_stored(p), cell, _align(_stored(p)))
        if p.value.type.element == "i1":
            part = part.compare("ne", 0)
        made = part if made is None else combine(p.kind, made, part, p.dtype)
    assert made is not None
    return made


def _stored(p: Partial) -> Type:
    """The type of a part in shared memory."""
    kind = p.value.type
    return kind.of("i8") if kind.element == "i1" else kind


def _align(kind: Type) -> int:
    return min(16, kind.lanes * kind.width // 8)


def _cell(rows: Rows, room: LLValue, kind: Type, member: LLValue) -> LLValue:
    at = (member * rows.width + rows.place).cast("zext", "i64")
    return room.code.address(room, at, kind.text)
