"""Rows: the norm of each channel over a batch, as the kernels of GPU libraries have it.

It is `native_norm` of (N, C, …) over all axes but the channels. Weight, bias, mean and reciprocal
deviation are lines here, one number for each channel, so that no call reshapes them.
"""

from ..core import dtypes
from ..core.aval import Aval
from ..core.op import Caller
from ..core.types import Array
from ..errors import ShapeError
from . import native_norm as wide
from .axes import count, floating, real_only
from .batching import spread
from .rows import general
from .samples import neural as samples
from .structural import reshape


def _axes(ndim: int) -> tuple[int, ...]:
    """All axes but the channels."""
    return (0, *range(2, ndim))


def _broadcast(v: Array | None, ndim: int) -> Array | None:
    """A line as an array that broadcasts to one of `ndim` axes; after a batch axis, too."""
    return None if v is None else reshape(v, (*v.shape[:-1], 1, v.shape[-1], *(1,) * (ndim - 2)))


def _line(v: Array | None, lead: int = 0) -> Array | None:
    """The opposite of `_broadcast`, for `lead` batch axes."""
    return None if v is None else reshape(v, (*v.shape[:lead], v.shape[lead + 1]))


def _check(name: str, x: Aval, *lines: Aval) -> None:
    real_only(name, x)
    if x.ndim < 2 or not count(x.shape, _axes(x.ndim)):
        raise ShapeError(f"{name}: input {x.shape}; expected (N, C, …) with elements along N and …")
    for v in lines:
        if v.shape != x.shape[1:2]:
            raise ShapeError(
                f"{name}: {v.shape} beside an input {x.shape}; expected {x.shape[1:2]}, one number "
                "for each channel"
            )


def _shape(x: Aval, w: Aval, b: Aval, eps: float, dtype):
    _check("native_batch_norm", x, w, b)
    statistic = x.like(x.shape[1:2], dtypes.canonical(dtype))
    return x.like(dtype=floating(x.dtype)), statistic, statistic


def _push(tangents, results, x, w, b, eps, dtype):
    (tx, *others), (out, *lines), n = tangents, results, len(x.shape)
    moved = tx, *[_broadcast(t, n) for t in others]
    known = out, *[_broadcast(v, n) for v in lines]
    given = x, *[_broadcast(v, n) for v in (w, b)]
    tout, *statistics = wide.push_norm(moved, known, *given, _axes(n), eps, dtype)
    return tout, *[_line(t) for t in statistics]


def _pull(gs, results, x, w, b, eps, dtype):
    (g, along, beside), (_, mean, rate) = gs, results
    if g is not None and along is beside is None:
        return native_batch_norm_gradient(g, x, mean, rate, w)
    n = len(x.shape)
    cotangents = g, _broadcast(along, n), _broadcast(beside, n)
    known = None, _broadcast(mean, n), _broadcast(rate, n)
    given = x, _broadcast(w, n), w  # of the bias nothing is read
    dx, *others = wide.pull_norm(cotangents, known, *given, _axes(n), eps, dtype)
    return dx, *[_line(d) for d in others]


def _batch(call, size, mapped, args, static):
    x = args[0] if mapped[0] else spread(args[0], size)
    n, lines = len(x.shape) - 1, args[1:]
    if any(mapped[1:]):
        pairs = zip(lines, mapped[1:], strict=True)
        lines = [v if m else spread(v, size) for v, m in pairs]
    axes = tuple([a + 1 for a in _axes(n)])
    given = [_broadcast(v, n) for v in lines]
    out, *statistics = wide.native_norm(x, *given, axes, *static)
    return out, *[reshape(s, (size, x.shape[2])) for s in statistics]


# (x − mean)/√(variance + eps)·w + b, the mean, and 1/√(variance + eps) of each channel.
native_batch_norm: Caller = general(
    "native_batch_norm",
    shape=_shape,
    push=_push,
    pull=_pull,
    reads="results x w",
    arity=3,
    outputs=3,
    tracked=(0, 1, 2),
    unread=(0,),
    promote=(0,),
    floating=True,
    static=True,
    precision="single",
    batch=_batch,
    sample=samples("native_batch_norms"),
)


def _gradient_shape(g: Aval, x: Aval, mean: Aval, rate: Aval, w: Aval):
    _check("native_batch_norm_gradient", x, mean, rate, w)
    return x, w, w


def _gradient_push(tangents, results, g, x, *lines):
    n = len(x.shape)
    moved = [*tangents[:2], *[_broadcast(t, n) for t in tangents[2:]]]
    known = results[0], *[_broadcast(r, n) for r in results[1:]]
    given = g, x, *[_broadcast(v, n) for v in lines]
    tdx, *others = wide.push_norm_gradient(moved, known, *given, _axes(n))
    return tdx, *[_line(t) for t in others]


def _gradient_batch(call, size, mapped, args, static):
    g, x, *lines = (a if m else spread(a, size) for a, m in zip(args, mapped, strict=True))
    n = len(x.shape) - 1
    given = [_broadcast(v, n) for v in lines]
    dx, *others = wide.native_norm_gradient(g, x, *given, tuple([a + 1 for a in _axes(n)]))
    return dx, *[_line(d, 1) for d in others]


# The cotangents of x, w and b, from that of the result, x and the statistics.
native_batch_norm_gradient: Caller = general(
    "native_batch_norm_gradient",
    shape=_gradient_shape,
    push=_gradient_push,
    arity=5,
    outputs=3,
    tracked=(0, 1, 2),
    promote=(0, 1),
    precision="single",
    batch=_gradient_batch,
    sample=samples("native_batch_norm_gradients"),
)
