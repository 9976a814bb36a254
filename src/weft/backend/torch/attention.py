"""PyTorch's kernels of attention: which there are, and which is the quickest on a GPU."""

import math
from collections.abc import Callable
from typing import Any, Protocol

import torch

from .types import Array, Operand

_HALF = (torch.float16, torch.bfloat16)


class Kernels(Protocol):
    """Attention that gives the logarithms of the denominators; arrays are (batch, head, …)."""

    def forward(
        self, q: Array, k: Array, v: Array, causal: bool, scale: float
    ) -> tuple[Array, Array]: ...

    def backward(
        self,
        g: Array,
        q: Array,
        k: Array,
        v: Array,
        out: Array,
        lse: Array,
        causal: bool,
        scale: float,
    ) -> tuple[Array, ...]: ...


class _OnCPU:
    """PyTorch's own tiles on the CPU."""

    def forward(
        self, q: Array, k: Array, v: Array, causal: bool, scale: float
    ) -> tuple[Array, Array]:
        return _flash_on_cpu(q, k, v, 0.0, causal, scale=scale)

    def backward(
        self,
        g: Array,
        q: Array,
        k: Array,
        v: Array,
        out: Array,
        lse: Array,
        causal: bool,
        scale: float,
    ) -> tuple[Array, ...]:
        return _flash_on_cpu_backward(g, q, k, v, out, lse, 0.0, causal, scale=scale)


class _Flash:
    """FlashAttention, for half precision."""

    def forward(
        self, q: Array, k: Array, v: Array, causal: bool, scale: float
    ) -> tuple[Array, Array]:
        return _flash(q, k, v, 0.0, causal, scale=scale)[:2]

    def backward(
        self,
        g: Array,
        q: Array,
        k: Array,
        v: Array,
        out: Array,
        lse: Array,
        causal: bool,
        scale: float,
    ) -> tuple[Array, ...]:
        none = torch.empty((), dtype=torch.int64)
        lengths = (None, None, q.shape[2], k.shape[2])
        rest = (0.0, causal, none, none)
        return _flash_backward(g, q, k, v, out, lse, *lengths, *rest, scale=scale)


class _Cudnn:
    """cuDNN's kernels, for half precision; their logarithms have an axis more."""

    def forward(
        self, q: Array, k: Array, v: Array, causal: bool, scale: float
    ) -> tuple[Array, Array]:
        out, lse = _cudnn(q, k, v, None, True, 0.0, causal, False, scale=scale)[:2]
        return out, lse.reshape(out.shape[:3])

    def backward(
        self,
        g: Array,
        q: Array,
        k: Array,
        v: Array,
        out: Array,
        lse: Array,
        causal: bool,
        scale: float,
    ) -> tuple[Array, ...]:
        none = torch.empty((), dtype=torch.int64, device=q.device)
        lengths = (None, None, q.shape[2], k.shape[2])
        rest = (none, none, None, *lengths, 0.0, causal)
        return _cudnn_backward(g, q, k, v, out, lse.unsqueeze(-1), *rest, scale=scale)


class _Quickest:
    """The quicker of FlashAttention and cuDNN, which is found out once for each kind of call.

    A graph cannot be captured while something is timed; then it is the one that is known, or
    FlashAttention.
    """

    def forward(
        self, q: Array, k: Array, v: Array, causal: bool, scale: float
    ) -> tuple[Array, Array]:
        chosen = _choose("forward", q, k, v, causal, lambda x: x.forward(q, k, v, causal, scale))
        return chosen.forward(q, k, v, causal, scale)

    def backward(
        self,
        g: Array,
        q: Array,
        k: Array,
        v: Array,
        out: Array,
        lse: Array,
        causal: bool,
        scale: float,
    ) -> tuple[Array, ...]:
        given = (g, q, k, v, out, lse, causal, scale)
        chosen = _choose("backward", q, k, v, causal, lambda x: x.backward(*given))
        return chosen.backward(*given)


