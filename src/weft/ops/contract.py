"""Rows: sums of products over shared axes."""

import sys
from collections.abc import Sequence
from functools import lru_cache
from math import prod
from string import ascii_letters

import numpy as np

from ..core import dtypes
from ..core.aval import Aval, axis_in, broadcast
from ..core.op import Caller
from ..core.types import Array
from ..errors import ArgumentError, ShapeError
from .arrange import diagonal
from .batching import Stacked
from .batching_linalg import batch_matmul
from .complex_ import conj
from .rows import linear
from .samples import linalg as samples
from .structural import broadcast_to, mT, permute, reshape, sum_, unbroadcast


def adjoint(x: Array) -> Array:
    """The conjugate transpose of the matrices over the last two axes."""
    return conj(mT(x))


def _matmul_shape(a: Aval, b: Aval) -> Aval:
    shown = f"matmul: {a.shape} @ {b.shape}"
    if not a.ndim or not b.ndim:
        raise ShapeError(f"{shown}: an argument has no axes; scale with * instead")
    inner = b.shape[-2] if b.ndim > 1 else b.shape[0]
    if a.shape[-1] != inner:
        raise ShapeError(f"{shown}: {a.shape[-1]} ≠ {inner}")
    batch = broadcast(shown, a.shape[:-2], b.shape[:-2])
    rows = a.shape[-2:-1] if a.ndim > 1 else ()
    columns = b.shape[-1:] if b.ndim > 1 else ()
    return a.like((*batch, *rows, *columns), dtypes.promote(a.dtype, b.dtype))


def _row_shape(a) -> tuple[int, ...]:
    return a.shape if len(a.shape) > 1 else (1, *a.shape)


def _column_shape(b) -> tuple[int, ...]:
    return b.shape if len(b.shape) > 1 else (*b.shape, 1)


def _as_product(g, a, b):
    """The cotangent with the axes that vector arguments lack put back."""
    batch = g.shape[: len(g.shape) - (len(a.shape) > 1) - (len(b.shape) > 1)]
    return reshape(g, (*batch, _row_shape(a)[-2], _column_shape(b)[-1]))


def _stack_rows(x):
    """(…, m, n) as (…·m, n)."""
    return reshape(x, (prod(x.shape[:-1]), x.shape[-1]))


def _side_by_side(x):
    """(…, m, n) as (m, …·n)."""
    n = len(x.shape)
    x = permute(x, (n - 2, *range(n - 2), n - 1))
    return reshape(x, (x.shape[0], prod(x.shape[1:])))


# A matrix shared by a batch gets its cotangent from one product over the joined axes: the
# batch of outer products, which would only be summed, is never made.


def _matmul_left(g, a, b):
    if len(a.shape) == 2 == len(b.shape):
        return matmul(g, mT(b))
    g, b = _as_product(g, a, b), reshape(b, _column_shape(b))
    if len(a.shape) == 2 < len(b.shape):
        return matmul(_side_by_side(g), mT(_side_by_side(b)))
    c = unbroadcast(matmul(g, mT(b)), _row_shape(a))
    return reshape(c, a.shape)


def _matmul_right(g, a, b):
    if len(a.shape) == 2 == len(b.shape):
        return matmul(mT(a), g)
    g, a = _as_product(g, a, b), reshape(a, _row_shape(a))
    if len(b.shape) <= 2 < len(a.shape):
        c = matmul(mT(_stack_rows(a)), _stack_rows(g))
    else:
        c = unbroadcast(matmul(mT(a), g), _column_shape(b))
    return reshape(c, b.shape)


matmul: Caller = linear(
    "matmul",
    shape=_matmul_shape,
    transpose=[_matmul_left, _matmul_right],
    reads=("b", "a"),
    promote=(0, 1),
    precision="half",
    batch=batch_matmul,
    sample=samples("matmul"),
)


def _parse(subscripts: str) -> tuple[list[str], str]:
    terms, out = subscripts.split("->")
    return terms.split(","), out


