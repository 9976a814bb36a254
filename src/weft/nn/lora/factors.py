"""The factors of an update as arrays: scaling, padding, stacking and splitting them by rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import nan, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.record import record

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


@record(eq=False)
class LowRank:
    """(alpha/rank)·b·a; with magnitudes, the rows of the weight's sum with it have these norms."""

    a: Array  # (rank, in)
    b: Array  # (out, rank)
    alpha: float
    magnitude: Array | None = None  # (out,)

    @property
    def kind(self) -> str:
        return "lora" if self.magnitude is None else "dora"

    @property
    def rank(self) -> int:
        return self.a.shape[0]

    @property
    def shape(self) -> tuple[int, int]:
        return self.b.shape[0], self.a.shape[1]

    @property
    def scale(self) -> float:
        return self.alpha / self.rank

    def norm(self) -> float:
        """The Frobenius norm of the update, by the small matrices bᵀ·b and a·aᵀ."""
        if self.magnitude is not None and not np.isfinite(self.magnitude).all():
            return nan
        a, b = self.a.astype(np.float64), self.b.astype(np.float64)
        with np.errstate(all="ignore"):  # what is not finite is told by the result
            square = float(np.sum((b.T @ b) * (a @ a.T)))
        return abs(self.scale) * (square if square != square else sqrt(max(square, 0.0)))

    def folded(self, scale: float = 1.0) -> LowRank:
        """The same update with alpha/rank = `scale`: b takes the rest."""
        b = self.b if self.scale == scale else self.b * self.b.dtype.type(self.scale / scale)
        return LowRank(self.a, b, scale * self.rank, self.magnitude)

    def padded(self, rank: int) -> LowRank:
        """The same update of a larger rank: rows of a and columns of b that are 0."""
        more = rank - self.rank
        a, b = np.pad(self.a, ((0, more), (0, 0))), np.pad(self.b, ((0, 0), (0, more)))
        return LowRank(a, b, self.scale * rank, self.magnitude)

    def swapped(self) -> LowRank:
        """The halves of the output exchanged."""
        m = self.magnitude
        return LowRank(self.a, _swap(self.b), self.alpha, None if m is None else _swap(m))


@record(eq=False)
class Kronecker:
    """scale·w1 ⊗ w2, w2 perhaps the product of two factors."""

    w1: Array
    w2: tuple[Array, ...]  # one, or w2_a and w2_b
    scale: float = 1.0

    kind = "lokr"
    magnitude = None

    @property
    def rank(self) -> int | None:
        return None if len(self.w2) == 1 else self.w2[0].shape[1]

    @property
    def alpha(self) -> float:
        return self.scale * (self.rank or 1)

    @property
    def rows(self) -> tuple[int, int]:
        return self.w1.shape[0], self.w2[0].shape[0]

    @property
    def columns(self) -> tuple[int, int]:
        return self.w1.shape[1], self.w2[-1].shape[1]

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows[0] * self.rows[1], self.columns[0] * self.columns[1]

    def norm(self) -> float:
        """The Frobenius norm of the update: the product of the factors' norms."""
        second = _norm(self.w2[0])
        if self.rank is not None:
            second = LowRank(self.w2[1], self.w2[0], self.rank).norm()
        return abs(self.scale) * _norm(self.w1) * second

    def folded(self, scale: float = 1.0) -> Kronecker:
        """The same update with this scale: w1 takes the rest."""
        factor = self.w1.dtype.type(self.scale / scale)
        return Kronecker(self.w1 if factor == 1 else self.w1 * factor, self.w2, scale)


Factors = LowRank | Kronecker


def _norm(x: Array) -> float:
    return float(np.linalg.norm(x.astype(np.float64)))


def _swap(x: Array) -> Array:
    half = x.shape[0] // 2
    return np.concatenate((x[half:], x[:half]))


def stack(parts: Sequence[LowRank | None], rows: Sequence[int]) -> LowRank:
    """One update of layers stacked by rows: the a's above each other, b block-diagonal.

    Each part takes the same number of columns of b, so that a reader finds the blocks.
    """
    given = [p for p in parts if p is not None]
    rank, width, dtype = max(p.rank for p in given), given[0].shape[1], given[0].a.dtype
    a = np.zeros((rank * len(parts), width), dtype)
    b = np.zeros((sum(rows), rank * len(parts)), dtype)
    top = 0
    for k, (part, height) in enumerate(zip(parts, rows, strict=True)):
        if part is not None:
            p = part.folded()
            a[k * rank : k * rank + p.rank] = p.a
            b[top : top + height, k * rank : k * rank + p.rank] = p.b
        top += height
    m = [p.magnitude for p in given if p.magnitude is not None]
    return LowRank(a, b, float(a.shape[0]), np.concatenate(m) if m else None)


def split(whole: LowRank, rows: Sequence[int]) -> list[LowRank | None]:
    """The updates of layers that are stacked by rows; None of one that stays as it is.

    A block-diagonal b has a part of a for each; else each has all of a.
    """
    edges = list(pairwise(np.cumsum([0, *rows])))
    blocks = [whole.b[i:j] for i, j in edges]
    m = whole.magnitude
    norms = [None if m is None else m[i:j] for i, j in edges]
    rank, rest = divmod(whole.rank, len(rows))
    columns = [slice(k * rank, (k + 1) * rank) for k in range(len(rows))]
    inside = [np.count_nonzero(b[:, c]) for b, c in zip(blocks, columns, strict=True)]
    if rest or inside != [np.count_nonzero(b) for b in blocks]:
        return [LowRank(whole.a, b, whole.alpha, n) for b, n in zip(blocks, norms, strict=True)]
    return [
        _trim(LowRank(whole.a[c], b[:, c], whole.scale * rank, n))
        for b, c, n in zip(blocks, columns, norms, strict=True)
    ]


def _trim(f: LowRank) -> LowRank | None:
    """Without the rows of a and columns of b that are both 0; None where nothing is left."""
    used = np.any(f.a != 0, 1) | np.any(f.b != 0, 0)
    if f.magnitude is not None and not used.any():
        used[0] = True  # magnitudes alone change the layer
    count = int(used.sum())
    return LowRank(f.a[used], f.b[:, used], f.scale * count, f.magnitude) if count else None


def split_rows(whole: Kronecker, rows: Sequence[int]) -> list[Kronecker] | None:
    """The updates of layers that are stacked by rows; None where they are no Kronecker products.

    Rows of a Kronecker product are one where they begin and end with rows of w1.
    """
    edges, block = np.cumsum([0, *rows]), whole.rows[1]
    if any(e % block for e in edges):
        return None
    cuts = [e // block for e in edges]
    return [Kronecker(whole.w1[i:j], whole.w2, whole.scale) for i, j in pairwise(cuts)]