class _InSingle:
    """The memory-efficient kernels, for float32; they pad the logarithms to 32 queries."""

    def forward(
        self, q: Array, k: Array, v: Array, causal: bool, scale: float
    ) -> tuple[Array, Array]:
        out, lse, _, _ = _efficient(q, k, v, None, True, 0.0, causal, scale=scale)
        return out, lse[..., : q.shape[2]]

    def backward(
        self,
        g: Array,
        q: Array,
        k: Array,
        v: Array,
        out: Array,
        lse: Array,
        causal: bool,
        scale: float,
    ) -> tuple[Array, ...]:
        lse = torch.nn.functional.pad(lse, (0, -lse.shape[-1] % 32), value=math.inf)
        none = torch.empty((), dtype=torch.int64)
        rest = (none, none, 0.0, [True, True, True, False], causal)
        return _efficient_backward(g, q, k, v, None, out, lse, *rest, scale=scale)[:3]


_aten: Any = torch.ops.aten
_efficient = _aten._scaled_dot_product_efficient_attention
_efficient_backward = _aten._scaled_dot_product_efficient_attention_backward
_flash_on_cpu = _aten._scaled_dot_product_flash_attention_for_cpu
_flash_on_cpu_backward = _aten._scaled_dot_product_flash_attention_for_cpu_backward
_flash = _aten._scaled_dot_product_flash_attention
_flash_backward = _aten._scaled_dot_product_flash_attention_backward
_cudnn = _aten._scaled_dot_product_cudnn_attention
_cudnn_backward = _aten._scaled_dot_product_cudnn_attention_backward

_ON_CPU, _IN_SINGLE, _QUICKEST = _OnCPU(), _InSingle(), _Quickest()
_FLASH, _CUDNN = _Flash(), _Cudnn()
# By kind of call, what was the quickest.
_CHOSEN: dict[tuple[Any, ...], Kernels] = {}
# Arrays with fewer numbers are not worth timing, nor are times that differ by less than this share.
_SMALL, _CLEARLY = 1 << 18, 0.05
_WIDEST_OF_CUDNN = 128
_AHEAD = 4_000_000  # cycles, about two milliseconds


def _choose(
    what: str, q: Array, k: Array, v: Array, causal: bool, call: Callable[[Kernels], Any]
) -> Kernels:
    """The quickest kernels for a call."""
    if q.numel() < _SMALL or q.shape[-1] > _WIDEST_OF_CUDNN:
        return _FLASH
    shapes = tuple(q.shape), tuple(k.shape), q.stride(), k.stride(), v.stride()
    key = what, q.device, q.dtype, causal, *shapes
    if key not in _CHOSEN:
        if torch.cuda.is_current_stream_capturing():
            return _FLASH
        _CHOSEN[key] = _timed(call)
    return _CHOSEN[key]


def _timed(call: Callable[[Kernels], Any]) -> Kernels:
    times = [_time(call, kernels) for kernels in (_FLASH, _CUDNN)]
    return _CUDNN if times[1] < (1 - _CLEARLY) * times[0] else _FLASH


def _time(call: Callable[[Kernels], Any], kernels: Kernels) -> float:
    """The milliseconds of a call; infinite for kernels that refuse it.

    The GPU waits first, so that the host has launched all calls before they begin.
    """
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    try:
        call(kernels)
        torch.cuda._sleep(_AHEAD)
        marks[0].record()
        for _ in range(2):
            call(kernels)
        marks[1].record()
        marks[1].synchronize()
    except RuntimeError:
        return math.inf
    return marks[0].elapsed_time(marks[1])


def kernels_for(
    q: Array, k: Array, v: Array, mask: Operand, causal: bool, p: float
) -> Kernels | None:
    """PyTorch's kernels for a call; None for what they do not take."""
    queries, keys, values = q.shape, k.shape, v.shape
    plain = not p and not isinstance(mask, torch.Tensor)
    if not plain or not (q.numel() and k.numel()):
        return None
    if not queries == keys == values:
        if not queries[:-3] == keys[:-3] == values[:-3] or queries[-1] != values[-1]:
            return None
    if q.is_cpu:
        return _ON_CPU
    if not q.is_cuda or (causal and queries[-2] != keys[-2]):
        return None  # torch aligns the causal diagonal otherwise
    width = queries[-1]
    if q.dtype == torch.float32:
        return _IN_SINGLE if width % 4 == 0 else None
    if q.dtype not in _HALF or width % 8 or width > 256:
        return None
    return _FLASH if torch.are_deterministic_algorithms_enabled() else _QUICKEST
