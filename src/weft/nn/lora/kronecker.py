"""Kronecker adapters of linear layers: LoKr (Yeh et al. 2023), as LyCORIS has it."""

from __future__ import annotations

from math import sqrt
from numbers import Integral
from typing import TYPE_CHECKING, Any, Self

from ... import errors
from ...arrays.linalg import kron
from ...core import dtypes
from ...ops.contract import matmul
from ...ops.structural import cast, reshape
from .. import functional as F
from .. import init
from .adapted import AdaptedLinear, BaseLayer
from .lowrank import base_or_linear

if TYPE_CHECKING:
    from ...arrays.parameter import Parameter
    from ...arrays.tensor import Tensor
    from ...arrays.types import Device, DTypeLike


def factorize(width: int, factor: int = -1) -> tuple[int, int]:
    """Two factors m ≤ n of a width, as LyCORIS chooses them.

    They are `factor` and its cofactor where it divides; else the largest divisor below it, or,
    for −1, the first one from √width on, and its cofactor.
    """
    if factor > 0 and width % factor == 0:
        return min(factor, width // factor), max(factor, width // factor)
    m, n = 1, width
    while m < n:
        k = next(k for k in range(m + 1, width + 1) if width % k == 0)
        if 0 < factor < k:
            break
        m, n = k, width // k
    return min(m, n), max(m, n)


class LoKrLinear(AdaptedLinear):
    """x·Wᵀ + b + s·dropout(x)·(w₁ ⊗ w₂)ᵀ: W and b stay as they are, w₁ and w₂ are trained.

    in_features, out_features  the width before and after
    rank, alpha                w₂ = w₂ₐ·w₂ᵦ of this rank, and s = alpha/rank. A rank of at least
                               half of w₂'s larger side leaves w₂ whole, and then s = 1
    dropout                    of what goes into the update, in training
    factor                     the size of w₁; −1: both widths are split most evenly
    bias                       whether there is a b
    base                       a `Linear` whose parameters are taken, or another layer of a
                               linear map; else a new `Linear` is made
    device, dtype              of W and b

    w₁ and w₂ₐ begin uniform in ±1/√columns, w₂ᵦ (or w₂) with zeros, as in LyCORIS.

    >>> import weft as wf
    >>> layer = wf.nn.LoKrLinear(64, 32, rank=2)
    >>> [(name, p.shape) for name, p in layer.lora_parameters()]
    [('lokr_w1', (4, 8)), ('lokr_w2_a', (8, 2)), ('lokr_w2_b', (2, 8))]
    """

    kind = "lokr"
    lokr_w1: Parameter

    def __init__(
        self,
        in_features: int,
        out_features: int,
        rank: int = 8,
        alpha: float = 16.0,
        dropout: float = 0.0,
        factor: int = -1,
        bias: bool = True,
        base: BaseLayer | None = None,
        device: Device | None = None,
        dtype: DTypeLike | None = None,
    ):
        base = base_or_linear("LoKrLinear", in_features, out_features, bias, base, device, dtype)
        super().__init__(base, rank, alpha, dropout)
        if not isinstance(factor, Integral) or factor == 0 or factor < -1:
            raise errors.ArgumentError(
                f"LoKrLinear: factor={factor!r}, expected an integer of 1 or more, or -1"
            )
        rows, columns = factorize(out_features, factor), factorize(in_features, factor)
        self._make(rows, columns, whole=rank >= max(rows[1], columns[1]) / 2)

    def _make(self, rows: tuple[int, int], columns: tuple[int, int], whole: bool) -> None:
        """Make the parameters: w₁ (rows[0], columns[0]) and w₂ (rows[1], columns[1])."""
        self._columns = columns
        shapes = {"lokr_w1": (rows[0], columns[0])}
        if whole:
            shapes["lokr_w2"] = (rows[1], columns[1])
        else:
            shapes |= {"lokr_w2_a": (rows[1], self.rank), "lokr_w2_b": (self.rank, columns[1])}
        self._add_adapters(**shapes)
        self.reset_lora_parameters()

    @classmethod
    def from_linear(
        cls,
        linear: Any,
        rank: int = 8,
        alpha: float = 16.0,
        dropout: float = 0.0,
        factor: int = -1,
    ) -> Self:
        """An adapter around a layer, whose own parameters it takes and freezes.

        linear                        the layer
        rank, alpha, dropout, factor  as of the class

        >>> import weft as wf
        >>> layer = wf.nn.LoKrLinear.from_linear(wf.nn.Linear(8, 4), rank=2)
        >>> layer.lokr_w1.shape, layer.lokr_w2.shape
        ((2, 2), (2, 4))
        """
        widths = linear.in_features, linear.out_features
        made = cls(*widths, rank, alpha, dropout, factor, base=linear)
        return made.train(linear.training)

    @classmethod
    def with_shapes(
        cls,
        linear: Any,
        rows: tuple[int, int],
        columns: tuple[int, int],
        rank: int | None,
        alpha: float,
    ) -> Self:
        """An adapter around a layer whose w₁ is (rows[0], columns[0]), w₂ (rows[1], columns[1]).

        linear         the layer
        rows, columns  the factors of its widths
        rank           of w₂; None: w₂ is whole
        alpha          as of the class

        >>> import weft as wf
        >>> layer = wf.nn.LoKrLinear.with_shapes(wf.nn.Linear(8, 4), (4, 1), (2, 4), None, 1.0)
        >>> layer.lokr_w1.shape, layer.lokr_w2.shape
        ((4, 2), (1, 4))
        """
        made = cls.__new__(cls)
        AdaptedLinear.__init__(made, linear, 1 if rank is None else rank, alpha, 0.0)
        made._make(rows, columns, whole=rank is None)
        return made.train(linear.training)

    @property
    def scaling(self) -> float:
        """The factor of the update: alpha/rank, or 1 where w₂ is whole."""
        return 1.0 if "lokr_w2" in self.adapters else self.alpha / self.rank

    def reset_lora_parameters(self) -> None:
        """Draw a new w₁ and w₂ₐ, and set w₂ᵦ, or a whole w₂, to 0.

        >>> import weft as wf
        >>> layer = wf.nn.LoKrLinear(4, 4)
        >>> layer.reset_lora_parameters()
        >>> layer.lokr_w2.tolist()
        [[0.0, 0.0], [0.0, 0.0]]
        """
        *drawn, last = self.adapters
        for name in drawn:
            p = getattr(self, name)
            bound = 1 / sqrt(p.shape[1])
            init.uniform_(p, -bound, bound)
        init.zeros_(getattr(self, last))

    def _output(self, x: Tensor) -> Tensor:
        """The product with the Kronecker product, which is never made: w₁·X·w₂ᵀ, X of x's rows."""
        y = self._base_output(x)
        w1, *w2 = (getattr(self, n) for n in self.adapters)
        own = cast(F.dropout(x, self.dropout, self.training), w1.dtype)
        out = reshape(own, (*x.shape[:-1], *self._columns))
        for w in reversed(w2):
            out = F.linear(out, w)
        out = F.linear(out.mT, w1).mT
        update = reshape(out, (*x.shape[:-1], self.out_features)) * self.scaling
        return y + cast(update, y.dtype)

    def _updated_weight(self, weight: Tensor, scaling: float, *given: Tensor) -> Tensor:
        w1, *w2 = given
        update = kron(w1, w2[0] if len(w2) == 1 else matmul(*w2)) * scaling
        wide = dtypes.promote(weight.dtype, update.dtype)
        return cast(weight, wide) + cast(update, wide)
