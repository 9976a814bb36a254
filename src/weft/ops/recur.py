"""Rows: one step of a recurrent network, all gates in one pass. A step saves its gates after the
activations, and not their inputs.
"""

from ..core import dtypes
from ..core.aval import Aval, broadcast
from ..core.op import Caller
from ..core.types import Array
from ..errors import ShapeError
from .batching import Stacked
from .elementwise import tanh
from .rows import general, on_demand
from .samples import neural as samples
from .slicing import narrow
from .structural import broadcast_to, concat, unbroadcast


def _parts(x: Array | None, count: int) -> list[Array]:
    """x split along its last axis; None gives zeros."""
    if x is None:
        return [0.0] * count
    axis, n = len(x.shape) - 1, x.shape[-1] // count
    return [narrow(x, axis, k * n, (k + 1) * n) for k in range(count)]


def _join_parts(parts, like):
    """Parts side by side along the last axis, each first brought to one shape."""
    n = like.shape[-1] // len(parts)
    shape = (*like.shape[:-1], n)
    full = [p if tuple(p.shape) == shape else broadcast_to(p, shape) for p in parts]
    return concat(full, len(shape) - 1)


def _fill_tangent(t, like):
    return t if tuple(t.shape) == tuple(like.shape) else broadcast_to(t, like.shape)


def _or_zero(g):
    return 0.0 if g is None else g


def _check_widths(name: str, count: int, gates: tuple[Aval, ...], state: Aval) -> Aval:
    shapes = ", ".join(str(a.shape) for a in (*gates, state))
    if not state.ndim or any(a.shape[-1:] != (count * state.shape[-1],) for a in gates):
        raise ShapeError(
            f"{name}: shapes {shapes}; expected the gates {count} times as wide as the state"
        )
    lead = broadcast(name, *(a.shape[:-1] for a in (*gates, state)))
    dtype = dtypes.promote_all(a.dtype for a in (*gates, state))
    return state.like((*lead, state.shape[-1]), dtype)


# -- long short-term memory --------------------------------------------------------------------


def _lstm_shape(z: Aval, c: Aval):
    state = _check_widths("lstm_cell", 4, (z,), c)
    return state, state, state.like((*state.shape[:-1], 4 * state.shape[-1]))


def _lstm_push(tangents, results, z, c):
    tz, tc = tangents
    h, c_new, gates = results
    i, f, u, o = _parts(gates, 4)
    ti, tf, tu, to = _parts(tz, 4)
    ti, tf, tu, to = ti * (i - i * i), tf * (f - f * f), tu * (1.0 - u * u), to * (o - o * o)
    lit = tanh(c_new)
    tc_new = tf * c + f * _or_zero(tc) + ti * u + i * tu
    th = to * lit + o * (1.0 - lit * lit) * tc_new
    return _fill_tangent(th, h), _fill_tangent(tc_new, c_new), _join_parts([ti, tf, tu, to], gates)


@on_demand
def _lstm_pull(gs, results, z, c):
    gh, gc, gg = gs
    _, c_new, gates = results
    i, f, u, o = _parts(gates, 4)
    ei, ef, eu, eo = _parts(gg, 4)
    lit, gh = tanh(c_new), _or_zero(gh)
    dc = gh * o * (1.0 - lit * lit) + _or_zero(gc)
    into = [
        (dc * u + ei) * (i - i * i),
        (dc * c + ef) * (f - f * f),
        (dc * i + eu) * (1.0 - u * u),
        (gh * lit + eo) * (o - o * o),
    ]
    return (
        lambda: unbroadcast(_join_parts(into, gates), z.shape),
        lambda: unbroadcast(dc * f, c.shape),
    )


# Gates i, f, g, o from z, then c' = f·c + i·g and h = o·tanh(c'): gives h, c' and the gates.
lstm_cell: Caller = general(
    "lstm_cell",
    shape=_lstm_shape,
    push=_lstm_push,
    pull=_lstm_pull,
    reads="results c",
    arity=2,
    promote=(0, 1),
    floating=True,
    outputs=3,
    tracked=(0, 1, 2),
    precision="half",
    batch=Stacked((1, 1)),
    sample=samples("lstm_cells"),
)

# -- gated recurrent unit ----------------------------------------------------------------------


def _gru_shape(x: Aval, y: Aval, h: Aval):
    state = _check_widths("gru_cell", 3, (x, y), h)
    return state, state.like((*state.shape[:-1], 3 * state.shape[-1]))


def _gru_push(tangents, results, x, y, h):
    tx, ty, th = tangents
    new, gates = results
    r, z, n = _parts(gates, 3)
    (xr, xz, xn), (yr, yz, yn) = _parts(tx, 3), _parts(ty, 3)
    tr, tz = (xr + yr) * (r - r * r), (xz + yz) * (z - z * z)
    tn = (xn + tr * _parts(y, 3)[2] + r * yn) * (1.0 - n * n)
    moved = tn * (1.0 - z) + tz * (h - n) + z * _or_zero(th)
    return _fill_tangent(moved, new), _join_parts([tr, tz, tn], gates)


@on_demand
def _gru_pull(gs, results, x, y, h):
    g, gg = gs
    gates = results[1]
    r, z, n = _parts(gates, 3)
    er, ez, en = _parts(gg, 3)
    g = _or_zero(g)
    into_n = (g * (1.0 - z) + en) * (1.0 - n * n)
    into_r = (into_n * _parts(y, 3)[2] + er) * (r - r * r)
    into_z = (g * (h - n) + ez) * (z - z * z)
    dh = broadcast_to(g * z, results[0].shape)
    return (
        lambda: unbroadcast(_join_parts([into_r, into_z, into_n], gates), x.shape),
        lambda: unbroadcast(_join_parts([into_r, into_z, into_n * r], gates), y.shape),
        lambda: unbroadcast(dh, h.shape),
    )


# Gates r, z from x + y, n = tanh(x + r·y), then (1 - z)·n + z·h: gives that and the gates.
gru_cell: Caller = general(
    "gru_cell",
    shape=_gru_shape,
    push=_gru_push,
    pull=_gru_pull,
    reads="results y h",
    arity=3,
    promote=(0, 1, 2),
    floating=True,
    outputs=2,
    tracked=(0, 1),
    precision="half",
    batch=Stacked((1, 1, 1)),
    sample=samples("gru_cells"),
)
