"""The layers of transformers."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Literal

from . import functional as F
from .attention import MultiheadAttention
from .containers import ModuleList
from .dropout import Dropout
from .linear import Linear
from .making import one_of, probability, sizes
from .module import Module
from .normalization import LayerNorm

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from ..arrays.types import ArrayLike, Device, DTypeLike

    Activation = Callable[[Tensor], Tensor]

_ACTIVATIONS: dict[str, Activation] = {"relu": F.relu, "gelu": F.gelu}


class TransformerBlock(Module):
    """Self-attention, then two linear maps with an activation between, each added to its input.

    d_model, nhead   the width, and the number of heads that divide it
    dim_feedforward  the width between the linear maps
    dropout          of weights, of what is between the maps and of what is added, in training
    activation       "relu", "gelu", a function or a module
    layer_norm_eps   the eps of the normalisations
    batch_first      tensors are (N, L, E) and not (L, N, E)
    norm_first       normalise before the attention and the maps, and not after the sums
    bias             whether there are biases
    device, dtype    of the parameters
    is_causal        token t sees the tokens 0 to t

    Also called `TransformerEncoderLayer`, whose names of parameters it has.

    >>> import weft as wf
    >>> block = wf.nn.TransformerBlock(8, 2, 16, batch_first=True, is_causal=True)
    >>> block(wf.ones((3, 5, 8))).shape
    (3, 5, 8)
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Literal["relu", "gelu"] | Activation = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Device | None = None,
        dtype: DTypeLike | None = None,
        is_causal: bool = False,
    ):
        super().__init__()
        name = "TransformerBlock"
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        sizes(name, d_model=d_model, nhead=nhead, dim_feedforward=dim_feedforward)
        probability(name, dropout)
        options: dict[str, Any] = {"bias": bias, "batch_first": batch_first, **made}
        self.self_attn: MultiheadAttention = MultiheadAttention(d_model, nhead, dropout, **options)
        self.linear1: Linear = Linear(d_model, dim_feedforward, bias, **made)
        self.dropout: Dropout = Dropout(dropout)
        self.linear2: Linear = Linear(dim_feedforward, d_model, bias, **made)
        self.norm1: LayerNorm = LayerNorm(d_model, layer_norm_eps, bias=bias, **made)
        self.norm2: LayerNorm = LayerNorm(d_model, layer_norm_eps, bias=bias, **made)
        self.dropout1: Dropout = Dropout(dropout)
        self.dropout2: Dropout = Dropout(dropout)
        if isinstance(activation, str):
            activation = _ACTIVATIONS[one_of(name, "activation", activation, tuple(_ACTIVATIONS))]
        self.activation: Activation = activation
        self.norm_first = norm_first
        self.is_causal = is_causal

    def forward(
        self,
        src: Tensor,
        src_mask: ArrayLike | None = None,
        src_key_padding_mask: ArrayLike | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """The block applied to (L, N, E), (N, L, E) or (L, E); the masks are the attention's.

        is_causal: as said when the block was made, if it is None.
        """
        causal = self.is_causal if is_causal is None else is_causal
        masks = src_mask, src_key_padding_mask, causal
        if self.norm_first:
            x = src + self._attend(self.norm1(src), *masks)
            return x + self._feed_forward(self.norm2(x))
        x = self.norm1(src + self._attend(src, *masks))
        return self.norm2(x + self._feed_forward(x))

    def _attend(
        self, x: Tensor, mask: ArrayLike | None, padding: ArrayLike | None, causal: bool
    ) -> Tensor:
        options: dict[str, Any] = {
            "attn_mask": mask,
            "key_padding_mask": padding,
            "is_causal": causal,
        }
        return self.dropout1(self.self_attn(x, x, x, need_weights=False, **options)[0])

    def _feed_forward(self, x: Tensor) -> Tensor:
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))


TransformerEncoderLayer = TransformerBlock


class TransformerEncoder(Module):
    """`num_layers` copies of a block one after the other, and a last normalisation if given.

    encoder_layer  the block that is copied
    num_layers     how many copies
    norm           a module for the result, or None

    >>> import weft as wf
    >>> block = wf.nn.TransformerBlock(8, 2, 16, batch_first=True)
    >>> wf.nn.TransformerEncoder(block, 2)(wf.ones((3, 5, 8))).shape
    (3, 5, 8)
    """

    def __init__(self, encoder_layer: Module, num_layers: int, norm: Module | None = None):
        super().__init__()
        sizes("TransformerEncoder", num_layers=num_layers)
        self.layers: ModuleList = ModuleList(deepcopy(encoder_layer) for _ in range(num_layers))
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        src: Tensor,
        mask: ArrayLike | None = None,
        src_key_padding_mask: ArrayLike | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """The blocks applied to an input; the arguments are theirs."""
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, is_causal)
        return src if self.norm is None else self.norm(src)
