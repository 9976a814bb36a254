"""Attention by PyTorch's kernels: by the quickest one that takes a call."""

import math
from collections.abc import Callable
from typing import Any

import torch

from .attention_kernels import CUDNN, EFFICIENT, FLASH, ON_CPU, Kernels, Scores
from .attention_masks import Mask, converted, is_taken
from .types import Array, Operand

_HALF = (torch.float16, torch.bfloat16)
# By kind of call, what was the quickest; None if all kernels refused it.
_CHOSEN: dict[tuple[Any, ...], Kernels | None] = {}
# Arrays with fewer numbers are not worth timing, nor are times that differ by less than this share.
_SMALL, _CLEARLY = 1 << 18, 0.05
_WIDEST_OF_CUDNN = 128
_LOADED = 16  # bytes
_AHEAD = 4_000_000  # cycles, about two milliseconds


def attend(
    q: Array, k: Array, v: Array, mask: Operand, causal: bool, scale: float, p: float
) -> tuple[Array, Array] | None:
    """The result and the logarithms of the denominators; None for what the kernels do not take."""
    if not _takes(q, k, v, mask, causal, p):
        return None
    scores, masked = _prepare(q, k, v, mask, causal, scale)
    kernels = _choose("forward", scores, (), lambda x: x.forward(scores))
    if kernels is None:
        return None
    out, lse = kernels.forward(scores)
    if masked is not None:
        out, lse = masked.finish(out, lse)
    if q.ndim == 4:
        return out, lse
    lead = q.shape[:-3]
    return out.reshape((*lead, *out.shape[1:])), lse.reshape((*lead, *lse.shape[1:]))


def attend_gradient(
    g: Array,
    out: Array,
    lse: Array,
    q: Array,
    k: Array,
    v: Array,
    mask: Operand,
    causal: bool,
    scale: float,
    p: float,
) -> tuple[Array, ...] | None:
    """The cotangents of queries, keys and values; None for what the kernels do not take."""
    taken = _takes(q, k, v, mask, causal, p)
    if not taken or g.shape != out.shape or out.shape[:-3] != q.shape[:-3]:
        return None
    scores, masked = _prepare(q, k, v, mask, causal, scale)
    lse = lse if lse.ndim == 3 else lse.reshape((-1, *lse.shape[-2:]))
    lse = lse.contiguous().to(torch.float32 if q.dtype in _HALF else q.dtype)
    lse = lse if masked is None else masked.start_backward(lse)
    given = (_laid_out(g), _laid_out(out), lse)
    kernels = _choose("backward", scores, given, lambda x: x.backward(scores, *given))
    if kernels is None:
        return None
    found = zip(kernels.backward(scores, *given), (q, k, v), strict=True)
    return tuple([d if d.ndim == x.ndim else d.reshape(x.shape) for d, x in found])


def _laid_out(x: Array) -> Array:
    """x with four axes, and laid out so that the kernels can read it.

    PyTorch's own function looks at strides before it chooses a kernel. Those that are called here
    read rows as if they were in one piece, on a GPU by 16 bytes at a time; there heads that lie
    upon each other gave wrong results, too (see `Scores.spread`).
    """
    x = x if x.ndim == 4 else x.reshape((-1, *x.shape[-3:]))
    if x.stride(-1) == 1 and (x.is_cpu or _is_loadable(x)):
        return x
    return x.clone(memory_format=torch.contiguous_format)


def _is_loadable(x: Array) -> bool:
    step = _LOADED // x.element_size()
    lead = zip(x.shape[:-1], x.stride()[:-1], strict=True)
    return x.data_ptr() % _LOADED == 0 and all([n == 1 or (s and s % step == 0) for n, s in lead])


def _prepare(
    q: Array, k: Array, v: Array, mask: Operand, causal: bool, scale: float
) -> tuple[Scores, Mask | None]:
    masked = None
    if isinstance(mask, torch.Tensor):
        masked = converted(mask, q, k.shape[-2], q.shape[:-3])
    bias = None if masked is None else masked.bias
    return Scores(_laid_out(q), _laid_out(k), _laid_out(v), bias, causal, scale), masked


def _takes(q: Array, k: Array, v: Array, mask: Operand, causal: bool, p: float) -> bool:
    """Whether there are kernels for such a call, as far as that is known without trying."""
    queries, keys, values = q.shape, k.shape, v.shape
    if p or not (q.numel() and k.numel()):
        return False
    if not queries == keys == values:
        if not queries[:-3] == keys[:-3] == values[:-3] or queries[-1] != values[-1]:
            return False
    if isinstance(mask, torch.Tensor) and (causal or not is_taken(mask, q, queries[:-3])):
        return False
    if q.is_cpu:
        return True
    if not q.is_cuda or (causal and queries[-2] != keys[-2]):
        return False  # torch aligns the causal diagonal otherwise
    width = queries[-1]
    if q.dtype == torch.float32:
        return width % 4 == 0
    return q.dtype in _HALF and width % 8 == 0 and width <= 256


def _candidates(s: Scores) -> tuple[Kernels, ...]:
    """The kernels that may take a call; the first is the one that is not timed."""
    if s.q.is_cpu:
        return (ON_CPU,)
    if s.q.dtype not in _HALF:
        return (EFFICIENT,)
    first = FLASH if s.bias is None else EFFICIENT
    # In deterministic mode PyTorch makes those two repeat their bits.
    if torch.are_deterministic_algorithms_enabled() or s.q.shape[-1] > _WIDEST_OF_CUDNN:
        return (first,)
    return (first, CUDNN)


def _choose(
    what: str, s: Scores, given: tuple[Array, ...], call: Callable[[Kernels], Any]
) -> Kernels | None:
    """The quickest kernels for a call, which is found out once for each kind; None if all refuse.

    A graph cannot be captured while something is timed; then it is the one that is known, or the
    first.
    """
    candidates = _candidates(s)
    if s.q.is_cpu:
        return candidates[0]
    arrays = [x for x in (s.q, s.k, s.v, s.bias, *given) if x is not None]
    layout = tuple([(tuple(x.shape), x.stride()) for x in arrays])
    key = (what, s.q.device, s.q.dtype, s.causal, s.bias is None, candidates, layout)
    if key not in _CHOSEN:
        if torch.cuda.is_current_stream_capturing():
            return candidates[0]
        _CHOSEN[key] = _quickest(candidates, call, s.q.numel() >= _SMALL)
    return _CHOSEN[key]


def _quickest(
    candidates: tuple[Kernels, ...], call: Callable[[Kernels], Any], timed: bool
) -> Kernels | None:
    """The quickest of the kernels that take a call; the first of them if that is not timed."""
    able = next((k for k, kernels in enumerate(candidates) if _accept(kernels, call)), None)
    if able is None:
        return None
    first, *others = candidates[able:]
    if not timed or not others:
        return first
    best, least = first, _time(call, first)
    for kernels in others:
        time = _time(call, kernels)
        if time < (1 - _CLEARLY) * least:
            best, least = kernels, time
    return best


def _accept(kernels: Kernels, call: Callable[[Kernels], Any]) -> bool:
    try:
        call(kernels)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:
        return False
    return True


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
