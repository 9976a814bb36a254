"""torch's convolutions under the rows' names, with padding that may differ at the two ends."""

from typing import Any

import torch
from torch.nn import functional, grad

from ..shared.window_sizes import counts_of, kernel_of, size_of

_FORWARD = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
_TRANSPOSED = {
    1: functional.conv_transpose1d,
    2: functional.conv_transpose2d,
    3: functional.conv_transpose3d,
}
_WEIGHT = {1: grad.conv1d_weight, 2: grad.conv2d_weight, 3: grad.conv3d_weight}
_HALF = (torch.float16, torch.bfloat16)


def widened(kernel):
    """A kernel that computes half precision in float32 on the CPU, as the GPU does inside."""

    def compute(*args):
        arrays = [a for a in args if isinstance(a, torch.Tensor)]
        dtype = arrays[0].dtype
        if dtype not in _HALF or arrays[0].is_cuda:
            return kernel(*args)
        args = [a.float() if isinstance(a, torch.Tensor) else a for a in args]
        return kernel(*args).to(dtype)

    return compute


def _as_matmul(kernel):
    """A kernel that rounds float32 on the GPU as products of matrices do.

    PyTorch ships with TF32 (10 bits) for convolutions and without for matrices; here one switch,
    `torch.set_float32_matmul_precision`, is for both.
    """

    def compute(x, *rest):
        coarse = torch.get_float32_matmul_precision() != "highest"
        cudnn: Any = torch.backends.cudnn
        if not x.is_cuda or x.dtype is not torch.float32 or cudnn.allow_tf32 is coarse:
            return kernel(x, *rest)
        with cudnn.flags(None, None, None, None, allow_tf32=coarse):  # None: as it is
            return kernel(x, *rest)

    return compute


def _bilinear(kernel):
    """A product of real arrays for complex ones, and for half precision."""
    real = widened(_as_matmul(kernel))

    def compute(a, b, *how):
        if not a.is_complex() and not b.is_complex():
            return real(a, b, *how)
        if not a.is_complex():
            return torch.complex(real(a, b.real, *how), real(a, b.imag, *how))
        if not b.is_complex():
            return torch.complex(real(a.real, b, *how), real(a.imag, b, *how))
        one, other = real(a.real, b.real, *how), real(a.imag, b.imag, *how)
        across = real(a.real, b.imag, *how) + real(a.imag, b.real, *how)
        return torch.complex(one - other, across)

    return compute


def padded(x, padding, value: float = 0.0):
    """x with (before, behind) elements more, or fewer, on its last axes."""
    if not any([a or b for a, b in padding]):
        return x
    flat = [n for pair in reversed(padding) for n in pair]
    return functional.pad(x, flat, value=value)


def _split(x, padding):
    """x and the padding that torch's kernels add on both sides of it."""
    if all([a == b >= 0 for a, b in padding]):
        return x, [a for a, _ in padding]
    return padded(x, padding), [0] * len(padding)


def _checked(x, padding, groups: int) -> None:
    if x.ndim != len(padding) + 2 or groups < 1:
        raise ValueError("the number of axes does not fit")  # the row's shape rule says how


@_bilinear
def convolution(x, w, stride, padding, dilation, groups):
    _checked(x, padding, groups)
    if not x.numel() or not w.numel():
        counts = counts_of(x.shape[2:], w.shape[2:], stride, padding, dilation)
        return x.new_zeros((x.shape[0], w.shape[0], *counts))
    x, sides = _split(x, padding)
    return _FORWARD[len(stride)](x, w, None, stride, sides, dilation, groups)


def convolution_biased(x, w, b, stride, padding, dilation, groups):
    y = convolution(x, w, stride, padding, dilation, groups)
    return y + b.reshape(-1, *(1,) * len(stride))


@_bilinear
def convolution_transposed(y, w, stride, padding, dilation, groups):
    _checked(y, padding, groups)
    if not y.numel() or not w.numel():
        size = size_of(y.shape[2:], w.shape[2:], stride, padding, dilation)
        return y.new_zeros((y.shape[0], w.shape[1] * groups, *size))
    if all([a == b >= 0 for a, b in padding]):
        sides = [a for a, _ in padding]
        return _TRANSPOSED[len(stride)](y, w, None, stride, sides, 0, groups, dilation)
    x = _TRANSPOSED[len(stride)](y, w, None, stride, 0, 0, groups, dilation)
    return padded(x, [(-a, -b) for a, b in padding])


@_bilinear
def convolution_weight(x, y, stride, padding, dilation, groups):
    _checked(x, padding, groups)
    kernel = kernel_of(x.shape[2:], y.shape[2:], stride, padding, dilation)
    shape = (y.shape[1], x.shape[1] // groups, *kernel)
    if not x.numel() or not y.numel():
        return x.new_zeros(shape)
    x, sides = _split(x, padding)
    gradient: Any = _WEIGHT[len(stride)]
    return gradient(x, shape, y, stride, sides, dilation, groups)
