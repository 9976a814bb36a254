"""torch's convolutions under the rows' names, with padding that may differ at the two ends."""

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import torch
from torch.nn import functional

from ..shared.window_sizes import counts_of, kernel_of, size_of
from .types import Array, Function, Padding, Sizes

_FORWARD = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
_TRANSPOSED = {
    1: functional.conv_transpose1d,
    2: functional.conv_transpose2d,
    3: functional.conv_transpose3d,
}
_backward = torch.ops.aten.convolution_backward.default
_HALF = (torch.float16, torch.bfloat16)


def in_float32(kernel: Function) -> Function:
    """A kernel that computes half precision in float32 on the CPU, as the GPU does inside."""

    def compute(*args):
        arrays = [a for a in args if isinstance(a, torch.Tensor)]
        dtype = arrays[0].dtype
        if dtype not in _HALF or arrays[0].is_cuda:
            return kernel(*args)
        args = [a.float() if isinstance(a, torch.Tensor) else a for a in args]
        return kernel(*args).to(dtype)

    return compute  # type: ignore[return-value]


def _as_matmul(kernel: Function) -> Function:
    """A kernel that rounds float32 on the GPU as products of matrices do.

    PyTorch ships with TF32 (10 bits) for convolutions and without for matrices; here one switch,
    `torch.set_float32_matmul_precision`, is for both.
    """

    def compute(x, *rest):
        if not x.is_cuda or x.dtype is not torch.float32:
            return kernel(x, *rest)
        coarse = torch.get_float32_matmul_precision() != "highest"
        cudnn = torch.backends.cudnn
        if cudnn.allow_tf32 is coarse:
            return kernel(x, *rest)
        with cudnn.flags(None, None, None, None, allow_tf32=coarse):  # pyright: ignore[reportArgumentType] (None: as it is)
            return kernel(x, *rest)

    return compute  # type: ignore[return-value]


def _bilinear(kernel: Function) -> Function:
    """A product of real arrays for complex ones, and for half precision."""
    real = in_float32(_as_matmul(kernel))

    def compute(a, b, *how):
        if a.is_cuda and a.dtype in _HALF:
            return kernel(a, b, *how)
        if not a.is_complex() and not b.is_complex():
            return real(a, b, *how)
        if not a.is_complex():
            return torch.complex(real(a, b.real, *how), real(a, b.imag, *how))
        if not b.is_complex():
            return torch.complex(real(a.real, b, *how), real(a.imag, b, *how))
        one, other = real(a.real, b.real, *how), real(a.imag, b.imag, *how)
        across = real(a.real, b.imag, *how) + real(a.imag, b.real, *how)
        return torch.complex(one - other, across)

    return compute  # type: ignore[return-value]


def pad(x: Array, padding: Sequence[tuple[int, int]], value: float = 0.0) -> Array:
    """x with (before, after) elements more, or fewer, on its last axes."""
    if not any([a or b for a, b in padding]):
        return x
    flat = [n for pair in reversed(padding) for n in pair]
    return functional.pad(x, flat, value=value)


def _split(
    x: Array, kernel: Sizes, stride: Sizes, padding: Padding, dilation: Sizes
) -> tuple[Array, list[int]]:
    """x and the padding that torch's kernels add on both sides of it.

    They leave out what no whole window reaches: the padding at the end may be less than they add.
    """
    sides = _sides(x.shape[2:], tuple(kernel), stride, padding, dilation)
    return (pad(x, padding), [0] * len(padding)) if sides is None else (x, sides)


