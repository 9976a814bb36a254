"""The blocks of Flux: double ones with a stream of image and of text, single ones with one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import weft as wf
from weft.nn import functional as F

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from .making import Layers

EPS = 1e-6
MLP_RATIO = 4
_LARGEST = 65504.0  # of float16


def modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """The layer norm of x, then x·(1 + scale) + shift."""
    return F.layer_norm(x, (x.shape[-1],), None, None, EPS) * (1 + scale) + shift


def _clip_half(x: Tensor) -> Tensor:
    """x, in float16 without infinities: sums of residuals go beyond its largest number."""
    return wf.clip(x, -_LARGEST, _LARGEST) if x.dtype == wf.float16 else x


class Modulation(wf.nn.Module):
    """Shifts, scales and gates, each (batch, 1, width), from the vector of the conditioning."""

    def __init__(self, layers: Layers, width: int, parts: int):
        super().__init__()
        self.linear = layers.linear(width, parts * width)
        self.parts = parts

    def forward(self, vector: Tensor) -> list[Tensor]:
        y = self.linear(F.silu(vector))
        y = y.reshape(y.shape[0], 1, self.parts, y.shape[-1] // self.parts)
        return [y[:, :, i] for i in range(self.parts)]


class GELUProjection(wf.nn.Module):
    """gelu(W·x + b) by its tanh formula."""

    def __init__(self, layers: Layers, width: int, hidden: int):
        super().__init__()
        self.proj = layers.linear(width, hidden)

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(self.proj(x), approximate="tanh")


class FeedForward(wf.nn.Module):
    """W₂·gelu(W₁·x + b₁) + b₂, of four times the width inside."""

    def __init__(self, layers: Layers, width: int):
        super().__init__()
        hidden = MLP_RATIO * width
        up, down = GELUProjection(layers, width, hidden), layers.linear(hidden, width)
        # The second place is that of a dropout which the models do not use.
        self.net = wf.nn.Sequential(up, wf.nn.Identity(), down)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


def _split_heads(x: Tensor, head: int) -> Tensor:
    """(batch, tokens, width) as (batch, heads, tokens, head)."""
    return x.reshape(*x.shape[:2], -1, head).swapaxes(1, 2)


def _turn(x: Tensor, table: Tensor) -> Tensor:
    """Neighbouring features turned by the angles of their position, in float32."""
    return F.rotate(x.to("float32"), table, interleaved=True).to(x.dtype)


def _attend(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
    """What the queries find, the heads side by side: (batch, tokens, width)."""
    y = F.scaled_dot_product_attention(_turn(q, table), _turn(k, table), v).swapaxes(1, 2)
    return y.reshape(*y.shape[:2], -1)


class Attention(wf.nn.Module):
    """Attention over the positions of one stream, without a projection of what it finds."""

    def __init__(self, layers: Layers, width: int, head: int):
        super().__init__()
        self.head = head
        self.norm_q, self.norm_k = layers.rms_norm(head), layers.rms_norm(head)
        self.to_q, self.to_k, self.to_v = (layers.linear(width, width) for _ in range(3))

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        q, k, v = (_split_heads(to(x), self.head) for to in (self.to_q, self.to_k, self.to_v))
        return _attend(self.norm_q(q), self.norm_k(k), v, table)


class JointAttention(wf.nn.Module):
    """Attention over the positions of text and image together, each with its own projections."""

    def __init__(self, layers: Layers, width: int, head: int):
        super().__init__()
        self.head = head
        self.norm_q, self.norm_k = layers.rms_norm(head), layers.rms_norm(head)
        self.to_q, self.to_k, self.to_v = (layers.linear(width, width) for _ in range(3))
        # The second place is that of a dropout which the models do not use.
        self.to_out = wf.nn.ModuleList([layers.linear(width, width), wf.nn.Identity()])
        self.norm_added_q, self.norm_added_k = layers.rms_norm(head), layers.rms_norm(head)
        self.add_q_proj, self.add_k_proj = (layers.linear(width, width) for _ in range(2))
        self.add_v_proj, self.to_add_out = (layers.linear(width, width) for _ in range(2))

    def forward(self, x: Tensor, context: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v = (_split_heads(to(x), self.head) for to in (self.to_q, self.to_k, self.to_v))
        to_context = self.add_q_proj, self.add_k_proj, self.add_v_proj
        q_c, k_c, v_c = (_split_heads(to(context), self.head) for to in to_context)
        q = wf.concat([self.norm_added_q(q_c), self.norm_q(q)], axis=2)
        k = wf.concat([self.norm_added_k(k_c), self.norm_k(k)], axis=2)
        y, count = _attend(q, k, wf.concat([v_c, v], axis=2), table), context.shape[1]
        return self.to_out[0](y[:, count:]), self.to_add_out(y[:, :count])


class DoubleBlock(wf.nn.Module):
    """Attention of image and text together, then a feed-forward network for each."""

    def __init__(self, layers: Layers, width: int, head: int):
        super().__init__()
        self.norm1 = Modulation(layers, width, 6)
        self.norm1_context = Modulation(layers, width, 6)
        self.attn = JointAttention(layers, width, head)
        self.ff = FeedForward(layers, width)
        self.ff_context = FeedForward(layers, width)

    def forward(
        self, x: Tensor, context: Tensor, vector: Tensor, table: Tensor
    ) -> tuple[Tensor, Tensor]:
        shift, scale, gate, *rest = self.norm1(vector)
        shift_c, scale_c, gate_c, *rest_c = self.norm1_context(vector)
        y, y_c = self.attn(modulate(x, shift, scale), modulate(context, shift_c, scale_c), table)
        x = _add_mlp(x + gate * y, self.ff, *rest)
        return x, _clip_half(_add_mlp(context + gate_c * y_c, self.ff_context, *rest_c))


def _add_mlp(x: Tensor, ff: FeedForward, shift: Tensor, scale: Tensor, gate: Tensor) -> Tensor:
    return x + gate * ff(modulate(x, shift, scale))


class SingleBlock(wf.nn.Module):
    """Attention and a feed-forward network side by side, on text and image in one stream."""

    def __init__(self, layers: Layers, width: int, head: int):
        super().__init__()
        hidden = MLP_RATIO * width
        self.norm = Modulation(layers, width, 3)
        self.proj_mlp = layers.linear(width, hidden)
        self.proj_out = layers.linear(width + hidden, width)
        self.attn = Attention(layers, width, head)

    def forward(self, x: Tensor, vector: Tensor, table: Tensor) -> Tensor:
        shift, scale, gate = self.norm(vector)
        h = modulate(x, shift, scale)
        mlp = F.gelu(self.proj_mlp(h), approximate="tanh")
        both = wf.concat([self.attn(h, table), mlp], axis=2)
        return _clip_half(x + gate * self.proj_out(both))
