"""Bessel functions of integer order on PyTorch in double precision.

torch's own J and Y have seven digits, and it has no orders but 0 and 1.
"""

import math
from collections.abc import Callable

import torch

from .types import Array

# J and Y by power series up to NEAR, by recurrence up to FAR, and asymptotically beyond.
NEAR, FAR = 5.0, 25.0
EULER = 0.5772156649015329


def _power_series(x: Array, n: int, curvature: int, weights: list[float] | None = None) -> Array:
    """Σ wₖ (±x²/4)ᵏ (x/2)ⁿ / k!(n + k)!, for small x."""
    q = curvature * x * x / 4
    weights = weights or [1.0] * (26 + n)
    total = torch.full_like(x, weights[-1])
    for k in range(len(weights) - 1, 0, -1):
        total = weights[k - 1] + total * q / (k * (n + k))
    return total * (x / 2) ** n / math.factorial(n)


def _near_y(x: Array, n: int) -> Array:
    """Y₀ or Y₁ for small x (DLMF 10.8.1)."""
    harmonic = [math.fsum(1 / j for j in range(1, k + 1)) for k in range(28)]
    weights = [harmonic[k] + harmonic[k + n] - 2 * EULER for k in range(27)]
    y = 2 * torch.log(x / 2) * _power_series(x, n, -1) - _power_series(x, n, -1, weights)
    return (y - 2 / x if n else y) / math.pi


def _downward(x: Array, n: int) -> tuple[Array, Array, Array]:
    """(Jₙ, Y₀, Y₁) for x of medium size, from the recurrence started beyond the order x.

    The Js are fixed by J₀ + 2J₂ + 2J₄ + … = 1; the Ys are Neumann's series of them.
    """
    above, y = torch.zeros_like(x), torch.ones_like(x)
    norm, even, odd, wanted = (torch.zeros_like(x) for _ in range(4))
    for k in range(80 + n, -1, -1):
        above, y = y, 2 * (k + 1) / x * y - above
        sign, half = (-1) ** (k // 2), k // 2
        wanted = y if k == n else wanted
        if k % 2:
            odd = odd + sign * k / (half * (half + 1)) * y if half else odd
        else:
            norm = norm + (2 * y if k else y)
            even = even + sign / half * y if half else even
    zero, one = y, above
    log = torch.log(x / 2) + EULER
    y0 = 2 * (log * zero - 2 * even) / norm
    y1 = 2 * ((log - 1) * one - odd - zero / x) / norm
    return wanted / norm, y0 / math.pi, y1 / math.pi


def _asymptotic(x: Array) -> tuple[list[Array], list[Array]]:
    """((J₀, J₁), (Y₀, Y₁)) by Hankel's expansion (DLMF 10.17.3), for large x."""
    cos, sin = torch.cos(x) + torch.sin(x), torch.sin(x) - torch.cos(x)
    first, second = [], []
    for n in (0, 1):
        term, parts = torch.ones_like(x) / torch.sqrt(math.pi * x), [torch.zeros_like(x)] * 2
        for k in range(25):
            parts[k % 2] = parts[k % 2] + (-1) ** (k // 2) * term
            term = term * (4 * n * n - (2 * k + 1) ** 2) / (8 * (k + 1) * x)
        p, q = parts
        first.append(p * cos - q * sin)
        second.append(p * sin + q * cos)
        cos, sin = sin, -cos
    return first, second


def _upward(x: Array, n: int, curvature: int, below: Array, y: Array) -> Array:
    """Order n from the orders 0 and 1; stable as long as n does not exceed |x| by much."""
    if n == 0:
        return below
    for k in range(1, n):
        below, y = y, curvature * (below - (2 * k / x) * y)
    return y


def _by_size(
    x: Array,
    near: Callable[[Array], Array],
    medium: Callable[[Array], Array],
    far: Callable[[Array], Array],
) -> Array:
    """The function that fits the size of each x ≥ 0; at infinity all of them are zero."""
    y = torch.zeros_like(x)
    for mask, function in (
        ((x >= 0) & (x <= NEAR), near),
        ((x > NEAR) & (x <= FAR), medium),
        ((x > FAR) & x.isfinite(), far),
    ):
        if mask.any():
            y = torch.where(mask, function(x), y)
    return y


def j(x: Array, n: int) -> Array:
    """Jₙ(x)."""
    order = abs(n)
    y = _by_size(
        x.abs(),
        lambda x: _power_series(x, order, -1),
        lambda x: _downward(x, order)[0],
        lambda x: _upward(x, order, -1, *_asymptotic(x)[0]),
    )
    y = torch.where(x.isnan(), x, y)
    return torch.where((x < 0) != (n < 0), -y, y) if order % 2 else y


def y(x: Array, n: int) -> Array:
    """Yₙ(x) for n = 0 and 1."""
    y = _by_size(
        x, lambda x: _near_y(x, n), lambda x: _downward(x, 0)[1 + n], lambda x: _asymptotic(x)[1][n]
    )
    y = torch.where(x == 0, -math.inf, y)
    return torch.where((x < 0) | x.isnan(), math.nan, y)


def i(x: Array, n: int) -> Array:
    """Iₙ(x)."""
    order = abs(n)
    up = _upward(x, order, 1, torch.special.i0(x), torch.special.i1(x))
    if order < 2:
        return up
    return torch.where(x.abs() <= max(2, order), _power_series(x, order, 1), up)


def ie(x: Array, n: int) -> Array:
    """e^(-|x|)·Iₙ(x)."""
    order = abs(n)
    up = _upward(x, order, 1, torch.special.i0e(x), torch.special.i1e(x))
    if order < 2:
        return up
    small = _power_series(x, order, 1) * torch.exp(-x.abs())
    return torch.where(x.abs() <= max(2, order), small, up)


def spherical_j(x: Array, n: int) -> Array:
    """jₙ(x) = √(π/2x) J_{n+½}(x)."""
    total, q = torch.ones_like(x), -x * x / 2
    for k in range(20 + n, 0, -1):
        total = 1 + total * q / (k * (2 * n + 2 * k + 1))
    small = total * x**n / math.prod(range(1, 2 * n + 2, 2))
    below, y = torch.cos(x) / x, torch.sin(x) / x
    for k in range(n):
        below, y = y, ((2 * k + 1) / x) * y - below
    return torch.where(x.abs() <= max(2, n), small, y)
