"""Attention with several heads."""

from __future__ import annotations

from math import inf, sqrt
from typing import TYPE_CHECKING, Any

from .. import errors
from ..arrays.arguments import as_tensor, boxed_beside
from ..arrays.make import arange, zeros
from ..arrays.manipulation import split
from ..core import dtypes
from ..ops.contract import matmul
from ..ops.elementwise import where
from ..ops.logic import logical_and, logical_not
from ..ops.structural import broadcast_to, cast, concat, mT, permute, reshape
from . import functional as F
from . import init
from .linear import Linear
from .making import parameter, probability, sizes
from .module import Module

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from ..arrays.types import ArrayLike, Device, DTypeLike


class MultiheadAttention(Module):
    """softmax(q·kᵀ/√d)·v in `num_heads` subspaces of width d, put together by a linear map.

    embed_dim      the width of queries and of the result
    num_heads      how many subspaces; d is embed_dim/num_heads
    dropout        of the weights, in training
    bias           whether projections have biases
    add_bias_kv    one more key and value, which are trained
    add_zero_attn  one more key and value, which are zero
    kdim, vdim     the widths of keys and values; None: embed_dim
    batch_first    tensors are (N, L, E) and not (L, N, E)
    device, dtype  of the parameters

    >>> import weft as wf
    >>> attention = wf.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = wf.ones((3, 5, 8))
    >>> y, weights = attention(x, x, x)
    >>> assert weights is not None
    >>> y.shape, weights.shape
    ((3, 5, 8), (3, 5, 5))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Device | None = None,
        dtype: DTypeLike | None = None,
    ):
        super().__init__()
        sizes("MultiheadAttention", embed_dim=embed_dim, num_heads=num_heads)
        if embed_dim % num_heads:
            raise errors.ArgumentError(
                f"MultiheadAttention: embed_dim={embed_dim} in {num_heads} heads; num_heads must "
                "divide embed_dim"
            )
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.kdim: int = embed_dim if kdim is None else kdim
        self.vdim: int = embed_dim if vdim is None else vdim
        self.dropout: float = probability("MultiheadAttention", dropout)
        self.add_zero_attn = add_zero_attn
        self.batch_first = batch_first
        self._make_projections(bias, add_bias_kv, device, dtype)
        self.out_proj: Linear = Linear(embed_dim, embed_dim, bias, device, dtype)
        self.reset_parameters()

    def _make_projections(
        self, bias: bool, add_bias_kv: bool, device: Device | None, dtype: DTypeLike | None
    ) -> None:
        """One matrix for queries, keys and values, or three where they have other widths."""
        e = self.embed_dim
        one = self.kdim == self.vdim == e
        shapes: dict[str, Any] = {"in_proj_weight": (3 * e, e) if one else None}
        for name, width in (("q", e), ("k", self.kdim), ("v", self.vdim)):
            shapes[f"{name}_proj_weight"] = None if one else (e, width)
        shapes["in_proj_bias"] = (3 * e,) if bias else None
        shapes["bias_k"] = shapes["bias_v"] = (1, 1, e) if add_bias_kv else None
        for name, shape in shapes.items():
            made = None if shape is None else parameter(shape, device, dtype)
            self.register_parameter(name, made)

    def reset_parameters(self) -> None:
        """Draw new values: Glorot's for projections, 0 for their biases.

        >>> import weft as wf
        >>> attention = wf.nn.MultiheadAttention(8, 2)
        >>> attention.reset_parameters()
        >>> wf.max(wf.abs(attention.in_proj_bias)).item()
        0.0
        """
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            if getattr(self, name) is not None:
                init.xavier_uniform_(getattr(self, name))
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                init.zeros_(bias)
        if self.bias_k is not None:
            init.xavier_normal_(self.bias_k)
            init.xavier_normal_(self.bias_v)

    def forward(
        self,
        query: ArrayLike,
        key: ArrayLike,
        value: ArrayLike,
        key_padding_mask: ArrayLike | None = None,
        need_weights: bool = True,
        attn_mask: ArrayLike | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The attended values, and the weights (or None).

        key_padding_mask      (N, S): True for keys that are not seen, or numbers to be added
        attn_mask             (L, S) or (N·heads, L, S), likewise
        need_weights          return the weights, for which all of them are stored
        average_attn_weights  their mean over the heads, and not each
        is_causal             query l sees the keys 0 to l; beside an `attn_mask`, which must then
                              say so, it has no effect
        """
        q, k, v = as_tensor(query), as_tensor(key), as_tensor(value)
        alone = q.ndim == 2
        self._check(q, k, v)
        same = q is k is v
        q, k, v = (self._batch_first(x, alone) for x in (q, k, v))
        n, length, source = q.shape[0], q.shape[1], k.shape[1]
        causal = is_causal and attn_mask is None
        mask = self._mask(q, key_padding_mask, attn_mask, (n, length, source), alone)
        if causal and (mask is not None or need_weights or self._extra):
            mask = _merge_masks(q, mask, _before(q, length, source))
            causal = False
        q, k, v = self._project(q, q if same else k, q if same else v)
        k, v, mask = self._extend(k, v, mask)
        q, k, v = (_heads_first(x, self.num_heads) for x in (q, k, v))
        p = self.dropout if self.training else 0.0
        if need_weights:
            weights = F.dropout(_weights(q, k, mask), p)
            y = matmul(weights, v)
            weights = weights.mean(1) if average_attn_weights else weights
        else:
            y, weights = F.scaled_dot_product_attention(q, k, v, mask, p, causal), None
        y = self.out_proj(reshape(permute(y, (0, 2, 1, 3)), (n, length, self.embed_dim)))
        if alone:
            return y[0], None if weights is None else weights[0]
        return (y if self.batch_first else permute(y, (1, 0, 2))), weights

    @property
    def _extra(self) -> int:
        """How many keys are appended to the caller's."""
        return int(self.bias_k is not None) + int(self.add_zero_attn)

    def _check(self, q, k, v) -> None:
        widths = (self.embed_dim, self.kdim, self.vdim)
        fits = len({x.ndim for x in (q, k, v)} | {2, 3}) == 2 and k.shape[:-1] == v.shape[:-1]
        if not fits or tuple(x.shape[-1] for x in (q, k, v)) != widths:
            order = "(N, L, …)" if self.batch_first else "(L, N, …)"
            raise errors.ShapeError(
                f"MultiheadAttention: query {q.shape}, key {k.shape}, value {v.shape}; expected "
                f"{order} or (L, …) of the widths {widths}, keys and values of one length"
            )

    def _batch_first(self, x, alone: bool):
        if alone:
            return reshape(x, (1, *x.shape))
        return x if self.batch_first else permute(x, (1, 0, 2))

    def _mask(self, q, padding, mask, sizes: tuple[int, int, int], alone: bool):
        """Both masks as one that broadcasts to (N, heads, L, S); True or 0: attend to the key."""
        n, length, source = sizes
        found = None
        if mask is not None:
            mask = boxed_beside(q, mask)
            shapes = {2: (length, source), 3: (n * self.num_heads, length, source)}
            if mask.shape != shapes.get(mask.ndim):
                raise errors.ShapeError(
                    f"MultiheadAttention: attn_mask of shape {mask.shape}, expected {shapes[2]} or "
                    f"{shapes[3]}"
                )
            lead = (1, 1) if mask.ndim == 2 else (n, self.num_heads)
            found = _merge_masks(q, None, _visible_keys(q, reshape(mask, (*lead, length, source))))
        if padding is not None:
            padding = boxed_beside(q, padding)
            if padding.shape != ((source,) if alone else (n, source)):
                raise errors.ShapeError(
                    f"MultiheadAttention: key_padding_mask of shape {padding.shape}, expected "
                    f"{(source,) if alone else (n, source)}"
                )
            found = _merge_masks(q, found, _visible_keys(q, reshape(padding, (n, 1, 1, source))))
        return found

    def _project(self, q, k, v):
        e, bias = self.embed_dim, self.in_proj_bias
        if self.in_proj_weight is not None and q is k is v:
            return split(F.linear(q, self.in_proj_weight, bias), 3, axis=-1)
        if self.in_proj_weight is None:
            weights = [self.q_proj_weight, self.k_proj_weight, self.v_proj_weight]
        else:
            weights = [self.in_proj_weight[i * e : (i + 1) * e] for i in range(3)]
        biases = [None if bias is None else bias[i * e : (i + 1) * e] for i in range(3)]
        return [F.linear(*parts) for parts in zip((q, k, v), weights, biases, strict=True)]

    def _extend(self, k, v, mask):
        """Keys and values with the trained and the zero ones appended."""
        n, e = k.shape[0], self.embed_dim
        if self.bias_k is not None:
            k = concat([k, broadcast_to(self.bias_k, (n, 1, e))], 1)
            v = concat([v, broadcast_to(self.bias_v, (n, 1, e))], 1)
        if self.add_zero_attn:
            none = zeros((n, 1, e), dtype=k.dtype, device=k.device)
            k, v = concat([k, none], 1), concat([v, none], 1)
        if mask is not None and self._extra:
            seen = mask.dtype == dtypes.bool_
            mask = F.pad(mask, (0, self._extra), value=True if seen else 0.0)
        return k, v, mask

    def extra_repr(self) -> str:
        return f"{self.embed_dim}, {self.num_heads}, batch_first={self.batch_first}"


def _heads_first(x, heads: int):
    n, length, width = x.shape
    return permute(reshape(x, (n, length, heads, width // heads)), (0, 2, 1, 3))


def _before(q, length: int, source: int):
    """Whether key s is not after query l."""
    rows, columns = (arange(m, device=q.device) for m in (length, source))
    return reshape(rows, (length, 1)) >= columns


def _visible_keys(q, mask):
    """A mask in which True means attend to the key; numbers stay as they are."""
    return logical_not(mask) if mask.dtype == dtypes.bool_ else cast(mask, q.dtype)


def _merge_masks(q, a, b):
    """Two masks as one: booleans if both are."""
    if a is None or b is None:
        return b if a is None else a
    if a.dtype == b.dtype == dtypes.bool_:
        return logical_and(a, b)
    a, b = (where(m, 0.0, -inf) if m.dtype == dtypes.bool_ else m for m in (a, b))
    return cast(a + b, q.dtype)


def _weights(q, k, mask):
    scores = matmul(q * (1 / sqrt(q.shape[-1])), mT(k))
    if mask is not None:
        is_bool = mask.dtype == dtypes.bool_
        scores = where(mask, scores, -inf) if is_bool else scores + mask
    return F.softmax(scores, -1)