def _sizes(terms, shapes, shown: str = "einsum") -> dict[str, int]:
    """The size of each label; a size of one stretches."""
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for label, n in zip(term, shape, strict=True):
            have = sizes.get(label, 1)
            if 1 != n != have != 1:
                raise ShapeError(f"{shown}: label {label}: {have} ≠ {n}")
            sizes[label] = n if have == 1 else have
    return sizes


def _einsum_shape(avals, subscripts: str) -> Aval:
    terms, out = _parse(subscripts)
    shapes = [a.shape for a in avals]
    shown = f"einsum: {subscripts!r} of {', '.join(map(str, shapes))}"
    if len(terms) != len(avals):
        raise ShapeError(f"{shown}: {len(terms)} terms for {len(avals)} arrays")
    for term, shape in zip(terms, shapes, strict=True):
        if len(term) != len(shape):
            raise ShapeError(f"{shown}: {term!r} names {len(term)} axes, {shape} has {len(shape)}")
        if len(set(term)) != len(term):
            raise ShapeError(f"{shown}: {term!r} repeats a label; take the diagonal first")
    sizes = _sizes(terms, shapes, shown)
    if not set(out) <= set(sizes) or len(set(out)) != len(out):
        raise ShapeError(f"{shown}: the result's labels must be distinct ones of the arguments")
    return avals[0].like([sizes[c] for c in out], dtypes.promote_all(a.dtype for a in avals))


def _einsum_transpose(g, i, args, subscripts):
    terms, out = _parse(subscripts)
    shape = args[i].shape
    others = [(t, a) for k, (t, a) in enumerate(zip(terms, args, strict=True)) if k != i]
    left = [out, *(t for t, _ in others)]
    sizes = _sizes(left, [g.shape, *(a.shape for _, a in others)])
    # An axis of size one that was stretched gets the sum; one that only the argument has, or
    # that only the argument has at full size, gets copies.
    kept = "".join(
        label
        for label, n in zip(terms[i], shape, strict=True)
        if label in sizes and (n != 1 or sizes[label] == 1)
    )
    c = contraction([g, *(a for _, a in others)], f"{','.join(left)}->{kept}")
    present = dict(zip(kept, c.shape, strict=True))
    c = reshape(c, tuple(present.get(label, 1) for label in terms[i]))
    return broadcast_to(c, shape) if tuple(c.shape) != tuple(shape) else c


def _einsum_batch(call, size, mapped, args, static):
    """The batch is one more label."""
    (subscripts,) = static
    terms, out = _parse(subscripts)
    label = next(c for c in ascii_letters if c not in subscripts)
    terms = [label + t if m else t for m, t in zip(mapped, terms, strict=True)]
    return call(args, f"{','.join(terms)}->{label}{out}")


contraction: Caller = linear(
    "einsum",
    shape=_einsum_shape,
    transpose=_einsum_transpose,
    precision="half",
    views="sometimes",
    batch=_einsum_batch,
    sample=samples("einsum"),
)


@lru_cache(maxsize=None)
def _explicit(subscripts: str, ranks: tuple[int, ...]) -> tuple[tuple[str, ...], str]:
    """The labels of each argument and of the result, ellipses and implied results spelt out."""
    text, arrow, out = subscripts.replace(" ", "").partition("->")
    terms = text.split(",")
    if len(terms) != len(ranks):
        raise ArgumentError(f"einsum: {subscripts!r} has {len(terms)} terms, not {len(ranks)}")
    free = [c for c in ascii_letters if c not in subscripts]
    spare = [rank - len(t.replace("...", "")) for t, rank in zip(terms, ranks, strict=True)]
    most = max([n for t, n in zip(terms, spare, strict=True) if "..." in t], default=0)
    dots = "".join(free[:most])
    for i, (term, n) in enumerate(zip(terms, spare, strict=True)):
        if n < 0 or (n and "..." not in term):
            raise ShapeError(f"einsum: {subscripts!r}: {term!r} for {ranks[i]} dimensions")
        terms[i] = term.replace("...", dots[most - n :])
    if not arrow:
        named = "".join(terms).translate(dict.fromkeys(map(ord, dots)))
        out = "..." + "".join(sorted(c for c in set(named) if named.count(c) == 1))
    out = out.replace("...", dots)
    if len(set(out)) < len(out) or not set(out) <= set("".join(terms)):
        raise ArgumentError(
            f"einsum: {subscripts!r}: the result's labels must be the arguments', each once"
        )
    if not set("".join(terms)) <= set(ascii_letters) or not set(dots) <= set(out):
        raise ArgumentError(
            f"einsum: {subscripts!r}: labels are letters, and an ellipsis of the arguments "
            "belongs in the result too"
        )
    return tuple(terms), out