@lru_cache(maxsize=1024)
def _sides(
    size: Sizes, kernel: Sizes, stride: Sizes, padding: Padding, dilation: Sizes
) -> list[int] | None:
    """The padding that torch's kernels are to add on both sides; None: they have none like it."""
    sides = []
    for n, k, s, (a, b), d in zip(size, kernel, stride, padding, dilation, strict=True):
        spare = n - d * (k - 1) - 1
        if a < 0 or (a != b and (spare + 2 * a) // s != (spare + a + b) // s):
            return None
        sides.append(a)
    return sides


@lru_cache(maxsize=1024)
def _even_sides(
    x: torch.Size, w: torch.Size, stride: Sizes, padding: Padding, dilation: Sizes
) -> list[int] | None:
    """`_sides` for arrays of these shapes; None for empty ones, too."""
    if not prod(x) or not prod(w):
        return None
    return _sides(x[2:], w[2:], stride, padding, dilation)


def _laid_out(*arrays: Array, groups: int) -> tuple[Array, ...]:
    """Images and weights with the channels last in memory where a GPU's kernels want them so.

    Tensor cores multiply rows of channels: of arrays that lie otherwise, the library transposes the
    operands and the result of every convolution. What follows keeps the order of the result.
    """
    x = arrays[0]
    if not x.is_cuda or groups > 1 or x.dtype not in _HALF or x.ndim != 4:
        return arrays
    return tuple([v.contiguous(memory_format=torch.channels_last) for v in arrays])


def _check(x: Array, padding: Padding, groups: int) -> None:
    if x.ndim != len(padding) + 2 or groups < 1:
        raise ValueError("the number of axes does not fit")  # the row's shape rule says how


@_bilinear
def convolution(
    x: Array, w: Array, stride: Sizes, padding: Padding, dilation: Sizes, groups: int
) -> Array:
    _check(x, padding, groups)
    sides = _even_sides(x.shape, w.shape, stride, padding, dilation)
    if not sides:
        if not x.numel() or not w.numel():
            counts = counts_of(x.shape[2:], w.shape[2:], stride, padding, dilation)
            return x.new_zeros((x.shape[0], w.shape[0], *counts))
        x, sides = pad(x, padding), [0] * len(padding)
    x, w = _laid_out(x, w, groups=groups)
    return _FORWARD[len(stride)](x, w, None, stride, sides, dilation, groups)


def convolution_biased(
    x: Array, w: Array, b: Array, stride: Sizes, padding: Padding, dilation: Sizes, groups: int
) -> Array:
    y = convolution(x, w, stride, padding, dilation, groups)
    return y + b.reshape(-1, *(1,) * len(stride))


@_bilinear
def convolution_transposed(
    y: Array, w: Array, stride: Sizes, padding: Padding, dilation: Sizes, groups: int
) -> Array:
    _check(y, padding, groups)
    if not y.numel() or not w.numel():
        size = size_of(y.shape[2:], w.shape[2:], stride, padding, dilation)
        return y.new_zeros((y.shape[0], w.shape[1] * groups, *size))
    y, w = _laid_out(y, w, groups=groups)
    more = [a - b for a, b in padding]  # at the end, which torch cuts as much as at the start
    pairs = zip(padding, more, stride, dilation, strict=True)
    if all([a >= 0 <= m < max(s, d) for (a, _), m, s, d in pairs]):
        sides = [a for a, _ in padding]
        return _TRANSPOSED[len(stride)](y, w, None, stride, sides, more, groups, dilation)
    x = _TRANSPOSED[len(stride)](y, w, None, stride, 0, 0, groups, dilation)
    return pad(x, [(-a, -b) for a, b in padding])


@_bilinear
def convolution_weight(
    x: Array, y: Array, stride: Sizes, padding: Padding, dilation: Sizes, groups: int
) -> Array:
    _check(x, padding, groups)
    kernel = kernel_of(x.shape[2:], y.shape[2:], stride, padding, dilation)
    shape = (y.shape[1], x.shape[1] // groups, *kernel)
    if not x.numel() or not y.numel():
        return x.new_zeros(shape)
    x, y = _laid_out(x, y, groups=groups)
    x, sides = _split(x, kernel, stride, padding, dilation)
    like = x.new_empty(1).expand(shape)  # of which ATen reads the shape only
    nothing, mask = [0] * len(stride), (False, True, False)
    how = (stride, sides, dilation, False, nothing, groups, mask)
    return _backward(y, x, like, None, *how)[1].contiguous()


def convolution_gradient(
    g: Array, x: Array, w: Array, stride: Sizes, padding: Padding, dilation: Sizes, groups: int
) -> tuple[Array, Array]:
    """The cotangents of x and w, by one call where x needs no padding beforehand."""
    how = stride, padding, dilation, groups
    _check(x, padding, groups)
    sides = _even_sides(x.shape, w.shape, stride, padding, dilation)
    if sides and not (g.is_complex() or x.is_complex() or w.is_complex()):
        return _gradients(g, x, w, stride, sides, dilation, groups)
    return convolution_transposed(g, w, *how), convolution_weight(x, g, *how)


def _both(
    g: Array, x: Array, w: Array, stride: Sizes, sides: list[int], dilation: Sizes, groups: int
) -> tuple[Array, Array]:
    g, x, w = _laid_out(g, x, w, groups=groups)
    nothing, mask = [0] * len(stride), (True, True, False)
    how = (stride, sides, dilation, False, nothing, groups, mask)
    dx, dw, _ = _backward(g, x, w, None, *how)
    return dx, dw.contiguous()


_exact_both = _as_matmul(_both)


def _gradients(g: Array, x: Array, w: Array, *how: Any) -> tuple[Array, Array]:
    """`_both` in half precision as `in_float32` has it, in float32 as `_as_matmul` has it."""
    dtype = g.dtype
    if dtype not in _HALF:
        return _exact_both(g, x, w, *how)
    if g.is_cuda:
        return _both(g, x, w, *how)
    dx, dw = _both(g.float(), x.float(), w.float(), *how)
    return dx.to(dtype), dw.to(dtype)
