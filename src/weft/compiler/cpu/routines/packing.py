"""Padded copies of parts of arrays on the stack, for windows that reach outside."""

from ....core.record import record
from ...emit.code import LLValue, lanes_of
from ...emit.control import WORD, each
from ..lanes import join_vectors, masked_load, shuffle, within
from .routine import RoutineBody, require_lanes

# Up to this stride elements of a residue are shuffled from registers; beyond it, gathered.
_STEPS = (1, 2, 4)


@record
class PlaneRows:
    """Rows of contiguous planes (rows, columns), from anywhere on.

    number    of the array among the routine's, `planes` their number
    residues  which elements are copied of every `stride`; those of each are contiguous
    pitch     how many of each
    rest      the padding
    """

    number: int
    element: str
    planes: int
    size: tuple[int, int]
    lanes: int
    stride: int
    residues: tuple[int, ...]
    pitch: int
    rest: float = 0.0


def copy_rows(
    b: RoutineBody,
    how: PlaneRows,
    target: LLValue,
    area: int,
    planes: tuple[LLValue, LLValue],
    rows: tuple[LLValue, int],
    column: LLValue,
) -> None:
    """Copy rows of planes to planes that are `area` elements apart.

    planes  the first one, and how many
    rows    the first one, which may be outside, and how many
    column  the first one, which may be outside, too
    """
    code, (height, width) = b.code, how.size
    (plane, count), (row, lines) = planes, rows
    item = lanes_of(how.element).width // 8
    pitch = how.pitch * len(how.residues)

    def one(k: LLValue) -> None:
        def line(i: LLValue) -> None:
            at = row + i
            there = at.compare("lt", height, signed=False)
            limit = there.choose(at.same(width), 0)
            start = ((plane + k) * height + at) * width
            into = code.address(target, k * area + i * pitch, how.element)
            _line(b, how, start, column, limit, into, item)

        each(code, 0, code.constant(WORD, lines), line)

    each(code, 0, count, one)


def _line(
    b: RoutineBody,
    how: PlaneRows,
    start: LLValue,
    column: LLValue,
    limit: LLValue,
    into: LLValue,
    item: int,
):
    """One row: registers of every residue."""
    code, lanes, s = b.code, how.lanes, how.stride
    for v in range(how.pitch // lanes):
        place = column + v * lanes * s
        if s in _STEPS:
            parts = [_read(b, how, start, place + j * lanes, 1, limit) for j in range(s)]
            both = join_vectors(parts)
            made = [
                both if s == 1 else shuffle(both, both, [k * s + r for k in range(lanes)])
                for r in how.residues
            ]
        else:
            made = [_read(b, how, start, place + r, s, limit) for r in how.residues]
        for k, value in enumerate(made):
            code.store(value, code.address(into, k * how.pitch + v * lanes, how.element), item)


def _read(
    b: RoutineBody, how: PlaneRows, start: LLValue, place: LLValue, step: int, limit: LLValue
) -> LLValue:
    """Lanes of a row from `place` on, `step` apart, where they are below the limit."""
    code, lanes = b.code, how.lanes
    mask = within(code, place, step, lanes, limit)
    size = how.planes * how.size[0] * how.size[1]
    require_lanes(b, how.number, start + place, step, mask, size)
    pointer = code.address(b.arrays[how.number], start + place, how.element)
    if step == 1:
        return masked_load(code, pointer, how.element, lanes, mask, how.rest)
    kind = lanes_of(how.element, lanes)
    steps = ", ".join(f"i64 {step * k}" for k in range(lanes))
    places = code.emit(
        lanes_of("ptr", lanes),
        f"getelementptr {how.element}, ptr {pointer.name}, <{lanes} x i64> <{steps}>",
    )
    name = f"llvm.masked.gather.{kind.mangled}.v{lanes}p0"
    align = code.constant(lanes_of("i32"), kind.width // 8)
    return code.call(name, kind, [places, align, mask, code.constant(kind, how.rest)])
