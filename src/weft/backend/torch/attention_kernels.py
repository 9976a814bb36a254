"""PyTorch's kernels of attention, each with one way to be called."""

import math
from typing import Any, Protocol

import torch

from ...core.record import record
from .types import Array

_aten: Any = torch.ops.aten


@record(eq=False)
class Scores:
    """What determines the scores and what they mix: arrays are (batch, heads, length, width).

    k, v    may have fewer heads, each for a group of the queries'
    bias    numbers to be added to the scores, (batch or 1, heads or 1, queries or 1, keys); None
            for none. They are finite, lie key by key, and rows start at multiples of 16 numbers
    causal  whether a query sees the keys up to its own position only
    """

    q: Array
    k: Array
    v: Array
    bias: Array | None
    causal: bool
    scale: float

    @property
    def heads_per_group(self) -> int:
        return self.q.shape[1] // self.k.shape[1]

    def whole_bias(self) -> Array | None:
        """The bias for each pair of a query and a key, without a copy."""
        if self.bias is None:
            return None
        return self.bias.expand(*self.q.shape[:3], self.k.shape[2])

    def spread(self) -> tuple[Array, Array]:
        """Keys and values with as many heads as the queries.

        Copies: heads that lie upon each other gave wrong results in some of PyTorch's versions
        (its issue 191937).
        """
        n = self.heads_per_group
        if n == 1:
            return self.k, self.v
        return self.k.repeat_interleave(n, 1), self.v.repeat_interleave(n, 1)

    def gather(self, dq: Array, dk: Array, dv: Array) -> tuple[Array, ...]:
        """Cotangents, those of keys and values summed over the copies that a group's heads got."""
        n = self.heads_per_group
        if n == 1:
            return dq, dk, dv
        return (dq, *(d.unflatten(1, (-1, n)).sum(2) for d in (dk, dv)))


class Kernels(Protocol):
    """Attention that gives the logarithms of the denominators: (batch, heads, queries)."""

    name: str

    def forward(self, s: Scores) -> tuple[Array, Array]: ...

    def backward(self, s: Scores, g: Array, out: Array, lse: Array) -> tuple[Array, ...]: ...


class _OnCPU:
    """PyTorch's own tiles on the CPU."""

    name = "tiles"

    def forward(self, s: Scores) -> tuple[Array, Array]:
        k, v = s.spread()
        mask = s.whole_bias()
        return _flash_on_cpu(s.q, k, v, 0.0, s.causal, attn_mask=mask, scale=s.scale)

    def backward(self, s: Scores, g: Array, out: Array, lse: Array) -> tuple[Array, ...]:
        k, v = s.spread()
        rest = (0.0, s.causal)
        mask = s.whole_bias()
        made = _flash_on_cpu_backward(g, s.q, k, v, out, lse, *rest, attn_mask=mask, scale=s.scale)
        return s.gather(*made)


class _Flash:
    """FlashAttention, for half precision and without a bias."""

    name = "flash"

    def forward(self, s: Scores) -> tuple[Array, Array]:
        return _flash(s.q, s.k, s.v, 0.0, s.causal, scale=s.scale)[:2]

    def backward(self, s: Scores, g: Array, out: Array, lse: Array) -> tuple[Array, ...]:
        none = torch.empty((), dtype=torch.int64)
        lengths = (None, None, s.q.shape[2], s.k.shape[2])
        rest = (0.0, s.causal, none, none)
        return _flash_backward(g, s.q, s.k, s.v, out, lse, *lengths, *rest, scale=s.scale)


class _Cudnn:
    """cuDNN's kernels, for half precision.

    In some of PyTorch's versions their logarithms have a last axis of length 1; backwards they are
    passed as they came.
    """

    name = "cuDNN"

    def __init__(self) -> None:
        self._axes = 4

    def forward(self, s: Scores) -> tuple[Array, Array]:
        given = (s.q, s.k, s.v, s.bias, True, 0.0, s.causal, False)
        out, lse = _cudnn(*given, scale=s.scale)[:2]
        self._axes = lse.ndim
        return out, lse.reshape(out.shape[:3])

    def backward(self, s: Scores, g: Array, out: Array, lse: Array) -> tuple[Array, ...]:
        none = torch.empty((), dtype=torch.int64, device=s.q.device)
        lengths = (None, None, s.q.shape[2], s.k.shape[2])
        lse = lse.unsqueeze(-1) if self._axes == 4 else lse
        rest = (none, none, s.bias, *lengths, 0.0, s.causal)
        return _cudnn_backward(g, s.q, s.k, s.v, out, lse, *rest, scale=s.scale)


class _Efficient:
    """The memory-efficient kernels; they pad the logarithms to 32 queries."""

    name = "efficient"

    def forward(self, s: Scores) -> tuple[Array, Array]:
        k, v = s.spread()
        out, lse = _efficient(s.q, k, v, s.whole_bias(), True, 0.0, s.causal, scale=s.scale)[:2]
        return out, lse[..., : s.q.shape[2]]

    def backward(self, s: Scores, g: Array, out: Array, lse: Array) -> tuple[Array, ...]:
        k, v = s.spread()
        lse = torch.nn.functional.pad(lse, (0, -lse.shape[-1] % 32), value=math.inf)
        # They read a result as if all heads of a position were side by side.
        out = out.transpose(1, 2).contiguous().transpose(1, 2)
        none = torch.empty((), dtype=torch.int64)
        rest = (none, none, 0.0, [True, True, True, False], s.causal)
        made = _efficient_backward(g, s.q, k, v, s.whole_bias(), out, lse, *rest, scale=s.scale)
        return s.gather(*made[:3])


_efficient = _aten._scaled_dot_product_efficient_attention
_efficient_backward = _aten._scaled_dot_product_efficient_attention_backward
_flash_on_cpu = _aten._scaled_dot_product_flash_attention_for_cpu
_flash_on_cpu_backward = _aten._scaled_dot_product_flash_attention_for_cpu_backward
_flash = _aten._scaled_dot_product_flash_attention
_flash_backward = _aten._scaled_dot_product_flash_attention_backward
_cudnn = _aten._scaled_dot_product_cudnn_attention
_cudnn_backward = _aten._scaled_dot_product_cudnn_attention_backward

ON_CPU: Kernels = _OnCPU()
FLASH: Kernels = _Flash()
CUDNN: Kernels = _Cudnn()
EFFICIENT: Kernels = _Efficient()
