"""Public Fourier transforms: `wf.fft`."""

# Written by tools/stubs.py; do not edit.

from collections.abc import Sequence

from .arrays.tensor import Tensor
from .arrays.types import ArrayLike, Device, DTypeLike

def fft(
    x: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = "backward"
) -> Tensor:
    """The discrete Fourier transform yₖ = Σⱼ xⱼ exp(−2πi·jk/n) along an axis."""

def fft2(
    x: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = (-2, -1),
    norm: str | None = "backward",
) -> Tensor:
    """The discrete Fourier transform over two axes: `fft` along each."""

def fftfreq(
    n: int, /, *, d: float = 1.0, dtype: DTypeLike | None = None, device: Device | None = None
) -> Tensor:
    """The frequencies k/(d·n) of `fft`, k = 0, 1, …, −2, −1, in its order."""

def fftn(
    x: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = "backward",
) -> Tensor:
    """The discrete Fourier transform over several axes: `fft` along each."""

def fftshift(x: ArrayLike, axes: int | Sequence[int] | None = None) -> Tensor:
    """Frequency zero moved to the middle: x rolled by ⌊n/2⌋."""

def hfft(
    x: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = "backward"
) -> Tensor:
    """The real transform of a signal with Hermitian symmetry, given by its first half."""

def ifft(
    x: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = "backward"
) -> Tensor:
    """The inverse of `fft`: xⱼ = (1/n) Σₖ yₖ exp(2πi·jk/n) along an axis."""

def ifft2(
    x: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = (-2, -1),
    norm: str | None = "backward",
) -> Tensor:
    """The inverse of `fft2`."""

def ifftn(
    x: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = "backward",
) -> Tensor:
    """The inverse of `fftn`."""

def ifftshift(x: ArrayLike, axes: int | Sequence[int] | None = None) -> Tensor:
    """The inverse of `fftshift`: frequency zero moved to the beginning."""

def ihfft(
    x: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = "backward"
) -> Tensor:
    """The inverse of `hfft`: the first half of a signal with Hermitian symmetry."""

def irfft(
    x: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = "backward"
) -> Tensor:
    """The inverse of `rfft`: n real numbers from ⌊n/2⌋ + 1 frequencies."""

def irfft2(
    x: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = (-2, -1),
    norm: str | None = "backward",
) -> Tensor:
    """The inverse of `rfft2`, which gives real numbers."""

def irfftn(
    x: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = "backward",
) -> Tensor:
    """The inverse of `rfftn`, which gives real numbers."""

def rfft(
    x: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = "backward"
) -> Tensor:
    """`fft` of real numbers: the frequencies 0 to ⌊n/2⌋, whose conjugates are the others."""

def rfft2(
    x: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = (-2, -1),
    norm: str | None = "backward",
) -> Tensor:
    """`fft2` of real numbers, without the half of the last axis that symmetry determines."""

def rfftfreq(
    n: int, /, *, d: float = 1.0, dtype: DTypeLike | None = None, device: Device | None = None
) -> Tensor:
    """The frequencies k/(d·n) of `rfft`, k = 0, 1, …, ⌊n/2⌋."""

def rfftn(
    x: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = "backward",
) -> Tensor:
    """`fftn` of real numbers, without the half of the last axis that symmetry determines."""

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
