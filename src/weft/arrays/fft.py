"""Public Fourier transforms: `wf.fft`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import errors
from ..core import dtypes
from ..core.aval import integer_in
from ..ops import fft as _rows
from .arguments import as_tensor
from .keywords import signature_of, unexpected_keyword
from .make import asarray, number

if TYPE_CHECKING:
    from .tensor import Tensor
    from .types import Device, DTypeLike


def _public(row: Callable[..., Any]) -> Callable[..., Tensor]:
    known = frozenset(signature_of(row).parameters)

    @wraps(row)
    def function(x, *args, **options):
        if options and not known.issuperset(options):
            raise unexpected_keyword(row, options)
        return row(as_tensor(x), *args, **options)

    return function


fft: Callable[..., Tensor] = _public(_rows.fft)
ifft: Callable[..., Tensor] = _public(_rows.ifft)
rfft: Callable[..., Tensor] = _public(_rows.rfft)
irfft: Callable[..., Tensor] = _public(_rows.irfft)
fft2: Callable[..., Tensor] = _public(_rows.fft2)
ifft2: Callable[..., Tensor] = _public(_rows.ifft2)
rfft2: Callable[..., Tensor] = _public(_rows.rfft2)
irfft2: Callable[..., Tensor] = _public(_rows.irfft2)
fftn: Callable[..., Tensor] = _public(_rows.fftn)
ifftn: Callable[..., Tensor] = _public(_rows.ifftn)
rfftn: Callable[..., Tensor] = _public(_rows.rfftn)
irfftn: Callable[..., Tensor] = _public(_rows.irfftn)
hfft: Callable[..., Tensor] = _public(_rows.hfft)
ihfft: Callable[..., Tensor] = _public(_rows.ihfft)
fftshift: Callable[..., Tensor] = _public(_rows.fftshift)
ifftshift: Callable[..., Tensor] = _public(_rows.ifftshift)


def _length(name: str, n) -> int:
    n = int(integer_in(name, "n", n))
    if n < 1:
        raise errors.ArgumentError(f"{name}: n={n}, expected 1 or more")
    return n


def _distance(name: str, d) -> float:
    d = number(name, "d", d)
    if not d:
        raise errors.ArgumentError(f"{name}: d={d}, expected a distance other than 0")
    return d


def fftfreq(
    n: int, /, *, d: float = 1.0, dtype: DTypeLike | None = None, device: Device | None = None
) -> Tensor:
    """The frequencies k/(d·n) of `fft`, k = 0, 1, …, −2, −1, in its order.

    n       how many values
    d       the distance of two values
    dtype   None: the default float
    device  where the result is: "cpu", "cuda", … ; None for the default

    >>> import weft as wf
    >>> wf.fft.fftfreq(4).tolist()
    [0.0, 0.25, -0.5, -0.25]
    """
    n = _length("fftfreq", n)
    dtype = dtypes.default_float() if dtype is None else dtype
    d = _distance("fftfreq", d)
    return asarray(np.fft.fftfreq(n, d), dtype=dtype, device=device)


def rfftfreq(
    n: int, /, *, d: float = 1.0, dtype: DTypeLike | None = None, device: Device | None = None
) -> Tensor:
    """The frequencies k/(d·n) of `rfft`, k = 0, 1, …, ⌊n/2⌋.

    n       how many values
    d       the distance of two values
    dtype   None: the default float
    device  where the result is: "cpu", "cuda", … ; None for the default

    >>> import weft as wf
    >>> wf.fft.rfftfreq(4).tolist()
    [0.0, 0.25, 0.5]
    """
    n = _length("rfftfreq", n)
    dtype = dtypes.default_float() if dtype is None else dtype
    d = _distance("rfftfreq", d)
    return asarray(np.fft.rfftfreq(n, d), dtype=dtype, device=device)


__all__ = """
    fft fft2 fftfreq fftn fftshift hfft ifft ifft2 ifftn ifftshift ihfft irfft irfft2 irfftn rfft
    rfft2 rfftfreq rfftn
""".split()


def __dir__() -> list[str]:
    return list(__all__)
