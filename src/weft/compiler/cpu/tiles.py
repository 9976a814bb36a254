"""Products of small matrices in registers: tiles of the result are accumulated, then stored once.

c[i, j] (+)= Σₖ a[i, k]·b[k, j], with contiguous rows of b and c; a may have any strides. Blocks of
the result are as many rows and vectors as registers hold. The order of each sum is that of k.
"""

from ...core.record import record
from ..emit.arithmetic import fma
from ..emit.code import Code, LLModule, LLValue, lanes_of
from ..emit.control import POINTER, WORD, each, invoke, leave, when
from ..emit.lanes_in_memory import splat
from ..native.machine import host

BYTES_OF = {"float": 4, "double": 8}


def register() -> int:
    """The bytes of a vector register."""
    return 64 if host().has("avx512vl") else 32


def lanes_for(element: str) -> int:
    """The numbers that fill a register."""
    return register() // BYTES_OF[element]


def rows_at_once() -> int:
    """The rows of a block of two vectors each: registers for all, and some to spare."""
    return 8 if register() == 64 else 4


def pieces(width: int, lanes: int) -> list[tuple[int, int]]:
    """(start, count) of the vectors that a line of numbers is split into."""
    return [(at, min(lanes, width - at)) for at in range(0, width, lanes)]


@record
class PanelLayout:
    """Strides in elements: of a from row to row and from term to term, of rows of b and of c."""

    row: int
    term: int
    b: int
    c: int
    adds: bool = True


def product(
    code: Code,
    element: str,
    how: PanelLayout,
    width: int,
    a: LLValue,
    b: LLValue,
    c: LLValue,
    m: LLValue,
    k: LLValue | int,
) -> None:
    """c (+)= a·b for m rows and a static width, of k terms."""
    lanes = lanes_for(element)
    cut = pieces(width, 2 * lanes)
    for at, count in cut:
        here = code.address(b, at, element), code.address(c, at, element)
        _panel(code, element, how, count, (a, *here, m, k))


def padded_product(
    code: Code,
    element: str,
    how: PanelLayout,
    a: LLValue,
    b: LLValue,
    c: LLValue,
    m: LLValue,
    n: LLValue,
    k: LLValue | int,
) -> None:
    """c (+)= a·b where n, a multiple of a vector's lanes, is known at run time only."""
    lanes = lanes_for(element)
    whole = n - n.modulo(2 * lanes, False)

    def pair(at: LLValue) -> None:
        here = code.address(b, at, element), code.address(c, at, element)
        _panel(code, element, how, 2 * lanes, (a, *here, m, k))

    each(code, 0, whole, pair, 2 * lanes)

    def last() -> None:
        here = code.address(b, whole, element), code.address(c, whole, element)
        _panel(code, element, how, lanes, (a, *here, m, k))

    when(whole < n, last)


def _panel(code: Code, element: str, how: PanelLayout, width: int, args: tuple) -> None:
    """The columns that registers hold, by a function of the module."""
    key = ("panel", element, how, width)
    name = code.module.once(key, lambda m: _write_panel(m, element, how, width))
    a, b, c, m, k = args
    k = code.constant(WORD, k) if isinstance(k, int) else k
    invoke(code, name, "void", [a, b, c, m, k])


def _write_panel(module: LLModule, element: str, how: PanelLayout, width: int) -> str:
    code = module.function("void", [POINTER, POINTER, POINTER, WORD, WORD])
    a, b, c, m, k = code.parameters
    rows = rows_at_once()
    whole = m - m.modulo(rows, False)
    block = _PanelEmitter(code, element, how, width)
    each(code, 0, whole, lambda i: block.write(rows, i, a, b, c, k), rows)
    each(code, whole, m, lambda i: block.write(1, i, a, b, c, k))
    leave(code)
    return code.name


@record
class _PanelEmitter:
    """Emits some rows of a panel."""

    code: Code
    element: str
    how: PanelLayout
    width: int

    def write(self, rows: int, i: LLValue, a: LLValue, b: LLValue, c: LLValue, k: LLValue) -> None:
        code, element, how, item = self.code, self.element, self.how, BYTES_OF[self.element]
        cut = pieces(self.width, lanes_for(element))
        kinds = [lanes_of(element, count) for _, count in cut]
        first = code.address(a, i * how.row, element)
        target = code.address(c, i * how.c, element)
        places = [
            [code.address(target, r * how.c + at, element) for at, _ in cut] for r in range(rows)
        ]
        sums = [[code.local(kind) for kind in kinds] for _ in range(rows)]
        for line, cells in zip(places, sums, strict=True):
            for kind, place, cell in zip(kinds, line, cells, strict=True):
                start = code.load(kind, place, item) if how.adds else code.constant(kind, 0.0)
                code.store(start, cell, 64)

        def term(t: LLValue) -> None:
            row = code.address(b, t * how.b, element)
            right = [
                code.load(kind, code.address(row, at, element), item)
                for kind, (at, _) in zip(kinds, cut, strict=True)
            ]
            column = code.address(first, t * how.term, element)
            for r, cells in enumerate(sums):
                place = code.address(column, r * how.row, element)
                left = code.load(lanes_of(element), place, item)
                for kind, x, cell in zip(kinds, right, cells, strict=True):
                    old = code.load(kind, cell, 64)
                    code.store(fma(splat(left, kind.lanes), x, old), cell, 64)

        each(code, 0, k, term)
        for line, cells in zip(places, sums, strict=True):
            for kind, place, cell in zip(kinds, line, cells, strict=True):
                code.store(code.load(kind, cell, 64), place, item)
