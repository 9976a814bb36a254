"""Public Fourier transforms: `wf.fft`."""

# Written by tools/stubs.py; do not edit.

from collections.abc import Sequence

from .arrays.tensor import Tensor
from .arrays.types import ArrayLike, Device, DTypeLike

def fft(
    x: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = "backward"
) -> Tensor:
    """The discrete Fourier transform Σ xⱼ exp(−2πi jk/n) along an axis."""

def fft2(
    x: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = (-2, -1),
    norm: str | None = "backward",
) -> Tensor:
    """fftn over two axes."""

def fftfreq(
    n: int, /, *, d: float = 1.0, dtype: DTypeLike | None = None, device: Device | None = None
) -> Tensor:
    """The frequencies that `fft` of n values sampled d apart gives."""

def fftn(
    x: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = "backward",
) -> Tensor:
    """The discrete Fourier transform over several axes (None: all)."""

def fftshift(x: ArrayLike, axes: int | Sequence[int] | None = None) -> Tensor:
    """Frequency zero moved to the middle."""

def hfft(
    x: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = "backward"
) -> Tensor:
    """The real transform of a signal that has Hermitian symmetry, given by its first half."""

def ifft(
    x: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = "backward"
) -> Tensor:
    """The inverse of fft."""

def ifft2(
    x: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = (-2, -1),
    norm: str | None = "backward",
) -> Tensor:
    """The inverse of fft2."""

def ifftn(
    x: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = "backward",
) -> Tensor:
    """The inverse of fftn."""

def ifftshift(x: ArrayLike, axes: int | Sequence[int] | None = None) -> Tensor:
    """The inverse of fftshift."""

def ihfft(
    x: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = "backward"
) -> Tensor:
    """The inverse of hfft."""

def irfft(
    x: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = "backward"
) -> Tensor:
    """The inverse of rfft; n must be given if it is odd."""

def irfft2(
    x: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = (-2, -1),
    norm: str | None = "backward",
) -> Tensor:
    """The inverse of rfft2."""

def irfftn(
    x: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = "backward",
) -> Tensor:
    """The inverse of rfftn; the last length must be given if it is odd."""

def rfft(
    x: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = "backward"
) -> Tensor:
    """fft of real numbers: the frequencies 0 to n/2, which determine the others."""

def rfft2(
    x: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = (-2, -1),
    norm: str | None = "backward",
) -> Tensor:
    """rfftn over two axes."""

def rfftfreq(
    n: int, /, *, d: float = 1.0, dtype: DTypeLike | None = None, device: Device | None = None
) -> Tensor:
    """The frequencies that `rfft` of n values sampled d apart gives."""

def rfftn(
    x: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = "backward",
) -> Tensor:
    """fftn of real numbers, without the half of the last axis that symmetry determines."""

__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]
