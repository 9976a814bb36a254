"""Row: a linear map of the last axis with a bias, the linear layer."""

from math import prod

from ..core import dtypes
from ..core.aval import Aval
from ..core.op import Caller
from ..errors import ShapeError
from .batching import align_batch, spread
from .batching_linalg import batch_matmul
from .complex_ import conj
from .contract import matmul
from .rows import general, on_demand
from .samples import linalg as samples
from .structural import broadcast_to, mT, reshape, sum_


def _shape(x: Aval, w: Aval, b: Aval) -> Aval:
    if not x.ndim or w.ndim != 2 or b.ndim != 1:
        raise ShapeError(
            f"linear: input {x.shape}, weight {w.shape} and bias {b.shape}; expected (…, in), "
            "(out, in) and (out,)"
        )
    if x.shape[-1] != w.shape[1] or w.shape[:1] != b.shape:
        raise ShapeError(
            f"linear: input {x.shape}, weight {w.shape}, bias {b.shape}: {x.shape[-1]} ≠ "
            f"{w.shape[1]} or {w.shape[0]} ≠ {b.shape[0]}"
        )
    dtype = dtypes.promote_all([x.dtype, w.dtype, b.dtype])
    return x.like((*x.shape[:-1], w.shape[0]), dtype)


def _lines(x):
    """(…, n) with one axis in front."""
    return x if len(x.shape) == 2 else reshape(x, (prod(x.shape[:-1]), x.shape[-1]))


def _push(tangents, y, x, w, b):
    tx, tw, tb = tangents
    terms = [
        *([] if tx is None else [matmul(tx, mT(w))]),
        *([] if tw is None else [matmul(x, mT(tw))]),
        *([] if tb is None else [broadcast_to(tb, y.shape)]),
    ]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def _conj(x):
    return conj(x) if dtypes.is_complex(x.dtype) else x


@on_demand
def _pull(g, y, x, w, b):
    def chosen(asked):
        if all(asked):
            return linear_gradient(g, _conj(x), _conj(w))
        return (
            lambda: matmul(g, _conj(w)),
            lambda: matmul(mT(_lines(g)), _conj(_lines(x))),
            lambda: sum_(g, tuple(range(len(g.shape) - 1)), False),
        )

    return chosen


def _batch(call, size, mapped, args, static):
    x, w, b = args
    if not mapped[1] and not mapped[2]:
        return call(x, w, b)
    if mapped[0] or mapped[1]:
        y = batch_matmul(matmul, size, mapped[:2], (x, mT(w)), ())
    else:
        y = matmul(x, mT(w))
    ndim = len(x.shape) - mapped[0] + 1
    return y + (align_batch(b, ndim) if mapped[2] else b)


# x·Wᵀ + b. The bias is added before a product of half types is rounded.
affine: Caller = general(
    "linear",
    shape=_shape,
    push=_push,
    pull=_pull,
    reads="x w",
    arity=3,
    promote=(0, 1, 2),
    precision="half",
    batch=_batch,
    sample=samples("affine"),
)


def _gradient_shape(g: Aval, x: Aval, w: Aval):
    if g.shape != (*x.shape[:-1], *w.shape[:1]) or w.ndim != 2 or x.shape[-1:] != w.shape[1:]:
        raise ShapeError(
            f"linear_gradient: {g.shape}, input {x.shape} and weight {w.shape}; expected (…, out), "
            "(…, in) and (out, in)"
        )
    dtype = dtypes.promote_all([g.dtype, x.dtype, w.dtype])
    return x.like(dtype=dtype), w.like(dtype=dtype), x.like(w.shape[:1], dtype)


def _gradient_push(tangents, results, g, x, w):
    def over(t, u, f):
        """f(t, ·) and f(·, u), for those of the tangents t and u that are not None."""
        terms = [f(a, b) for a, b in (t, u) if a is not None and b is not None]
        return terms[0] + terms[1] if len(terms) > 1 else terms[0] if terms else None

    tg, tx, tw = tangents
    found = (
        over((tg, w), (g, tw), matmul),
        over((tg, x), (g, tx), lambda a, b: matmul(mT(_lines(a)), _lines(b))),
        None if tg is None else sum_(tg, tuple(range(len(tg.shape) - 1)), False),
    )
    return tuple(z * 0 if t is None else t for t, z in zip(found, results, strict=True))


def _gradient_batch(call, size, mapped, args, static):
    """By composites, since the sums do not run over the batch axis."""
    g, x = (a if m else spread(a, size) for a, m in zip(args[:2], mapped[:2], strict=True))
    dx = batch_matmul(matmul, size, (True, mapped[2]), (g, args[2]), ())
    columns, lines = (reshape(a, (size, prod(a.shape[1:-1]), a.shape[-1])) for a in (g, x))
    return dx, matmul(mT(columns), lines), sum_(columns, (1,), False)


# The cotangents g·W of x, gᵀ·x of the weight and Σg of the bias, from one pass over g.
linear_gradient: Caller = general(
    "linear_gradient",
    shape=_gradient_shape,
    push=_gradient_push,
    arity=3,
    outputs=3,
    tracked=(0, 1, 2),
    promote=(0, 1, 2),
    batch=_gradient_batch,
    sample=samples("affine_gradient"),
)
