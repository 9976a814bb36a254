"""Expansions of recurrent cells and rotations of pairs into elementwise rows."""

from collections.abc import Sequence

from ...graph.graph import Literal
from .expand import expands, wide
from .rewriting import Builder


def _part(b: Builder, x: int, start: int, count: int, step: int = 1) -> int:
    """A slice along the last axis."""
    lead = tuple((0, n, 1) for n in b.shape(x)[:-1])
    return b.emit("slice_", x, (*lead, (start, count, step)))


def _parts(b: Builder, x: int, count: int) -> list[int]:
    n = b.shape(x)[-1] // count
    return [_part(b, x, k * n, n) for k in range(count)]


def _spread(b: Builder, parts: Sequence[int], shape: tuple[int, ...]) -> list[int]:
    return [p if b.shape(p) == shape else b.emit("broadcast_to", p, shape) for p in parts]


def _join_parts(b: Builder, parts: Sequence[int], shape: tuple[int, ...]) -> int:
    """Concatenate parts of one shape along the last axis."""
    n = shape[-1]
    ends = tuple(n * (k + 1) for k in range(len(parts)))
    return b.emit("concat", _spread(b, parts, shape), len(shape) - 1, ends)


@expands("lstm_cell")
def _lstm_cell(b: Builder, z, c):
    z, c = wide(b, z), wide(b, c)
    i, f, u, o = _parts(b, z, 4)
    i, f, o = (b.emit("expit", x) for x in (i, f, o))
    u = b.emit("tanh", u)
    new = b.emit("add", b.emit("multiply", f, c), b.emit("multiply", i, u))
    h = b.emit("multiply", o, b.emit("tanh", new))
    return h, new, _join_parts(b, [i, f, u, o], b.shape(new))


@expands("gru_cell")
def _gru_cell(b: Builder, x, y, h):
    x, y, h = (wide(b, a) for a in (x, y, h))
    (xr, xz, xn), (yr, yz, yn) = _parts(b, x, 3), _parts(b, y, 3)
    r, z = (b.emit("expit", b.emit("add", p, q)) for p, q in ((xr, yr), (xz, yz)))
    n = b.emit("tanh", b.emit("add", xn, b.emit("multiply", r, yn)))
    new = b.emit("add", n, b.emit("multiply", z, b.emit("subtract", h, n)))
    return new, _join_parts(b, [r, z, n], b.shape(new))


@expands("rotate")
def _rotate(b: Builder, x, turn, interleaved, back):
    if isinstance(x, Literal) or isinstance(turn, Literal):
        return None
    half = b.shape(x)[-1] // 2
    cosine, sine = _parts(b, turn, 2)
    p, q = _parts(b, x, 2)
    if interleaved:
        p, q = (_part(b, x, start, half, 2) for start in (0, 1))
    signs = ("add", "subtract") if back else ("subtract", "add")
    first = b.emit(signs[0], b.emit("multiply", p, cosine), b.emit("multiply", q, sine))
    second = b.emit(signs[1], b.emit("multiply", q, cosine), b.emit("multiply", p, sine))
    shape = b.shape(first)
    if not interleaved:
        return _join_parts(b, [first, second], shape)
    together = b.emit("stack", [first, second], len(shape))
    return b.emit("reshape", together, (*shape[:-1], 2 * half))
