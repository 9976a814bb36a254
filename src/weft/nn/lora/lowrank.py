"""Low-rank adapters of linear layers (Hu et al. 2021), and with magnitudes (Liu et al. 2024)."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any, Self

from ... import errors
from ...arrays.inplace import copy_
from ...arrays.reductions import norm
from ...core import dtypes
from ...ops.contract import matmul
from ...ops.structural import cast
from ...transform.modes.backward import no_grad
from .. import functional as F
from .. import init
from ..linear import Linear
from ..making import sizes
from .adapted import AdaptedLinear, BaseLayer

if TYPE_CHECKING:
    from ...arrays.parameter import Parameter
    from ...arrays.tensor import Tensor
    from ...arrays.types import Device, DTypeLike


def base_or_linear(
    what: str,
    in_features: int,
    out_features: int,
    bias: bool,
    base: BaseLayer | None,
    device: Device | None,
    dtype: DTypeLike | None,
) -> BaseLayer:
    """The given layer, whose widths have to be these, or a new one."""
    sizes(what, in_features=in_features, out_features=out_features)
    if base is None:
        return Linear(in_features, out_features, bias, device, dtype)
    if (base.out_features, base.in_features) != (out_features, in_features):
        raise errors.ShapeError(
            f"{what}: a base whose weight is {(base.out_features, base.in_features)}, expected "
            f"{(out_features, in_features)}"
        )
    return base


class LoRALinear(AdaptedLinear):
    """x·Wᵀ + b + (alpha/rank)·(dropout(x)·Aᵀ)·Bᵀ: W and b stay as they are, A and B are trained.

    in_features, out_features  the width before and after
    rank, alpha                the rows of A, and the strength of the update
    dropout                    of what goes into A, in training
    bias                       whether there is a b
    base                       a `Linear` whose parameters are taken, or another layer of a
                               linear map, such as one of 8 bits; else a new `Linear` is made
    device, dtype              of W and b

    `lora_A` (rank, in) and `lora_B` (out, rank) are float32 whatever the base is, or float64 on a
    float64 base; A begins as the weight of a `Linear` does and B with zeros, so that the layer is
    its base at first.

    >>> import weft as wf
    >>> layer = wf.nn.LoRALinear(8, 4, rank=2, alpha=4.0)
    >>> [name for name, p in layer.named_parameters() if p.requires_grad]
    ['lora_A', 'lora_B']
    """

    kind = "lora"
    lora_A: Parameter
    lora_B: Parameter

    def __init__(
        self,
        in_features: int,
        out_features: int,
        rank: int = 8,
        alpha: float = 16.0,
        dropout: float = 0.0,
        bias: bool = True,
        base: BaseLayer | None = None,
        device: Device | None = None,
        dtype: DTypeLike | None = None,
    ):
        what = type(self).__name__
        base = base_or_linear(what, in_features, out_features, bias, base, device, dtype)
        super().__init__(base, rank, alpha, dropout)
        self._add_adapters(**self._shapes())
        self.reset_lora_parameters()

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {
            "lora_A": (self.rank, self.in_features),
            "lora_B": (self.out_features, self.rank),
        }

    @classmethod
    def from_linear(
        cls, linear: Any, rank: int = 8, alpha: float = 16.0, dropout: float = 0.0
    ) -> Self:
        """An adapter around a layer, whose own parameters it takes and freezes.

        linear                the layer
        rank, alpha, dropout  as of the class

        >>> import weft as wf
        >>> base = wf.nn.Linear(8, 4)
        >>> layer = wf.nn.LoRALinear.from_linear(base, rank=2)
        >>> layer.lora_A.shape, layer.lora_B.shape, base.weight.requires_grad
        ((2, 8), (4, 2), False)
        """
        made = cls(linear.in_features, linear.out_features, rank, alpha, dropout, base=linear)
        return made.train(linear.training)

    def reset_lora_parameters(self) -> None:
        """Draw a new A, and set B to 0.

        >>> import weft as wf
        >>> layer = wf.nn.LoRALinear(2, 1, rank=1)
        >>> layer.reset_lora_parameters()
        >>> layer.lora_B.tolist()
        [[0.0]]
        """
        bound = 1 / sqrt(self.in_features)
        init.uniform_(self.lora_A, -bound, bound)
        init.zeros_(self.lora_B)

    def _output(self, x: Tensor) -> Tensor:
        y = self._base_output(x)
        own = cast(F.dropout(x, self.dropout, self.training), self.lora_A.dtype)
        update = F.linear(F.linear(own, self.lora_A), self.lora_B) * self.scaling
        return y + cast(update, y.dtype)

    def _updated_weight(self, weight: Tensor, scaling: float, *given: Tensor) -> Tensor:
        update = matmul(given[1], given[0]) * scaling
        wide = dtypes.promote(weight.dtype, update.dtype)
        return cast(weight, wide) + cast(update, wide)


def row_norms(weight: Tensor) -> Tensor:
    """The Euclidean norms of the rows; 1 for a row of zeros, which then stays one."""
    norms = norm(weight, axis=-1)
    return norms + cast(norms == 0, norms.dtype)


class DoRALinear(LoRALinear):
    """m·(W + (alpha/rank)·B·A)/‖W + (alpha/rank)·B·A‖ of x, + b: the norms are of rows.

    in_features, out_features  the width before and after
    rank, alpha                the rows of A, and the strength of the update
    dropout                    of what the update is computed from, in training
    bias                       whether there is a b
    base                       a `Linear` whose parameters are taken, or another layer of a
                               linear map that has `dense_weight()`; else a new one is made
    device, dtype              of W and b

    The magnitudes m (`lora_magnitude_vector`) begin as the norms of W's rows: adapt a layer after
    its weight is loaded. The norm is a constant to gradients, as the paper (section 4.3) and PEFT
    have it. With dropout, x·Wᵀ enters the update for the x that dropout left.

    >>> import weft as wf
    >>> layer = wf.nn.DoRALinear(8, 4, rank=2)
    >>> [(name, p.shape) for name, p in layer.lora_parameters()]
    [('lora_A', (2, 8)), ('lora_B', (4, 2)), ('lora_magnitude_vector', (4,))]
    """

    kind = "dora"
    lora_magnitude_vector: Parameter

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return super()._shapes() | {"lora_magnitude_vector": (self.out_features,)}

    def reset_lora_parameters(self) -> None:
        """Draw a new A, set B to 0 and the magnitudes to the norms of the weight's rows.

        >>> import weft as wf
        >>> layer = wf.nn.DoRALinear(2, 1, rank=1)
        >>> layer.reset_lora_parameters()
        >>> wf.allclose(layer.lora_magnitude_vector, (layer.weight**2).sum(-1) ** 0.5)
        True
        """
        super().reset_lora_parameters()
        m = self.lora_magnitude_vector
        with no_grad():
            copy_(m, norm(cast(self.base_weight(), m.dtype), axis=-1))

    def _norms(self, weight: Tensor) -> Tensor:
        a, b = self.lora_A.detach(), self.lora_B.detach()
        return row_norms(super()._updated_weight(weight, self.scaling, a, b)).detach()

    def _output(self, x: Tensor) -> Tensor:
        y, bias = self._base_output(x), self._base_bias()
        own = cast(x, self.lora_A.dtype)
        weight = cast(self._dense_weight(), own.dtype)
        factor = self.lora_magnitude_vector / self._norms(weight.detach())
        if self.training and self.dropout:
            own = F.dropout(own, self.dropout)
            base = F.linear(own, weight)
        else:
            base = y if bias is None else y - cast(bias, y.dtype)
        update = F.linear(F.linear(own, self.lora_A), self.lora_B) * self.scaling
        change = (factor - 1.0) * cast(base, factor.dtype) + factor * cast(update, factor.dtype)
        wide = dtypes.promote(y.dtype, change.dtype)
        return cast(cast(y, wide) + cast(change, wide), y.dtype)

    def _updated_weight(self, weight: Tensor, scaling: float, *given: Tensor) -> Tensor:
        sum_ = super()._updated_weight(weight, scaling, *given[:2])
        factor = cast(given[2], sum_.dtype) / row_norms(sum_)
        return factor.reshape((-1, 1)) * sum_
