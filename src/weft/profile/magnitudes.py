"""Moments, extremes and decades of an array's elements, in one pass over its memory."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import frexp, inf, ldexp, sqrt
from typing import Any

import numpy as np

from ..arrays.dtype_functions import finfo
from ..core import dtypes
from ..core.backends import BACKENDS

# Elements that are converted to double precision at once, and that come from a GPU at once.
_PART, _FETCHED = 1 << 15, 1 << 21
LOWEST, HIGHEST = -324, 309  # decades of double precision, those of subnormal numbers included
_MOST = float(np.finfo(np.float64).max)


@dataclass(frozen=True)
class Moments:
    """The mean of `count` numbers g·2^−exponent, and the sum of their |g − mean|².

    The exponent is that of the largest number, so that squares neither overflow nor vanish.
    """

    count: int = 0
    mean: Any = 0.0
    deviation: float = 0.0
    exponent: int = -5000

    @classmethod
    def of(cls, part: np.ndarray, largest: float) -> "Moments":
        """The moments of some finite numbers, at least one."""
        exponent = frexp(min(largest, _MOST))[1]
        scaled = np.ldexp(part.view(np.float64), -exponent).view(part.dtype)
        mean = scaled.mean()
        return cls(part.size, mean, float((np.abs(scaled - mean) ** 2).sum()), exponent)

    def joined(self, other: "Moments") -> "Moments":
        """Those of both together (Chan, Golub and LeVeque 1983)."""
        count, top = self.count + other.count, max(self.exponent, other.exponent)
        if not count:
            return self
        a, b = (ldexp(1.0, m.exponent - top) for m in (self, other))
        off = other.mean * b - self.mean * a
        deviation = self.deviation * a * a + other.deviation * b * b
        deviation += float(abs(off)) ** 2 * (self.count / count) * other.count
        return Moments(count, self.mean * a + off * (other.count / count), deviation, top)

    @property
    def norm(self) -> float:
        """√Σ|g|²."""
        return self._scaled(sqrt(self.deviation + float(abs(self.mean)) ** 2 * self.count))

    @property
    def std(self) -> float:
        """√(Σ|g − mean|² / n)."""
        return self._scaled(sqrt(self.deviation / max(self.count, 1)))

    @property
    def average(self) -> float | complex:
        """Σg / n."""
        mean = complex(self.mean)
        if np.iscomplexobj(self.mean):
            return complex(self._scaled(mean.real), self._scaled(mean.imag))
        return self._scaled(mean.real)

    def _scaled(self, x: float) -> float:
        with np.errstate(over="ignore", under="ignore"):
            return float(np.ldexp(x, self.exponent))


@dataclass
class Magnitudes:
    """What one pass gathers; all but the counts is of finite elements."""

    size: int = 0
    nans: int = 0
    infs: int = 0
    zeros: int = 0
    subnormal: int = 0
    smallest: float = inf
    largest: float = 0.0
    moments: Moments = Moments()
    decades: np.ndarray = field(default_factory=lambda: np.zeros(HIGHEST - LOWEST, np.int64))

    def add(self, part: np.ndarray, tiny: float) -> None:
        """Take in a part, in double precision; `tiny` is its dtype's smallest normal number."""
        self.size += part.size
        finite = np.isfinite(part)
        if not finite.all():
            nans = int(np.isnan(part).sum())
            self.nans += nans
            self.infs += part.size - nans - int(finite.sum())
            part = part[finite]
        if not part.size:
            return
        size = np.abs(part)
        largest = float(size.max())
        self.largest = max(self.largest, largest)
        self.moments = self.moments.joined(Moments.of(part, largest))
        size = size[size != 0]
        self.zeros += part.size - size.size
        if not size.size:
            return
        self.smallest = min(self.smallest, float(size.min()))
        self.subnormal += int((size < tiny).sum())
        # |g| of a complex g may pass the largest number: such a g is of the last decade.
        decade = np.floor(np.log10(size)).clip(LOWEST, HIGHEST - 1).astype(np.int64)
        self.decades += np.bincount(decade - LOWEST, minlength=self.decades.size)

    def join(self, other: "Magnitudes") -> None:
        """Take in what another pass has gathered."""
        self.size += other.size
        self.nans += other.nans
        self.infs += other.infs
        self.zeros += other.zeros
        self.subnormal += other.subnormal
        self.smallest = min(self.smallest, other.smallest)
        self.largest = max(self.largest, other.largest)
        self.moments = self.moments.joined(other.moments)
        self.decades += other.decades


def magnitudes(raw: Any, dtype: Any) -> Magnitudes:
    """One pass over an array; small parts of it are converted to double precision."""
    found, tiny = Magnitudes(), finfo(dtype).smallest_normal
    wide = np.complex128 if dtypes.is_complex(dtype) else np.float64
    with np.errstate(over="ignore", under="ignore"):
        for host in _on_host(raw):
            for part in _parts(host, wide):
                found.add(part, tiny)
    return found


def _on_host(raw: Any) -> Iterator[np.ndarray]:
    """The elements in host memory: as they are, or from a GPU in parts."""
    xp = BACKENDS[type(raw)]
    if xp.device_of(raw) in ("cpu", "torch"):
        yield np.asarray(xp.to_numpy(raw))
        return
    flat = raw.reshape(-1)
    for k in range(0, len(flat), _FETCHED):
        yield xp.to_numpy(flat[k : k + _FETCHED])


def _parts(host: np.ndarray, wide: Any) -> Iterator[np.ndarray]:
    """The elements of an array in any layout, in double precision."""
    flags: Any = ("external_loop", "buffered", "zerosize_ok")
    operand: Any = [["readonly"]]
    found = np.nditer(host, flags, operand, [wide], "K", "same_kind", buffersize=_PART)
    with found as parts:
        for part in parts:
            yield np.ascontiguousarray(part)
