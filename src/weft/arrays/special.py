"""Public special functions: `wf.special`, under SciPy's names."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Never

from .. import errors
from ..core.aval import integer_in
from ..core.op import TABLE
from ..ops import special as _special
from ..ops.structural import inverse as _inverse
from . import reductions
from .arguments import as_tensor, axes_of
from .elementwise import public as _public
from .keywords import unexpected_keyword
from .reductions import logsumexp
from .zeta import riemann as _riemann

if TYPE_CHECKING:
    from .tensor import Tensor
    from .types import ArrayLike, Axes

FUNCTIONS = {op.name: _public(op, "wf.special") for op in TABLE.values() if op.public == "special"}
globals().update(FUNCTIONS)
psi = FUNCTIONS["digamma"]
lgamma = FUNCTIONS["gammaln"]


def polygamma(n: int, x: ArrayLike, /) -> Tensor:
    """ψ⁽ⁿ⁾(x), the n-th derivative of `digamma`.

    n  a nonnegative integer; 0 is `digamma` itself
    x  an array or a number; the function is applied to each element

    >>> import weft as wf
    >>> round(wf.special.polygamma(1, 1.0).item(), 4)
    1.6449
    """
    n = integer_in("polygamma", "n", n)
    if n < 0:
        raise errors.ArgumentError(f"polygamma: n={n}, expected 0 or more")
    return _special.polygamma(n, as_tensor(x))


def zeta(x: ArrayLike, q: ArrayLike | None = None, /) -> Tensor:
    """Hurwitz' ζ(x, q) = Σ 1/(k + q)ˣ over k ≥ 0, or Riemann's ζ(x) = ζ(x, 1).

    x  an array or a number; above 1 if q is given, else any real number
    q  an array or a number, in which it is differentiable; None: Riemann's function

    >>> import weft as wf
    >>> round(wf.special.zeta(2.0).item(), 5)
    1.64493
    """
    return FUNCTIONS["zeta"](x, q) if q is not None else _riemann(as_tensor(x))


def softmax(x: ArrayLike, /, axis: Axes = None, **unknown: Never) -> Tensor:
    """exp(xᵢ)/Σ exp(xⱼ) over all elements, or over an axis or several, as in SciPy.

    x     an array, or anything `wf.asarray` accepts
    axis  the axis or axes to normalise over; None: all

    >>> import weft as wf
    >>> wf.special.softmax([[0.0, 0.0], [0.0, 0.0]]).tolist()
    [[0.25, 0.25], [0.25, 0.25]]
    """
    if unknown:
        raise unexpected_keyword(softmax, unknown)
    return _normalise(x, axis, reductions.softmax)


def log_softmax(x: ArrayLike, /, axis: Axes = None, **unknown: Never) -> Tensor:
    """xᵢ − log Σ exp(xⱼ) over all elements, or over an axis or several, as in SciPy.

    x     an array, or anything `wf.asarray` accepts
    axis  the axis or axes to normalise over; None: all

    >>> import weft as wf
    >>> [round(v, 4) for v in wf.special.log_softmax([0.0, 0.0]).tolist()]
    [-0.6931, -0.6931]
    """
    if unknown:
        raise unexpected_keyword(log_softmax, unknown)
    return _normalise(x, axis, reductions.log_softmax)


def _normalise(x, axis, along):
    """`along` one axis; several are joined into one, and taken apart again."""
    x = as_tensor(x)
    if isinstance(axis, int):
        return along(x, axis)
    picked = axes_of(along.__name__, x, axis)
    order = (*[k for k in range(x.ndim) if k not in picked], *picked)
    turned = x.permute_dims(order)
    lead = turned.shape[: x.ndim - len(picked)]
    joined = turned.reshape((*lead, prod([x.shape[k] for k in picked])))
    return along(joined, -1).reshape(turned.shape).permute_dims(_inverse(order))


__all__ = [*sorted(FUNCTIONS), "lgamma", "log_softmax", "logsumexp", "polygamma", "psi", "softmax"]


def __dir__() -> list[str]:
    return list(__all__)