@lru_cache(maxsize=None)
def _steps(terms: tuple[str, ...], out: str, shapes) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Which arguments to contract, in which order, with which subscripts."""
    if len(terms) < 3:
        return ((tuple(range(len(terms))), f"{','.join(terms)}->{out}"),)
    dummies = [np.broadcast_to(np.float32(0), s) for s in shapes]
    how = ("optimal" if len(terms) < 6 else "greedy", sys.maxsize)
    path = np.einsum_path(f"{','.join(terms)}->{out}", *dummies, optimize=how)[0][1:]
    left, steps = list(terms), []
    for positions in map(sorted, path):
        taken = [left[k] for k in positions]
        left = [t for k, t in enumerate(left) if k not in positions]
        needed = set(out).union(*left)
        result = "".join(dict.fromkeys(c for t in taken for c in t if c in needed))
        left.append(result if left else out)
        steps.append((tuple(positions), f"{','.join(taken)}->{left[-1]}"))
    return tuple(steps)


def _without_repeats(x, term: str):
    """Diagonals in place of repeated labels."""
    while len(set(term)) < len(term):
        label = next(c for c in term if term.count(c) > 1)
        i = term.index(label)
        j = term.index(label, i + 1)
        if x.shape[i] != x.shape[j]:
            raise ShapeError(f"einsum: label {label}: {x.shape[i]} ≠ {x.shape[j]}")
        x = diagonal(x, 0, i, j)
        term = "".join(c for k, c in enumerate(term) if k not in (i, j)) + label
    return x, term


def _sum_unused(x, term: str, needed):
    """x summed over the axes whose labels no other argument or result has."""
    axes = tuple(k for k, c in enumerate(term) if c not in needed)
    if axes:
        x, term = sum_(x, axes, False), "".join(c for c in term if c in needed)
    return x, term


def einsum(subscripts: str, *operands: Array) -> Array:
    """Sums of products by index labels, as in NumPy: `einsum("bij,bjk->bik", a, b)`."""
    terms, out = _explicit(subscripts, tuple(len(x.shape) for x in operands))
    pairs = [_without_repeats(x, t) for x, t in zip(operands, terms, strict=True)]
    for i, (x, term) in enumerate(pairs):
        others = "".join(t for k, (_, t) in enumerate(pairs) if k != i)
        pairs[i] = _sum_unused(x, term, out + others)
    arrays = [x for x, _ in pairs]
    if len(arrays) == 1:
        term = pairs[0][1]
        return permute(arrays[0], tuple(term.index(c) for c in out))
    shapes = tuple(tuple(x.shape) for x in arrays)
    for positions, step in _steps(tuple(t for _, t in pairs), out, shapes):
        y = contraction([arrays[k] for k in positions], step)
        arrays = [*(x for k, x in enumerate(arrays) if k not in positions), y]
    return arrays[0]


def tensordot(a: Array, b: Array, axes: int | Sequence[int | Sequence[int]] = 2) -> Array:
    """Sum over the last axes of a and the first of b, or over the pairs of axes named."""
    na, nb = len(a.shape), len(b.shape)
    if isinstance(axes, int):
        pair: Sequence[Sequence[int]] = (range(na - axes, na), range(axes))
    else:
        pair = [[k] if isinstance(k, int) else k for k in axes]
    first_axes, second_axes = pair
    left = [axis_in("tensordot", k, na) for k in first_axes]
    right = [axis_in("tensordot", k, nb) for k in second_axes]
    if [a.shape[k] for k in left] != [b.shape[k] for k in right]:
        raise ShapeError(f"tensordot: {tuple(a.shape)} and {tuple(b.shape)} over {left}, {right}")
    labels = ascii_letters[: na + nb]
    first, second = labels[:na], list(labels[na:])
    for i, j in zip(left, right, strict=True):
        second[j] = first[i]
    out = [c for c in first if c not in second] + [c for c in second if c not in first]
    return contraction([a, b], f"{first},{''.join(second)}->{''.join(out)}")


def outer(a: Array, b: Array) -> Array:
    """All products of an element of a with one of b; both are flattened."""
    return reshape(a, (prod(a.shape), 1)) * reshape(b, (1, prod(b.shape)))


def inner(a: Array, b: Array) -> Array:
    """Sums of products over the last axes."""
    if not a.shape or not b.shape:
        return a * b
    return tensordot(a, b, (-1, -1))


def dot(a: Array, b: Array) -> Array:
    """NumPy's dot: the last axis of a with the last but one of b."""
    if not a.shape or not b.shape:
        return a * b
    if len(b.shape) <= 2:
        return matmul(a, b)
    return tensordot(a, b, (-1, -2))


