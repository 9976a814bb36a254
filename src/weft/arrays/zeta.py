"""Riemann's zeta function of real numbers, differentiable."""

from math import factorial, inf, log, pi
from typing import TYPE_CHECKING

import numpy as np

from .. import errors
from ..core import dtypes
from ..ops.special import gammaln
from . import make
from .elementwise import FUNCTIONS as _F
from .elementwise import where

if TYPE_CHECKING:
    from .tensor import Tensor


def _eta_weights(n: int) -> np.ndarray:
    """The weights of 1/kˣ, k = 1 … n, in Borwein's sum for (1 − 2¹⁻ˣ)·ζ(x), good to 5.8⁻ⁿ."""
    d = [0]
    for i in range(n + 1):
        below = factorial(n - i) * factorial(2 * i)
        d.append(d[-1] + n * factorial(n + i - 1) * 4**i // below)
    return np.array([(-1) ** k * ((d[-1] - d[k + 1]) / d[-1]) for k in range(n)])


_WEIGHTS = _eta_weights(26)
_LOGS = np.log(np.arange(1.0, 27.0))


def riemann(x: "Tensor") -> "Tensor":
    """Borwein's sum for x ≥ −½, and the reflection ζ(x) = 2ˣ πˣ⁻¹ sin(πx/2) Γ(1−x) ζ(1−x) below."""
    x = x if dtypes.is_inexact(x.dtype) else x.to(dtypes.default_float())
    if dtypes.is_complex(x.dtype):
        raise errors.DTypeError("zeta: got complex numbers, expected real ones")
    mirrored = x < -0.5
    s = where(x == 1, 2.0, where(mirrored, 1 - x, x))
    n = len(_WEIGHTS)
    logs, weights = (make.asarray(a, dtype=x.dtype, device=x.device) for a in (_LOGS, _WEIGHTS))
    powers = _F["exp"](-s.reshape((*s.shape, 1)) * logs.reshape((n,)))
    eta = (powers * weights).sum(axis=-1)
    found = eta / -_F["expm1"]((1 - s) * log(2.0))
    low = where(mirrored, x, -1.0)
    turn = low - 4 * _F["round"](low / 4)  # sin(πx/2) exactly 0 at even x
    near = where(_F["abs"](turn) > 1, _F["sign"](turn) * (2 - _F["abs"](turn)), turn)
    size = _F["exp"](low * log(2 * pi) + gammaln(1 - low)) / pi
    found = where(mirrored, size * _F["sin"](near * (pi / 2)) * found, found)
    return where(x == 1, inf, found)