def vdot(a: Array, b: Array) -> Array:
    """The scalar product of the flattened arguments, the first conjugated."""
    return matmul(reshape(conj(a), (prod(a.shape),)), reshape(b, (prod(b.shape),)))


def vecdot(a: Array, b: Array, axis: int = -1) -> Array:
    """Scalar products along an axis, the first argument conjugated."""
    a, b = _axis_last("vecdot", a, axis), _axis_last("vecdot", b, axis)
    if a.shape[-1] != b.shape[-1]:
        raise ShapeError(f"vecdot: {tuple(a.shape)} and {tuple(b.shape)} along axis {axis}")
    return einsum("...i,...i->...", conj(a), b)


def _axis_last(name: str, x, axis: int):
    k, n = axis_in(name, axis, len(x.shape)), len(x.shape)
    return x if k == n - 1 else permute(x, (*range(k), *range(k + 1, n), k))


def kron(a: Array, b: Array) -> Array:
    """The Kronecker product."""
    n = max(len(a.shape), len(b.shape))
    rows = (*(1,) * (n - len(a.shape)), *a.shape)
    columns = (*(1,) * (n - len(b.shape)), *b.shape)
    a = reshape(a, tuple(k for m in rows for k in (m, 1)))
    b = reshape(b, tuple(k for m in columns for k in (1, m)))
    return reshape(a * b, tuple(r * c for r, c in zip(rows, columns, strict=True)))


def _cross_shape(a: Aval, b: Aval) -> Aval:
    if a.shape[-1:] != (3,) or b.shape[-1:] != (3,):
        raise ShapeError(f"cross: {a.shape} × {b.shape}: the vectors must have 3 elements")
    return a.like(broadcast("cross", a.shape, b.shape), dtypes.promote(a.dtype, b.dtype))


cross_last: Caller = linear(
    "cross",
    shape=_cross_shape,
    transpose=[
        lambda g, a, b: unbroadcast(cross_last(b, g), a.shape),
        lambda g, a, b: unbroadcast(cross_last(g, a), b.shape),
    ],
    reads=("b", "a"),
    promote=(0, 1),
    batch=Stacked((1, 1)),
    sample=samples("cross"),
)


def cross(a: Array, b: Array, axis: int = -1) -> Array:
    """The vector product along an axis of 3 elements."""
    y = cross_last(_axis_last("cross", a, axis), _axis_last("cross", b, axis))
    n = len(y.shape)
    k = axis_in("cross", axis, n)
    return y if k == n - 1 else permute(y, (*range(k), n - 1, *range(k, n - 1)))
